"""Labelled texts from a file; pinned downloads: SHA-256, cache and errors."""

import csv
import hashlib
from pathlib import Path

import pooch
import pytest
from requests.exceptions import ConnectionError as NoConnection

from evenhand.evaluation.data import downloads
from evenhand.evaluation.data.readers.labelled_texts import LabelledTexts, read_labelled_texts
from evenhand.evaluation.errors import InputError

NAMES = {0: "ok", 1: "offensive"}


def write(path, rows, columns=("tweet", "class")):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *rows])
    return path


def test_labels_are_named_and_blank_texts_left_out(tmp_path):
    path = write(tmp_path / "texts.csv", [["a", 0], ["  ", 1], ["b", 1]])
    named = read_labelled_texts(path, "tweet", "class", NAMES)
    assert named == LabelledTexts(["a", "b"], [("ok",), ("offensive",)], n_blank=1)
    assert read_labelled_texts(path, "tweet", "class", {}).labels == [("0",), ("1",)]


def test_several_labels_in_a_tsv_file_without_a_header(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text('a "b\t2,0\tid1\nc\t1\tid2\nd\t0,3\tid3\n', encoding="utf-8")
    names = {0: "joy", 1: "fear", 2: "pride", 3: "joy"}
    labelled = read_labelled_texts(path, "text", "label", names, ",", ["text", "label", "id"])
    assert labelled.texts == ['a "b', "c", "d"] and labelled.n_blank == 0  # a quotation mark has no meaning
    assert labelled.labels == [("pride", "joy"), ("fear",), ("joy",)]  # two values with one name are one label
    assert read_labelled_texts(path, "text", "label", {}, None, ["text", "label", "id"]).labels[0] == ("2,0",)
    path.write_text("a\t2,,0\tid1\n", encoding="utf-8")
    with pytest.raises(InputError, match="labels: row 1"):
        read_labelled_texts(path, "text", "label", names, ",", ["text", "label", "id"])


def test_a_text_has_the_labels_of_a_list(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a", "label": [2, 0]}\n{"text": "b", "label": ["1"]}\n')
    assert read_labelled_texts(path, "text", "label", {}).labels == [("2", "0"), ("1",)]
    assert read_labelled_texts(path, "text", "label", {0: "joy", 1: "fear", 2: "pride"}).labels == [
        ("pride", "joy"),
        ("fear",),
    ]


@pytest.mark.parametrize(("names", "known"), [({}, "give a label."), ({0: "joy", 1: "fear"}, r"give a label \(0, 1\)")])
def test_a_text_without_a_label_is_an_error_that_lists_the_labels_if_they_are_known(tmp_path, names, known):
    path = write(tmp_path / "texts.csv", [["a", "0"], ["b", ""]])
    with pytest.raises(InputError, match=f"labels: row 2 .* has ''; {known}"):
        read_labelled_texts(path, "tweet", "class", names)


def test_a_blank_after_a_separator_is_no_part_of_a_label(tmp_path):
    path = write(tmp_path / "texts.csv", [["a", "joy, fear"], ["b", "fear"]])
    assert read_labelled_texts(path, "tweet", "class", {}, ",").labels == [("joy", "fear"), ("fear",)]


CONTENT = b"pinned content"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def serve(monkeypatch, content):
    """Make each download write `content`, or raise it, and return the list of requested URLs."""
    requested = []

    def download(self, url, output_file, pooch):
        requested.append(url)
        if isinstance(content, Exception):
            raise content
        Path(output_file).write_bytes(content)

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", download)
    return requested


def test_a_file_is_downloaded_once_and_again_if_damaged(cache, monkeypatch):
    requested = serve(monkeypatch, CONTENT)
    for _ in range(2):
        path = downloads.fetch_pinned_file("https://host/file", SHA256, "folder/file", "do it by hand.")
        assert path == cache / "evenhand" / "folder" / "file" and path.read_bytes() == CONTENT
    assert requested == ["https://host/file"]
    path.write_bytes(b"pinned con")
    assert downloads.fetch_pinned_file("https://host/file", SHA256, "folder/file", "").read_bytes() == CONTENT
    for content, message in ((b"something else", "but got"), (NoConnection("no route"), "no route")):
        serve(monkeypatch, content)
        with pytest.raises(InputError, match=f"https://host/file: cannot be downloaded to .*{message}.*do it by hand"):
            downloads.fetch_pinned_file("https://host/file", SHA256, "other", "do it by hand.")
        assert not (cache / "evenhand" / "other").exists()
