"""Selects the settings that `--help` displays: at most one screen, with one line for each folded group."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evenhand.evaluation import families
from evenhand.evaluation.errors import unknown_name
from evenhand.recipes.checking import NAME, Setting, settings_in

MAX_SETTINGS = 40  # on one screen
METRICS = "metrics"


def select_settings(
    cls: type, topic: str, sources: Sequence[Mapping[str, Any]]
) -> tuple[list[Setting], list[Setting], bool]:
    """Return the settings in the help of a group.

    Args:
        cls: the class of a command's settings.
        topic: the dotted name of the group; "" for the whole command.
        sources: settings from flags or a file. A family of metrics is in the help if they or the topic name it.

    Returns:
        The settings, the groups that are folded to one line each, and whether settings of families are hidden.

    Raises:
        InputError: the command has no such group or setting.
    """
    settings = list(settings_in(cls))
    inside = [setting for setting in settings if not topic or _is_in(setting.name, topic)]
    if not inside:
        raise unknown_name("--help", topic, [setting.name for setting in settings if setting.is_group])
    named = {*topic.split("."), *_metrics_in(sources)}
    prefixes = [setting.name.removesuffix(METRICS) for setting in inside if f".{setting.name}".endswith(f".{METRICS}")]
    hidden = [prefix + family for prefix in prefixes for family in families.names() if family not in named]
    selected = [setting for setting in inside if not any(_is_in(setting.name, name) for name in hidden)]
    selected = list(_fold_models(selected, topic))
    if sum(not setting.is_group for setting in selected) <= MAX_SETTINGS:
        return selected, [], bool(hidden)
    depth = topic.count(".") + 1 if topic else 0
    selected = [setting for setting in selected if setting.name.count(".") <= depth]
    folded = [setting for setting in selected if setting.is_group and setting.name != topic]
    return [setting for setting in selected if setting not in folded], folded, bool(hidden)


def _is_in(name: str, group: str) -> bool:
    return f"{name}.".startswith(f"{group}.")


def _metrics_in(settings: Any) -> Iterator[str]:
    """Yield the families of metrics that nested settings name."""
    if isinstance(settings, Mapping):
        metrics = settings.get(METRICS)
        yield from metrics if isinstance(metrics, list) else []
        settings = list(settings.values())
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        for item in settings:
            yield from _metrics_in(item)


def _fold_models(settings: Sequence[Setting], topic: str) -> Iterator[Setting]:
    """Yield the settings, with a single line for each model outside the topic."""
    names = {setting.name for setting in settings}
    models = {name for name in names if f"{name}.{NAME}" in names and not _is_in(topic, name)}
    for setting in settings:
        if setting.name in models:
            text = f"{setting.text} (more: `--help {setting.name}`)"
            yield Setting(setting.name, str, getattr(setting.default, NAME), text)
        elif setting.name.rpartition(".")[0] not in models:
            yield setting
