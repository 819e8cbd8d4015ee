"""Versions of the installed packages, and the git commit of this code, for the record of a run."""

import subprocess
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("evenhand", "torch", "transformers", "peft", "trl", "accelerate", "datasets", "numpy", "scipy", "wandb")


def package_versions() -> dict[str, str]:
    """Return the installed version of each package that may affect the numbers of a run."""
    return {name: version(name) for name in PACKAGES}


def commit() -> str | None:
    """Return the git commit of this code, with "-dirty" if the working copy has changes.

    The result is None if git does not track this file, for example because the package is installed.
    """
    path = Path(__file__).resolve()
    git = ["git", "-C", str(path.parent)]
    try:
        # An installed package may lie inside another project's working copy, whose commit does not describe it.
        subprocess.run([*git, "ls-files", "--error-unmatch", str(path)], capture_output=True, check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changes = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{head}-dirty" if changes.strip() else head
