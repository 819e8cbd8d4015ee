"""Sanitizing of texts from models, servers and files for terminals, logs and spreadsheets."""

import re
import unicodedata

_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode categories
_JOINERS = "\u200c\u200d"  # parts of words and emoji
# Some spreadsheets also read the full-width forms.
_BEGINS_LIKE_FORMULA = re.compile(r"\s*'*[=+\-@＝＋－＠]")
_LATER_CELL = re.compile(r"\s*'*(?:[=@＝＠]|[+\-＋－](?=\S))")  # "- b" in a list is none
_NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.IGNORECASE)


def escape_hidden(text: str) -> str:
    """Return the text with codes instead of control, bidirectional and lone surrogate characters.

    A text from a server or a model could otherwise send control sequences to the terminal.

    >>> escape_hidden("\\x1b[31mred")
    '⟨U+001B⟩[31mred'
    """
    if text.isprintable():  # without any of the categories in _INVISIBLE; most texts are
        return text
    return "".join(
        f"⟨U+{ord(character):04X}⟩"
        if unicodedata.category(character) in _INVISIBLE and character not in _JOINERS
        else character
        for character in text
    )


def clean_name(text: str) -> str:
    """Return a name in Unicode's form NFC, without outer or repeated white space and without invisible characters.

    Two spellings that look alike, such as "deaf" and "deaf ", are then one name.

    >>> clean_name(" hard-of\u200b-hearing\u00a0 "), clean_name("cafe\u0301") == "caf\u00e9"
    ('hard-of-hearing', True)
    """
    visible = "".join(
        character
        for character in unicodedata.normalize("NFC", text)
        if unicodedata.category(character) != "Cf" or character in _JOINERS
    )
    return " ".join(visible.split())


def spreadsheet_cell(value: object) -> object:
    """Return a value for a CSV file such that spreadsheets do not read a text as a formula.

    Hidden characters are replaced by codes. A text that begins with =, +, - or @, possibly after spaces and
    apostrophes, gets a leading apostrophe, so that different texts stay different. So does a part after a semicolon, a
    tab or a line end: where the comma is the decimal sign, spreadsheets begin a new cell there. Numbers are not
    changed.

    >>> spreadsheet_cell("=HYPERLINK(1)"), spreadsheet_cell("-0.5"), spreadsheet_cell(-0.5)
    ("'=HYPERLINK(1)", '-0.5', -0.5)
    >>> spreadsheet_cell("a;=cmd|'x'!A0"), spreadsheet_cell("a;\\n- b")
    ("a;'=cmd|'x'!A0", 'a;\\n- b')
    """
    if not isinstance(value, str):
        return value
    visible = "".join(part if part in "\r\n\t" else escape_hidden(part) for part in re.split(r"([\r\n\t])", value))
    start = visible[: len(visible) - len(visible.lstrip())]
    first, *later = re.split(r"([;\t\r\n])", visible[len(start) :])
    guarded = [f"'{part}" if _LATER_CELL.match(part) else part for part in later]
    visible = "".join([start, first, *guarded])
    return f"'{visible}" if is_formula(visible) else visible


def is_formula(text: str) -> bool:
    """Return whether a spreadsheet may read a text as a formula, or removes an apostrophe from its beginning.

    >>> is_formula("=1+1"), is_formula("- a list"), is_formula("-0.5"), is_formula("a = b")
    (True, True, False, False)
    """
    return _BEGINS_LIKE_FORMULA.match(text) is not None and not _NUMBER.fullmatch(text)
