"""`measure` and `compare` on sentence pairs, end to end."""

import pytest

from evenhand.evaluation.results import read_scores
from evenhand.recipes.compare import compare
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import CompareSettings, MeasureSettings
from tests.forked_commands import wait_until

QUIET = {"report_to": "none", "show": False}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs") / "run"
    measure(MeasureSettings(metrics=["sentence_pairs"], output_dir=folder, **QUIET))
    return folder


def test_the_report_on_the_testbed_has_what_was_planted_and_whose_it_is(planted):
    page = (planted / "report.html").read_text()
    assert "◇" in page and "testbed" in page and "contains it" in page


def test_a_run_is_compared_with_itself(planted, tmp_path):
    compare(CompareSettings(before=planted, after=planted, output_dir=tmp_path / "both", **QUIET))
    changes = [s for s in read_scores(tmp_path / "both" / "scores.json") if s.metric == "s_jsd_difference"]
    assert {score.value for score in changes} == {0.0}
    assert (tmp_path / "both" / "report.html").exists()


def test_killed_in_the_middle_it_ends_the_same(tmp_path, commands):
    people = ["cats", "dogs", "poets", "cyclists"]
    rows = [f"Many {one} will admire {other}.,Most {one} will admire {other}." for one in people for other in people]
    (tmp_path / "many.csv").write_text("\n".join(["more,less", *rows * 40]) + "\n")
    for name in ("whole", "killed"):
        flags = ["--metrics", "sentence_pairs", "--sentence_pairs.pairs", str(tmp_path / "many.csv")]
        command = ["measure", *flags, "--report_to", "none", "--output_dir", str(tmp_path / name)]
        if name == "killed":
            running, parts = commands.start(*command), tmp_path / name / "parts" / "sentence_pairs" / "masked"
            wait_until(lambda: list(parts.glob("*.parquet")) or running.status() is not None)  # noqa: B023
            assert running.status() is None, running.stderr
            running.kill()
            assert not (tmp_path / name / "run.json").exists()
        assert "Report:" in commands.run(*command).stdout
    ours, theirs = (read_scores(tmp_path / name / "scores.json") for name in ("killed", "whole"))
    assert [(s.metric, s.value, s.interval) for s in ours] == [(s.metric, s.value, s.interval) for s in theirs]
