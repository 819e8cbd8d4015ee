"""Two models over the same sentences: how Likelihood Bias changed."""

from collections.abc import Mapping
from datetime import date
from typing import Any

from evaluation.errors import InputError
from evaluation.metrics.likelihood_bias import likelihood_bias_change
from evaluation.report import Page, likelihood_comparison_page
from evaluation.results import BiasScore, read_scores
from recipes.config import CompareConfig
from recipes.measuring.likelihood_bias import LIKELIHOODS, MASKED, SIGNATURE, VARIANT
from recipes.runs import Run, read_run
from recipes.tables import SCORES, read_table


def inputs(config: CompareConfig) -> dict[str, str]:
    """Return nothing: only the two runs are read."""
    return {}


def differences(
    run: Run, config: CompareConfig, settings: Mapping[str, Any], manifests: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the paired differences.

    Raises:
        InputError: the runs are of different sentences, or their likelihoods are not of one kind.
    """
    signature = {side: manifests[side][SIGNATURE] for side in ("before", "after")}
    for name in ("dataset", VARIANT):
        if signature["before"][name] != signature["after"][name]:
            raise InputError(
                f"after: its {name} is {signature['after'][name]}, that of before {signature['before'][name]}; "
                "measure both alike."
            )
    before, after = (read_table(folder / LIKELIHOODS) for folder in (config.before, config.after))
    return likelihood_bias_change(before, after, signature)


def page(config: CompareConfig) -> Page:
    """Return the report of a comparison whose scores are on disk."""
    folders = {"before": config.before, "after": config.after}
    runs = {side: read_run(folder, "measure", side) for side, folder in folders.items()}
    scores = {side: read_scores(folder / SCORES) for side, folder in folders.items()}
    return likelihood_comparison_page(
        scores["before"],
        scores["after"],
        read_scores(config.output_dir / SCORES),
        before_name=runs["before"][0]["model"],
        after_name=runs["after"][0]["model"],
        dataset=runs["before"][0]["dataset"],
        date=date.today().isoformat(),
        masked=runs["before"][1][SIGNATURE][VARIANT] == MASKED,
    )
