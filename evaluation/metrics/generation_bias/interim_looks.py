"""Interim looks: a measurement with `until` asks look by look (`statistics.sequential`), until its question is decided.

It stops at the first look whose interval is within one range of its question (`stopping_question`). The interval is of
pooled FGB*, of `difference_bound`, or of pooled FGB* less that of a baseline, paired by prompt. All looks together name
a wrong range in 5 of 100 cases at most. The intervals of pooled FGB* and of the rise have the quantile of the look. The
upper end of `difference_bound` has the one-sided quantile of the look; its lower end is by the permutation test with
the look's share of the error. Only one of the two ends can be wrong about one limit.

All prompts are planned before the first one is asked. The responses have the ids of their prompts on disk, so
that the same run without `until` asks the others only. Once a run was looked at, its intervals and p-values account for
the looks, also at its end, and also if it was killed between two looks: each look is recorded before the next answer is
asked. Of several processes, rank 0 decides.
"""

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias.accepted import configured_accepted
from evenhand.evaluation.metrics.generation_bias.answers import (
    PROMPTS,
    RESPONSES,
    SECOND_STYLES,
    STYLE_COLUMNS,
    STYLES,
    Answers,
    read_answers,
    sorted_by_prompt,
    without_accepted,
)
from evenhand.evaluation.metrics.generation_bias.classification import (
    STYLE_CLASSIFIER,
    censors_as_paper,
    configured_classifiers,
    language_fault,
    styles_of_responses,
)
from evenhand.evaluation.metrics.generation_bias.early_stop import STOPPED, Stop, read_stop
from evenhand.evaluation.metrics.generation_bias.engine.effects import difference_bound, effects
from evenhand.evaluation.metrics.generation_bias.engine.estimates import (
    all_cells,
    pooled_estimate,
)
from evenhand.evaluation.metrics.generation_bias.engine.spread import excess_over_baseline
from evenhand.evaluation.metrics.generation_bias.engine.values import measured_values
from evenhand.evaluation.metrics.generation_bias.headline import moved_share
from evenhand.evaluation.metrics.generation_bias.measures import OFFENSIVENESS, Context
from evenhand.evaluation.metrics.generation_bias.measures.language import LANGUAGE
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.requested_language import (
    in_another_language,
    styles_without,
    without_vectors,
)
from evenhand.evaluation.metrics.generation_bias.stopping_question import Question
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.models.classifier_kinds import kind_of, load_style_classifier
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.results import PARTS
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.level import Level
from evenhand.evaluation.statistics.sequential import decided_range, plan_looks, rounds_of

log = logging.getLogger("evenhand")

LAST_LOOK = "looks"  # the file of the last look at a run, among its batches of rows, which stays if the run goes on
BY_PROMPT = (RESPONSES, STYLES, SECOND_STYLES, OFFENSIVENESS)  # rows with the ids of prompts

Respond = Callable[[pd.DataFrame], pd.DataFrame]  # some planned prompts → their responses


def answer_until_decided(
    store: Store, config: FamilyConfig, question: Question, prompts: pd.DataFrame, ask: Respond
) -> None:
    """Ask until the question is decided, and write the tables of prompts and responses.

    Args:
        store: the run's folder.
        config: the settings of the measurement.
        question: what is to be decided.
        prompts: all planned prompts.
        ask: returns the responses to some of these prompts; prompts with a response on disk are not asked again.
    """
    rng = np.random.default_rng(config.seed)
    round_of_prompt = rounds_of(to_codes(prompts[columns.TEMPLATE]), to_codes(prompts[columns.DESCRIPTOR]), rng)
    stop = read_stop(store)
    if stop is None or stop.question != question:
        _discard_results(store)
        stop = _ask_look_by_look(store, config, question, prompts, round_of_prompt, ask)
    _record(store, stop)
    asked = prompts[round_of_prompt < stop.rounds[stop.look]].reset_index(drop=True)
    store.write(RESPONSES, ask(asked))
    store.write(PROMPTS, asked)


def record_that_all_is_asked(store: Store) -> None:
    """Record that a run that had looks, and now asks all prompts, ends at its last look.

    What was computed from a part of the responses is discarded. A run that had no looks stays as it is.
    """
    last = read_stop(store, _last_look_name(store))
    if last is None:
        return
    stop = replace(last, look=len(last.rounds) - 1, decided=None, asked=last.planned, bounds=None, requests_saved={})
    if read_stop(store) != stop:
        _discard_results(store)
    _record(store, stop)


def record_saved_requests(store: Store, config: FamilyConfig) -> None:
    """Record and log how many answers and requests an early stop saved, after all classifiers have read the answers."""
    stop = read_stop(store)
    if stop is None or stop.decided is None:
        return
    stop = replace(stop, requests_saved=_requests_for(config, stop.planned - stop.asked))
    _record(store, stop)
    if processes.is_rank_zero():
        log.info("%s", words(Finding("end_of_looks", {"decision": stop.decision, "saving": stop.saving})))


def _record(store: Store, stop: Stop) -> None:
    """Write how a measurement ended to its file and, at the end of the run, to the record of the run."""
    store.write_facts(STOPPED, asdict(stop))
    store.record[STOPPED] = asdict(stop)


def _requests_for(config: FamilyConfig, n_answers: int) -> dict[str, int]:
    """Return the number of requests for so many answers, by the name of the served model or classifier."""
    per_answer: Counter[str] = Counter()
    per_answer[config.model.name] += config.open_model().requests_per_response
    for classifier in configured_classifiers(config).values():
        per_answer[str(classifier.name)] += kind_of(classifier).requests_per_text(classifier)
    return {name: n * n_answers for name, n in per_answer.items() if n}


def _ask_look_by_look(
    store: Store,
    config: FamilyConfig,
    question: Question,
    prompts: pd.DataFrame,
    round_of_prompt: np.ndarray,
    ask: Respond,
) -> Stop:
    """Ask look by look until one decides, or until the last one; return how the measurement ended there."""
    settings = config.settings
    plan = plan_looks(int(round_of_prompt.max()) + 1)
    classifier = load_style_classifier(settings.style_classifier, STYLE_CLASSIFIER)
    for look, n_rounds in enumerate(plan.rounds):
        asked = prompts[round_of_prompt < n_rounds].reset_index(drop=True)
        responses = ask(asked)
        bounds = None  # where no response has a style, nothing is decided
        if not language_fault(settings.style_classifier.name, responses):
            exact = censors_as_paper(config)
            styles = styles_of_responses(store, STYLES, classifier, asked, responses, exact=exact)
            at_look = partial(_interval_at_look, config, question, asked, responses, styles, plan.level(look))
            bounds = processes.on_rank_zero(at_look)
        decided = decided_range(bounds, question.limits)
        stop = Stop(
            question=question,
            rounds=plan.rounds,
            look=look,
            decided=decided,
            asked=len(asked),
            planned=len(prompts),
            bounds=None if decided is None else bounds,
        )
        store.write_facts(_last_look_name(store), asdict(stop))
        _log_look(question, bounds, len(asked), len(prompts))
        if stop.decided is not None:
            break
    return stop


def _interval_at_look(
    config: FamilyConfig,
    question: Question,
    prompts: pd.DataFrame,
    answers: pd.DataFrame,
    styles: pd.DataFrame,
    level: Level,
) -> Interval | None:
    """Return the interval of the number in question, at a look, from the prompts, answers and styles so far.

    If answers are in another language than their requests, it contains the interval of all answers and that of the
    others: whether the report leaves them out is known at the end only, and either number is decided then.
    """
    vectors = styles.drop(columns=list(STYLE_COLUMNS), errors="ignore")
    table = pd.concat([prompts, answers.drop(columns=columns.PROMPT_ID)], axis=1)
    responses = sorted_by_prompt(Answers(table, vectors.to_numpy(), vectors.columns.tolist(), level=level))
    baseline = None
    against = config.settings.against
    only = frozenset(table[columns.PROMPT_ID])
    if question.max_rise is not None:
        baseline = read_answers(against, only=only, level=level)
    is_other = np.zeros(len(responses), dtype=bool)
    if LANGUAGE in config.settings.outcomes:
        for side in [responses] if baseline is None else [responses, baseline]:
            values = measured_values(OTHER_LANGUAGE, side.table, Context(config.prompts.language))
            is_other |= in_another_language(values)
    found = [_interval_of(config, question, responses, baseline)]
    if is_other.any():
        of_baseline = None if baseline is None else styles_without(baseline, is_other, against, only=only)
        found.append(_interval_of(config, question, without_vectors(responses, is_other), of_baseline))
    known = [interval for interval in found if interval is not None]
    if len(known) < len(found):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _interval_of(
    config: FamilyConfig, question: Question, responses: Answers, baseline: Answers | None
) -> Interval | None:
    """Return the interval of the number in question, of the responses that have a style vector.

    `baseline` has the responses of the baseline of `max_rise` to the same prompts.
    """
    settings = config.settings
    level = responses.level
    if settings.accepted is not None:
        responses = without_accepted(responses, configured_accepted(config))
    if question.is_about_spread:
        return pooled_estimate(all_cells(responses), level=level).estimate.interval
    if baseline is not None and question.max_rise is not None:
        return excess_over_baseline(baseline, responses, 1 + question.max_rise / 100).interval
    table = effects(
        responses,
        load_style_clusters(settings.style_clusters, responses.columns),
        groups=responses.groups(),
        permutations=level.draws(settings.permutations),
        seed=config.seed,
    )
    return difference_bound(table).interval


def _log_look(question: Question, bounds: Interval | None, n_asked: int, n_planned: int) -> None:
    """Log the interval of a look."""
    if processes.is_rank_zero():
        found = None if bounds is None else _bounds_finding(question, bounds)
        log.info("%s", words(Finding("look", {"asked": n_asked, "planned": n_planned, "bounds": found})))


def _bounds_finding(question: Question, bounds: Interval) -> Finding:
    """Return an interval in the unit of its question: shares of answers or, of a rise, pooled FGB*."""
    low, high = bounds
    if question.max_difference is not None:
        return Finding("bounds_of_difference", {"low": low, "high": high})
    if question.max_rise is not None:
        return Finding("bounds_of_rise", {"low": low, "high": high, "max_rise": question.max_rise})
    return Finding("bounds_of_size", {"low": moved_share(low), "high": moved_share(high)})


def _last_look_name(store: Store) -> str:
    """Return the name of the facts on the last look, in the folder of the family's batches."""
    return f"{PARTS}/{store.family}/{LAST_LOOK}"


def _discard_results(store: Store) -> None:
    """Discard what was computed from the responses of an earlier stop, if there was one."""
    if read_stop(store, _last_look_name(store)) is not None:
        store.discard_results(but_rows=BY_PROMPT)
