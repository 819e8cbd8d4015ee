"""Names of settings that were changed. Imports nothing slow.

For one version, commands refuse an old name with the new one; runs that were stored under old names are still read.
"""

from collections.abc import Mapping
from typing import Any

# By the end of the dotted name: an old name, perhaps with its group, and its new name in the same group.
OLD_NAMES = {
    "per_cell": "answers_per_cell",
    "train_per_cell": "train_answers_per_cell",
    "unseen_by": "untuned_by",
    "unseen_fraction": "untuned_fraction",
    "training.opening": "first_tokens",
    "generation_bias.opening": "borrowed_opening",
    "generation_bias.style_exchange": "nearest_style",
    "max_even_within": "max_difference",
    "even_within": "max_difference",
}


def new_name(dotted: str) -> str | None:
    """Return the new name of a setting with an old dotted name, without its group; None if the name is not old.

    >>> new_name("measure.prompts.per_cell")
    'answers_per_cell'
    """
    parts = dotted.split(".")
    return OLD_NAMES.get(".".join(parts[-2:]), OLD_NAMES.get(parts[-1]))


def with_new_names(settings: Any, group: str = "") -> Any:
    """Return the settings of a stored run, nested mappings, with new names in place of old ones."""
    if not isinstance(settings, Mapping):
        return settings
    renamed = {}
    for key, value in settings.items():
        dotted = f"{group}.{key}" if group else str(key)
        renamed[new_name(dotted) or key] = with_new_names(value, dotted)
    return renamed
