"""Preflight checks of an experiment: mistakes that would stop a later stage, found before the first stage runs."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.settings import FIRST, classifiers
from evenhand.evaluation.models.classifier_labels import classifier_labels
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.runs.run_paths import MANIFEST
from evenhand.mitigation.methods import load_trained_method
from evenhand.mitigation.training.checks import check_tuning
from evenhand.recipes.label import find_clusters
from evenhand.recipes.plans import Plan
from evenhand.recipes.settings import FAMILY, LabelSettings, TuneSettings, measure_config


def check_stages(plans: Iterable[Plan]) -> None:
    """Raise InputError for an unfinished stage that would fail whatever earlier stages produce.

    Raises:
        InputError: a decoding, a style cluster to exclude or a tuning cannot be used.
    """
    checked: set[Path] = set()
    for plan in plans:
        base = plan.stages[0]
        for stage in plan.stages:
            if stage.folder in checked or (stage.folder / MANIFEST).exists():
                continue
            checked.add(stage.folder)
            if stage.command == "measure":
                _check_decoding(measure_config(stage.settings, FAMILY))
            elif stage.command == "label":
                _check_labelling(measure_config(base.settings, FAMILY), stage.settings)
            elif stage.command == "tune":
                _check_tuning(measure_config(base.settings, FAMILY), stage.settings, len(plan.tunings))


def _check_decoding(config: MeasureConfig) -> None:
    decoding(config.decoding.preset, **config.decoding.arguments)


def _check_labelling(config: MeasureConfig, settings: LabelSettings) -> None:
    first = classifiers(config)[FIRST]
    labels = classifier_labels(first.name, first.revision, first.base)
    find_clusters(config.settings.style_clusters, labels, settings.exclude_clusters)


def _check_tuning(config: MeasureConfig, settings: TuneSettings, rounds: int) -> None:
    method = load_trained_method(settings.method)
    model = replace(config.model, name=config.resolve_name(config.model.name, "model"))
    check_tuning(model, method, settings.training.with_method_defaults(method), rounds)
