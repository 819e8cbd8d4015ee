"""Comparison of two runs of generation bias: whether they can be compared, and on which prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from evenhand.evaluation import columns
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import PROMPTS
from evenhand.evaluation.metrics.generation_bias.compared_runs import (
    COMMON_PROMPTS,
    check_comparable,
    compared_responses,
    hardly_common,
    on_common_prompts,
)
from evenhand.evaluation.metrics.generation_bias.early_stop import level_of_comparison
from evenhand.evaluation.metrics.generation_bias.engine.costs import RELEVANCE
from evenhand.evaluation.metrics.generation_bias.engine.quality import CAPABILITY, PERPLEXITY
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB, find_headline
from evenhand.evaluation.metrics.generation_bias.parts import (
    ComparedSide,
    Comparison,
    Part,
    record_base_failure,
)
from evenhand.evaluation.metrics.generation_bias.requested_language import compared_in_language
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore, common_levels, levels_of_run, signed
from evenhand.evaluation.statistics.scores import NO_PAIRS, share_score

if TYPE_CHECKING:
    from evenhand.evaluation.metrics.generation_bias.settings import ComparisonSettings

N_SAMPLES = 40  # tracked responses
OF_OTHER_TEXTS = (PERPLEXITY, CAPABILITY)  # metrics of other texts than responses to the prompts


def opened_comparison(
    store: Store, before: FamilyRun, after: FamilyRun, settings: "ComparisonSettings"
) -> tuple[Comparison, BiasScore]:
    """Return two runs on their common prompts, and the share of the prompts that are common.

    Raises:
        InputError: the two runs have different prompts, styles, decoding or style classifiers, or stopped early, in
            different orders.
    """
    few = hardly_common([before, after])
    if few is not None:
        n, n_of = few.values["n"], few.values["n_of"]
        raise InputError(
            "after",
            f"only {n:,} of the {n_of:,} prompts of the smaller run are in both {before.folder} and {after.folder}; "
            "measure both on the same prompts. Logs of two periods have other messages: "
            f"`evenhand report {before.folder} {after.folder}` shows them side by side.",
        )
    before, after, is_common = on_common_prompts(before, after)
    level = level_of_comparison(before.folder, after.folder, int(is_common.sum()), "after")
    old = compared_responses(before, level)
    new = compared_responses(after, level)
    check_comparable(before, after, (old, new))
    signature = {"before": before.signature(FGB), "after": after.signature(FGB)}
    base = before.config.open_model()
    without_base = "generation_bias.relevance is false"
    if settings.relevance:
        without_base = _why_without(store, base, before)
    comparison = Comparison(
        store=store,
        before=before,
        after=after,
        old=old,
        new=new,
        in_language=compared_in_language(before, after, old, new),
        score_all=settings.score_all,
        clusters=load_style_clusters(before.config.settings.style_clusters, old.columns),
        corpus=settings.corpus,
        phrases=settings.phrases,
        base=base,
        without_base=without_base,
        signature=signature,
    )
    return comparison, share_score(COMMON_PROMPTS, is_common, None, reason=NO_PAIRS, n_of=PROMPTS)


def levels_on_common_answers(comparison: Comparison, parts: Sequence[Part]) -> list[BiasScore]:
    """Return the scores of both runs on the answers that both have, in the groups of `RUN`; [] if all are common.

    Every change is of these answers, so that after = before + change.
    """
    old = comparison.old
    new = comparison.new
    is_compared = old.is_nonempty() & new.is_nonempty()
    has_both = old.has_value() & new.has_value()
    is_same = (old.is_nonempty() == new.is_nonempty()).all() and (old.has_value() == new.has_value()).all()
    if comparison.before.only is None and is_same:
        return []
    scores = []
    sides = {"before": (comparison.before, old), "after": (comparison.after, new)}
    for name, (run, responses) in sides.items():
        vectors = np.where(has_both[:, None], responses.values, np.nan)
        answers = replace(responses, values=vectors).rows(is_compared)
        side = ComparedSide(name, run, answers, is_compared)
        for part in parts:
            levels = signed(part.common_levels(comparison, side), run.signature(FGB))
            scores += levels_of_run(levels, name)
    return scores


def with_common_levels(run: FamilyRun, changes: Sequence[BiasScore], side: str) -> FamilyRun:
    """Return a run whose scores are of the answers that both compared runs have.

    A comparison of runs with different answers has these scores among its own (`levels_on_common_answers`). Scores of
    other texts are kept as they are. If all answers are common, the run is returned as it is.
    """
    levels = common_levels(changes, side)
    if find_headline(levels) is None:
        return run
    levels += [score for score in run.scores if score.metric in OF_OTHER_TEXTS]
    return replace(run, common_scores=levels)


def _why_without(store: Store, base: Model, before: FamilyRun) -> str:
    """Return why the first run's model cannot score responses; "" if it can."""
    if base.without_likelihoods:
        return base.without_likelihoods
    measured = before.signature(FGB).get("model")
    if not isinstance(measured, Mapping) or not measured:
        return "the first run does not record which model was measured"
    with record_base_failure(store, RELEVANCE, base):
        if base.has_revision(str(measured["revision"])):
            return ""
        return f"the revision of {base.name} is no longer the measured one"
    return store.failures[RELEVANCE]


def track_samples(comparison: Comparison) -> None:
    """Send some pairs of responses to the tracker."""
    old = comparison.old.table
    texts = old[[columns.DESCRIPTOR, columns.TEXT]].assign(
        before=old[columns.RESPONSE], after=comparison.new.table[columns.RESPONSE]
    )
    drawn = np.random.default_rng(0).permutation(len(old))[:N_SAMPLES]
    comparison.store.tracker.log_samples(texts.iloc[drawn])
