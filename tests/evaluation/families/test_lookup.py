"""Families of metrics are found by their names and checked against their contract."""

import sys

import pytest

from evenhand.evaluation import families
from evenhand.evaluation.errors import InputError


@pytest.fixture
def new_family(tmp_path, monkeypatch):
    """The folder of a family `brevity` that is importable until the test ends."""
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    folder = tmp_path / "brevity"
    folder.mkdir()
    (folder / "__init__.py").touch()
    yield folder
    for name in [name for name in sys.modules if ".families.brevity" in name]:
        del sys.modules[name]


def test_an_unknown_family_is_named_with_the_one_likely_meant():
    with pytest.raises(InputError, match="metrics: 'likelihoodbias' is unknown; did you mean 'likelihood_bias'"):
        families.settings_of("likelihoodbias")


def test_only_families_with_a_comparison_are_comparable():
    assert families.comparable("likelihood_bias") and not families.comparable("offensiveness")
    assert not families.comparable("no_such_family")


@pytest.mark.parametrize("name", families.names())
def test_every_family_fulfils_its_contract(name):
    families.settings_of(name)
    families.measure_of(name)
    assert families.metrics_of(name).METRICS
    if families.comparable(name):
        families.comparison_of(name)
        families.compared_page_of(name)
    else:
        families.page_of(name)


def test_missing_modules_are_named_at_once(new_family):
    (new_family / "settings.py").touch()
    with pytest.raises(InputError, match="brevity has no module measure, metrics, page"):
        families.settings_of("brevity")


def test_missing_attributes_are_named_at_once(new_family):
    for name in ("settings", "measure", "metrics", "page"):
        (new_family / f"{name}.py").touch()
    with pytest.raises(InputError, match=r"brevity\.settings: Settings is missing; inputs\(config\) is missing"):
        families.settings_of("brevity")
    with pytest.raises(InputError, match=r"brevity\.measure: measure\(run, config\) is missing"):
        families.measure_of("brevity")
