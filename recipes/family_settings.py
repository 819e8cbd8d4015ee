"""The families of metrics, and a settings class with a group for each family."""

from collections.abc import Sequence
from dataclasses import make_dataclass

from evenhand.evaluation import metrics as families
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import ModelSettings, option

FAMILIES = {name: families.load_metric(name)() for name in families.names()}


def family_groups(attribute: str, is_optional: bool) -> type:
    """Return a dataclass with a field for each family that has the class `attribute`.

    The default of a field is None if `is_optional`, else an instance of the class.
    """
    listed = []
    for name, family in FAMILIES.items():
        if group := getattr(family, attribute):
            text = group.__doc__.splitlines()[0].rpartition(": ")[2]
            default = option(None if is_optional else group, text, omit_if_null=is_optional)
            listed.append((name, group | None if is_optional else group, default))
    return make_dataclass(f"Family{attribute}", listed, kw_only=True)


def families_with(attribute: str) -> str:
    """Return the comma-separated names of the families with a true `attribute`."""
    return ", ".join(name for name, family in FAMILIES.items() if getattr(family, attribute))


def check_model(model: ModelSettings, metrics: Sequence[str], capabilities: Sequence[str]) -> None:
    """Raise InputError if the model has a system prompt or a server that a measured family does not support."""
    for name in metrics:
        apis = FAMILIES[name].SERVER_APIS
        if model.system_prompt and not FAMILIES[name].USES_SYSTEM_PROMPT:
            supporting = families_with("USES_SYSTEM_PROMPT")
            raise InputError(f"model.system_prompt: {name} does not use it; measure {supporting} alone with it.")
        if model.server and (capabilities or not apis):
            raise InputError(
                f"model.server: {', '.join(capabilities) or name} needs the model's weights, which a server does not "
                f"give; measure {families_with('SERVER_APIS')} by it, or load the model."
            )
        if model.server and model.api not in apis:
            raise InputError(f"model.api: {name} cannot be measured by {model.api!r}; give {' or '.join(apis)}.")


def recomputable_tables(metrics: Sequence[str]) -> dict[str, str]:
    """Return {dotted name: table} for the settings and inputs that affect only one final table of a run."""
    return {
        f"{prefix}{name}.{setting}": table
        for name in metrics
        for setting, table in FAMILIES[name].RECOMPUTABLE.items()
        for prefix in ("", "inputs.")
    }
