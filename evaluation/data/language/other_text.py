"""Other text around answers: what programs write before, after or in place of what a model says.

Such as a prompt that comes back with its answer, tokens of a chat template, verdicts of test tools, and text that was
decoded wrongly. It would be classified and counted as if the model had said it. A detector finds it by its form, so
that a report can count it (`files/other_text.yaml`); `model.strip` removes what stands around an answer. Code and
quotations are not searched, since answers speak of such things, too.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from evenhand.evaluation.files import read_yaml

FILE = Path(__file__).resolve().parents[1] / "files" / "other_text.yaml"
ECHO = "echo"
ENCODING = "encoding"
MIN_ECHO = 12  # characters of a prompt that comes back
SEARCHED = 1000  # characters at each end of an answer
# Long runs of characters, which are shortened: with them, a pattern may take hours.
REPEATED = re.compile(r"(.)\1{8,}", re.DOTALL)
BLANKS = re.compile(r"\s{5,}")
CODE = re.compile(r"```.*?(?:```|\Z)|`[^`\n]+`", re.DOTALL)
QUOTATION = re.compile(r"“[^”\n]*”|«[^»\n]*»|„[^“”\n]*[“”]|「[^」\n]*」|(?<!\w)\"[^\"\n]*\"(?!\w)")
# Characters that the bytes of UTF-8 are in cp1252 and Latin-1: one that begins a character, and those that go on.
GOES_ON = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
WRONG_BYTES = re.compile(rf"[\u00c2-\u00f4][{GOES_ON}]{{1,3}}")
REPLACED = "\ufffd"
# Other encodings in which programs read UTF-8 (Mac, terminals of Windows), and usual characters beyond ASCII.
OTHER_ENCODINGS = ("mac_roman", "cp437", "cp850")
COMMON = "’‘“”–—…•€éèêëáàâäãåçñíìîïóòôöõúùûüøæœßÁÀÂÄÃÅÇÉÈÊÑÍÓÔÖÚÜØ¿¡«»°"
BOXES = re.compile("[\u2500-\u257f]+")  # drawn around tables


@dataclass(frozen=True)
class Kind:
    """A kind of other text.

    Attributes:
        name: its value in `model.strip`.
        label: what it is, for a report.
        pattern: how it is found.
        removed: what of an answer is removed; None if nothing can be.
        in_code: whether code is searched, too.
        in_quotations: whether quotations are searched, too.
    """

    name: str
    label: str
    pattern: re.Pattern[str]
    removed: re.Pattern[str] | None = None
    in_code: bool = False
    in_quotations: bool = False


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds of the data file by name."""
    content = read_yaml(FILE, "other text")
    words = {name: text.replace(" |", "|") for name, text in content["words"].items()}  # lines are joined by a blank

    def compiled(text: str, has_case: bool) -> re.Pattern[str]:
        for name, word in words.items():
            text = text.replace(f"{{{name}}}", word)
        return re.compile(text, re.DOTALL if has_case else re.DOTALL | re.IGNORECASE)

    found = {}
    for name, entry in content["kinds"].items():
        has_case = entry.get("case", False)
        pattern = compiled("|".join(f"(?:{part})" for part in entry["find"]), has_case)
        remove = entry.get("remove")
        removed = pattern if remove == "found" else compiled(remove, has_case) if remove else None
        found[name] = Kind(
            name=name,
            label=entry["label"],
            pattern=pattern,
            removed=removed,
            in_code=entry.get("code", False),
            in_quotations=entry.get("quotations", False),
        )
    return found


def labels() -> dict[str, str]:
    """Return what each kind is, for a report."""
    return {
        ECHO: "the prompt before the answer",
        ENCODING: "characters that were decoded wrongly",
        **{name: kind.label for name, kind in kinds().items()},
    }


def removable() -> tuple[str, ...]:
    """Return the names of the kinds that `model.strip` removes."""
    return (ECHO, ENCODING, *(name for name, kind in kinds().items() if kind.removed is not None))


def other_text(answer: str, prompt: str = "") -> list[str]:
    """Return the kinds of other text in an answer to a prompt.

    >>> other_text("[PASS] You may. Ask at the desk.<|im_end|>"), other_text("I'm old. May I? Yes.", "I'm old. May I?")
    (['token', 'verdict'], ['echo'])
    """
    around = [ECHO] if echo_length(answer, prompt) else []
    answer = _ends(answer)
    if has_wrong_encoding(answer):
        around.append(ENCODING)
    without_code = CODE.sub(" ", answer) if "`" in answer else answer
    prose = QUOTATION.sub(" ", without_code)
    found = []
    for name, kind in kinds().items():
        searched = answer if kind.in_code else without_code if kind.in_quotations else prose
        if kind.pattern.search(searched):
            found.append(name)
    return [*around, *found]


def _ends(answer: str) -> str:
    """Return both ends of an answer, without long runs of one character or of blanks."""
    answer = _with_few_blanks(answer)
    if len(answer) > 2 * SEARCHED:
        answer = f"{answer[:SEARCHED]} … {answer[-SEARCHED:]}"
    return REPEATED.sub(lambda match: match[1] * 8, answer)


def _with_few_blanks(text: str) -> str:
    return BLANKS.sub(lambda match: "\n\n" if "\n" in match[0] else " ", text)


def echo_length(answer: str, prompt: str) -> int:
    """Return how many characters at the start of an answer are its prompt, whose white space and case do not count."""
    words = prompt.split()
    if len(" ".join(words)) < MIN_ECHO or not words:
        return 0
    pattern = r"(?:\W*\w{1,12}\s*[:：])?\W*" + r"\s+".join(map(re.escape, words))  # perhaps after "User:"
    found = re.match(pattern, answer, re.IGNORECASE)
    return found.end() if found is not None and found.end() < len(answer.rstrip()) else 0


def has_wrong_encoding(text: str) -> bool:
    """Return whether a text has characters that are bytes of UTF-8 in another encoding, or that were replaced."""
    return REPLACED in text or repaired(text) != text


def repaired(text: str) -> str:
    """Return a text with characters in place of those that their bytes in UTF-8 are in cp1252 or Latin-1.

    >>> repaired("Itâ€™s a cafÃ©, NÃO"), repaired("»MENÜ«"), repaired("It‚Äôs a caf├®")
    ('It’s a café, NÃO', '»MENÜ«', 'It’s a café')
    """
    text = WRONG_BYTES.sub(_decoded, text)
    wrong = {} if text.isascii() else _in_other_encodings()
    return re.sub("|".join(map(re.escape, wrong)), lambda match: wrong[match[0]], text) if wrong else text


@cache
def _in_other_encodings() -> dict[str, str]:
    """Return what the bytes in UTF-8 of characters are in OTHER_ENCODINGS, but for parts of drawn tables."""
    found = {}
    for encoding in OTHER_ENCODINGS:
        for character in COMMON:
            wrong = character.encode("utf-8").decode(encoding)
            if not BOXES.fullmatch(wrong):
                found[wrong] = character
    return found


def _decoded(match: re.Match[str]) -> str:
    """Return the character whose bytes are the characters of a match; the match itself if they are none."""
    content = b"".join(_byte(character) for character in match[0])
    for length in range(len(content), 1, -1):
        try:
            text = content[:length].decode("utf-8")
        except UnicodeDecodeError:
            continue
        # Scripts of which German, French and other words with » and « may have the bytes by chance.
        is_usual = len(text) == 1 and not "\u0530" <= text <= "\u058f" and not "\u0700" <= text <= "\u08ff"
        return text + match[0][length:] if is_usual else match[0]
    return match[0]


def _byte(character: str) -> bytes:
    try:
        return character.encode("cp1252")
    except UnicodeEncodeError:
        return character.encode("latin-1")


def strip_other_text(answer: str, prompt: str, names: Collection[str]) -> str:
    """Return an answer without these kinds of other text, and with short runs of blanks.

    >>> strip_other_text("[PASS] You may.<|im_end|>", "", ["verdict", "token"])
    'You may.'
    """
    answer = _with_few_blanks(answer)
    if ENCODING in names:
        answer = repaired(answer)
    for name, kind in kinds().items():
        if name in names and kind.removed is not None:
            answer = kind.removed.sub("", answer)
    if ECHO in names:
        answer = answer[echo_length(answer, prompt) :]
    return answer.strip()
