"""Contracts of modules, and families of metrics found by their names and checked against them."""

import sys
from abc import abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

import pytest

from evenhand.evaluation import families
from evenhand.evaluation.contracts import check_contract
from evenhand.evaluation.errors import InputError


class Contract(Protocol):
    Settings: type
    TAGS: tuple[str, ...]
    TABLES: Mapping[str, str] = {}
    SERVED: bool = False

    @abstractmethod
    def rows(self, config: Any, seed: int) -> list[int]:
        """Return rows."""

    def inputs(self, config: Any) -> dict[str, Any]:
        return {"of": config, "served": self.SERVED}


def module(**attributes: Any) -> ModuleType:
    result = ModuleType("plug_in")
    vars(result).update(attributes)
    return result


def test_a_module_without_optional_attributes_has_the_defaults_of_the_contract():
    checked = check_contract(
        module(Settings=dict, TAGS=("a",), SERVED=True, rows=lambda config, seed: [seed]), Contract
    )
    assert (checked.Settings, checked.TAGS, checked.TABLES, checked.SERVED) == (dict, ("a",), {}, True)
    assert checked.rows("c", 3) == [3] and checked.inputs("c") == {"of": "c", "served": True}


def test_one_error_names_all_missing_attributes():
    with pytest.raises(InputError) as error:
        check_contract(module(), Contract)
    assert {"Settings", "TAGS", "rows(config, seed)"} == {
        part.removeprefix("plug_in: ").removesuffix(" is missing") for part in str(error.value).split("; ")[:-1]
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Settings", 3),
        ("TABLES", {"a": 1}),
        ("SERVED", "yes"),
        ("rows", lambda config: []),
        ("inputs", lambda config, more: {}),
    ],
)
def test_a_wrong_type_or_signature_is_named(name, value):
    valid = {"Settings": dict, "TAGS": (), "rows": lambda config, seed: []}
    with pytest.raises(InputError, match=rf"plug_in: {name} is [^;]*; see .*Contract"):
        check_contract(module(**{**valid, name: value}), Contract)


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


def test_families_are_looked_up_by_name():
    with pytest.raises(InputError, match="metrics: 'likelihoodbias' is unknown; did you mean 'likelihood_bias'"):
        families.settings_of("likelihoodbias")
    assert families.comparable("likelihood_bias") and not families.comparable("offensiveness")
    assert not families.comparable("no_such_family")


@pytest.mark.parametrize("name", families.names())
def test_every_family_fulfils_its_contract(name):
    families.settings_of(name)
    families.measure_of(name)
    assert families.metrics_of(name).METRICS
    if families.comparable(name):
        families.comparison_of(name)
        families.page_of(name, families.ComparedPage)
    else:
        families.page_of(name)


def test_missing_modules_and_attributes_are_named_at_once(new_family):
    (new_family / "settings.py").touch()
    with pytest.raises(InputError, match="brevity has no module measure, metrics, page"):
        families.settings_of("brevity")
    for name in ("settings", "measure", "metrics", "page"):
        (new_family / f"{name}.py").touch()
    with pytest.raises(InputError, match=r"brevity\.settings: Settings is missing; inputs\(config\) is missing"):
        families.settings_of("brevity")
    with pytest.raises(InputError, match=r"brevity\.measure: measure\(run, config\) is missing"):
        families.measure_of("brevity")
