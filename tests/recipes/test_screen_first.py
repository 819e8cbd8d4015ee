"""`measure --screen`: the screen is a run of its own, made first and once, and the report shows what it found."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.screen.divergences import DIVERGENCES, ranks_of_people
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.score import read_scores
from evenhand.recipes.command_line import parse
from evenhand.recipes.command_settings import ReportSettings
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.measure import answers_after_screen, measure, pages, screen_before
from evenhand.recipes.point import plan_points
from evenhand.recipes.report import report
from evenhand.recipes.settings import MeasureSettings, ScreenSettings
from evenhand.recipes.tuning_settings import LoopSettings
from tests.testbed_settings import MEASURE, MODEL, generation_bias

TESTED = ("effect", "difference_bound")  # the scores of effects
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


@pytest.fixture(scope="module")
def with_more(settings, tmp_path_factory):
    """A run in which the tenth of the people whom the screen ranks first get four answers, and others one."""
    run = settings.replaced(first_answers=4, output_dir=tmp_path_factory.mktemp("more") / "run")
    measure(run, show=False)
    return run


def test_the_first_people_of_the_screen_get_more_answers(settings, measured, with_more):
    folder = with_more.output_dir
    ranked = pd.read_parquet(folder.with_name("run-screen") / "ranks.parquet")["descriptor"]
    first = ranked.head(2).tolist()  # the tenth of 13 people
    recorded, _ = read_measurement(folder, "run")
    assert recorded.prompts.more_answers == dict.fromkeys(first, 4)
    asked = pd.read_parquet(folder / "extra_prompts.parquet")
    answered = pd.read_parquet(folder / "extra_responses.parquet")
    axes = pd.read_parquet(folder / "prompts.parquet").drop_duplicates(["descriptor", "axis"])
    n_cells = 2 * axes["descriptor"].isin(first).sum()  # two templates
    assert len(asked) == len(answered) == 3 * n_cells
    assert asked.groupby(["template", "axis", "descriptor"]).size().tolist() == [3] * n_cells
    assert not set(asked["prompt_id"]) & set(pd.read_parquet(folder / "prompts.parquet")["prompt_id"])
    for name in ("prompts", "responses", "styles", "outcomes"):  # what everybody has is as without more answers
        both = [pd.read_parquet(path / f"{name}.parquet") for path in (measured, folder)]
        pd.testing.assert_frame_equal(*both)


def test_more_answers_count_in_effects_and_in_nothing_else(measured, with_more):
    runs = (measured, with_more.output_dir)
    first = list(read_measurement(with_more.output_dir, "run")[0].prompts.more_answers)
    counts = []
    for folder in runs:
        effects = pd.read_parquet(folder / "effects.parquet")
        of_people = effects[effects["kind"] == "descriptor"].drop_duplicates("unit").set_index("unit")["n"]
        counts.append(of_people.sort_index())
    assert (counts[1][first] > counts[0][first]).all()
    assert counts[1].drop(first).equals(counts[0].drop(first))
    levels = []
    for folder in runs:
        scores = [score for score in read_scores(folder / "scores.json") if score.metric not in TESTED]
        levels.append({(score.name, str(score.group)): score.value for score in scores})
    assert levels[0] == pytest.approx(levels[1], nan_ok=True)
    assert len(levels[0]) > 20


def test_the_style_effects_are_means_of_cells_with_equal_weights(with_more):
    folder = with_more.output_dir
    styles = list(pd.read_parquet(folder / "styles.parquet").columns[1:6])
    parts = []
    for prefix in ("", "extra_"):
        prompts = pd.read_parquet(folder / f"{prefix}prompts.parquet")[["template", "descriptor"]]
        parts.append(prompts.join(pd.read_parquet(folder / f"{prefix}styles.parquet")[styles]))
    cells = pd.concat(parts).groupby(["template", "descriptor"])[styles].mean()
    centred = cells - cells.groupby("template").transform("mean")
    expected = centred.groupby("descriptor").mean()
    table = pd.read_parquet(folder / "effects.parquet")
    table = table[(table["kind"] == "descriptor") & table["name"].isin(styles)]
    found = table.pivot_table(index="unit", columns="name", values="effect")[styles]
    np.testing.assert_allclose(found.sort_index(), expected.sort_index(), atol=1e-6)


def test_the_same_command_goes_on_and_a_record_gives_the_same_people(with_more):
    started = read_record(with_more.output_dir, "output_dir")["started"]
    measure(with_more, show=False)
    assert read_record(with_more.output_dir, "output_dir")["started"] == started
    given = parse(["measure", "--config", str(with_more.output_dir)])
    more = read_measurement(with_more.output_dir, "run")[0].prompts.more_answers
    assert given.prompts.more_answers == more
    others = with_more.replaced(prompts=with_more.prompts.replaced(more_answers={"deaf": 2}))
    assert answers_after_screen(others, with_more.output_dir) == {"deaf": 2}  # not of this model's screen


def test_a_loop_measures_with_the_numbers_of_its_run_and_trains_on_equal_ones(with_more, tmp_path):
    prompts = with_more.prompts.replaced(more_answers={"deaf": 4})
    measurement = MEASURE.replaced(prompts=prompts)
    loop = LoopSettings(measure=measurement, methods=["exchange"], output_dir=tmp_path, report_to="none")
    (point,) = plan_points(loop, "exchange", lambda name, command, stage: tmp_path / name)
    assert point.before.prompts.more_answers == point.after.prompts.more_answers == {"deaf": 4}
    assert point.train.prompts.more_answers is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"screen_first": False}, "first_answers"),
        ({"first_answers": 1}, "first_answers"),
        ({"generation_bias": generation_bias(until="decided")}, "first_answers"),
        ({"generation_bias": generation_bias(accepted="accepted.yaml")}, "first_answers"),
        ({"prompts": {"templates": "templates.txt", "people": "people.txt"}}, "first_answers"),
        ({"prompts": {"more_answers": {"deaf": 2}}}, "more_answers"),
    ],
)
def test_where_more_answers_cannot_be_given(settings, changes, field):
    with pytest.raises(ValidationError, match=field):
        settings.replaced(**{"first_answers": 4, **changes})


def test_numbers_of_answers_are_fixed_before_the_first_answer(settings, tmp_path):
    run = settings.replaced(screen_first=False, output_dir=tmp_path / "run")
    prompts = run.prompts.replaced(more_answers={"deaf": 4})
    looked = run.replaced(prompts=prompts, generation_bias=generation_bias(until="decided"))
    with pytest.raises(InputError, match="until"):
        measure(looked)
    unknown = run.replaced(prompts=run.prompts.replaced(more_answers={"nobody at all": 4}))
    with pytest.raises(InputError, match=r"prompts.more_answers"):
        measure(unknown)
    assert not (tmp_path / "run").exists()


def test_the_flag_and_where_it_cannot_be_used(tmp_path):
    assert parse(["measure", "--config", "testbed", "--screen"]).screen_first
    assert not parse(["measure", "--config", "testbed"]).screen_first
    with pytest.raises(ValidationError, match="screen_first"):
        MeasureSettings(model=MODEL, metrics=["screen"], screen_first=True)
    with pytest.raises(ValidationError, match="screen_first"):
        MeasureSettings(responses=str(tmp_path / "answers.csv"), screen_first=True)
