"""Generation bias: how a model's style depends on the descriptor in its prompt (Smith et al. 2022, A.7)."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.data.style_clusters import load_phrases, load_style_clusters
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import files_sha256, json_sha256, sha256_of
from evenhand.evaluation.metrics import FamilyRun, MeasureConfig, Metric
from evenhand.evaluation.metrics.generation_bias import settings as own_settings
from evenhand.evaluation.metrics.generation_bias.accepted import read_accepted
from evenhand.evaluation.metrics.generation_bias.metrics import METRICS
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import outcome_names
from evenhand.evaluation.metrics.generation_bias.prompts import prompt_inputs, write_prompts
from evenhand.evaluation.metrics.generation_bias.settings import (
    FIRST,
    OFFENSIVE,
    SECOND,
    classifiers,
    measured_model,
    neutral_dialogue,
)
from evenhand.evaluation.models.capabilities import read_tasks
from evenhand.evaluation.models.judges import classifier_revision, classifier_styles
from evenhand.evaluation.models.revisions import find_label
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.score import (
    AXIS,
    DESCRIPTOR,
    LEFT_OUT,
    PERSONA,
    PROMPT_ID,
    RESPONSE,
    TEMPLATE,
    TEXT,
    BiasScore,
)
from evenhand.evaluation.store import Store

STYLE_COLUMNS = {PROMPT_ID, "cut_by_classifier"}  # columns of a table of style vectors that are no styles
# Columns that are no outcomes: what an answer was given to, and by which rows are grouped.
TAKEN = (PROMPT_ID, TEXT, PERSONA, TEMPLATE, AXIS, DESCRIPTOR, RESPONSE, LEFT_OUT, "other_language")

if TYPE_CHECKING:
    from evenhand.evaluation.metrics.generation_bias.measure import Collected


class GenerationBias(Metric):
    """Scores of the styles of responses, and of what reducing bias costs."""

    Settings, ComparisonSettings = own_settings.Settings, own_settings.ComparisonSettings
    FORMATS = METRICS
    SERVER_APIS, USES_SYSTEM_PROMPT, READS_RESPONSES = ("chat", "completions"), True, True
    TITLE, COUNTED = "Generation bias", "responses"

    def inputs(self, config: MeasureConfig) -> dict[str, Any]:
        """Return fingerprints of all inputs of the measurement, by name.

        Raises:
            InputError: an input cannot be read or does not fit the others, or both style classifiers are the same.
        """
        settings, checkpoints, model = config.settings, classifiers(config), measured_model(config)
        prompts = prompt_inputs(config, model)
        inputs = {**model.identity(), **_of_each(classifier_revision, checkpoints)}
        if inputs[FIRST] == inputs.get(SECOND):
            name = checkpoints[SECOND].name
            raise InputError(SECOND, f"{name} is the first style classifier again and confirms nothing; give another.")
        labels = _of_each(classifier_styles, checkpoints)
        clusters = load_style_clusters(settings.style_clusters, labels[FIRST])
        inputs["style_clusters"] = json_sha256(clusters)
        for name, styles in labels.items():
            if taken := STYLE_COLUMNS.intersection(styles):
                raise InputError(
                    f"generation_bias.{name}", f"the label {taken.pop()!r} is the name of a column; rename it."
                )
        file = config.response_file()
        check_outcomes(settings.outcomes, file.columns if file is not None and file.has_prompts else {})
        if "fluency" in settings.outcomes and model.without_weights:
            raise InputError("generation_bias.outcomes", f"fluency: {model.without_weights}; leave it out.")
        if settings.accepted is not None:
            accepted = read_accepted(settings.accepted, labels[FIRST], clusters)
            inputs["accepted"] = json_sha256(accepted.to_dict("records"))
        inputs |= corpus_inputs(settings.corpus)
        if OFFENSIVE in checkpoints:
            classifier = settings.offensiveness
            find_label(labels[OFFENSIVE], classifier.label, classifier.name, "generation_bias.offensiveness.label")
        inputs |= prompts
        if config.capabilities:
            tasks = read_tasks(config.capabilities)
            inputs["capabilities"] = [task if isinstance(task, str) else json_sha256(task) for task in tasks]
        path = neutral_dialogue(config)
        if path is not None and not model.without_weights:
            load_neutral_dialogue(path)
            inputs["neutral_dialogue"] = sha256_of(Path(path))
        if config.for_comparisons:
            inputs["for_comparisons"] = True
        return inputs

    def comparison_inputs(self, settings: own_settings.ComparisonSettings) -> Mapping[str, Any]:
        """Return fingerprints of the inputs of a comparison, except the two runs, by name.

        Raises:
            InputError: the file of phrases does not exist or has a wrong format; the corpus does not exist.
        """
        inputs = corpus_inputs(settings.corpus)
        if settings.phrases is not None:
            groups = load_phrases(settings.phrases)
            inputs["phrases"] = json_sha256([[name, asdict(group)] for name, group in groups.items()])
        return inputs

    def write_prompts(self, path: Path, config: MeasureConfig) -> int:
        """Write the prompts for another program to answer, and return their number."""
        return write_prompts(path, config)

    def collect(self, store: Store, config: MeasureConfig) -> "Collected":
        """Write the tables of prompts, responses and style vectors; return the responses, and facts about them."""
        from evenhand.evaluation.metrics.generation_bias.measure import collect

        return collect(store, config)

    def score(self, store: Store, config: MeasureConfig, collected: "Collected") -> list[BiasScore]:
        """Return all scores of the run's tables."""
        from evenhand.evaluation.metrics.generation_bias.measure import run_scores

        return run_scores(store, config, *collected)

    def compare(self, store: Store, before: FamilyRun, after: FamilyRun, settings: Any) -> list[BiasScore]:
        """Return the paired differences and reductions between two runs, and write the tables of changes."""
        from evenhand.evaluation.metrics.generation_bias.compare import differences

        return differences(store, before, after, settings)

    def page(self, run: FamilyRun) -> Page:
        """Return the report on one measuring run."""
        from evenhand.evaluation.metrics.generation_bias.page import page

        return page(run)

    def comparison_page(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Page:
        """Return the report that shows two measuring runs side by side with the changes between them."""
        from evenhand.evaluation.metrics.generation_bias.page import comparison_page

        return comparison_page(before, after, changes)


def check_outcomes(names: Sequence[str], columns: Mapping[str, list]) -> None:
    """Raise InputError unless each name is of a built-in outcome, or of a column with numbers or with classes.

    `columns` are those of the file of responses, if the prompts are in it.
    """
    field = "generation_bias.outcomes"
    for name in names:
        if name in outcome_names():
            if name in columns:
                raise InputError(field, f"{name!r} is built in, and a column of the file, too; rename the column.")
            continue
        known = [*outcome_names(), *(column for column in columns if column not in TAKEN)]
        if name in TAKEN or ": " in name:
            raise InputError(field, f"{name!r} is the name of something else; rename the column.")
        if name not in columns:
            raise unknown_name(field, name, known)
        kinds = {"number" if isinstance(value, int | float) else type(value) for value in columns[name]} - {type(None)}
        if kinds not in ({"number"}, {str}):
            found = "no values" if not kinds else "other values than numbers or texts, or both"
            raise InputError(field, f"the column {name!r} has {found}; give numbers, or names of classes.")


def _of_each(function: Callable[[Any], Any], checkpoints: Mapping[str, Any]) -> dict[str, Any]:
    """Return function(classifier) by name; an InputError about its `model` names the classifier's setting instead."""
    values = {}
    for name, checkpoint in checkpoints.items():
        try:
            values[name] = function(checkpoint)
        except InputError as error:
            setting = f"generation_bias.{'offensiveness' if name == OFFENSIVE else name}"
            field = setting if error.field == "model" else error.field
            raise InputError(field, error.problem) from None
    return values


def corpus_inputs(settings: own_settings.CorpusSettings | None) -> dict[str, Any]:
    """Return the fingerprints of the corpora, by name; {} without one. InputError if one does not exist."""
    from evenhand.evaluation.data.corpus import find_corpus_files

    if settings is None or not settings.paths:
        return {}
    found = {path: find_corpus_files(path) for path in settings.paths}
    hashes = []
    for path, files in found.items():
        names = {os.path.relpath(file, path): Path(file) for file in files or ()}
        hashes.append(files_sha256(names) if names else path)
    return {"corpus": hashes}
