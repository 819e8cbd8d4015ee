"""The command `label`: bias values, and the labels `bias` and `no_bias`."""

import json
import logging
import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, rejects_tuning
from evenhand.evaluation.files import write_json
from evenhand.evaluation.metrics.generation_bias.answers import read_answers
from evenhand.evaluation.runs.record import FinishedRecord, run_sha256
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.mitigation.label_agreement import agreement_of_parts
from evenhand.mitigation.labels import BIAS, DIVERGENCE, LABELS, label_responses, mean_bias_values
from evenhand.recipes.finished_runs import (
    MODEL_CODE,
    check_model_unchanged,
    permitted_measurement,
    read_measurement,
    warn_of_split,
)
from evenhand.recipes.received import Permissions
from evenhand.recipes.settings import GENERATION_BIAS, MeasureSettings, family_config
from evenhand.recipes.tuning_settings import LabelSettings

log = logging.getLogger("evenhand")

DESCRIPTORS = "descriptors"
THRESHOLD_FILE = "threshold.json"


class LabelRecord(FinishedRecord):
    """The content of the run.json of a finished labelling.

    Attributes:
        threshold: the exponent α, the threshold β, the share above it, the numbers of labelled and other rows, and how
            well labels by bias values repeat, or how much of the divergence the rows above the threshold have.
    """

    threshold: dict[str, float]


def label(settings: LabelSettings) -> None:
    """Write the labels of responses with a style vector, the threshold, and the mean bias value of each descriptor.

    Raises:
        InputError: the run is not finished, has no responses that can be labelled, or its model has no weights here
            that predict tokens and is to label by the divergence.
    """
    measured, record = read_measurement(settings.run, "run", GENERATION_BIAS)
    warn_of_split("label", measured, settings.run)
    if settings.value == DIVERGENCE:
        permissions = Permissions(code=settings.trust_remote_code)
        measured, _ = permitted_measurement(settings.run, "run", permissions, (MODEL_CODE,))
        check_model_unchanged(measured, record, "run")
        check_has_weights(measured)
    with stage("label", settings, {"run": run_sha256(record)}) as store:
        if store is None:
            return
        all_responses = read_answers(settings.run)
        responses = all_responses.rows(all_responses.has_value())
        divergence = None
        if settings.value == DIVERGENCE:
            divergence = run_divergences(settings.run, run_sha256(record), settings.trust_remote_code)
        is_shrunk = settings.directions == "shrunk"
        with rejects_tuning():
            labelled, threshold = label_responses(
                responses.table,
                responses.table[columns.RESPONSE],
                responses.values,
                alpha=settings.alpha,
                beta=settings.beta,
                quantile=settings.quantile,
                share=settings.share,
                shrunk=is_shrunk,
                divergence=divergence,
            )
            agreement = agreement_of_parts(
                responses.values,
                to_codes(responses.table[columns.TEMPLATE]),
                to_codes(responses.table[columns.DESCRIPTOR]),
                threshold.share_labelled_bias,
                settings.alpha,
                shrunk=is_shrunk,
            )
        b = labelled[columns.BIAS_VALUE].to_numpy()
        store.write(LABELS, labelled)
        facts: dict[str, float] = {**asdict(threshold), "n": len(b), "n_left_out": len(all_responses) - len(b)}
        if divergence is not None:
            facts["share_of_divergence"] = share_of_divergence(labelled)
        elif not math.isnan(agreement.kappa):
            facts["label_agreement"] = agreement.share
            facts["label_kappa"] = agreement.kappa
        store.record["threshold"] = facts
        write_json(store.folder / THRESHOLD_FILE, facts)
        store.tracker.log_values({f"threshold/{name}": float(value) for name, value in facts.items()})
        by_descriptor = mean_bias_values(responses.table, mean_bias_value=b)
        store.tracker.log_table(DESCRIPTORS, store.table(DESCRIPTORS, lambda: by_descriptor))
        tables = (store.folder / f"{name}.parquet" for name in (LABELS, DESCRIPTORS))
        store.tracker.log_artifact("labels", "dataset", *tables)
        _log_labels(facts, settings.value)


def _log_labels(facts: Mapping[str, float], value: str) -> None:
    """Log the threshold and how many responses are above it, and how much a label says."""
    counts = (f"{facts['n']:,}", 100 * facts["share_labelled_bias"])
    if value == DIVERGENCE:
        log.info("label: %s responses, %.1f %% `bias` (divergence above %.3g nats)", *counts, facts["beta"])
        log.info(
            "label: these have %.0f %% of the divergence between people; evening out only them should remove about "
            "this share of what evening out all responses removes",
            100 * facts["share_of_divergence"],
        )
        return
    log.info("label: %s responses, %.1f %% `bias` (α = %d, β = %.3g)", *counts, facts["alpha"], facts["beta"])
    if "label_kappa" in facts:
        log.info(
            "label: two thirds of the responses label the last third alike in %.0f %% (kappa %.2f; 0: by chance)",
            100 * facts["label_agreement"],
            facts["label_kappa"],
        )


def check_has_weights(measured: MeasureSettings) -> None:
    """Raise InputError if the measured model has no weights here, which its divergence needs."""
    missing = family_config(measured, GENERATION_BIAS).open_model().without_weights
    if missing:
        raise InputError("value", f"divergence: {missing} Label by {spelled('value', 'bias_value')}.")


@lru_cache(maxsize=4)  # a sweep labels the same responses by several thresholds
def run_divergences(run: Path, run_hash: str, trusts_code: bool) -> np.ndarray:
    """Return the divergence of each response with a style vector of a run, (n,).

    Args:
        run_hash: the run's SHA-256, by which a changed run is computed anew.
        trusts_code: whether the model's own code may be executed.
    """
    from evenhand.evaluation.models.loading import load_dialogue_model
    from evenhand.mitigation.divergences import response_divergences

    measured, _ = permitted_measurement(run, "run", Permissions(code=trusts_code), (MODEL_CODE,))
    model = load_dialogue_model(family_config(measured, GENERATION_BIAS).model)
    responses = read_answers(run)
    table = responses.rows(responses.has_value()).table
    return response_divergences(model, table, seed=measured.seed)


def share_of_divergence(labelled: pd.DataFrame) -> float:
    """Return the share of the responses' divergence that responses labelled `bias` have; NaN if there is none."""
    divergence = labelled[DIVERGENCE].to_numpy()
    total = divergence.sum()
    return float(divergence[labelled[columns.LABEL] == BIAS].sum() / total) if total > 0 else math.nan


def read_threshold(labels: Path) -> dict[str, float]:
    """Return the threshold in the folder of a finished run of `label`; see `LabelRecord`."""
    return json.loads((labels / THRESHOLD_FILE).read_text(encoding="utf-8"))
