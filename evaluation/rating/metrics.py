"""Metrics of raters' votes: names, descriptions and units in reports."""

from evenhand.evaluation.report.formats import Format

_SHARE = {"unit": "%", "factor": 100, "decimals": 0, "ideal": 0.5}

METRICS = (
    Format(
        "win_rate",
        "share for the model after",
        "Share of the votes, skipped ones excluded, for the model after tuning.",
        **_SHARE,
        better="higher",
    ),
    Format(
        "pair_win_rate",
        "share for the model after",
        "Share of the pairs in which most raters prefer the model after tuning; evenly split pairs are excluded.",
        **_SHARE,
        better="higher",
    ),
    Format(
        "krippendorff_alpha",
        "Krippendorff’s α",
        "One minus the observed disagreement over the disagreement expected by chance; nominal votes.",
        ideal=1,
        better="higher",
    ),
    Format("left_share", "left response chosen", "Share of the votes for the response on the left.", **_SHARE),
)
