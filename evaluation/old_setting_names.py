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

# Settings that moved to a group that several families of metrics share: the old name and the new one.
MOVED = {
    "generation_bias.offensiveness": "offensive_classifier",
    "offensiveness.classifier": "offensive_classifier",
    "translation_bias.toxicity": "offensive_classifier",
}
for _family in ("likelihood_bias", "sentence_pairs"):
    for _name in ("context", "end_of_sequence", "limit"):
        MOVED[f"{_family}.{_name}"] = f"sentences.{_name}"
for _family in ("translation_bias", "embedding_bias"):
    MOVED[f"{_family}.references"] = "references.name"
    for _name in ("split", "languages", "nouns", "min_masculine_references"):
        MOVED[f"{_family}.{_name}"] = f"references.{_name}"

COMPLETIONS = "completions"  # an API of servers
CLASSIFIERS = (
    "style_classifier",
    "second_style_classifier",
    "other_classifier",
    "offensive_classifier",
    "offensiveness",
    "toxicity",
    "classifier",
)
REMOVED_FROM_CLASSIFIERS = {
    "base": "an adapter's base is as in its files",
    "dtype": "classifiers compute in float32",
    "device": "classifiers are on a GPU if there is one",
    "device_map": "classifiers are on one device",
    "attn_implementation": "classifiers have the default of transformers",
    "quantization": "classifiers are not quantized",
    "trust_remote_code": "no code that comes with a classifier is executed",
}
REMOVED = {f"{classifier}.{name}": why for classifier in CLASSIFIERS for name, why in REMOVED_FROM_CLASSIFIERS.items()}
REMOVED |= {
    "model.api": "the address of the server says it, http://host:port/v1/completions",
    "judge.api": "the address of the server says it, http://host:port/v1/completions",
    "answer_accuracy.permutations": "999 permutations are drawn",
    "prompts.train_fraction": "half of the values of split_by are for training",
    "prompts.unseen_fraction": "half of what untuned_by names is excluded from training",
    "prompts.untuned_fraction": "half of what untuned_by names is excluded from training",
    "training.opening": "it is a setting of its method, distill.first_tokens",
    "training.first_tokens": "it is a setting of its method, distill.first_tokens",
    "instruction": "it is a setting of its method, prompt.instruction",
    "loop.instruction": "it is a setting of its method, prompt.instruction",
}


def removed_name(dotted: str) -> str | None:
    """Return what is in place of a setting that was removed, or why it is gone; None if it was not removed."""
    return REMOVED.get(".".join(dotted.split(".")[-2:]))


def new_name(dotted: str) -> str | None:
    """Return the present name of a renamed setting; None if the setting was not renamed.

    >>> new_name("measure.prompts.per_cell"), new_name("measure.translation_bias.toxicity.label")
    ('measure.prompts.answers_per_cell', 'measure.offensive_classifier.label')
    """
    parts = dotted.split(".")
    for start in range(len(parts) - 1):
        moved = MOVED.get(".".join(parts[start : start + 2]))
        if moved is not None:
            return ".".join([*parts[:start], moved, *parts[start + 2 :]]).removesuffix(".name")
    renamed = _renamed(dotted)
    return None if renamed is None else ".".join([*parts[:-1], renamed])


def _renamed(dotted: str) -> str | None:
    """Return the new name, without its group, of a setting that was renamed in its group; None for any other name."""
    parts = dotted.split(".")
    return OLD_NAMES.get(".".join(parts[-2:]), OLD_NAMES.get(parts[-1]))


def with_new_names(settings: object, group: str = "") -> object:
    """Return the settings of a stored run with new names in place of old ones, and without removed ones."""
    if not isinstance(settings, Mapping):
        return settings
    renamed: dict[str, object] = {}
    for key, value in _with_moved(settings).items():
        dotted = f"{group}.{key}" if group else str(key)
        name = _renamed(dotted)
        if key == "api" and value == COMPLETIONS and settings.get("server"):
            renamed["server"] = f"{settings['server']}/{COMPLETIONS}"
        elif removed_name(dotted) is not None or (name is not None and value is None):
            continue
        elif key == "device_map" and value == "auto":
            renamed["device"] = "balanced"
        elif name is not None or key not in renamed:
            renamed[name or key] = with_new_names(value, dotted)
    return renamed


def _with_moved(settings: Mapping[str, object]) -> dict[str, object]:
    """Return the settings with each setting that has moved in its new group.

    If families of one run had different values, the last one that was given is for all.
    """
    moved = {key: dict(value) if isinstance(value, Mapping) else value for key, value in settings.items()}
    for old, new in MOVED.items():
        family, name = old.split(".")
        former = moved.get(family)
        if not isinstance(former, dict) or name not in former:
            continue
        value = former.pop(name)
        group, _, setting = new.partition(".")
        if setting:
            target = moved.setdefault(group, {})
            if isinstance(target, dict) and (_is_given(value) or setting not in target):
                target[setting] = value
        elif _is_given(value) or group not in moved:
            moved[group] = value
    return moved


def _is_given(value: object) -> bool:
    """Return whether a value, or a value in a group, is neither null nor empty, false or 0."""
    return any(map(_is_given, value.values())) if isinstance(value, Mapping) else bool(value)
