"""What each family declares, and what is said of one that does not."""

import math
from pathlib import Path

import pytest

from evenhand.evaluation import metrics
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun, check_declared, load_family
from evenhand.evaluation.metrics.bbq import BBQ
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.score import BiasScore, Kind

FAMILY = """
from evenhand.evaluation.metrics import Family


class Mine(Family):
    Settings = object

    def inputs(self, config): ...
    def collect(self, store, config): ...
    def score(self, store, config, collected): ...
"""


def test_a_family_without_formats_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "__path__", [*metrics.__path__, str(tmp_path)])
    (tmp_path / "formless.py").write_text(FAMILY)
    with pytest.raises(InputError, match="^metrics: the family formless has no FORMATS"):
        load_family("formless")


def test_a_score_that_no_family_declares_is_named():
    declared = BiasScore("bbq_bias", 0.5, 0.0, (-1.0, 1.0), n=3)
    check_declared("bbq", [declared, BiasScore("bbq_bias", 0.5, 0.0, (-1.0, 1.0), n=3, kind=Kind.DIFFERENCE)])
    with pytest.raises(InputError, match="the family bbq has a score 'bbq_bais', which is not in its FORMATS"):
        check_declared("bbq", [declared, BiasScore("bbq_bais", 0.5, 0.0, (-1.0, 1.0), n=3)])


@pytest.mark.parametrize(
    ("dataset", "subtitle"), [({"name": "/data/my/BBQ"}, "m · data/my/BBQ"), ("3f2a", "m"), (None, "m")]
)
def test_the_subtitle_has_the_dataset_of_the_scores(dataset, subtitle):
    score = BiasScore("bbq_bias", math.nan, 0.0, (-1.0, 1.0), n=0, reason="none", signature={"dataset": dataset})
    run = FamilyRun(Path("nowhere"), FamilyConfig(model=ModelSettings(name="m")), common_scores=[score])
    assert BBQ().subtitle(run) == subtitle
