"""Folders of pages that are no runs, such as those of `report` and `check`, and folders with files of the user."""

from pathlib import Path

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import TEMPORARY, check_links_inside, write_text
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.runs.results import LOCK, PAGES, TRACKERS

CHECKED = ("junit.xml", "summary.md")  # the files of a check


def clear_pages(folder: Path, command: str) -> None:
    """Remove the files of the last check in a folder that is marked as the command's."""
    mark = folder / PAGES
    if mark.is_file() and mark.read_text(encoding="utf-8").strip() == command:
        for name in CHECKED:
            (folder / name).unlink(missing_ok=True)


def check_no_files(folder: Path, but_folders: bool = False) -> None:
    """Raise InputError if a folder has files, since it is no run: files of the user are not replaced or deleted.

    With `but_folders`, it may have folders.
    """
    try:
        found = sorted(folder.iterdir()) if folder.exists() else []
        names = [path.name for path in found if not (but_folders and path.is_dir())]
    except OSError as error:
        raise InputError("output_dir", f"{folder} cannot be read ({error.strerror}); give another.") from None
    others = [name for name in names if name != LOCK and not TEMPORARY.fullmatch(name)]
    if others:
        raise InputError(
            "output_dir",
            f"{folder} is not empty and no run of Evenhand (it has {others[0]}); give another folder, so "
            "that no file of yours is replaced.",
        )


def claim_pages(folder: Path, command: str) -> None:
    """Mark a folder that is no run as the folder of a command's pages, which the command may replace.

    Subfolders do not matter, since nothing in them is replaced.

    Raises:
        InputError: the folder has files of the user, or pages of another command.
    """
    mark = folder / PAGES
    check_links_inside(folder, "output_dir", leave_out=TRACKERS)
    if mark.is_file():
        written_by = mark.read_text(encoding="utf-8", errors="replace").strip()
        if written_by != command:
            raise InputError("output_dir", f"{folder} has pages of `{written_by[:40]}`; give another folder.")
        return
    if read_record(folder, "output_dir") is not None:
        raise InputError("output_dir", f"{folder} has a run; give another folder to `{command}`.")
    check_no_files(folder, but_folders=True)
    write_text(mark, f"{command}\n")
