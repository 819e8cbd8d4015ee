"""Embedding bias: how much nearer an English sentence is to its masculine than to its feminine translation.

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
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
from pydantic import Field

from evenhand.evaluation.data.gendered_translations import (
    ENGLISH_LANGUAGE,
    ENGLISH_TEXT,
    FEMININE,
    GENDER,
    GENDERS,
    LANG,
    MASCULINE,
    REFERENCE,
    SENTENCE_ID,
    language_name,
    load_references,
    references_sha256,
)
from evenhand.evaluation.errors import InputError, require_extra
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import results_of_sources, sha256_of
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import Family, FamilyConfig, FamilyRun
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT
from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore, Direction, Signature, display_name, shown_direction
from evenhand.evaluation.settings import BY_CONTENT, StrictSettings
from evenhand.evaluation.statistics.hypothesis_tests import holm
from evenhand.evaluation.statistics.intervals import CONFIDENCE, Interval
from evenhand.evaluation.tables import label_batches

VERSION = 1
COSINE = "cosine"
ENGLISH_GENDER = "english_gender"
AMBIGUOUS = "ambiguous"
ROUNDING = 1e-12  # cosines that differ by less are equal; a smaller spread is a rounding error of float64
TOO_FEW = "fewer than two sentences have a masculine and a feminine reference with a cosine"
gap_format = partial(Format, unit=UNIT, factor=PER_UNIT, ideal=0, signed=True)


class Settings(StrictSettings):
    """Embedding bias: is an English sentence nearer to its masculine translation than to its feminine one?"""

    vectors: Path | None = Field(
        None,
        description="folder of another encoder's embeddings, such as LASER's: LANG.npy, one row per text; null: the "
        "model's",
        json_schema_extra=BY_CONTENT,
    )


class EmbeddingBias(Family):
    """Scores of a sentence encoder, or of embeddings in files."""

    Settings = Settings
    SHARED = ("references",)
    NEEDS_FLOAT32 = True
    FORMATS = (
        gap_format(
            "embedding_gap",
            "gap",
            "Cosine of the English sentence and its masculine translation minus the cosine with its feminine one.",
        ),
        gap_format("embedding_gap_holm", "gap", "The gap with Holm’s correction of p over languages."),
        gap_format("embedding_gap_one_sided", "gap", "The gap with the one-sided test of Costa-jussà et al., §5."),
        Format(
            "embedding_similarity", "cosine", "Cosine of an English sentence and its translation, −1 to 1.", decimals=3
        ),
    )
    TITLE = "Embeddings and gender"
    WORDS = ("embedding_bias.j2",)

    def loads_model(self, config: FamilyConfig) -> bool:
        return config.settings.vectors is None

    def inputs(self, config: FamilyConfig) -> dict[str, Json]:
        """Return fingerprints of the references and of the sentence encoder, or of the files of embeddings.

        If files of embeddings are missing, their texts are written to the subfolder `sources` of the folder.
        """
        settings = config.settings
        model = config.model
        if settings.vectors is None:
            require_extra("translation", "sentence_transformers", field="embedding_bias")
        references = load_references(config.references)
        fingerprints: dict[str, Json] = {"references": references_sha256(config.references.name)}
        if settings.vectors is None:
            fingerprints["model"] = model_revision(model.name, model.revision, model.base)
        else:
            files = vector_files(settings.vectors, texts_by_language(references))
            fingerprints["vectors"] = {path.name: sha256_of(path) for path in files}
        return fingerprints

    def collect(self, store: Store, config: FamilyConfig) -> pd.DataFrame:
        return store.table("cosines", lambda: self._cosines(store, config), on_all_ranks=True)

    def _cosines(self, store: Store, config: FamilyConfig) -> pd.DataFrame:
        from evenhand.evaluation.models.embeddings import encode_texts, load_sentence_encoder, sentence_embeddings

        settings = config.settings
        references = load_references(config.references)
        pairs = pair_with_references(references)
        if settings.vectors is not None:
            return cosines_of_files(pairs, settings.vectors, texts_by_language(references))
        texts = list(dict.fromkeys([*pairs[ENGLISH_TEXT], *pairs[REFERENCE]]))
        encoder = load_sentence_encoder(config.model)
        _, is_truncated = encode_texts(encoder, texts)

        def compute(items: pd.DataFrame) -> Iterator[pd.DataFrame]:
            batches = sentence_embeddings(encoder, items["text"].tolist())
            return label_batches(((rows, list(vectors)) for rows, vectors in batches), ("vector",), items.index)

        vectors = store.rows("vectors", pd.DataFrame({"text": texts}), compute, unit="texts")["vector"]
        truncated = {text for text, flag in zip(texts, is_truncated, strict=True) if flag}
        table = add_cosines(pairs, texts, np.stack(vectors.to_numpy()))
        return table.assign(truncated=table[ENGLISH_TEXT].isin(truncated) | table[REFERENCE].isin(truncated))

    def score(self, store: Store, config: FamilyConfig, table: pd.DataFrame) -> list[BiasScore]:
        store.record["references"] = len(table)
        settings = config.settings
        if settings.vectors is None:
            n_truncated = int(table["truncated"].sum())
            encoder = {"model": {**config.open_model().description, "texts_truncated": n_truncated}}
        else:
            encoder = {"vectors": {"name": str(settings.vectors), "files": store.inputs["vectors"]}}
        signature = {
            **encoder,
            **config.references.signature(str(store.inputs["references"])),
            "packages": package_versions(),
        }
        minimum = config.references.min_masculine_references
        return embedding_scores(table, min_masculine_references=minimum, signature=signature)

    def subtitle(self, run: FamilyRun) -> str:
        config = run.config
        encoder = config.settings.vectors or config.model.name
        return f"{display_name(str(encoder))} · {display_name(str(config.references.name))}"

    def find_verdict(self, run: FamilyRun) -> Finding:
        """Return in how many languages English is nearer to the translations of one gender, and the mean gap."""
        gaps = [score for score in run.scores if score.metric == "embedding_gap_holm" and list(score.group) == [LANG]]
        defined = [gap for gap in gaps if math.isfinite(gap.value)]
        if not defined:
            return Finding("no_gap", {"gap": next(iter(gaps), None)})
        n = Counter(shown_direction(gap) for gap in defined)
        counts = {
            "n_languages": len(defined),
            "n_masculine": n[Direction.ABOVE],
            "n_feminine": n[Direction.BELOW],
            "n_untested": n[Direction.UNKNOWN],
        }
        return Finding("gaps", {**counts, "mean": sum(gap.value for gap in defined) / len(defined)})

    def label(self, score: BiasScore) -> str:
        english = score.group.get(ENGLISH_GENDER)
        parts = (language_name(score.group[LANG]), score.group.get(GENDER), english and f"{english} English")
        return ", ".join(filter(None, parts))

    def sections(self, run: FamilyRun) -> list[Section]:
        """Return tables of the scores, and the distributions of the cosines (Costa-jussà et al. 2023, Figure 8)."""
        from evenhand.evaluation.report.figures import box_figure, svg

        values = {}
        for (lang, gender), cosines in run.table("cosines").groupby([LANG, GENDER])[COSINE]:
            values[f"{language_name(str(lang))}, {gender}"] = cosines.dropna().to_numpy()
        about = self.sentence(Finding("about_similarity", {"boxes": Finding("about_boxes")}))
        chart = [Figure("", svg(box_figure("Cosine of English sentences with their translations", values)), about)]
        return [*super().sections(run), Section("Similarity of translations", figures=chart if values else [])]


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
    versions = references[[*key, ENGLISH_TEXT, GENDER]].drop_duplicates([*key, ENGLISH_TEXT])
    versions = versions.rename(columns={GENDER: ENGLISH_GENDER})
    has_one_version = ~versions.duplicated(key, keep=False)
    versions[ENGLISH_GENDER] = versions[ENGLISH_GENDER].mask(has_one_version, AMBIGUOUS)
    return versions.merge(references[[*key, GENDER, REFERENCE]], on=key)


def texts_by_language(references: pd.DataFrame) -> dict[str, list[str]]:
    """Return the distinct texts of each language, English among them, in the order of the references."""
    texts = {str(lang): list(dict.fromkeys(part)) for lang, part in references.groupby(LANG)[REFERENCE]}
    return {ENGLISH_LANGUAGE.code: list(dict.fromkeys(references[ENGLISH_TEXT])), **texts}


def vector_files(folder: Path, texts: Mapping[str, Sequence[str]]) -> dict[Path, np.ndarray]:
    """Return the embeddings, (n, h), of the n texts of each language, by the path of their file.

    Raises:
        InputError: a file is missing, is not of NumPy, or has another shape or type; or the files have different h.
    """
    vectors = {}
    for lang, path in results_of_sources("vectors", folder.expanduser(), texts, ".npy", "embed").items():
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise InputError("vectors", f"{path} cannot be read ({error}); write it with numpy.save.") from None
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu":
            kind = found.dtype if isinstance(found, np.ndarray) else "several arrays"
            raise InputError("vectors", f"{path} has {kind}; write one array of real numbers with numpy.save.")
        if found.ndim != 2 or len(found) != len(texts[lang]):
            raise InputError("vectors", f"{path} has the shape {found.shape}; write ({len(texts[lang])}, h).")
        vectors[path] = found
    widths = {array.shape[1] for array in vectors.values()}
    if len(widths) > 1:
        raise InputError("vectors", f"the files in {folder} have {sorted(widths)} columns; embed all with one encoder.")
    return vectors


def cosines_of_files(pairs: pd.DataFrame, folder: Path, texts: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return the pairs with the cosines of embeddings in files; no text is known to be truncated."""
    keys = [(lang, text) for lang, part in texts.items() for text in part]  # a text may be in several languages
    english = pd.Series([(ENGLISH_LANGUAGE.code, text) for text in pairs[ENGLISH_TEXT]], pairs.index)
    reference = pd.Series([*zip(pairs[LANG], pairs[REFERENCE], strict=True)], pairs.index)
    keyed = pairs.assign(**{ENGLISH_TEXT: english, REFERENCE: reference})
    cosines = add_cosines(keyed, keys, np.concatenate([*vector_files(folder, texts).values()]))[COSINE]
    return pairs.assign(cosine=cosines, truncated=False)


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
    english = pairs[ENGLISH_TEXT].map(rows).to_numpy()
    reference = pairs[REFERENCE].map(rows).to_numpy()
    return pairs.assign(cosine=np.clip(np.einsum("rh,rh->r", unit[english], unit[reference]), -1.0, 1.0))


def embedding_scores(
    table: pd.DataFrame, *, min_masculine_references: int = 0, signature: Signature | None = None
) -> list[BiasScore]:
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

    A gap is NaN, with a reason, if fewer than two sentences have both references, as for Thai in the paper, or fewer
    than `min_masculine_references` have a masculine one (§4.1: 100).

    Args:
        table: the result of `add_cosines`.
        min_masculine_references: the number of sentences with a masculine reference below which a language is left out.
        signature: the settings behind the vectors: the encoder, its revision, the number of truncated texts.
    """
    common = dict(signature or {}) | {"version": VERSION, "test": "paired t-test over sentences"}
    gaps = []
    similarities = []
    for group, cosines in _cuts(table):
        gaps.append(_gap(group, cosines, min_masculine_references, common))
        similarities += [_similarity(group, gender, cosines[gender], common) for gender in GENDERS if gender in cosines]
    corrected = _correct([two_sided for two_sided, _ in gaps])
    return [*(score for pair in gaps for score in pair), *corrected, *similarities]


def _cuts(table: pd.DataFrame) -> Iterator[tuple[dict[str, str], pd.DataFrame]]:
    """Yield the cosines of the sentences of each language and, if English has several versions, of each version."""
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


def _gap(
    group: dict[str, str], cosines: pd.DataFrame, min_masculine_references: int, signature: Signature
) -> tuple[BiasScore, BiasScore]:
    both = cosines.reindex(columns=[MASCULINE, FEMININE])
    differences = (both[MASCULINE] - both[FEMININE]).dropna().to_numpy(dtype=np.float64)
    n_masculine = both[MASCULINE].notna().sum()
    if n_masculine < min_masculine_references:
        differences = differences[:0]
    n = len(differences)
    value = math.nan
    reason = TOO_FEW
    if n > 1:
        value = float(differences.mean())
        reason = None
    elif n_masculine < min_masculine_references:
        reason = f"fewer than {min_masculine_references} masculine references"
    elif missing := [gender for gender in (MASCULINE, FEMININE) if gender not in cosines]:
        reason = f"no sentence has a {' or a '.join(missing)} reference"
    scores = []
    for metric, alternative in (("embedding_gap", "two-sided"), ("embedding_gap_one_sided", "greater")):
        interval, p_value = _t_test(differences, (-2.0, 2.0), alternative)
        score = BiasScore(
            metric=metric,
            value=value,
            ideal=0.0,
            bounds=(-2.0, 2.0),
            n=n,
            interval=interval,
            p_value=p_value,
            n_left_out=len(cosines) - n,
            group=group,
            reason=reason,
            signature={**signature, "alternative": alternative},
            n_of="sentences",
        )
        scores.append(score)
    return scores[0], scores[1]


def _t_test(
    values: np.ndarray, bounds: Interval, alternative: str = "two-sided"
) -> tuple[Interval | None, float | None]:
    """Return the 95 % interval of the mean, cut at the bounds, and the p-value against 0; None if no value differs."""
    if len(values) < 2 or np.ptp(values) <= ROUNDING:
        return None, None
    test = scipy.stats.ttest_1samp(values, 0.0, alternative=alternative)
    low, high = test.confidence_interval(CONFIDENCE)
    return (max(bounds[0], float(low)), min(bounds[1], float(high))), float(test.pvalue)


def _correct(gaps: Sequence[BiasScore]) -> list[BiasScore]:
    """Return the gaps with Holm's correction over the languages, for each English version by itself."""
    scores = []
    for version in dict.fromkeys(score.group.get(ENGLISH_GENDER) for score in gaps):
        family = [score for score in gaps if score.group.get(ENGLISH_GENDER) == version]
        tested = [score.p_value for score in family if score.p_value is not None]
        adjusted = map(float, holm(tested))
        for score in family:
            p_value = None if score.p_value is None else next(adjusted)
            signature = {**score.signature, "correction": f"Holm, over {len(tested)} languages"}
            corrected = replace(score, metric="embedding_gap_holm", interval=None, p_value=p_value, signature=signature)
            scores.append(corrected)
    return scores


def _similarity(group: dict[str, str], gender: str, cosines: pd.Series, signature: Signature) -> BiasScore:
    values = cosines.dropna().to_numpy(dtype=np.float64)
    interval, _ = _t_test(values, (-1.0, 1.0))
    value = math.nan
    reason = f"no sentence has a {gender} reference with a cosine"
    if len(values):
        value = float(values.mean())
        reason = None
    return BiasScore(
        metric="embedding_similarity",
        value=value,
        ideal=None,
        bounds=(-1.0, 1.0),
        n=len(values),
        interval=interval,
        n_left_out=len(cosines) - len(values),
        group=group | {GENDER: gender},
        reason=reason,
        signature=signature,
        n_of="sentences",
    )
