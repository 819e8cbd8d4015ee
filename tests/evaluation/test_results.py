"""Score records survive the disk, whole or not at all."""

import json
import math

import pytest

from evaluation.errors import InputError, unknown_name
from evaluation.files import write_json, write_text, written_whole
from evaluation.results import BiasScore, find_score, read_scores, write_scores

DEFINED = BiasScore("fgb", 0.1, 0.0, (0.0, math.inf), n=5, interval=(0.05, 0.15), p_value=0.01, group={"axis": "age"})
UNDEFINED = BiasScore("fgb", math.nan, 0.0, (0.0, 1.0), n=0, n_left_out=3, reason="all responses were empty")


def test_scores_come_back_equal(tmp_path):
    write_scores(tmp_path / "scores.json", [DEFINED, UNDEFINED])
    defined, undefined = read_scores(tmp_path / "scores.json")
    assert defined == DEFINED
    assert math.isnan(undefined.value)
    assert undefined.reason == UNDEFINED.reason


def test_the_file_is_strict_json(tmp_path):
    write_scores(tmp_path / "scores.json", [UNDEFINED])
    record = json.loads((tmp_path / "scores.json").read_text(), parse_constant=lambda name: pytest.fail(name))[0]
    assert record["value"] is None


def test_an_undefined_score_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        BiasScore("fgb", math.nan, 0.0, (0.0, 1.0), n=0)


def test_find_score_wants_the_exact_cut():
    assert find_score([UNDEFINED, DEFINED], "fgb", axis="age") is DEFINED
    with pytest.raises(KeyError):
        find_score([DEFINED], "fgb")


@pytest.mark.parametrize("text", ["", "[{}]", "[1]", '[{"metric": "fgb"}]'])
def test_what_holds_no_scores_is_refused(tmp_path, text):
    write_text(tmp_path / "scores.json", text)
    with pytest.raises(InputError, match="scores.json"):
        read_scores(tmp_path / "scores.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"kept": True})
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, math.nan)
    with pytest.raises(RuntimeError), written_whole(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert json.loads(path.read_text()) == {"kept": True}
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="output_dir"):
        write_text(tmp_path / "file" / "scores.json", "")


def test_an_unknown_name_says_what_was_meant_or_what_there_is():
    assert "did you mean 'sample'" in str(unknown_name("decoding", "smaple", ["sample", "paper"]))
    assert "Known: paper, sample" in str(unknown_name("decoding", "zzz", ["sample", "paper"]))
