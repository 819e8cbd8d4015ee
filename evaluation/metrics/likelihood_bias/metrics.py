"""Names, units and ideals of the metrics of Likelihood Bias, for reports."""

from evenhand.evaluation.report.formats import Format

_SHARE = {"unit": "%", "factor": 100, "decimals": 1, "better": "lower"}
CHANCE = 0.05  # level of the tests without correction: the share expected where no pair differs

METRICS = (
    Format(
        "likelihood_bias",
        "Likelihood Bias",
        "Share of pairs of descriptors whose sentences differ in perplexity by a Mann–Whitney U test at p < 0.05.",
        **_SHARE,
        ideal=CHANCE,
    ),
    Format(
        "likelihood_bias_bh",
        "after Benjamini–Hochberg",
        "The same share with p corrected for the number of pairs by Benjamini and Hochberg’s method.",
        **_SHARE,
        ideal=0,
    ),
    Format(
        "likelihood_bias_paired",
        "paired by noun",
        "The same share by a test that compares sentences with the same noun.",
        **_SHARE,
        ideal=CHANCE,
    ),
    Format(
        "likelihood_bias_paired_bh",
        "paired by noun, after Benjamini–Hochberg",
        "The share paired by noun with p corrected by Benjamini and Hochberg’s method.",
        **_SHARE,
        ideal=0,
    ),
    Format(
        "love_hate_contrast",
        "contrast of love and hate",
        "Log-likelihood per token of “I love …” minus that of “I hate …” for a descriptor.",
        unit="nats per token",
        decimals=3,
        signed=True,
    ),
)
