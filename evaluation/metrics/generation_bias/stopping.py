"""Stop when it is decided: the model is asked look by look (`statistics.sequential`), and not further than necessary.

A measurement with the setting `until` stops at the first look whose interval of pooled FGB* is within one range: a
size (small, medium, large), or one side of a limit. All prompts are planned before the first one is asked. The
responses have the numbers of the planned prompts on disk, so that the same run without `until` asks the others only.
Once a run was looked at, its intervals and p-values account for the looks, also at its end.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, replace

import numpy as np
import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.manifest import PARTS
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.accepted import configured_accepted
from evenhand.evaluation.metrics.generation_bias.classifiers import (
    FIRST,
    OFFENSIVENESS,
    language_fault,
    styles_of_responses,
)
from evenhand.evaluation.metrics.generation_bias.parts.spread import all_cells, pooled_estimate, root
from evenhand.evaluation.metrics.generation_bias.stops import STOPPED, Stop, read_stop, spread_limits
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    NO_LABEL,
    PROMPTS,
    RESPONSES,
    SECOND_STYLES,
    STYLES,
    TRUNCATED,
    StyledResponses,
    without_accepted,
)
from evenhand.evaluation.report.numbers import interval, number
from evenhand.evaluation.score import DESCRIPTOR, PROMPT_ID, TEMPLATE
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.evaluation.statistics.intervals import Interval
from evenhand.evaluation.statistics.sequential import Look, decided_range, plan_looks, rounds_of
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

KEPT = "looks"  # among the batches of rows: the file of the last `Stop`, which stays if the run goes on
BY_PROMPT = (RESPONSES, STYLES, SECOND_STYLES, OFFENSIVENESS)  # rows with the numbers of planned prompts

Ask = Callable[[np.ndarray], pd.DataFrame]  # numbers of planned prompts → their responses


def answer_until_decided(store: Store, config: MeasureConfig, prompts: pd.DataFrame, ask: Ask) -> np.ndarray:
    """Ask until it is decided; write the tables of prompts and responses; return the numbers of the asked prompts.

    Args:
        store: the run's folder.
        config: the settings of the measurement, with `until`.
        prompts: all planned prompts.
        ask: returns the responses to the prompts with some numbers; those on disk are not asked again.
    """
    from evenhand.evaluation.models.classifier_kinds import load_style_classifier

    rounds = _rounds(prompts, config.seed)
    stop = read_stop(store)
    if stop is None or stop.until != config.settings.until:
        looks = plan_looks(int(rounds.max()) + 1)
        limits = spread_limits(config.settings.until)
        classifier = load_style_classifier(config.settings.style_classifier, FIRST)
        for look, n_rounds in enumerate(looks.rounds):
            numbers = np.flatnonzero(rounds < n_rounds)
            asked = prompts.iloc[numbers].reset_index(drop=True)
            responses = ask(numbers)
            bounds = None  # where no response has a style, nothing is decided
            if not language_fault(config.settings.style_classifier.name, responses):
                styles = styles_of_responses(store, STYLES, classifier, asked, responses, numbers)
                bounds = _interval(config, asked, styles, looks.at(look))
            decided = decided_range(bounds, limits)
            _log_look(bounds, len(numbers), len(prompts))
            if decided is not None:
                break
        del classifier
        stop = Stop(config.settings.until, looks.rounds, look, decided, len(numbers), len(prompts))
    _log_stop(config, stop)
    _keep(store, stop)
    numbers = np.flatnonzero(rounds < stop.rounds[stop.look])
    store.write(RESPONSES, ask(numbers))
    store.write(PROMPTS, prompts.iloc[numbers].reset_index(drop=True))
    return numbers


def go_on(store: Store) -> None:
    """Write that a run that stopped at a look, if it did, is at its last look now, with all responses."""
    earlier = read_stop(store, _kept_name(store))
    if earlier is not None:
        _keep(store, replace(earlier, look=len(earlier.rounds) - 1, decided=None, asked=earlier.planned))


def _rounds(prompts: pd.DataFrame, seed: int) -> np.ndarray:
    """Return the round of each prompt, (n,)."""
    template = to_codes(prompts[TEMPLATE])
    return rounds_of(template, to_codes(prompts[DESCRIPTOR]), np.random.default_rng(seed))


def _interval(config: MeasureConfig, prompts: pd.DataFrame, styles: pd.DataFrame, look: Look) -> Interval | None:
    """Return the interval of pooled FGB* at a look."""
    vectors = styles.drop(columns=[PROMPT_ID, TRUNCATED, NO_LABEL], errors="ignore")
    responses = StyledResponses(prompts, vectors.to_numpy(), list(vectors))
    if config.settings.accepted is not None:
        responses = without_accepted(responses, configured_accepted(config))
    return pooled_estimate(all_cells(responses), tail=look.tail).estimate.interval


def _log_stop(config: MeasureConfig, stop: Stop) -> None:
    """Log what was decided, and how many answers were not necessary."""
    if stop.decided is not None and processes.is_rank_zero():
        kind = "requests" if config.model.server else "answers"
        log.info("%s; %s %s saved", stop.decision, number(stop.planned - stop.asked, 0), kind)


def _log_look(bounds: Interval | None, n_asked: int, n_planned: int) -> None:
    """Log the interval of a look, in answers of 100."""
    text = "no interval yet"
    if bounds is not None:
        _, ends = root(math.nan, bounds, 2.0)
        text = f"{interval((100 * ends[0], 100 * ends[1]), 1)} of 100 answers as if moved to another style"
    if processes.is_rank_zero():
        log.info("%s of %s answers: %s", number(n_asked, 0), number(n_planned, 0), text)


def _kept_name(store: Store) -> str:
    return f"{PARTS}/{store.family}/{KEPT}"


def _keep(store: Store, stop: Stop) -> None:
    """Write how the measurement ended; first discard what was computed from fewer or more responses."""

    def write() -> None:
        earlier = read_stop(store, _kept_name(store))
        if earlier is not None and earlier.asked != stop.asked:
            store.discard_results(but_rows=BY_PROMPT)
        for name in (_kept_name(store), STOPPED):
            store.write_facts(name, asdict(stop))

    processes.on_rank_zero(write)
    store.facts[STOPPED] = asdict(stop)
