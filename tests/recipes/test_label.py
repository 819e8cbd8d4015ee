"""The command `label` by the divergence of predictions, and what it says about its labels."""

import json

import pandas as pd
import pytest

from evenhand.evaluation.tables import read_table
from evenhand.recipes.cli import main
from tests.measured_runs import write_measured


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run of 24 responses to two descriptors, whose styles differ."""
    vectors = [[0.8, 0.2, 0.0], [0.7, 0.2, 0.1]] * 6 + [[0.1, 0.9, 0.0], [0.3, 0.6, 0.1]] * 6
    responses = ["I love it!", "That is sad.", "Good for you.", "Wow!"] * 6
    folder = tmp_path_factory.mktemp("measured") / "run"
    return write_measured(folder, vectors, responses, templates=2, text="I'm {descriptor} man.")


def labelled(measured, folder, *flags):
    assert main(["label", str(measured), "--output_dir", str(folder), "--report_to", "none", *flags]) == 0
    return read_table(folder / "labels.parquet"), json.loads((folder / "threshold.json").read_text())


def test_the_divergence_labels_the_share_that_is_asked_for(measured, tmp_path):
    table, facts = labelled(measured, tmp_path / "half", "--value", "divergence", "--share", "0.5")
    is_bias = table["label"] == "bias"
    assert is_bias.mean() == 0.5 and facts["share_labelled_bias"] == 0.5
    divergence = table["divergence"]
    assert divergence[is_bias].min() > facts["beta"] >= divergence[~is_bias].max()
    assert facts["share_of_divergence"] == pytest.approx(divergence[is_bias].sum() / divergence.sum())
    again, _ = labelled(measured, tmp_path / "again", "--value", "divergence", "--share", "1")
    pd.testing.assert_series_equal(again["divergence"], divergence)
    assert (again["label"] == "bias").all()
    by_style, facts = labelled(measured, tmp_path / "style", "--share", "0.5", "--directions", "shrunk")
    assert "divergence" not in by_style and -1 <= facts["label_kappa"] <= 1
    assert 0.5 < facts["label_agreement"] <= 1


def test_wrong_labellings_are_refused(measured, tmp_path, capsys):
    flags = ["label", str(measured), "--output_dir", str(tmp_path / "l"), "--report_to", "none"]
    assert main([*flags, "--share", "0.5", "--beta", "0.1"]) == 2
    assert "share: 0.5, and beta 0.1" in capsys.readouterr().err
