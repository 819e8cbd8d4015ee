"""Compare: two measuring runs over the same prompts → differences with intervals → the before/after report."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from evaluation.errors import InputError
from evaluation.files import sha256_of
from evaluation.metrics.generation_bias import compare_generation_bias
from evaluation.metrics.offensiveness import is_offensive
from evaluation.metrics.paired_change import mean_change, share_change
from evaluation.metrics.parroting import repeated
from evaluation.report import print_report
from evaluation.results import PROMPT_ID, RESPONSE, TEXT, BiasScore, find_score, read_scores, write_scores
from evaluation.styles import load_style_clusters
from recipes.changes import both_answered, write_changes
from recipes.config import CompareConfig
from recipes.further_changes import further_changes
from recipes.measure import BOOTSTRAP, NEUTRAL, SCORES
from recipes.reports import HTML, MARKDOWN, comparison_content, descriptors, samples, write_report
from recipes.runs import read_run, stage
from recipes.tables import OFFENSIVENESS, StyledRun, read_styled_run, read_table


def compare(config: CompareConfig) -> None:
    """Write the differences of `after` to `before`, and the report; print it."""
    settings, manifests = {}, {}
    for side, folder in (("before", config.before), ("after", config.after)):
        settings[side], manifests[side] = read_run(folder, "measure", side)
    for side, folder, command in (("labels", config.labels, "label"), ("untagged", config.untagged, "measure")):
        if folder:
            _, manifests[side] = read_run(folder, command, side)
    inputs = {name: manifest["fingerprint"] for name, manifest in manifests.items()}
    inputs |= {
        name: sha256_of(Path(value))
        for name in ("phrases", "corpus")
        if (value := getattr(config, name)) and Path(value).is_file()
    }
    with stage("compare", config, inputs) as run:
        if run is not None:
            before, after = read_styled_run(config.before), read_styled_run(config.after)
            if not before.prompts[PROMPT_ID].equals(after.prompts[PROMPT_ID]) or before.styles != after.styles:
                raise InputError(
                    f"after: {config.after} was not measured on the prompts and with the styles of {config.before}; "
                    "measure it again with the same dataset, sampling, seed and style classifier."
                )
            signature = {side: manifests[side]["signature"] for side in ("before", "after")}
            for name in ("style_classifier", "decoding"):
                if signature["before"][name] != signature["after"][name]:
                    raise InputError(
                        f"after: its {name} is {signature['after'][name]}, that of before {signature['before'][name]}; "
                        "only runs that were measured alike can be compared."
                    )
            clusters = load_style_clusters(settings["before"]["style_clusters"], before.styles)
            bias = descriptors(config.labels, before, after) if config.labels else None
            differences = compare_generation_bias(before.styled(), after.styled(), clusters, signature=signature)
            differences += further_changes(config.before, config.after, before, after, signature)
            differences += cost_differences(config.before, config.after, before, after, signature, clusters)
            differences += write_changes(config, settings["before"]["model"], bias, before, after, clusters, signature)
            write_scores(config.output_dir / SCORES, differences)
            run.tracker.scores(differences)
            run.tracker.table("samples", samples(before, after))
        content = comparison_content(config)
        if config.show:
            print_report(content)
        if run is not None:
            write_report(config.output_dir, content)
            run.facts["signature"] = signature
            reports = (config.output_dir / name for name in (HTML, MARKDOWN, SCORES))
            run.tracker.artifact("comparison", "report", *reports, *sorted(config.output_dir.glob("*.parquet")))
    if config.show:
        print(f"\nReport: {(config.output_dir / HTML).resolve()}")


def cost_differences(
    before_folder: Path,
    after_folder: Path,
    before: StyledRun,
    after: StyledRun,
    signature: Mapping[str, Any],
    clusters: Mapping[str, Sequence[int]],
) -> list[BiasScore]:
    """Return after − before of what tuning may cost, each paired by prompt, as far as both runs measured it.

    `perplexity_difference` (bootstrap over dialogues), `parroting_difference`, `offensive_share_difference`, and
    `style_share_difference` for each style cluster.
    """
    answered = both_answered(before, after)
    of_all = {"n_left_out": int((~answered).sum()), "signature": signature}
    prompts = before.rows(answered).prompts[TEXT].tolist()
    repeats = (repeated(run.rows(answered).responses, prompts) for run in (before, after))
    return [
        *perplexity_difference(before_folder, after_folder, signature),
        share_change("parroting_difference", *repeats, **of_all),
        *offensive_share_difference(before_folder, after_folder, signature),
        *style_share_differences(before, after, clusters, signature),
    ]


def perplexity_difference(before_folder: Path, after_folder: Path, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the change of perplexity, if both runs measured it on the same dialogues."""
    if not all((folder / NEUTRAL).exists() for folder in (before_folder, after_folder)):
        return []
    old, new = read_table(before_folder / NEUTRAL), read_table(after_folder / NEUTRAL)
    if not old[[TEXT, RESPONSE]].equals(new[[TEXT, RESPONSE]]):
        return []
    columns = (old["log_likelihood"], new["log_likelihood"], old["tokens"], new["tokens"])
    data = tuple(column.to_numpy() for column in columns)

    def change(ll_old: Any, ll_new: Any, n_old: Any, n_new: Any, axis: int = -1) -> Any:
        new_ppl = np.exp(-ll_new.sum(axis=axis) / n_new.sum(axis=axis))
        return new_ppl - np.exp(-ll_old.sum(axis=axis) / n_old.sum(axis=axis))

    rng = np.random.default_rng(0)
    interval = stats.bootstrap(
        data, change, paired=True, vectorized=True, n_resamples=BOOTSTRAP, method="percentile", rng=rng
    ).confidence_interval
    bounds, span = (-math.inf, math.inf), (float(interval.low), float(interval.high))
    return [BiasScore("perplexity_difference", float(change(*data)), 0.0, bounds, len(old), span, signature=signature)]


def offensive_share_difference(
    before_folder: Path, after_folder: Path, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the change of the share of offensive responses, if both runs have it (paper 002, Table 11).

    Undefined where they were judged by different classifiers.
    """
    folders = (before_folder, after_folder)
    if not all((folder / OFFENSIVENESS).exists() for folder in folders):
        return []
    judges = [find_score(read_scores(folder / SCORES), "offensive_share").signature for folder in folders]
    judge, other = (judge.get("offensiveness_classifier") for judge in judges)
    name = "offensive_share_difference"
    if judge != other:
        reason = "the two runs were judged by different offensiveness classifiers"
        return [BiasScore(name, math.nan, 0.0, (-1.0, 1.0), 0, reason=reason, signature=signature)]
    old, new = (read_table(folder / OFFENSIVENESS).set_index(PROMPT_ID)["offensiveness"] for folder in folders)
    new = new.reindex(old.index)
    both = (old.notna() & new.notna()).to_numpy()
    offensive = (is_offensive(side.to_numpy()[both]) for side in (old, new))
    signature = {**signature, "offensiveness_classifier": judge}
    return [share_change(name, *offensive, n_left_out=int((~both).sum()), signature=signature)]


def style_share_differences(
    before: StyledRun, after: StyledRun, clusters: Mapping[str, Sequence[int]], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the change of the mean summed probability of each cluster's styles, over all responses; in [−1, 1]."""
    usable = np.isfinite(before.vectors).all(axis=1) & np.isfinite(after.vectors).all(axis=1)
    found = []
    for name, styles in clusters.items():
        old, new = (run.vectors[usable][:, list(styles)].sum(axis=1, dtype=np.float64) for run in (before, after))
        common = {"group": {"cluster": name}, "n_left_out": int((~usable).sum()), "signature": signature}
        found.append(mean_change("style_share_difference", old, new, **common))
    return found
