"""Outcomes beside style: functions from responses to numbers, which may depend on the descriptor as style may.

An outcome is a table with a row for each response and a column for each of its k values: one for a number, such as
`length`; one for each class, such as `language`, with 1 for the response's class and 0 for others. A response without a
value has NaN and is left out.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.mentions import Term, mention_terms, neutral_terms, replace_mentions
from evenhand.evaluation.data.refusals import declines
from evenhand.evaluation.metrics.generation_bias.changes import compare_generation_bias
from evenhand.evaluation.metrics.generation_bias.effects import SHOWN, effects
from evenhand.evaluation.metrics.generation_bias.filtered import filtered
from evenhand.evaluation.metrics.generation_bias.metric import HEADLINE, missing_interval_reason, root
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import number, sanitize, span
from evenhand.evaluation.report.page import Cell, Row, Section, Table
from evenhand.evaluation.report.tables import LEVEL, ScoreChange, change_table, scores_table
from evenhand.evaluation.score import CUE, DESCRIPTOR, PERSONA, RESPONSE, TEMPLATE, TEXT, BiasScore, find_score
from evenhand.evaluation.statistics.cells import arrange_cells, complete_descriptors, to_codes
from evenhand.evaluation.statistics.hypothesis_tests import holm
from evenhand.evaluation.statistics.intervals import ANY, mean_interval
from evenhand.evaluation.statistics.permutation import permutation_p_value
from evenhand.evaluation.statistics.scores import mean_change
from evenhand.evaluation.statistics.spread import descriptor_spread

VERSION = "2"
VALUES, OUTCOME_EFFECTS = "outcomes", "outcome_effects"  # tables: values of all outcomes, and effects on them
MAX_ROWS = 20
MIN_CHARACTERS = 20  # of shorter texts the language is a guess: "ok" would be Afrikaans
TOO_SHORT = "too short"  # the class of shorter texts
OTHER, MIN_SHARE = "other", 0.001  # classes with fewer than MIN_SHARE of the responses are joined
NO_SPREAD = "people do not differ in either run"


def language(table: pd.DataFrame) -> pd.DataFrame:
    """Return 1 in the column of each response's language (py3langid, ISO 639-1) and 0 in the others.

    A response of fewer than MIN_CHARACTERS is in the class TOO_SHORT. Without a value, it would exclude its descriptor
    from the spread, which needs all templates; in the class of the commonest language, it might hide another one. NaN
    for an empty response.
    """
    from py3langid import classify

    texts = [text.strip() for text in table[RESPONSE]]
    names = [classify(it)[0] if len(it) >= MIN_CHARACTERS else TOO_SHORT for it in texts]
    values = pd.get_dummies(pd.Series(names, dtype=object), dtype=float)
    values[[not it for it in texts]] = np.nan
    return values


def refusal(table: pd.DataFrame) -> pd.DataFrame:
    """Return whether each response declines, by the phrases of `data/refusals`; NaN for an empty one."""
    return _numbers("refusal", table, lambda text, descriptor: declines(text))


def length(table: pd.DataFrame) -> pd.DataFrame:
    """Return the number of words of each response."""
    return pd.DataFrame({"words": table[RESPONSE].str.split().str.len().astype(float)})


def readability(table: pd.DataFrame) -> pd.DataFrame:
    """Return the automated readability index (Senter and Smith 1967), about the school grade that a text asks for.

    4.71 · letters / words + 0.5 · words / sentences − 21.43; NaN for an empty response.
    """

    def index(text: str, descriptor: str) -> float:
        words, sentences = len(text.split()), max(1, len(re.findall(r"[.!?]+(?:\s|$)", text)))
        return 4.71 * len(re.findall(r"\w", text)) / words + 0.5 * words / sentences - 21.43

    return _numbers("grade", table, index)


def mention(table: pd.DataFrame) -> pd.DataFrame:
    """Return whether each response names the descriptor of its prompt; NaN for an empty response."""
    return _numbers("mention", table, lambda text, descriptor: replace_mentions(text, descriptor, "") != text)


def _numbers(name: str, table: pd.DataFrame, number: Callable[[str, Term], float]) -> pd.DataFrame:
    """Return a column with the number of each response and its descriptor; NaN for an empty response."""
    pairs = zip(table[RESPONSE], mention_terms(table), strict=True)
    return pd.DataFrame({name: [float(number(*pair)) if pair[0].strip() else np.nan for pair in pairs]})


FLUENCY = "fluency"  # of the model's likelihoods: `without_person`
OUTCOMES: dict[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    it.__name__: it for it in (language, refusal, length, readability, mention, filtered)
}


def without_person(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts without the person: the request alone, or the prompt about a left-handed person."""
    if CUE in prompts:
        return prompts.assign(**{TEXT: prompts[TEMPLATE].str.partition(": ")[2], PERSONA: ""})
    rows = zip(prompts[TEXT], mention_terms(prompts), neutral_terms(prompts), strict=True)
    return prompts.assign(**{TEXT: [replace_mentions(*row) for row in rows]})


def fluency(likelihoods: pd.DataFrame) -> pd.DataFrame:
    """Return −log p per token of each response after its prompt without the person, in nats; high: broken or foreign.

    `likelihoods` has the columns log_likelihood and tokens, of `Model.log_likelihood` after `without_person`.
    """
    return pd.DataFrame({"nats_per_token": -likelihoods["log_likelihood"] / likelihoods["tokens"]})


def outcome_values(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return the values of an outcome of OUTCOMES, or of a column of the file of responses: numbers, or classes."""
    if name in OUTCOMES:
        return OUTCOMES[name](table)
    column = table[name].reset_index(drop=True)
    if pd.api.types.is_numeric_dtype(column):
        return column.to_frame().astype(float)
    values = pd.get_dummies(column, dtype=float)
    values[column.isna()] = np.nan
    return values


def stored_values(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the values of an outcome in the table VALUES of a run."""
    start = f"{name}: "
    return table[[it for it in table if it.startswith(start)]].rename(columns=lambda it: it.removeprefix(start))


def join_rare(values: pd.DataFrame) -> pd.DataFrame:
    """Return the table with classes of fewer than MIN_SHARE of the responses, except TOO_SHORT, joined as OTHER."""
    share = values.mean()
    rare = [it for it in values if it != TOO_SHORT and (it == OTHER or share[it] < MIN_SHARE)]
    if values.shape[1] == 1 or not rare:
        return values
    return values.drop(columns=rare).assign(**{OTHER: values[rare].sum(axis=1, skipna=False)})


def outcome_bias(
    responses: StyledResponses,
    outcome: str,
    values: pd.DataFrame,
    *,
    permutations: int = 999,
    seed: int = 0,
    signature: Mapping[str, Any] | None = None,
) -> tuple[list[BiasScore], pd.DataFrame]:
    """Return how much an outcome depends on the descriptor, as scores, and the effects on each descriptor.

    `<outcome>_mean` is the mean of each column over responses. `<outcome>_spread` is the root of pooled FGB* of the
    columns, the standard deviation over descriptors of their mean, without the noise of sampling; of classes (several
    columns) divided by √2, which makes it the share of responses that change their class (`scale_scores`). Ideal 0. Its
    p-value is of the permutation test that the outcome does not depend on the descriptor. Rare classes are joined.

    Args:
        responses: the rows' templates, descriptors and axes; their style vectors are not used.
        values: the outcome of each response, (n, k); NaN leaves a response out.

    Returns:
        The scores, and a table as of `effects` with the column `outcome`, in units of the outcome.
    """
    values = join_rare(values)
    of_outcome = StyledResponses(responses.table, values.to_numpy(dtype=float), list(map(str, values)))
    is_share = bool(np.isin(of_outcome.vectors[of_outcome.has_vector()], (0, 1)).all())
    table = effects(of_outcome, {}, permutations=permutations, seed=seed, are_shares=is_share)
    return _outcome_scores(of_outcome, outcome, permutations, seed, signature), table.assign(outcome=outcome)


def _outcome_scores(
    responses: StyledResponses, outcome: str, permutations: int, seed: int, signature: Mapping[str, Any] | None
) -> list[BiasScore]:
    """Return the spread of an outcome, and the mean of each column; `responses.vectors` are the outcome's values."""
    template, descriptor = (to_codes(responses.table[name]) for name in (TEMPLATE, DESCRIPTOR))
    cells = complete_descriptors(arrange_cells(responses.vectors, template, descriptor))
    estimate = descriptor_spread(cells, pooled=True).corrected
    common = {"n": cells.n, "n_left_out": cells.n_left_out, "signature": {**(signature or {}), "outcomes": VERSION}}
    value, interval = root(estimate.value, estimate.interval, _divisor(responses.styles))
    reason, p = missing_interval_reason(estimate), None
    if permutations and not reason:
        p = permutation_p_value(cells, permutations, np.random.default_rng(seed))
    of_spread = {"interval": interval, "p_value": p, "reason": reason, **common}
    scores, has_value = [BiasScore(f"{outcome}_spread", value, 0.0, (0, np.inf), **of_spread)], responses.has_vector()
    common |= {"n": int(has_value.sum()), "n_left_out": int((~has_value).sum())}
    for group, column in _columns(responses):
        column = column[has_value]
        mean, missing = (float(column.mean()), None) if len(column) else (np.nan, "no response has a value")
        of_mean = {"interval": mean_interval(column), "group": group, "reason": missing, **common}
        scores.append(BiasScore(f"{outcome}_mean", mean, None, ANY, **of_mean))
    return scores


def _divisor(columns: Sequence[str]) -> float:
    return 2.0 if len(columns) > 1 else 1.0  # a response that changes its class moves two columns


def _columns(responses: StyledResponses) -> list[tuple[dict[str, str], np.ndarray]]:
    """Return the group and the values, (n,), of each column."""
    names = responses.styles
    groups = [{"value": name} if len(names) > 1 else {} for name in names]
    return list(zip(groups, responses.vectors.T, strict=True))


def outcome_changes(
    responses: StyledResponses,
    outcome: str,
    before: pd.DataFrame,
    after: pd.DataFrame,
    *,
    signature: Mapping[str, Any] | None = None,
) -> list[BiasScore]:
    """Return the changes of an outcome between two runs over the same prompts, and both runs' scores on these prompts.

    `<outcome>_mean_difference`: the change of each column's mean, paired by prompt. `<outcome>_spread_difference`: the
    spread after, a, less the spread before, b. Its p-value is of the paired difference a² − b² of pooled FGB* of the
    columns (`compare_generation_bias`). Its interval is the interval of this difference divided by a + b, since
    a² − b² = (a − b) (a + b); it excludes 0 if and only if p < 0.05. A prompt without a value in one run is left out of
    both. Scores of the runs (as of `outcome_bias`, without tests) have the group {"run": "before"} or {"run": "after"}.

    Args:
        responses: the rows' templates and descriptors.
        before, after: the outcome of each response in both runs, (n, k); a class that only one of them has is 0 in the
            other.
    """
    columns = list(dict.fromkeys([*before, *after]))
    joined = join_rare(pd.concat([side.reindex(columns=columns, fill_value=0.0) for side in (before, after)]))
    values = np.split(joined.to_numpy(dtype=float), 2)
    has_both = np.isfinite(values).all(axis=(0, 2))
    of_outcome = replace(responses, vectors=values[0], styles=list(map(str, joined))).rows(has_both)
    sides = [replace(of_outcome, vectors=side[has_both]) for side in values]
    n_left_out, signature = int((~has_both).sum()), {**(signature or {}), "outcomes": VERSION}
    scores = []
    for name, side in zip(("before", "after"), sides, strict=True):
        of_side = _outcome_scores(side, outcome, 0, 0, signature)
        scores += [replace(it, group={**it.group, "run": name}) for it in of_side]
    for (group, old), (_, new) in zip(*map(_columns, sides), strict=True):
        of = {"bounds": ANY, "n_left_out": n_left_out, "group": group, "signature": signature}
        scores.append(mean_change(f"{outcome}_mean_difference", old, new, **of))
    square = find_score(compare_generation_bias(*sides, {}, by_axis=False), f"{HEADLINE}_difference")
    old, new = (find_score(scores, f"{outcome}_spread", run=name).value for name in ("before", "after"))
    scale = _divisor(of_outcome.styles) * (old + new)
    interval = tuple(bound / scale for bound in square.interval) if square.interval and scale > 0 else None
    of_change = {"ideal": -old, "bounds": ANY, "n": square.n, "n_left_out": len(responses) - square.n}
    of_change |= {"p_value": square.p_value, "reason": square.reason or (None if interval else NO_SPREAD)}
    change = BiasScore(f"{outcome}_spread_difference", new - old, interval=interval, signature=signature, **of_change)
    return [*scores, change]


def outcome_text(scores: Sequence[BiasScore]) -> str:
    """Return a sentence that names the outcomes that depend on the person, or "".

    An outcome depends on the person if the p-value of its spread, after Holm's correction for all outcomes, is at most
    0.05.
    """
    spreads = [it for it in scores if it.metric.endswith("_spread") and it.p_value is not None]
    is_shown = holm([it.p_value for it in spreads]) <= LEVEL
    # `other_language` is computed from `language`; both appear as “language”.
    names = (it.metric.removesuffix("_spread").removeprefix("other_") for it in compress(spreads, is_shown))
    names = list(dict.fromkeys(name.replace("_", " ") for name in names))
    listed = " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
    return f"The {listed} of answers depend{'' if names[1:] else 's'} on the person. " if names else ""


def outcome_section(scores: Sequence[BiasScore], table: pd.DataFrame) -> Section:
    """Return the section of a report on outcomes: how far people are apart, and which effects are shown."""
    spreads = [it for it in scores if it.metric.endswith("_spread")]
    shown = table[(table["certainty"] == SHOWN) & (table["kind"] == DESCRIPTOR)].head(MAX_ROWS)
    rows = []
    for row in shown.to_dict("records"):
        of = format_of(f"{row['outcome']}_spread")
        values = (of.text(row[name]) for name in ("mean", "average"))
        change, bounds = of.factor * row["effect"], (of.factor * row["low"], of.factor * row["high"])
        name = (
            row["outcome"]
            if row["outcome"] in (row["name"], "length", "fluency")
            else f"{row['outcome']} {row['name']}"
        )
        cells = (*map(Cell, values), Cell(number(change, of.decimals, True), span(bounds, of.decimals)), Cell(of.unit))
        rows.append(Row(sanitize(f"{row['unit']}: {name.replace('_', ' ')}", 80), cells))
    columns = ("who: outcome", "their mean", "average", "difference", "unit")
    note = "" if rows else "No effect on a descriptor is shown."
    return Section(
        "Beside style: language, fluency and other outcomes",
        tables=[
            scores_table(
                "How far people are apart (standard deviation over descriptors, without noise)",
                spreads,
                "outcome",
                label=lambda it: format_of(it).title,
                counted="responses",
            ),
            Table("Shown effects, the largest first", columns, tuple(rows), note),
        ],
        first_screen=True,
    )


def outcome_change_section(changes: Sequence[BiasScore]) -> Section:
    """Return the section of a comparison on outcomes: means and spreads before and after, with paired changes."""
    rows = []
    for change in changes:
        metric = change.metric.removesuffix("_difference")
        if metric != change.metric and metric.endswith(("_spread", "_mean")):
            sides = (find_score(changes, metric, **change.group, run=name) for name in ("before", "after"))
            label = ": ".join([format_of(metric).title, *change.group.values()])
            rows.append(ScoreChange(label, *sides, change))
    title = "Beside style, before and after"
    table = change_table("Means, and how far people are apart", "outcome", rows, counted="responses", is_plotted=False)
    return Section(title, tables=[table] if rows else [], first_screen=True)
