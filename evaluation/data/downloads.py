"""Downloads of public files at a pinned commit, checked by SHA-256 and cached in the user's cache folder."""

import logging
import os
from pathlib import Path

from evenhand.evaluation.errors import InputError


def fetch_pinned_file(url: str, sha256: str, cache_path: str, fix: str) -> Path:
    """Return the path of the cached copy of `url`; a copy that is missing or has another SHA-256 is downloaded.

    The cache folder is `evenhand` in `$XDG_CACHE_HOME`, or in `~/.cache`. Errors end with `fix`, a way to do without
    the download.

    Raises:
        InputError: the download fails, its SHA-256 differs, or the cache folder cannot be written.
    """
    import pooch  # here because the import takes half a second

    pooch.get_logger().setLevel(logging.WARNING)
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenhand" / cache_path
    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", fname=path.name, path=path.parent))
    except (OSError, ValueError) as error:  # no connection, another content, an unwritable folder
        raise InputError(url, f"cannot be downloaded to {path} ({error}); {fix}") from None
