"""The settings that `--help` shows: at most one screen; other settings are one line for each group."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evenhand.evaluation import families
from evenhand.evaluation.errors import unknown_name
from evenhand.recipes.checking import NAME, Setting, settings_in

MAX_SETTINGS = 40  # of one screen
METRICS = "metrics"


def select_settings(
    cls: type, topic: str, given: Sequence[Mapping[str, Any]]
) -> tuple[list[Setting], list[Setting], bool]:
    """Return the settings that the help of a group shows.

    Args:
        cls: the class of a command's settings.
        topic: the group's dotted name; "" for the whole command.
        given: settings from flags or a file. A family of metrics is shown if they, or the topic, name it.

    Returns:
        The settings to show, the groups to show as one line each, and whether settings of families are hidden.

    Raises:
        InputError: there is no such group or setting.
    """
    settings = list(settings_in(cls))
    inside = [setting for setting in settings if not topic or _is_in(setting.name, topic)]
    if not inside:
        raise unknown_name("--help", topic, [setting.name for setting in settings if setting.is_group])
    named = {*topic.split("."), *_metrics_in(given)}
    prefixes = [setting.name.removesuffix(METRICS) for setting in inside if f".{setting.name}".endswith(f".{METRICS}")]
    hidden = [prefix + family for prefix in prefixes for family in families.names() if family not in named]
    shown = [setting for setting in inside if not any(_is_in(setting.name, name) for name in hidden)]
    shown = list(_fold_models(shown, topic))
    if sum(not setting.is_group for setting in shown) <= MAX_SETTINGS:
        return shown, [], bool(hidden)
    depth = topic.count(".") + 1 if topic else 0
    shown = [setting for setting in shown if setting.name.count(".") <= depth]
    folded = [setting for setting in shown if setting.is_group and setting.name != topic]
    return [setting for setting in shown if setting not in folded], folded, bool(hidden)


def _is_in(name: str, group: str) -> bool:
    return f"{name}.".startswith(f"{group}.")


def _metrics_in(given: Any) -> Iterator[str]:
    """Yield the families of metrics that nested settings name."""
    if isinstance(given, Mapping):
        metrics = given.get(METRICS)
        yield from metrics if isinstance(metrics, list) else []
        given = list(given.values())
    if isinstance(given, Sequence) and not isinstance(given, str):
        for item in given:
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
