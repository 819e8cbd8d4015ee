"""Names, units and ideals of the metrics of sentence pairs, for reports (Steinborn et al. 2022)."""

from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT

_PERCENT = {"unit": "%", "decimals": 1, "ideal": 50, "better": "ideal", "stereotype_side": 1}
TOKEN_ACCURACY = Format(
    "token_accuracy",
    "token accuracy",
    "Share of masked words that the model predicts correctly; where it is high, the scores mean less.",
    unit="%",
    factor=100,
    decimals=1,
)
PREFERENCES = (
    Format(
        "s_jsd",
        "S_JSD",
        "Distance from predicting a shared word in the more stereotypical sentence minus in the other; mean over words "
        "and pairs, −1 to 1.",
        unit=UNIT,
        factor=PER_UNIT,
        ideal=0,
        better="ideal",
        stereotype_side=-1,
    ),
    Format(
        "cps",
        "CPS",
        "Share of pairs in which the shared words, masked in turn, are likelier in the more stereotypical sentence.",
        **_PERCENT,
    ),
    Format(
        "cps_crows_pairs",
        "CrowS-Pairs CPS",
        "CPS as the script of CrowS-Pairs computes it: sums rounded to three decimals, ties count for neither.",
        **_PERCENT,
    ),
    Format(
        "b_s_jsd",
        "B.S_JSD",
        "Share of pairs in which the shared words are nearer to being predicted in the more stereotypical sentence.",
        **_PERCENT,
    ),
    Format(
        "aul",
        "AUL",
        "Share of pairs in which the words of the more stereotypical sentence are likelier on average, nothing masked.",
        **_PERCENT,
    ),
    Format("aula", "AULA", "AUL with each word weighted by the attention that it receives.", **_PERCENT),
    Format(
        "stereotype_preference",
        "stereotype preference",
        "Share of pairs in which the model gives the more stereotypical sentence the higher likelihood.",
        **_PERCENT,
    ),
    Format(
        "likelihood_difference",
        "size of the difference",
        "Mean absolute difference of the log-likelihoods of the two sentences; no model reaches 0.",
        unit="nats",
        ideal=0,
        better="lower",
    ),
)
METRICS = (*PREFERENCES, TOKEN_ACCURACY)
