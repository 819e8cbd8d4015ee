"""The training of the small masked model, and the scores around it, by hand and on a tiny model."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from benchmarks.masked_model import (
    IGNORED,
    MaskedTrainer,
    blimp_accuracy,
    frequency_correlation,
    masked_accuracy,
    new_model,
    read_texts,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.classifier_folders import MINILM, MINILM_SHA256, find_encoder
from evenhand.evaluation.models.loading import MaskedModel

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "dogs", "bark", "barks", "sing", "sings"]


@pytest.fixture
def tiny():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    network = BertForMaskedLM(BertConfig(**sizes, vocab_size=len(WORDS))).eval()
    tokenizer = BertTokenizer(vocab={word: row for row, word in enumerate(WORDS)})
    return MaskedModel(network, tokenizer, "tiny", "none")


def test_the_loss_of_masked_positions_is_the_models_own_loss(tiny):
    batch = tiny.tokenizer(["the dog barks", "dogs sing"], padding=True, return_tensors="pt")
    labels = torch.full_like(batch["input_ids"], IGNORED)
    labels[0, 2] = WORDS.index("dog")
    labels[1, 1] = WORDS.index("dogs")
    batch["input_ids"][0, 2] = WORDS.index("[MASK]")
    expected = tiny.model(**batch, labels=labels).loss
    trainer = SimpleNamespace(accelerator=SimpleNamespace(autocast=nullcontext))  # float32
    loss = MaskedTrainer.compute_loss(trainer, tiny.model, {**batch, "labels": labels})
    assert float(loss) == pytest.approx(float(expected), abs=1e-6)


def test_exchanged_sentences_have_the_opposite_accuracy(tiny, tmp_path):
    pairs = [("the dog barks", "the dog bark"), ("dogs sing", "dogs sings"), ("the dogs bark", "the dogs barks")]
    for name, order in (("as_given", 1), ("exchanged", -1)):
        rows = [dict(zip(("sentence_good", "sentence_bad"), pair[::order], strict=True)) for pair in pairs]
        (tmp_path / name).mkdir()
        (tmp_path / name / "agreement.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = [blimp_accuracy(tiny, tmp_path / name, 3)["agreement"] for name in ("as_given", "exchanged")]
    assert sum(found) == pytest.approx(1)


def test_accuracy_of_a_model_that_always_says_dog(tiny):
    with torch.no_grad():
        tiny.model.cls.predictions.bias[WORDS.index("dog")] = 1e4
    assert masked_accuracy(tiny, ["dog dog dog dog dog dog"] * 20, seed=0) == 1
    assert masked_accuracy(tiny, ["sing sing sing sing sing"] * 20, seed=0) == 0


def test_the_correlation_with_frequencies_has_descriptors_of_one_word_only():
    texts = ["A tall man and a tall woman.", "An old man.", "tall", None]
    rows = [("tall", -1.0), ("tall", -2.0), ("old", -4.0), ("bony", -9.0), ("hard of hearing", -0.1)]
    rho = frequency_correlation(pd.DataFrame(rows, columns=["descriptor", "log_likelihood"]), texts)
    assert (rho.value, rho.n) == (1.0, 3)  # three, one and no usages; means −1.5, −4 and −9


def test_held_out_texts_are_not_trained_on(tmp_path):
    (tmp_path / "goemotions" / "original").mkdir(parents=True)
    (tmp_path / "topical_chat").mkdir()
    for name in ("train", "dev", "test"):
        lines = [f"{name} text {number}\t1\tid" for number in range(500)]
        (tmp_path / "goemotions" / "original" / f"{name}.tsv").write_text("\n".join([*lines, "equal\t1\tid"]))
    for name in ("valid_freq", "test_freq"):
        content = {"a": {"content": [{"message": f" {name} message "}, {"message": "equal"}, {"message": " "}]}}
        (tmp_path / "topical_chat" / f"{name}.json").write_text(json.dumps(content))
    training, held_out = read_texts(tmp_path, seed=0)
    assert len(training) + len(held_out) == 1503 and not set(training) & set(held_out)
    assert read_texts(tmp_path, seed=0) == (training, held_out)
    assert "test_freq message" in [*training, *held_out]


def test_a_new_model_is_tied_to_minilms_embeddings_and_begins_with_the_frequencies():
    try:
        find_encoder(MINILM, MINILM_SHA256)
    except InputError as error:
        pytest.skip(str(error))
    model = new_model([[2000, 2000, 3000]])
    head = model.cls.predictions
    assert head.decoder.weight is model.bert.embeddings.word_embeddings.weight
    assert head.decoder.bias is head.bias
    assert head.bias.argmax() == 2000 and head.bias[3000] > head.bias[4000]
    assert float(head.bias.exp().sum()) == pytest.approx(1, abs=1e-3)
    assert torch.equal(head.transform.dense.weight, torch.eye(384))
    assert np.isfinite(head.bias.detach().numpy()).all()
