"""Files of questions for raters, and files of templates and descriptors whose prompts raters do not see."""

from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_yaml

DATA = Path(__file__).resolve().parents[1] / "data" / "files" / "rating"
_Text = Annotated[str, StringConstraints(strict=True, min_length=1, strip_whitespace=False, pattern=r"\S")]


class _LeaveOut(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")
    template: list[_Text]
    descriptor: list[_Text]


_CONTENTS = {"questions": TypeAdapter(dict[_Text, _Text]), "leave_out": TypeAdapter(_LeaveOut)}


def rating_file(field: str, name: str) -> Path:
    """Return the path of a setting's file; "paper" is the shipped file after Smith et al. 2022, §C.2.2."""
    return DATA / f"{field}.yaml" if name == "paper" else Path(name)


def read_rating_file(field: str, path: Path) -> dict:
    """Return the questions in a file, name → text in its order, or its lists of left-out templates and descriptors.

    Raises:
        InputError: the file cannot be read, or its content has another form.

    >>> list(read_rating_file("questions", rating_file("questions", "paper")))
    ['preference', 'humanness', 'interestingness']
    """
    try:
        content = _CONTENTS[field].validate_python(read_yaml(path, field))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise InputError(f"{field}: {path}: {place} {first['msg']}; write it like {DATA / f'{field}.yaml'}.") from None
    if not content:
        raise InputError(f"{field}: {path} contains no question; write lines like `preference: Who would you …?`.")
    return content
