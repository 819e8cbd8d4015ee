"""A labelling run's part of a report: its threshold plan, with the threshold that was taken."""

import json
from dataclasses import replace

import pytest

from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.runs.tables import write_table
from evenhand.mitigation.labelling.page import plan_section
from evenhand.mitigation.labelling.threshold_plan import fit_strength, fraction_left
from tests.evaluation.report.test_page import PAGE

from .test_plots import PLAN


@pytest.fixture
def folder(tmp_path):
    write_table(tmp_path / "threshold_plan.parquet", PLAN)
    (tmp_path / "threshold.json").write_text(json.dumps({"alpha": 0, "quantile": 0.8, "beta": 0.001}))
    return tmp_path


def test_the_plan_is_drawn_for_each_alpha_and_the_taken_threshold_pointed_out(folder):
    section = plan_section(folder)
    assert len(section.figures) == 2 and sum("chosen" in figure.svg for figure in section.figures) == 1
    (table,) = section.parts[0].tables
    assert [row.cells[-1].text for row in table.rows] == ["", "chosen", "", "", ""]
    assert table.rows[1].cells[4].text == "74 %"


def test_a_tuned_model_calibrates_the_plan(folder):
    section = plan_section(folder, left=0.4)
    (table,) = section.parts[0].tables
    bolder = fraction_left(-0.2, fit_strength(0.6, 0.4))  # the slopes of the quantiles 0.5 and 0.8
    assert [row.cells[4].text for row in table.rows[:2]] == [f"{100 * bolder:.0f} %", "40 %"]
    assert "40 %" in section.sentences[1]


def test_nothing_keeps_people_from_using_it(folder, browser):
    assert browser.faults(page_html(replace(PAGE, sections=[plan_section(folder)]))) == []
