"""Labels, units and decimals of the columns of a sweep's summary, for its report and for model cards.

A metric's name is its column. Values are fractions of the base model's value, or changes from it.
"""

from evenhand.evaluation.report.metrics import Metric
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT

_PERCENT = {"unit": "%", "factor": 100, "decimals": 1}
_CHANGE = {**_PERCENT, "ideal": 0, "signed": True}
_POINTS = {**_CHANGE, "unit": "points"}

REDUCTION_METRICS = (
    Metric("reduction", "all descriptors", "Share of the base model’s pooled FGB* that is gone.", **_PERCENT),
    Metric("reduction_seen", "tuned on", "Reduction for descriptors that were tuned on.", **_PERCENT),
    Metric("reduction_unseen", "not tuned on", "Reduction for descriptors that were not tuned on.", **_PERCENT),
)
QUALITY_METRICS = (
    Metric("relevance_kept", "relevance kept", "Relevance as a share of the base model’s.", **_PERCENT),
    Metric("style_drift", "style drift", "Share of the mean style that is no longer the base model’s.", **_PERCENT),
    Metric(
        "response_perplexity_change",
        "perplexity of responses",
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
COST_METRICS = (
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
CHECK_METRICS = (
    Metric(
        "reduction_confirmed",
        "removed by the second classifier",
        "Reduction measured by a style classifier that made no labels.",
        **_PERCENT,
    ),
    Metric("ratio_without_tag", "without tag", "Pooled FGB* without the control tag over the base’s.", unit="× base"),
    Metric("minutes", "minutes", "Minutes of tuning.", decimals=1),
)
PLAN_CORRELATION = Metric("plan_rho", "Spearman ρ", "Rank correlation of predicted and measured shares.")
