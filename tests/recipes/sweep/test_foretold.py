"""The foretold curve of made-up labels, by hand."""

from types import SimpleNamespace

import pandas as pd
import pytest

from evenhand.evaluation.tables import write_table
from evenhand.recipes.sweep.foretold import foretold_curve
from tests.recorded_runs import write_run


def labelled(folder, value, labels, divergence=None):
    """Return a point whose labels of four responses are in a folder."""
    write_run(folder, "label")
    table = pd.DataFrame({"prompt_id": list("abcd"), "label": labels})
    if divergence is not None:
        table["divergence"] = divergence
    write_table(folder / "labels.parquet", table)
    label = SimpleNamespace(output_dir=folder, run=folder.parent / "train", value=value)
    return SimpleNamespace(label=label, seed=0)


def test_the_share_of_divergence_of_each_labelling(tmp_path):
    half = ["bias", "bias", "no_bias", "no_bias"]
    one = ["no_bias", "no_bias", "no_bias", "bias"]
    points = [
        labelled(tmp_path / "d", "divergence", half, [0.5, 0.3, 0.1, 0.1]),
        labelled(tmp_path / "b", "bias_value", one),
        labelled(tmp_path / "other" / "b", "bias_value", one),  # of other responses, whose divergence is unknown
        SimpleNamespace(label=None, seed=0),
    ]
    curve = foretold_curve([*points, points[0]])
    assert curve["value"].tolist() == ["bias_value", "divergence"]
    assert curve["share_labelled_bias"].tolist() == [0.25, 0.5]
    assert curve["share_of_divergence"].tolist() == pytest.approx([0.1, 0.8])
    assert foretold_curve(points[1:]).empty
