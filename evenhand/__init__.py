"""Evenhand: measuring and mitigating demographic bias of language models.

This module exports the public functions (docs/python_api.md) and imports each function on first use. All other modules
are private and may change.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors and type checkers; see __getattr__
    from evenhand.api import Run, compare, label, measure, tune
    from evenhand.evaluation.data.language.mentions import clean_response
    from evenhand.evaluation.data.style_clusters import load_style_clusters
    from evenhand.evaluation.errors import InputError
    from evenhand.evaluation.metrics.generation_bias.answers import Answers
    from evenhand.evaluation.metrics.generation_bias.derived_clusters import derive_style_clusters
    from evenhand.evaluation.metrics.generation_bias.engine.effects import effect_changes, effects
    from evenhand.evaluation.metrics.generation_bias.engine.spread import compare_generation_bias, generation_bias
    from evenhand.evaluation.metrics.generation_bias.parts.effects import effects_figure
    from evenhand.evaluation.models.classifier_kinds import load_style_classifier
    from evenhand.evaluation.models.styles import style_vectors
    from evenhand.evaluation.report.score_table import score_figure, score_table
    from evenhand.evaluation.score import BiasScore, signature_line
    from evenhand.mitigation.bias_callback import BiasCallback
    from evenhand.mitigation.labels import label_responses
    from evenhand.recipes.check import assert_no_worse
    from evenhand.responses import MeasuredResponses, measure_responses

# bitsandbytes warns of a missing kernel that is not used, as soon as PEFT imports it.
logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)

__all__ = [
    "Answers",
    "BiasCallback",
    "BiasScore",
    "InputError",
    "MeasuredResponses",
    "Run",
    "assert_no_worse",
    "clean_response",
    "compare",
    "compare_generation_bias",
    "derive_style_clusters",
    "effect_changes",
    "effects",
    "effects_figure",
    "generation_bias",
    "label",
    "label_responses",
    "load_style_classifier",
    "load_style_clusters",
    "measure",
    "measure_responses",
    "score_figure",
    "score_table",
    "signature_line",
    "style_vectors",
    "tune",
]

_MODULES = {
    "evaluation.data.language.mentions": ("clean_response",),
    "evaluation.data.style_clusters": ("load_style_clusters",),
    "evaluation.errors": ("InputError",),
    "evaluation.metrics.generation_bias.engine.spread": ("compare_generation_bias", "generation_bias"),
    "evaluation.metrics.generation_bias.derived_clusters": ("derive_style_clusters",),
    "evaluation.metrics.generation_bias.engine.effects": ("effect_changes", "effects"),
    "evaluation.metrics.generation_bias.parts.effects": ("effects_figure",),
    "evaluation.metrics.generation_bias.answers": ("Answers",),
    "evaluation.models.classifier_kinds": ("load_style_classifier",),
    "evaluation.models.styles": ("style_vectors",),
    "evaluation.report.score_table": ("score_figure", "score_table"),
    "evaluation.score": ("BiasScore", "signature_line"),
    "mitigation.labels": ("label_responses",),
    "mitigation.bias_callback": ("BiasCallback",),
    "api": ("Run", "compare", "label", "measure", "tune"),
    "recipes.check": ("assert_no_worse",),
    "responses": ("MeasuredResponses", "measure_responses"),
}


def __getattr__(name: str) -> Any:
    """Return a public object, imported on first use, so that a table of scores does not require the import of torch."""
    if name == "__version__":
        from importlib.metadata import version

        return version("evenhand")
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"evenhand.{module}"), name)
    raise AttributeError(f"module 'evenhand' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
