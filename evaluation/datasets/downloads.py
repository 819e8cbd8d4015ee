"""Public files at a pinned commit, downloaded once, checked by their SHA-256 and kept in the user's cache folder."""

import logging
import os
from pathlib import Path

from evenhand.evaluation.errors import InputError


def fetch_pinned_file(url: str, sha256: str, place: str, instead: str) -> Path:
    """Return the local copy of `url`, downloading it unless `place` in the cache folder holds that content.

    The cache folder is `evenhand` in `$XDG_CACHE_HOME`, or in `~/.cache`. `instead` says what a user without the
    download can do; it ends each error.

    Raises:
        InputError: no network, another content than the pinned one, or a cache folder that cannot be written.
    """
    import pooch  # takes half a second, which only those wait who name such a file
    from requests import RequestException

    pooch.get_logger().setLevel(logging.WARNING)
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenhand" / place
    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", fname=path.name, path=path.parent))
    except RequestException as error:
        raise InputError(f"{url} cannot be downloaded ({error}); {instead}") from None
    except ValueError as error:
        raise InputError(f"{url} has not the pinned content ({error}) {instead}") from None
    except OSError as error:
        raise InputError(f"cannot keep {path} ({error}); set XDG_CACHE_HOME to a writable folder.") from None
