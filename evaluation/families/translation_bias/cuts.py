"""Tables of sentence scores by axis, descriptor or template, and of gaps by source and target language."""

import math
from collections.abc import Sequence

import pandas as pd

from evenhand.evaluation.datasets.gendered_translations import ENGLISH_LANGUAGE, FEMININE, GENDER, LANG, MASCULINE
from evenhand.evaluation.errors import unknown_name
from evenhand.evaluation.families.translation_bias.metric import BOTH, REFERENCE_GENDERS
from evenhand.evaluation.results import AXIS, DESCRIPTOR, BiasScore

OUTLIER = "queer"  # a descriptor in two axes, so it is in no row of Table 3 (004, footnote 5)


def cut_table(sentences: pd.DataFrame, by: str, metric: str = "spbleu") -> pd.DataFrame:
    """Return the mean score by axis, descriptor or template (004, Tables 3, 5 and 6), the lowest first.

    Means are over sentences and languages, as in the paper. The paper's counts (17,700 = 118 sentences × 50 languages ×
    3 for a whole template) include all 50 languages; use `min_masculine_references=0` for these.

    Args:
        sentences: the result of `sentence_scores`.
        by: "axis" (without the descriptor "queer", footnote 5), "descriptor", "template", "lang" or "direction".
        metric: "spbleu", "bleu" or "chrf".

    Returns:
        One row per value of `by`: masculine, feminine and both (NaN without a score), gap (masculine − feminine), mean
        (of the defined ones) and count (scores).

    Raises:
        InputError: `by` or `metric` is no column.
    """
    for field, name in (("by", by), ("metric", metric)):
        if name not in sentences:
            raise unknown_name(field, name, sentences.columns)
    if by == AXIS:
        sentences = sentences[sentences[DESCRIPTOR] != OUTLIER]
    genders = [*REFERENCE_GENDERS, BOTH]
    table = sentences.pivot_table(metric, by, GENDER, "mean").reindex(columns=genders)
    table["gap"], table["mean"] = table[MASCULINE] - table[FEMININE], table[genders].mean(axis=1)
    table["count"] = sentences.groupby(by).size()
    return table.rename_axis(columns=None).sort_values("mean").reset_index()


def language_table(scores: Sequence[BiasScore], metric: str = "translation_gap") -> pd.DataFrame:
    """Return each language's mean gap as source, over all targets, and as target, over all sources (004, Table 2).

    Args:
        scores: the result of `translation_scores` for all pairs of languages.
        metric: "translation_gap" or "chrf_gap".

    Returns:
        lang; as_source and as_target in points, NaN without a gap; n_source and n_target, the number of languages in
        each mean. Undefined gaps are not counted.
    """
    english, gaps = ENGLISH_LANGUAGE.code, []
    for score in scores:
        if score.metric == metric and LANG in score.group and not math.isnan(score.value):
            first, _, second = score.group[LANG].partition("-")
            sides = {"en-xx": (english, first), "xx-en": (first, english), "xx-xx": (first, second)}
            gaps.append((*sides[score.group["direction"]], score.value))
    table = pd.DataFrame(gaps, columns=["source", "target", "gap"])
    means = pd.concat(
        [
            table.groupby(side)["gap"].agg([("as_" + side, "mean"), ("n_" + side, "size")])
            for side in ("source", "target")
        ],
        axis=1,
    )
    counts = {"n_source": int, "n_target": int}
    means = means.sort_index().fillna(dict.fromkeys(counts, 0)).astype(counts)
    return means.rename_axis(LANG).reset_index()[[LANG, "as_source", "as_target", *counts]]
