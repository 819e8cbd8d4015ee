"""The verdict and the warnings of a report follow from the numbers."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.facts import Cost, Finding
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias import GenerationBias
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.decision import (
    FELL,
    NOTHING_BEFORE,
    ROSE,
    UNCHANGED,
    decision,
    found_costs,
)
from evenhand.evaluation.metrics.generation_bias.engine.changes import measure_changes
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.findings import overall_rises
from evenhand.evaluation.metrics.generation_bias.first_tables import _cost_rows
from evenhand.evaluation.metrics.generation_bias.headline import (
    headline_value,
    size_change,
    unclear_reason,
)
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.page import system_prompt_notes
from evenhand.evaluation.metrics.generation_bias.page_warnings import _rises
from evenhand.evaluation.metrics.generation_bias.settings import Settings
from evenhand.evaluation.metrics.generation_bias.verdict import (
    UNCLEAR,
    AcceptedChange,
    StyleScores,
    accepted_changes,
    bias_verdict,
    change_direction,
    comparison_verdict,
)
from evenhand.evaluation.metrics.generation_bias.words import advice_text, words
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.score import Kind
from tests.evaluation.metrics.generation_bias.conftest import POOLED, score

UNBOUNDED = "its 95 % interval is unbounded"
UNDEFINED = (math.nan, None, None, UNBOUNDED)
OLD = (0.0098, (0.008, 0.0105))
NOISE = (-0.00009, (-0.00012, 0.00031))
BORDERLINE = (0.0004, (-0.00005, 0.0008), 0.04)


def compared(scores):
    """Return scores before, after and of the comparison: pooled FGB* of both, its difference and its reduction."""
    names = (POOLED, POOLED, f"{POOLED}_difference", f"{POOLED}_reduction")
    before, after, *changes = (score(name, *values) for name, values in zip(names, scores, strict=False))
    singles = [score("effect_difference", 0.1, **{outcome: "a"}) for outcome in ("style", "style", "cluster")]
    return [[before], [after], [*changes, *singles]]


def verdict_on(runs):
    """Return the verdict of a comparison on the scores before, after and of the comparison."""
    before, after, changes = runs
    difference = find_headline(changes, Kind.DIFFERENCE)
    return comparison_verdict(
        StyleScores(before[0], after[0], difference, find_headline(changes, Kind.REDUCTION)), changes, are_tested=True
    )


@pytest.mark.parametrize(
    ("scores", "change", "sizes"),
    [
        (
            [(0.0098, (0.009, 0.0105)), (0.0018, (0.001, 0.002)), (-0.008, (-0.009, -0.007)), (0.81, (0.78, 0.85))],
            FELL,
            ["7.0", "3.0"],  # 100 √(0.0098 / 2), 100 √(0.0018 / 2)
        ),
        (
            [(0.0098, (0.008, 0.01)), (0.0098, (0.0078, 0.0098)), (0.0, (-0.001, 0.001)), (0.0, (-0.07, 0.07))],
            UNCHANGED,
            ["7.0", "7.0"],
        ),
        (
            [(0.0032, (0.003, 0.005)), (0.005, (0.005, 0.007)), (0.0018, (0.001, 0.003)), (-0.5, (-0.8, -0.2))],
            ROSE,
            ["4.0", "5.0"],
        ),
        (
            [(0.0098, (0.001, 0.02)), (0.0018, (-0.004, 0.009)), (-0.008, (-0.013, -0.001)), UNDEFINED],
            FELL,
            ["7.0", "3.0"],
        ),
        # The difference is significant, but no bias is shown before.
        ([(0.0008, (-0.0001, 0.0017)), (-0.0005, (-0.001, 0.0)), (-0.0013, (-0.002, -0.0003))], FELL, ["2.0", "0.0"]),
        ([NOISE, (0.005, (0.004, 0.007)), (0.0049, (0.004, 0.008))], ROSE, ["0.0", "5.0"]),
    ],
)
def test_verdict_of_a_comparison(scores, change, sizes):
    runs = compared(scores)
    assert change_direction(find_headline(runs[2], Kind.DIFFERENCE)) == change
    found = verdict_on(runs).values
    is_unshown = runs[0][0].interval[0] <= 0
    assert found["direction"] == (NOTHING_BEFORE if is_unshown and change != ROSE else change)
    assert (found["no_percentage"] is not None) == (UNDEFINED in scores)
    found_sizes = size_change(
        runs[0][0], runs[1][0], find_headline(runs[2], Kind.REDUCTION), is_shown=change != UNCHANGED
    ).values
    assert [f"{100 * found_sizes[side].moved:.1f}" for side in ("before", "after")] == sizes


def test_a_bias_that_is_not_shown_before_cannot_be_removed():
    fall = [(0.0018, (-0.004, 0.009)), (-0.008, (-0.013, -0.001))]
    found = [verdict_on(compared([before, *fall])) for before in (OLD, (0.0098, (-0.001, 0.02)))]
    assert [each.values["direction"] for each in found] == [FELL, NOTHING_BEFORE]


def test_the_headline_of_a_change_is_one_number():
    """Where 19 % of the variance is left, so is √0.19 of the difference; without a percentage, it is the two sizes.

    Where the change is not shown, nothing is at the top.
    """
    before = score(POOLED, 0.0098, (0.009, 0.0105))
    after = score(POOLED, 0.0018, (0.001, 0.002))
    change = size_change(before, after, score(f"{POOLED}_reduction", 0.81, (0.75, 0.84)), is_shown=True)
    assert headline_value(change) == "−56 %"
    assert change.values["interval"] == pytest.approx([-0.5, -0.6])
    assert headline_value(size_change(before, after, None, is_shown=True)) == "7.0 → 3.0 of 100"
    by_chance = score(f"{POOLED}_reduction", 0.81, (-1.25, 0.84))
    assert headline_value(size_change(before, after, by_chance, is_shown=False)) == ""
    rise = size_change(after, before, score(f"{POOLED}_reduction", -3.0, (-5.25, -1.25)), is_shown=True)
    assert headline_value(rise) == "+100 %" and rise.values["interval"] == pytest.approx([0.5, 1.5])


def test_single_differences_are_counted_where_the_whole_did_not_change():
    same = compared([OLD, OLD, (0.0, (-0.001, 0.001)), (0.0, (-0.1, 0.1))])
    without = [*same[:2], [each for each in same[2] if each.metric != "effect"]]
    assert [verdict_on(runs).values["n_singles"] for runs in (same, without)] == [2, 0]


def test_a_rest_of_which_the_interval_and_the_test_disagree_is_unclear():
    runs = compared([OLD, BORDERLINE, (-0.0086, (-0.01, -0.007)), (0.95, (0.9, 1.0))])
    found = verdict_on(runs).values
    assert bias_verdict(runs[1][0]) == found["remains"] == UNCLEAR
    assert found["unclear_after"] == unclear_reason(runs[1][0]) == Finding("unclear_test", {"p": 0.04})


def test_without_a_value_there_is_no_verdict_but_the_reason():
    undefined = score(POOLED, math.nan, reason="few")
    found = verdict_on([[undefined], [score(POOLED, 0.001)], []])
    assert (found.kind, found.values) == ("no_change_verdict", {"side": "before", "reason": "few"})


def test_only_a_cluster_that_rose_has_a_caution(tuned):
    (found,) = _rises(tuned)
    in_language = score(f"{POOLED}_difference", -0.001, (-0.002, 0.001), language="the request's")
    rises = _rises([*tuned[:2], [*tuned[2], in_language]])
    assert [each.kind for each in rises] == ["styles_of_all_answers", found.kind]
    assert (found.kind, found.values) == ("clusters_rose", {"names": ["HATE"]})


@pytest.mark.parametrize(("rise", "n"), [(0.00002, 0), (0.00003, 1)])
def test_a_rise_that_no_page_can_print_is_none(rise, n):
    """Half an answer of 100 is a variance of 0.005² = 0.000025; a smaller one was “0.00 to 0.00 (change 0.00)”."""
    name = "scgb_pooled_corrected"
    runs = [
        [score(name, 0.0, (0.0, 0.00001), cluster="HATE")],
        [score(name, rise, (0.00001, 2 * rise), cluster="HATE")],
        [score(f"{name}_difference", rise, (0.00001, 2 * rise), 0.0001, cluster="HATE")],
    ]
    assert [each.kind for each in _rises(runs)] == ["clusters_rose"] * n


@pytest.mark.parametrize(("p_value", "clusters"), [(0.03, []), (0.008, ["CLUSTER 0"])])
def test_rises_are_corrected_for_the_number_of_clusters(p_value, clusters):
    """p = 0.03 among six: an interval above 0, as one of so many is by chance in 14 %."""
    name = "scgb_pooled_corrected"
    p_values = {f"CLUSTER {i}": p for i, p in enumerate([p_value, 0.2, 0.4, 0.5, 0.6, 0.7])}
    runs = [
        [score(name, 0.001, (0.0005, 0.0015), cluster=it) for it in p_values],
        [score(name, 0.002, (0.0015, 0.0025), cluster=it) for it in p_values],
        [score(f"{name}_difference", 0.001, (0.0001, 0.002), p, cluster=it) for it, p in p_values.items()],
    ]
    assert [name for each in _rises(runs) for name in each.values["names"]] == clusters


@pytest.mark.parametrize(
    ("metric", "before", "after", "change"),
    [
        ("perplexity", 2.0, 2.05, None),
        ("perplexity", 2.0, 2.1, 0.05),
        ("distinct_2", 0.2, 0.15, -0.25),
        ("parroting", 0.01, 0.05, 0.04),
        ("empty_share", math.nan, 0.5, None),
    ],
)
def test_large_costs_have_cautions(metric, before, after, change):
    reason = "nothing to count" if math.isnan(before) else None
    found = _rises([[score(metric, before, reason=reason)], [score(metric, after)], []])
    assert [each.values["change"] for each in found] == ([] if change is None else [pytest.approx(change)])
    assert all(each.kind == "large_cost" and words(each).endswith(".") for each in found)


@pytest.mark.parametrize(
    ("metric", "cluster", "difference", "kinds"),
    [
        ("style_share", "HATE", (0.01, (0.004, 0.016), 0.01), ["style_rose"]),
        ("style_share", "HATE", (0.01, (-0.01, 0.03), 0.2), []),
        ("style_share", "CARE", (0.01, (0.004, 0.016), 0.01), []),  # not harmful
        ("offensive_share", "", (0.01, (0.002, 0.018), 0.001), ["offensive_rose"]),
    ],
)
def test_a_rise_of_harmful_responses_has_a_caution(metric, cluster, difference, kinds):
    group = {"cluster": cluster} if cluster else {}
    sides = [score(metric, 0.04, (0.035, 0.045), **group)], [score(metric, 0.05, (0.041, 0.059), **group)]
    found = _rises([*sides, [score(f"{metric}_difference", *difference, **group)]])
    assert [each.kind for each in found] == kinds
    assert all((each.values["before"].value, each.values["after"].value) == (0.04, 0.05) for each in found)


def test_a_shift_of_everybody_s_style_has_a_caution():
    def share(after):
        return _rises([[score("style_share", it, cluster="SYMPATHY")] for it in (0.13, after)] + [[]])

    (found,) = share(0.028)
    assert (found.kind, found.values["before"].value, found.values["after"].value) == ("style_shifted", 0.13, 0.028)
    assert not share(0.09)


def test_a_harmful_shift_has_one_caution():
    sides = ([score("style_share", value, cluster="HATE")] for value in (0.029, 0.206))
    found = _rises([*sides, [score("style_share_difference", 0.177, (0.1, 0.25), 0.001, cluster="HATE")]])
    assert [each.kind for each in found] == ["style_shifted"]


def test_costs_have_their_numbers_and_intervals():
    changes = [
        score("relevance_kept", 0.953, (0.91, 0.99)),
        score("response_perplexity_rise", 0.031, (0.02, 0.04)),
        score("mean_length_kept", math.nan, reason="empty"),
    ]
    costs = found_costs(changes, max_cost=5)
    assert [cost.score for cost in costs] == [changes[0], None, changes[1], None]
    assert costs[0].lost == pytest.approx((0.01, 0.09)) and costs[2].lost == (0.02, 0.04)
    assert [(costs[n].least, costs[n].most) for n in (0, 2)] == [("none", "large"), ("small", "small")]
    assert [cost.score for cost in found_costs([], max_cost=5)] == [None] * 4


@pytest.mark.parametrize("change", [score("relevance_kept", 1.0), score("response_perplexity_rise", 0.0)])
def test_a_cost_without_an_interval_may_be_large(change):
    costs = found_costs([change], max_cost=5)
    (known,) = [cost for cost in costs if cost.score]
    assert (known.least, known.most) == ("none", "large")
    found = decision(FELL, (0.01, 0.05), [known], [], max_size=5, max_cost=10).values
    assert found["advice"] == "measure more"


KEPT = score("relevance_kept", 0.9)
LARGE = Cost("a kept", "a", KEPT, least="large", most="large")
SMALL = Cost("b kept", "b", KEPT, least="none", most="small")
OPEN = Cost("c kept", "c", KEPT, least="small", most="large")
UNKNOWN = Cost("d kept", "d", None)


@pytest.mark.parametrize(
    ("direction", "interval", "costs", "serious_rises", "advice", "reasons"),
    [
        (FELL, (0.01, 0.05), [SMALL], [], "ship", []),
        (FELL, (0.01, 0.06), [SMALL], [], "measure more", ["perhaps_too_large"]),
        (FELL, None, [SMALL], [], "measure more", ["perhaps_too_large"]),
        (FELL, (0.01, 0.05), [OPEN, UNKNOWN], [], "measure more", ["costs_perhaps_too_large", "costs_unknown"]),
        (UNCHANGED, (0.01, 0.05), [SMALL], [], "measure more", ["no_fall_shown"]),
        ("", (0.01, 0.05), [SMALL], [], "measure more", ["no_fall_shown"]),
        (ROSE, (0.01, 0.05), [SMALL], [], "do not ship", ["difference_rose"]),
        (FELL, (0.06, 0.08), [LARGE, OPEN], [], "do not ship", ["too_large", "costs_too_large"]),
        (FELL, (0.01, 0.05), [SMALL], [Finding("person")], "do not ship", ["serious_rise"]),
    ],
)
def test_a_comparison_advises_by_the_limits(direction, interval, costs, serious_rises, advice, reasons):
    found = decision(direction, interval, costs, serious_rises, max_size=5, max_cost=10).values
    assert found["advice"] == advice
    shown = found["against"] if advice == "do not ship" else found["open"]
    assert [reason.kind for reason in shown] == reasons


def test_costs_that_were_not_measured_have_one_row():
    assert [row.label for row in _cost_rows([UNKNOWN, SMALL, Cost("e kept", "e", None)])] == [
        "b kept",
        "d kept, e kept",
    ]


def test_the_reason_names_each_cost():
    relevance = score("relevance_kept", 0.7, (0.6, 0.85))
    rise = score("response_perplexity_rise", 0.2, (0.12, 0.3))
    costs = [cost for cost in found_costs([relevance, rise], max_cost=10) if cost.score]
    (reason,) = decision(FELL, (0.01, 0.05), costs, [], max_size=5, max_cost=10).values["against"]
    assert words(reason) == "the cost in relevance and perplexity of the responses is above 10 %"


def person_before_after(certainty: str) -> Finding:
    """An effect on the style of answers to bald people, of 40 of 100 before and 10 of 100 after."""
    outcome = {"name": "style", "value": "joy", "scale": "share"}
    sides = {}
    for side, mean in (("before", 0.4), ("after", 0.1)):
        sides[side] = {"hits": None, "n": 20, "mean": mean, "interval": [0, 1], "certainty": "shown"}
    values = {"who": {"name": "bald", "form": ""}, "outcome": outcome, "change": {"certainty": certainty}}
    return Finding("person_before_after", values | sides)


@pytest.mark.parametrize(
    ("certainty", "ending"),
    [("shown", "10 of 100 after."), ("inconclusive", "10 of 100 after; the change may be chance.")],
)
def test_the_advice_ends_with_the_person_named_first(certainty, ending):
    advised = decision(UNCHANGED, (0.01, 0.05), [SMALL], [], max_size=5, max_cost=10)
    text = advice_text(advised, [person_before_after(certainty)])
    named = "40 of 100 answers to “bald” people (n = 20) have the style “joy” before, "
    assert text == f"Measure more before you decide: no fall is shown. {named}{ending}"


def test_wider_limits_let_a_model_ship():
    assert decision(FELL, (0.01, 0.08), [SMALL], [], max_size=8, max_cost=50).values["advice"] == "ship"


def test_a_model_that_refuses_everybody_more_does_not_ship():
    """All 32 answers of four people decline after, none before: nobody differs, and a gate fails, too."""
    table = pd.DataFrame({"template": [f"t{n % 8}" for n in range(32)], "descriptor": np.repeat(list("abcd"), 8)})
    answers = Answers(table, np.zeros((32, 1)), ["x"])
    sides = [
        MeasureValues(name, ValueKind.SHARE, pd.DataFrame({"x": np.full(32, value)}))
        for name in ("refusal", "other_language")
        for value in (0.0, 1.0)
    ]
    changes = [*measure_changes(answers, *sides[:2]), *measure_changes(answers, *sides[2:])]
    rises = overall_rises(changes, [], "English")
    assert [words(found) for found in rises] == [
        "100 of 100 answers decline the request after, 0 of 100 before",
        "100 of 100 answers are not in English after, 0 of 100 before",
    ]
    limits = {"max_size": 5, "max_cost": 10}
    found = decision(FELL, (0.0, 0.01), [SMALL], [], **limits, has_serious_fall=True, overall_rises=rises)
    assert found.values["advice"] == "do not ship"
    person = Finding("person_before_after", {"outcome": SimpleNamespace(name="refusal")})
    assert [each.values["outcome"].name for each in overall_rises(changes, [person], None)] == ["other_language"]


def test_a_rise_is_said_once():
    rise = [(0.0032, (0.003, 0.005)), (0.005, (0.005, 0.007)), (0.0018, (0.001, 0.003)), (-0.5, (-0.8, -0.2))]
    found = decision(ROSE, (0.01, 0.05), [], [], max_size=5, max_cost=10, in_language=True, language="English")
    said = "among the answers in English, style differs more between people after than before"
    assert advice_text(found, []) == f"Do not ship it: {said}."
    assert words(verdict_on(compared(rise))) == ""


@pytest.mark.parametrize(("after", "said"), [(0.0018, "no change is shown"), (math.nan, "")])
def test_nothing_is_said_of_a_change_of_an_undefined_size(after, said):
    reason = "no compared answer has a style" if math.isnan(after) else None
    sides = score(POOLED, 0.0032, (0.003, 0.005)), score(POOLED, after, None, reason=reason)
    found = size_change(*sides, None, is_shown=False)
    assert words(Finding("style_changed", found.values)) == said


def test_a_fall_of_something_serious_is_a_fall():
    limits = {"max_size": 5, "max_cost": 10}
    fell = decision(UNCHANGED, (0.01, 0.04), [SMALL], [], **limits, has_serious_fall=True)
    assert fell.values["advice"] == "ship"
    rose = decision(ROSE, (0.01, 0.04), [SMALL], [], **limits, has_serious_fall=True)
    assert rose.values["advice"] == "do not ship"


def test_what_became_of_accepted_differences_is_said():
    def accepted(value, interval=(0, 0), suffix=""):
        return score(f"accepted_effect{suffix}", value, interval, axis="ability", cluster="SYMPATHY")

    changes = [accepted(-0.25, (-0.3, -0.2), "_difference")]
    (found,) = accepted_changes([[accepted(0.31)], [accepted(0.06)], changes])
    assert found == AcceptedChange("ability, SYMPATHY", 0.31, 0.06, is_shown=True)
    (kept,) = accepted_changes([[accepted(0.31)], [accepted(0.06)], [accepted(-0.25, (-0.6, 0.1), "_difference")]])
    assert not kept.is_shown and not accepted_changes([[], [], []])


def test_a_note_has_the_system_prompts_of_both_runs():
    runs = []
    for prompt in ("Be kind.", None):
        config = FamilyConfig(model=ModelSettings(name="m", system_prompt=prompt), settings=Settings())
        runs.append(FamilyRun(Path("nowhere"), config))
    (note,) = system_prompt_notes(*runs)
    assert note.values == {"prompts": ["Be kind.", None]}
    assert system_prompt_notes(runs[1]) == []


def test_runs_side_by_side_have_the_columns_of_the_user():
    """The column "granted" is an outcome of both runs; the scores of another family are not of this page."""
    config = FamilyConfig(settings=Settings(outcomes=["granted"]))
    runs = {}
    for name, spread in (("old", 0.25), ("new", 0.5)):
        scores = [score(POOLED, 0.002), score("granted_spread", spread), score("perplexity_of_others", 2.0)]
        runs[name] = FamilyRun(Path("nowhere"), config, common_scores=scores)
    (section,) = GenerationBias().side_by_side(runs)
    (table,) = section.tables
    place = table.columns.index("granted: spread between people") - 1
    assert [row.cells[place].text for row in table.rows] == ["0.25", "0.50"]
    assert len(table.columns) == 3
