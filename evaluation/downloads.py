"""Public files at a pinned commit, downloaded once, checked by their SHA-256 and kept in the user's cache folder."""

import hashlib
import os
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

from evaluation.errors import InputError
from evaluation.files import sha256_of, written_whole

TIMEOUT_SECONDS = 30


def pinned_file(url: str, sha256: str, place: str, instead: str) -> Path:
    """Return the local copy of `url`, downloading it unless `place` in the cache folder holds that content.

    The cache folder is `evenhand` in `$XDG_CACHE_HOME`, or in `~/.cache`. `instead` says what a user without the
    download can do; it ends each error.

    Raises:
        InputError: no network, another content than the pinned one, or a cache folder that cannot be written.
    """
    path = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenhand" / place
    if path.is_file() and sha256_of(path) == sha256:
        return path
    try:
        with urlopen(url, timeout=TIMEOUT_SECONDS) as response:
            content = response.read()
    except (OSError, HTTPException) as error:
        raise InputError(f"{url} cannot be downloaded ({error}); {instead}") from None
    received = hashlib.sha256(content).hexdigest()
    if received != sha256:
        raise InputError(f"{url} has SHA-256 {received}, not the pinned {sha256}; {instead}")
    try:
        with written_whole(path) as temporary:
            temporary.write_bytes(content)
    except InputError as error:
        cause = error.__cause__ or error
        raise InputError(f"cannot keep {path} ({cause}); set XDG_CACHE_HOME to a writable folder.") from None
    return path
