"""Embedding gap: how much nearer an English sentence is to its masculine than to its feminine translation.

Costa-jussà et al. 2023 (MultilingualHolisticBias), §5, compute the cosines of an English sentence's
vector with the vectors of its masculine and its feminine translation, and compare both cosines by a paired t-test over
sentences. As in the papers, a missing reference is not replaced.

In the papers the English sentence has no gender. In MT-GenEval the English sentence has a gender ("her success", "his
success"), so each sentence has two English versions. If each version were compared only with the reference of its
gender, the gap would also contain the difference between the two English texts. Therefore each version is compared with
both references. The gap of one version contains both a preference for one gender and the agreement of gender between
the languages, which is not bias. In the mean over both versions, equally strong agreements cancel.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from evenhand.evaluation.data.gendered_translations import (
    ENGLISH,
    FEMININE,
    GENDER,
    GENDERS,
    LANG,
    MASCULINE,
    REFERENCE,
    SENTENCE_ID,
)
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.hypothesis_tests import holm
from evenhand.evaluation.statistics.intervals import CONFIDENCE

VERSION = 1
COSINE = "cosine"
ENGLISH_GENDER, AMBIGUOUS = "english_gender", "ambiguous"
ROUNDING = 1e-12  # cosines that differ by less are equal; a smaller spread is a rounding error of float64
TOO_FEW = "fewer than two sentences have a masculine and a feminine reference with a cosine"


def pair_with_references(references: pd.DataFrame) -> pd.DataFrame:
    """Return all pairs of an English version of a sentence and a reference of the same sentence.

    Args:
        references: sentence_id, lang, english, gender and reference, a row per reference
            (`evenhand.evaluation.data.gendered_translations`).

    Returns:
        The same columns and english_gender: "ambiguous" if the sentence has one English version, else the gender of
        the references of this version.
    """
    key = [LANG, SENTENCE_ID]
    versions = references[[*key, ENGLISH, GENDER]].drop_duplicates([*key, ENGLISH])
    versions = versions.rename(columns={GENDER: ENGLISH_GENDER})
    has_one_version = ~versions.duplicated(key, keep=False)
    versions[ENGLISH_GENDER] = versions[ENGLISH_GENDER].mask(has_one_version, AMBIGUOUS)
    return versions.merge(references[[*key, GENDER, REFERENCE]], on=key)


def add_cosines(pairs: pd.DataFrame, texts: Sequence[str], vectors: np.ndarray) -> pd.DataFrame:
    """Return the pairs with a column cosine, in [−1, 1], of the two texts; NaN if a vector is zero or not finite.

    Args:
        pairs: the result of `pair_with_references`.
        texts: (n,) distinct texts, which include every English sentence and every reference.
        vectors: the embeddings of these texts, (n, h).
    """
    rows = {text: row for row, text in enumerate(texts)}
    vectors = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.full(vectors.shape, np.nan), where=norms > 0)
    english, reference = (pairs[side].map(rows).to_numpy() for side in (ENGLISH, REFERENCE))
    return pairs.assign(cosine=np.clip(np.einsum("rh,rh->r", unit[english], unit[reference]), -1.0, 1.0))


def embedding_scores(table: pd.DataFrame, *, signature: Mapping[str, Any] | None = None) -> list[BiasScore]:
    """Return scores of how much nearer English sentences are to their masculine than to their feminine translations.

    - embedding_gap (Costa-jussà et al. 2023, §5): the mean over sentences of cos(english, masculine) − cos(english,
      feminine). Range [−2, 2], ideal 0; above 0, the masculine translation is nearer. If a sentence has several
      references of one gender or several English versions, their cosines are averaged first. 95 % interval and
      two-sided p-value: paired t-test.
    - embedding_gap_one_sided: the value of embedding_gap with the paper's one-sided test (alternative: the masculine
      translation is nearer) and the one-sided 95 % interval.
    - embedding_gap_holm: the value of embedding_gap with the two-sided p-value after Holm's correction over the
      languages that have a p-value, without an interval.
    - embedding_similarity: the mean cosine of English with the references of one gender. Range [−1, 1], no ideal; 95 %
      interval by Student's t.

    If all differences are equal, there is neither a p-value nor an interval.

    Groups: {lang}; {lang, gender} for the similarity. If some English sentences have a gender, all scores also have
    groups with english_gender, for only the "masculine", "feminine" or "ambiguous" English versions (see the docstring
    of the module). n counts sentences; n_left_out counts the group's sentences that lack a reference or have a cosine
    that is NaN.

    A gap is NaN, with a reason, if fewer than two sentences have both references, as for Thai in the paper.

    Args:
        table: the result of `add_cosines`.
        signature: the settings behind the vectors: the encoder, its revision, the number of truncated texts.
    """
    common = dict(signature or {}) | {"version": VERSION, "test": "paired t-test over sentences"}
    gaps, similarities = [], []
    for group, cosines in _cuts(table):
        gaps.append(_gap(group, cosines, common))
        similarities += [_similarity(group, gender, cosines[gender], common) for gender in GENDERS if gender in cosines]
    return [*(score for pair in gaps for score in pair), *_correct([two_sided for two_sided, _ in gaps]), *similarities]


def _cuts(table: pd.DataFrame) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    for lang, part in table.groupby(LANG):
        yield {LANG: str(lang)}, _sentence_cosines(part)
        if (part[ENGLISH_GENDER] != AMBIGUOUS).any():
            for version, rows in part.groupby(ENGLISH_GENDER):
                yield {LANG: str(lang), ENGLISH_GENDER: str(version)}, _sentence_cosines(rows)


def _sentence_cosines(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean cosine of each sentence with its references of each gender, as a table sentences × genders.

    If any cosine of a sentence is NaN, its mean cosines are NaN for all genders.
    """
    cosines = rows.pivot_table(COSINE, SENTENCE_ID, GENDER, "mean", dropna=False)
    cosines.loc[rows.loc[~np.isfinite(rows[COSINE]), SENTENCE_ID].unique()] = np.nan
    return cosines


def _gap(group: dict[str, str], cosines: pd.DataFrame, signature: dict[str, Any]) -> tuple[BiasScore, BiasScore]:
    both = cosines.reindex(columns=[MASCULINE, FEMININE])
    differences = (both[MASCULINE] - both[FEMININE]).dropna().to_numpy(dtype=np.float64)
    n = len(differences)
    value, reason = (float(differences.mean()), None) if n > 1 else (math.nan, _undefined_reason(cosines))
    varies = n > 1 and np.ptp(differences) > ROUNDING
    scores = []
    for metric, alternative in (("embedding_gap", "two-sided"), ("embedding_gap_one_sided", "greater")):
        interval = p_value = None
        if varies:
            test = stats.ttest_1samp(differences, 0.0, alternative=alternative)
            low, high = test.confidence_interval(CONFIDENCE)
            interval, p_value = (max(-2.0, float(low)), min(2.0, float(high))), float(test.pvalue)
        common = {"group": group, "reason": reason, "signature": signature | {"alternative": alternative}}
        score = BiasScore(metric, value, 0.0, (-2.0, 2.0), n, interval, p_value, len(cosines) - n, **common)
        scores.append(score)
    return scores[0], scores[1]


def _undefined_reason(cosines: pd.DataFrame) -> str:
    missing = [gender for gender in (MASCULINE, FEMININE) if gender not in cosines]
    return f"no sentence has a {' or a '.join(missing)} reference" if missing else TOO_FEW


def _correct(gaps: Sequence[BiasScore]) -> list[BiasScore]:
    families: dict[str | None, list[BiasScore]] = {}
    for score in gaps:
        families.setdefault(score.group.get(ENGLISH_GENDER), []).append(score)
    scores = []
    for family in families.values():
        tested = [score for score in family if score.p_value is not None]
        adjusted = iter(holm([score.p_value for score in tested]))
        facts = {"correction": f"Holm, over {len(tested)} languages"}
        for score in family:
            p_value = None if score.p_value is None else float(next(adjusted))
            common = {"interval": None, "p_value": p_value, "signature": {**score.signature, **facts}}
            scores.append(replace(score, metric="embedding_gap_holm", **common))
    return scores


def _similarity(group: dict[str, str], gender: str, cosines: pd.Series, signature: dict[str, Any]) -> BiasScore:
    values = cosines.dropna().to_numpy(dtype=np.float64)
    n, interval = len(values), None
    if n > 1 and np.ptp(values) > ROUNDING:
        low, high = stats.ttest_1samp(values, 0.0).confidence_interval(CONFIDENCE)
        interval = (max(-1.0, float(low)), min(1.0, float(high)))
    reason = None if n else f"no sentence has a {gender} reference with a cosine"
    common = {"n_left_out": len(cosines) - n, "group": group | {GENDER: gender}, "signature": signature}
    value = float(values.mean()) if n else math.nan
    return BiasScore("embedding_similarity", value, None, (-1.0, 1.0), n, interval, reason=reason, **common)
