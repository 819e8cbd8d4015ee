"""Compare: two measuring runs over the same prompts → differences with intervals → the before/after report."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from evaluation.errors import InputError
from evaluation.metrics.generation_bias import compare_generation_bias
from evaluation.metrics.text_quality import repeats_prompt
from evaluation.report import print_report
from evaluation.results import PROMPT_ID, RESPONSE, TEXT, BiasScore, write_scores
from evaluation.styles import load_style_clusters
from recipes.config import CompareConfig
from recipes.measure import BOOTSTRAP, NEUTRAL, SCORES
from recipes.reports import HTML, MARKDOWN, comparison_content, samples, write_report
from recipes.runs import read_run, stage
from recipes.tables import StyledRun, read_styled_run, read_table


def compare(config: CompareConfig) -> None:
    """Write the differences of `after` to `before`, and the report; print it."""
    manifests = {}
    for side, folder in (("before", config.before), ("after", config.after)):
        settings, manifests[side] = read_run(folder, "measure", side)
    with stage("compare", config, {side: manifest["fingerprint"] for side, manifest in manifests.items()}) as run:
        if run is not None:
            before, after = read_styled_run(config.before), read_styled_run(config.after)
            if not before.prompts[PROMPT_ID].equals(after.prompts[PROMPT_ID]) or before.styles != after.styles:
                raise InputError(
                    f"after: {config.after} was not measured on the prompts and with the styles of {config.before}; "
                    "measure it again with the same dataset, sampling, seed and style classifier."
                )
            signature = {side: manifest["signature"] for side, manifest in manifests.items()}
            for name in ("style_classifier", "decoding"):
                if signature["before"][name] != signature["after"][name]:
                    raise InputError(
                        f"after: its {name} is {signature['after'][name]}, that of before {signature['before'][name]}; "
                        "only runs that were measured alike can be compared."
                    )
            clusters = load_style_clusters(settings["style_clusters"], before.styles)
            differences = compare_generation_bias(before.styled(), after.styled(), clusters, signature=signature)
            differences += cost_differences(config.before, config.after, before, after, signature)
            write_scores(config.output_dir / SCORES, differences)
            run.tracker.scores(differences)
            run.tracker.table("samples", samples(before, after))
        content = comparison_content(config)
        print_report(content)
        if run is not None:
            write_report(config.output_dir, content)
            run.facts["signature"] = signature
            run.tracker.artifact(
                "comparison", "report", *(config.output_dir / name for name in (HTML, MARKDOWN, SCORES))
            )
    print(f"\nReport: {(config.output_dir / HTML).resolve()}")


def cost_differences(
    before_folder: Path, after_folder: Path, before: StyledRun, after: StyledRun, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return after − before of perplexity (paired bootstrap over dialogues) and of parroting (paired, normal)."""
    found = []
    if (before_folder / NEUTRAL).exists() and (after_folder / NEUTRAL).exists():
        old, new = read_table(before_folder / NEUTRAL), read_table(after_folder / NEUTRAL)
        if old[[TEXT, RESPONSE]].equals(new[[TEXT, RESPONSE]]):
            data = (old["log_likelihood"], new["log_likelihood"], old["tokens"], new["tokens"])

            def change(ll_old: Any, ll_new: Any, n_old: Any, n_new: Any, axis: int = -1) -> Any:
                new_ppl = np.exp(-ll_new.sum(axis=axis) / n_new.sum(axis=axis))
                return new_ppl - np.exp(-ll_old.sum(axis=axis) / n_old.sum(axis=axis))

            data = tuple(column.to_numpy() for column in data)
            rng = np.random.default_rng(0)
            interval = stats.bootstrap(
                data, change, paired=True, vectorized=True, n_resamples=BOOTSTRAP, method="percentile", rng=rng
            ).confidence_interval
            found.append(
                BiasScore(
                    "perplexity_difference",
                    float(change(*data)),
                    0.0,
                    (-math.inf, math.inf),
                    len(old),
                    (float(interval.low), float(interval.high)),
                    signature=signature,
                )
            )
    prompts = before.prompts[TEXT].tolist()
    both = [
        repeats_prompt(new, prompt) - repeats_prompt(old, prompt)
        for old, new, prompt in zip(before.responses, after.responses, prompts, strict=True)
        if old.strip() and new.strip()
    ]
    if len(both) < 2:
        return found
    mean, half = float(np.mean(both)), float(1.96 * np.std(both, ddof=1) / math.sqrt(len(both)))
    n_left_out = len(prompts) - len(both)
    found.append(
        BiasScore(
            "parroting_difference",
            mean,
            0.0,
            (-1.0, 1.0),
            len(both),
            (mean - half, mean + half),
            n_left_out=n_left_out,
            signature=signature,
        )
    )
    return found
