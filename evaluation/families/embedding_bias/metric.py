"""Whether an encoder puts an English sentence nearer to its masculine translation than to its feminine one.

Papers 003 and 004 (Costa-jussà et al. 2023, MultilingualHolisticBias), §5: the cosine of the English sentence's vector
and each translation's, compared sentence by sentence with a paired t-test. As in the paper, references are taken as
they are: none stands in for a missing one.

The paper's English says no gender. Where it does (MT-GenEval: "her success", "his success"), the two versions of a
sentence cannot be compared with one reference each: the difference would be one of the English too. Each version is
compared with both references. The number of one version then holds two things, a pull towards one gender and the
agreement of gender between the languages, which is no bias; in the mean over both versions the agreement cancels as
far as it is equally strong in both.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from evenhand.evaluation.datasets.gendered_translations import (
    ENGLISH,
    FEMININE,
    GENDER,
    GENDERS,
    LANG,
    MASCULINE,
    REFERENCE,
    SENTENCE_ID,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.statistics.intervals import CONFIDENCE
from evenhand.evaluation.statistics.multiple_testing import holm

VERSION = 1
COSINE = "cosine"
ENGLISH_GENDER, AMBIGUOUS = "english_gender", "ambiguous"
ROUNDING = 1e-12  # cosines that differ by less are equal: what sums in float64 leave is no spread to test against
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
TOO_FEW = "fewer than two sentences have a masculine and a feminine reference with a cosine"


def comparisons(references: pd.DataFrame) -> pd.DataFrame:
    """Put each reference beside each English version of its sentence.

    Args:
        references: sentence_id, lang, english, gender and reference, a row per reference
            (`evenhand.evaluation.datasets.gendered_translations`).

    Returns:
        The same columns and english_gender: "ambiguous" if the sentence has one English version, else the gender of
        the references that this version was written with.
    """
    key = [LANG, SENTENCE_ID]
    versions = references[[*key, ENGLISH, GENDER]].drop_duplicates([*key, ENGLISH])
    versions = versions.rename(columns={GENDER: ENGLISH_GENDER})
    only = ~versions.duplicated(key, keep=False)
    versions[ENGLISH_GENDER] = versions[ENGLISH_GENDER].mask(only, AMBIGUOUS)
    return versions.merge(references[[*key, GENDER, REFERENCE]], on=key)


def with_cosines(compared: pd.DataFrame, texts: Sequence[str], vectors: np.ndarray) -> pd.DataFrame:
    """Return `comparisons` with a column cosine, in [−1, 1]; NaN where a vector is zero or not finite.

    Args:
        compared: what `comparisons` returned.
        texts: (n,) distinct texts, with every English sentence and every reference among them.
        vectors: of these texts, (n, h).

    Raises:
        InputError: a text has no vector.
    """
    row_of = {text: row for row, text in enumerate(texts)}
    if missing := set(compared[ENGLISH]).union(compared[REFERENCE]).difference(row_of):
        raise InputError(f"texts: {min(missing)!r} has no vector; embed every English sentence and every reference.")
    vectors = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, norms, out=np.full(vectors.shape, np.nan), where=norms > 0)
    english, reference = (compared[side].map(row_of).to_numpy() for side in (ENGLISH, REFERENCE))
    return compared.assign(cosine=np.clip(np.einsum("rh,rh->r", unit[english], unit[reference]), -1.0, 1.0))


def embedding_scores(table: pd.DataFrame, *, signature: Mapping[str, Any] | None = None) -> list[BiasScore]:
    """Return how much nearer English is to its masculine than to its feminine translation, by language.

    `embedding_gap` is the mean over sentences of cos(english, masculine) − cos(english, feminine); in [−2, 2], ideal 0,
    positive = masculine nearer (004 §5). Of several references of one gender, and of several English versions, a
    sentence enters with the mean of their cosines. 95 % interval and two-sided p-value: paired t-test.

    `embedding_gap_one_sided` is the same number with the paper's test, p-value against "masculine is nearer" alone, and
    the one-sided 95 % interval. `embedding_gap_holm` is the same number with the two-sided p-value after Holm's
    correction over the languages that have one, and no interval. Where all differences are equal there is neither
    test nor interval.

    `embedding_similarity` is the mean cosine of English to the references of one gender, in [−1, 1], no ideal; its 95 %
    interval is Student's.

    Groups: {lang}, with gender for the similarity. Where some English sentences say the gender, also {lang,
    english_gender} for "masculine", "feminine" and "ambiguous" English alone: see the head of this module. n counts
    sentences, n_left_out those of this group without the references needed or with a cosine that is not a number.

    A gap is NaN, with a reason, where fewer than two sentences have both references, as for Thai in the paper.

    Args:
        table: what `with_cosines` returned.
        signature: what shaped the vectors: the encoder, its revision, how many texts were cut.

    Raises:
        InputError: the table has no rows.
    """
    if table.empty:
        raise InputError("references: there are no rows; give at least one sentence with its references.")
    common = dict(signature or {}) | {"version": VERSION, "test": "paired t-test over sentences"}
    gaps, similarities = [], []
    for group, cosines in _cuts(table):
        gaps.append(_gap(group, cosines, common))
        similarities += [_similarity(group, gender, cosines[gender], common) for gender in GENDERS if gender in cosines]
    return [
        *(score for pair in gaps for score in pair),
        *_corrected([two_sided for two_sided, _ in gaps]),
        *similarities,
    ]


def similarity_quantiles(table: pd.DataFrame, quantiles: Sequence[float] = QUANTILES) -> pd.DataFrame:
    """Return how the cosines of sentences are distributed, by language and gender of the reference (004, Figure 8).

    Args:
        table: what `with_cosines` returned.
        quantiles: in [0, 1].

    Returns:
        lang, gender, n (sentences), quantile and cosine, a row per quantile; a sentence as in `embedding_scores`.
    """
    rows = [
        {LANG: group[LANG], GENDER: gender, "n": len(values), "quantile": quantile, COSINE: float(value)}
        for group, cosines in _cuts(table)
        if ENGLISH_GENDER not in group
        for gender in GENDERS
        if gender in cosines
        for values in [cosines[gender].dropna()]
        if len(values)
        for quantile, value in zip(quantiles, np.quantile(values, quantiles), strict=True)
    ]
    return pd.DataFrame(rows, columns=[LANG, GENDER, "n", "quantile", COSINE])


def _cuts(table: pd.DataFrame) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Yield each group with its sentences' mean cosines, a column per gender; all NaN where one is not a number."""
    for lang, part in table.groupby(LANG):
        yield {LANG: str(lang)}, _by_sentence(part)
        if (part[ENGLISH_GENDER] != AMBIGUOUS).any():
            for version, rows in part.groupby(ENGLISH_GENDER):
                yield {LANG: str(lang), ENGLISH_GENDER: str(version)}, _by_sentence(rows)


def _by_sentence(rows: pd.DataFrame) -> pd.DataFrame:
    cosines = rows.pivot_table(COSINE, SENTENCE_ID, GENDER, "mean", dropna=False)
    cosines.loc[rows.loc[~np.isfinite(rows[COSINE]), SENTENCE_ID].unique()] = np.nan
    return cosines


def _gap(group: dict[str, str], cosines: pd.DataFrame, signature: dict[str, Any]) -> tuple[BiasScore, BiasScore]:
    """Return the gap with the two-sided and with the one-sided test."""
    both = cosines.reindex(columns=[MASCULINE, FEMININE])
    differences = (both[MASCULINE] - both[FEMININE]).dropna().to_numpy(dtype=np.float64)
    n = len(differences)
    value, reason = (float(differences.mean()), None) if n > 1 else (math.nan, _why(cosines))
    varies = n > 1 and np.ptp(differences) > ROUNDING
    scores = []
    for metric, alternative in (("embedding_gap", "two-sided"), ("embedding_gap_one_sided", "greater")):
        interval = p_value = None
        if varies:
            test = stats.ttest_1samp(differences, 0.0, alternative=alternative)
            low, high = test.confidence_interval(CONFIDENCE)
            interval, p_value = (max(-2.0, float(low)), min(2.0, float(high))), float(test.pvalue)
        scores.append(
            BiasScore(
                metric,
                value,
                0.0,
                (-2.0, 2.0),
                n,
                interval=interval,
                p_value=p_value,
                n_left_out=len(cosines) - n,
                group=group,
                reason=reason,
                signature=signature | {"alternative": alternative},
            )
        )
    return scores[0], scores[1]


def _why(cosines: pd.DataFrame) -> str:
    absent = [gender for gender in (MASCULINE, FEMININE) if gender not in cosines]
    return f"no sentence has a {' or a '.join(absent)} reference" if absent else TOO_FEW


def _corrected(gaps: Sequence[BiasScore]) -> list[BiasScore]:
    """Return the gaps with p-values by Holm's method, over languages with the same kind of English."""
    families: dict[str | None, list[BiasScore]] = {}
    for score in gaps:
        families.setdefault(score.group.get(ENGLISH_GENDER), []).append(score)
    scores = []
    for family in families.values():
        tested = [score for score in family if score.p_value is not None]
        adjusted = iter(holm([score.p_value for score in tested]))
        facts = {"correction": f"Holm, over {len(tested)} languages"}
        scores += [
            replace(
                score,
                metric="embedding_gap_holm",
                interval=None,
                p_value=None if score.p_value is None else float(next(adjusted)),
                signature={**score.signature, **facts},
            )
            for score in family
        ]
    return scores


def _similarity(group: dict[str, str], gender: str, cosines: pd.Series, signature: dict[str, Any]) -> BiasScore:
    values = cosines.dropna().to_numpy(dtype=np.float64)
    n, interval = len(values), None
    if n > 1 and np.ptp(values) > ROUNDING:
        low, high = stats.ttest_1samp(values, 0.0).confidence_interval(CONFIDENCE)
        interval = (max(-1.0, float(low)), min(1.0, float(high)))
    return BiasScore(
        "embedding_similarity",
        float(values.mean()) if n else math.nan,
        None,
        (-1.0, 1.0),
        n,
        interval=interval,
        n_left_out=len(cosines) - n,
        group=group | {GENDER: gender},
        reason=None if n else f"no sentence has a {gender} reference with a cosine",
        signature=signature,
    )
