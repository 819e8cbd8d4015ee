"""Names, units and ideals of the metrics of generation bias, for reports (Smith et al. 2022, A.7)."""

from evenhand.evaluation.metrics.generation_bias.parts.outcomes import outcome_formats
from evenhand.evaluation.metrics.offensiveness import OFFENSIVE_SHARE
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT
from evenhand.evaluation.score import Form, Kind

BIAS = {"unit": UNIT, "factor": PER_UNIT, "ideal": 0}
SHARE = {"unit": "%", "factor": 100}
KEPT = {**SHARE, "decimals": 1, "ideal": 1, "kind": Kind.KEPT}
COST = {**SHARE, "ideal": 0}
CHANGE = {**COST, "decimals": 1}
POINTS = {"unit": "points", "factor": 100, "decimals": 1}
NATS = {"unit": "nats", "decimals": 3}
FORMS = {
    "fgb": "Variance of the mean style vector over descriptors, summed over styles, mean over templates",
    "pgb": "Part of FGB from one cluster of styles: the variances of its styles, summed",
    "scgb": "Variance of the summed probability of a cluster of styles over descriptors",
}
WITHOUT_NOISE = "without the noise of sampling; may be slightly negative."
OTHER_PROMPT = "How much likelier a response is after its prompt than after another template's."
OTHER_PERSON = "The same for another person’s prompt of the same template; a part of it is bias."
QUALITY = (
    Format("relevance", "relevance", OTHER_PROMPT, **NATS),
    Format("relevance_to_person", "response to the person", OTHER_PERSON, **NATS),
    Format(
        "response_perplexity",
        "perplexity of the responses",
        "Perplexity of the responses after their prompts; broken language has a high one.",
    ),
    Format("distinct_responses", "distinct responses", "Share of different responses among all.", **SHARE, decimals=1),
    Format("perplexity", "perplexity on neutral dialogue", "Perplexity of dialogue that names no descriptor."),
    Format(
        "distinct_1",
        "different words (distinct-1)",
        "Share of different words among all words of responses.",
        decimals=3,
    ),
    Format(
        "distinct_2",
        "different word pairs (distinct-2)",
        "Share of different pairs of adjacent words among all; random words have many.",
        decimals=3,
    ),
    Format("mean_length", "mean length of a response", "Mean number of words of a response."),
    Format("parroting", "repeats the prompt", "Share of responses that only repeat or quote the prompt.", **COST),
    OFFENSIVE_SHARE,
    Format(
        "common_prompts",
        "prompts of both runs",
        "Share of the prompts that both runs have; the others are left out.",
        **SHARE,
    ),
    Format(
        "repeated_rows",
        "repeats another row",
        "Share of rows with the same prompt and response as an earlier row.",
        **COST,
    ),
    Format("empty_share", "empty", "Share of empty responses.", **COST),
    Format("unfinished_share", "reasoning not finished", "Share of responses that end within the reasoning.", **COST),
    Format(
        "no_label_share",
        "no label fits",
        "Share of responses that no label fits; their style vectors are nearly even, and say little.",
        **COST,
    ),
    Format(
        "cut_share",
        "longer than the classifier reads",
        "Share of responses whose ends the classifier does not read.",
        **COST,
    ),
)
LESS_THAN_ALL = "Less than all is ideal, since a part of it is bias."
DRIFT = "Half the summed changes of the mean style vector, without noise."
CHANGES = (  # scores of two runs, without a value of either run alone
    Format("relevance", "relevance kept", "Relevance after / relevance before.", **KEPT),
    Format(
        "relevance_to_person",
        "response to the person kept",
        LESS_THAN_ALL,
        unit="%",
        factor=100,
        decimals=1,
        kind=Kind.KEPT,
    ),
    Format("style_drift", "style drift", DRIFT, **CHANGE),
    Format(
        "response_perplexity",
        "change of the perplexity of responses",
        "Relative change.",
        **CHANGE,
        signed=True,
        kind=Kind.RISE,
    ),
    Format("mean_length", "mean length kept", "Mean length after / mean length before.", **KEPT),
    Format("distinct_responses", "distinct responses kept", "Value after / value before.", **KEPT),
    Format("distinct_2", "different word pairs kept", "Value after / value before.", **KEPT),
)
MOVED = "Descriptors differ as if so many responses had changed from one style to another"
METRICS = (
    *(Format(name, name.upper(), f"{text}; with few responses mostly noise.", **BIAS) for name, text in FORMS.items()),
    *(
        Format(name, f"{name.upper()}*", f"{name.upper()} {WITHOUT_NOISE}", **BIAS, form=Form.CORRECTED)
        for name in FORMS
    ),
    *(
        Format(
            name,
            f"pooled {name.upper()}*",
            f"{name.upper()} of descriptor means over all templates, {WITHOUT_NOISE}",
            **BIAS,
            form=Form.POOLED_CORRECTED,
        )
        for name in FORMS
    ),
    Format(
        "fgb",
        "pooled FGB* of the person",
        "The part that words for the same people have in common.",
        **BIAS,
        form=Form.PERSON,
    ),
    Format(
        "fgb", "pooled FGB* of the word", "The part in which words for the same people differ.", **BIAS, form=Form.WORD
    ),
    *QUALITY,
    *CHANGES,
    Format("style_shift", "shift of the mix of styles", "√(pooled FGB*), root mean square.", **POINTS, ideal=0),
    Format("moved_answers", "answers as if moved to another style", f"{MOVED}, √(pooled FGB* / 2).", **CHANGE),
    Format("variance_share", "share of the variance", "Of style vectors, without noise.", **SHARE, decimals=1),
    Format("cue_share", "share of the variance", "Of style vectors within requests, by source.", **SHARE, decimals=1),
    Format(
        "difference_bound",
        "difference that cannot be ruled out",
        "The largest end of any interval: nobody is further from the average, with 95 % confidence.",
        **POINTS,
        ideal=0,
    ),
    Format("accepted_effect", "accepted effect", "A difference that somebody signed as right.", **POINTS, signed=True),
    Format("effect", "effect", "Probability of a style less the average.", **POINTS, ideal=0, signed=True),
    Format(
        "gender_effect", "feminine − masculine", "Of the mean style, over descriptors.", **POINTS, ideal=0, signed=True
    ),
    Format(
        "effect",
        "change of an effect",
        "Effect after minus effect before.",
        **POINTS,
        signed=True,
        kind=Kind.DIFFERENCE,
    ),
    *outcome_formats(),
    Format("style_share", "share of the style", "Mean summed probability of a style cluster over responses.", **SHARE),
    Format("capability", "can do", "Mean score of a task of lm-evaluation-harness.", decimals=3),
    Format(
        "parroting_rho",
        "ρ of mean bias value and change in parroting",
        "Spearman's rank correlation over descriptors.",
        signed=True,
    ),
    Format(
        "frequency_rho",
        "ρ of frequency in the corpus and probability",
        "Spearman's rank correlation over descriptors.",
        signed=True,
    ),
)
