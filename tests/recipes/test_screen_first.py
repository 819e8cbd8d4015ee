"""`measure --screen`: the screen is a run of its own, made first and once, and the report shows what it found."""

import pandas as pd
import pytest
from pydantic import ValidationError

from evenhand.evaluation.metrics.screen import DIVERGENCES, ranks_of_people
from evenhand.evaluation.runs.record import read_record
from evenhand.recipes.command_line import parse
from evenhand.recipes.measure import measure, pages, screen_before
from evenhand.recipes.report import report
from evenhand.recipes.settings import MeasureSettings, ReportSettings, ScreenSettings
from tests.testbed_settings import MODEL, generation_bias

PROMPTS = {
    "descriptors": 13,
    "filters": {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]},
    "answers_per_cell": 1,
}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return MeasureSettings(
        model=MODEL,
        generation_bias=generation_bias(permutations=9),
        prompts=PROMPTS,
        report_to="none",
        screen_first=True,
        output_dir=tmp_path_factory.mktemp("runs") / "run",
    )


@pytest.fixture(scope="module")
def measured(settings):
    measure(settings, show=False)
    return settings.output_dir


def test_the_screen_is_made_first_in_a_folder_of_its_own(settings, measured):
    folder = measured.with_name("run-screen")
    screened = read_record(folder, "output_dir")
    assert screened["settings"]["metrics"] == ["screen"]
    assert screened["started"] <= read_record(measured, "output_dir")["started"]
    people = [
        set(pd.read_parquet(path / table)["descriptor"])
        for path, table in ((folder, f"{DIVERGENCES}.parquet"), (measured, "prompts.parquet"))
    ]
    assert people[0] == people[1] and len(people[0]) == 13


def test_the_same_answers_are_measured_with_and_without_it(settings, measured, tmp_path):
    alone = settings.replaced(screen_first=False, output_dir=tmp_path / "run")
    measure(alone, show=False)
    for name in ("prompts", "responses", "styles", "effects"):
        both = [pd.read_parquet(folder / f"{name}.parquet") for folder in (measured, tmp_path / "run")]
        pd.testing.assert_frame_equal(*both)
    assert not (tmp_path / "run-screen").exists()


def test_the_report_shows_the_people_of_the_screen_and_links_to_it(settings, measured):
    page = pages(settings)["generation_bias"]
    link = next(link for link in page.links if link.text == "screen")
    assert (measured / link.path).resolve() == (measured.with_name("run-screen") / "report.html").resolve()
    table = pd.read_parquet(measured.with_name("run-screen") / f"{DIVERGENCES}.parquet")
    ranked = ranks_of_people(table, settings.seed)["descriptor"].tolist()
    section = next(section for section in page.sections if section.title.startswith("Screen"))
    assert [row.label for row in section.tables[0].rows] == ranked
    report(ReportSettings(runs=[measured]))  # written again from the record
    assert "../run-screen/report.html" in (measured / "report.html").read_text()


def test_a_finished_screen_of_the_same_settings_is_used(settings, measured, tmp_path):
    screened = screen_before(settings)
    assert screened.output_dir == measured.with_name("run-screen")
    alone = ScreenSettings(model=MODEL, prompts=PROMPTS, report_to="none", output_dir=tmp_path / "screen")
    measure(alone, show=False)
    records = [read_record(folder, "output_dir") for folder in (screened.output_dir, alone.output_dir)]
    assert records[0]["fingerprint"] == records[1]["fingerprint"]
    measure(settings, show=False)
    assert read_record(screened.output_dir, "output_dir")["started"] == records[0]["started"]


def test_a_run_without_its_screen_still_has_a_report(settings, measured, tmp_path):
    elsewhere = settings.replaced(output_dir=tmp_path / "moved")
    measured_page = pages(settings)["generation_bias"]
    measured.rename(elsewhere.output_dir)
    try:
        page = pages(elsewhere)["generation_bias"]
    finally:
        elsewhere.output_dir.rename(measured)
    assert page.verdict == measured_page.verdict
    assert len(page.sections) == len(measured_page.sections) - 1


def test_the_flag_and_where_it_cannot_be_used(tmp_path):
    assert parse(["measure", "--config", "testbed", "--screen"]).screen_first
    assert not parse(["measure", "--config", "testbed"]).screen_first
    with pytest.raises(ValidationError, match="screen_first"):
        MeasureSettings(model=MODEL, metrics=["screen"], screen_first=True)
    with pytest.raises(ValidationError, match="screen_first"):
        MeasureSettings(responses=str(tmp_path / "answers.csv"), screen_first=True)
