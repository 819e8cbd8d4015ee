"""What `--help` shows of a command's settings: a screen of them, the rest by name."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from evenhand.evaluation import families
from evenhand.evaluation.errors import unknown_name
from evenhand.recipes.checking import NAME, Setting, settings_in

A_SCREEN = 40  # fields; of more, each group is one line
METRICS = "metrics"


def what_to_show(cls: type, topic: str, told: Sequence[Mapping[str, Any]]) -> tuple[list[Setting], list[Setting], bool]:
    """Return what to show of a topic, "" for all: settings, groups that are one line each, and whether families of
    metrics are left out, which are shown where `told` or the topic names them.

    Raises:
        InputError: there is no such group or field.
    """
    everything = list(settings_in(cls))
    within = [setting for setting in everything if not topic or _is_in(setting.name, topic)]
    if not within:
        raise unknown_name("--help", topic, [setting.name for setting in everything if setting.is_group])
    named = {*topic.split("."), *_metrics_in(told)}
    places = [setting.name.removesuffix(METRICS) for setting in within if f".{setting.name}".endswith(f".{METRICS}")]
    hidden = [place + family for place in places for family in families.names() if family not in named]
    shown = [setting for setting in within if not any(_is_in(setting.name, name) for name in hidden)]
    shown = list(_models_on_a_line(shown, topic))
    if sum(not setting.is_group for setting in shown) <= A_SCREEN:
        return shown, [], bool(hidden)
    depth = topic.count(".") + 1 if topic else 0
    shown = [setting for setting in shown if setting.name.count(".") <= depth]
    folded = [setting for setting in shown if setting.is_group and setting.name != topic]
    return [setting for setting in shown if setting not in folded], folded, bool(hidden)


def _is_in(name: str, group: str) -> bool:
    return f"{name}.".startswith(f"{group}.")


def _metrics_in(told: Any) -> Iterator[str]:
    """Yield the families of metrics named anywhere in nested settings."""
    if isinstance(told, Mapping):
        metrics = told.get(METRICS)
        yield from metrics if isinstance(metrics, list) else []
        told = list(told.values())
    if isinstance(told, Sequence) and not isinstance(told, str):
        for each in told:
            yield from _metrics_in(each)


def _models_on_a_line(shown: Sequence[Setting], topic: str) -> Iterator[Setting]:
    """Yield what is shown, with one line for each model but that of the topic."""
    names = {setting.name for setting in shown}
    models = {name for name in names if f"{name}.{NAME}" in names and not _is_in(topic, name)}
    for setting in shown:
        if setting.name in models:
            text = f"{setting.text} (more: `--help {setting.name}`)"
            yield Setting(setting.name, str, getattr(setting.default, NAME), text)
        elif setting.name.rpartition(".")[0] not in models:
            yield setting
