"""Names, units and ideals of the metrics of embedding bias, for reports."""

from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT

_GAP = {"unit": UNIT, "factor": PER_UNIT, "ideal": 0, "better": "ideal", "signed": True}

METRICS = (
    Format(
        "embedding_gap",
        "gap",
        "Cosine of the English sentence and its masculine translation minus the cosine with its feminine one.",
        **_GAP,
    ),
    Format("embedding_gap_holm", "gap", "The gap with Holm’s correction of p over languages.", **_GAP),
    Format(
        "embedding_gap_one_sided", "gap", "The gap with p of the one-sided test (Costa-jussà et al. 2023, §5).", **_GAP
    ),
    Format("embedding_similarity", "cosine", "Cosine of an English sentence and its translation, −1 to 1.", decimals=3),
)
