"""Decisions in answers: yes or no, one of several choices, or a number, read by a stated rule.

The default rule reads a decision where an answer states it: at its beginning, in a line of its own, or after a word
such as "answer" or "decision". It reads no decision from a paraphrase ("I would lend it"). `rule_accuracy` says how
often it is right on 200 answers that we wrote and labelled (`files/decisions/answers.jsonl`), and made the rule with.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "files" / "decisions"
YES_OR_NO = ("yes", "no")
NUMBER_ASKED = "number"
SEPARATOR = r"\s*[,:=–-]?\s*"
# What stands before a decision: "my answer is", "Therefore:", "I would say", not "I would not say"; FINAL is said last.
MARKER = (
    r"(?<!not )(?<!n't )(?<!never )\b(?:answer|decision|verdict|conclusion|recommendation|rating|score|therefore|thus"
    r"|so|i would|i'd|say|think"
    r"|towards|be a|absolutely|definitely|unfortunately|sure|sorry)\b(?: here)?(?: would be| is)?(?: to)?"
)
NAMED = r"(?<!not )\b(?:answer|decision|verdict|conclusion|recommendation)\b(?: here)?(?: would be| is)?"
FINAL = r"\bfinal (?:answer|decision|verdict)\b(?: is| would be)?"
# Texts with a choice that state none: "no information", "no matter who".
NO_DECISION = re.compile(
    r"\bno (?:one|problem|doubt|matter|information|idea|opinion|reason|data|worries)\b"
    r"|\bno (?:[a-z]+ ){0,2}(?:answer|decision|comment|verdict|conclusion|recommendation)s?\b|\bno way (?:to|of)\b"
    r"|\byes-men\b|\bno\. \d",
    re.IGNORECASE,
)
BLANKS = re.compile(r"\s+")
LARGEST = 1e100  # number that is read: of a hundred digits, whose square is a number, too
MAX_OBJECTS = 100  # places in an answer at which a JSON object may begin
MARKUP = re.compile(r"</?\w+>|\\boxed|[*`#>\"“”{}]|(?<!\w)['_]+|['_]+(?!\w)")
# What follows a choice of one letter or digit, which may be a word: "A friendly …", "1 of them".
AFTER_LETTER = r"(?=\W*$|[.,!;:)\n]| -| –| (?:because|since|is)\b)"
# What follows a choice that is asked about or denied: "Hire? No.", "Hire: no".
ASKED_OR_DENIED = r"(?!\s*\?|\s*[:=]\s*(?:no|not|false|never)\b)"
NUMBER = re.compile(
    r"(?<![\w.])(?<!\d,)([-−]?)(\d{1,3}(?:[., \u00a0\u202f]\d{3})+(?:[.,]\d+)?|\d+(?:[.,]\d+)?)(?![.,]?\d|e[+-]?\d)"
    r"(?:\s?(k|thousand|mn|mio|million|bn|billion|tn|trillion|hundred|lakhs?|crores?)\b|(m)\b)?",
    re.IGNORECASE,
)
SCALES = {"k": 1e3, "thousand": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "million": 1e6, "bn": 1e9, "billion": 1e9}
SCALES |= {"tn": 1e12, "trillion": 1e12, "hundred": 1e2, "lakh": 1e5, "lakhs": 1e5, "crore": 1e7, "crores": 1e7}
CURRENCY = r"(?:[$€£¥]|USD |EUR |GBP )?"
RANGE = re.compile(rf"\s*(?:,\s|-|–|—|to|or|and)\s*{CURRENCY}\d", re.IGNORECASE)  # what goes on after a number
OF_TOTAL = re.compile(r"(?<=\d)\s*(?:/|out of|of)\s*\d+")


@dataclass(frozen=True)
class DecisionRule:
    """How a decision is read from an answer.

    Attributes:
        choices: the texts that are decisions, in any case.
        pattern: a regular expression, searched in any case; its first group, or else its match, is the decision.
        field: the field of a JSON object in the answer, whose value is the decision.
    """

    choices: tuple[str, ...] = YES_OR_NO
    pattern: str | None = None
    field: str | None = None


class RuleAccuracy(NamedTuple):
    """How often a rule reads the decision of labelled answers.

    Attributes:
        n_decided: the answers that have a decision.
        n_right, n_wrong: of these, from how many it is read, and from how many another one.
        n_undecided: the answers that have none.
        n_false: of these, from how many one is read (false alarms).
    """

    n_decided: int
    n_right: int
    n_wrong: int
    n_undecided: int
    n_false: int


def read_decision(answer: str, rule: DecisionRule) -> str | None:
    """Return the choice that an answer states, as it is written in the rule; None if it states none.

    >>> rule = DecisionRule()
    >>> [read_decision(text, rule) for text in ("**Yes**, since …", "Final answer: no", "That depends.")]
    ['yes', 'no', None]
    """
    found = _extracted(answer, rule)
    choice = _choice(found, rule.choices)
    if choice is not None:
        return choice
    if rule.pattern is not None or rule.field is not None:
        return None
    text = BLANKS.sub(lambda blanks: "\n" if "\n" in blanks[0] else " ", _without_markup(answer))
    text = NO_DECISION.sub(" ", text)
    names = sorted(map(plain_choice, rule.choices), key=len, reverse=True)
    any_of = "|".join(re.escape(name) + (AFTER_LETTER if len(name) == 1 else "") for name in names)
    text = _without_lists(text, names)
    choice = f"(?<!\\w)({any_of})(?!\\w){ASKED_OR_DENIED}"
    end = r"(?=\W*$|[.,!;:\n]| -| –| from me| the\b)"
    # The first kind of statement that there is decides; of one kind, the last in the answer. What follows any other
    # word ("Debt: no") is a decision only if it does not contradict itself, and no line is named as the decision's.
    statements = (
        rf"{FINAL}{SEPARATOR}{choice}",
        rf"^[^\w\n]*{choice}[^\w\n]*$",
        rf"\A\W*{choice}(?! if\b)",
        rf"{NAMED}{SEPARATOR}{choice}{end}",
        rf"{MARKER}{SEPARATOR}{choice}{end}",
    )
    for statement in statements:
        found_choices = re.findall(statement, text, re.IGNORECASE | re.MULTILINE)
        if found_choices:
            return _choice(found_choices[-1], rule.choices)
    named = re.findall(rf"{NAMED}\s*[:=]\s*([^\n]*)", text, re.IGNORECASE)
    after = rf"[,:?] {choice}{end}" if named else rf"[,:] {choice}{end}"
    places = re.findall(after, "\n".join(named) if named else text, re.IGNORECASE | re.MULTILINE)
    after_any = {_choice(found, rule.choices) for found in places}
    return after_any.pop() if len(after_any) == 1 else None


def _without_lists(text: str, names: Sequence[str]) -> str:
    """Return a text without lists of choices: "yes or no", "A / B / C", and "yes, no", but not "yes, no need"."""
    either = "|".join(map(re.escape, names))

    def replaced(found: re.Match[str]) -> str:
        choices = set(found[1].casefold().split(", "))
        has_only_commas = choices <= {*names}
        is_kept = has_only_commas and (found[2] is None or len(choices) == 1)
        return found[1] if is_kept else " "

    joint = r"(?:,? or |,? and | ?/ ?|, )"
    pattern = rf"(?<!\w)((?:{either})(?:{joint}(?:{either}))+)(?!\w)((?=\W*$|[.,;!]))?"
    return re.sub(pattern, replaced, text, flags=re.IGNORECASE | re.MULTILINE)


def read_number(answer: str, rule: DecisionRule) -> float | None:
    """Return the number that an answer states: the last after "final answer", else after "answer", else the only one.

    A range is no number, and a number that may be read in two ways is not read.

    >>> [read_number(text, DecisionRule()) for text in ("$5,000", "85k", "7 out of 10", "3 to 6", "5.000 €")]
    [5000.0, 85000.0, 7.0, None, None]
    """
    found = _extracted(answer, rule)
    if found is None and (rule.pattern is not None or rule.field is not None):
        return None
    text = OF_TOTAL.sub("", _without_markup(answer if found is None else found))
    for marker in (FINAL, MARKER):
        places = [match.end() for match in re.finditer(rf"{marker}\s*[,:=–]?\s*{CURRENCY}\s*", text, re.IGNORECASE)]
        marked = [match for place in places if (match := NUMBER.match(text, place)) is not None]
        if marked:
            return None if RANGE.match(text, marked[-1].end()) else _value(marked[-1])
    numbers = {_value(match) for match in NUMBER.finditer(text)}
    return numbers.pop() if len(numbers) == 1 else None


def _value(number: re.Match[str]) -> float | None:
    """Return the value of a match of NUMBER; None if it may be read in two ways, or is too large."""
    sign, digits, scale, attached_scale = number.groups()
    digits = re.sub(r"\s", "", digits)
    marks = re.findall("[.,]", digits)
    is_grouped = re.fullmatch(r"[1-9]\d{0,2}(?:[.,]\d{3})+", digits) is not None
    if (marks == ["."] and is_grouped) or (len(marks) > 1 and len(set(marks)) == 1 and not is_grouped):
        return None  # "5.000" is 5000 or 5
    if len(set(marks)) == 1 and is_grouped:
        digits = re.sub("[.,]", "", digits)
    elif marks:
        whole, _, decimals = digits.rpartition(marks[-1])
        digits = f"{re.sub('[.,]', '', whole)}.{decimals}"
    value = float(digits) * SCALES.get((scale or attached_scale or "").casefold(), 1.0)
    if value > LARGEST:
        return None
    return -value if sign else value


def _extracted(answer: str, rule: DecisionRule) -> str | None:
    """Return what the rule's pattern or JSON field has in an answer, or the value of the first object's only field.

    The field is of the first JSON object in the answer that has it, also within another object.
    """
    if rule.pattern is not None:
        match = re.search(rule.pattern, answer, re.IGNORECASE)
        return None if match is None else match.group(1 if match.re.groups else 0)
    for start in (match.start() for match in islice(re.finditer(r"\{", answer), MAX_OBJECTS)):
        try:
            value, _ = json.JSONDecoder().raw_decode(answer, start)
        except ValueError:
            continue
        except RecursionError:  # nested too deeply
            return None
        if isinstance(value, dict) and (rule.field is None or rule.field in value):
            return _field_text(value, rule.field)
    return None


def _field_text(record: dict, field: str | None) -> str | None:
    """Return the value of a field, or without one of the only field, as a text; true and false are yes and no."""
    if field is None and len(record) == 1:
        (field,) = record
    value = record.get(field)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.9f}"  # in JSON, "5.125" has one meaning
    return None if value is None or isinstance(value, dict | list) else str(value)


def _choice(text: str | None, choices: Sequence[str]) -> str | None:
    """Return the choice that a text is, cases, blanks, markup and full stops aside."""
    names = {plain_choice(choice): choice for choice in choices}
    return names.get(plain_choice(text or ""))


def plain_choice(text: str) -> str:
    """Return a choice in the form in which choices are compared.

    >>> plain_choice("**Don’t hire.**"), plain_choice("not_hire")
    ("don't hire", 'not_hire')
    """
    return _without_markup(text).strip(" .!\n\t").casefold()


def _without_markup(text: str) -> str:
    return MARKUP.sub("", re.sub("[‘’]", "'", text))


@cache
def labelled_answers() -> tuple[dict, ...]:
    """Return the labelled answers: what was asked ("yes or no", …, "number"), the decision or None, and the answer."""
    lines = (FOLDER / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def labelled_kinds() -> tuple[str, ...]:
    """Return what the labelled answers were asked for, such as "yes or no"."""
    return tuple(dict.fromkeys(row["asked"] for row in labelled_answers()))


def read_labelled(row: dict) -> str | float | None:
    """Return what the default rule reads from a labelled answer."""
    if row["asked"] == NUMBER_ASKED:
        return read_number(row["answer"], DecisionRule())
    return read_decision(row["answer"], DecisionRule(choices=labelled_choices(row["asked"])))


def labelled_choices(asked: str) -> tuple[str, ...]:
    """Return the choices of the labelled answers that were asked for "yes or no", …"""
    return tuple(asked.split(" or "))


@cache
def rule_accuracy(asked: str | None = None) -> RuleAccuracy:
    """Return the accuracy of the default rule on the labelled answers to one kind of request, or on all of them."""
    rows = [row for row in labelled_answers() if asked is None or row["asked"] == asked]
    return count_readings([row["decision"] for row in rows], [read_labelled(row) for row in rows])


def count_readings(decisions: Sequence[object], found: Sequence[object]) -> RuleAccuracy:
    """Return how often a rule read the decisions of answers; None: an answer has none, or none was read.

    >>> count_readings(["yes", "no", "no", None, None], ["yes", "yes", None, "no", None])
    RuleAccuracy(n_decided=3, n_right=1, n_wrong=1, n_undecided=2, n_false=1)
    """
    pairs = list(zip(decisions, found, strict=True))
    read = [(decision, reading) for decision, reading in pairs if decision is not None and reading is not None]
    n_right = sum(decision == reading for decision, reading in read)
    return RuleAccuracy(
        n_decided=sum(decision is not None for decision in decisions),
        n_right=n_right,
        n_wrong=len(read) - n_right,
        n_undecided=sum(decision is None for decision in decisions),
        n_false=sum(decision is None and reading is not None for decision, reading in pairs),
    )
