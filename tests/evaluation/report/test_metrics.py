"""The registry of metrics: every metric that a family writes is declared once, and derived names are understood."""

import pytest

from evenhand.evaluation import families
from evenhand.evaluation.report.metrics import Metric, glossary, metric_of


def test_every_family_declares_metrics_with_a_description():
    for family in families.names():
        declared = families.metrics_of(family).METRICS
        assert declared
        assert all(metric.description.endswith(".") and metric.label for metric in declared)


def test_a_record_converts_to_its_unit():
    metric = Metric("m", "M", "A metric.", unit="%", factor=100, decimals=1, ideal=0.5)
    assert (metric.title, metric.reported_ideal) == ("M, %", 50)
    assert metric.text(0.1234) == "12.3"
    assert metric.interval_text((0.1, 0.2)) == "[10.0, 20.0]"
    assert metric.interval_text(None) == ""


def test_derived_scores_inherit_the_record_of_their_metric():
    metric = metric_of("fgb_pooled_corrected")
    difference = metric_of("fgb_pooled_corrected_difference")
    assert (difference.label, difference.factor, difference.ideal) == (metric.label, 1000, 0)
    assert difference.text(0.001) == "+1.00"
    assert metric_of("cps_difference_detectable").text(2.0) == "2.0"
    assert metric_of("fgb_reduction").text(0.8) == "80"


def test_an_undeclared_metric_raises():
    with pytest.raises(KeyError, match="no_such_metric"):
        metric_of("no_such_metric")


def test_a_glossary_has_each_label_once():
    entries = glossary(["embedding_gap", "embedding_gap_holm", "embedding_similarity"])
    assert [label for label, _ in entries] == ["gap", "cosine"]
