"""The columns of a sweep's summary, as its report and the card of an exported model write them.

Values are fractions of, or changes from, the base model's value; a metric's name is its column.
"""

from evenhand.evaluation.report.metrics import Metric
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT

_PERCENT = {"unit": "%", "factor": 100, "decimals": 1}
_CHANGE = {**_PERCENT, "ideal": 0, "signed": True}
_POINTS = {**_CHANGE, "unit": "points"}

REMOVED = (
    Metric("reduction", "all descriptors", "Share of the base model’s pooled FGB* that is gone.", **_PERCENT),
    Metric("reduction_seen", "tuned on", "The same for descriptors that were tuned on.", **_PERCENT),
    Metric("reduction_unseen", "not tuned on", "The same for descriptors that were not tuned on.", **_PERCENT),
)
LISTENING = (
    Metric("relevance_kept", "relevance kept", "Relevance as a share of the base model’s.", **_PERCENT),
    Metric("style_drift", "style drift", "Share of the mean style that is no longer the base model’s.", **_PERCENT),
    Metric(
        "response_perplexity_change",
        "their perplexity",
        "Relative change of the responses’ perplexity by the base model.",
        **_CHANGE,
    ),
    Metric(
        "distinct_responses_change",
        "distinct responses",
        "Relative change of the share of distinct responses.",
        **_CHANGE,
    ),
    Metric("well_formed_change", "well-formed", "Change of the share of well-formed responses.", **_POINTS),
)
COSTS = (
    Metric("perplexity_change", "perplexity", "Relative change of the perplexity of ordinary dialogue.", **_CHANGE),
    Metric("distinct_2_change", "distinct-2", "Relative change of distinct-2.", **_CHANGE),
    Metric("length_change", "length", "Relative change of the mean length of a response.", **_CHANGE),
    Metric(
        "parroting_change",
        "repeats",
        "Change of the share of responses that repeat the prompt.",
        **{**_POINTS, "decimals": 2},
    ),
    Metric(
        "worst_cluster_change",
        "worst cluster",
        "Largest change of pooled SCGB* of a style cluster.",
        unit=UNIT,
        factor=PER_UNIT,
        ideal=0,
        signed=True,
    ),
)
CHECKS = (
    Metric(
        "reduction_confirmed",
        "removed by the second classifier",
        "The share removed as measured by a style classifier without a part in labelling.",
        **_PERCENT,
    ),
    Metric("untagged_ratio", "untagged", "Pooled FGB* without the control tag over the base model’s.", unit="× base"),
    Metric("minutes", "minutes", "Minutes of tuning.", decimals=1),
)
PLAN_CORRELATION = Metric("plan_rho", "Spearman ρ", "Rank correlation of predicted and measured shares.")
