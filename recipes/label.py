"""Label: responses of a measuring run → bias values, `bias` / `no_bias` labels, and the threshold plan."""

import logging

import numpy as np
import pandas as pd

from evaluation.errors import InputError, unknown_name
from evaluation.files import write_json
from evaluation.metrics.text_quality import repeats_prompt
from evaluation.results import (
    AXIS,
    BIAS_VALUE,
    DESCRIPTOR,
    LABEL,
    PERSONA,
    PROMPT_ID,
    RESPONSE,
    TEMPLATE,
    TEXT,
)
from evaluation.styles import load_style_clusters
from mitigation.projection import BIAS, NO_BIAS, bias_values, labels
from mitigation.threshold_plan import QUANTILES, threshold_plan
from recipes.config import LabelConfig
from recipes.runs import read_run, stage
from recipes.tables import StyledRun, read_styled_run, write_table

log = logging.getLogger("evenhand")

LABELS, PLAN, DESCRIPTORS, THRESHOLD = (
    "labels.parquet",
    "threshold_plan.parquet",
    "descriptors.parquet",
    "threshold.json",
)


def label(config: LabelConfig) -> None:
    """Write the label of every response that has a style vector, the threshold used, and the plan."""
    settings, manifest = read_run(config.responses, "measure", "responses")
    with stage("label", config, {"responses": manifest["fingerprint"]}) as run:
        if run is None:
            return
        everything = read_styled_run(config.responses)
        responses = everything.rows(np.isfinite(everything.vectors).all(axis=1))
        template, descriptor = (
            np.unique(responses.prompts[name], return_inverse=True)[1] for name in (TEMPLATE, DESCRIPTOR)
        )
        b = bias_values(responses.vectors, template, descriptor, config.alpha, cross_fitted=config.cross_fitted)
        beta = float(np.quantile(b, config.quantile)) if config.beta is None else config.beta
        share = float((b > beta).mean())
        if share in (0.0, 1.0):
            raise InputError(
                f"beta: {beta} labels {share:.0%} of the responses {BIAS!r}; "
                f"give a number between {b.min():.3g} and {b.max():.3g}, or a quantile."
            )
        quantile = config.quantile if config.beta is None else 1 - share
        with run.step("threshold_plan"):
            plan = threshold_plan(
                responses.vectors,
                template,
                descriptor,
                quantiles=sorted({*QUANTILES, quantile}),
                seed=config.seed,
            )
        labelled = responses.prompts[[PROMPT_ID, DESCRIPTOR, PERSONA, TEXT]].assign(
            **{RESPONSE: responses.responses, BIAS_VALUE: b, LABEL: labels(b, beta)}
        )
        excluded = (labelled[LABEL] == NO_BIAS).to_numpy() & unwanted(responses, settings["style_clusters"], config)
        labelled = labelled[~excluded]
        run.facts["responses"] = str(config.responses.resolve())
        run.facts["signature"] = manifest["signature"]
        run.facts["threshold"] = {
            "alpha": config.alpha,
            "beta": beta,
            "quantile": quantile,
            "cross_fitted": config.cross_fitted,
            "share_labelled_bias": share,
            "n": len(labelled),
            "n_left_out": len(everything.prompts) - len(labelled),
            "n_excluded": int(excluded.sum()),
        }
        tables = {LABELS: labelled, PLAN: plan, DESCRIPTORS: descriptor_table(responses.prompts, b)}
        for name, rows in tables.items():
            write_table(config.output_dir / name, rows)
        write_json(config.output_dir / THRESHOLD, run.facts["threshold"])
        run.tracker.table("threshold_plan", plan)
        run.tracker.table("descriptors", tables[DESCRIPTORS])
        run.tracker.values({f"threshold/{name}": float(value) for name, value in run.facts["threshold"].items()})
        run.tracker.artifact("labels", "dataset", *(config.output_dir / name for name in tables))
        log.info("label: %d responses, %.1f %% `bias` (α = %d, β = %.3g)", len(b), 100 * share, config.alpha, beta)


def unwanted(responses: StyledRun, style_clusters: str, config: LabelConfig) -> np.ndarray:
    """Return which responses must not be taught as `no_bias`, (n,): those that repeat their prompt or are in a style
    cluster named, by what the config asks for. Paper 002, C.2.1, found more of both after tuning.

    Raises:
        InputError: there is no such cluster.
    """
    found = np.zeros(len(responses.prompts), dtype=bool)
    if config.exclude_parrots:
        found |= np.array(list(map(repeats_prompt, responses.responses, responses.prompts[TEXT])), dtype=bool)
    clusters = load_style_clusters(style_clusters, responses.styles) if config.exclude_clusters else {}
    for name in config.exclude_clusters:
        if name not in clusters:
            raise unknown_name("exclude_clusters", name, clusters)
        found |= responses.vectors[:, list(clusters[name])].sum(axis=1) > config.exclude_above
    return found


def descriptor_table(prompts: pd.DataFrame, bias_value: np.ndarray) -> pd.DataFrame:
    """Return the mean bias value of each descriptor, largest first."""
    table = prompts[[DESCRIPTOR, AXIS]].assign(mean_bias_value=bias_value).groupby([DESCRIPTOR, AXIS], as_index=False)
    table = table.agg(mean_bias_value=("mean_bias_value", "mean"), n=("mean_bias_value", "size"))
    return table.sort_values("mean_bias_value", ascending=False, ignore_index=True)
