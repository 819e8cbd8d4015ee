"""`plan` prints the designs that reach the goals, from the tables of a finished run."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.service import load_requests
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.answers import read_answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import REQUESTED_EFFECTS
from evenhand.evaluation.metrics.generation_bias.measurement_prompts import shipped_numbers
from evenhand.evaluation.metrics.generation_bias.pilot import read_pilot
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.runs.record import read_record, write_record
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.person_pairs import pooled_spread
from evenhand.evaluation.statistics.sample_size import interval_width, smallest_design
from evenhand.recipes.command_settings import PlanSettings
from evenhand.recipes.plan import narrower, narrower_text, plan
from tests.measured_runs import write_measured

HALF = 40  # responses to each of two descriptors


@pytest.fixture
def run(tmp_path):
    """Descriptor a gets style x in about 3 of 4 responses, b in 1 of 4."""
    rng = np.random.default_rng(0)
    share = np.repeat([0.75, 0.25], HALF)
    styles = np.eye(3)[(rng.random(2 * HALF) > share).astype(int)]
    return write_measured(tmp_path / "run", styles.tolist(), ["ok"] * (2 * HALF), templates=10)


def test_the_designs_for_half_of_the_interval_and_for_a_reduction(run, capsys):
    plan(PlanSettings(run=run))
    plan(PlanSettings(run=run, reduction=50))
    lines = capsys.readouterr().out.splitlines()
    styled = read_answers(run)
    codes = (to_codes(styled.table[name]) for name in ("template", "descriptor"))
    assert f"pooled FGB* {1000 * pooled_spread(arrange_cells(styled.values, *codes)).value:.2f}" in lines[0]
    assert [line.split()[:4] for line in lines if line.split()[:1] == ["this"]] == [["this", "run", "2", "10"]] * 2
    found = [line.split() for line in lines if line.split()[:1] == ["responses"]]
    assert int(found[0][3]) > HALF / 10 and sum(line.startswith("A ") for line in lines) == 2


def test_a_goal_is_printed_as_it_is_given(run, capsys):
    plan(PlanSettings(run=run, interval=0.001))
    plan(PlanSettings(run=run, reduction=0.25))
    goals = [line for line in capsys.readouterr().out.splitlines() if line.startswith("A ")]
    assert goals[0].startswith("A 95 % interval of width 0.001 (now ")
    assert goals[1].startswith("A reduction by 0.25 % ")


def test_a_plan_is_of_the_answers_whose_styles_the_report_shows(run, capsys):
    """Two of 40 answers to a are in Spanish, as are their styles; a design counts all answers that are asked."""
    whole = read_pilot(run)
    is_other = np.arange(2 * HALF) % 20 == 0
    is_other[HALF:] = False
    values = {"prompt_id": [f"p{i}" for i in range(2 * HALF)], "other_language: other_language": is_other.astype(float)}
    pd.DataFrame(values).to_parquet(run / "outcomes.parquet")
    effect = {"kind": "descriptor", "outcome": "style", "name": "x", "unit": "a", "average": 0.5}
    pd.DataFrame([effect | {"detectable": 0.1}]).to_parquet(run / "effects.parquet")
    assert read_pilot(run) == whole
    pd.DataFrame([effect | {"detectable": 0.2}]).to_parquet(run / f"{REQUESTED_EFFECTS}.parquet")
    styled = read_answers(run)
    codes = (to_codes(styled.table[name])[~is_other] for name in ("template", "descriptor"))
    pilot = read_pilot(run)
    assert pilot.estimate.value == pooled_spread(arrange_cells(styled.values[~is_other], *codes, min_count=1)).value
    assert (pilot.design.n, pilot.design.templates, pilot.design.descriptors) == (2 * HALF, 10, 2)
    plan(PlanSettings(run=run))
    first, *lines = capsys.readouterr().out.splitlines()
    assert "of the answers in the language of the request" in first
    (this,) = [line.split() for line in lines if line.split()[:2] == ["this", "run"]]
    assert this[-1] == "20.0"


def test_a_plan_has_no_more_templates_and_people_than_the_shipped_set(run):
    """The paper has 26 templates and 594 descriptors; those of the run, a and b, t0 to t9, are not of it."""
    read = PromptSettings(), PromptSettings(filters={"axis": ["age"]}), PromptSettings(cues=["mention", "profile"])
    shipped = pd.DataFrame({"template": ["I'm {noun_phrase}."], "descriptor": ["hard-of-hearing"]})
    of_age = shipped.assign(descriptor="80-year-old")
    requests = shipped.assign(template=f"profile: {load_requests()[0]}")
    found = [shipped_numbers(settings, rows) for settings, rows in zip(read, (shipped, of_age, requests), strict=True)]
    assert found[0] == {"templates": 26, "descriptors": 594} and found[2] == {"templates": 120, "descriptors": 594}
    assert found[1]["templates"] == 26 and found[1]["descriptors"] < 100
    assert read_pilot(run).limits == {}

    pilot = read_pilot(run)
    half = interval_width(pilot.estimate) / 2
    needed, enough, too_few = (
        smallest_design(replace(pilot, limits=limits), "templates", lambda found: interval_width(found) <= half)
        for limits in ({}, {"templates": 100}, {"templates": 11})
    )
    assert needed is not None and 11 < needed.templates < 100 and enough == needed and too_few is None


def test_how_long_the_answers_of_a_file_took_is_unknown(run, capsys):
    record = read_record(run, "run")
    record["settings"]["responses"] = "answers.csv"
    write_record(run, record)
    plan(PlanSettings(run=run))
    lines = capsys.readouterr().out.splitlines()
    (this,) = [line.split() for line in lines if line.split()[:2] == ["this", "run"]]
    assert this[6] == "–"


def test_a_design_has_no_more_answers_than_there_are_where_some_pairs_have_none(tmp_path, capsys):
    """Of 20 pairs of descriptor and template, one has no answer; the others have twelve."""
    rng = np.random.default_rng(0)
    styles = np.eye(3)[rng.integers(0, 2, 240)]
    styles[np.arange(240) % 120 % 10 == 0] = np.nan  # both people's answers to the first template
    styles[:120:10] = np.eye(3)[0]
    folder = write_measured(tmp_path / "run", styles.tolist(), ["ok"] * 240, templates=10)
    design = read_pilot(folder).design
    assert (design.n, design.responses, design.share_of_pairs) == (228, 12, pytest.approx(19 / 20))
    record = read_record(folder, "run")
    record["seconds"]["total"] = 600.0
    write_record(folder, record)
    plan(PlanSettings(run=folder))
    printed = capsys.readouterr().out
    (this,) = [line.split() for line in printed.splitlines() if line.split()[:2] == ["this", "run"]]
    assert this[5:7] == ["228", "10.0"]  # also the 12 answers without a style took their time
    assert "95 %" in printed and "228" in printed


def test_a_plan_for_evenness_counts_answers_with_a_style(tmp_path, capsys):
    """The bound falls with the root of the answers: from 20 to 10 points takes four times as many, 4 · 228."""
    rng = np.random.default_rng(0)
    styles = np.eye(3)[rng.integers(0, 2, 240)]
    styles[:12] = np.nan
    folder = write_measured(tmp_path / "run", styles.tolist(), ["ok"] * 240, templates=10)
    effect = {"kind": "descriptor", "outcome": "style", "name": "x", "unit": "a", "average": 0.5, "detectable": 0.1}
    effect |= {"effect": 0.0, "shrunk": 0.0, "at_most": 0.2, "certainty": "inconclusive"}
    pd.DataFrame([effect]).to_parquet(folder / "effects.parquet")
    plan(PlanSettings(run=folder, max_difference=10))
    assert "912" in capsys.readouterr().out
    plan(PlanSettings(run=folder, max_difference=30))  # 101 would be enough, and there are 228
    assert "the 228 responses of this run with a style show it" in capsys.readouterr().out


def test_a_run_without_an_interval_or_without_bias_has_no_plan(tmp_path):
    single = write_measured(tmp_path / "single", np.eye(3)[[0, 1]].tolist(), ["ok"] * 2)
    with pytest.raises(InputError, match="^run: "):
        plan(PlanSettings(run=single))
    alike = write_measured(tmp_path / "alike", np.eye(3)[[0] * 16].tolist(), ["ok"] * 16, templates=4)
    with pytest.raises(InputError, match="^run: .* read whether all answers are alike"):
        plan(PlanSettings(run=alike))
    rng = np.random.default_rng(0)
    even = write_measured(tmp_path / "even", np.eye(3)[rng.integers(0, 2, 64)].tolist(), ["ok"] * 64, templates=8)
    with pytest.raises(InputError, match="^reduction: "):
        plan(PlanSettings(run=even, reduction=50))


def test_half_the_interval_costs_in_proportion_to_the_answers(run):
    """The time of a run of n answers is n times the time of one; the cheapest of more people and more answers."""
    record = read_record(run, "run")
    record["seconds"]["total"] = 600.0
    write_record(run, record)
    found = narrower(run).values
    width = interval_width(read_pilot(run).estimate)
    designs = [
        smallest_design(read_pilot(run), lever, lambda estimate: interval_width(estimate) <= width / 2)
        for lever in ("descriptors", "responses")
    ]
    assert found["n"] == min(round(design.n) for design in designs if design is not None) > 2 * HALF
    assert found["seconds"] == pytest.approx(600 * found["n"] / (2 * HALF))


def test_the_command_that_follows_a_run_is_one_that_a_shell_takes_as_it_stands(run):
    assert narrower_text(run.rename(run.with_name("a; b"))).endswith(f": evenhand plan '{run.with_name('a; b')}'")
