"""Labels of eight made-up responses, and which of them are not taught as `no_bias`."""

import json

import numpy as np
import pandas as pd
import pytest

from evaluation.errors import InputError
from evaluation.results import PROMPT_ID, RESPONSE
from recipes.config import LabelConfig, MeasureConfig
from recipes.label import label
from recipes.runs import stage
from recipes.tables import PROMPTS, RESPONSES, STYLES, write_styles, write_table

# Descriptor a leans to style x, b to y; the third response to each repeats its prompt, the fourth is in cluster Z.
VECTORS = [[0.9, 0.1, 0], [0.5, 0.5, 0], [0.4, 0.6, 0], [0.2, 0.2, 0.6]]
VECTORS += [[0.1, 0.9, 0], [0.5, 0.5, 0], [0.6, 0.4, 0], [0.2, 0.2, 0.6]]


@pytest.fixture
def measured(tmp_path):
    (tmp_path / "clusters.json").write_text(json.dumps({"Z": ["z"]}))
    folder, ids = tmp_path / "measured", [f"p{i}" for i in range(8)]
    clusters = str(tmp_path / "clusters.json")
    with stage("measure", MeasureConfig(output_dir=folder, report_to="none", style_clusters=clusters)) as run:
        run.facts["signature"] = {}
        cell = {"template": ["t"] * 8, "descriptor": list("aaaabbbb"), "axis": ["age"] * 8}
        write_table(folder / PROMPTS, pd.DataFrame({PROMPT_ID: ids, "text": "I'm.", "persona": "", **cell}))
        write_table(folder / RESPONSES, pd.DataFrame({PROMPT_ID: ids, RESPONSE: ["yes", "no", "i'm", "hm"] * 2}))
        write_styles(folder / STYLES, pd.Series(ids), np.array(VECTORS, dtype=np.float32), ("x", "y", "z"))
    return folder


def labelled(measured, **settings):
    folder = measured.parent / "labels"
    label(LabelConfig(responses=measured, output_dir=folder, report_to="none", quantile=0.7, **settings))
    table = pd.read_parquet(folder / "labels.parquet").set_index(PROMPT_ID)["label"]
    return table.to_dict(), json.loads((folder / "threshold.json").read_text())


BIASED = {"p0": "bias", "p4": "bias"}


def test_what_leans_as_its_descriptor_does_is_biased(measured):
    labels, threshold = labelled(measured)
    assert labels == {f"p{i}": "no_bias" for i in range(8)} | BIASED
    assert (threshold["n"], threshold["n_excluded"], threshold["n_left_out"]) == (8, 0, 0)


def test_parrots_and_a_cluster_can_be_kept_out_of_what_is_taught_as_unbiased(measured):
    labels, threshold = labelled(measured, exclude_parrots=True, exclude_clusters=["Z"])
    assert labels == {"p1": "no_bias", "p5": "no_bias"} | BIASED
    assert (threshold["n"], threshold["n_excluded"], threshold["n_left_out"]) == (4, 4, 4)


def test_an_excluded_cluster_is_one_of_those_there_are(measured):
    with pytest.raises(InputError, match="exclude_clusters: 'z' is unknown"):
        labelled(measured, exclude_clusters=["z"])
