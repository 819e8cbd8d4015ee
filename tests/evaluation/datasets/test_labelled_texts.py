"""Labelled texts from a file, and which of them are held out."""

import csv

import pytest

from evenhand.evaluation.datasets.labelled_texts import hold_out, read_labelled_texts
from evenhand.evaluation.errors import InputError

NAMES = {0: "ok", 1: "offensive"}


def write(path, rows, columns=("tweet", "class")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def test_equal_texts_are_on_one_side():
    texts = [f"text {n % 50}" for n in range(200)]
    chosen = hold_out(texts, 0.3, seed=0)
    seen = {text for text, out in zip(texts, chosen, strict=True) if not out}
    assert 0 < chosen.sum() < 200 and not seen & {text for text, out in zip(texts, chosen, strict=True) if out}


def test_labels_are_named_and_blank_texts_left_out(tmp_path):
    path = write(tmp_path / "texts.csv", [["a", 0], ["  ", 1], ["b", 1]])
    assert read_labelled_texts(path, "tweet", "class", NAMES) == (["a", "b"], [("ok",), ("offensive",)], 1)
    assert read_labelled_texts(path, "tweet", "class", {})[1] == [("0",), ("1",)]


def test_several_labels_of_a_text_in_a_file_of_tabs_without_a_header(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text('a "b\t2,0\tid1\nc\t1\tid2\nd\t0,3\tid3\n', encoding="utf-8")
    names = {0: "joy", 1: "fear", 2: "pride", 3: "joy"}
    texts, labels, left_out = read_labelled_texts(path, "text", "label", names, ",", ["text", "label", "id"])
    assert texts == ['a "b', "c", "d"] and left_out == 0  # a quotation mark is a letter
    assert labels == [("pride", "joy"), ("fear",), ("joy",)]  # two values with one name are one label
    assert read_labelled_texts(path, "text", "label", {}, None, ["text", "label", "id"])[1][0] == ("2,0",)
    path.write_text("a\t2,,0\tid1\n", encoding="utf-8")
    with pytest.raises(InputError, match="row 1 of .* has no label"):
        read_labelled_texts(path, "text", "label", names, ",", ["text", "label", "id"])


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([["a", 0, 1]], ("tweet", "class", "class"), "'class' twice"),
        ([["a", 0]], ("text", "class"), "text_column: .* has no column 'tweet'; there are text, class"),
        ([["a", 0], ["b", 7]], ("tweet", "class"), "labels: row 2 has '7', which has no name; known are 0, 1"),
        ([["a", ""]], ("tweet", "class"), "row 1 of .* has no label"),
        ([["a", 0], ["b", 0]], ("tweet", "class"), "a classifier needs two labels"),
    ],
)
def test_texts_that_cannot_be_used_say_why(tmp_path, rows, columns, message):
    with pytest.raises(InputError, match=message):
        read_labelled_texts(write(tmp_path / "texts.csv", rows, columns), "tweet", "class", NAMES)
