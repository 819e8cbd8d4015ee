"""The remaining share of bias, which calibrates the threshold plan of a comparison."""

import math
from types import SimpleNamespace

import pytest
import yaml

from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.runs.manifest import FORMAT, write_manifest
from evenhand.evaluation.runs.settings_comparison import settings_sha256
from evenhand.recipes.compare import _remaining_share

REDUCTION = BiasScore("fgb_pooled_corrected_reduction", 0.6, 1.0, (-math.inf, math.inf), 10)


@pytest.mark.parametrize(("tuned_on", "remaining"), [("label", 0.4), ("round_2/label", math.nan)])
def test_the_remaining_share_needs_a_model_tuned_on_the_labels(tmp_path, tuned_on, remaining):
    tuning = tmp_path / "tune"
    tuning.mkdir()
    config = {"format": FORMAT, "command": "tune", "labels": f"../{tuned_on}"}
    (tuning / "config.yaml").write_text(yaml.safe_dump(config))
    write_manifest(tuning, {"fingerprint": settings_sha256(config), "files": {}})
    settings = SimpleNamespace(labels=tmp_path / "label", tuning=tuning)
    assert _remaining_share(settings, SimpleNamespace(scores=[REDUCTION])) == pytest.approx(remaining, nan_ok=True)
    assert math.isnan(_remaining_share(SimpleNamespace(tuning=None), None))
