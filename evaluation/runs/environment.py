"""The software that computes a run's numbers: versions of packages, and the commit of this code."""

import subprocess
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("evenhand", "torch", "transformers", "peft", "trl", "accelerate", "datasets", "numpy", "scipy", "wandb")


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that shape the numbers."""
    return {name: version(name) for name in PACKAGES}


def commit() -> str | None:
    """Return the commit of the working copy that this code is part of, with "-dirty" if it has changes, or None."""
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
