"""Reports made again from what is on disk, and several runs on one page."""

import shutil

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.sentence_pairs.settings import Settings as PairSettings
from evenhand.evaluation.rating.votes import Vote, Votes
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.report.side_by_side import side_by_side_page
from evenhand.recipes import rate
from evenhand.recipes.measure import measure
from evenhand.recipes.report import report
from evenhand.recipes.settings import MeasureSettings, RateSettings, ReportSettings
from tests.measured_runs import write_measured

PAIRS = "more,less\nMany bakers are generous.,Many pilots are generous.\nThe pilots are slow.,The bakers are slow.\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two runs over the same pairs, which differ in their seed."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "pairs.csv").write_text(PAIRS)
    told = {"metrics": ["sentence_pairs"], "sentence_pairs": PairSettings(pairs=str(folder / "pairs.csv"))}
    for seed, name in enumerate(("one/run", "two/run")):
        measure(MeasureSettings(**told, seed=seed, report_to="none", show=False, output_dir=folder / name))
    return folder / "one" / "run", folder / "two" / "run"


@pytest.fixture
def rated(tmp_path, monkeypatch):
    """The folder of a rating with one vote."""
    monkeypatch.setattr(rate, "serve", lambda app, listening: None)
    vectors = [(1.0, 0.0, 0.0)] * 2
    sides = {side: write_measured(tmp_path / side, vectors, [side, f"{side}!"]) for side in ("before", "after")}
    folder = tmp_path / "rated"
    rate.rate(RateSettings(**sides, port=0, report_to="none", output_dir=folder))
    with Votes(folder / "votes.jsonl") as votes:
        votes.add(Vote("anna", "p0", "preference", "after", "after", "now"))
    return folder


def test_a_report_is_made_again_with_the_same_bytes_wherever_the_run_lies_now(runs, tmp_path, capsys):
    moved = tmp_path / "moved"
    shutil.copytree(runs[0], moved)
    before = (moved / "report.html").read_bytes()
    (moved / "report.html").write_text("old")
    report(ReportSettings(folders=[moved]))
    assert (moved / "report.html").read_bytes() == before
    assert capsys.readouterr().out.strip().endswith(f"Report: {moved / 'report.html'}")


def test_runs_stand_side_by_side_and_what_they_differ_in_is_told(runs, tmp_path):
    report(ReportSettings(folders=list(runs), output_dir=tmp_path / "all"))
    text = (tmp_path / "all" / "report.md").read_text()
    assert "one/run · two/run" in text and "| measure | one/run | two/run |" in text
    assert "different settings" in text and "| seed | 0 | 1 |" in text
    assert (tmp_path / "all" / "report.html").read_text().count('/run/report.html">') == 2


def test_what_only_the_models_differ_in_is_measured_alike():
    def run_of(model, seed=0):
        told = {"model": {"name": model}, "inputs": {"model": model, "pairs": "p"}, "seed": seed}
        return Page("Pairs", model, "2026-01-31", "55 %", "of pairs", "", signature=told)

    assert side_by_side_page({"pairs": {"base": run_of("a"), "tuned": run_of("b")}}, []).warnings == []
    (warning,) = side_by_side_page({"pairs": {"base": run_of("a"), "tuned": run_of("b", seed=1)}}, []).warnings
    assert "different settings of pairs" in warning


def test_a_rating_stands_behind_the_runs(runs, rated, tmp_path):
    report(ReportSettings(folders=[*runs, rated], output_dir=tmp_path / "all"))
    text = (tmp_path / "all" / "report.md").read_text()
    assert "| measure | one/run | two/run |" in text
    assert "100 % of votes for the model after" in text.partition("## Which responses people prefer")[2]
    assert "rated/summary/report.html" in text
    with pytest.raises(InputError, match="^folders: no two of these are runs of `measure` with metrics in common"):
        report(ReportSettings(folders=[runs[0], rated], output_dir=tmp_path / "one"))


@pytest.mark.parametrize(
    ("folders", "told"),
    [((), "FOLDER"), (("nowhere",), "nowhere has no finished run"), ((0, 0), "repeated")],
)
def test_what_cannot_be_reported_is_refused(runs, tmp_path, folders, told):
    found = [runs[it] if isinstance(it, int) else tmp_path / it for it in folders]
    with pytest.raises(InputError, match=f"^folders: .*{told}"):
        report(ReportSettings(folders=found))
