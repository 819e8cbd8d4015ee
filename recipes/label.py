"""The command `label`: bias values, labels `bias` and `no_bias`, and weights of the even target."""

import logging
import math
from dataclasses import asdict

import numpy as np

from evenhand.evaluation.errors import rejects_tuning
from evenhand.evaluation.files import write_json
from evenhand.evaluation.manifest import run_sha256
from evenhand.evaluation.metrics.generation_bias.metric import HEADLINE
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses, read_styled_responses
from evenhand.evaluation.score import BIAS_VALUE, DESCRIPTOR, RESPONSE, WEIGHT
from evenhand.evaluation.store import Store, stage
from evenhand.mitigation.labels import label_responses, mean_bias_values
from evenhand.mitigation.target import cross_fitted_spread, fit_target, log_weights
from evenhand.recipes.finished_runs import read_settings, warn_of_split
from evenhand.recipes.settings import FAMILY, LabelSettings

log = logging.getLogger("evenhand")

LABELS, DESCRIPTORS, TARGET, EXPONENTS = "labels", "descriptors", "target", "exponents"
THRESHOLD = "threshold.json"


def label(settings: LabelSettings) -> None:
    """Write the labels of responses with a style vector, and their weights in the even target.

    The other tables are the threshold, the mean bias values, and the target of each descriptor.
    """
    measured, manifest = read_settings(settings.run, "run", FAMILY)
    warn_of_split("label", measured, settings.run)
    with stage("label", settings, {"run": run_sha256(manifest)}) as run:
        if run is None:
            return
        all_responses = read_styled_responses(settings.run)
        responses = all_responses.rows(all_responses.has_vector())
        how = {name: getattr(settings, name) for name in ("alpha", "beta", "quantile")}
        with rejects_tuning():
            labelled, threshold = label_responses(responses.table, responses.table[RESPONSE], responses.vectors, **how)
        b = labelled[BIAS_VALUE].to_numpy()
        labelled = labelled.assign(**{WEIGHT: _target_weights(run, responses)})
        run.write(LABELS, labelled)
        counts = {"n": len(b), "n_left_out": len(all_responses) - len(b)}
        run.facts["threshold"] = {**asdict(threshold), **counts}
        write_json(run.folder / THRESHOLD, run.facts["threshold"])
        run.tracker.log_values({f"threshold/{name}": float(value) for name, value in run.facts["threshold"].items()})
        by_descriptor = mean_bias_values(responses.table, mean_bias_value=b)
        run.tracker.log_table(DESCRIPTORS, run.table(DESCRIPTORS, lambda: by_descriptor))
        tables = (run.folder / f"{name}.parquet" for name in (LABELS, DESCRIPTORS, TARGET, EXPONENTS))
        run.tracker.log_artifact("labels", "dataset", *tables)
        share = 100 * threshold.share_labelled_bias
        log.info(
            "label: %d responses, %.1f %% `bias` (α = %d, β = %.3g)", len(b), share, threshold.alpha, threshold.beta
        )


def _target_weights(run: Store, responses: StyledResponses) -> np.ndarray:
    """Write each descriptor's target and exponents λ; record and log a summary; return the weights of the responses.

    In the summary, effective_share is (Σw)² / (n Σw²), kl is KL(target ‖ own) in nats, mean over descriptors, and
    limited is the number of descriptors of which only a part of the effect is removed.
    """
    with run.step(TARGET):
        target = fit_target(responses)
        weights = np.exp(log_weights(target, responses))
        before, reached = cross_fitted_spread(responses)
        table = target.table(responses.table[DESCRIPTOR], weights)
        run.tracker.log_table(TARGET, run.table(TARGET, lambda: table))
        run.write(EXPONENTS, target.exponents(responses.styles))
    facts = {
        "effective_share": float(weights.sum() ** 2 / (len(weights) * (weights**2).sum())),
        HEADLINE: before,
        f"{HEADLINE}_reached": reached,
        "kl": float(table["kl"].mean()),
        "limited": int((table["fraction"] < 1).sum()),
    }
    run.facts[TARGET] = {name: value if math.isfinite(value) else None for name, value in facts.items()}
    run.tracker.log_values({f"target/{name}": value for name, value in facts.items() if math.isfinite(value)})
    log.info(
        "label: the even target removes the shown effects at a KL of %.3f nats; effective share of the responses "
        "%.0f %%; pooled FGB* %.3g → %.3g ×10⁻³ (cross-fitted); limited for %d of %d descriptors",
        facts["kl"], 100 * facts["effective_share"], 1000 * before, 1000 * reached, facts["limited"], len(table),
    )  # fmt: skip
    return weights
