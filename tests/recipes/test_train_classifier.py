"""A classifier trained on a small file: it learns, it is measured on what it never saw, and it can be used."""

import csv
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from evenhand.evaluation.datasets.labelled_texts import hold_out
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.classifier_labels import place_of_label
from evenhand.evaluation.models.styles import label_probabilities, load_style_classifier, style_vectors
from evenhand.evaluation.results import find_score, read_scores
from evenhand.evaluation.runs.tables import read_table
from evenhand.recipes.settings import TrainClassifierSettings
from evenhand.recipes.train_classifier import train_classifier, word_tokenizer

RUDE, KIND = ("awful", "stupid", "horrid", "nasty"), ("lovely", "bright", "gentle", "sunny")


@pytest.fixture
def texts(tmp_path):
    rng = np.random.default_rng(0)
    rows = [["tweet", "class"], ["  ", 1]]
    for n in range(400):
        words = RUDE if n % 4 == 0 else KIND
        rows.append(
            [f"what a {rng.choice(words)} {rng.choice(['day', 'dog', 'song'])} number {n % 90}", int(n % 4 == 0)]
        )
    with (tmp_path / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return tmp_path / "texts.csv"


def told(texts, folder, **changes):
    common = {"labels": {0: "ok", 1: "offensive"}, "epochs": 6, "batch_size": 32, "report_to": "none"}
    return TrainClassifierSettings(**{**common, **changes}, texts=texts, output_dir=folder)


def test_it_learns_and_can_be_used(texts, tmp_path, capsys):
    settings = told(texts, tmp_path / "run", held_out=0.25)
    train_classifier(settings)
    scores = read_scores(tmp_path / "run" / "scores.json")
    accuracy, area = find_score(scores, "accuracy"), find_score(scores, "roc_auc", label="offensive or ok")
    assert accuracy.value > 0.95 and accuracy.interval[0] < accuracy.value and area.value > 0.95
    assert f"accuracy: {accuracy.value:.3f}" in capsys.readouterr().out
    classifier = load_style_classifier(str(tmp_path / "run" / "classifier"), field="classifier")
    label = place_of_label(classifier.labels, "offensive", classifier.name, "classifier.label")
    rude, kind = style_vectors(classifier, ["what a nasty dog", "what a gentle song"])[:, label]
    assert rude > 0.8 and kind < 0.2
    held_out = read_table(tmp_path / "run" / "held_out.parquet")
    assert accuracy.n == len(held_out)
    assert ((held_out["p_offensive"] > 0.5) == (held_out["label"] == "offensive")).mean() == pytest.approx(
        accuracy.value
    )
    card = (tmp_path / "run" / "classifier" / "README.md").read_text()
    assert "1 blank ones were left out" in card and f"{accuracy.value:.3f}" in card
    assert not (tmp_path / "run" / "checkpoints").exists()
    weights = tmp_path / "run" / "classifier" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    train_classifier(settings)  # finished: nothing to do
    assert weights.stat().st_mtime_ns == before


@pytest.fixture
def tagged(tmp_path):
    """Texts with one or both of two labels, each told by a word, and a third that no text to train on has."""
    rng, rows = np.random.default_rng(0), []
    for n in range(500):
        rude, kind = n % 3 != 0, n % 3 != 1
        words = [rng.choice(RUDE)] * rude + [rng.choice(KIND)] * kind
        rows.append(f"a {' '.join(words)} day {n % 90}\t{'|'.join(['rude'] * rude + ['kind'] * kind)}")
    (tmp_path / "texts.tsv").write_text("\n".join(rows[:400]), encoding="utf-8")
    (tmp_path / "test.tsv").write_text("\n".join([*rows[400:], "a strange day\tstrange"]), encoding="utf-8")
    return {
        "texts": tmp_path / "texts.tsv",
        "test_texts": tmp_path / "test.tsv",
        "columns": ["text", "label"],
        "text_column": "text",
        "label_column": "label",
        "label_separator": "|",
        "batch_size": 32,
        "report_to": "none",
    }


def test_several_labels_to_a_text(tagged, tmp_path):
    train_classifier(TrainClassifierSettings(**tagged, epochs=20, output_dir=tmp_path / "run"))
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_score(scores, "f1", label="rude").value > 0.95 and find_score(scores, "f1", label="kind").value > 0.95
    assert find_score(scores, "f1", label="strange").value == 0  # only the test file has it: it was never learned
    macro = find_score(scores, "macro_f1")
    assert macro.value == pytest.approx(np.mean([s.value for s in scores if s.metric == "f1"])) and macro.n == 101
    classifier = load_style_classifier(str(tmp_path / "run" / "classifier"), field="classifier")
    both, one = label_probabilities(classifier, ["a nasty sunny day 3", "a nasty day 3"])
    rude, kind = (classifier.labels.index(name) for name in ("rude", "kind"))
    assert min(both[rude], both[kind], one[rude]) > 0.8 and one[kind] < 0.2
    np.testing.assert_allclose(style_vectors(classifier, ["a nasty sunny day 3"])[0], both / both.sum(), atol=1e-6)
    held_out = read_table(tmp_path / "run" / "held_out.parquet")
    assert set(held_out["label"]) == {"rude", "kind", "kind|rude", "strange"}


def test_it_starts_from_an_encoder(tagged, tmp_path):
    torch.manual_seed(0)
    words = word_tokenizer([line.partition("\t")[0] for line in tagged["texts"].read_text().split("\n")])
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    encoder = BertModel(BertConfig(**sizes, vocab_size=len(words), max_position_embeddings=32))
    encoder.save_pretrained(tmp_path / "encoder")
    words.save_pretrained(tmp_path / "encoder")
    told = TrainClassifierSettings(
        **tagged, model=str(tmp_path / "encoder"), epochs=1, learning_rate=1e-9, output_dir=tmp_path / "run"
    )
    train_classifier(told)
    trained = load_style_classifier(str(tmp_path / "run" / "classifier"), field="classifier").model
    assert trained.config.problem_type == "multi_label_classification" and trained.config.num_labels == 3
    # At a rate of nearly nothing its weights are still the encoder's.
    for name, weight in encoder.state_dict().items():
        torch.testing.assert_close(trained.bert.state_dict()[name], weight, atol=1e-5, rtol=0)
    # Its new head learns at a rate of its own: the biases begin at 0.
    assert trained.classifier.bias.abs().max() > 1e-3


def test_a_label_that_only_a_held_out_text_has_stops_nothing(texts, tmp_path):
    with texts.open("a", encoding="utf-8") as file:
        file.write("quite odd,2\n")
    chosen = next(seed for seed in range(100) if hold_out(_texts_of(texts), 0.25, seed)[-1])
    train_classifier(told(texts, tmp_path / "run", labels={}, held_out=0.25, epochs=1, seed=chosen))
    assert find_score(read_scores(tmp_path / "run" / "scores.json"), "recall", label="2").value == 0


def _texts_of(path):
    return [row["tweet"] for row in csv.DictReader(path.open(encoding="utf-8")) if row["tweet"].strip()]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="there is no file .*absent.csv"):
        train_classifier(told(tmp_path / "absent.csv", tmp_path / "run"))


def test_what_the_settings_name_is_looked_for_in_the_file(texts, tmp_path):
    with pytest.raises(InputError, match="text_column: .* has no column 'text'; there are tweet, class"):
        train_classifier(told(texts, tmp_path / "run", text_column="text"))
    with pytest.raises(InputError, match="label_column: .* has no column 'label'; there are tweet, class"):
        train_classifier(told(texts, tmp_path / "other", label_column="label"))


def test_the_tokenizer_is_the_same_in_every_process():
    code = (
        "import hashlib; from evenhand.recipes.train_classifier import word_tokenizer as make; "
        "texts = [f'{a}{b} {b}{c}{a}' for a in 'abcdef' for b in 'ghij' for c in 'klmn']; "
        "print(hashlib.sha256(make(texts).backend_tokenizer.to_str().encode()).hexdigest())"
    )
    made = {subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(made) == 1
