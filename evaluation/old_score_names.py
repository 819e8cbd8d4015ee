"""Names in runs that earlier versions wrote, and what they are called now.

Earlier versions wrote a metric, its form and its kind as one name, such as "fgb_pooled_corrected_difference".
"""

from collections.abc import Mapping
from typing import Any

# The name of a level before → the metric and the form now.
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
# The end of a name before → the kind now, and of an outcome the form.
KINDS = {
    "_difference_detectable": "detectable_difference",
    "_difference": "difference",
    "_reduction": "reduction",
    "_kept": "kept",
    "_rise": "rise",
    "_detectable": "detectable",
}
FORMS = {"_mean": "mean", "_spread": "spread"}
CHANGES = {"effect_change": ("effect", "difference")}
GROUPS = {"seen": "tuned"}
COLUMNS = {"unseen": "untuned"}  # of prompts.parquet
# The beginning of a reason before → the caution now.
CAUTIONS = {
    "there is one template, so this is FGB*": "one_template",
    "caution: of intervals from one template": "one_sided",
    "caution: somebody has few templates in common": "these_prompts",
}


def current_name(name: str) -> tuple[str, str, str]:
    """Return the metric, form and kind of a score that an earlier version wrote under one name.

    >>> current_name("fgb_pooled_corrected_difference"), current_name("length_spread")
    (('fgb', 'pooled_corrected', 'difference'), ('length', 'spread', 'level'))
    """
    if name in CHANGES:
        metric, kind = CHANGES[name]
        return metric, "plain", kind
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


def current_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Translate one score of a scores.json of an earlier version to the names that this version uses."""
    current = dict(record)
    current.setdefault("caution", None)
    current["group"] = {GROUPS.get(name, name): value for name, value in record["group"].items()}
    if "form" in record:
        return current
    metric, form, kind = current_name(record["metric"])
    current.update(metric=metric, form=form, kind=kind)
    reason = record.get("reason") or ""
    for beginning, caution in CAUTIONS.items():
        if reason.startswith(beginning) and record["value"] is not None:
            current["caution"] = caution
            current["reason"] = None
    return current
