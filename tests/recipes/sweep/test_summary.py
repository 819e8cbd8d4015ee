"""The numbers of a sweep: hand-derived means, intervals, fronts and correlations."""

import math

import numpy as np
import pandas as pd
import pytest

from evenhand.recipes.sweep.page import metric_value_text
from evenhand.recipes.sweep.summary import largest_reduction, loss, pareto_front

from .sweep_points import SWEPT, increased, point, refused, settings_of, without_reductions

NAN = math.nan


def test_seeds_have_students_t_interval():
    (row,) = settings_of(*(point(seed=i, reduction=it) for i, it in enumerate((0.90, 0.92, 0.94)))).to_dict("records")
    # s = 0.02, so s / √3 = 0.011547; t(0.975; 2) = 4.302653; half the width 0.049683
    assert row["reduction"] == pytest.approx(0.92)
    assert (row["reduction_low"], row["reduction_high"]) == pytest.approx((0.870317, 0.969683), abs=1e-6)
    assert (row["seeds"], row["refused"]) == (3, 0)
    assert row["length_change"] == 0.01 and math.isnan(row["length_change_low"])  # equal values tell no error
    (row,) = settings_of(point(perplexity_change=0.01), point(seed=1, perplexity_change=0.03)).to_dict("records")
    # s = 0.014142, s / √2 = 0.01; t(0.975; 1) = 12.7062
    assert (row["perplexity_change_low"], row["perplexity_change_high"]) == pytest.approx((-0.107062, 0.147062))
    (row,) = settings_of(point(reduction=0.9)).to_dict("records")
    assert (row["reduction_low"], row["reduction_high"]) == pytest.approx((0.88, 0.92))
    assert (row["perplexity_change"], row["perplexity_change_low"]) == (0.02, pytest.approx(0.019999))
    assert (row["length_change"], row["length_change_low"]) == (0.01, pytest.approx(0.009999))
    rows = [point(seed=0, relevance_kept=NAN), point(seed=1, relevance_kept=0.7, relevance_kept_low=0.6)]
    (row,) = settings_of(*rows).to_dict("records")
    assert row["relevance_kept"] == 0.7 and math.isnan(row["relevance_kept_low"])
    assert math.isnan(row["ratio_without_tag"])


def test_settings_are_grouped_by_swept_fields():
    rows = [point(quantile=0.7), point(quantile=0.9), point("exchange"), point(quantile=0.7, seed=1)]
    summary = settings_of(*rows)
    assert list(summary["number"]) == [1, 2, 3]
    assert list(summary["method"]) == ["control_tags", "control_tags", "exchange"]
    assert list(summary["label.quantile"])[:2] == [0.7, 0.9] and math.isnan(summary["label.quantile"][2])
    assert list(summary["seeds"]) == [2, 1, 1]
    summary = settings_of(
        point(seed=0, reduction=0.9), refused("it burnt", seed=1), refused("it burnt", method="distill", seed=0)
    )
    assert list(summary["seeds"]) == [1, 0] and list(summary["refused"]) == [1, 1]
    assert summary["reduction"][0] == 0.9 and math.isnan(summary["reduction"][1])


def test_the_worst_cluster_and_the_increased_clusters_are_over_all_seeds():
    rows = [
        point(seed=0, worst_cluster_change=0.002, cluster_changes=increased("HATE", "ENVY")),
        point(seed=1, worst_cluster_change=0.003, cluster_changes=increased("ENVY")),
        point("exchange", cluster_changes=increased("HATE")),
    ]
    first, second = settings_of(*rows).to_dict("records")
    assert first["worst_cluster_change"] == 0.003
    assert (first["clusters_rose"], second["clusters_rose"]) == ("HATE, ENVY", "HATE")


def test_the_order_of_points_changes_nothing():
    rows = [point(seed=seed, quantile=q, reduction=q - seed / 50) for q in (0.7, 0.9) for seed in range(3)]
    one = settings_of(*rows)
    other = settings_of(*reversed(rows)).sort_values("label.quantile", ignore_index=True)
    pd.testing.assert_frame_equal(one.drop(columns="number"), other.drop(columns="number"))


def test_fronts_by_hand_and_by_brute_force():
    cost = [1, 1, 2, 2, 3, NAN, 0, 3]
    gain = [5, 5, 5, 7, 7, 9, NAN, 8]
    # The first two are equal and unbeaten; (2, 5) costs more for as much; (3, 7) likewise; (3, 8) gains most.
    assert list(pareto_front(cost, gain)) == [True, True, False, True, False, False, False, True]
    assert list(pareto_front([], [])) == [] and list(pareto_front([NAN], [1])) == [False]
    cost, gain = np.random.default_rng(0).integers(0, 6, (2, 30))
    front = pareto_front(cost, gain)

    def beaten(i):
        return any(
            cost[j] <= cost[i] and gain[j] >= gain[i] and (cost[j], gain[j]) != (cost[i], gain[i]) for j in range(30)
        )

    assert [not beaten(i) for i in range(30)] == list(front)
    summary = settings_of(point(relevance_kept=0.8, length_change=-0.02, perplexity_change=-0.01))
    losses = [loss(summary, name)[0] for name in ("relevance_kept", "length_change", "perplexity_change")]
    assert losses == pytest.approx([0.2, 0.02, -0.01])


def test_seeds_without_a_reduction_have_no_interval():
    """A reduction is undefined where the base's bias is low, so the defined reductions may be high by chance."""
    blank = without_reductions(["reduction_untuned"])
    (row,) = settings_of(point(reduction=0.96), point(seed=1, **{"reduction": 0.96} | blank)).to_dict("records")
    assert row["reduction_untuned"] == 0.96
    assert math.isnan(row["reduction_untuned_low"])
    assert metric_value_text(row, "reduction_untuned").endswith("without an interval")


def test_the_largest_reduction_is_of_a_measured_setting():
    rows = settings_of(point("a", reduction=0.5), point("b", reduction=0.7), point("c", **without_reductions()))
    assert largest_reduction(rows.to_dict("records"))["method"] == "b"
    rows = settings_of(refused("no"), point("c", **without_reductions()))
    assert largest_reduction(rows.to_dict("records"))["method"] == "c"


def test_increases_of_clusters_are_corrected_over_clusters_and_seeds():
    """p = 0.006 is a rise among six clusters (0.036), and none among the eighteen of three seeds (0.108)."""
    points = [
        point(seed=seed, cluster_changes=increased(*(["HATE"] * (seed == 0)), p_value=0.006)) for seed in range(3)
    ]
    assert list(settings_of(points[0])["clusters_rose"]) == ["HATE"]
    assert list(settings_of(*points)["clusters_rose"]) == [""]


def test_labels_name_the_fields_that_vary():
    rows = [
        point(quantile=0.7) | {"a.rate": 1e-4, "c.same": "x", "rounds": 1},
        point(quantile=0.9) | {"a.rate": 3e-4, "c.same": "x", "rounds": math.nan},
    ]
    labels = list(settings_of(*rows, swept=[*SWEPT, "a.rate", "c.same", "rounds"])["label"])
    assert labels == ["quantile 0.7 · rate 0.0001 · rounds 1", "quantile 0.9 · rate 0.0003"]
