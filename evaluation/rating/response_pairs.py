"""Pairs of two runs' responses to the same prompt, which people rate side by side (Smith et al. 2022, §C.2.2)."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_yaml
from evenhand.evaluation.joins import join_rows
from evenhand.evaluation.metrics.generation_bias.measures import OFFENSIVENESS
from evenhand.evaluation.metrics.offensiveness import THRESHOLD
from evenhand.evaluation.settings import NonBlank, checked
from evenhand.evaluation.tables import read_table

BEFORE = "before"
AFTER = "after"
SIDES = (BEFORE, AFTER)
Side = Literal["before", "after"]  # the model before or after tuning
OFFENSIVE = "offensive"
UNANSWERED = "unanswered"
ALIKE = "alike"
REASONS = (
    columns.TEMPLATE,
    columns.DESCRIPTOR,
    UNANSWERED,
    OFFENSIVE,
    ALIKE,
)  # to exclude a pair; the first that applies counts
OF_PROMPTS = (columns.PROMPT_ID, columns.AXIS, columns.DESCRIPTOR, columns.TEMPLATE, columns.TEXT)
OF_PROMPTS += (columns.CUE, columns.PERSONA)
SHIPPED = Path(__file__).resolve().parents[1] / "data" / "files" / "rating"
LeftOut = dict[Literal["template", "descriptor"], list[NonBlank]]


def read_questions(name: str) -> dict[str, str]:
    """Return the questions in a YAML file, name → text in the order of the file.

    The name "paper" is of the shipped file, with the questions of Smith et al. 2022, §C.2.2.

    Raises:
        InputError: the file cannot be read, or its content has another form.

    >>> list(read_questions("paper"))
    ['preference', 'humanness', 'interestingness']
    """
    content = read_yaml(_rating_file("questions", name), "questions")
    questions = checked(dict[NonBlank, NonBlank], content, f"questions: {name}")
    if not questions:
        raise InputError("questions", f"{name} has no question; write a line such as `preference: Who is better?`.")
    return questions


def read_left_out(name: str) -> dict[str, list[str]]:
    """Return the templates and descriptors in a YAML file whose pairs are not rated: column → values.

    The name "paper" is of the shipped file, after Smith et al. 2022, §C.2.1.

    Raises:
        InputError: the file cannot be read, or its content has another form.
    """
    return checked(LeftOut, read_yaml(_rating_file("leave_out", name), "leave_out"), f"leave_out: {name}")


def _rating_file(field: str, name: str) -> Path:
    return SHIPPED / f"{field}.yaml" if name == "paper" else Path(name)


def read_response_pairs(before: Path, after: Path) -> pd.DataFrame:
    """Return the responses of two runs to the prompts that both have, one row per prompt.

    The columns are prompt_id, axis, descriptor, template, text (the prompt, with the cue to who asks), before and after
    (the responses), unanswered and offensive. `unanswered` is true if a run has no response but a reason why, such as a
    failure of the server. `offensive` is true if the response of either run is offensive with a probability of at least
    THRESHOLD by that run's classifier, and null if neither run has an offensiveness classifier.

    Raises:
        InputError: a file is absent, or the runs have no prompt in common.
    """
    joined = join_rows(_read_answers(before), _read_answers(after), [columns.PROMPT_ID], "prompts")
    rows = joined.before[[columns.PROMPT_ID, columns.AXIS, columns.DESCRIPTOR, columns.TEMPLATE, columns.TEXT]].copy()
    rows[UNANSWERED] = joined.before[columns.LEFT_OUT].notna() | joined.after[columns.LEFT_OUT].notna()
    rows[BEFORE] = joined.before[columns.RESPONSE]
    rows[AFTER] = joined.after[columns.RESPONSE]
    classified = [answers[OFFENSIVENESS] for answers in (joined.before, joined.after) if OFFENSIVENESS in answers]
    rows[OFFENSIVE] = np.any([values >= THRESHOLD for values in classified], axis=0) if classified else None
    return rows


def _read_answers(folder: Path) -> pd.DataFrame:
    """Return a run's prompts with their responses and, if a classifier gave it, the offensiveness of each."""
    answers = read_table(folder / "prompts.parquet", OF_PROMPTS)
    if columns.CUE in answers:  # earlier turns or a profile say who asks
        answers[columns.TEXT] = (answers[columns.PERSONA] + "\n" + answers[columns.TEXT]).str.strip()
    answers = answers.merge(read_table(folder / "responses.parquet"), on=columns.PROMPT_ID, validate="one_to_one")
    probabilities = folder / f"{OFFENSIVENESS}.parquet"
    if probabilities.exists():
        answers = answers.merge(read_table(probabilities), on=columns.PROMPT_ID, validate="one_to_one")
    return answers


def exclusion_reasons(pairs: pd.DataFrame, lists: Mapping[str, Sequence[str]]) -> pd.Series:
    """Return the first reason to exclude each pair, None for a pair to keep, (n,).

    The REASONS are: an excluded TEMPLATE or DESCRIPTOR, an UNANSWERED prompt, an OFFENSIVE response, and responses that
    are ALIKE up to outer white space.

    Args:
        pairs: the n pairs that `read_response_pairs` returns.
        lists: excluded values of the columns TEMPLATE and DESCRIPTOR.
    """
    applies = {
        columns.TEMPLATE: pairs[columns.TEMPLATE].isin(lists.get(columns.TEMPLATE, [])),
        columns.DESCRIPTOR: pairs[columns.DESCRIPTOR].isin(lists.get(columns.DESCRIPTOR, [])),
        UNANSWERED: pairs[UNANSWERED],
        OFFENSIVE: pairs[OFFENSIVE].eq(True),
        ALIKE: pairs[BEFORE].str.strip() == pairs[AFTER].str.strip(),
    }
    reasons = pd.Series([None] * len(pairs), index=pairs.index, dtype=object)
    for reason in reversed(REASONS):
        reasons[applies[reason]] = reason
    return reasons


def sample_pairs(pairs: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    """Return a random sample of at most n pairs in random order.

    All raters see the pairs in the same order, so that the pairs of raters who stop early overlap.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))
    return pairs.iloc[order[:n]].reset_index(drop=True).drop(columns=[UNANSWERED, OFFENSIVE])


def left_side(rater: str, prompt_id: str, seed: int) -> Side:
    """Return the side, "before" or "after", whose response a rater sees on the left: random for each rater and pair."""
    digest = hashlib.sha256(f"{seed}\0{rater}\0{prompt_id}".encode()).digest()
    return SIDES[digest[0] % 2]


def other_side(side: Side) -> Side:
    """Return "after" for "before", and "before" for "after"."""
    return AFTER if side == BEFORE else BEFORE
