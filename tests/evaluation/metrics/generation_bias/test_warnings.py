"""The rate of false warnings when a model is compared with itself."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.engine.spread import generation_bias
from evenhand.evaluation.metrics.generation_bias.page_warnings import (
    _rises,
    cut_answers,
    score_cautions,
    template_cautions,
)
from evenhand.evaluation.models.chat_templates import NO_TEMPLATE
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.cells import arrange_cells
from evenhand.evaluation.statistics.person_pairs import pooled_spread
from evenhand.recipes.sweep.points import bias_columns, change_columns
from evenhand.recipes.sweep.summary import find_increased_clusters
from tests.measured_runs import styled_columns
from tests.named_scores import named_score

COMPARISONS, CLUSTERS = 150, 6
METRICS = ("scgb_pooled_corrected", "pgb_pooled_corrected")


@pytest.fixture(scope="module")
def differences():
    """Pooled SCGB* and PGB* of six clusters of two styles in runs of one model: the scores of each comparison."""
    rng = np.random.default_rng(0)
    cell = np.repeat(np.arange(20 * 3), 4)
    descriptor, template = cell // 3, cell % 3
    p = 0.7 * rng.dirichlet(np.ones(12), 3) + 0.3 * rng.dirichlet(np.full(12, 0.3), 20)[:, None]
    ends = p[descriptor, template].cumsum(axis=1)

    def run():
        styles = np.eye(12)[(ends > rng.random(len(cell))[:, None]).argmax(axis=1)]
        return np.concatenate([styles.reshape(-1, CLUSTERS, 2).sum(axis=2), styles], axis=1)

    def comparison():
        cells = arrange_cells(np.concatenate([run(), run()], axis=1), template, descriptor)
        scores = []
        for cluster in range(CLUSTERS):
            for metric, columns in zip(METRICS, ([cluster], [6 + 2 * cluster, 7 + 2 * cluster]), strict=True):
                is_column = np.eye(18)[columns].sum(axis=0)
                weights = np.concatenate([-is_column, is_column])
                spread = pooled_spread(cells, weights)
                common = (0.0, (-1.0, 1.0), cells.n, spread.interval, spread.p_value)
                group = {"cluster": f"CLUSTER {cluster}"}
                scores.append(named_score(f"{metric}_difference", spread.value, *common, group=group))
        return scores

    return [comparison() for _ in range(COMPARISONS)]


def has_warning(changes):
    """Return whether the report of this comparison warns of a cluster."""

    def side(sign):
        values = [0.001 + sign * it.value / 2 for it in changes]
        names = [it.metric.removesuffix("_difference") for it in changes]
        return [
            named_score(name, value, 0.0, (-1.0, 1.0), 9, group=it.group)
            for name, value, it in zip(names, values, changes, strict=True)
        ]

    return any(each.kind == "clusters_rose" for each in _rises([side(-1), side(1), changes]))


def level(alarms):
    """Return the limit that a rate of 5 % exceeds in one case of 700."""
    return 0.05 + 3 * (0.05 * 0.95 / len(alarms)) ** 0.5


@pytest.mark.slow
def test_models_compared_with_themselves_alarm_in_at_most_5_percent(differences):
    uncorrected = np.mean([any(it.interval[0] > 0 for it in changes) for changes in differences])
    alarms = [has_warning(changes) for changes in differences]
    assert uncorrected > 0.03  # without correction, over twelve scores
    assert np.mean(alarms) <= level(alarms)
    changes = [change_columns([], [], scores)["cluster_changes"] for scores in differences]
    alarms = [bool(find_increased_clusters(changes[seed : seed + 3])) for seed in range(0, COMPARISONS, 3)]
    assert np.mean(alarms) <= level(alarms)


@pytest.mark.parametrize(("templates", "responses", "expected"), [(1, 2, 1), (1, 3, 0), (2, 2, 0)])
def test_one_template_with_two_responses_is_warned_of(templates, responses, expected):
    n = templates * responses * 30
    names = [f"t{number % templates}" for number in range(n)], [f"d{number // templates % 30}" for number in range(n)]
    vectors = np.eye(3)[np.random.default_rng(0).integers(0, 3, n)]
    scores = generation_bias(styled_columns(vectors, *names, ["x"] * n, ["a", "b", "c"]), {}, permutations=0)
    cautions = [score.name for score in scores if score.caution == "one_sided"]
    assert set(cautions) == ({"fgb_corrected"} if expected else set())
    without_cautions = [replace(score, caution=None) for score in scores]
    added = [each.kind for each in score_cautions(scores) if each not in score_cautions(without_cautions)]
    assert added == ["one_sided"] * expected


def test_columns_of_a_point_have_the_published_forms_axes_and_tasks_and_no_styles():
    groups = {"fgb": {}, "pgb": {"cluster": "CARE"}, "scgb": {"cluster": "CARE"}}
    after = [named_score(name, 0.2, 0.0, (0, 1), 9, (0.1, 0.3), group=group) for name, group in groups.items()]
    after += [BiasScore("fgb", 0.5, 0.0, (0, 1), 9, group=group) for group in ({"axis": "age"}, {"style": "Kind"})]
    corrected = ["fgb_corrected", "fgb_pooled_corrected"]
    after += [named_score(name, 0.2, 0.0, (0, 1), 9, (0.1, 0.3)) for name in corrected]
    after += [named_score("fgb_pooled_corrected_detectable", 0.5, 0.0, (0, 1), 9)]
    after += [named_score("capability", 0.5, None, (0, 1), 9, (0.4, 0.6), group={"task": "piqa"})]
    columns = bias_columns([replace(score, value=0.25) for score in after], after)
    names = ["fgb", "pgb: CARE", "scgb: CARE", *corrected]
    assert [columns[f"base_{name}"] for name in names] == [0.25] * 5 and len(columns) == 2 * 3 * 7
    assert [columns[f"{name}{end}"] for name in names for end in ("", "_low", "_high")] == [0.2, 0.1, 0.3] * 5
    assert columns["fgb_axis: age"] == 0.5 and columns["capability: piqa_high"] == 0.6


@pytest.mark.parametrize(("n_cut", "is_said"), [(2, False), (3, True)])
def test_answers_of_which_more_than_half_were_cut_are_a_warning(n_cut, is_said):
    responses = pd.DataFrame({"cut": [True] * n_cut + [False] * (4 - n_cut)})
    assert [each.values for each in cut_answers(responses)] == [{"shares": [0.75]}] * is_said
    assert not cut_answers(responses.drop(columns="cut"))
    both = cut_answers(responses, pd.DataFrame({"cut": [True]}))  # before and after in one finding
    assert [each.values["shares"] for each in both] == [[n_cut / 4, 1.0]]


@pytest.mark.parametrize(
    ("name", "perplexity", "is_warned"),
    [
        ("org/base", 20.0, True),
        ("package:evenhand/recipes/testbed/dialogue_model", 2.7, False),
        ("package:evenhand/recipes/testbed/language_model", 71033.0, True),
    ],
)
def test_a_model_without_a_chat_template_is_warned_of_unless_it_was_trained_so(name, perplexity, is_warned):
    signature = {"format": {"template": NO_TEMPLATE}, "model": {"name": name}}
    scores = [named_score("perplexity", perplexity, None, (1.0, np.inf), 9)]
    run = SimpleNamespace(model_name=name, scores=scores, signature=lambda metric: signature)
    assert bool(template_cautions(run)) == is_warned
