"""How well a model translates men, and how well women: spBLEU and chrF++ against masculine and feminine references.

Papers 003 and 004 (Costa-jussà et al. 2023, MultilingualHolisticBias), §4. English that says no gender is translated
once and compared with the masculine, the feminine and both references (EN→XX, §4.2); a masculine and a feminine
sentence are translated into English that is the same for both (XX→EN, §4.3), or into another language, each compared
with the reference of its gender (XX→XX, §4.4). The difference, masculine less feminine, is the gap.

Scores are made in two steps: `align` puts translations beside their references, a row each; all else counts those rows.
BLEU and chrF are sacrebleu's (Post 2018), from its statistics of single segments, whose sums over any sentences give
the corpus score of these: so each resample of the bootstrap is an exact corpus score.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

import numpy as np
import pandas as pd
from sacrebleu.metrics.base import Metric

from evenhand.evaluation.datasets.gendered_translations import (
    ENGLISH,
    ENGLISH_LANGUAGE,
    FEMININE,
    GENDER,
    LANG,
    MARKED,
    MASCULINE,
    REFERENCE,
    SENTENCE_ID,
    TAKEN_FROM,
    rows_of,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.translation_bias.bleu import bleu, chrf, metric_name
from evenhand.evaluation.results import AXIS, DESCRIPTOR, TEMPLATE, BiasScore
from evenhand.evaluation.statistics.intervals import percentile_interval

BOTH = "both"
VERSION, RESAMPLES = 1, 1000  # sacrebleu's number of resamples
TRANSLATION = "translation"
BY_GENDER = (MASCULINE, FEMININE)
NO_FEMININE = "no sentence has a feminine reference of its own"
NOT_BOTH = "there are no translations for both genders"


def align(translations: pd.DataFrame, table: pd.DataFrame, *, source: str, target: str) -> pd.DataFrame:
    """Put translations beside the references that they are to be compared with.

    Args:
        translations: what `source_sentences` returned, with a column translation.
        table: `ComparableSets.table`, from which those were taken.
        source, target: FLORES codes.

    Returns:
        A row per translation: sentence_id, axis, descriptor, template, gender ("" for an ambiguous source), lang (the
        one that is not English; "spa_Latn-cat_Latn" for two), direction ("en-xx", "xx-en", "xx-xx"), translation and,
        for masculine and feminine each, a tuple of references, own_… (whether every sentence and reference is of that
        gender, and not one in its place) and marked_… (a tuple of spans, or None).

    Raises:
        InputError: a column is missing, or a translation is no text.
    """
    needed = (SENTENCE_ID, GENDER, TRANSLATION)
    if missing := [name for name in needed if name not in translations]:
        raise InputError(f"translations: there is no column {missing[0]!r}; keep those of source_sentences.")
    if not translations[TRANSLATION].map(lambda text: isinstance(text, str)).all():
        raise InputError("translations: one is no text; give a string for each sentence, '' where there is none.")
    english = ENGLISH_LANGUAGE.code
    others = [lang for lang in (source, target) if lang != english]
    sides = [rows_of(table, lang) for lang in others]
    rows = translations.assign(
        lang="-".join(others),
        direction="en-xx" if source == english else "xx-en" if target == english else "xx-xx",
    )
    for gender in BY_GENDER:
        grouped = sides[-1][sides[-1][GENDER] == gender].groupby(SENTENCE_ID, sort=False)
        references = {
            key: tuple(dict.fromkeys(texts)) for key, texts in grouped[ENGLISH if target == english else REFERENCE]
        }
        marked = {} if target == english else {key: _joined(spans) for key, spans in grouped[MARKED]}
        unknown = rows.loc[~rows[SENTENCE_ID].isin(references), SENTENCE_ID]
        if len(unknown):
            raise InputError(f"translations: sentence_id {unknown.iloc[0]!r} has no {gender} reference in {target}.")
        own = [set(side.loc[(side[GENDER] == gender) & (side[TAKEN_FROM] == gender), SENTENCE_ID]) for side in sides]
        rows[gender] = [references[key] for key in rows[SENTENCE_ID]]
        rows[f"own_{gender}"] = rows[SENTENCE_ID].isin(set.intersection(*own))
        rows[f"marked_{gender}"] = pd.Series([marked.get(key) for key in rows[SENTENCE_ID]], rows.index, dtype=object)
    return rows


def translation_scores(
    rows: pd.DataFrame,
    *,
    tokenize: str = "flores200",
    resamples: int = RESAMPLES,
    seed: int = 0,
    signature: Mapping[str, Any] | None = None,
) -> list[BiasScore]:
    """Return corpus scores by language and direction, and the gap between masculine and feminine.

    Scores in [0, 100], no ideal, group {lang, direction, gender}: `spbleu` (`bleu` with a tokenizer that is not of
    FLORES) and `chrf` (chrF++). Gender "both" takes all references of either gender (004, §4.2), where the source is
    ambiguous.

    `translation_gap` and `chrf_gap` are masculine less feminine, in [−100, 100] points, ideal 0; group {lang,
    direction}, and {direction} for the mean over languages (004, Figure 7). NaN, with a reason, where no sentence has
    a feminine reference of its own, as for Thai (004, §4.2).

    95 % percentile intervals and two-sided p-values of a gap of 0 by the paired bootstrap over sentences (Koehn 2004):
    each resample draws sentences, with all that belongs to them in every language. n counts sentences; for the mean
    over languages it counts languages, and n_left_out those whose gap is undefined.

    Args:
        rows: what `align` returned; of several languages, concatenated.
        tokenize: a tokenizer of sacrebleu; "flores101" is the paper's.
        resamples, seed: of the bootstrap.
        signature: what shaped the translations; sacrebleu's own signatures and the bootstrap's settings are added.

    Raises:
        InputError: the tokenizer cannot be used, or there are no rows.
    """
    if rows.empty:
        raise InputError("translations: there are no rows; translate at least one sentence.")
    places, ids = pd.factorize(rows[SENTENCE_ID], sort=True)  # so that the order of rows does not matter
    rows = rows.assign(place=places)
    draw = np.random.default_rng(seed).multinomial(len(ids), np.full(len(ids), 1 / len(ids)), size=resamples)
    weights = np.vstack([np.ones(len(ids), dtype=np.int64), draw])  # the first is the corpus itself
    common = {**(signature or {}), "version": VERSION, "resamples": resamples, "seed": seed}
    scores = []
    for name, gap, metric in (
        (metric_name(tokenize), "translation_gap", bleu(tokenize)),
        ("chrf", "chrf_gap", chrf()),
    ):
        gaps: dict[str, list[np.ndarray | None]] = {}
        for (direction, lang), part in rows.groupby(["direction", LANG]):
            group = {LANG: lang, "direction": direction}
            found, drawn = _of_language((name, gap), metric, part, weights, group, common)
            scores += found
            gaps.setdefault(direction, []).append(drawn)
        for direction, each in gaps.items():
            defined = [drawn for drawn in each if drawn is not None]
            mean, reason = (np.mean(defined, axis=0), None) if defined else (None, NO_FEMININE)
            score = _gap(gap, mean, len(defined), {"direction": direction}, found[-1].signature, reason)
            scores.append(replace(score, n_left_out=len(each) - len(defined)))
    return scores


def sentence_scores(rows: pd.DataFrame, *, tokenize: str = "flores200") -> pd.DataFrame:
    """Return the scores of each single sentence against masculine, feminine and both references (004, §4.5).

    Args:
        rows: what `align` returned.
        tokenize: a tokenizer of sacrebleu; "flores101" is the paper's.

    Returns:
        A row per sentence, language, direction and gender of the references: sentence_id, axis, descriptor, template,
        lang, direction, gender, and spbleu (or bleu) and chrf, in [0, 100].
    """
    parts, metrics = [], {metric_name(tokenize): bleu(tokenize), "chrf": chrf()}
    for gender in (*BY_GENDER, BOTH):
        part = _of_gender(rows, gender)
        if part.empty:
            continue
        scores = {
            name: [metric._compute_score_from_stats(each).score for each in _statistics(metric, part, gender).tolist()]
            for name, metric in metrics.items()
        }
        facts = part[[SENTENCE_ID, AXIS, DESCRIPTOR, TEMPLATE, LANG, "direction"]]
        parts.append(facts.assign(gender=gender, **scores))
    return pd.concat(parts, ignore_index=True)


def _joined(spans: Iterable[Sequence[str] | None]) -> tuple[str, ...] | None:
    """Return the spans of all references of a sentence, or None where those of one are not known."""
    spans = list(spans)
    return None if any(each is None for each in spans) else tuple(span for each in spans for span in each)


def _of_gender(rows: pd.DataFrame, gender: str) -> pd.DataFrame:
    """Return the translations that are compared with references of this gender."""
    return rows[rows[GENDER].isin(("",) if gender == BOTH else ("", gender))]


def _statistics(metric: Metric, rows: pd.DataFrame, gender: str) -> np.ndarray:
    """Return sacrebleu's statistics of each row, (n, k) integers that add up."""
    references = rows[MASCULINE] + rows[FEMININE] if gender == BOTH else rows[gender]
    streams = list(zip_longest(*references))  # the first reference of each row, then the second, None where none is
    # Not public, but what sacrebleu's own significance tests are built on; pyproject.toml keeps its major version.
    return np.array(metric._extract_corpus_statistics(rows[TRANSLATION].tolist(), streams), dtype=np.int64)


def _of_language(
    names: tuple[str, str],
    metric: Metric,
    rows: pd.DataFrame,
    weights: np.ndarray,
    group: Mapping[str, str],
    signature: Mapping[str, Any],
) -> tuple[list[BiasScore], np.ndarray | None]:
    """Return a language's corpus scores and, last, its gap; and the gap in each draw, None where it is undefined."""
    drawn, scores = {}, []
    for gender in (BOTH, *BY_GENDER):  # the gap's signature is that of the last, of one gender
        chosen = _of_gender(rows, gender)
        if chosen.empty:
            continue
        drawn[gender] = _drawn(metric, chosen, gender, weights)
        facts = {**signature, "sacrebleu": str(metric.get_signature())}
        scores.append(_score(names[0], drawn[gender], len(chosen), {**group, GENDER: gender}, facts))
    reason = NOT_BOTH if not {*BY_GENDER} <= {*drawn} else None if rows[f"own_{FEMININE}"].any() else NO_FEMININE
    gap = None if reason else drawn[MASCULINE] - drawn[FEMININE]
    return [*scores, _gap(names[1], gap, rows[SENTENCE_ID].nunique(), group, facts, reason)], gap


def _drawn(metric: Metric, rows: pd.DataFrame, gender: str, weights: np.ndarray) -> np.ndarray:
    """Return the corpus score of each (draws, sentences) row of weights, (draws,)."""
    sums = weights[:, rows["place"].to_numpy()] @ _statistics(metric, rows, gender)
    return np.array([metric._compute_score_from_stats(each).score for each in sums.tolist()])


def _score(name: str, drawn: np.ndarray, n: int, group: Mapping[str, str], signature: Mapping[str, Any]) -> BiasScore:
    return BiasScore(
        name, float(drawn[0]), None, (0.0, 100.0), n, interval=_interval(drawn), group=group, signature=signature
    )


def _gap(
    name: str,
    drawn: np.ndarray | None,
    n: int,
    group: Mapping[str, str],
    signature: Mapping[str, Any],
    reason: str | None,
) -> BiasScore:
    common = {"group": group, "signature": signature, "reason": reason}
    if drawn is None:
        return BiasScore(name, math.nan, 0.0, (-100.0, 100.0), n, **common)
    below, above = int((drawn[1:] <= 0).sum()), int((drawn[1:] >= 0).sum())
    p_value = min(1.0, 2 * (1 + min(below, above)) / len(drawn)) if len(drawn) > 1 else None
    return BiasScore(name, float(drawn[0]), 0.0, (-100.0, 100.0), n, _interval(drawn), p_value, **common)


def _interval(drawn: np.ndarray) -> tuple[float, float] | None:
    if len(drawn) < 2:
        return None
    return percentile_interval(drawn[1:])
