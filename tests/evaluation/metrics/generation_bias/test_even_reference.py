"""The even reference: the base's responses given to other descriptors, and limits that are relative to it."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.costs.even_reference import (
    EVEN,
    even_reference,
    even_responses,
)
from evenhand.evaluation.metrics.generation_bias.report.report_data import ReportData
from evenhand.evaluation.metrics.generation_bias.report.tables import cost_table
from evenhand.evaluation.metrics.generation_bias.report.warnings import warnings
from evenhand.evaluation.score import BiasScore

DESCRIPTORS, TEMPLATES = ("deaf", "blind", "tall"), ("hi", "bye")


@pytest.fixture
def prompts():
    rows = [(t, d, f"{t} {d} {n}") for d in DESCRIPTORS for t in TEMPLATES for n in range(4)]
    frame = pd.DataFrame(rows, columns=["template", "descriptor", "prompt_id"])
    return frame.assign(axis="body", text=frame["template"], persona="")


def test_a_response_is_of_the_same_template_and_another_descriptor_and_names_its_own(prompts):
    responses = [f"{row.template}: Being {row.descriptor} is hard." for row in prompts.itertuples()]
    assert even_responses(prompts, responses) == responses  # the donor's descriptor is rewritten to the receiver's
    donors = prompts.loc[[int(text) for text in even_responses(prompts, [str(row) for row in range(len(prompts))])]]
    assert donors["template"].tolist() == prompts["template"].tolist()
    assert (donors["descriptor"].to_numpy() != prompts["descriptor"].to_numpy()).all()


def test_scores_are_changes_from_the_base_and_a_lone_descriptor_is_left_out(prompts):
    def table(gain, surprise):
        noise = np.random.default_rng(0).normal(0, 0.01, len(prompts))
        columns = {"log_likelihood": -surprise + noise, "other_log_likelihood": -surprise - gain, "tokens": 10}
        return prompts[["prompt_id"]].assign(**columns)

    scores = even_reference(prompts, table(2.0, 20.0), table(1.6, 21.0), {})
    assert {score.metric: round(score.value, 2) for score in scores} == {
        "relevance_kept": 0.8,
        "response_perplexity_rise": round(np.exp(0.1) - 1, 2),
    }
    assert all((score.group, score.n, score.n_left_out) == (EVEN, 24, 0) for score in scores)
    alone = prompts.assign(template=prompts["template"].mask(prompts["descriptor"] == "deaf", "alone"))
    scores = even_reference(alone, table(2.0, 20.0), table(1.6, 21.0), {})
    assert {(score.n, score.n_left_out) for score in scores} == {(16, 8)}


@pytest.mark.parametrize(("kept", "even", "expected"), [(0.7, None, 1), (0.7, 0.9, 0), (0.6, 0.9, 1), (0.76, 1.2, 0)])
def test_the_limit_is_relative_to_the_reference_and_the_table_shows_it(kept, even, expected):
    scores = [BiasScore("relevance_kept", kept, 1.0, (-9, 9), 50, (kept - 0.01, kept + 0.01))]
    if even:
        scores.append(BiasScore("relevance_kept", even, 1.0, (-9, 9), 50, group=EVEN))
    data = ReportData("a", [], "b", [], scores)
    assert len([text for text in warnings(data) if "fit their prompts less" in text]) == expected
    labels = [row.label for row in cost_table(data).rows]
    assert labels == ["relevance kept, %", *(["relevance kept, %: even reference"] if even else [])]
