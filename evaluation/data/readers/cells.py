"""Cells of a file's other columns, which may be outcomes: numbers, blanks, and lists that somebody wrote as text.

A cell that is blank has no value. A column is numbers if all its cells are, also with decimal commas ("1,5"), thousands
("1,234.5") or percent signs. A column that may be read in two ways stays text, and is refused as an outcome.
"""

import re
from collections import Counter
from collections.abc import Sequence

from evenhand.evaluation.errors import InputError, format_value

SIGN = "[-+−]?"
DECIMAL_COMMA = re.compile(rf"{SIGN}(?:[1-9]\d{{0,2}}(?:[.\u00a0\u202f ’']\d{{3}})+|\d+)(?:,\d+)?")
DECIMAL_POINT = re.compile(
    rf"{SIGN}(?:(?:[1-9]\d{{0,2}}(?:[,\u00a0\u202f ’']\d{{3}})+|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{{1,3}})?"
)
EITHER = re.compile(rf"{SIGN}[1-9]\d{{0,2}}[.,]\d{{3}}")  # "1,234" is 1234 or 1.234
UNIT = r"(?:[€$£¥%°]|EUR|USD|GBP|CHF)?"
NUMBER_LIKE = re.compile(rf"{UNIT}\s?{SIGN}\d[\d.,\u00a0\u202f ’']*{UNIT}")
STRONG = re.compile(r"[;|\n]")  # separators that stand in no name
SEPARATOR = re.compile(r"\s*(?:;|\||\n|\s[+&]\s|/|,\s)\s*")  # of a list in a cell
NOT_APPLICABLE = re.compile(r"\s*n\s?/\s?a\.?\s*", re.IGNORECASE)
LIST = re.compile(r"\s*[\[{(].*[\])}]\s*", re.DOTALL)
NO_VALUE = ("", "nan", "nat", "none", "null", "nil", "undefined", "n/a", "na", "#n/a", "<na>", "-", "–", "—")
# What programs and spreadsheets write for a missing text; other words of NO_VALUE, such as "none", are classes, too.
NO_CLASS = ("nan", "nat", "n/a", "#n/a", "<na>", "#div/0!", "#name?", "#null!", "#num!", "#ref!", "#value!")
MAX_CLASSES = 20  # of an outcome whose cells are mostly different: more are free text
SHOWN = 4  # cells in an error


def is_blank(value: object) -> bool:
    """Return whether a cell has no value: it is null, NaN or blank, or a word that programs write for this.

    >>> [is_blank(value) for value in (None, float("nan"), " ", "None", "n/a", "0", False)]
    [True, True, True, True, True, False, False]
    """
    return value is None or value != value or (isinstance(value, str) and value.strip().casefold() in NO_VALUE)


def name_text(value: object) -> str:
    """Return the text of a name, such as an id: programs write the whole number 3 also as 3.0.

    >>> name_text(3), name_text(3.0), name_text(2.5), name_text("3.0")
    ('3', '3', '2.5', '3.0')
    """
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def read_cells(values: Sequence[object]) -> list:
    """Return the values of a column, with None in place of blanks, and numbers in place of their texts.

    Where all other cells are numbers, each word of NO_VALUE is a blank; among texts, only those of NO_CLASS. Texts have
    no outer white space.

    >>> read_cells(["1,5", " ", "0,25"]), read_cells(["12 %", "none"]), read_cells(["1,234", "2,345"])
    ([1.5, None, 0.25], [12.0, None], ['1,234', '2,345'])
    >>> read_cells(["high ", "n/a", "none"]), read_cells([".5", "2e-1"])
    (['high', None, 'none'], [0.5, 0.2])
    """
    cells = [value if isinstance(value, str) else None for value in values]
    if any(value is not None and cell is None for value, cell in zip(values, cells, strict=True)):
        return [(value.strip() or None) if isinstance(value, str) else value for value in values]
    texts = [cell.strip() for cell in cells if cell is not None and not _has_none(cell)]
    numbers = _numbers(texts) if texts else None
    if numbers is None:
        return [None if cell is None or cell.strip().casefold() in ("", *NO_CLASS) else cell.strip() for cell in cells]
    found = iter(numbers)
    return [None if cell is None or _has_none(cell) else next(found) for cell in cells]


def _has_none(text: str) -> bool:
    """Return whether a cell of numbers has none."""
    return text.strip().casefold() in (*NO_VALUE, *NO_CLASS)


def _numbers(texts: Sequence[str]) -> list[float] | None:
    """Return the numbers that texts are; None if one is none, or all may be read in two ways."""
    if all(text.endswith("%") for text in texts):
        texts = [text.removesuffix("%").strip() for text in texts]
    marked = [text for text in texts if "." in text or "," in text]
    if marked and all(EITHER.fullmatch(text) for text in marked):
        return None
    for form, comma, point in ((DECIMAL_POINT, "", "."), (DECIMAL_COMMA, ".", "")):
        if all(form.fullmatch(text) for text in texts):
            plain = [text.replace(".", point).replace(",", comma).replace("−", "-") for text in texts]
            return [float(re.sub("[\u00a0\u202f ’']", "", text)) for text in plain]
    return None


def list_parts(cell: str) -> list[str]:
    """Return the parts of a cell in which somebody wrote a list; [] for any other cell.

    >>> list_parts("deaf; tall; old"), list_parts("hard-of-hearing"), list_parts('["a","b"]')
    (['deaf', 'tall', 'old'], [], ['a', 'b'])
    """
    if NOT_APPLICABLE.fullmatch(cell):
        return []
    inner = cell.strip()[1:-1].replace(",", ", ") if LIST.fullmatch(cell) else cell
    parts = [part.strip(" '\"") for part in SEPARATOR.split(inner)]
    is_list = len(parts) > 1 or inner != cell
    return [part for part in parts if part] if is_list else []


def cells_with_lists(cells: Sequence[str]) -> list[str]:
    """Return the distinct cells that are lists: a part is another cell, or a part of another list with ";" or "|".

    >>> cells_with_lists(["deaf", "old", "deaf; old", "tall | young", "bed and breakfast; small"])
    ['deaf; old']
    """
    distinct = list(dict.fromkeys(cells))
    names = {cell.strip().casefold() for cell in distinct}
    parts = {cell: {part.casefold() for part in list_parts(cell)} for cell in distinct}
    strong = [cell for cell in distinct if STRONG.search(cell) or LIST.fullmatch(cell)]
    counts = Counter(part for cell in strong for part in parts[cell])
    found = []
    for cell, own in parts.items():
        is_shared = cell in strong and any(counts[part] > 1 for part in own)
        if is_shared or own & (names - {cell.strip().casefold()}):
            found.append(cell)
    return found


def check_classes(field: str, column: str, values: Sequence[object]) -> None:
    """Raise InputError unless the texts of a column, an outcome, are names of classes, one in each cell."""
    texts = [value.strip() for value in values if isinstance(value, str)]
    distinct = list(dict.fromkeys(texts))
    number_like = [text for text in distinct if NUMBER_LIKE.fullmatch(text)]
    if number_like and 2 * len(number_like) >= len(distinct):
        others = [text for text in distinct if text not in number_like]
        shown = _listed([*number_like[:SHOWN], *others[:SHOWN]])
        marked = [text for text in number_like if "," in text or "." in text]
        if marked and all(map(EITHER.fullmatch, marked)) and not others:
            first = re.sub(r"[.,]", "", number_like[0])
            point = re.sub(r"[.,]", ".", number_like[0])
            fix = f"{format_value(number_like[0])} may be {first} or {point}: write one of them"
        else:
            fix = (
                "write all as numbers, such as 1.5 (in JSON without quotation marks), and leave cells without one blank"
            )
        raise InputError(field, f"the column {column!r} has cells that look like numbers: {shown}; {fix}.")
    if len(distinct) > MAX_CLASSES and 2 * len(distinct) > len(texts):
        raise InputError(
            field,
            f"the column {column!r} has {len(distinct):,} different texts in {len(texts):,} cells: "
            f"{_listed(distinct[:SHOWN])} …; an outcome has numbers or a few classes.",
        )
    spellings: dict[str, list[str]] = {}
    for text in distinct:
        spellings.setdefault(" ".join(text.casefold().split()), []).append(text)
    if alike := next((names for names in spellings.values() if len(names) > 1), None):
        raise InputError(
            field, f"the column {column!r} has classes that differ only in case or spaces: {_listed(alike)}; write one."
        )
    if lists := cells_with_lists(texts):
        raise InputError(
            field,
            f"the column {column!r} has several classes in a cell: {_listed(lists[:SHOWN])}; write one a cell, or a "
            "column of yes and no for each class.",
        )


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(format_value(text) for text in texts)
