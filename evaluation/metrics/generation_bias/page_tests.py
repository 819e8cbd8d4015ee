"""Everything that the report on one run calls shown, tested jointly: at most 5 of 100 even pages show anything.

The families (`statistics.permutation`) are: whether people differ at all; the styles, style clusters and whole shifts
of people; each outcome; whether people differ at all by each cue, if there are several; and, if the language of answers
is an outcome, the styles of the answers in the request's language.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effects import (
    COLUMNS,
    effect_table,
    shift_table,
    style_family,
)
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    FILTERED,
    LANGUAGE,
    OTHER_LANGUAGE,
    AnalysedOutcome,
    analysed_outcome,
    outcome_table,
)
from evenhand.evaluation.metrics.generation_bias.people import compared_people
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.score import CUE
from evenhand.evaluation.statistics.effects import family_effects
from evenhand.evaluation.statistics.permutation import ANSWERS, Family


@dataclass(frozen=True)
class PageTests:
    """The joint tests of a page.

    Attributes:
        effects: effects on styles and style clusters, as of `effects`.
        shifts: who gets another mix of styles (`shift_table`).
        outcome_effects: effects on outcomes, as of `effects`, in units of the outcome.
        requested_effects: effects on the styles of the answers in the request's language; None without this outcome.
        overall: p-value that people differ at all, adjusted for the page, by "style", outcome, or "cue: " and the cue.
        for_these_prompts_only: whether single answers, not cells, are the unit of chance, since somebody has few
            templates in common with others.
    """

    effects: pd.DataFrame
    shifts: pd.DataFrame
    outcome_effects: pd.DataFrame
    requested_effects: pd.DataFrame | None
    overall: Mapping[str, float]
    for_these_prompts_only: bool


def page_tests(
    responses: StyledResponses,
    clusters: Mapping[str, Sequence[int]],
    outcomes: Mapping[str, pd.DataFrame],
    *,
    permutations: int,
    seed: int,
) -> PageTests:
    """Return the joint tests of a measurement.

    Args:
        responses: all responses, with their style vectors.
        clusters: style cluster → columns of its styles.
        outcomes: the values of each outcome, (n, k) tables, NaN where an answer has no value. `other_language` is one
            family with `language`, of which it is a part.
        permutations: number of joint permutations.
        seed: seed of the permutations.
    """
    has_value = responses.has_vector()
    if FILTERED in outcomes:  # whoever is always filtered has no style
        has_value = np.ones(len(responses), dtype=bool)
    people = compared_people(responses, responses.groups(), has_value)
    if people is None:
        nothing = pd.DataFrame(columns=list(COLUMNS))
        shifts = pd.DataFrame(columns=["unit", "axis", "moved", "p_family", "p_page", "certainty", "n"])
        return PageTests(nothing, shifts, nothing, None, {}, False)
    styles = style_family(people.responses, clusters)
    families = {
        "everybody": Family("everybody", styles.values, has_effects=False),
        "style": Family("style", styles.values, styles.sums, has_overall=False),
    }
    analysed = _analysed_outcomes(outcomes, people.is_compared)
    families |= {name: outcome.family for name, outcome in analysed.items()}
    requested = None
    if OTHER_LANGUAGE in outcomes:
        is_other = outcomes[OTHER_LANGUAGE][people.is_compared].to_numpy()[:, 0] == 1
        if is_other.any():
            values = np.where(is_other[:, None], np.nan, styles.values)
            requested = Family("requested", values, styles.sums, has_overall=False)
            families["requested"] = requested
    cues = _cue_families(people.responses, styles.values)
    families |= cues
    rng = np.random.default_rng(seed)
    found = dict(zip(families, family_effects(people.design, list(families.values()), permutations, rng), strict=True))

    tables = [outcome_table(people, outcome, found[name]) for name, outcome in analysed.items()]
    overall = {name: found[name].overall_page for name in (*analysed, *cues)}
    return PageTests(
        effects=effect_table(people, styles, clusters, found["style"]),
        shifts=shift_table(people, styles, found["style"]),
        outcome_effects=pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(COLUMNS)),
        requested_effects=None if requested is None else effect_table(people, requested, clusters, found["requested"]),
        overall={"style": found["everybody"].overall_page, **overall},
        for_these_prompts_only=found["style"].unit == ANSWERS,
    )


def _analysed_outcomes(outcomes: Mapping[str, pd.DataFrame], is_compared: np.ndarray) -> dict[str, AnalysedOutcome]:
    """Return the outcomes on the scale of their analysis; `other_language` is joined to `language`."""
    analysed = {}
    for name, values in outcomes.items():
        if name == OTHER_LANGUAGE:
            continue
        parts = {name: values[is_compared]}
        if name == LANGUAGE and OTHER_LANGUAGE in outcomes:
            parts[OTHER_LANGUAGE] = outcomes[OTHER_LANGUAGE][is_compared]
        analysed[name] = analysed_outcome(name, parts)
    return analysed


def _cue_families(responses: StyledResponses, vectors: np.ndarray) -> dict[str, Family]:
    """Return a family for each cue, if there are several: whether people differ at all by this cue."""
    if CUE not in responses.table or responses.table[CUE].nunique() < 2:
        return {}
    families = {}
    for cue in responses.table[CUE].unique():
        is_cue = (responses.table[CUE] == cue).to_numpy()
        values = np.where(is_cue[:, None], vectors, np.nan)
        families[f"{CUE}: {cue}"] = Family(f"{CUE}: {cue}", values, has_effects=False)
    return families
