"""What the record of a run cannot make a command do, since the run may come from another person.

A record describes. Some settings act where a command uses them: they execute code (`trust_remote_code`, files of
lm-evaluation-harness), or send texts and the user's key to a server. A command takes them from its command line or its
YAML file. Where the record of a run names them, the command asks for them again. Where a command writes, and what it
uploads, is never taken from a record. This module imports nothing slow.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import CHAT_COMPLETIONS, COMPLETIONS, LOCAL_SOURCES, NOWHERE, server_api

CODE = "trust_remote_code"
SERVER = "server"
SOURCE = "source"  # of a model
SERVERS = "servers"  # of `tune` and `loop`: the servers of a record that the user allows
TASKS = "capabilities"
LAUNCHES = ("launch", "launch_arguments")  # of a server that is started
ACTING = (CODE, SERVER, SOURCE, SERVERS, TASKS, *LAUNCHES)
# Settings of where a command writes, listens, computes and uploads.
PLACES = ("cache", "write_prompts", "write_rows", "output_dir", "host", "ray", "push_to_hub", "upload")
HARNESS_FILES = (".yaml", ".yml")  # of lm-evaluation-harness: their templates can execute code


@dataclass(frozen=True)
class Permissions:
    """What the user allows a record to do.

    Attributes:
        code: execute code that comes with a model.
        servers: the addresses of servers that may get texts.
        tasks: files of lm-evaluation-harness.
        code_flag, servers_flag, tasks_flag: the flags of the command by which the user allows each.
    """

    code: bool = False
    servers: Collection[str] = ()
    tasks: Collection[str] = ()
    code_flag: str = "--trust_remote_code"
    servers_flag: str = "--servers"
    tasks_flag: str = "--capabilities"


def acting_settings(settings: object, group: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each setting, in nested plain values, that acts where it is used.

    >>> list(acting_settings({"model": {"name": "m", "trust_remote_code": True, "server": None}}))
    [('model.trust_remote_code', True)]
    """
    if isinstance(settings, list):
        for item in settings:  # the points of a sweep, which have whole names
            yield from acting_settings(item)
        return
    if not isinstance(settings, Mapping):
        return
    for key, value in settings.items():
        name = f"{group}.{key}" if group else str(key)
        last = name.rpartition(".")[2]
        if last not in ACTING:
            yield from acting_settings(value, name)
        elif last == TASKS and isinstance(value, list):
            files = [task for task in value if _is_harness_file(task)]
            if files:
                yield name, files
        elif last == SOURCE:
            if value not in LOCAL_SOURCES:
                yield name, value
        elif value not in (False, None, []):
            yield name, value


def without_places(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested settings of a record without the settings PLACES, which are then the defaults."""
    kept: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in PLACES:
            kept[name] = without_places(value) if isinstance(value, Mapping) else value
    return kept


def described(settings: Mapping[str, Any], but: Collection[str] = (), group: str = "") -> dict[str, Any]:
    """Return the nested settings of a record such that nothing in them can act.

    A server is one that is never found; the end of its address, which says its API, is kept. Such a server also takes
    the place of a provider that needs no address, and of a server that was started, which had the model's tokenizer.

    Args:
        but: the beginnings of the dotted names of settings that may act, after `check_permitted`.
        group: the dotted name of the group that the settings are in.
    """
    kept: dict[str, Any] = {}
    for key, value in without_places(settings).items():
        name = f"{group}.{key}" if group else str(key)
        if key in LAUNCHES:
            kept[key] = None
        elif isinstance(value, Mapping):
            kept[key] = described(value, but, name)
        elif name.startswith(tuple(but)):
            kept[key] = value
        elif key == CODE:
            kept[key] = False
        elif key == SERVER and isinstance(value, str):
            kept[key] = NOWHERE + (COMPLETIONS if server_api(value) == "completions" else CHAT_COMPLETIONS)
        elif key == SOURCE and value not in LOCAL_SOURCES:
            kept[key] = SERVER
        elif key == TASKS and isinstance(value, list):
            kept[key] = [task for task in value if not _is_harness_file(task)]
        else:
            kept[key] = value
    if settings.get("launch"):
        kept[SERVER] = NOWHERE
        kept["tokenizer"] = settings.get("tokenizer") or settings.get("name")
    if kept.get(SOURCE) == SERVER and not kept.get(SERVER):
        kept[SERVER] = NOWHERE
    return kept


def _is_harness_file(task: object) -> bool:
    return str(task).lower().endswith(HARNESS_FILES)


def check_permitted(settings: Mapping[str, Any], permissions: Permissions, field: str, used: Collection[str]) -> None:
    """Raise InputError if the settings of a record would do what the user does not allow.

    Args:
        settings: nested plain values, as the record has them.
        field: the setting with the folder of the run.
        used: the beginnings of the dotted names of the settings that the command uses.
    """
    asked: list[str] = []
    flags: dict[str, list[str]] = {}
    for name, value in acting_settings(settings):
        if not name.startswith(tuple(used)):
            continue
        last = name.rpartition(".")[2]
        if last == CODE:
            if not permissions.code:
                asked.append(f"execute code that comes with {_model_of(settings, name)}")
                flags[permissions.code_flag] = ["true"]
        elif last == TASKS:
            missing = [task for task in value if task not in permissions.tasks]
            if missing:
                asked.append(f"run {', '.join(missing)}, which can execute code")
                flags[permissions.tasks_flag] = value
        elif value not in permissions.servers:
            asked.append(f"send texts, and your API key, to {value}")
            flags.setdefault(permissions.servers_flag, []).append(str(value))
    if asked:
        given = " ".join(f"{flag} {shlex.quote(','.join(dict.fromkeys(values)))}" for flag, values in flags.items())
        asks = " and to ".join(dict.fromkeys(asked))
        raise InputError(
            field,
            f"the record of this run, which may come from another person, asks to {asks}; if you trust that, give the "
            f"same command with {given}.",
        )


def _model_of(settings: Mapping[str, Any], name: str) -> str:
    """Return the name of the model in the group of a setting, for messages."""
    group: Any = settings
    for part in name.split(".")[:-1]:
        group = group.get(part, {})
    return repr(group.get("name", "a model"))
