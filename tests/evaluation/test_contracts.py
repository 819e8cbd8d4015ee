"""check_contract names all missing and mistyped attributes of a module in one error."""

from abc import abstractmethod
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Protocol

import pytest

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
        ("TAGS", ["a"]),
        ("TABLES", {"a": 1}),
        ("SERVED", "yes"),
        ("rows", lambda config: []),
        ("rows", 5),
        ("inputs", lambda config, more: {}),
    ],
)
def test_a_wrong_type_or_signature_is_named(name, value):
    valid = {"Settings": dict, "TAGS": (), "rows": lambda config, seed: []}
    with pytest.raises(InputError, match=rf"plug_in: {name} is [^;]*; see .*Contract"):
        check_contract(module(**{**valid, name: value}), Contract)
