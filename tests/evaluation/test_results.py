"""Score records survive the disk, whole or not at all."""

import csv
import json
import math
import os
import subprocess
from dataclasses import replace

import pytest

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.results import BiasScore, find_score, read_scores, signature_line, write_scores
from evenhand.evaluation.runs.files import atomic_write, write_json, write_text

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
    text = (tmp_path / "scores.json").read_text()
    (record,) = json.loads(text, parse_constant=lambda name: pytest.fail(name))["scores"]
    assert record["value"] is None


SIGNED = {"model": {"name": "gpt2", "revision": "1" * 40}, "dataset": {"name": "paper", "sha256": "2" * 64}, "seed": 3}
SIGNED |= {"decoding": {"preset": "sample", "do_sample": True}, "packages": {"evenhand": "0.2.0", "torch": "2.9"}}


def test_each_signature_is_written_once_and_the_table_has_the_same_numbers(tmp_path):
    other = SIGNED | {"seed": 4}
    scores = [
        replace(DEFINED, signature=SIGNED),
        replace(UNDEFINED, signature=SIGNED),
        replace(DEFINED, signature=other),
    ]
    scores.append(BiasScore("cps", 1 / 3, 50.0, (0.0, 100.0), n=7, signature=SIGNED, standard_error=1e-17))
    write_scores(tmp_path / "scores.json", scores)
    found = json.loads((tmp_path / "scores.json").read_text())
    assert found.keys() == {"signatures", "scores"}
    assert sorted(found["signatures"].values(), key=str) == sorted([SIGNED, other], key=str)
    assert [found["signatures"][record["signature"]] for record in found["scores"]] == [it.signature for it in scores]
    assert [(it.metric, it.signature) for it in read_scores(tmp_path / "scores.json")] == [
        (it.metric, it.signature) for it in scores
    ]

    with (tmp_path / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    def number(text):
        return float(text) if text else None

    assert len(rows) == len(scores)
    for row, score, record in zip(rows, scores, found["scores"], strict=True):
        low, high = score.interval or (None, None)
        assert (row["metric"], row["axis"] or None) == (score.metric, score.group.get("axis"))
        assert (number(row["low"]), number(row["high"])) == (low, high)
        for name in ("value", "ideal", "standard_error", "p_value", "n", "n_left_out"):
            assert number(row[name]) == record[name], name  # to the last digit
        assert (row["reason"] or None, row["signature"]) == (score.reason, record["signature"])


@pytest.mark.parametrize(
    "other",
    [
        {"model": {"name": "gpt2-medium", "revision": "1" * 40}},
        {"model": {"name": "gpt2", "revision": "3" * 40}},
        {"seed": 4},
        {"dataset": {"name": "v1.1", "sha256": "2" * 64}},
        {"dataset": {"name": "paper", "sha256": "3" * 64}},
        {"decoding": {"preset": "sample", "do_sample": False}},
    ],
)
def test_a_signature_line_is_that_of_equal_measurements_alone(other):
    score = replace(DEFINED, signature=SIGNED)
    again = replace(score, value=0.2, signature=json.loads(json.dumps(dict(reversed(SIGNED.items())))))
    line = signature_line(score)
    assert "\n" not in line and signature_line(again) == line
    assert signature_line(replace(score, signature=SIGNED | other)) != line
    assert signature_line(replace(score, group={})) != line != signature_line(replace(score, metric="fgb_corrected"))


def test_a_signature_line_names_what_is_read_by_people():
    line = signature_line(replace(DEFINED, signature=SIGNED))
    for part in ("fgb[axis=age]", "m:gpt2@1111111", "d:paper@2222222", "s:3", "n:5", "v:0.2.0"):
        assert part in line.split("|")
    assert signature_line(DEFINED)  # a score that nobody signed


def test_an_undefined_score_needs_a_reason():
    with pytest.raises(ValueError, match="needs a reason"):
        BiasScore("fgb", math.nan, 0.0, (0.0, 1.0), n=0)


def test_find_score_returns_the_exact_cut_or_none():
    assert find_score([UNDEFINED, DEFINED], "fgb", axis="age") is DEFINED
    assert find_score([DEFINED], "fgb") is None


@pytest.mark.parametrize(
    "text", ["", "{}", "1", '{"scores": [1]}', '{"signatures": {}, "scores": [{"metric": "fgb"}]}']
)
def test_what_holds_no_scores_is_refused(tmp_path, text):
    write_text(tmp_path / "scores.json", text)
    with pytest.raises(InputError, match="scores.json holds no scores"):
        read_scores(tmp_path / "scores.json")


def test_scores_of_0_1_0_are_refused_in_one_sentence(tmp_path):
    write_json(tmp_path / "scores.json", [{**vars(DEFINED), "bounds": [0.0, None]}])
    with pytest.raises(InputError, match=r"scores\.json was written by Evenhand 0\.1, [^.]*\.$"):
        read_scores(tmp_path / "scores.json")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"kept": True})
    with pytest.raises(ValueError, match="Out of range"):
        write_json(path, math.nan)
    with pytest.raises(RuntimeError), atomic_write(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert json.loads(path.read_text()) == {"kept": True}
    assert list(tmp_path.iterdir()) == [path]


def test_the_next_write_removes_what_killed_ones_left_and_no_other(tmp_path):
    with subprocess.Popen(["true"]) as killed:
        pass
    at_work, others = tmp_path / f".a.json.{os.getppid()}.part", tmp_path / f".b.json.{killed.pid}.part"
    for left in (tmp_path / f".a.json.{killed.pid}.part", at_work, others):
        left.write_text("half")
    write_json(tmp_path / "a.json", {})
    assert {*tmp_path.iterdir()} == {tmp_path / "a.json", at_work, others}


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="output_dir"):
        write_text(tmp_path / "file" / "scores.json", "")


def test_an_unknown_name_says_what_was_meant_or_what_there_is():
    assert "did you mean 'sample'" in str(unknown_name("decoding", "smaple", ["sample", "paper"]))
    assert "Known: paper, sample" in str(unknown_name("decoding", "zzz", ["sample", "paper"]))
