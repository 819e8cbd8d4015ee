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
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[1] / "files" / "decisions"
YES_OR_NO = ("yes", "no")
NUMBER_ASKED = "number"
SEPARATOR = r"\s*[,:=–-]?\s*"
# What stands before a decision: "my answer is", "Therefore:", "I would say"; FINAL is said last.
MARKER = (
    r"\b(?:answer|decision|verdict|conclusion|recommendation|rating|score|therefore|thus|so|i would|i'd|say|think"
    r"|towards|be a|absolutely|definitely|unfortunately|sure|sorry)\b(?: here)?(?: would be| is)?(?: to)?"
)
FINAL = r"\bfinal (?:answer|decision|verdict)\b(?: is| would be)?"
# Texts with a choice that state none: "no information", "no matter who".
NO_DECISION = re.compile(
    r"\bno (?:one|problem|doubt|matter|information|idea|opinion|reason|data|worries)\b"
    r"|\byes-men\b|\bno\. \d",
    re.IGNORECASE,
)
MARKUP = re.compile(r"</?\w+>|\\boxed|[*_`#>\"“”‘’{}]|(?<!\w)'|'(?!\w)")
NUMBER = re.compile(r"(?<![\w.])-?\d{1,3}(?:[, ]\d{3})+(?:\.\d+)?|(?<![\w.])-?\d+(?:\.\d+)?")
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
    if found is not None:
        return _choice(found, rule.choices)
    if rule.pattern is not None or rule.field is not None:
        return None
    text = NO_DECISION.sub(" ", MARKUP.sub("", answer))
    choice = f"({'|'.join(sorted(map(re.escape, rule.choices), key=len, reverse=True))})"
    text = re.sub(rf"\b{choice}(?:,? or | and |/){choice}\b", " ", text, flags=re.IGNORECASE)
    end = r"(?=\W*$|[.,!;:\n]| -| –| from me| the\b)"
    # The first kind of statement that there is decides; of one kind, the last in the answer.
    statements = (
        rf"{FINAL}{SEPARATOR}{choice}\b",
        rf"^\W*{choice}\W*$",
        rf"\A\W*{choice}\b(?! if\b)",
        rf"(?:{MARKER}{SEPARATOR}|[,:] ){choice}\b{end}",
    )
    for statement in statements:
        found_choices = re.findall(statement, text, re.IGNORECASE | re.MULTILINE)
        if found_choices:
            return _choice(found_choices[-1], rule.choices)
    return None


def read_number(answer: str, rule: DecisionRule) -> float | None:
    """Return the number that an answer states: the last one after a word such as "answer", or the only one.

    >>> [read_number(text, DecisionRule()) for text in ("$5,000", "7 out of 10", "between 3 and 6")]
    [5000.0, 7.0, None]
    """
    found = _extracted(answer, rule)
    if found is None and (rule.pattern is not None or rule.field is not None):
        return None
    text = OF_TOTAL.sub("", MARKUP.sub("", answer if found is None else found))
    marked = re.findall(rf"(?:{FINAL}|{MARKER}){SEPARATOR}[$€£]?\s*({NUMBER.pattern})", text, re.IGNORECASE)
    numbers = [float(re.sub("[, ]", "", number)) for number in marked or NUMBER.findall(text)]
    if marked:
        return numbers[-1]
    return numbers[0] if len(set(numbers)) == 1 else None


def _extracted(answer: str, rule: DecisionRule) -> str | None:
    """Return what the rule's pattern or JSON field has in an answer, or the value of a JSON object's only field."""
    if rule.pattern is not None:
        match = re.search(rule.pattern, answer, re.IGNORECASE)
        return None if match is None else match.group(1 if match.re.groups else 0)
    for start in (match.start() for match in re.finditer(r"\{", answer)):
        try:
            value, _ = json.JSONDecoder().raw_decode(answer, start)
        except ValueError:
            continue
        if isinstance(value, dict):
            return _field_text(value, rule.field)
    return None


def _field_text(record: dict, field: str | None) -> str | None:
    """Return the value of a field, or without one of the only field, as a text; true and false are yes and no."""
    if field is None and len(record) == 1:
        (field,) = record
    value = record.get(field)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return None if value is None or isinstance(value, dict | list) else str(value)


def _choice(text: str | None, choices: Sequence[str]) -> str | None:
    """Return the choice that a text is, cases, blanks and full stops aside."""
    names = {choice.casefold(): choice for choice in choices}
    return names.get((text or "").strip(" .!\n\t").casefold())


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
    return read_decision(row["answer"], DecisionRule(choices=tuple(row["asked"].split(" or "))))


@cache
def rule_accuracy(asked: str | None = None) -> RuleAccuracy:
    """Return the accuracy of the default rule on the labelled answers to one kind of request, or on all of them."""
    rows = [row for row in labelled_answers() if asked is None or row["asked"] == asked]
    decided = [row for row in rows if row["decision"] is not None]
    undecided = [row for row in rows if row["decision"] is None]
    found = [read_labelled(row) for row in decided]
    n_right = sum(read == row["decision"] for read, row in zip(found, decided, strict=True))
    n_read = sum(read is not None for read in found)
    n_false = sum(read_labelled(row) is not None for row in undecided)
    return RuleAccuracy(len(decided), n_right, n_read - n_right, len(undecided), n_false)
