"""Style vectors and their classifiers."""

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2ForSequenceClassification

from evenhand.evaluation.models import batches, styles
from evenhand.evaluation.models.styles import classify_texts, label_probabilities, load_style_classifier, style_vectors
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
    monkeypatch.setattr(styles.StyleClassifier, "texts_per_part", 5)
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
    assert [part[2].tolist() for part in classify_texts(classifier, ["a", "b " * 15])] == [[False, True]]


def test_probabilities_of_one_and_of_several_labels(tmp_path):
    classifier = load_style_classifier(save_classifier(tmp_path))
    texts = ["a b", " ", "c", "a b"]
    probabilities = label_probabilities(classifier, texts)
    np.testing.assert_allclose(probabilities, style_vectors(classifier, texts))
    assert probabilities.shape == (4, 3) and np.isnan(probabilities[1]).all()
    classifier.model.config.problem_type = "multi_label_classification"
    with torch.no_grad():
        logit = classifier.model(input_ids=torch.tensor([[WORDS.index("c")]])).logits[0, 1]
    assert label_probabilities(classifier, texts)[2, 1] == pytest.approx(1 / (1 + np.exp(-float(logit))), abs=1e-5)
    vectors, probabilities = style_vectors(classifier, texts), label_probabilities(classifier, texts)
    np.testing.assert_allclose(vectors, probabilities / probabilities.sum(1, keepdims=True), atol=1e-6)
