"""Style vectors and their classifiers."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2ForSequenceClassification

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import StyleClassifierSettings
from evenhand.evaluation.models import batches, styles
from evenhand.evaluation.models.classifier_kinds import classifier_labels, load_style_classifier
from evenhand.evaluation.models.styles import classify_texts, label_probabilities, style_vectors
from tests.tiny_models import word_level_tokenizer

WORDS = ["<pad>", "<unk>", *"abcdefgh"]


def save_classifier(folder, architecture="bert", labels=("Warm", "Cold", "Odd"), pad_token="<pad>"):
    torch.manual_seed(0)
    shared = {"vocab_size": len(WORDS), "num_labels": len(labels), "id2label": dict(enumerate(labels))}
    if architecture == "bert":
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
        model = BertForSequenceClassification(BertConfig(**shared, **sizes, max_position_embeddings=16))
    else:
        config = GPT2Config(**shared, n_embd=8, n_layer=1, n_head=2, n_positions=16, bos_token_id=0, eos_token_id=0)
        model = GPT2ForSequenceClassification(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
    model.save_pretrained(folder)
    special = {"unk_token": "<unk>", "pad_token": pad_token, "eos_token": None if pad_token else "<pad>"}
    word_level_tokenizer(WORDS, **special).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(("architecture", "pad_token"), [("bert", "<pad>"), ("gpt2", None)])
def test_vectors_are_softmax_whatever_the_order_and_the_batch(tmp_path, monkeypatch, architecture, pad_token):
    classifier = load_style_classifier(save_classifier(tmp_path, architecture, pad_token=pad_token))
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcd"), size=rng.integers(1, 9))) for _ in range(40)] + ["a b"] * 3
    vectors = style_vectors(classifier, texts)
    assert vectors.shape == (43, 3) and vectors.dtype == np.float32
    np.testing.assert_allclose(vectors.sum(1), 1, atol=1e-5)
    order = rng.permutation(43)
    monkeypatch.setattr(batches, "tokens_per_pass", lambda model: 20)
    monkeypatch.setattr(styles.NetworkClassifier, "texts_per_part", 5)
    shuffled = style_vectors(classifier, [texts[i] for i in order])
    np.testing.assert_allclose(shuffled, vectors[order], atol=1e-5)
    for text, vector in zip(texts[:5], vectors, strict=False):
        ids = torch.tensor([[WORDS.index(word) for word in text.split()]])
        with torch.no_grad():
            expected = classifier.model(input_ids=ids).logits[0].softmax(0).numpy()
        np.testing.assert_allclose(vector, expected, atol=1e-5)
    assert np.ptp(vectors, axis=0).max() > 0.1  # the texts do differ


def test_long_texts_are_truncated_and_counted(tmp_path, caplog):
    classifier = load_style_classifier(save_classifier(tmp_path))
    caplog.clear()
    with caplog.at_level("WARNING", "evenhand"):
        cut, whole = style_vectors(classifier, ["a " * 14 + "b c d e", "a " * 14])
    np.testing.assert_allclose(cut, whole, atol=1e-6)
    (message,) = caplog.messages
    assert f"1 of 2 texts are longer than the 14 tokens that {tmp_path} reads" in message
    parts = list(classify_texts(classifier, pd.DataFrame({"text": ["a", "b " * 15]})))
    assert [part["cut"].tolist() for part in parts] == [[False, True]]


def test_probabilities_of_one_and_of_several_labels(tmp_path):
    classifier = load_style_classifier(save_classifier(tmp_path))
    texts = ["a b", " ", "c", "a b"]
    probabilities = label_probabilities(classifier, texts)
    np.testing.assert_allclose(probabilities, style_vectors(classifier, texts))
    assert probabilities.shape == (4, 3) and np.isnan(probabilities[1]).all()
    classifier = load_style_classifier(StyleClassifierSettings(name=str(tmp_path), head="sigmoid"))
    with torch.no_grad():
        logit = classifier.model(input_ids=torch.tensor([[WORDS.index("c")]])).logits[0, 1]
    assert label_probabilities(classifier, texts)[2, 1] == pytest.approx(1 / (1 + np.exp(-float(logit))), abs=1e-5)
    vectors, probabilities = style_vectors(classifier, texts), label_probabilities(classifier, texts)
    np.testing.assert_allclose(vectors, probabilities / probabilities.sum(1, keepdims=True), atol=1e-6)


def warnings_of(caplog, settings):
    caplog.clear()
    with caplog.at_level("WARNING", "evenhand"):
        load_style_classifier(settings)
    return " ".join(caplog.messages)


@pytest.mark.parametrize(
    ("labels", "warns"),
    [(("toxic", "threat", "insult"), True), (("positive", "negative", "neutral"), False), (("kind", "curt"), False)],
)
def test_a_head_that_may_be_of_several_labels_is_named(tmp_path, caplog, labels, warns):
    """Three labels that do not exclude each other, and no problem_type."""
    name = save_classifier(tmp_path, labels=labels)
    assert ("problem_type" in warnings_of(caplog, name)) == warns
    assert warnings_of(caplog, StyleClassifierSettings(name=name, head="softmax")) == ""
    assert not load_style_classifier(StyleClassifierSettings(name=name, head="softmax")).is_multi_label


def test_a_head_of_one_logit_has_two_labels(tmp_path):
    classifier = load_style_classifier(save_classifier(tmp_path, labels=["toxic"]))
    assert classifier.labels == ("toxic", "not toxic") == classifier_labels(StyleClassifierSettings(name=str(tmp_path)))
    probabilities = label_probabilities(classifier, ["c"])
    with torch.no_grad():
        logit = float(classifier.model(input_ids=torch.tensor([[WORDS.index("c")]])).logits[0, 0])
    p = 1 / (1 + np.exp(-logit))
    np.testing.assert_allclose(probabilities, [[p, 1 - p]], atol=1e-5)


def test_names_of_labels_come_from_a_file(tmp_path, caplog):
    name = save_classifier(tmp_path / "model", labels=["LABEL_0", "LABEL_1"])
    assert "LABEL_0" in warnings_of(caplog, name)
    (tmp_path / "names.txt").write_text("fine\ntoxic\n")
    settings = StyleClassifierSettings(name=name, label_names=tmp_path / "names.txt")
    assert load_style_classifier(settings).labels == ("fine", "toxic") == classifier_labels(settings)
    assert warnings_of(caplog, settings) == ""
    (tmp_path / "names.txt").write_text("fine\n")
    with pytest.raises(InputError, match="label_names: .*1 names; give 2"):
        classifier_labels(settings)


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_settings_correct_a_config_that_no_classifier_could_have(tmp_path):
    name = save_classifier(tmp_path)
    edit_config(tmp_path, problem_type="regression")
    with pytest.raises(InputError, match="regression"):
        load_style_classifier(name)
    assert load_style_classifier(StyleClassifierSettings(name=name, head="sigmoid")).is_multi_label
    edit_config(tmp_path, problem_type=None, id2label={"0": "x", "1": "x", "2": "y"})
    with pytest.raises(InputError, match="all different"):
        load_style_classifier(name)
    names = tmp_path / "names.txt"
    names.write_text("u\nv\nw\n")
    settings = StyleClassifierSettings(name=name, label_names=names)
    assert load_style_classifier(settings).labels == ("u", "v", "w") == classifier_labels(settings)


def test_texts_without_a_label_are_counted(tmp_path, caplog):
    classifier = load_style_classifier(StyleClassifierSettings(name=save_classifier(tmp_path), head="sigmoid"))
    probabilities = np.array([[0.01, 0.02, 0.01], [0.9, 0.01, 0.01], [np.nan] * 3], dtype=np.float32)
    with caplog.at_level("WARNING", "evenhand"):
        vectors = styles.to_style_vectors(classifier, probabilities)
    np.testing.assert_allclose(vectors[0], [0.25, 0.5, 0.25])
    assert styles.has_no_label(classifier, probabilities).tolist() == [True, False, False]
    assert "1 of 3 texts" in caplog.text
