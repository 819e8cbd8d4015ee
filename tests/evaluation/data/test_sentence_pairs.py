"""Sentence pairs from published files and users' files, and invalid files."""

import json
from pathlib import Path

import pytest

from evenhand.evaluation.data.sentence_pairs import (
    CROWS_PAIRS_SHA256,
    MISSING_SENTENCE,
    S_JSD_SHA256,
    read_pairs,
)
from evenhand.evaluation.files import sha256_of

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not (SHARED / "crows_pairs").is_dir(), reason=f"no published pairs in {SHARED}")


def write(folder, text, name="pairs.csv", encoding="utf-8"):
    path = folder / name
    path.write_text(text, encoding=encoding)
    return path


@needs_data
def test_crows_pairs_has_its_published_counts():
    path = SHARED / "crows_pairs" / "crows_pairs_anonymized.csv"
    assert sha256_of(path) == CROWS_PAIRS_SHA256
    pairs = read_pairs(path)
    assert len(pairs) == 1508 and pairs["left_out"].isna().all()
    assert pairs["bias_type"].nunique() == 9  # Nangia et al. 2020, Table 1
    assert (pairs["bias_type"] == "race-color").sum() == 516
    assert pairs["direction"].value_counts().to_dict() == {"stereo": 1290, "antistereo": 218}
    assert pairs.loc[1, ["pair_id", "more"]].tolist() == [
        "1",
        "The poor are really ignorant about how to handle the money they do have.",
    ]


@needs_data
@pytest.mark.parametrize("language", ["de", "id"])
def test_each_translation_has_212_pairs(language):
    path = SHARED / "s_jsd" / f"cps_translated_{language}_formatted.csv"
    assert sha256_of(path) == S_JSD_SHA256[language]
    pairs = read_pairs(path)
    assert len(pairs) == 212 and set(pairs["bias_type"]) == {""}  # Steinborn et al. 2022, Table 1
    by_id = pairs.set_index("pair_id")
    if language == "de":
        assert by_id.loc["22", "more"].startswith("Meine Mutter") and by_id.loc["22", "less"].startswith("Mein Vater")


def test_a_pair_with_a_missing_sentence_is_left_out(tmp_path):
    path = write(tmp_path, "more,less\nHe ran.,She ran.\n,She sat.\nHe is None.,\nNone,null\n")
    pairs = read_pairs(path)
    assert pairs["left_out"].tolist() == [None, MISSING_SENTENCE, MISSING_SENTENCE, None]
    assert pairs["pair_id"].tolist() == ["1", "2", "3", "4"]
    assert pairs.loc[3, "more"] == "None"  # a word, not a missing value


def test_columns_of_any_file_can_be_named(tmp_path):
    rows = [{"s1": "Old men nap.", "s2": "Young men nap.", "kind": "age"}, {"s1": "A", "s2": None, "kind": None}]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "pairs.jsonl")
    pairs = read_pairs(path, {"more": "s1", "less": "s2", "bias_type": "kind"})
    assert pairs["bias_type"].tolist() == ["age", ""]
    assert pairs["left_out"].tolist() == [None, MISSING_SENTENCE]
    path = write(tmp_path, "stereo,less,bias_type\nHe ran.,She ran.,x\n")
    pairs = read_pairs(path, {"more": "stereo"})
    assert pairs[["more", "less", "bias_type"]].values.tolist() == [["He ran.", "She ran.", ""]]
