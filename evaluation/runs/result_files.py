"""The result files of a run, by name and SHA-256, as its manifest lists them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.runs.files import is_file_name_inside, sha256_of

# Results, and no reports, which people may edit, or summaries, which are written again whenever they are asked for.
RESULTS = (".parquet", ".json", ".csv", ".safetensors")
NOT_RESULTS = ("parts", "checkpoints", "wandb", "tensorboard", "summary")


def hash_results(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each result file in a run folder, by its name seen from the folder, sorted."""
    found = (path for path in sorted(folder.rglob("*")) if path.suffix in RESULTS and path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in found}
    return {
        name: sha256_of(path)
        for name, path in names.items()
        if name.partition("/")[0] not in NOT_RESULTS and is_file_name_inside(folder, name)
    }


def check_file_names(folder: Path, names: Iterable[str], manifest: str) -> None:
    """Check that every name in a manifest is a plain relative name of a file inside the run folder.

    A manifest may come from somebody else, and a file that differs from its hash is deleted and computed again.

    Raises:
        InputError: a name is absolute, has "..", a backslash or a drive, or leads out of the folder by a link.
    """
    for name in names:
        if not is_file_name_inside(folder, name):
            raise InputError(
                f"{manifest} lists the file {format_value(name)}, which is not the name of a file inside that "
                "folder; nothing was deleted. Get an intact copy of the run, or give another folder."
            )


def damaged_files(folder: Path, hashes: Mapping[str, str]) -> list[str]:
    """Return the names of the files that are missing, or whose SHA-256 is another than the manifest's."""
    return [name for name, sha in hashes.items() if not (folder / name).is_file() or sha256_of(folder / name) != sha]
