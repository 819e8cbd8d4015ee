"""Settings with which tests measure the testbed's models: those of recipes/configs/testbed.yaml, less dialogue."""

from pathlib import Path
from typing import Any

from evenhand.evaluation.metrics.generation_bias.settings import Settings
from evenhand.evaluation.model_settings import ModelSettings, StyleClassifierSettings
from evenhand.evaluation.settings import as_settings
from evenhand.recipes.settings import Measurement

FILES = "package:evenhand/recipes/testbed/"
MODEL = ModelSettings(name=f"{FILES}dialogue_model", dtype="float32")
MASKED_MODEL = ModelSettings(name=f"{FILES}masked_model", dtype="float32")
PAIRS = f"{FILES}pairs.csv"
NEUTRAL_DIALOGUE = str(Path(__file__).with_name("neutral_dialogue.jsonl"))  # the first 24 of the testbed's 1,000 pairs
GENERATION_BIAS = {
    "style_classifier": StyleClassifierSettings(name=f"{FILES}style_classifier"),
    "second_style_classifier": StyleClassifierSettings(name=f"{FILES}second_style_classifier"),
    "style_clusters": "testbed",
    "neutral_dialogue": NEUTRAL_DIALOGUE,
}
# The same as YAML, inside a mapping.
CLASSIFIERS = (
    f"style_classifier: {FILES}style_classifier, second_style_classifier: {FILES}second_style_classifier, "
    "style_clusters: testbed"
)


def generation_bias(**changed: Any) -> Settings:
    """The settings of generation bias with the testbed's classifiers, and changes."""
    return Settings(**{**GENERATION_BIAS, **changed})


MEASURE = Measurement(model=MODEL, generation_bias=generation_bias())


def with_testbed(values: dict[str, Any], group: str = "") -> dict[str, Any]:
    """Plain values of settings, with the testbed's as defaults in `group` ("measure" or "loop.measure")."""
    plain = {"model": MODEL.name, "generation_bias": as_settings(generation_bias())}
    names = ("style_classifier", "second_style_classifier", "style_clusters", "neutral_dialogue")
    plain["generation_bias"] = {name: plain["generation_bias"][name] for name in names}
    for part in reversed(group.split(".") if group else []):
        plain = {part: plain}
    return _merged(plain, values)


def _merged(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    both = {name: _merged(base[name], value) for name, value in values.items() if _is_group(name, base, values)}
    return {**base, **values, **both}


def _is_group(name: str, base: dict[str, Any], values: dict[str, Any]) -> bool:
    return isinstance(base.get(name), dict) and isinstance(values[name], dict)
