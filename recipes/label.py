"""The command `label`: bias values, and the labels `bias` and `no_bias`."""

import json
import logging
from dataclasses import asdict
from pathlib import Path

from evenhand.evaluation.errors import rejects_tuning
from evenhand.evaluation.files import write_json
from evenhand.evaluation.manifest import FinishedRecord, run_sha256
from evenhand.evaluation.metrics.generation_bias.styled_responses import read_styled_responses
from evenhand.evaluation.score import BIAS_VALUE, RESPONSE
from evenhand.evaluation.store import stage
from evenhand.mitigation.labels import LABELS, label_responses, mean_bias_values
from evenhand.recipes.finished_runs import read_measurement, warn_of_split
from evenhand.recipes.settings import FAMILY, LabelSettings

log = logging.getLogger("evenhand")

DESCRIPTORS = "descriptors"
THRESHOLD_FILE = "threshold.json"


class LabelRecord(FinishedRecord):
    """The content of the run.json of a finished labelling.

    Attributes:
        threshold: the exponent α, the threshold β, the share above it, and the numbers of labelled and other rows.
    """

    threshold: dict[str, float]


def label(settings: LabelSettings) -> None:
    """Write the labels of responses with a style vector, the threshold, and the mean bias value of each descriptor."""
    measured, manifest = read_measurement(settings.run, "run", FAMILY)
    warn_of_split("label", measured, settings.run)
    with stage("label", settings, {"run": run_sha256(manifest)}) as store:
        if store is None:
            return
        all_responses = read_styled_responses(settings.run)
        responses = all_responses.rows(all_responses.has_vector())
        with rejects_tuning():
            labelled, threshold = label_responses(
                responses.table,
                responses.table[RESPONSE],
                responses.vectors,
                alpha=settings.alpha,
                beta=settings.beta,
                quantile=settings.quantile,
            )
        b = labelled[BIAS_VALUE].to_numpy()
        store.write(LABELS, labelled)
        counts = {"n": len(b), "n_left_out": len(all_responses) - len(b)}
        facts = {**asdict(threshold), **counts}
        store.record["threshold"] = facts
        write_json(store.folder / THRESHOLD_FILE, facts)
        store.tracker.log_values({f"threshold/{name}": float(value) for name, value in facts.items()})
        by_descriptor = mean_bias_values(responses.table, mean_bias_value=b)
        store.tracker.log_table(DESCRIPTORS, store.table(DESCRIPTORS, lambda: by_descriptor))
        tables = (store.folder / f"{name}.parquet" for name in (LABELS, DESCRIPTORS))
        store.tracker.log_artifact("labels", "dataset", *tables)
        log.info(
            "label: %s responses, %.1f %% `bias` (α = %d, β = %.3g)",
            f"{len(b):,}",
            100 * threshold.share_labelled_bias,
            threshold.alpha,
            threshold.beta,
        )


def read_threshold(labels: Path) -> dict[str, float]:
    """Return the threshold in the folder of a finished run of `label`; see `LabelRecord`."""
    return json.loads((labels / THRESHOLD_FILE).read_text(encoding="utf-8"))
