"""The command `judge`: agreement of an LLM judge, or of another style classifier, with human labels."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.json_values import JsonObject
from evenhand.evaluation.metrics.generation_bias.classification import classifier_signature
from evenhand.evaluation.models.classifier_kinds import classifier_labels, classifier_revision, load_style_classifier
from evenhand.evaluation.models.styles import classify_rows, to_style_vectors
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.score import SCORES, BiasScore, signed, write_scores
from evenhand.evaluation.statistics.accuracy import calibration_error, f1_scores, label_agreement
from evenhand.evaluation.statistics.scores import share_score
from evenhand.recipes.command_settings import AgreementSettings
from evenhand.recipes.train_classifier import prediction_table, print_scores

JUDGED = "judged"
JUDGE = "judge"
OTHER = "other classifier"


def judge(settings: AgreementSettings) -> None:
    """Judge labelled texts, and write and print the agreement with the labels: macro-F1, calibration, and α.

    Raises:
        InputError: the file of texts cannot be read; a classifier does not have all labels of the texts, or the other
            classifier not all of the judge; or a classifier or the judge's server cannot be used.
    """
    path = settings.data_dir / settings.texts
    labelled = settings.read(path)
    classifiers = {JUDGE: settings.style_classifier, OTHER: settings.other_classifier}
    classifiers = {name: classifier for name, classifier in classifiers.items() if classifier is not None}
    inputs = {"texts": sha256_of(path)}
    styles = classifier_labels(settings.style_classifier)
    for name, classifier in classifiers.items():
        known = classifier_labels(classifier)
        has_labels = f"{classifier.name} has the labels: {', '.join(known)}"
        unknown = sorted(set(chain.from_iterable(labelled.labels)).difference(known))
        if unknown:
            raise InputError("labels", f"the texts have {unknown[0]!r}, and {has_labels}.")
        missing = sorted(set(styles).difference(known))
        if missing:
            raise InputError(
                "other_classifier",
                f"{missing[0]!r} is a label of {settings.style_classifier.name}, and {has_labels}; give one with all.",
            )
        inputs[name] = classifier_revision(classifier)
    with stage("judge", settings, inputs) as store:
        if store is None:
            return
        drawn = np.sort(np.random.default_rng(settings.seed).permutation(len(labelled.texts))[: settings.limit])
        texts = [labelled.texts[row] for row in drawn]
        labels = [labelled.labels[row] for row in drawn]
        truth = np.array([[name in names for name in styles] for names in labels])
        vectors = {}
        for name, classifier in classifiers.items():
            with store.step(name):
                loaded = load_style_classifier(classifier, name)
                found = to_style_vectors(loaded, classify_rows(store, name, loaded, texts)[0])
                vectors[name] = found[:, [loaded.labels.index(style) for style in styles]]
        signature = {"texts": inputs["texts"], "seed": settings.seed, "packages": package_versions()}
        for name, classifier in classifiers.items():
            signature[name] = classifier_signature(classifier, inputs[name])
        scores = _scores(vectors, truth, styles, settings.seed, signature)
        table = prediction_table(texts, truth, vectors[JUDGE], list(styles), ",")
        store.write(JUDGED, table)
        write_scores(settings.output_dir / SCORES, scores)
        store.record |= {"texts": len(texts), "left_out": labelled.n_blank}
        print_scores([score for score in scores if "label" not in score.group])


def _scores(
    vectors: Mapping[str, np.ndarray], truth: np.ndarray, styles: Sequence[str], seed: int, signature: JsonObject
) -> list[BiasScore]:
    """Return the agreement of each classifier's most probable label with people and with the other classifier.

    Texts to which a classifier gives no style are left out of all its scores, and texts with several labels of the
    agreement with people.

    Args:
        vectors: style vectors (n, S) of the judge and of the other classifier, by name; NaN without a style.
        truth: whether people gave each text each label, (n, S) bool.
    """
    scores: list[BiasScore] = []
    top: dict[str, np.ndarray] = {}
    has_style = {name: np.isfinite(p).all(axis=1) for name, p in vectors.items()}
    for name, probabilities in vectors.items():
        used = has_style[name]
        group = {"by": name}
        p = probabilities[used]
        true = truth[used]
        best = p.argmax(axis=1)
        top[name] = np.full(len(truth), -1)
        top[name][used] = best
        if not used.any():
            raise InputError(name, "it names no option for any text; give another model or API.")
        f1 = f1_scores(np.eye(len(styles))[best], true, styles, 0.5, seed)
        is_hit = true[np.arange(len(true)), best]
        hits = share_score("top_label_accuracy", is_hit, 1.0, reason="no text has a style")
        single = used & (truth.sum(axis=1) == 1)
        labels = np.stack([top[name][single], truth[single].argmax(axis=1)])
        with_people = label_agreement(labels, seed, {"with": "people"})
        found = [f1[0], hits, calibration_error(p, true, seed), with_people, *f1[1:]]
        scores += [replace(score, group={**group, **score.group}) for score in found]
    if OTHER in vectors:
        both = has_style[JUDGE] & has_style[OTHER]
        group = {"by": JUDGE, "with": OTHER}
        scores.append(label_agreement(np.stack([top[JUDGE][both], top[OTHER][both]]), seed, group))
    return signed([replace(score, n_left_out=len(truth) - score.n) for score in scores], signature)
