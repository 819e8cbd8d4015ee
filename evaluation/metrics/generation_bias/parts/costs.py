"""The part of costs: means of measures over all responses, whoever asks, and their changes (`Measure.cost`).

A cost that has its values from likelihoods (`Needs.WEIGHTS`) is, in a measurement, under the measured model. In a
comparison it is, of both runs, under the model of the run `before`; the even reference (`likelihoods`) has it, too.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.other_people import other_people
from evenhand.evaluation.metrics.generation_bias.answers import answers_of
from evenhand.evaluation.metrics.generation_bias.classification import OFFENSIVENESS_CLASSIFIER
from evenhand.evaluation.metrics.generation_bias.engine.comparable import common_values
from evenhand.evaluation.metrics.generation_bias.engine.costs import (
    COST_FORMATS,
    EVEN,
    RELEVANCE,
    UNDER_MODEL,
    cell_codes,
    cost_changes,
    cost_level,
    cost_measures,
    undefined_cost_changes,
)
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues, measured_values
from evenhand.evaluation.metrics.generation_bias.likelihoods import (
    EVEN_LIKELIHOODS,
    TABLES,
    drawn_prompts,
    even_responses,
    likelihood_table,
)
from evenhand.evaluation.metrics.generation_bias.measures import (
    LIKELIHOODS,
    TEMPLATE_LIKELIHOODS,
    Context,
    Measure,
    Needs,
    find_measure,
)
from evenhand.evaluation.metrics.generation_bias.parts import (
    AnsweredRun,
    ClassifiedRun,
    ComparedSide,
    Comparison,
    JointTests,
    Part,
    record_base_failure,
)
from evenhand.evaluation.metrics.generation_bias.parts.same_terms import (
    OTHER_CLASSIFIER,
    has_same_offensiveness_classifier,
    offensiveness_classifier,
    table_under_base,
    tables_under_base,
)
from evenhand.evaluation.metrics.offensiveness import THRESHOLD
from evenhand.evaluation.score import BiasScore, Kind, Signature
from evenhand.evaluation.settings import WITHOUT_FLAG, StrictSettings


class Settings(StrictSettings):
    """Whether the measured model scores the responses, and how many of them."""

    relevance: bool = Field(
        True, description="whether the model itself scores how well responses fit their prompts, and their perplexity"
    )
    relevance_share: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None,
        description="share of the responses that relevance scores, drawn by prompt; null: 0.1 and 300 or more, or all "
        "for a model under 10 M parameters",
        json_schema_extra=WITHOUT_FLAG,
    )


class ComparisonSettings(StrictSettings):
    """Whether the first run's model scores the responses of two runs."""

    relevance: bool = Field(
        True, description="whether the first run's model scores the responses of both runs: relevance, perplexity"
    )
    score_all: bool = Field(
        False, description="whether it scores all responses, which takes longer, not as many as the first run's sample"
    )


def likelihood_values(measure: Measure, prompts: pd.DataFrame, table: pd.DataFrame) -> MeasureValues:
    """Return the values of a measure of the responses that its table of likelihoods has, with their strata.

    The strata are the cells if all responses are scored. The interval of a sample includes the differences between
    cells: the number of prompts drawn from each is not fixed.
    """
    drawn = prompts[prompts[columns.PROMPT_ID].isin(table[columns.PROMPT_ID])].reset_index(drop=True)
    values = measured_values(measure.name, drawn, Context(tables={measure.table: table}))
    is_whole = measure.table == LIKELIHOODS and len(drawn) == len(prompts)
    return replace(values, strata=cell_codes(drawn) if is_whole else np.zeros(len(drawn), dtype=int))


def likelihood_levels(prompts: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> list[BiasScore]:
    """Return the costs under a model whose tables of likelihoods are given, by name.

    An empty response counts as its end-of-sequence token. Intervals are over new responses in the same cells, or over
    new samples of prompts and responses if the table has only a part of the prompts. `n_left_out` counts the drawn
    responses without a value.
    """
    scores = []
    for measure in UNDER_MODEL:
        if measure.table in tables:
            table = tables[measure.table]
            values = likelihood_values(measure, prompts, table)
            scores.append(replace(cost_level(values), signature=sample_signature(measure, prompts, table)))
    return scores


def sample_signature(measure: Measure, prompts: pd.DataFrame, table: pd.DataFrame) -> Signature:
    """Return the entry of a signature on the rule by which responses were drawn; {} if all were."""
    if measure.table != LIKELIHOODS or len(table) == len(prompts):
        return {}
    rule = {"responses": len(table), "of": len(prompts), "drawn": "the smallest blake2b hashes of prompt_id"}
    return {"scored": rule}


def likelihood_changes(
    prompts: pd.DataFrame,
    before: Mapping[str, pd.DataFrame],
    after: Mapping[str, pd.DataFrame],
) -> list[BiasScore]:
    """Return the costs of two runs over the same prompts, by group `run`, and their changes (`cost_changes`).

    All likelihoods are under one model, by name of the table, of responses to the same prompts.
    """
    scores = []
    for measure in UNDER_MODEL:
        if measure.table not in before:
            continue
        old, new = before[measure.table], after[measure.table]
        has_both = np.isfinite(old[columns.LOG_LIKELIHOOD].to_numpy()) & np.isfinite(
            new[columns.LOG_LIKELIHOOD].to_numpy()
        )
        values = []
        for table in (old, new):
            common = table.assign(**{columns.LOG_LIKELIHOOD: table[columns.LOG_LIKELIHOOD].where(has_both)})
            values.append(likelihood_values(measure, prompts, common))
        pair = common_values(values[0], values[1])
        of_measure = []
        for run, side in zip(("before", "after"), pair, strict=True):
            of_measure.append(replace(cost_level(side), group={"run": run}))
        of_measure += cost_changes(values[0], values[1])
        signature = sample_signature(measure, prompts, old)
        scores += [replace(score, signature=signature) for score in of_measure]
    return scores


def even_reference(prompts: pd.DataFrame, before: pd.DataFrame, even: pd.DataFrame) -> list[BiasScore]:
    """Return the relevance kept and the rise of the perplexity of even responses, in the group EVEN.

    `before` and `even` are LIKELIHOODS of the base's responses and of `even_responses` under the base model. Prompts
    whose template has only one descriptor are left out.
    """
    alone = prompts[columns.PROMPT_ID][other_people(prompts) < 0]
    even = even.assign(
        **{columns.LOG_LIKELIHOOD: even[columns.LOG_LIKELIHOOD].mask(even[columns.PROMPT_ID].isin(alone))}
    )
    changes = likelihood_changes(prompts, {LIKELIHOODS: before}, {LIKELIHOODS: even})
    return [replace(change, group=EVEN) for change in changes if change.kind in (Kind.KEPT, Kind.RISE)]


class CostsPart(Part):
    """How good the responses are in what is a number of each of them."""

    FORMATS = COST_FORMATS

    def collect(self, run: AnsweredRun) -> None:
        settings = run.config.settings
        names = {measure.table for name in settings.outcomes if (measure := find_measure(name)) is not None}
        if settings.relevance:
            names.add(LIKELIHOODS)
        if settings.relevance and run.config.for_comparisons:
            names.add(TEMPLATE_LIKELIHOODS)

        def table(name: str, label: str, answers: pd.DataFrame) -> pd.DataFrame:
            drawn = None
            if name == LIKELIHOODS:
                drawn = drawn_prompts(run.model, run.prompts, settings.relevance_share)
            return likelihood_table(run.store, run.model, name, run.prompts, answers, drawn, label)

        for name in TABLES:
            if name in names:
                run.store.ensure(name, partial(table, name, name, run.answers), on_all_ranks=True)
        if settings.relevance and run.config.for_comparisons:
            even = even_responses(run.prompts, run.answers)
            compute = partial(table, LIKELIHOODS, EVEN_LIKELIHOODS, even)
            run.store.ensure(EVEN_LIKELIHOODS, compute, on_all_ranks=True)

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        prompts = run.responses.table
        tables = run.context.tables
        scores = likelihood_levels(prompts, tables)
        for measure in cost_measures(run.outcomes):
            if measure.needs == Needs.WEIGHTS or (measure.table and measure.table not in tables):
                continue
            level = cost_level(measured_values(measure.name, prompts, run.context))
            if measure.needs == Needs.CLASSIFIER:
                classifier = {**run.classifiers[OFFENSIVENESS_CLASSIFIER], "threshold": THRESHOLD}
                level = replace(level, signature={OFFENSIVENESS_CLASSIFIER: classifier})
            scores.append(level)
        return scores

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        scores = _changes_under_base(comparison)
        cells = cell_codes(comparison.old.table)
        for measure in _common_costs(comparison):
            signature = {}
            if measure.needs == Needs.CLASSIFIER:
                if not has_same_offensiveness_classifier(comparison):
                    scores += undefined_cost_changes(measure, OTHER_CLASSIFIER)
                    continue
                signature = {OFFENSIVENESS_CLASSIFIER: offensiveness_classifier(comparison.before)}
            before, after = _values_of_both(comparison, measure)
            scores += [replace(score, signature=signature) for score in cost_changes(before, after, cells)]
        return scores

    def common_levels(self, comparison: Comparison, side: ComparedSide) -> list[BiasScore]:
        scores = []
        for measure in _common_costs(comparison):
            common = common_values(*_values_of_both(comparison, measure))
            values = common[0] if side.name == "before" else common[1]
            scores.append(replace(cost_level(values), signature=side.run.signature(measure.cost)))
        return scores


def _common_costs(comparison: Comparison) -> list[Measure]:
    """Return the costs that both runs measure without a model's weights."""
    outcomes = set(comparison.before.config.settings.outcomes) & set(comparison.after.config.settings.outcomes)
    found = []
    for measure in cost_measures(outcomes):
        has_table = not measure.table or (comparison.before.has(measure.table) and comparison.after.has(measure.table))
        if measure.needs != Needs.WEIGHTS and has_table:
            found.append(measure)
    return found


def _values_of_both(comparison: Comparison, measure: Measure) -> tuple[MeasureValues, MeasureValues]:
    """Return the values of a measure in both runs, row by row."""
    language = comparison.before.config.prompts.language
    values = []
    for run, answers in ((comparison.before, comparison.old), (comparison.after, comparison.new)):
        context = Context(language, {measure.table: run.table(measure.table)} if measure.table else {})
        values.append(measured_values(measure.name, answers.table, context))
    return values[0], values[1]


def _changes_under_base(comparison: Comparison) -> list[BiasScore]:
    """Return the costs of both runs' responses under the first run's model, and their changes."""
    if comparison.without_base:
        return _undefined_changes(comparison.without_base)
    with record_base_failure(comparison.store, RELEVANCE, comparison.base):
        prompts = comparison.old.table
        tables = {name: tables_under_base(comparison, name) for name in (LIKELIHOODS, TEMPLATE_LIKELIHOODS)}
        before = {name: old for name, (old, _) in tables.items()}
        after = {name: new for name, (_, new) in tables.items()}
        even_answers = even_responses(prompts, answers_of(prompts))
        even = table_under_base(comparison, LIKELIHOODS, EVEN_LIKELIHOODS, even_answers)
        return [
            *likelihood_changes(prompts, before, after),
            *even_reference(prompts, before[LIKELIHOODS], even),
        ]
    return _undefined_changes(comparison.store.failures[RELEVANCE])


def _undefined_changes(reason: str) -> list[BiasScore]:
    return [score for measure in UNDER_MODEL for score in undefined_cost_changes(measure, reason)]
