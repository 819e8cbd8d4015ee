"""Score records are equal after a round trip through files; files are written atomically."""

import csv
import json
import math
from dataclasses import replace

import pytest

from evenhand.evaluation.errors import unknown_name
from evenhand.evaluation.files import atomic_write, write_json
from evenhand.evaluation.score import (
    BiasScore,
    Caution,
    Direction,
    Form,
    Kind,
    find_score,
    read_scores,
    shown_direction,
    signature_line,
    why_not_comparable,
    write_scores,
)

DEFINED = BiasScore("fgb", 0.1, 0.0, (0.0, math.inf), n=5, interval=(0.05, 0.15), p_value=0.01, group={"axis": "age"})
UNDEFINED = BiasScore("fgb", math.nan, 0.0, (0.0, 1.0), n=0, n_left_out=3, reason="all responses were empty")


def test_scores_round_trip_as_strict_json(tmp_path):
    write_scores(tmp_path / "scores.json", [DEFINED, UNDEFINED])
    defined, undefined = read_scores(tmp_path / "scores.json")
    assert defined == DEFINED
    assert math.isnan(undefined.value)
    assert undefined.reason == UNDEFINED.reason
    write_scores(tmp_path / "scores.json", [UNDEFINED])
    text = (tmp_path / "scores.json").read_text()
    (record,) = json.loads(text, parse_constant=lambda name: pytest.fail(name))["scores"]
    assert record["value"] is None


SIGNED = {"model": {"name": "gpt2", "revision": "1" * 40}, "dataset": {"name": "paper", "sha256": "2" * 64}, "seed": 3}
SIGNED |= {"decoding": {"preset": "sample", "do_sample": True}, "packages": {"evenhand": "0.2.0", "torch": "2.9"}}


def test_each_signature_is_written_once_and_the_table_has_the_same_numbers(tmp_path):
    other = SIGNED | {"seed": 4}
    scores = [replace(score, signature=SIGNED) for score in (DEFINED, UNDEFINED)]
    scores.append(replace(DEFINED, signature=other))
    scores.append(BiasScore("language", 0.9, 1.0, (0.0, 1.0), n=7, signature=SIGNED, group={"value": "en"}))
    scores.append(BiasScore("cps", 1 / 3, 50.0, (0.0, 100.0), n=7, signature=SIGNED, standard_error=1e-17))
    write_scores(tmp_path / "scores.json", scores)
    content = json.loads((tmp_path / "scores.json").read_text())
    signatures, records = content["signatures"], content["scores"]
    assert sorted(signatures.values(), key=str) == sorted([SIGNED, other], key=str)
    assert [signatures[record["signature"]] for record in records] == [score.signature for score in scores]
    assert [score.signature for score in read_scores(tmp_path / "scores.json")] == [score.signature for score in scores]

    with (tmp_path / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))

    def number(text):
        return float(text) if text else None

    assert len(rows) == len(scores)
    for row, score, record in zip(rows, scores, records, strict=True):
        assert (row["metric"], row["axis"] or None) == (score.metric, score.group.get("axis"))
        assert (row["group_value"] or None) == score.group.get("value")  # beside the score's own value
        assert (number(row["low"]), number(row["high"])) == (score.interval or (None, None))
        for name in ("value", "ideal", "standard_error", "p_value", "n", "n_left_out"):
            assert number(row[name]) == record[name], name  # to the last digit
        for name in ("reason", "signature"):
            assert (row[name] or None) == record[name]


@pytest.mark.parametrize(
    "other",
    [
        {"model": {"name": "gpt2", "revision": "3" * 40}},
        {"seed": 4},
        {"dataset": {"name": "v1.1", "sha256": "2" * 64}},
        {"decoding": {"preset": "sample", "do_sample": False}},
    ],
)
def test_equal_measurements_alone_have_equal_signature_lines(other):
    score = replace(DEFINED, signature=SIGNED)
    again = replace(score, value=0.2, signature=json.loads(json.dumps(dict(reversed(SIGNED.items())))))
    line = signature_line(score)
    for part in ("fgb[axis=age]", "m:gpt2@1111111", "d:paper@2222222", "s:3", "n:5", "v:0.2.0"):
        assert part in line.split("|")
    assert "\n" not in line and signature_line(again) == line
    assert signature_line(replace(score, signature=SIGNED | other)) != line
    assert signature_line(replace(score, group={})) != line != signature_line(replace(score, form=Form.CORRECTED))


def test_small_rules_of_scores():
    with pytest.raises(ValueError, match="needs a reason"):
        BiasScore("fgb", math.nan, 0.0, (0.0, 1.0), n=0)
    assert find_score([UNDEFINED, DEFINED], "fgb", axis="age") is DEFINED
    assert find_score([DEFINED], "fgb") is None
    assert "did you mean 'sample'" in str(unknown_name("decoding", "smaple", ["sample", "paper"]))
    assert "Known: paper, sample" in str(unknown_name("decoding", "zzz", ["sample", "paper"]))


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


@pytest.mark.parametrize(
    ("value", "interval", "expected"),
    [(math.inf, (1.0, 2.0), (None, (1.0, 2.0))), (3.0, (1.0, math.inf), (3.0, None)), (-math.inf, None, (None, None))],
)
def test_a_number_that_is_too_large_is_undefined_with_a_reason(tmp_path, value, interval, expected):
    write_scores(tmp_path / "scores.json", [replace(DEFINED, value=value, interval=interval)])
    (score,) = read_scores(tmp_path / "scores.json")
    assert (None if math.isnan(score.value) else score.value, score.interval) == expected
    assert "larger than the largest number" in score.reason


def test_form_kind_and_caution_round_trip_and_tell_scores_apart(tmp_path):
    pooled = replace(DEFINED, form=Form.POOLED_CORRECTED, caution=Caution.THESE_PROMPTS)
    change = replace(pooled, kind=Kind.DIFFERENCE, caution=None)
    write_scores(tmp_path / "scores.json", [DEFINED, pooled, change])
    scores = read_scores(tmp_path / "scores.json")
    assert scores == [DEFINED, pooled, change]
    assert find_score(scores, "fgb", Form.POOLED_CORRECTED, axis="age") == pooled
    assert find_score(scores, "fgb", Form.POOLED_CORRECTED, Kind.DIFFERENCE, axis="age") == change
    assert find_score(scores, "fgb", Form.CORRECTED, axis="age") is None
    assert len({score.name for score in scores}) == 3


@pytest.mark.parametrize(
    ("value", "interval", "p_value", "ideal", "expected"),
    [
        (0.2, (0.1, 0.3), None, 0.0, Direction.ABOVE),
        (-0.2, (-0.3, -0.1), 0.01, 0.0, Direction.BELOW),
        (0.2, (0.1, 0.3), 0.20, 0.0, Direction.NOT_SHOWN),  # the test does not reject
        (0.2, (-0.1, 0.3), 0.01, 0.0, Direction.NOT_SHOWN),  # the interval contains the ideal
        (0.2, None, 0.01, 0.0, Direction.ABOVE),  # by a test alone
        (0.2, None, 0.20, 0.0, Direction.NOT_SHOWN),
        (0.2, None, None, 0.0, Direction.UNKNOWN),  # no interval is no sign of anything
        (0.2, (0.1, 0.3), 0.01, None, Direction.UNKNOWN),
        (math.nan, None, None, 0.0, Direction.UNKNOWN),
    ],
)
def test_what_a_score_shows_needs_its_interval_and_its_test(value, interval, p_value, ideal, expected):
    score = BiasScore("fgb", value, ideal, (-1.0, 1.0), 8, interval=interval, p_value=p_value, reason="none")
    assert shown_direction(score) is expected
    assert shown_direction(None) is Direction.UNKNOWN


def test_scores_are_comparable_with_one_measure_range_and_basis(tmp_path):
    score = BiasScore("perplexity", 20.0, None, (1.0, math.inf), 8, basis={"dialogues": "a", "tokenizer": "t"})
    same = replace(score, value=9.0, n=3, group={"axis": "age"})
    assert why_not_comparable(score, same) == ""
    assert "dialogues" in why_not_comparable(score, replace(score, basis={"dialogues": "b", "tokenizer": "t"}))
    assert "tokenizer" in why_not_comparable(score, replace(score, basis={"dialogues": "a"}))
    assert "range" in why_not_comparable(score, replace(score, bounds=(0.0, 1.0)))
    assert why_not_comparable(score, replace(score, metric="distinct_2"))
    write_scores(tmp_path / "scores.json", [replace(score, n_of="dialogues")])
    (read,) = read_scores(tmp_path / "scores.json")
    assert (read.basis, read.n_of) == (score.basis, "dialogues")


def test_an_interval_ends_where_the_metric_ends():
    """A variance is not negative, whatever the estimate of its error; the estimate itself stays in its interval."""
    score = BiasScore("fgb", 0.02, 0.0, (0.0, 1.0), n=8, interval=(-0.03, 1.2))
    assert score.interval == (0.0, 1.0)
    assert BiasScore("fgb", -0.02, 0.0, (-1.0, 2.0), n=8, interval=(-0.03, 0.1)).interval == (-0.03, 0.1)
