"""Translation gap: spBLEU and chrF++ of translations against masculine and against feminine references.

Source: Costa-jussà et al. 2023 (MultilingualHolisticBias), §4. The gap is the score against
masculine references minus the score against feminine references. The papers have three directions:

- EN→XX (§4.2): an English sentence without gender is translated once and compared with the masculine, the feminine and
  both references.
- XX→EN (§4.3): the masculine and the feminine sentence are both translated into English and compared with the same
  reference.
- XX→XX (§4.4): the masculine and the feminine sentence are translated into another language, and each is compared with
  the reference of its gender.

`align` adds the references to the translations; the other functions compute scores of the rows that `align` returns.
BLEU and chrF++ are by sacrebleu (Post 2018). A corpus score depends only on sums of sacrebleu's statistics of single
sentences, so each resample of the bootstrap is an exact corpus score.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.compat import score_of_statistics, segment_statistics
from evenhand.evaluation.data.gendered_translations import (
    ENGLISH_LANGUAGE,
    ENGLISH_TEXT,
    FEMININE,
    GENDER,
    LANG,
    MARKED,
    MASCULINE,
    REFERENCE,
    SENTENCE_ID,
    TAKEN_FROM,
    read_translations,
    select_language,
    select_source_sentences,
)
from evenhand.evaluation.errors import InputError, require_extra, unknown_name
from evenhand.evaluation.files import results_of_sources, sha256_of
from evenhand.evaluation.score import BiasScore, Signature
from evenhand.evaluation.statistics.intervals import percentile_interval, varies

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

BOTH = "both"
REFERENCES = "references"
VERSION = 1
RESAMPLES = 1000  # as in sacrebleu
TRANSLATION = "translation"
GAP = "translation_gap"
REFERENCE_GENDERS = (MASCULINE, FEMININE)
NO_REFERENCE = "no sentence has a {} reference"
MIN_SENTENCES = 6  # of fewer, not even a sign test of gaps that all have one sign reaches p < 0.05
FEW_SENTENCES = f"no interval: fewer than {MIN_SENTENCES} sentences"
NOT_BOTH_GENDERS = "there are no translations for both genders"
FLORES = ("flores101", "flores200")
OUTLIER = "queer"  # a descriptor in two axes, so it is in no row of Table 3 (Costa-jussà et al. 2023, footnote 5)


def check_installed() -> None:
    """Raise InputError if the extra `translation` is not installed."""
    require_extra("translation", "sacrebleu", "sentencepiece", field="translation_bias")


def bleu(tokenize: str = "flores101") -> "BLEU":
    """Return sacrebleu's BLEU with a tokenizer and with add-k smoothing, k = 1 (Costa-jussà et al. 2023, §4.1).

    Raises:
        InputError: the extra `translation` is not installed; there is no such tokenizer, or its SentencePiece model is
            missing and cannot be downloaded.
    """
    check_installed()
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.tokenizers.tokenizer_spm import SPM_MODELS
    from sacrebleu.utils import SACREBLEU_DIR

    if tokenize not in BLEU.TOKENIZERS:
        raise unknown_name("tokenize", tokenize, BLEU.TOKENIZERS)
    try:
        return BLEU(tokenize=tokenize, smooth_method="add-k", smooth_value=1)
    except (OSError, ImportError, RuntimeError, SystemExit) as error:  # sacrebleu exits on an SSL error
        hint = ""
        if tokenize in SPM_MODELS:
            url = SPM_MODELS[tokenize]["url"]
            path = Path(SACREBLEU_DIR, "models", url.rsplit("/", 1)[1])
            hint = f"; its SentencePiece model is missing: save {url} to {path}, or use 13a, intl or char"
        reason = " ".join(str(error).split())
        raise InputError("tokenize", f"{tokenize!r} cannot be used ({reason}){hint}.") from None


def chrf() -> "CHRF":
    """Return sacrebleu's chrF++: character n-grams up to 6, word n-grams up to 2 (Popović 2017)."""
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(word_order=2)


def metric_name(tokenize: str) -> str:
    """Return the metric's name: "spbleu" for the tokenizers of FLORES (Goyal et al. 2022), else "bleu"."""
    return "spbleu" if tokenize in FLORES else "bleu"


def make_source_tables(table: pd.DataFrame, directions: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return a table of the sentences to translate for each pair of languages; the keys are "SOURCE-TARGET"."""
    english = ENGLISH_LANGUAGE.code
    languages = sorted(set(table[LANG]))
    pairs = {
        "en-xx": [(english, lang) for lang in languages],
        "xx-en": [(lang, english) for lang in languages],
        "xx-xx": [*permutations(languages, 2)],
    }
    return {
        f"{source}-{target}": select_source_sentences(table, source=source, target=target)
        for direction in pairs
        if direction in directions
        for source, target in pairs[direction]
    }


def hash_translations(folder: Path, sources: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Return the SHA-256 of the file of translations for each pair of languages.

    If files are missing, write their sentences to the subfolder `sources` of the folder.

    Args:
        sources: the result of `make_source_tables`.

    Raises:
        InputError: a file is missing, or its number of lines is not the number of sentences.
    """
    texts = {pair: table["text"].tolist() for pair, table in sources.items()}
    files = results_of_sources("translations", folder, texts, ".txt", "translate")
    for pair, path in files.items():
        read_translations(path, len(sources[pair]))
    return {path.name: sha256_of(path) for path in files.values()}


def align(translations: pd.DataFrame, table: pd.DataFrame, *, source: str, target: str) -> pd.DataFrame:
    """Return the translations with their masculine and feminine references.

    Args:
        translations: the result of `select_source_sentences`, with a column translation.
        table: the references of `comparable_references`, from which the sentences were selected.
        source, target: FLORES codes.

    Returns:
        A row per translation: sentence_id, axis, descriptor, template, gender ("" for an ambiguous source), lang (the
        language that is not English; "spa_Latn-cat_Latn" for two), direction ("en-xx", "xx-en", "xx-xx") and
        translation. For each of masculine and feminine: a tuple of references; has_…, whether the sentence has a
        reference of this gender in every language (a neutral or generic replacement does not count); and marked_…, a
        tuple of annotated spans, or None.
    """
    english = ENGLISH_LANGUAGE.code
    languages = [lang for lang in (source, target) if lang != english]
    references = [select_language(table, lang) for lang in languages]
    direction = "xx-xx"
    if source == english:
        direction = "en-xx"
    elif target == english:
        direction = "xx-en"
    rows = translations.assign(lang="-".join(languages), direction=direction)
    for gender in REFERENCE_GENDERS:
        by_sentence = references[-1][references[-1][GENDER] == gender].groupby(SENTENCE_ID, sort=False)
        column = ENGLISH_TEXT if target == english else REFERENCE
        texts = {key: tuple(dict.fromkeys(texts)) for key, texts in by_sentence[column]}
        spans = {} if target == english else {key: _join_spans(marked) for key, marked in by_sentence[MARKED]}
        not_replaced = [
            set(reference.loc[(reference[GENDER] == gender) & (reference[TAKEN_FROM] == gender), SENTENCE_ID])
            for reference in references
        ]
        rows[gender] = [texts[key] for key in rows[SENTENCE_ID]]
        rows[f"has_{gender}"] = rows[SENTENCE_ID].isin(set.intersection(*not_replaced))
        rows[f"marked_{gender}"] = pd.Series([spans.get(key) for key in rows[SENTENCE_ID]], rows.index, dtype=object)
    return rows


def translation_scores(
    rows: pd.DataFrame,
    *,
    tokenize: str = "flores101",
    resamples: int = RESAMPLES,
    seed: int = 0,
    signature: Signature | None = None,
) -> list[BiasScore]:
    """Return corpus scores by language and direction, and the gaps between masculine and feminine references.

    - spbleu (bleu if the tokenizer is not one of FLORES) and chrf (chrF++): range [0, 100], no ideal, group {lang,
      direction, gender}. For gender "both", ambiguous sources are compared with all references (Costa-jussà et al.
      2023, §4.2). Between other languages, the group {…, references: "both"} has the sources of one gender compared
      with the references of both (Costa-jussà et al. 2023, Figure 7).
    - translation_gap and chrf_gap: masculine − feminine, in [−100, 100] points, ideal 0. Group {lang, direction}. NaN,
      with a reason, if no sentence has a reference of one of the genders, as for Thai (Costa-jussà et al. 2023, §4.2).

    All of them also have {direction} in place of {lang, direction} for the mean over languages and, if there are
    translations between other languages, {source} and {target} for the mean over the pairs of languages with one source
    or target (Costa-jussà et al. 2023, Figure 7 and Table 2).

    95 % percentile intervals and two-sided p-values against a gap of 0 are by the paired bootstrap over sentences
    (Koehn 2004); a resample has the same sentences in all languages. A resample without any sentence of a language has
    no score in it, and none in the mean. Fewer than MIN_SENTENCES sentences, and resamples that are all equal, give
    neither. n counts sentences. For means over languages, n counts languages, and n_left_out counts languages with
    an undefined gap.

    Args:
        rows: the result of `align`, concatenated over languages.
        tokenize: a tokenizer of sacrebleu; "flores101" is the paper's (Goyal et al. 2022).

    Raises:
        InputError: the tokenizer cannot be used.
    """
    indices, ids = pd.factorize(rows[SENTENCE_ID], sort=True)  # sorted: the order of rows must not matter
    rows = rows.assign(sentence_index=indices)
    counts = np.random.default_rng(seed).multinomial(len(ids), np.full(len(ids), 1 / len(ids)), size=resamples)
    weights = np.vstack([np.ones(len(ids), dtype=np.int64), counts])  # the first row is the corpus itself
    common = {**(signature or {}), "version": VERSION, "resamples": resamples, "seed": seed}
    has_other_pairs = bool((rows["direction"] == "xx-xx").any())
    scores = []
    for name, gap_name, metric in (
        (metric_name(tokenize), GAP, bleu(tokenize)),
        ("chrf", "chrf_gap", chrf()),
    ):
        by_language = [
            _language_scores(metric, part, weights, {LANG: str(lang), "direction": str(direction)})
            for (direction, lang), part in rows.groupby(["direction", LANG])
        ]
        resampled = [score for language in by_language for score in language]
        for score in [*resampled, *_mean_scores(by_language, has_other_pairs)]:
            facts = {**common, "sacrebleu": score.sacrebleu}
            scores.append(_gap(gap_name, score, facts) if score.is_gap else _corpus_score(name, score, facts))
    return scores


@dataclass(frozen=True)
class _ResampledScore:
    """A corpus score or a gap under each resample of the sentences.

    Attributes:
        translations: the part of the score's group that says of which translations it is.
        kind: the rest of the group: the gender of the sentences, and of which references; {} for a gap.
        values: scores or gaps in points, (1 + resamples,), the first of the corpus itself; NaN for a resample without a
            sentence; None if undefined.
        n: the number of sentences, or of languages for a mean.
        sacrebleu: sacrebleu's signature.
        reason: why there are no values.
        n_left_out: for a mean, the number of languages without values.
        n_of: what n counts: sentences, or, for a mean, languages or pairs of languages.
    """

    translations: Mapping[str, str]
    kind: Mapping[str, str]
    values: np.ndarray | None
    n: int
    sacrebleu: str
    reason: str | None = None
    n_left_out: int = 0
    n_of: str = "sentences"

    @property
    def is_gap(self) -> bool:
        return not self.kind

    @property
    def group(self) -> dict[str, str]:
        return {**self.translations, **self.kind}

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % percentile interval; None without values, or if resamples do not differ."""
        return percentile_interval(self.resampled) if varies(self.resampled) else None

    @property
    def resampled(self) -> np.ndarray:
        """The scores of the resamples that have a sentence of each language."""
        values = np.empty(0) if self.values is None else self.values[1:]
        return values[np.isfinite(values)]


def sentence_scores(rows: pd.DataFrame, *, tokenize: str = "flores101") -> pd.DataFrame:
    """Return each translation's scores against masculine, feminine and both references (Costa-jussà et al. 2023, §4.5).

    Args:
        rows: the result of `align`.
        tokenize: a tokenizer of sacrebleu; "flores101" is the paper's (Goyal et al. 2022).

    Returns:
        A row per sentence, language, direction and gender of the references: sentence_id, axis, descriptor, template,
        lang, direction, gender, and spbleu (or bleu) and chrf, in [0, 100].
    """
    parts = []
    metrics = {metric_name(tokenize): bleu(tokenize), "chrf": chrf()}
    for gender in (*REFERENCE_GENDERS, BOTH):
        part = _rows_of_gender(rows, gender)
        if part.empty:
            continue
        scores = {}
        for name, metric in metrics.items():
            scores[name] = [score_of_statistics(metric, row) for row in _statistics(metric, part, gender)]
        facts = part[[SENTENCE_ID, columns.AXIS, columns.DESCRIPTOR, columns.TEMPLATE, LANG, "direction"]]
        parts.append(facts.assign(gender=gender, **scores))
    return pd.concat(parts, ignore_index=True)


def _join_spans(spans: Iterable[Sequence[str] | None]) -> tuple[str, ...] | None:
    """Return the spans of all references of a sentence; None if a reference is not annotated."""
    joined: list[str] = []
    for part in spans:
        if part is None:
            return None
        joined += part
    return tuple(joined)


def _rows_of_gender(rows: pd.DataFrame, gender: str) -> pd.DataFrame:
    """Return the translations of ambiguous sources and of sources of a gender; for BOTH, of ambiguous ones only."""
    return rows[rows[GENDER].isin(["", gender])]


def _statistics(metric: "Metric", rows: pd.DataFrame, gender: str) -> np.ndarray:
    """Return sacrebleu's statistics of each row, (n, k) integers, against the references of `gender`.

    The sums over rows are the corpus's statistics.
    """
    references = rows[MASCULINE] + rows[FEMININE] if gender == BOTH else rows[gender]
    streams = list(zip_longest(*references))  # the first reference of each row, then the second; None for none
    return segment_statistics(metric, rows[TRANSLATION].tolist(), streams)


def _language_scores(
    metric: "Metric", rows: pd.DataFrame, weights: np.ndarray, translations: Mapping[str, str]
) -> list[_ResampledScore]:
    """Return the corpus scores of one language and direction; the last one is the gap between the genders."""
    # The gap has the signature of the last kind, with one set of references.
    kinds = [{GENDER: gender} for gender in (BOTH, *REFERENCE_GENDERS)]
    if translations["direction"] == "xx-xx":
        kinds = [{GENDER: gender, REFERENCES: BOTH} for gender in REFERENCE_GENDERS] + kinds
    scores = []
    by_gender = {}
    for kind in kinds:
        selected = _rows_of_gender(rows, kind[GENDER])
        if selected.empty:
            continue
        values = _resampled_scores(metric, selected, kind.get(REFERENCES, kind[GENDER]), weights)
        if REFERENCES not in kind:
            by_gender[kind[GENDER]] = values
        n = len(selected)
        reason = FEW_SENTENCES if n < MIN_SENTENCES else None
        scores.append(_ResampledScore(translations, kind, values, n, str(metric.get_signature()), reason))
    gap = None
    reason = _undefined_gap(rows, by_gender)
    if reason is None:
        reason = FEW_SENTENCES if rows[SENTENCE_ID].nunique() < MIN_SENTENCES else None
        gap = by_gender[MASCULINE] - by_gender[FEMININE]
    n = rows[SENTENCE_ID].nunique()
    scores.append(_ResampledScore(translations, {}, gap, n, scores[-1].sacrebleu, reason))
    return scores


def _undefined_gap(rows: pd.DataFrame, by_gender: Mapping[str, np.ndarray]) -> str | None:
    """Return the reason why the gap of a language is undefined; None if it is defined."""
    if not {*REFERENCE_GENDERS} <= by_gender.keys():
        return NOT_BOTH_GENDERS
    missing = [gender for gender in REFERENCE_GENDERS if not rows[f"has_{gender}"].any()]
    return NO_REFERENCE.format(missing[0]) if missing else None


def _mean_scores(by_language: Sequence[Sequence[_ResampledScore]], has_other_pairs: bool) -> list[_ResampledScore]:
    """Return the means over the languages of a direction and, between other languages, of a source and of a target."""
    averaged: dict[tuple, list[_ResampledScore]] = {}
    for language in by_language:
        for side, value in _sides(language[0].translations, has_other_pairs).items():
            for score in language:
                averaged.setdefault((side, value, *score.kind.items()), []).append(score)
    means = []
    for (side, value, *_), scores in averaged.items():
        defined = [score.values for score in scores if score.values is not None]
        means.append(
            _ResampledScore(
                translations={side: value},
                kind=scores[0].kind,
                values=np.mean(defined, axis=0) if defined else None,
                n=len(defined),
                sacrebleu=by_language[-1][-1].sacrebleu,
                reason=None if defined else scores[0].reason,
                n_left_out=len(scores) - len(defined),
                n_of="pairs of languages" if side != "direction" or value == "xx-xx" else "languages",
            )
        )
    return means


def _sides(translations: Mapping[str, str], has_other_pairs: bool) -> dict[str, str]:
    """Return the direction of translations and, if some are between other languages, their source and their target."""
    direction = translations["direction"]
    sides = {"direction": direction}
    if has_other_pairs:
        languages = translations[LANG].split("-")
        sides["source"] = ENGLISH_LANGUAGE.code if direction == "en-xx" else languages[0]
        sides["target"] = ENGLISH_LANGUAGE.code if direction == "xx-en" else languages[-1]
    return sides


def _resampled_scores(metric: "Metric", rows: pd.DataFrame, gender: str, weights: np.ndarray) -> np.ndarray:
    """Return the corpus score under each row of sentence weights, (resamples, sentences) → (resamples,).

    A resample that has none of the sentences has no score, NaN; 0 is that of translations without a right word. Of
    fewer than MIN_SENTENCES sentences no resample has one: resamples of few sentences are too much alike.
    """
    counts = weights[:, rows["sentence_index"].to_numpy()]
    sums = counts @ _statistics(metric, rows, gender)
    scores = np.array([score_of_statistics(metric, row) for row in sums])
    has_score = counts.sum(axis=1) > 0
    if len(rows) < MIN_SENTENCES:
        has_score[1:] = False
    return np.where(has_score, scores, np.nan)


def _corpus_score(name: str, score: _ResampledScore, signature: Signature) -> BiasScore:
    assert score.values is not None
    return BiasScore(
        metric=name,
        value=float(score.values[0]),
        ideal=None,
        bounds=(0.0, 100.0),
        n=score.n,
        interval=score.interval,
        n_left_out=score.n_left_out,
        group=score.group,
        reason=score.reason,
        signature=signature,
        n_of=score.n_of,
    )


def _gap(name: str, score: _ResampledScore, signature: Signature) -> BiasScore:
    p_value = None
    if varies(score.resampled):
        below = int((score.resampled <= 0).sum())
        above = int((score.resampled >= 0).sum())
        p_value = min(1.0, 2 * (1 + min(below, above)) / (1 + len(score.resampled)))
    return BiasScore(
        metric=name,
        value=math.nan if score.values is None else float(score.values[0]),
        ideal=0.0,
        bounds=(-100.0, 100.0),
        n=score.n,
        interval=score.interval,
        p_value=p_value,
        n_left_out=score.n_left_out,
        group=score.group,
        reason=score.reason,
        signature=signature,
        n_of=score.n_of,
    )


def cut_table(sentences: pd.DataFrame, by: str, metric: str) -> pd.DataFrame:
    """Return the mean score by axis, descriptor or template, lowest first (Costa-jussà et al. 2023, Tables 3, 5 and 6).

    Means are over sentences and languages, as in the paper. The paper's counts (17,700 = 118 sentences × 50 languages ×
    3 for a whole template) include all 50 languages; set `min_masculine_references` to 0 for the same counts.

    Args:
        sentences: the result of `sentence_scores`.
        by: "axis" (without the descriptor "queer", footnote 5), "descriptor", "template", "lang" or "direction".
        metric: "spbleu", "bleu" or "chrf".

    Returns:
        One row per value of `by`: masculine, feminine and both (mean scores, NaN without a score), gap (masculine −
        feminine), preference (the gap divided by the mean of masculine and feminine: the bias towards masculine outputs
        of §4.5, by which the paper's Table 5 gives its 15.4 % and 16.2 %), mean (of the defined mean scores) and count
        (number of scores).
    """
    if by == columns.AXIS:
        sentences = sentences[sentences[columns.DESCRIPTOR] != OUTLIER]
    genders = [*REFERENCE_GENDERS, BOTH]
    table = sentences.pivot_table(metric, by, GENDER, "mean").reindex(columns=genders)
    table["gap"] = table[MASCULINE] - table[FEMININE]
    table["mean"] = table[genders].mean(axis=1)
    table["preference"] = table["gap"] / table[[*REFERENCE_GENDERS]].mean(axis=1, skipna=False)
    table["count"] = sentences.groupby(by).size()
    return table.rename_axis(columns=None).sort_values("mean").reset_index()
