"""Sentence pairs from published files and users' files, and invalid files."""

import json
from hashlib import sha256
from pathlib import Path

import pandas as pd
import pytest

from evenhand.evaluation.data import sentence_pairs
from evenhand.evaluation.data.sentence_pairs import (
    CROWS_PAIRS_SHA256,
    DEFECTS,
    EQUAL_SENTENCES,
    FEW_SHARED,
    MISSING_SENTENCE,
    NAMES,
    S_JSD_SHA256,
    SHORT,
    insert_names,
    known_defects,
    leave_out_pairs,
    load_names,
    read_sentence_pairs,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import load_yaml, sha256_of

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not (SHARED / "crows_pairs").is_dir(), reason=f"no published pairs in {SHARED}")


def write(folder, text, name="pairs.csv", encoding="utf-8"):
    path = folder / name
    path.write_text(text, encoding=encoding)
    return path


def test_pairs_in_a_new_language_get_names_and_lose_what_cannot_be_compared(tmp_path):
    rows = [
        "{male} es médico aquí.,{female} es médica aquí.",
        "Él es médico.,{female} es médica.",
        "Canto.,Canto.",
    ]
    pairs = read_sentence_pairs(write(tmp_path, "\n".join(["more,less", *rows, "{male} canta.,"]) + "\n"))
    named = insert_names(pairs, load_names("es"))
    assert named["more"].tolist()[::3] == ["José es médico aquí.", "Pedro canta."]
    assert named["less"].tolist() == ["María es médica aquí.", "Carmen es médica.", "Canto.", None]
    left_out = leave_out_pairs(named, min_shared_words=2, min_words=2)["left_out"].tolist()
    assert left_out == [None, FEW_SHARED.format(2), EQUAL_SENTENCES, MISSING_SENTENCE]
    assert leave_out_pairs(named, 0, 4)["left_out"].tolist()[:2] == [None, SHORT.format(4)]


def test_no_name_is_of_both_genders_and_users_have_their_own(tmp_path):
    for language in load_yaml(NAMES.read_text(encoding="utf-8")):
        names = load_names(language)
        assert len({*names["female"], *names["male"]}) == 8
    own = write(tmp_path, "female: [Ngozi]\nmale: [Emeka]\n", "ig.yaml")
    assert load_names(str(own)) == {"female": ["Ngozi"], "male": ["Emeka"]}
    with pytest.raises(InputError, match="^names: "):
        load_names(str(write(tmp_path, "female: []\n", "bad.yaml")))
    with pytest.raises(InputError, match="names: 'xx'"):
        load_names("xx")


@needs_data
def test_crows_pairs_has_its_published_counts():
    path = SHARED / "crows_pairs" / "crows_pairs_anonymized.csv"
    assert sha256_of(path) == CROWS_PAIRS_SHA256
    pairs = read_sentence_pairs(path)
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
    pairs = read_sentence_pairs(path)
    assert len(pairs) == 212 and set(pairs["bias_type"]) == {""}  # Steinborn et al. 2022, Table 1
    by_id = pairs.set_index("pair_id")
    if language == "de":
        assert by_id.loc["22", "more"].startswith("Meine Mutter") and by_id.loc["22", "less"].startswith("Mein Vater")


def test_a_pair_with_a_missing_sentence_is_left_out(tmp_path):
    path = write(tmp_path, "more,less\nHe ran.,She ran.\n,She sat.\nHe is None.,\nNone,null\n")
    pairs = read_sentence_pairs(path)
    assert pairs["left_out"].tolist() == [None, MISSING_SENTENCE, MISSING_SENTENCE, None]
    assert pairs["pair_id"].tolist() == ["1", "2", "3", "4"]
    assert pairs.loc[3, "more"] == "None"  # a word, not a missing value


def test_a_file_without_content_is_called_empty(tmp_path):
    with pytest.raises(InputError, match=r"pairs\.csv: is empty"):
        read_sentence_pairs(write(tmp_path, ""))


def test_columns_of_any_file_can_be_named(tmp_path):
    rows = [{"s1": "Old men nap.", "s2": "Young men nap.", "kind": "age"}, {"s1": "A", "s2": None, "kind": None}]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)), "pairs.jsonl")
    pairs = read_sentence_pairs(path, {"more": "s1", "less": "s2", "bias_type": "kind"})
    assert pairs["bias_type"].tolist() == ["age", ""]
    assert pairs["left_out"].tolist() == [None, MISSING_SENTENCE]
    path = write(tmp_path, "stereo,less,bias_type\nHe ran.,She ran.,x\n")
    pairs = read_sentence_pairs(path, {"more": "stereo"})
    assert pairs[["more", "less", "bias_type"]].values.tolist() == [["He ran.", "She ran.", ""]]


def test_the_list_of_known_defects():
    table = pd.read_csv(DEFECTS, dtype=str)
    assert table["pair_id"].is_unique and table["sentences"].is_unique and table["pair_id"].astype(int).max() < 1508
    for defect in ("duplicate of pair", "differ in more than the group", "final punctuation", "stray spaces"):
        assert table["defect"].str.contains(defect).any()
    pairs = pd.DataFrame({"more": ["A  b. ", None], "less": ["A c.", "d"]})
    assert known_defects(pairs) == [None, None]


def test_of_duplicates_the_first_stays(tmp_path, monkeypatch):
    key = sha256(b"a\nb").hexdigest()[:16]
    (tmp_path / "list.csv").write_text(f"pair_id,sentences,defect\n2,{key},duplicate of pair 1\n")
    monkeypatch.setattr(sentence_pairs, "DEFECTS", tmp_path / "list.csv")
    pairs = pd.DataFrame({"more": ["a", "c", "a"], "less": ["b", "d", "b"]})
    assert known_defects(pairs) == [None, None, "duplicate of pair 1"]


EXAMPLE = {"id": "x1", "target": "nurse", "bias_type": "gender", "context": "The nurse is BLANK."}
SENTENCES = [
    ("The nurse is blue.", "unrelated"),
    ("The nurse is kind.", "stereotype"),
    ("The nurse is rude.", "anti-stereotype"),
]
STEREOSET = {
    "published": {
        "version": "1.0",
        "data": {
            "intrasentence": [
                EXAMPLE | {"sentences": [{"id": str(n), "sentence": text, "gold_label": label, "labels": []}
                                         for n, (text, label) in enumerate(SENTENCES)]}
            ],
            "intersentence": [
                EXAMPLE | {"id": "x2", "context": "Here is Ana.",
                           "sentences": [{"sentence": text, "gold_label": label} for text, label in SENTENCES]}
            ],
        },
    },
    "lines": [
        EXAMPLE | {"sentences": {"sentence": [text for text, _ in SENTENCES], "gold_label": [2, 1, 0]}},
        EXAMPLE | {"id": "x2", "context": "Here is Ana.",
                   "sentences": {"sentence": [text for text, _ in SENTENCES], "gold_label": [2, 1, 0]}},
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", STEREOSET)
def test_three_sentences_of_stereoset_are_a_pair(tmp_path, kind):
    path = tmp_path / ("set.json" if kind == "published" else "set.jsonl")
    content = STEREOSET[kind]
    text = json.dumps(content) if kind == "published" else "\n".join(map(json.dumps, content))
    path.write_text(text)
    pairs = read_sentence_pairs(path)
    assert pairs["pair_id"].tolist() == ["x1", "x2"] and pairs["bias_type"].tolist() == ["gender"] * 2
    assert pairs["more"].tolist() == ["The nurse is kind.", "Here is Ana. The nurse is kind."]
    assert pairs["less"].tolist() == ["The nurse is rude.", "Here is Ana. The nurse is rude."]
    path.write_text(text.replace("sentences", "phrases"))
    with pytest.raises(InputError, match="StereoSet"):
        read_sentence_pairs(path)


@pytest.mark.parametrize("data", [5, {"intrasentence": 5}, [5], {"intrasentence": [5]}])
def test_another_content_of_a_file_like_stereoset_is_an_error(tmp_path, data):
    path = write(tmp_path, json.dumps({"data": data, "gold_label": 1}), "set.json")
    with pytest.raises(InputError, match="StereoSet"):
        read_sentence_pairs(path)


def test_a_listed_column_keeps_its_name_although_a_published_file_spells_it_otherwise(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("id,more,less\na,He lies.,She lies.\n")
    assert read_sentence_pairs(path, {"pair_id": "id"})["pair_id"].tolist() == ["a"]
