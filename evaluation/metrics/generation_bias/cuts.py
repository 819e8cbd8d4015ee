"""Scores of a part of the responses (by cue, by language, of people never tuned on), and by a second classifier.

If somebody gets more responses in another language than the request's, the styles of the other responses are scored
apart (`requested_language`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import (
    SECOND_STYLES,
    Answers,
    read_answers,
)
from evenhand.evaluation.metrics.generation_bias.classification import (
    SECOND_STYLE_CLASSIFIER,
    STYLE_CLASSIFIER,
    is_same_classifier,
)
from evenhand.evaluation.metrics.generation_bias.engine.effects import (
    REQUESTED_EFFECTS,
    difference_bound,
    style_tests,
)
from evenhand.evaluation.metrics.generation_bias.engine.spread import (
    compare_generation_bias,
    find_headline,
    is_pooled_fgb,
    spread_scores,
)
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.parts import (
    ClassifiedRun,
    ComparedSide,
    Comparison,
    JointTests,
    Part,
)
from evenhand.evaluation.metrics.generation_bias.parts.effects import found_effects
from evenhand.evaluation.metrics.generation_bias.parts.spread import variance_share_score
from evenhand.evaluation.metrics.generation_bias.people import People
from evenhand.evaluation.metrics.generation_bias.requested_language import (
    IN_REQUESTED,
    REQUESTED,
    in_another_language,
    is_language_shown,
    styles_without,
)
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.score import BiasScore, Form, levels_of_run
from evenhand.evaluation.statistics.cell_table import SetOfTests
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.variance_shares import variance_parts

CUE_SHARE = "cue_share"
# Groups of the scores.
BY_SECOND = {"classifier": "second"}
TUNED = {"tuned": "yes"}
NOT_TUNED = {"tuned": "no"}


class Cuts(Part):
    """The spread of styles among some of the responses, and by the second style classifier."""

    FORMATS = (
        Format(
            CUE_SHARE,
            "share of the variance",
            "Of style vectors within requests, by source.",
            unit="%",
            factor=100,
            decimals=1,
        ),
    )

    def test_sets(self, run: ClassifiedRun, people: People) -> list[SetOfTests]:
        styles = style_tests(people.responses, run.clusters)
        test_sets = []
        is_other = in_another_language(run.outcomes[OTHER_LANGUAGE]) if OTHER_LANGUAGE in run.outcomes else None
        if is_other is not None and is_other[people.is_compared].any():
            in_language = answers_in_language(run).rows(people.is_compared)
            test_sets.append(SetOfTests(REQUESTED, in_language.values, styles.sums))
        for cue, is_cue in cues(people.responses).items():
            values = np.where(is_cue[:, None], styles.values, np.nan)
            test_sets.append(SetOfTests(f"{columns.CUE}: {cue}", values, has_effects=False))
        return test_sets

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        responses = run.responses
        scores = _requested_scores(run, tests)
        by_cue = cues(responses)
        if by_cue:
            scores += cue_shares(responses)
        for cue, is_cue in by_cue.items():
            for score in overall_scores(responses.rows(is_cue), {columns.CUE: cue}):
                p_value = tests.p_value(f"{columns.CUE}: {cue}") if is_pooled_fgb(score) else None
                scores.append(replace(score, p_value=p_value))
        for group, is_in_group in groups_by_tuning(responses):
            scores += overall_scores(responses.rows(is_in_group), group)
        if SECOND_STYLE_CLASSIFIER in run.classifiers:
            second = read_answers(run.store.folder, second=True, level=responses.level)
            scores += second_scores(second, run.classifiers[SECOND_STYLE_CLASSIFIER])
        return scores

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        old, new = comparison.in_language or (comparison.old, comparison.new)
        before = comparison.before
        after = comparison.after
        pairs = [(group, old.rows(chosen), new.rows(chosen)) for group, chosen in groups_by_tuning(old)]
        if before.has(SECOND_STYLES) and after.has(SECOND_STYLES):
            first = _second_classifier(before)
            second = _second_classifier(after)
            if not is_same_classifier(first, second):
                raise InputError(
                    "after",
                    f"{SECOND_STYLE_CLASSIFIER} is {second}, but {first} in before; measure it again with the same.",
                )
            pairs.append((BY_SECOND, _by_second(comparison, before), _by_second(comparison, after)))
        scores = []
        for group, of_before, of_after in pairs:
            scores += overall_changes(of_before, of_after, group)
            if comparison.in_language is not None:
                scores += _levels_of_both(of_before, of_after, group)
        if comparison.in_language is not None:
            of_both = [*overall_changes(old, new, IN_REQUESTED), *_levels_of_both(old, new, IN_REQUESTED)]
            scores += [score for score in of_both if score.form == Form.POOLED_CORRECTED]
        return scores

    def common_levels(self, comparison: Comparison, side: ComparedSide) -> list[BiasScore]:
        if comparison.in_language is not None:
            return []  # `compare` returns those of the answers in the language of the request
        responses = side.responses
        scores = []
        for group, is_in_group in groups_by_tuning(responses):
            scores += overall_scores(responses.rows(is_in_group), group)
        if side.run.has(SECOND_STYLES):
            second = _by_second(comparison, side.run).rows(side.is_compared)
            scores += second_scores(second, _second_classifier(side.run))
        return scores


def _by_second(comparison: Comparison, run: FamilyRun) -> Answers:
    """Return the compared responses of a run with their styles by the second classifier."""
    level = comparison.old.level
    second = read_answers(run.folder, second=True, only=run.only, level=level)
    if comparison.in_language is None:
        return second
    has_style = comparison.in_language[0].has_value()
    return styles_without(second, ~has_style, run.folder, only=run.only, second=True)


def _levels_of_both(old: Answers, new: Answers, group: Mapping[str, str]) -> list[BiasScore]:
    """Return the scores of both runs where both have a style vector, next to their changes."""
    has_both = old.has_value() & new.has_value()
    scores = []
    for name, responses in (("before", old), ("after", new)):
        scores += levels_of_run(overall_scores(responses.rows(has_both), group), name)
    return scores


def cues(responses: Answers) -> dict[str, np.ndarray]:
    """Return whether each response is to a cue, (n,), by cue; {} unless there are several."""
    if columns.CUE not in responses.table or responses.table[columns.CUE].nunique() < 2:
        return {}
    return {cue: (responses.table[columns.CUE] == cue).to_numpy() for cue in responses.table[columns.CUE].unique()}


def groups_by_tuning(responses: Answers) -> list[tuple[Mapping[str, str], np.ndarray]]:
    """Return the groups of the people used in tuning and of those who were not, each with its responses, (n,) bool.

    The list is empty if nobody was left out of the prompts for tuning (`prompts.untuned_by`).
    """
    if columns.UNTUNED not in responses.table:
        return []
    is_untuned = responses.table[columns.UNTUNED].to_numpy(dtype=bool)
    return [(TUNED, ~is_untuned), (NOT_TUNED, is_untuned)]


def overall_scores(responses: Answers, group: Mapping[str, str]) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB* over all rows, with the given group and without a permutation test."""
    without_axes = replace(responses, table=responses.table.assign(**{columns.AXIS: ""}))
    scores = spread_scores(without_axes, {})
    return [replace(score, group=group) for score in scores if not score.group]


def second_scores(responses: Answers, classifier: Any) -> list[BiasScore]:
    """Return the `overall_scores` of responses whose styles are by the second classifier, an entry of a signature."""
    scores = overall_scores(responses, BY_SECOND)
    return [replace(score, signature={**score.signature, STYLE_CLASSIFIER: classifier}) for score in scores]


def overall_changes(old: Answers, new: Answers, group: Mapping[str, str]) -> list[BiasScore]:
    """Return the differences and reductions of FGB* and pooled FGB* over all rows, with the given group."""
    changes = compare_generation_bias(old, new, {}, by_axis=False)
    return [replace(score, group=group) for score in changes]


def _second_classifier(run: FamilyRun) -> Any:
    """Return what a run's signature says of its second style classifier."""
    headline = find_headline(run.scores, group=BY_SECOND)
    return None if headline is None else headline.signature.get(STYLE_CLASSIFIER)


def cue_shares(responses: Answers) -> list[BiasScore]:
    """Return `cue_share`: the shares of descriptor, descriptor × cue, and chance in the variance of responses.

    The cue takes the template's part in `variance_parts`. Differences between the requests of a cue are removed first,
    so that the requests are a sample, and their interaction with descriptors is a part of chance.
    """
    template = to_codes(responses.table[columns.TEMPLATE])
    cue = to_codes(responses.table[columns.CUE])
    descriptor = to_codes(responses.table[columns.DESCRIPTOR])
    means = pd.DataFrame(responses.values).groupby(template).transform("mean").to_numpy(dtype=np.float32)
    cells = arrange_cells(responses.values - means, cue, descriptor, min_count=1)
    parts = replace(variance_parts(cells), template=Estimate(0.0, 0.0))  # differences between requests are gone
    scores = []
    for source, share in parts.shares().items():
        if source == columns.TEMPLATE:
            continue
        group = {"cue_source": "descriptor × cue" if source == "interaction" else source}
        scores.append(variance_share_score(CUE_SHARE, group, share, cells))
    return scores


def _requested_scores(run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
    """Return scores of the answers in the request's language, where somebody gets more answers in another one.

    These are FGB*, pooled FGB* and the bound of single differences.
    """
    if not is_language_shown(tests.people, tests.test_sets, tests.found):
        return []
    effects = found_effects(tests, REQUESTED, run.clusters)
    run.store.write(REQUESTED_EFFECTS, effects)
    scores = [replace(difference_bound(effects), group=IN_REQUESTED)]
    in_requested = answers_in_language(run).rows(~in_another_language(run.outcomes[OTHER_LANGUAGE]))
    for score in overall_scores(in_requested, IN_REQUESTED):
        if score.form == Form.CORRECTED:
            scores.append(score)
        elif is_pooled_fgb(score):
            scores.append(replace(score, p_value=tests.p_value(REQUESTED)))
    return scores


def answers_in_language(run: ClassifiedRun) -> Answers:
    """Return the responses of a run without the style vectors of those in another language than their requests."""
    return styles_without(run.responses, in_another_language(run.outcomes[OTHER_LANGUAGE]), run.store.folder)
