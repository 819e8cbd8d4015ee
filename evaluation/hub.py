"""The Hugging Face hub: its client, and one line on what to do where the hub cannot be reached, is closed or refuses.

Without a network, huggingface_hub tries each file again for a minute. So the first use of the hub asks once whether it
answers; if it does not, the client works offline for the rest of the process, from the files on this machine.
"""

import logging
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, getproxies, urlopen

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, first_line

log = logging.getLogger("evenhand")

TIMEOUT = 5.0  # seconds for a connection; requests of the client itself take longer
LOGIN = "run `hf auth login` with a token that may write, or set HF_TOKEN"


def hub() -> ModuleType:
    """Return the module huggingface_hub; its functions use only files on this machine if the hub cannot be reached."""
    offline_reason()
    import huggingface_hub  # takes a third of a second, and local models do not need it

    return huggingface_hub


@cache
def offline_reason() -> str:
    """Return why no request is sent to the hub; "" if requests are sent. The first call asks whether it answers."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set, so that the hub is not asked"
    problem = _connection_problem(constants.ENDPOINT)
    if not problem:
        return ""
    constants.HF_HUB_OFFLINE = True
    reason = f"the hub {constants.ENDPOINT} cannot be reached ({problem})"
    log.warning("%s: only models and data on this machine are used", reason)
    return reason


def _connection_problem(address: str) -> str:
    """Return why nothing answers at an address; "" if something does, or if only the client can find out.

    Proxies of the environment are used. Python knows neither ALL_PROXY nor SOCKS, and the hub's client both.
    """
    proxies = getproxies()
    proxy = proxies.get(urlsplit(address).scheme, "")
    if proxy.startswith("socks") or ("all" in proxies and not proxy):
        return ""
    try:
        with urlopen(Request(address, method="HEAD"), timeout=TIMEOUT):
            return ""
    except HTTPError:  # it answers
        return ""
    except URLError as error:
        # The client may know certificates that Python does not.
        return "" if "certificate" in str(error.reason).lower() else re.sub(r"^\[Errno -?\d+\] ", "", str(error.reason))
    except OSError as error:  # no answer in time
        return first_line(error)


def not_here(name: str, error: Exception) -> InputError:
    """Return the error for a model of which a file is neither on this machine nor on the hub."""
    if is_gated(error):
        return InputError("model", gated_message(name))
    reason = offline_reason()
    if not reason:
        return InputError("model", f"{name!r} is no folder, and the hub does not give it ({first_line(error)}).")
    return InputError(
        "model",
        f"{name!r} is no folder, and no model that was downloaded to this machine; {reason}. Give a model of this "
        f"machine (`hf cache ls`), download it where the hub can be reached (`hf download {name}`), or give "
        f"{spelled('model.server')} for a model on a server. A style classifier, `go_emotions`, is shipped, and so is "
        "the model of `--config testbed`.",
    )


def is_gated(error: BaseException) -> bool:
    """Return whether the hub refuses a model because its licence is not accepted, or nobody is logged in."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    text = str(error)
    return type(error).__name__ == "GatedRepoError" or status in (401, 403) or "gated repo" in text


def gated_message(repository: str) -> str:
    """Return the problem of a model whose licence must be accepted, or that does not exist."""
    return (
        f"the hub gives {repository!r} only to people who accepted its licence: accept it on "
        f"https://huggingface.co/{repository}, run `hf auth login`, and try again. The same answer comes for a private "
        "model, and for a name that does not exist."
    )


def check_upload(repository: str, field: str) -> None:
    """Raise InputError, about the setting `field`, if nothing can be uploaded to a repository of the hub.

    Its name is checked, whether the hub can be reached, and whether somebody is logged in with a token that may write.
    """
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise InputError(field, f"{first_line(error)} Give NAME/MODEL.") from None
    reason = offline_reason()
    if reason:
        raise InputError(field, f"{reason}; leave it out, and upload the folder later: the same command with it does.")
    try:
        account = hub().HfApi().whoami()
    except Exception as error:  # of any kind: the errors of the hub's HTTP client change with its version
        raise InputError(field, f"the hub does not know who uploads ({first_line(error)}); {LOGIN}.") from None
    token = account.get("auth", {}).get("accessToken", {})
    if token.get("role") == "read":
        raise InputError(field, f"the token of {account.get('name')!r} may only read; {LOGIN}.")


def upload(repository: str, folder: Path, message: str, field: str) -> str:
    """Upload a folder to a repository, which is made, private, if there is none; return the address of the commit.

    InputError, about the setting `field`, if the hub refuses or the connection breaks.
    """
    api = hub().HfApi()
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        return api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message).commit_url
    except Exception as error:  # of any kind: the errors of the hub's HTTP client change with its version
        raise InputError(
            field,
            f"{repository!r} cannot be uploaded to ({first_line(error)}). The export is in {folder}; give a repository "
            "of yours, and the same command uploads it.",
        ) from None
