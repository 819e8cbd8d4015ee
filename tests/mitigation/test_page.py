"""A tuning run's part of a report: its curves, its method, and what the model does without its tag."""

import json
import math
from dataclasses import replace

import pytest

from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.score import BiasScore
from evenhand.mitigation.page import tag_note, training_charts, training_section, tuning_method
from tests.evaluation.report.test_page import PAGE


@pytest.fixture
def model(tmp_path):
    (tmp_path / "evenhand.json").write_text(json.dumps({"method": "control_tags", "control_tag": " no_bias"}))
    return str(tmp_path)


def pooled(value, interval=None, reason=None):
    return BiasScore("fgb_pooled_corrected", value, 0.0, (-1.0, 2.0), 8, interval, reason=reason)


def test_the_curves_are_drawn_and_stand_in_a_table(tmp_path, browser):
    curves = {"train_loss": [[10, 2.5], [20, 1.5]], "validation_loss": [[20, 1.6]], "bias": [[0, 0.0101], [20, 0.002]]}
    (tmp_path / "curves.json").write_text(json.dumps(curves))
    section = training_section(tmp_path)
    assert len(section.figures) == 2  # the losses; the bias
    (table,) = section.parts[0].tables
    assert [[row.label, *(cell.text for cell in row.cells)] for row in table.rows] == [
        ["0", "", "", "10.100"],
        ["20", "1.500", "1.600", "2.000"],
    ]
    assert browser.faults(page_html(replace(PAGE, sections=[section]))) == []


def test_tags_and_methods_of_a_tuning(tmp_path, model):
    assert tuning_method(str(tmp_path / "other")) == tag_note(str(tmp_path / "other")) == tag_note("some/model") == ""
    assert tuning_method(model) == "control_tags"
    assert '" no_bias"' in tag_note(model) and "Measured" not in tag_note(model)
    text = tag_note(model, pooled(0.0158, (0.0145, 0.0170)), pooled(0.01))
    assert text.endswith("pooled FGB* 15.80 [14.50, 17.00] ×10⁻³, against 10.00 ×10⁻³ before tuning.")
    assert "undefined: no responses" in tag_note(model, pooled(math.nan, reason="no responses"), pooled(0.01))


def test_training_charts_skip_undefined_values():
    (chart,) = training_charts([(10, 2.5), (20, 1.50)], [(10, float("nan")), (20, 1.51)])
    lines = {line.get_label(): line.get_xydata().tolist() for line in chart.axes[0].lines}
    assert lines == {"train": [[10, 2.5], [20, 1.5]], "validation": [[20, 1.51]]}
    assert [it.get_text() for it in chart.axes[0].get_legend().get_texts()] == ["train", "validation"]
    assert "nan" not in svg(chart)
