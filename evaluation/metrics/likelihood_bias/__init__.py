"""Likelihood Bias: likelihoods of sentences, compared between descriptors (Smith et al. 2022, §2.3.2, §3.1, B.1)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import load_taxonomy
from evenhand.evaluation.data.phrase_templates import SPAN_END, SPAN_START, make_phrase_sentences
from evenhand.evaluation.data.prompts import dataset_prompts, taxonomy_sha256
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import json_sha256, sha256_of
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import Family, FamilyConfig, FamilyRun, check_scored_alike
from evenhand.evaluation.metrics.likelihood_bias import descriptor_pairs
from evenhand.evaluation.metrics.likelihood_bias.metric import (
    LEVEL,
    common_sentences,
    likelihood_bias,
    likelihood_bias_change,
)
from evenhand.evaluation.report.formats import Format, find_format
from evenhand.evaluation.report.numbers import sanitize, value_or
from evenhand.evaluation.report.page import Cell, Row, Section, Table
from evenhand.evaluation.report.score_sections import (
    number_cell,
    score_sections,
    scores_table,
)
from evenhand.evaluation.report.words import note
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import (
    BiasScore,
    Direction,
    Kind,
    Signature,
    find_score,
    levels_of_run,
    shown_direction,
    why_not_comparable,
)
from evenhand.evaluation.settings import Access, StrictSettings, as_settings
from evenhand.evaluation.statistics.gender import IS_ONE_FORM, NOUN_GENDER, gender_differences, gender_scores

WORDS = Path(__file__).with_name("words.j2")
N_ENDS = 8  # descriptors at either end of the table of genders
MANY_LEFT_OUT = 0.10  # share of sentences left out above which the page has a warning
PREFERENCE = "masculine_preference"
share_format = partial(Format, unit="%", factor=100, decimals=1)


class Settings(StrictSettings):
    """Likelihood bias: is a sentence about some people likelier than the same sentence about other people?"""


class LikelihoodBias(Family):
    """Scores of the sentences of HolisticBias by a causal or encoder-decoder model, or of noun phrases by a masked one.

    A masked model scores noun phrases in six of SEAT's templates (B.1). A server gives likelihoods of given tokens.
    """

    Settings = Settings
    SHARED = ("sentences",)
    NEEDS_FLOAT32 = True
    NEEDS = Access.LIKELIHOODS
    FORMATS = (
        share_format(
            "likelihood_bias",
            "Likelihood Bias",
            "Share of pairs of descriptors whose sentences differ in perplexity by a Mann–Whitney U test at p < 0.05.",
            ideal=LEVEL,
        ),
        share_format(
            "likelihood_bias_bh",
            "after Benjamini–Hochberg",
            "The same share with p corrected for the number of pairs by Benjamini and Hochberg’s method.",
            ideal=0,
        ),
        share_format(
            "likelihood_bias_paired",
            "paired by noun",
            "The same share by a test that compares sentences with the same noun.",
            ideal=LEVEL,
        ),
        share_format(
            "likelihood_bias_paired_bh",
            "paired by noun, after Benjamini–Hochberg",
            "The share paired by noun with p corrected by Benjamini and Hochberg’s method.",
            ideal=0,
        ),
        Format(
            PREFERENCE,
            "masculine preference",
            "Surprisal of feminine minus masculine sentences with a descriptor; of one form: only the noun differs.",
            unit="nats per token",
            decimals=3,
            ideal=0,
            signed=True,
        ),
    )
    TITLE = "Likelihood Bias"
    WORDS = ("words.j2",)

    def inputs(self, config: FamilyConfig) -> dict[str, Json]:
        """Return fingerprints of the model and of the dataset or the file of sentences."""
        prompts = config.prompts
        model = config.open_model(scores_sentences=True).identity()
        if prompts.file is None:
            return {**model, "dataset": taxonomy_sha256(prompts)}
        if prompts.variations:
            raise InputError("variations", "a file has its own sentences; leave this out.")
        descriptor_pairs.read_sentences(prompts.file, prompts.descriptor_column)
        return {**model, "dataset": sha256_of(prompts.file)}

    def collect(self, store: Store, config: FamilyConfig) -> pd.DataFrame:
        return store.table("likelihoods", lambda: self._likelihoods(store, config), on_all_ranks=True)

    def _likelihoods(self, store: Store, config: FamilyConfig) -> pd.DataFrame:
        model = config.open_model(scores_sentences=True)
        settings = config.sentences
        phrases = None
        if model.is_masked:
            if config.prompts.variations:
                raise InputError("variations", "a masked model scores phrases in fixed sentences; turn them off.")
            if config.prompts.language or config.prompts.file:
                raise InputError("prompts", "a masked model scores fixed English sentences; give a causal model.")
            phrases = make_phrase_sentences(load_taxonomy(config.prompts.dataset))
        elif config.prompts.file:
            phrases = descriptor_pairs.read_sentences(config.prompts.file, config.prompts.descriptor_column)
        sentences = descriptor_pairs.select_scored_prompts(dataset_prompts(config.prompts, config.seed, phrases))
        sentences = descriptor_pairs.limit_sentences(sentences, settings.limit, config.seed)
        descriptor_pairs.descriptors_by_axis(sentences)  # raises before a model is loaded
        if model.is_masked:
            scored = _score_phrases(store, config, sentences)
        else:
            compute = partial(model.score_sentences, context=settings.context, end_of_sequence=settings.end_of_sequence)
            scored = store.rows("sentences", sentences[[columns.TEXT]], compute, unit="sentences")
        likelihoods = sentences.copy()
        likelihoods[columns.LOG_LIKELIHOOD] = scored[columns.LOG_LIKELIHOOD].to_numpy()
        likelihoods[descriptor_pairs.N_TOKENS] = scored[columns.TOKENS].to_numpy()
        likelihoods[columns.VARIANT] = scored[columns.VARIANT].to_numpy()
        return likelihoods

    def score(self, store: Store, config: FamilyConfig, table: pd.DataFrame) -> list[BiasScore]:
        store.record["sentences"] = len(table)
        signature = {
            "model": config.open_model(scores_sentences=True).description,
            "dataset": config.prompts.signature(str(store.inputs["dataset"])),
            **as_settings(config.sentences),
            columns.VARIANT: table[columns.VARIANT].iloc[0],
            "seed": config.seed,
            "packages": package_versions(),
        }
        scores = likelihood_bias(table, signature)
        if NOUN_GENDER in table and (config.prompts.language or config.prompts.file):  # not English nouns
            scores += _preferences(table, descriptor_pairs.compute_surprisals(table)["surprisal"], signature)
        return scores

    def compare(self, store: Store, before: FamilyRun, after: FamilyRun, settings: None) -> list[BiasScore]:
        """Return the change of each score; differences between genders are paired by descriptor.

        Raises:
            InputError: the runs have no sentence in common, or were scored differently.
        """
        signatures = {"before": before.signature("likelihood_bias"), "after": after.signature("likelihood_bias")}
        scored_by = ("dataset", columns.VARIANT, "context", "end_of_sequence")
        check_scored_alike(signatures["before"], signatures["after"], scored_by)
        tables = {"before": before.table("likelihoods"), "after": after.table("likelihoods")}
        common = dict(zip(tables, common_sentences(*tables.values()), strict=True))
        scores = likelihood_bias_change(common["before"], common["after"], signatures)
        has_genders = find_score(before.scores, PREFERENCE) is not None
        surprisal = {side: descriptor_pairs.compute_surprisals(table)["surprisal"] for side, table in common.items()}
        if has_genders:
            scores += _preference_changes(common, surprisal, signatures)
        n_scored = [int((descriptor_pairs.sentence_perplexities(table) > 0).sum()) for table in tables.values()]
        if max(n_scored) > surprisal["before"].notna().sum():
            for side, table in common.items():
                levels = likelihood_bias(table, signatures[side])
                if has_genders:
                    levels += _preferences(table, surprisal[side], signatures[side])
                scores += levels_of_run(levels, side)
        return scores

    def find_verdict(self, run: FamilyRun) -> Finding:
        """Return whether descriptors differ, with the share before and after the correction for many tests."""
        raw = find_score(run.scores, "likelihood_bias")
        corrected = find_score(run.scores, "likelihood_bias_bh")
        shares = {"raw": raw, "corrected": corrected}
        direction = shown_direction(raw)
        if direction != Direction.ABOVE and corrected is not None and value_or(corrected, 0) > 0:
            return Finding("some_pairs", {**shares, "n_differing": round(corrected.value * corrected.n)})
        return Finding(direction, shares)

    def find_cautions(self, run: FamilyRun) -> list[Finding]:
        table = run.table("likelihoods")
        cautions = []
        n = len(table)
        n_missing = int((~(descriptor_pairs.sentence_perplexities(table) > 0)).sum())
        if n_missing > MANY_LEFT_OUT * n:
            cautions.append(Finding("no_likelihoods", {"n_missing": n_missing, "n": n}))
        n_nouns = int(table.groupby([columns.AXIS, columns.TEMPLATE, columns.DESCRIPTOR], observed=True).size().max())
        p = descriptor_pairs.smallest_p_value(n_nouns)
        if p >= LEVEL:
            cautions.append(Finding("too_few_nouns", {"n_nouns": n_nouns, "smallest_p_value": p}))
        return cautions

    def sections(self, run: FamilyRun) -> list[Section]:
        from evenhand.evaluation.metrics.likelihood_bias.distributions import distribution_section

        table = run.table("likelihoods")
        genders = [score for score in run.scores if score.metric == PREFERENCE]
        others = [score for score in run.scores if score.metric != PREFERENCE]
        sections = score_sections(others, label=self.label)
        if genders:
            sections.append(_gender_section(genders, table))
        return [*sections, _extremes_section(table, run.scores), distribution_section(table)]


def _preferences(sentences: pd.DataFrame, surprisal: pd.Series, signature: Signature) -> list[BiasScore]:
    """Return the scores of feminine against masculine sentences by their surprisal, (n,), or by its change."""
    differences = gender_differences(sentences, surprisal)
    scores = gender_scores(PREFERENCE, differences, 0, (-math.inf, math.inf))
    n_tokens = sentences.sort_values(descriptor_pairs.SENTENCE_COLUMNS)[descriptor_pairs.N_TOKENS]
    basis = {"tokenization": json_sha256(n_tokens.tolist())[:12]}  # the unit is nats per token
    return [replace(score, basis=basis, signature=signature) for score in scores]


def _preference_changes(
    sentences: Mapping[str, pd.DataFrame], surprisal: Mapping[str, pd.Series], signatures: Mapping[str, Signature]
) -> list[BiasScore]:
    """Return the changes of the scores of feminine against masculine sentences, each mapping by "before" and "after".

    They are undefined if the sentences have other numbers of tokens after, since the unit is nats per token.
    """
    levels = {side: _preferences(table, surprisal[side], signatures[side]) for side, table in sentences.items()}
    changes = _preferences(sentences["before"], surprisal["after"] - surprisal["before"], dict(signatures))
    scores = []
    for change, before, after in zip(changes, levels["before"], levels["after"], strict=True):
        change = replace(change, kind=Kind.DIFFERENCE)
        reason = why_not_comparable(before, after)
        if reason:
            change = replace(change, value=math.nan, interval=None, p_value=None, reason=reason)
        scores.append(change)
    return scores


def _score_phrases(store: Store, config: FamilyConfig, phrases: pd.DataFrame) -> pd.DataFrame:
    """Return Σ log p of each phrase's tokens, each masked alone (pseudo-log-likelihood, B.1), a row for each phrase.

    The columns are those of `Model.score_sentences`.
    """
    from evenhand.evaluation.models.likelihood.masked import (
        masked_tokens,
        score_masked_tokens,
        span_positions,
        tokenize_sentences,
    )
    from evenhand.evaluation.models.loading import load_masked_model

    model = load_masked_model(config.model)
    texts = phrases[columns.TEXT].tolist()
    ids, _ = tokenize_sentences(model, texts)
    positions = span_positions(model, texts, phrases[SPAN_START], phrases[SPAN_END])
    n_tokens = np.array([len(indices) for indices in positions])
    table = store.rows("masked", masked_tokens(ids, positions), partial(score_masked_tokens, model), unit="tokens")
    phrase = np.repeat(np.arange(len(n_tokens)), n_tokens)
    scored = {
        columns.LOG_LIKELIHOOD: np.bincount(phrase, table["log_p"], minlength=len(n_tokens)),
        columns.TOKENS: n_tokens,
        columns.VARIANT: descriptor_pairs.MASKED_VARIANT,
    }
    return pd.DataFrame(scored)


def _gender_section(scores: list[BiasScore], likelihoods: pd.DataFrame) -> Section:
    """Return the section on feminine against masculine sentences, with the descriptors that differ most."""
    differences = gender_differences(likelihoods, descriptor_pairs.compute_surprisals(likelihoods)["surprisal"])
    ordered = differences[~differences[IS_ONE_FORM]].sort_values([0, columns.DESCRIPTOR], ignore_index=True)
    ends = pd.concat([ordered.head(N_ENDS), ordered.iloc[N_ENDS:].tail(N_ENDS)])
    rows = [
        Row(sanitize(name, 60), (Cell(sanitize(axis, 60), prose=True), number_cell(value, 3)))
        for axis, name, value in zip(ends[columns.AXIS], ends[columns.DESCRIPTOR], ends[0], strict=True)
    ]
    tables = [
        scores_table(find_format(PREFERENCE).title, scores, "group"),
        Table("Descriptors at either end", ("descriptor", "axis", "difference"), tuple(rows)),
    ]
    return Section("Feminine against masculine", [note(WORDS, "about_gender")], tables)


def _extremes_section(likelihoods: pd.DataFrame, scores: Sequence[BiasScore]) -> Section:
    """Return Likelihood Bias and the descriptors of lowest and highest perplexity of each axis, as in Table 3.

    The descriptors are of one template, and Likelihood Bias is of all templates of the run.
    """
    templates = likelihoods[columns.TEMPLATE].unique()
    template = descriptor_pairs.LOVE if descriptor_pairs.LOVE in templates else templates[0]
    sentences = descriptor_pairs.select_most_common_length(likelihoods[likelihoods[columns.TEMPLATE] == template])
    lines = []
    for axis, of_axis in descriptor_pairs.extreme_descriptors(sentences).groupby(columns.AXIS):
        ends = (Cell(_with_medians(of_axis[of_axis["end"] == end]), prose=True) for end in ("low", "high"))
        bias = find_score(scores, "likelihood_bias", axis=str(axis))
        value = math.nan if bias is None else 100 * bias.value
        cells = (number_cell(value, 0), *ends, Cell(f"{of_axis['compared'].iloc[0]}"))
        lines.append((value, Row(sanitize(str(axis).replace("_", " ")), cells)))
    lines.sort(key=lambda line: -line[0])
    names = ("axis", "Likelihood Bias, %", "most likely", "least likely", "compared")
    title = "Most and least likely descriptors by axis"
    table = Table(title, names, tuple(row for _, row in lines))
    return Section(title, [note(WORDS, "about_extremes", template=template)] if lines else [], [table], is_private=True)


def _with_medians(ends: pd.DataFrame) -> str:
    medians = zip(ends[columns.DESCRIPTOR], ends["median"], strict=True)
    return ", ".join(f"{sanitize(name, 60)}\u00a0({median:.3g})" for name, median in medians)
