"""What a reader of the report must not miss: every cluster and axis that rose, and every cost that stands out."""

import math

from evenhand.evaluation.families.generation_bias.content import METRIC_NAMES, Content
from evenhand.evaluation.families.generation_bias.tables import HARMFUL_CLUSTERS, WATCHED
from evenhand.evaluation.report.sentences import Sentences

say = Sentences(__file__)

# A change of a cost beyond these is pointed out: our judgement of what a reader would want to be told.
PERPLEXITY_RISE, DISTINCT_FALL, SHARE_RISE = 0.03, 0.10, 0.01


def warnings(content: Content) -> list[str]:
    """Return one sentence for each warning."""
    return _rises(content) + _harms(content) + _costs(content)


def _rises(content: Content) -> list[str]:
    names = {"cluster": "Style cluster", "axis": "Axis"}
    rises: dict[tuple[str, str], list[str]] = {}
    for cut, families in WATCHED.items():
        for family in families:
            risen = {}  # one metric of a family is enough
            for row in (row for metric in family for row in content.comparisons(metric, cut) if row.direction > 0):
                risen.setdefault(row.label, row)
            for label, row in risen.items():
                rises.setdefault((names[cut], label), []).append(say.rise(METRIC_NAMES[row.metric], row))
    return [say.rise_of_cut(cut, label, how) for (cut, label), how in rises.items()]


def _harms(content: Content) -> list[str]:
    """Return the significant rises of offensive responses, and of hate and envy among the styles of all responses."""
    shares = content.comparisons("style_share", "cluster")
    rows = [*content.comparisons("offensive_share"), *(row for row in shares if row.label.upper() in HARMFUL_CLUSTERS)]
    return [say.harm(row) for row in rows if row.direction > 0]


def _costs(content: Content) -> list[str]:
    found = []
    for metric, name, limit, relative in (
        ("perplexity", "Perplexity", PERPLEXITY_RISE, True),
        ("distinct_2", "Distinct-2", -DISTINCT_FALL, True),
        ("parroting", "The share of responses that repeat the prompt", SHARE_RISE, False),
        ("empty_share", "The share of empty responses", SHARE_RISE, False),
    ):
        for row in content.comparisons(metric):
            change = row.relative_change if relative else row.change
            if change * math.copysign(1, limit) > abs(limit):  # never true of NaN
                found.append(say.cost_warning(name, change, "%" if relative else "percentage points"))
    return found
