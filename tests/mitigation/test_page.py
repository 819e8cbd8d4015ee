"""A tuning run's part of a report: its curves, its method, and what the model does without its tag."""

import json
import math
from dataclasses import replace

import pytest

from evenhand.evaluation.report.html import page_html
from evenhand.mitigation.page import tag_note, training_section, tuning_method
from tests.evaluation.report.test_page import PAGE
from tests.named_scores import named_score


@pytest.fixture
def model(tmp_path):
    (tmp_path / "evenhand.json").write_text(json.dumps({"method": "control_tags", "control_tag": " no_bias"}))
    return str(tmp_path)


def pooled(value, interval=None, reason=None):
    return named_score("fgb_pooled_corrected", value, 0.0, (-1.0, 2.0), 8, interval, reason=reason)


def test_the_curves_are_drawn(tmp_path, browser):
    curves = {
        "train_loss": [[10, 2.5], [20, 1.5]],
        "validation_loss": [[10, math.nan], [20, 1.6]],
        "bias": [[0, 0.0101], [20, 0.002]],
    }
    (tmp_path / "curves.json").write_text(json.dumps(curves))
    section = training_section(tmp_path)
    assert len(section.figures) == 2  # the losses; the bias
    assert "nan" not in section.figures[0].svg
    assert browser.faults(page_html(replace(PAGE, sections=[section]))) == []


def test_tags_and_methods_of_a_tuning(tmp_path, model):
    assert tuning_method(str(tmp_path / "other")) == tag_note(str(tmp_path / "other")) == tag_note("some/model") == ""
    assert tuning_method(model) == "control_tags"
    assert '" no_bias"' in tag_note(model) and "Measured" not in tag_note(model)
    text = tag_note(model, pooled(0.0158, (0.0145, 0.0170)), pooled(0.01))
    assert text.endswith("pooled FGB* 15.80 [14.50, 17.00] thousandths, against 10.00 thousandths before tuning.")
    activated = {"method": "control_tags", "control_tag": " no_bias", "is_activated": True}
    (tmp_path / "evenhand.json").write_text(json.dumps(activated))
    assert "is the original, token by token" in tag_note(model) and "more biased" not in tag_note(model)


def test_an_undefined_bias_without_the_tag_has_its_reason(model):
    assert "undefined: no responses" in tag_note(model, pooled(math.nan, reason="no responses"), pooled(0.01))
