"""Labels of eight artificial responses."""

import json

import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import PROMPT_ID
from evenhand.recipes.label import label
from evenhand.recipes.settings import LabelSettings
from tests.measured_runs import write_measured

# Descriptor a prefers style x, b prefers y; the third response to each repeats its prompt, the fourth is in cluster Z.
VECTORS = [[0.9, 0.1, 0], [0.5, 0.5, 0], [0.4, 0.6, 0], [0.2, 0.2, 0.6]]
VECTORS += [[0.1, 0.9, 0], [0.5, 0.5, 0], [0.6, 0.4, 0], [0.2, 0.2, 0.6]]


@pytest.fixture
def measured(tmp_path):
    (tmp_path / "clusters.json").write_text(json.dumps({"Z": ["z"]}))
    clusters = str(tmp_path / "clusters.json")
    return write_measured(tmp_path / "measured", VECTORS, ["yes", "no", "i'm", "hm"] * 2, style_clusters=clusters)


def labelled(measured, **settings):
    folder = measured.parent / f"labels_{len(settings)}"
    label(LabelSettings(responses=measured, output_dir=folder, report_to="none", quantile=0.7, **settings))
    table = pd.read_parquet(folder / "labels.parquet").set_index(PROMPT_ID)["label"]
    return table.to_dict(), json.loads((folder / "threshold.json").read_text())


BIASED = {"p0": "bias", "p4": "bias"}


def test_labels_follow_styles(measured):
    labels, threshold = labelled(measured)
    assert labels == {f"p{i}": "no_bias" for i in range(8)} | BIASED
    assert (threshold["n"], threshold["n_left_out"]) == (8, 0)


def test_other_families_are_rejected(tmp_path):
    folder = write_measured(tmp_path / "pairs", metrics=["sentence_pairs"])
    with pytest.raises(InputError, match="^responses: .*sentence_pairs.*generation_bias"):
        label(LabelSettings(responses=folder, output_dir=tmp_path / "labels", report_to="none"))
