"""Costs in a report: likelihoods under the base model, shifts of style clusters, the decoding."""

import math
from dataclasses import replace

from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.page import likelihoods_under_base
from evenhand.evaluation.families.generation_bias.report.sections import report_page, text
from evenhand.evaluation.families.generation_bias.report.tables import cost_table, largest_style_shift
from evenhand.evaluation.families.generation_bias.report.warnings import warnings
from evenhand.evaluation.results import find_score
from tests.evaluation.families.generation_bias.conftest import score


def with_costs(tuned, relevance_kept=0.51, drift=0.24, sympathy=0.028):
    share = {"before": 0.13, "after": sympathy}
    clusters = {side: [score("style_share", value, cluster="SYMPATHY")] for side, value in share.items()}
    changes = [
        score("relevance_difference", -0.1),
        score("relevance_kept", relevance_kept, (0.4, 0.64), ideal=1.0),
        score("style_drift", drift, (drift - 0.01, drift + 0.01)),
        score("response_perplexity_rise", 0.07, (0.06, 0.08)),
        score("distinct_responses_kept", math.nan, ideal=1.0, reason="nothing"),
        score("relevance", 0.2, (0.1, 0.3), ideal=None, run="before"),
        score("relevance", 0.1, (0.05, 0.15), ideal=None, run="after"),
    ]
    before = [*tuned.scores_before, *clusters["before"], score("relevance", 0.2, ideal=None)]
    after = [*tuned.scores_after, *clusters["after"], score("relevance", 0.9, ideal=None)]
    return replace(
        tuned,
        scores_before=likelihoods_under_base(before, changes, "before"),
        scores_after=likelihoods_under_base(after, changes, "after"),
        differences=[*tuned.differences, *changes],
        decoding="decoding: sample",
    )


def test_likelihood_metrics_are_under_the_base_model(tuned):
    content = with_costs(tuned)
    row = content.overall("relevance")
    assert (row.before.value, row.after.value, row.difference.value) == (0.2, 0.1, -0.1)
    assert find_score(content.scores_after, "relevance").interval == (0.05, 0.15)
    assert likelihoods_under_base([score("relevance", 0.9)], [], "after") == []


def test_the_cost_table_has_the_changes(tuned):
    rows = {
        row.label: [f"{cell.text} {cell.interval}".strip() for cell in row.cells]
        for row in cost_table(with_costs(tuned)).rows
    }
    assert rows["relevance kept, %"] == ["", "", "51.0 [40.0, 64.0]"]
    assert rows["style drift, %"] == ["", "", "24.0 [23.0, 25.0]"]
    assert rows["distinct responses kept, %"][2] == "undefined"
    assert rows["relevance, nats"] == ["0.200 [0.100, 0.300]", "0.100 [0.050, 0.150]", "−0.100"]


def test_large_style_shifts_have_a_warning_and_the_largest_is_always_named(tuned):
    content = with_costs(tuned)
    (warning,) = [it for it in warnings(content) if "SYMPATHY" in it]
    assert "13.0" in warning and "2.8" in warning
    small = with_costs(tuned, sympathy=0.09)
    assert not [it for it in warnings(small) if "SYMPATHY" in it]
    assert largest_style_shift(small).label == "SYMPATHY"
    section = next(part for part in report_page(small).sections if "cost" in part.title.lower())
    assert any("SYMPATHY" in str(sentence) and "9.0" in str(sentence) for sentence in section.sentences)


def test_costs_beyond_the_limits_have_warnings(tuned):
    beyond = " ".join(warnings(with_costs(tuned)))
    assert "51" in beyond and "24.0" in beyond and "7.0" not in beyond
    within = " ".join(warnings(with_costs(tuned, relevance_kept=0.9, drift=0.05)))
    assert "relevance" not in within and "drifted" not in within


def test_the_headline_names_the_decoding(tuned):
    assert report_page(with_costs(tuned)).headline_caption.endswith("; decoding: sample")
    config = replace(MeasureConfig().decoding, arguments={"temperature": 0.7})
    assert text.decoding(config.title()) == "decoding: sample, temperature 0.7"
