"""What a comparison says of the threshold that its model was tuned with."""

import math
from types import SimpleNamespace

import pytest
import yaml

from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.runs.manifest import FORMAT, write_manifest
from evenhand.evaluation.runs.settings_comparison import settings_sha256
from evenhand.recipes.compare import _remaining_share

REDUCTION = BiasScore("fgb_pooled_corrected_reduction", 0.6, 1.0, (-math.inf, math.inf), 10)


@pytest.mark.parametrize(("tuned_on", "left"), [("label", 0.4), ("round_2/label", math.nan)])
def test_the_plan_is_calibrated_by_a_model_that_was_tuned_on_its_labels(tmp_path, tuned_on, left):
    tuning = tmp_path / "tune"
    tuning.mkdir()
    told = {"format": FORMAT, "command": "tune", "labels": f"../{tuned_on}"}
    (tuning / "config.yaml").write_text(yaml.safe_dump(told))
    write_manifest(tuning, {"fingerprint": settings_sha256(told), "files": {}})
    settings = SimpleNamespace(labels=tmp_path / "label", tuning=tuning)
    assert _remaining_share(settings, SimpleNamespace(scores=[REDUCTION])) == pytest.approx(left, nan_ok=True)
    assert math.isnan(_remaining_share(SimpleNamespace(tuning=None), None))
