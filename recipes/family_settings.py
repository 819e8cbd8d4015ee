"""Fields of settings classes for each family of metrics, and checks that the measured families support the settings."""

from collections.abc import Callable, Sequence

from evenhand.evaluation import families
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import ModelSettings, option


def family_fields(
    group_of: Callable[[families.FamilySettings], type | None], when_named: bool
) -> Callable[[type], type]:
    """Return a decorator that adds a field to a settings class for each family for which `group_of` returns a class.

    The default of each field is None if `when_named`, else an instance of the class.
    """

    def add(cls: type) -> type:
        for name in families.names():
            if group := group_of(families.settings_of(name)):
                cls.__annotations__[name] = group | None if when_named else group
                text = group.__doc__.splitlines()[0].rpartition(": ")[2]
                setattr(cls, name, option(None if when_named else group, text, omit_if_null=when_named))
        return cls

    return add


def check_model(model: ModelSettings, metrics: Sequence[str], capabilities: Sequence[str]) -> None:
    """Raise InputError if the model has a system prompt or a server that a measured family does not support."""
    measured = {name: families.settings_of(name) for name in metrics}
    if model.system_prompt and (without := [name for name in metrics if not measured[name].USES_SYSTEM_PROMPT]):
        raise InputError(
            f"model.system_prompt: {', '.join(without)} does not use it; measure "
            f"{_supporting(lambda family: family.USES_SYSTEM_PROMPT)} alone with it, or leave it out."
        )
    if model.server is None:
        return
    if weights := sorted([*(name for name in metrics if not measured[name].SERVER_APIS), *capabilities]):
        raise InputError(
            f"model.server: {', '.join(weights)} needs the model's weights, which a server does not give; measure "
            f"{_supporting(lambda family: bool(family.SERVER_APIS))} by it, or load the model."
        )
    for name, family in measured.items():
        if model.api not in family.SERVER_APIS:
            raise InputError(
                f"model.api: {name} cannot be measured by {model.api!r}; give {' or '.join(family.SERVER_APIS)}."
            )


def check_reads_responses(setting: str, metrics: Sequence[str]) -> None:
    """Raise InputError unless `metrics` is a single family that samples responses; the error begins with `setting`."""
    if len(metrics) != 1 or not families.settings_of(metrics[0]).READS_RESPONSES:
        readers = _supporting(lambda family: family.READS_RESPONSES)
        raise InputError(f"{setting}: {', '.join(metrics)}: only {readers} samples responses; measure it alone.")


def recomputable_tables(metrics: Sequence[str]) -> dict[str, str]:
    """Return {dotted name: table} for the settings and inputs that affect only one final table of a run."""
    return {
        f"{prefix}{name}.{setting}": table
        for name in metrics
        for setting, table in families.settings_of(name).RECOMPUTABLE.items()
        for prefix in ("", "inputs.")
    }


def _supporting(is_supported: Callable[[families.FamilySettings], bool]) -> str:
    """Return the comma-separated names of the families for which `is_supported` is true."""
    return ", ".join(name for name in families.names() if is_supported(families.settings_of(name)))
