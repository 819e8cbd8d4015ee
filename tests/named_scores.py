"""Scores by their `BiasScore.name`, such as "fgb_pooled_corrected_difference"."""

from collections.abc import Iterable

from evenhand.evaluation.score import BiasScore, Form, Kind, find_score

# The name of a level → its metric and form.
METRICS = {
    "fgb_corrected": ("fgb", "corrected"),
    "pgb_corrected": ("pgb", "corrected"),
    "scgb_corrected": ("scgb", "corrected"),
    "fgb_pooled_corrected": ("fgb", "pooled_corrected"),
    "pgb_pooled_corrected": ("pgb", "pooled_corrected"),
    "scgb_pooled_corrected": ("scgb", "pooled_corrected"),
    "fgb_pooled_person": ("fgb", "person"),
    "fgb_pooled_word": ("fgb", "word"),
    "moved_share": ("moved_answers", "plain"),
    "likelihood_difference": ("likelihood_difference", "plain"),
    "even_within": ("difference_bound", "plain"),
    "relevance_within_template": ("relevance_to_person", "plain"),
}
# The end of a name → its kind, and of an outcome the form.
KINDS = {
    "_difference_detectable": "detectable_difference",
    "_difference": "difference",
    "_reduction": "reduction",
    "_kept": "kept",
    "_rise": "rise",
    "_detectable": "detectable",
}
FORMS = {"_mean": "mean", "_spread": "spread"}


def parts_of_name(name: str) -> tuple[str, str, str]:
    """Return the metric, form and kind that a short name of a score stands for.

    >>> parts_of_name("fgb_pooled_corrected_difference"), parts_of_name("length_spread")
    (('fgb', 'pooled_corrected', 'difference'), ('length', 'spread', 'level'))
    """
    if name in METRICS:
        metric, form = METRICS[name]
        return metric, form, "level"
    levels = {name.removesuffix(end): kind for end, kind in KINDS.items() if name.endswith(end)}
    for level, kind in levels.items():
        if level in METRICS:  # "likelihood_difference_detectable": a metric's name may end as a kind does
            metric, form = METRICS[level]
            return metric, form, kind
    level, kind = next(iter(levels.items()), (name, "level"))
    for end, form in FORMS.items():
        if level.endswith(end):
            return level.removesuffix(end), form, kind
    return level, "plain", kind


def named_score(name: str, *values, **fields) -> BiasScore:
    """Return a score whose metric, form and kind are in the name."""
    metric, form, kind = parts_of_name(name)
    return BiasScore(metric, *values, form=Form(form), kind=Kind(kind), **fields)


def find_named(scores: Iterable[BiasScore], name: str, **group: str) -> BiasScore | None:
    """Return the first score of this name and group, or None."""
    metric, form, kind = parts_of_name(name)
    return find_score(scores, metric, Form(form), Kind(kind), **group)
