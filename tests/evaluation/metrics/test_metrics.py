"""Families of metrics are found by their names."""

import pytest

from evenhand.evaluation import metrics as families
from evenhand.evaluation.errors import InputError


def test_families_are_looked_up_by_name():
    with pytest.raises(InputError, match="metrics: 'likelihoodbias' is unknown; did you mean 'likelihood_bias'"):
        families.settings_of("likelihoodbias")
    assert families.comparable("likelihood_bias") and not families.comparable("offensiveness")
    assert not families.comparable("no_such_family")


def test_missing_modules_of_a_family_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    (tmp_path / "brevity").mkdir()
    for name in ("__init__", "settings"):
        (tmp_path / "brevity" / f"{name}.py").touch()
    with pytest.raises(InputError, match="brevity has no module measure, metrics, page"):
        families.settings_of("brevity")
