"""Names, units and ideals of the metrics of translation bias, for reports."""

from evenhand.evaluation.report.formats import Format

_GAP = {"ideal": 0, "better": "ideal", "signed": True}
_SHARE = {"unit": "%", "factor": 100, "decimals": 1}

METRICS = (
    Format("spbleu", "spBLEU", "Overlap with the references in n-grams of sentence pieces, 0 to 100.", better="higher"),
    Format("bleu", "BLEU", "Overlap with the references in n-grams of words, 0 to 100.", better="higher"),
    Format(
        "chrf",
        "chrF++",
        "Overlap with the references in n-grams of characters and of words, 0 to 100.",
        better="higher",
    ),
    Format(
        "translation_gap", "gap", "Score against masculine references minus score against feminine references.", **_GAP
    ),
    Format("chrf_gap", "gap in chrF++", "chrF++ against masculine references minus against feminine ones.", **_GAP),
    Format(
        "gender_accuracy",
        "right gender",
        "Share of translations with the gender of their source, of those that show exactly one gender.",
        **_SHARE,
        ideal=1,
        better="higher",
    ),
    Format(
        "gender_accuracy_mt_geneval",
        "MT-GenEval’s accuracy",
        "Share of translations without a word that only the other gender’s references have.",
        **_SHARE,
        ideal=1,
        better="higher",
    ),
    Format(
        "gender_accuracy_spans",
        "accuracy by annotated spans",
        "Share of translations without a word that is only in the marked spans of the other gender’s references.",
        **_SHARE,
        ideal=1,
        better="higher",
    ),
    Format(
        "masculine_rendering",
        "overgeneralisation",
        "Share of masculine translations among those that show exactly one gender, where the source shows none.",
        **_SHARE,
        ideal=0.5,
        better="ideal",
    ),
    Format(
        "added_toxicity",
        "added toxicity",
        "Share of translations that a classifier finds toxic although their source is not.",
        unit="%",
        factor=100,
        ideal=0,
        better="lower",
    ),
)
