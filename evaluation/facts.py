"""What a measurement or a comparison found, as data: scripts read it, pages show it, and only templates have sentences.

A family of metrics returns `Facts`; the sentence about a `Finding` is the macro of its kind in the family's template
(`report/words.py`). `facts.json` has the facts of all families of a run.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.evaluation.files import write_json
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.score import BiasScore

FACTS = "facts.json"
VERSION = 1  # of the schema of facts.json
# Whether a limit holds.
HOLDS = "holds"
BROKEN = "broken"
INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Finding:
    """One thing that was found.

    Attributes:
        kind: what it is, such as "too_few_nouns"; each kind has a sentence in the template of its family.
        values: what the sentence names, by name: scores, numbers, texts, dataclasses of these, and lists of all.
    """

    kind: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What a change cost in one number.

    Attributes:
        label, name: the names of the change, such as "relevance kept", and of the number that changed.
        score: its change; None if it is not measured.
        lost: the ends of the interval of the share that is lost.
        least, most: the words of both ends, such as "none", "small" or "large".
    """

    label: str
    name: str
    score: BiasScore | None
    lost: tuple[float, float] | None = None
    least: str = ""
    most: str = ""


@dataclass(frozen=True)
class Facts:
    """What a family of metrics found in a run, or in a comparison of two runs.

    Attributes:
        headline: the main score; None if there are no scores.
        verdict: what the main score shows.
        cautions: what a reader must know before using the scores, the most important first.
        left_out: what the scores leave out, or of which part of the data they are.
        size: how large the main score is, on the scale of the first screen; None if the family has no such scale.
        people: who is shown to be treated differently, or how this changed, the most serious first.
        explanations: what the result may mean, and what it cannot rule out.
        decision: what a comparison advises; None if it advises nothing.
        costs: what a change cost, in all numbers that tell.
        notes: how the numbers were made.
    """

    headline: BiasScore | None
    verdict: Finding
    cautions: Sequence[Finding] = ()
    left_out: Sequence[Finding] = ()
    size: Finding | None = None
    people: Sequence[Finding] = ()
    explanations: Sequence[Finding] = ()
    decision: Finding | None = None
    costs: Sequence[Cost] = ()
    notes: Sequence[Finding] = ()


@dataclass(frozen=True)
class LimitResult:
    """Whether a limit of a run's bias holds.

    Attributes:
        limit: what is limited, and how much is allowed.
        status: HOLDS, BROKEN or INCONCLUSIVE.
        measured: what was measured of it.
        details: what was compared, how the limit was chosen, whom a broken limit is about, and what would decide.
    """

    limit: Finding
    status: str
    measured: Finding
    details: Sequence[Finding] = ()


def write_facts(path: Path, facts: Mapping[str, Facts]) -> None:
    """Write the facts of each family, by the family's name, to a JSON file; NaN and infinity are null."""
    families: dict[str, Json] = {}
    for name, of_family in facts.items():
        families[name] = plain(of_family)
    write_json(path, {"version": VERSION, "families": families})


def read_findings(path: Path, family: str, name: str) -> list[Finding]:
    """Return the findings of a name, such as "people", of a family in a file of `write_facts`; [] if there are none.

    Of "decision", there is one. Values are as JSON has them: mappings in place of records.
    """
    if not path.exists():
        return []
    facts = json.loads(path.read_text(encoding="utf-8"))["families"].get(family, {})
    found = facts.get(name) or ()
    return list(map(as_finding, [found] if isinstance(found, Mapping) else found))


def as_finding(found: Finding | Mapping[str, Any]) -> Finding:
    """Return a finding, or what JSON has of one, as a finding."""
    return found if isinstance(found, Finding) else Finding(found["kind"], found)


def plain(value: Any) -> Any:
    """Return a value as JSON has it: NaN is null, a finding its values and its kind, a score what identifies it."""
    if isinstance(value, Finding):
        return {"kind": value.kind, **{name: plain(item) for name, item in value.values.items()}}
    if isinstance(value, BiasScore):
        names = ("metric", "form", "kind", "group", "value", "interval", "p_value", "n", "n_of", "reason")
        return {name: plain(getattr(value, name)) for name in names}
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
