"""A classifier trained on a small file: it learns, it is measured on what it never saw, and it can be used."""

import csv
import math

import numpy as np
import pytest

from evaluation.errors import InputError
from evaluation.results import find_score, read_scores
from evaluation.styles import label_index, label_probability, load_style_classifier
from recipes.config import TrainClassifierConfig
from recipes.tables import read_table
from recipes.train_classifier import accuracy_scores, hold_out, read_labelled, train_classifier

RUDE, KIND = ("awful", "stupid", "horrid", "nasty"), ("lovely", "bright", "gentle", "sunny")


def write(path, rows, columns=("tweet", "class")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


@pytest.fixture
def texts(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for n in range(400):
        words = RUDE if n % 4 == 0 else KIND
        rows.append(
            [f"what a {rng.choice(words)} {rng.choice(['day', 'dog', 'song'])} number {n % 90}", int(n % 4 == 0)]
        )
    return write(tmp_path / "texts.csv", [*rows, ["  ", 1]])


def settings(texts, folder, **changes):
    common = {"labels": {0: "ok", 1: "offensive"}, "epochs": 6, "batch_size": 32, "report_to": "none"}
    return TrainClassifierConfig(**{**common, **changes}, texts=texts, output_dir=folder)


def test_it_learns_and_can_be_used(texts, tmp_path, capsys):
    config = settings(texts, tmp_path / "run", held_out=0.25)
    train_classifier(config)
    scores = read_scores(tmp_path / "run" / "scores.json")
    accuracy, area = find_score(scores, "accuracy"), find_score(scores, "roc_auc", label="offensive or ok")
    assert accuracy.value > 0.95 and accuracy.interval[0] < accuracy.value and area.value > 0.95
    assert "roc_auc" in capsys.readouterr().out
    classifier = load_style_classifier(str(tmp_path / "run" / "classifier"), field="offensiveness_classifier")
    label = label_index(classifier, "offensive", "offensive_label")
    rude, kind = label_probability(classifier, label, ["what a nasty dog", "what a gentle song"])
    assert rude > 0.8 and kind < 0.2
    held_out = read_table(tmp_path / "run" / "held_out.parquet")
    assert accuracy.n == len(held_out)
    assert ((held_out["p_offensive"] > 0.5) == (held_out["label"] == "offensive")).mean() == pytest.approx(
        accuracy.value
    )
    card = (tmp_path / "run" / "classifier" / "README.md").read_text()
    assert "1 blank ones were left out" in card and "no verdict" in card
    assert not (tmp_path / "run" / "checkpoints").exists()
    weights = tmp_path / "run" / "classifier" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    train_classifier(config)  # finished: nothing to do
    assert weights.stat().st_mtime_ns == before


def test_equal_texts_are_on_one_side():
    texts = [f"text {n % 50}" for n in range(200)]
    chosen = hold_out(texts, 0.3, seed=0)
    seen = {text for text, out in zip(texts, chosen, strict=True) if not out}
    assert 0 < chosen.sum() < 200 and not seen & {text for text, out in zip(texts, chosen, strict=True) if out}


def test_accuracy_recall_and_area_by_hand():
    p = np.array([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4], [0.2, 0.8]])
    scores = accuracy_scores(p, np.array([0, 0, 1, 1]), ["a", "b"], {})
    assert find_score(scores, "accuracy").value == 0.5
    assert find_score(scores, "recall", label="a").value == 0.5
    # Of the four pairs of an a and a b, three a's have the higher p(a): 0.9 > 0.6, 0.9 > 0.2, 0.4 > 0.2.
    assert find_score(scores, "roc_auc", label="a or b").value == 0.75
    alone = accuracy_scores(p[:2], np.array([0, 0]), ["a", "b"], {})
    assert math.isnan(find_score(alone, "recall", label="b").value)
    assert find_score(alone, "roc_auc", label="a or b").reason


@pytest.mark.parametrize(
    ("rows", "columns", "changes", "message"),
    [
        ([["a", 0]], ("text", "class"), {}, "text_column: .* has no column 'tweet'; there are text, class"),
        ([["a", 0], ["b", 7]], ("tweet", "class"), {}, "labels: row 2 has '7', which has no name; known are 0, 1"),
        ([["a", ""]], ("tweet", "class"), {}, "row 1 of .* has no label"),
        ([["a", 0], ["b", 0]], ("tweet", "class"), {}, "a classifier needs two labels"),
    ],
)
def test_texts_that_cannot_be_used_say_why(tmp_path, rows, columns, changes, message):
    path = write(tmp_path / "texts.csv", rows, columns)
    with pytest.raises(InputError, match=message):
        read_labelled(settings(path, tmp_path / "run", **changes))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="there is no file .*absent.csv"):
        train_classifier(settings(tmp_path / "absent.csv", tmp_path / "run"))
