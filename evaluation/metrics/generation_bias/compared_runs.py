"""Two measuring runs that are compared: on the prompts that both have, and whether they can be compared."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.joins import join_rows
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import ACCEPTED, PROMPTS, Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.classification import STYLE_CLASSIFIER, is_same_classifier
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB
from evenhand.evaluation.statistics.level import ONE_LOOK, Level
from evenhand.evaluation.tables import read_table

HASH = re.compile(r"[0-9a-f]{40,}")
COMMON_PROMPTS = "common_prompts"  # the share of the prompts that both runs have
MAX_NAMES = 20  # of people who are not compared
MIN_COMMON = 0.5  # of the prompts of the smaller run; two logs with fewer share their greetings, and little else


def on_common_prompts(before: FamilyRun, after: FamilyRun) -> tuple[FamilyRun, FamilyRun, np.ndarray]:
    """Return both runs with the prompts that both have, and whether each prompt of either one is common, (n,) bool.

    A change of the mix of prompts would otherwise look like a change of the model.

    Raises:
        InputError: the runs have no common prompt.
    """
    old = read_table(before.folder / f"{PROMPTS}.parquet", [columns.PROMPT_ID])
    new = read_table(after.folder / f"{PROMPTS}.parquet", [columns.PROMPT_ID])
    joined = join_rows(old, new, [columns.PROMPT_ID], PROMPTS)
    if old.equals(new):
        return before, after, joined.is_common()
    common = frozenset(joined.before[columns.PROMPT_ID])
    return replace(before, only=common), replace(after, only=common), joined.is_common()


def people_not_compared(before: FamilyRun, after: FamilyRun) -> list[Finding]:
    """Return the finding on people who have no prompt that both runs have, or []; both runs are `on_common_prompts`."""
    everybody: set[str] = set()
    compared: set[str] = set()
    for run in (before, after):
        everybody.update(replace(run, only=None).table(PROMPTS)[columns.DESCRIPTOR].astype(str))
        compared.update(run.table(PROMPTS)[columns.DESCRIPTOR].astype(str))
    alone = sorted(everybody - compared)
    return [Finding("people_of_one_run", {"names": alone[:MAX_NAMES], "n": len(alone)})] if alone else []


def hardly_common(runs: Sequence[FamilyRun]) -> Finding | None:
    """Return how many prompts all runs have, if these are less than MIN_COMMON of the smallest run's; else None."""
    prompts = []
    for run in runs:
        table = read_table(run.folder / f"{PROMPTS}.parquet", [columns.PROMPT_ID])
        prompts.append(set(table[columns.PROMPT_ID].astype(str)))
    n = len(set.intersection(*prompts))
    n_smallest = min(map(len, prompts))
    return Finding("hardly_common", {"n": n, "n_of": n_smallest}) if n < MIN_COMMON * n_smallest else None


def compared_responses(run: FamilyRun, level: Level = ONE_LOOK) -> Answers:
    """Return the responses of a run to the prompts that are compared."""
    answers = read_answers(run.folder, only=run.only, level=level)
    if run.marks_untuned:
        return answers
    return replace(answers, table=answers.table.drop(columns=columns.UNTUNED, errors="ignore"))


def check_comparable(before: FamilyRun, after: FamilyRun, rows: tuple[Answers, Answers], field: str = "after") -> None:
    """Raise InputError if two runs have different prompts, styles, decoding or style classifiers.

    `field` is the setting with the folder of the run after, for the message.
    """
    old, new = rows
    if not old.table[columns.PROMPT_ID].equals(new.table[columns.PROMPT_ID]) or old.columns != new.columns:
        raise InputError(
            field,
            f"{after.folder} has other prompts or styles than {before.folder}; measure it again with the same "
            "dataset, sampling, seed and style classifier.",
        )
    for name in (STYLE_CLASSIFIER, "decoding", ACCEPTED):
        old_value = before.signature(FGB).get(name)
        new_value = after.signature(FGB).get(name)
        if not is_same_classifier(old_value, new_value):
            found = _differing(new_value, old_value)
            expected = _differing(old_value, new_value)
            raise InputError(
                field,
                f"{name} has {found} in {after.folder}, and {expected} in {before.folder}; compare only runs with the "
                f"same {name}.",
            )


def _differing(value: object, other: object) -> str:
    """Return the entries of a signature's value that the other one has not, on one line; hashes are shortened.

    >>> _differing({"name": "a", "revision": "0f" * 32, "labels": 28}, {"name": "b", "revision": "1", "labels": 28})
    'name a, revision 0f0f0f0'
    """
    if not (isinstance(value, dict) and isinstance(other, dict)):
        return str(value)
    differing = {name: entry for name, entry in value.items() if name not in other or entry != other[name]}
    texts = [f"{name} {HASH.sub(lambda found: found[0][:7], str(entry))}" for name, entry in differing.items()]
    return ", ".join(texts) or "nothing else"
