"""Labelled texts from a file, and held-out texts."""

import csv

import numpy as np
import pytest

from evenhand.evaluation.datasets.labelled_texts import hold_out, read_labelled_texts
from evenhand.evaluation.errors import InputError

NAMES = {0: "ok", 1: "offensive"}


def write(path, rows, columns=("tweet", "class")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def test_equal_texts_are_held_out_together():
    texts = [f"text {n % 50}" for n in range(200)]
    mask = hold_out(texts, 0.3, seed=0)
    held_out = set(np.array(texts)[mask])
    assert 0 < mask.sum() < 200 and not held_out & set(np.array(texts)[~mask])


def test_labels_are_named_and_blank_texts_left_out(tmp_path):
    path = write(tmp_path / "texts.csv", [["a", 0], ["  ", 1], ["b", 1]])
    assert read_labelled_texts(path, "tweet", "class", NAMES) == (["a", "b"], [("ok",), ("offensive",)], 1)
    assert read_labelled_texts(path, "tweet", "class", {})[1] == [("0",), ("1",)]


def test_several_labels_in_a_tsv_file_without_a_header(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text('a "b\t2,0\tid1\nc\t1\tid2\nd\t0,3\tid3\n', encoding="utf-8")
    names = {0: "joy", 1: "fear", 2: "pride", 3: "joy"}
    texts, labels, left_out = read_labelled_texts(path, "text", "label", names, ",", ["text", "label", "id"])
    assert texts == ['a "b', "c", "d"] and left_out == 0  # a quotation mark has no meaning
    assert labels == [("pride", "joy"), ("fear",), ("joy",)]  # two values with one name are one label
    assert read_labelled_texts(path, "text", "label", {}, None, ["text", "label", "id"])[1][0] == ("2,0",)
    path.write_text("a\t2,,0\tid1\n", encoding="utf-8")
    with pytest.raises(InputError, match="label_column: row 1"):
        read_labelled_texts(path, "text", "label", names, ",", ["text", "label", "id"])


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([["a", 0, 1]], ("tweet", "class", "class"), "'class'"),
        ([["a", 0]], ("text", "class"), "text_column: .*'tweet', only text, class"),
        ([["a", 0], ["b", 7]], ("tweet", "class"), "labels: row 2 has '7'.* 0, 1"),
        ([["a", ""]], ("tweet", "class"), "label_column: row 1"),
        ([["a", 0], ["b", 0]], ("tweet", "class"), "labels: .*two"),
    ],
)
def test_an_invalid_file_raises(tmp_path, rows, columns, message):
    with pytest.raises(InputError, match=message):
        read_labelled_texts(write(tmp_path / "texts.csv", rows, columns), "tweet", "class", NAMES)
