"""The chart of styles against frequencies: marks, axes and names (Smith et al. 2022, Figures 3, 5 and 6)."""

import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.parts.corpus import frequency_chart

ROWS = [
    ("deaf", "ability", 10, 0.5),
    ("blind", "ability", 0, 0.1),
    ("old", "age", 30, 0.4),
    ("young", "age", 90, 0.2),
]


@pytest.fixture
def chart():
    columns = ["descriptor", "axis", "count", "probability"]
    sympathy = pd.DataFrame(ROWS, columns=columns).assign(cluster="SYMPATHY")
    hate = sympathy.assign(cluster="HATE", probability=0.0)
    return frequency_chart(pd.concat([sympathy, hate]).assign(examples=1000))


def test_a_panel_for_each_cluster_has_a_mark_and_a_colour_for_each_axis(chart):
    shown = [axes for axes in chart.axes if axes.axison]
    assert [axes.get_title() or axes.get_title(loc="left") for axes in shown] == ["SYMPATHY", "HATE"]
    ability, age = shown[0].collections
    # Half a usage is added, so that a descriptor without one is on the logarithmic scale.
    assert ability.get_offsets().tolist() == [[10.5 / 1000, 0.5], [0.5 / 1000, 0.1]]
    assert age.get_offsets().tolist() == [[30.5 / 1000, 0.4], [90.5 / 1000, 0.2]]
    assert ability.get_facecolor().tolist() != age.get_facecolor().tolist()
    vertices = [points.get_paths()[0].vertices for points in (ability, age)]
    assert len(vertices[0]) != len(vertices[1])  # a circle and a square
    assert shown[0].get_xscale() == "log"


def test_the_highest_are_named_and_the_axes_are_in_the_legend(chart):
    assert {text.get_text(): text.xy for text in chart.axes[0].texts} == {
        "deaf": (10.5 / 1000, 0.5),
        "old": (30.5 / 1000, 0.4),
        "young": (90.5 / 1000, 0.2),
    }
    (legend,) = chart.legends
    assert [text.get_text() for text in legend.get_texts()] == ["ability", "age"]
