"""The classifiers of a measurement: which ones they are, and what they say about the responses."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import clean_responses
from evenhand.evaluation.data.language.word_forms import ENGLISH
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import json_sha256, read_json
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias.answers import (
    EXTRA_PROMPTS,
    EXTRA_RESPONSES,
    EXTRA_STYLES,
    PROMPTS,
    RESPONSES,
    SECOND_STYLES,
    STYLE_COLUMNS,
    STYLES,
    style_table,
)
from evenhand.evaluation.metrics.generation_bias.measures import OFFENSIVENESS
from evenhand.evaluation.metrics.generation_bias.measures.language import TOO_SHORT, text_language
from evenhand.evaluation.model_settings import ClassifierSettings, OffensiveClassifierSettings
from evenhand.evaluation.models.classifier_folders import shipped_names
from evenhand.evaluation.models.classifier_kinds import (
    classifier_labels,
    classifier_revision,
    kind_of,
    load_style_classifier,
)
from evenhand.evaluation.models.classifiers import Classifier
from evenhand.evaluation.models.revisions import find_label
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import Signature

Value = TypeVar("Value")
# Names of the classifiers in inputs, signatures and errors.
STYLE_CLASSIFIER = "style_classifier"
SECOND_STYLE_CLASSIFIER = "second_style_classifier"
OFFENSIVENESS_CLASSIFIER = "offensiveness_classifier"
# The settings with the classifiers.
SETTINGS = {
    STYLE_CLASSIFIER: f"generation_bias.{STYLE_CLASSIFIER}",
    SECOND_STYLE_CLASSIFIER: f"generation_bias.{SECOND_STYLE_CLASSIFIER}",
    OFFENSIVENESS_CLASSIFIER: "offensive_classifier",
}
UNREAD = "unread"  # the file that says why style classifiers cannot read the responses
MAX_CHECKED = 500  # responses whose language is enough to say what most are in


def configured_classifiers(config: FamilyConfig) -> dict[str, ClassifierSettings]:
    """Return the configured classifiers by their names.

    Raises:
        InputError: there is no style classifier, or one that ships with Evenhand would read another language than
            English; an offensiveness classifier without its label, or a label without a classifier.
    """
    settings = config.settings
    if not settings.style_classifier.name:
        raise InputError(
            SETTINGS[STYLE_CLASSIFIER],
            "none is given; give go_emotions, which ships with Evenhand, a Hugging Face id or a folder of "
            "`train_classifier`.",
        )
    offensive = config.offensive_classifier
    if (offensive.name is None) != (offensive.label is None):
        raise InputError(
            SETTINGS[OFFENSIVENESS_CLASSIFIER],
            f"the label {offensive.label!r} with the classifier {offensive.name!r}; "
            "give both: the classifier, and its label that means offensive.",
        )
    named = {
        STYLE_CLASSIFIER: settings.style_classifier,
        SECOND_STYLE_CLASSIFIER: settings.second_style_classifier,
        OFFENSIVENESS_CLASSIFIER: offensive,
    }
    given = {name: model for name, model in named.items() if model is not None and model.name is not None}
    for name, model in given.items():
        if model.name in shipped_names() and config.prompts.language not in (None, ENGLISH):
            raise InputError(
                SETTINGS[name],
                f"{model.name} reads English, and prompts.language is {config.prompts.language!r}; give a classifier "
                f"of that language by {spelled(SETTINGS[name])}.",
            )
    return given


def classifier_inputs(config: FamilyConfig) -> dict[str, Json]:
    """Return fingerprints of the classifiers and of the style clusters, by name.

    Raises:
        InputError: a classifier cannot be read, a label of it is the name of a column, or it lacks the label that means
            offensive; both style classifiers are the same; the style clusters do not fit the first one.
    """
    configured = configured_classifiers(config)
    inputs: dict[str, Json] = _of_each(classifier_revision, configured)
    if inputs[STYLE_CLASSIFIER] == inputs.get(SECOND_STYLE_CLASSIFIER):
        name = configured[SECOND_STYLE_CLASSIFIER].name
        raise InputError(
            SECOND_STYLE_CLASSIFIER, f"{name} is the first style classifier again and confirms nothing; give another."
        )
    labels = _of_each(classifier_labels, configured)
    inputs["style_clusters"] = json_sha256(
        load_style_clusters(config.settings.style_clusters, labels[STYLE_CLASSIFIER])
    )
    for name, styles in labels.items():
        for column in STYLE_COLUMNS:
            if column in styles:
                raise InputError(SETTINGS[name], f"the label {column!r} is the name of a column; rename it.")
    if OFFENSIVENESS_CLASSIFIER in configured:
        offensive = config.offensive_classifier
        find_label(
            labels[OFFENSIVENESS_CLASSIFIER],
            offensive.label,
            offensive.name,
            f"{SETTINGS[OFFENSIVENESS_CLASSIFIER]}.label",
        )
    return inputs


def _of_each(
    function: Callable[[ClassifierSettings], Value], configured: Mapping[str, ClassifierSettings]
) -> dict[str, Value]:
    """Return function(classifier) by name; an InputError about its `model` names the classifier's setting instead."""
    values = {}
    for name, settings in configured.items():
        try:
            values[name] = function(settings)
        except InputError as error:
            field = SETTINGS[name] if error.field == "model" else error.field
            raise InputError(field, error.problem) from None
    return values


def classify(store: Store, config: FamilyConfig) -> None:
    """Write the style vectors of all responses, and how offensive they are, by each classifier; on all ranks."""
    from accelerate.utils.memory import clear_device_cache  # imports torch

    unread = _note_unread(store, config)
    for name, settings in configured_classifiers(config).items():
        table = {
            STYLE_CLASSIFIER: STYLES,
            SECOND_STYLE_CLASSIFIER: SECOND_STYLES,
            OFFENSIVENESS_CLASSIFIER: OFFENSIVENESS,
        }[name]
        if store.has(table):
            continue
        with store.step(table):
            prompts = store.read(PROMPTS)
            responses = store.read(RESPONSES)
            classifier = load_style_classifier(settings, name)
            exact = censors_as_paper(config)
            if name == STYLE_CLASSIFIER and store.has(EXTRA_RESPONSES):
                more = (store.read(EXTRA_PROMPTS), store.read(EXTRA_RESPONSES))
                store.write(EXTRA_STYLES, styles_of_responses(store, EXTRA_STYLES, classifier, *more, exact=exact))
            if name == OFFENSIVENESS_CLASSIFIER:
                rows = _offensiveness(store, classifier, responses, config.offensive_classifier)
            elif name in unread:  # no response has a style; the outcomes are measured
                vectors = np.full((len(prompts), len(classifier.labels)), np.nan)
                rows = style_table(prompts[columns.PROMPT_ID], vectors, classifier.labels)
            else:
                rows = styles_of_responses(store, table, classifier, prompts, responses, exact=exact)
            store.write(table, rows)
        del classifier
        clear_device_cache(garbage_collection=True)


def censors_as_paper(config: FamilyConfig) -> bool:
    """Return whether mentions are replaced by the paper's rule (`mentions.clean_response`): with its decoding."""
    return config.decoding.preset == "paper"


def styles_of_responses(
    store: Store,
    table: str,
    classifier: Classifier,
    prompts: pd.DataFrame,
    responses: pd.DataFrame,
    *,
    exact: bool = False,
) -> pd.DataFrame:
    """Return the style vectors of the responses, from which mentions of the descriptor are removed.

    `exact` is the paper's rule of mentions (`clean_response`).
    """
    from evenhand.evaluation.models.styles import classify_rows, has_no_label, to_style_vectors

    texts = clean_responses(responses[columns.RESPONSE], prompts, exact=exact)
    probabilities, truncated = classify_rows(store, table, classifier, texts, prompts[columns.PROMPT_ID])
    unlabelled = has_no_label(classifier, probabilities)
    vectors = to_style_vectors(classifier, probabilities)
    return style_table(prompts[columns.PROMPT_ID], vectors, classifier.labels, truncated, unlabelled)


def _offensiveness(
    store: Store,
    classifier: Classifier,
    responses: pd.DataFrame,
    settings: OffensiveClassifierSettings,
) -> pd.DataFrame:
    """Return the probability that each response is offensive.

    As in Smith et al. 2022, descriptors are not removed from the responses.
    """
    from evenhand.evaluation.models.styles import classify_rows

    label = find_label(
        classifier.labels, settings.label, classifier.name, f"{SETTINGS[OFFENSIVENESS_CLASSIFIER]}.label"
    )
    texts = responses[columns.RESPONSE].tolist()
    probabilities, _ = classify_rows(store, OFFENSIVENESS, classifier, texts, responses[columns.PROMPT_ID])
    return pd.DataFrame({columns.PROMPT_ID: responses[columns.PROMPT_ID], OFFENSIVENESS: probabilities[:, label]})


def _note_unread(store: Store, config: FamilyConfig) -> dict[str, Finding]:
    """Return why style classifiers cannot read the responses, by their names, and keep it in the folder of the run."""
    responses = store.read(RESPONSES)
    faults = {}
    for name, settings in configured_classifiers(config).items():
        fault = None if name == OFFENSIVENESS_CLASSIFIER else language_fault(settings.name, responses)
        if fault is not None:
            faults[name] = fault
    if faults:
        values = {name: dict(fault.values) for name, fault in faults.items()}
        store.keep_facts(UNREAD, lambda: values)
    return faults


def read_unread(folder: Path) -> dict[str, Finding]:
    """Return why style classifiers could not read the responses of a run, by their names; {} if all could."""
    path = folder / f"{UNREAD}.json"
    kept = read_json(path, "run") if path.exists() else {}
    names = (STYLE_CLASSIFIER, SECOND_STYLE_CLASSIFIER)
    return {name: Finding("reads_english", kept[name]) for name in names if name in kept}


def language_fault(classifier: str, responses: pd.DataFrame) -> Finding | None:
    """Return which share of responses a shipped classifier cannot read, if most are not English; else None.

    Of many responses, a part is checked; texts that are too short to tell their language do not count.
    """
    if classifier not in shipped_names():
        return None
    rows = np.unique(np.linspace(0, len(responses) - 1, MAX_CHECKED).astype(int))
    languages = [text_language(response, (ENGLISH,)) for response in responses[columns.RESPONSE].iloc[rows]]
    known = [language for language in languages if language != TOO_SHORT]
    in_english = known.count(ENGLISH)
    if in_english >= len(known) / 2:
        return None
    share = 1 - in_english / len(known)
    return Finding("reads_english", {"classifier": classifier, "share": share})


def classifier_signature(classifier: ClassifierSettings, revision: str) -> Signature:
    """Return the entries of a signature that identify a classifier of any kind."""
    kind = kind_of(classifier)
    facts = kind.facts(classifier)
    labels = "\n".join(kind.labels(classifier))
    return {**facts, "revision": revision, "labels_sha256": sha256(labels.encode()).hexdigest()}


def is_same_classifier(before: object, after: object) -> bool:
    """Return whether two entries of signatures are of the same classifier, or equal if they are of something else.

    The revision is a hash of a model's files. The same files may be in two folders, and then have two names.

    >>> is_same_classifier({"name": "old/folder", "revision": "1f"}, {"name": "new/folder", "revision": "1f"})
    True
    """
    if not (isinstance(before, dict) and isinstance(after, dict) and before.get("revision") and after.get("revision")):
        return before == after
    return {**before, "name": ""} == {**after, "name": ""}
