"""Names of settings that were changed. Imports nothing slow.

For one version, commands refuse an old name with the new one; runs that were stored under old names are still read.
"""

from collections.abc import Mapping

# By the end of the dotted name: an old name, perhaps with its group, and its new name in the same group.
OLD_NAMES = {
    "per_cell": "answers_per_cell",
    "train_per_cell": "train_answers_per_cell",
    "unseen_by": "untuned_by",
    "generation_bias.opening": "borrowed_opening",
    "generation_bias.style_exchange": "nearest_style",
    "prompts.file": "dataset",
    "prompts.requests": "templates",
    "model.device_map": "device",
    "max_even_within": "max_difference",
    "even_within": "max_difference",
}

COMPLETIONS = "completions"  # an API of servers
CLASSIFIERS = (
    "style_classifier",
    "second_style_classifier",
    "other_classifier",
    "offensiveness",
    "toxicity",
    "classifier",
)
OF_CLASSIFIERS = {
    "base": "an adapter's base is as in its files",
    "dtype": "classifiers compute in float32",
    "device": "classifiers are on a GPU if there is one",
    "device_map": "classifiers are on one device",
    "attn_implementation": "classifiers have the default of transformers",
    "quantization": "classifiers are not quantized",
    "trust_remote_code": "no code that comes with a classifier is executed",
}
REMOVED = {f"{classifier}.{name}": why for classifier in CLASSIFIERS for name, why in OF_CLASSIFIERS.items()}
REMOVED |= {
    "model.api": "the address of the server says it, http://host:port/v1/completions",
    "judge.api": "the address of the server says it, http://host:port/v1/completions",
    "prompts.train_fraction": "half of the values of split_by are for training",
    "prompts.unseen_fraction": "half of what untuned_by names is excluded from training",
    "prompts.untuned_fraction": "half of what untuned_by names is excluded from training",
    "training.opening": "it is a setting of its method, distill.first_tokens",
    "training.first_tokens": "it is a setting of its method, distill.first_tokens",
    "instruction": "it is a setting of its method, prompt.instruction",
    "loop.instruction": "it is a setting of its method, prompt.instruction",
}


def removed_name(dotted: str) -> str | None:
    """Return what stands in place of a setting that was removed; None for any other name."""
    return REMOVED.get(".".join(dotted.split(".")[-2:]))


def new_name(dotted: str) -> str | None:
    """Return the new name of a setting with an old dotted name, without its group; None if the name is not old.

    >>> new_name("measure.prompts.per_cell")
    'answers_per_cell'
    """
    parts = dotted.split(".")
    return OLD_NAMES.get(".".join(parts[-2:]), OLD_NAMES.get(parts[-1]))


def with_new_names(settings: object, group: str = "") -> object:
    """Return the settings of a stored run with new names in place of old ones, and without removed ones."""
    if not isinstance(settings, Mapping):
        return settings
    renamed = {}
    for key, value in settings.items():
        dotted = f"{group}.{key}" if group else str(key)
        name = new_name(dotted)
        if key == "api" and value == COMPLETIONS and settings.get("server"):
            renamed["server"] = f"{settings['server']}/{COMPLETIONS}"
        elif removed_name(dotted) is not None or (name is not None and value is None):
            continue
        elif key == "device_map" and value == "auto":
            renamed["device"] = "balanced"
        elif name is not None or key not in renamed:
            renamed[name or key] = with_new_names(value, dotted)
    return renamed
