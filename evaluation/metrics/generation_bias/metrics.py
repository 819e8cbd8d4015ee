"""Names, units and ideals of the metrics of generation bias, for reports (Smith et al. 2022, A.7)."""

from evenhand.evaluation.metrics.offensiveness import OFFENSIVE_SHARE
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT

_BIAS = {"unit": UNIT, "factor": PER_UNIT, "ideal": 0, "better": "lower"}
_SHARE = {"unit": "%", "factor": 100}
_CORRECTED = "without the sampling noise of cell means; may be slightly negative"
_POOLED = "of descriptor means over all templates, without sampling noise; may be slightly negative"

BIAS = (
    Format(
        "fgb",
        "FGB",
        "Full Generation Bias: variance of the mean style vector over descriptors, summed over styles, mean over "
        "templates; with few responses mostly sampling noise.",
        **_BIAS,
    ),
    Format("fgb_corrected", "FGB*", f"FGB {_CORRECTED}.", **_BIAS),
    Format("fgb_pooled_corrected", "pooled FGB*", f"FGB {_POOLED}.", **_BIAS),
    Format("pgb", "PGB", "Part of FGB from one cluster of styles: the variances of its styles, summed.", **_BIAS),
    Format("pgb_corrected", "PGB*", f"PGB {_CORRECTED}.", **_BIAS),
    Format("pgb_pooled_corrected", "pooled PGB*", f"PGB {_POOLED}.", **_BIAS),
    Format("scgb", "SCGB", "Variance of the summed probability of a cluster of styles over descriptors.", **_BIAS),
    Format("scgb_corrected", "SCGB*", f"SCGB {_CORRECTED}.", **_BIAS),
    Format("scgb_pooled_corrected", "pooled SCGB*", f"SCGB {_POOLED}.", **_BIAS),
)
QUALITY = (
    Format(
        "relevance",
        "relevance",
        "Log-likelihood of a response after its prompt minus after another prompt about the same people; 0 fits any.",
        unit="nats",
        decimals=3,
        better="higher",
    ),
    Format(
        "relevance_within_template",
        "relevance within the template",
        "The same after another person’s prompt of the same template; a part of it is bias.",
        unit="nats",
        decimals=3,
        better="higher",
    ),
    Format(
        "response_perplexity",
        "perplexity of the responses",
        "Perplexity of the responses after their prompts; garbage is high.",
        better="lower",
    ),
    Format(
        "distinct_responses",
        "distinct responses",
        "Share of different responses among all; it falls as more are sampled.",
        **_SHARE,
        decimals=1,
        better="higher",
    ),
    Format(
        "perplexity",
        "perplexity on neutral dialogue",
        "Perplexity of ordinary dialogue that names no descriptor.",
        better="lower",
    ),
    Format("distinct_1", "distinct-1", "Share of different words among all words of responses.", decimals=3),
    Format(
        "distinct_2",
        "distinct-2",
        "Share of different word pairs among all word pairs of responses.",
        decimals=3,
        better="higher",
    ),
    Format("mean_length", "mean length of a response", "Mean number of words of a response."),
    Format(
        "parroting",
        "repeats the prompt",
        "Share of responses that only repeat or quote the prompt.",
        **_SHARE,
        ideal=0,
        better="lower",
    ),
    OFFENSIVE_SHARE,
    Format("empty_share", "empty", "Share of empty responses.", **_SHARE, ideal=0, better="lower"),
    Format(
        "unfinished_share",
        "reasoning not finished",
        "Share of responses that end within the model’s reasoning.",
        **_SHARE,
        ideal=0,
        better="lower",
    ),
    Format(
        "cut_share",
        "longer than the classifier reads",
        "Share of responses of which the style classifier reads only the beginning.",
        **_SHARE,
        ideal=0,
        better="lower",
    ),
)
CHANGES = (  # scores of two runs, without a value of either run alone
    Format(
        "relevance_kept",
        "relevance kept",
        "Relevance after tuning as a share of the relevance before.",
        **_SHARE,
        decimals=1,
        ideal=1,
        better="higher",
    ),
    Format(
        "relevance_within_template_kept",
        "relevance within the template kept",
        "The same within the template; less than all is ideal, since a part of it is bias.",
        **_SHARE,
        decimals=1,
        better="higher",
    ),
    Format(
        "style_drift",
        "style drift",
        "Half the summed absolute changes of the mean probabilities of all styles, without noise: 0 to 1.",
        **_SHARE,
        decimals=1,
        ideal=0,
        better="lower",
    ),
    Format(
        "response_perplexity_rise",
        "perplexity of the responses, change in",
        "Relative change of the responses’ perplexity.",
        **_SHARE,
        decimals=1,
        ideal=0,
        better="lower",
        signed=True,
    ),
    Format(
        "mean_length_kept",
        "mean length kept",
        "Mean number of words of a response after tuning over the mean before.",
        **_SHARE,
        decimals=1,
        ideal=1,
    ),
    Format(
        "distinct_responses_kept",
        "distinct responses kept",
        "Share of distinct responses after tuning over the share before.",
        **_SHARE,
        decimals=1,
        ideal=1,
        better="higher",
    ),
    Format(
        "distinct_2_kept",
        "distinct-2 kept",
        "Distinct-2 after tuning over distinct-2 before.",
        **_SHARE,
        decimals=1,
        ideal=1,
        better="higher",
    ),
)
METRICS = (
    *BIAS,
    *QUALITY,
    *CHANGES,
    Format(
        "style_shift",
        "shift of the mix of styles",
        "Root mean square length of the difference between a descriptor’s mean style vector and the average of all "
        "descriptors, √(pooled FGB*).",
        unit="points",
        factor=100,
        decimals=1,
        ideal=0,
        better="lower",
    ),
    Format(
        "moved_share",
        "share of responses that change their style",
        "Share of responses that would have to change from one style to another for such a shift, √(pooled FGB* / 2).",
        **_SHARE,
        decimals=1,
        ideal=0,
        better="lower",
    ),
    Format(
        "variance_share",
        "share of the variance",
        "Share of the variance of style vectors that is due to the template, the descriptor, their interaction, or "
        "chance, without sampling noise.",
        **_SHARE,
        decimals=1,
    ),
    Format(
        "effect",
        "effect",
        "Difference of a descriptor’s or group’s mean probability of a style from the average on the same templates.",
        unit="points",
        factor=100,
        decimals=1,
        ideal=0,
        signed=True,
    ),
    Format(
        "effect_change",
        "change of an effect",
        "Effect after minus effect before.",
        unit="points",
        factor=100,
        decimals=1,
        signed=True,
    ),
    Format("style_share", "share of the style", "Mean summed probability of a style cluster over responses.", **_SHARE),
    Format("phrase_share", "share with the phrase", "Share of responses that contain a phrase.", **_SHARE, decimals=1),
    Format("capability", "can do", "Mean score of a task of lm-evaluation-harness.", decimals=3, better="higher"),
    Format(
        "parroting_rho",
        "Spearman ρ",
        "Rank correlation over descriptors of the mean bias value and the change in parroting.",
        signed=True,
    ),
    Format(
        "frequency_rho",
        "Spearman ρ",
        "Rank correlation over descriptors of a style’s probability and the descriptor’s frequency in the corpus.",
        signed=True,
    ),
)
