"""Scores by their `BiasScore.name`, such as "fgb_pooled_corrected_difference"."""

from collections.abc import Iterable

from evenhand.evaluation.old_score_names import current_name
from evenhand.evaluation.score import BiasScore, Form, Kind, find_score


def named_score(name: str, *values, **fields) -> BiasScore:
    """Return a score whose metric, form and kind are in the name."""
    metric, form, kind = current_name(name)
    return BiasScore(metric, *values, form=Form(form), kind=Kind(kind), **fields)


def find_named(scores: Iterable[BiasScore], name: str, **group: str) -> BiasScore | None:
    """Return the first score of this name and group, or None."""
    metric, form, kind = current_name(name)
    return find_score(scores, metric, Form(form), Kind(kind), **group)
