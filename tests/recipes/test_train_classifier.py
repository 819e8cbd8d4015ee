"""A classifier trained on a small file: it learns, it is measured on what it never saw, and it can be used."""

import csv
import subprocess
import sys

import numpy as np
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.classifier_labels import place_of_label
from evenhand.evaluation.models.styles import load_style_classifier, style_vectors
from evenhand.evaluation.results import find_score, read_scores
from evenhand.evaluation.runs.tables import read_table
from evenhand.recipes.settings import TrainClassifierSettings
from evenhand.recipes.train_classifier import train_classifier

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
