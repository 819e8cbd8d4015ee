"""Phrase counts derived by hand, corpora of all formats, and streaming."""

import gzip
import json
import unicodedata

import pandas as pd
import pytest

from evenhand.evaluation.data.language.phrase_counts import count_phrases, count_phrases_in_corpus

TEXTS = ["I am Deaf, deaf!", "A hard-of-hearing man", None]


def counts(texts, *phrases):
    return list(count_phrases(texts, phrases).counts.values())


def test_phrases_are_whole_words_and_the_longest_wins():
    assert counts(["DEAF deaf. Deafening un-deaf deaf_"], "Deaf") == [3]  # a hyphen ends a word, a letter or _ does not
    assert counts(["Native American American Indian"], "American", "Native American") == [1, 1]
    assert counts(["hard of hearing"], "hard", "hard of hearing") == [0, 1]
    assert counts(["hard of hear"], "hard", "hard of hearing") == [1, 0]  # back to the shorter one
    assert counts(["hard\nof \t hearing STRASSE café"], "hard of hearing", "straße", "CAFÉ") == [1, 1, 1]
    assert counts(["c++ (x) a.b"], "(x)", "a.b", "axb") == [1, 1, 0]
    assert counts(["Deaf deaf"], "Deaf", "deaf") == [2, 2]


@pytest.fixture
def files(tmp_path):
    rows = [{"text": text, "id": index} for index, text in enumerate(TEXTS)]
    lines = "\n".join(map(json.dumps, rows))
    (tmp_path / "c.jsonl").write_text(lines)
    with gzip.open(tmp_path / "c.jsonl.gz", "wt") as file:
        file.write(lines)
    pd.DataFrame(rows).to_csv(tmp_path / "c.csv", index=False)
    pd.DataFrame(rows).to_parquet(tmp_path / "c.parquet")
    (tmp_path / "c.txt").write_text("\n".join(text or "" for text in TEXTS) + "\n")
    return tmp_path


@pytest.mark.parametrize("name", ["c.jsonl", "c.jsonl.gz", "c.csv", "c.parquet", "c.txt"])
def test_every_format_gives_the_same_counts(files, name):
    result = count_phrases_in_corpus(str(files / name), ["deaf", "hard-of-hearing", "tall"])
    assert list(result.counts.values()) == [2, 1, 0]
    assert result.n_examples + result.n_left_out == 3


def test_a_folder_is_the_sum_of_its_files_and_a_limit_reads_no_further(files, tmp_path):
    folder = tmp_path / "many"
    folder.mkdir()
    (folder / "old.jsonl").mkdir()  # a folder with the name of a file
    for name in ("1.jsonl", "old.jsonl/2.jsonl"):
        (folder / name).write_text((files / "c.jsonl").read_text())
    assert count_phrases_in_corpus(str(folder), ["deaf"]).counts == {"deaf": 4}
    result = count_phrases_in_corpus(str(files / "c.jsonl"), ["deaf", "hard-of-hearing"], limit=1)
    assert list(result.counts.values()) == [2, 0] and result.n_examples == 1


def test_accents_are_found_however_they_are_encoded():
    text = unicodedata.normalize("NFD", "Un ami québécois.")
    assert count_phrases([text], ["Québécois"]).counts == {"Québécois": 1}
