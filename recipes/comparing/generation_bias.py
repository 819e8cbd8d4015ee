"""Generation bias before and after: paired differences over the same prompts, and what tuning changed (002, C.2)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluation.errors import InputError
from evaluation.files import sha256_of
from evaluation.metrics.generation_bias import compare_generation_bias
from evaluation.report import Page
from evaluation.results import PROMPT_ID, BiasScore
from evaluation.styles import load_style_clusters
from recipes.changes import write_changes
from recipes.config import CompareConfig
from recipes.costs import cost_differences
from recipes.further_changes import further_changes
from recipes.reports import comparison_page, descriptors, samples
from recipes.runs import Run, read_run
from recipes.tables import read_styled_run


def inputs(config: CompareConfig) -> dict[str, str]:
    """Return fingerprints of what is read besides the two measuring runs, by name."""
    further = (("labels", config.labels, "label"), ("untagged", config.untagged, "measure"))
    found = {name: read_run(folder, command, name)[1]["fingerprint"] for name, folder, command in further if folder}
    return found | {
        name: sha256_of(Path(value))
        for name in ("phrases", "corpus")
        if (value := getattr(config, name)) and Path(value).is_file()
    }


def differences(
    run: Run, config: CompareConfig, settings: Mapping[str, Any], manifests: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the paired differences and reductions; write the tables of what tuning changed.

    Raises:
        InputError: the two runs have other prompts, styles, decoding or style classifiers.
    """
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
    found = compare_generation_bias(before.styled(), after.styled(), clusters, signature=signature)
    found += further_changes(config.before, config.after, before, after, signature)
    found += cost_differences(config.before, config.after, before, after, signature, clusters)
    found += write_changes(config, settings["before"]["model"], bias, before, after, clusters, signature)
    run.tracker.table("samples", samples(before, after))
    return found


def page(config: CompareConfig) -> Page:
    """Return the report of a comparison whose scores are on disk."""
    return comparison_page(config)
