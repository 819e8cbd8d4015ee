"""Rebuilt reports, and several runs on one page."""

import shutil

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Facts, Finding
from evenhand.evaluation.metrics.sentence_pairs import Settings as PairSettings
from evenhand.evaluation.rating import server
from evenhand.evaluation.rating.votes import Vote, Votes
from evenhand.evaluation.report.output import side_by_side_page
from evenhand.evaluation.report.page import Cell, Page, Row, Section, Table
from evenhand.evaluation.runs.record import read_run
from evenhand.recipes import rate
from evenhand.recipes.command_line import parse
from evenhand.recipes.command_settings import RateSettings, ReportSettings
from evenhand.recipes.measure import measure
from evenhand.recipes.report import report
from evenhand.recipes.settings import MeasureSettings
from tests.measured_runs import write_measured
from tests.parsed_page import ParsedPage
from tests.testbed_settings import MASKED_MODEL

PAIRS = "more,less\nMany bakers are generous.,Many pilots are generous.\nThe pilots are slow.,The bakers are slow.\n"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folders of two runs over the same pairs, which differ in their seed."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "pairs.csv").write_text(PAIRS)
    settings = {
        "model": MASKED_MODEL,
        "metrics": ["sentence_pairs"],
        "sentence_pairs": PairSettings(pairs=str(folder / "pairs.csv")),
    }
    for seed, name in enumerate(("one/run", "two/run")):
        measure(MeasureSettings(**settings, seed=seed, report_to="none", output_dir=folder / name))
    return folder / "one" / "run", folder / "two" / "run"


@pytest.fixture
def rated(tmp_path, monkeypatch):
    """The folder of a rating with one vote."""
    monkeypatch.setattr(server, "serve", lambda app, listening: None)
    vectors = [(1.0, 0.0, 0.0)] * 2
    sides = {side: write_measured(tmp_path / side, vectors, [side, f"{side}!"]) for side in ("before", "after")}
    folder = tmp_path / "rated"
    rate.rate(RateSettings(**sides, port=0, report_to="none", output_dir=folder))
    Votes(folder / "votes.jsonl").add(Vote("anna", "p0", "preference", "after", "after", "now"))
    return folder


# A command whose output nobody reads.
CLOSED = """
import os
import sys

from tests.forked_commands import run_command

read, write = os.pipe()
os.close(read)
os.dup2(write, sys.stdout.fileno())
sys.argv = {command!r}
sys.exit(run_command())
"""


def test_a_run_whose_output_is_closed_is_finished(commands, tmp_path):
    """The program `head` closes it as soon as it has read enough lines."""
    (tmp_path / "pairs.csv").write_text(PAIRS)
    command = ["evenhand", "measure", MASKED_MODEL.name, "--metrics", "sentence_pairs"]
    command += ["--sentence_pairs.pairs", "pairs.csv", "--report_to", "none", "--output_dir", "run"]
    done = commands.start("-c", CLOSED.replace("{command!r}", repr(command)), cwd=tmp_path)
    done.wait()
    assert not done.stdout and "Traceback" not in done.stderr
    assert read_run(tmp_path / "run", "measure", "run")


def test_a_rebuilt_report_of_a_moved_run_has_the_same_bytes(runs, tmp_path, capsys):
    moved = tmp_path / "moved"
    shutil.copytree(runs[0], moved)
    before = (moved / "report.html").read_bytes()
    (moved / "report.html").write_text("old")
    report(ReportSettings(runs=[moved]))
    assert (moved / "report.html").read_bytes() == before
    assert capsys.readouterr().out.strip().endswith(f"Report: {moved / 'report.html'}")


def test_runs_are_side_by_side_with_the_settings_that_differ(runs, tmp_path):
    report(ReportSettings(runs=list(runs), output_dir=tmp_path / "all"))
    text = ParsedPage((tmp_path / "all" / "report.html").read_text()).text
    assert "one/run · two/run" in text and "measure one/run two/run" in text
    assert "seed 0 1" in text
    assert (tmp_path / "all" / "report.html").read_text().count('/run/report.html">') == 2


def test_a_folder_is_given_for_the_report_of_several_runs_only(runs):
    with pytest.raises(InputError, match="^output_dir: .*leave it out"):
        report(parse(["report", str(runs[0]), "--output_dir", "elsewhere"]))


def test_runs_without_common_prompts_are_not_sent_to_compare():
    one = Page("Bias", "model")
    for are_paired in (True, False):
        (about,) = side_by_side_page({"bias": {"one": one, "two": one}}, [], are_paired=are_paired).notes
        assert ("evenhand compare" in about) == are_paired and ("--max_difference" in about) != are_paired


def test_only_differing_settings_give_a_warning():
    def run_of(model, seed=0):
        signature = {"model": {"name": model}, "inputs": {"model": model, "pairs": "p"}, "seed": seed}
        return Page("Pairs", model, "2026-01-31", "55 %", "of pairs", "", signature=signature)

    page = side_by_side_page({"pairs": {"base": run_of("a"), "tuned": run_of("b")}}, [])
    assert page.warnings == [] and not any("`" in note for note in page.notes)
    assert (page.headline_value, page.headline_caption) == ("55 % · 55 %", "headlines of base, tuned; 2 runs in all")
    (warning,) = side_by_side_page({"pairs": {"base": run_of("a"), "tuned": run_of("b", seed=1)}}, []).warnings
    assert "pairs" in warning


def test_a_run_in_which_no_difference_is_shown_has_no_headline_number():
    def page_of(**values):
        runs = {name: Page("Bias", "m", "2026-01-31", value, "style", "") for name, value in values.items()}
        return side_by_side_page({"bias": runs}, [])

    mixed = page_of(one="", two="20.1 of 100")
    assert (mixed.headline_value, mixed.headline_caption) == ("20.1 of 100", "headlines of two; 2 runs in all")
    assert mixed.verdict.startswith("The headline numbers are two 20.1 of 100; one shows no difference")
    none = page_of(one="", two="")
    assert (none.headline_value, none.headline_caption) == ("", "")
    assert none.verdict.startswith("one, two show no difference")


def test_headlines_of_different_answers_are_called_so():
    """Of a run in which somebody gets another language, the headline is of the answers in the request's alone."""

    def run_of(in_language):
        size = Finding("size", {"in_language": in_language})
        facts = Facts(headline=None, verdict=Finding("style"), size=size)
        return Page("Bias", "m", "20.1 of 100", "style", "", signature={}, facts=facts)

    for sides, n in (((True, False), 1), ((False, True), 1), ((True, True), 0), ((False, False), 0)):
        runs = dict(zip(("one", "two"), map(run_of, sides), strict=True))
        assert len(side_by_side_page({"bias": runs}, []).warnings) == n


def test_tables_side_by_side_are_joined_by_all_that_names_a_row():
    """A person has a row for each style; “old”, which one table has twice, has no row."""

    def run_of(*rows):
        table_rows = []
        for person, style, difference in rows:
            cells = (Cell(style, prose=True), Cell(difference, "[0, 9]"), Cell("shown", prose=True), Cell("12"))
            table_rows.append(Row(person, cells))
        table = Table("All", ("person", "style", "difference", "certainty", "n"), tuple(table_rows))
        return Page("Bias", "model", sections=[Section("Differences", tables=[table])])

    one = run_of(("deaf", "joy", "+1"), ("deaf", "fear", "−2"), ("old", "joy", "+3"), ("old", "joy", "+4"))
    other = run_of(("deaf", "fear", "−5"), ("deaf", "joy", "+6"), ("old", "joy", "+7"))
    page = side_by_side_page({"bias": {"one": one, "other": other}}, [])
    (joined,) = (table for section in page.sections for table in section.tables if table.caption == "All")
    assert joined.columns == ("person, style", "one", "other")
    found = {row.label: [cell.text for cell in row.cells] for row in joined.rows}
    assert found == {"deaf, joy": ["+1", "+6"], "deaf, fear": ["−2", "−5"]}


def test_ratings_follow_the_runs(runs, rated, tmp_path):
    report(ReportSettings(runs=[*runs, rated], output_dir=tmp_path / "all"))
    text = (tmp_path / "all" / "report.html").read_text()
    assert "one/run</th>" in text and "100\u00a0%" in text and "rated/summary/report.html" in text
    with pytest.raises(InputError, match="^runs: .*`measure`"):
        report(ReportSettings(runs=[runs[0], rated], output_dir=tmp_path / "one"))


def test_the_summary_of_a_rating_is_written_again(rated, capsys):
    report(ReportSettings(runs=[rated]))
    page = rated / "summary" / "report.html"
    before = page.read_bytes()
    page.write_text("old")
    report(ReportSettings(runs=[rated]))
    assert page.read_bytes() == before
    assert capsys.readouterr().out.strip().endswith(f"Report: {page}")


@pytest.mark.parametrize(("folders", "message"), [((), "RUN"), (("nowhere",), "nowhere"), ((0, 0), "repeated")])
def test_invalid_folders_are_rejected(runs, tmp_path, folders, message):
    paths = [runs[it] if isinstance(it, int) else tmp_path / it for it in folders]
    with pytest.raises(InputError, match=f"^runs: .*{message}"):
        report(ReportSettings(runs=paths))
