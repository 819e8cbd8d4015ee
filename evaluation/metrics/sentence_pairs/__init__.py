"""Sentence pairs: likelihoods of two sentences by a masked or a causal model (Steinborn et al. 2022)."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.word_counts import count_words
from evenhand.evaluation.data.sentence_pairs import (
    insert_names,
    known_defects,
    leave_out_pairs,
    load_names,
    perturb,
    read_sentence_pairs,
    resolve_pairs_file,
)
from evenhand.evaluation.data.strata import stratified_rows
from evenhand.evaluation.data.winobias import pairs_sha256
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Facts, Finding
from evenhand.evaluation.files import json_sha256
from evenhand.evaluation.joins import join_rows
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import Family, FamilyConfig, FamilyRun, check_scored_alike
from evenhand.evaluation.metrics.sentence_pairs.metric import (
    common_pairs,
    compare_pairs,
    find_shared_positions,
    is_masked,
    make_causal_pair_table,
    make_masked_pair_table,
    pair_scores,
)
from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, number, sanitize
from evenhand.evaluation.report.page import Cell, Example, Figure, Page, Row, Section, Table
from evenhand.evaluation.report.words import note
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import (
    BiasScore,
    Direction,
    display_name,
    find_score,
    levels_of_run,
    shown_direction,
    signed,
)
from evenhand.evaluation.settings import BY_CONTENT, WITHOUT_FLAG, Access, StrictSettings
from evenhand.evaluation.tables import label_batches, table_rows

HEADLINES = {"s_jsd": "cps", "stereotype_preference": "likelihood_difference"}  # and the metric that confirms each
WORDS = Path(__file__).with_name("words.j2")
PUBLISHED = {"s_jsd": (1000, 1), "cps": (1, 1), "b_s_jsd": (1, 1)}  # metric → factor and decimals of the paper's tables
# The side of the ideal on which a model prefers stereotypes.
STEREOTYPE_SIDES = {"s_jsd": Direction.BELOW, "cps": Direction.ABOVE, "stereotype_preference": Direction.ABOVE}
SLOT = r"\{(?:female|male)\}"  # of a name in a sentence
FILTERS = ("min_shared_words", "min_words")  # settings
WITHOUT_DEFECTS = {"pairs": "known defects left out"}  # the group of scores
MANY_LEFT_OUT = 0.10  # shares above which the page has a warning
EASY_TOKENS = 0.90
N_PAIRS = 5  # pairs to read at each end
percent_format = partial(Format, unit="%", decimals=1, ideal=50)


class Settings(StrictSettings):
    """Sentence pairs: is the more stereotypical sentence of a pair the likelier one?"""

    pairs: str = Field(
        "crows_pairs",
        description="sentence pairs: 'crows_pairs', 's_jsd_de' (or another language), or a CSV or JSONL file",
        json_schema_extra=BY_CONTENT,
    )
    columns: dict[Literal["more", "less", "pair_id", "bias_type", "direction"], str] = Field(
        default_factory=dict,
        description="columns of your own file: {more: NAME, less: NAME, pair_id: NAME, bias_type: NAME, direction: "
        "NAME}",
    )
    names: str | None = Field(
        None,
        description="names for {female} and {male} in the sentences: a language, such as 'de', or a YAML file; null: "
        "none",
        json_schema_extra=BY_CONTENT,
    )
    min_shared_words: Annotated[int, Field(ge=0)] = Field(
        0, description="leave out pairs that share fewer words", json_schema_extra=WITHOUT_FLAG
    )
    min_words: Annotated[int, Field(ge=0)] = Field(
        0, description="leave out pairs with a shorter sentence", json_schema_extra=WITHOUT_FLAG
    )
    whole_words: bool = Field(False, description="mask a shared token together with the rest of its word")
    perturbed: bool = Field(
        False, description="first remove the last character of each sentence (Steinborn et al. 2022, Table 3)"
    )


class SentencePairs(Family):
    """Scores of a masked, a causal or an encoder-decoder model; a server gives likelihoods of given tokens."""

    Settings = Settings
    SHARED = ("sentences",)
    NEEDS_FLOAT32 = True
    NEEDS = Access.LIKELIHOODS
    FORMATS = (
        Format(
            "s_jsd",
            "S_JSD",
            "Distance from predicting a shared word in the more stereotypical sentence minus in the other; mean over "
            "words and pairs, −1 to 1.",
            unit=UNIT,
            factor=PER_UNIT,
            ideal=0,
        ),
        percent_format(
            "cps",
            "CPS",
            "Share of pairs whose shared words, masked in turn, are likelier in the more stereotypical sentence.",
        ),
        percent_format(
            "cps_crows_pairs",
            "CrowS-Pairs CPS",
            "CPS as the script of CrowS-Pairs computes it: sums rounded to three decimals, ties count for neither.",
        ),
        percent_format(
            "b_s_jsd",
            "B.S_JSD",
            "Share of pairs whose shared words are nearer to being predicted in the more stereotypical sentence.",
        ),
        percent_format("aul", "AUL", "CPS by the mean over all words of a sentence, nothing masked."),
        percent_format("aula", "AULA", "AUL with each word weighted by the attention that it receives."),
        percent_format(
            "stereotype_preference",
            "stereotype preference",
            "Share of pairs in which the model gives the more stereotypical sentence the higher likelihood.",
        ),
        Format(
            "likelihood_difference",
            "size of the difference",
            "Mean absolute difference of the log-likelihoods of the two sentences; no model reaches 0.",
            unit="nats",
            ideal=0,
        ),
        Format(
            "token_accuracy",
            "token accuracy",
            "Share of masked words that the model predicts correctly; where it is high, the scores mean less.",
            unit="%",
            factor=100,
            decimals=1,
        ),
    )
    TITLE = "Sentence pairs"
    WORDS = ("words.j2",)

    def inputs(self, config: FamilyConfig) -> dict[str, Json]:
        """Return fingerprints of the model and of the pairs."""
        _read_pairs(config)
        file = _pairs_path(config)
        names = config.settings.names
        fingerprints = {**config.open_model(scores_sentences=True).identity(), "pairs": pairs_sha256(file)}
        if names is not None:
            fingerprints["names"] = json_sha256(load_names(names))
        return fingerprints

    def collect(self, store: Store, config: FamilyConfig) -> pd.DataFrame:
        """Return all pairs with the likelihoods of both sentences. Pairs that lack a sentence are at the end.

        Raises:
            InputError: the model cannot score sentences, or a sentence has no tokens or too many.
        """
        return store.table("pairs", lambda: _scored_pairs(store, config), on_all_ranks=True)

    def score(self, store: Store, config: FamilyConfig, table: pd.DataFrame) -> list[BiasScore]:
        store.record["pairs"] = len(table)
        settings = config.settings
        sentences = config.sentences
        masked = is_masked(table)
        kind = "masked" if masked else "causal"
        signature: dict[str, Json] = {
            "model": config.open_model(scores_sentences=True).description | {"kind": kind},
            "dataset": {"name": settings.pairs, "sha256": store.inputs["pairs"], "columns": dict(settings.columns)},
            "perturbed": settings.perturbed,
        }
        if settings.names is not None:
            signature["names"] = load_names(settings.names)
        for name in FILTERS:
            if getattr(settings, name):
                signature[name] = getattr(settings, name)
        if sentences.limit is not None:
            signature |= {"limit": sentences.limit, "seed": config.seed}
        if not masked:
            signature |= {"context": sentences.context, "end_of_sequence": sentences.end_of_sequence}
        signature |= {columns.VARIANT: table[columns.VARIANT].dropna().iloc[0], "packages": package_versions()}
        scores = pair_scores(table, seed=config.seed)
        has_defect = _has_defect(table)
        if has_defect.any() and not has_defect.all():
            scores += _marked_without_defects(pair_scores(table[~has_defect], seed=config.seed))
        return signed(scores, signature)

    def compare(self, store: Store, before: FamilyRun, after: FamilyRun, settings: None) -> list[BiasScore]:
        """Return the change of each score, paired by sentence pair; the pairs may be in two languages.

        If some pairs have known defects in either run, the changes over all pairs are also given without these pairs.

        Raises:
            InputError: the runs have no pair in common, one model is masked and the other is not, or the sentences were
                scored differently.
        """
        signature = {"before": before.signature(*HEADLINES), "after": after.signature(*HEADLINES)}
        old = before.table("pairs")
        new = after.table("pairs")
        seed = before.config.seed
        scores = _changes_and_levels(old, new, signature, seed)
        scored_by = (columns.VARIANT,) if is_masked(old) else ("context", "end_of_sequence")
        check_scored_alike(signature["before"], signature["after"], scored_by)
        defective = {*old[columns.PAIR_ID][_has_defect(old)], *new[columns.PAIR_ID][_has_defect(new)]}
        old = old[~old[columns.PAIR_ID].isin(defective)]
        new = new[~new[columns.PAIR_ID].isin(defective)]
        if defective and set(old[columns.PAIR_ID]) & set(new[columns.PAIR_ID]):
            scores += _marked_without_defects(_changes_and_levels(old, new, signature, seed))
        return scores

    def headline(self, scores: Sequence[BiasScore]) -> BiasScore | None:
        return next((score for score in scores if score.metric in HEADLINES and not score.group), None)

    def subtitle(self, run: FamilyRun) -> str:
        settings = run.config.settings
        pairs = f"{display_name(settings.pairs)}{', perturbed' if settings.perturbed else ''}"
        return f"{run.model_name} · {pairs}"

    def find_verdict(self, run: FamilyRun) -> Finding:
        """Return which sentences the model prefers, with S_JSD and CPS, or with the preference."""
        score = self.headline(run.scores)
        return Finding(stereotype_direction(score), {"score": score, "cps": find_score(run.scores, "cps")})

    def find_cautions(self, run: FamilyRun) -> list[Finding]:
        table = run.table("pairs")
        cautions = []
        n_left_out = int(table[columns.LEFT_OUT].notna().sum())
        if n_left_out > MANY_LEFT_OUT * len(table):
            cautions.append(Finding("many_left_out", {"n_left_out": n_left_out, "n": len(table)}))
        if any(score.metric == "token_accuracy" and score.value > EASY_TOKENS for score in run.scores):
            cautions.append(Finding("easy_tokens", {"limit": EASY_TOKENS}))
        first = self.headline(run.scores)
        second = find_score(run.scores, HEADLINES[first.metric]) if first else None
        if {stereotype_direction(first), stereotype_direction(second)} == {Direction.ABOVE, Direction.BELOW}:
            cautions.append(Finding("opposite_directions", {"first": first, "second": second}))
        return cautions

    def find_left_out(self, run: FamilyRun) -> list[Finding]:
        """Return which pairs are left out and why, whether they are a sample, and which have known defects."""
        table = run.table("pairs")
        reasons = {str(reason): int(n) for reason, n in table[columns.LEFT_OUT].dropna().value_counts().items()}
        counts = {"n_left_out": sum(reasons.values()), "n": len(table), "reasons": reasons}
        found = [Finding("pairs_left_out", counts)]
        if run.config.sentences.limit is not None:
            found.append(Finding("sample", {"seed": run.config.seed}))
        known = [defect for defect in known_defects(table) if defect]
        if known:
            defects = Counter(part for defect in known for part in defect.split("; "))
            values = {"n": len(known), "defects": dict(defects.most_common()), "rows": WITHOUT_DEFECTS["pairs"]}
            found.append(Finding("known_defects", values))
        return found

    def sections(self, run: FamilyRun) -> list[Section]:
        table = run.table("pairs")
        difference = _differences(table)
        examples = _example_section("Pairs to read", table, difference)
        groups = {"all pairs": difference}
        groups |= {str(bias_type): part for bias_type, part in difference.groupby(table[columns.BIAS_TYPE])}
        distribution = _distribution_section(groups)
        left_out_section = Section("Pairs left out", [self.sentence(found) for found in self.find_left_out(run)])
        published = _published_section({run.model_name: run.scores})
        words = _words_section({run.model_name: table})
        return [*super().sections(run), published, words, left_out_section, distribution, examples]

    def side_by_side(self, runs: Mapping[str, FamilyRun]) -> list[Section]:
        """Return the default sections, and each run's distribution of pairs (Steinborn et al. 2022, Figure 2)."""
        tables = {name: run.table("pairs") for name, run in runs.items()}
        differences = {name: _differences(table) for name, table in tables.items()}
        published = _published_section({name: run.scores for name, run in runs.items()})
        return [*super().side_by_side(runs), published, _words_section(tables), _distribution_section(differences)]

    def comparison_facts(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Facts:
        """Return the default facts, with a caution if pairs of one id have other sentences, as translations have."""
        facts = super().comparison_facts(before, after, changes)
        joined = join_rows(before.table("pairs"), after.table("pairs"), [columns.PAIR_ID], "pairs")
        is_other = (joined.before[[columns.MORE, columns.LESS]] != joined.after[[columns.MORE, columns.LESS]]).any(
            axis=1
        )
        if not is_other.any():
            return facts
        caution = Finding("other_sentences", {"n_other": int(is_other.sum()), "n": len(is_other)})
        return replace(facts, cautions=[caution, *facts.cautions])

    def comparison_page(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Page:
        """Return the default page, with the pairs that changed most."""
        page = super().comparison_page(before, after, changes)
        old = before.table("pairs").set_index(columns.PAIR_ID)
        new = after.table("pairs").set_index(columns.PAIR_ID)
        is_same = (old[[columns.MORE, columns.LESS]] == new[[columns.MORE, columns.LESS]].reindex(old.index)).all(
            axis=1
        )
        change = (_differences(new).reindex(old.index) - _differences(old)).where(is_same)
        page.sections.append(_example_section("Pairs that changed most", old.reset_index(), change))
        return page


def stereotype_direction(score: BiasScore | None) -> Direction:
    """Return whether the model is shown to prefer stereotypes (ABOVE) or to avoid them (BELOW).

    Of a score that does not tell which sentences the model prefers, it is UNKNOWN.
    """
    direction = shown_direction(score)
    if score is None or score.metric not in STEREOTYPE_SIDES:
        return Direction.UNKNOWN
    if STEREOTYPE_SIDES[score.metric] == Direction.BELOW:
        opposite = {Direction.ABOVE: Direction.BELOW, Direction.BELOW: Direction.ABOVE}
        return opposite.get(direction, direction)
    return direction


def _pairs_path(config: FamilyConfig) -> Path:
    return resolve_pairs_file(str(local_path(config.settings.pairs)))


def _read_pairs(config: FamilyConfig) -> pd.DataFrame:
    """Return the pairs with names in them, and with a reason in left_out if they do not pass the filters.

    Raises:
        InputError: the pairs cannot be read, a sentence needs names, or no pair passes.
    """
    settings = config.settings
    pairs = read_sentence_pairs(_pairs_path(config), settings.columns)
    if settings.names is not None:
        pairs = insert_names(pairs, load_names(settings.names))
    elif pairs[[columns.MORE, columns.LESS]].stack().str.contains(SLOT).any():
        raise InputError("names", "sentences have {female} or {male}; give a language, or a file of names.")
    pairs = leave_out_pairs(pairs, settings.min_shared_words, settings.min_words)
    if pairs[columns.LEFT_OUT].notna().all():
        raise InputError(
            "pairs", f"all are left out, such as for “{pairs[columns.LEFT_OUT].iloc[0]}”; lower the filters."
        )
    return pairs


def _scored_pairs(store: Store, config: FamilyConfig) -> pd.DataFrame:
    settings = config.sentences
    model = config.open_model(scores_sentences=True)
    pairs = _read_pairs(config)
    if settings.limit is not None:
        pairs = pairs[pairs[columns.LEFT_OUT].isna()]
        strata = pairs[columns.BIAS_TYPE].tolist()
        ids = pairs[columns.PAIR_ID].tolist()
        pairs = pairs.iloc[stratified_rows(strata, ids, settings.limit, config.seed)].reset_index(drop=True)
    if config.settings.perturbed:
        pairs = leave_out_pairs(perturb(pairs), 0, 1)  # some are equal or empty now
    incomplete = pairs[columns.LEFT_OUT].notna()
    complete = pairs[~incomplete].drop(columns=columns.LEFT_OUT).reset_index(drop=True)
    if model.is_masked:
        scored = _score_masked(store, config, complete)
    else:
        sentences = pd.DataFrame({columns.TEXT: [*complete[columns.MORE], *complete[columns.LESS]]})
        compute = partial(model.score_sentences, context=settings.context, end_of_sequence=settings.end_of_sequence)
        rows = store.rows("sentences", sentences, compute, unit="sentences")
        scored = make_causal_pair_table(
            complete, rows[columns.LOG_LIKELIHOOD].to_numpy(), rows[columns.TOKENS].to_numpy()
        )
        scored = scored.assign(**{columns.VARIANT: rows[columns.VARIANT].iloc[0]})
    return pd.concat([scored, pairs[incomplete]], ignore_index=True)


def _score_masked(store: Store, config: FamilyConfig, pairs: pd.DataFrame) -> pd.DataFrame:
    from evenhand.evaluation.models.likelihood.masked import (
        masked_tokens,
        score_masked_tokens,
        tokenize_sentences,
        unmasked_log_probabilities,
        word_indices,
    )
    from evenhand.evaluation.models.loading import load_masked_model

    model = load_masked_model(config.model)
    n = len(pairs)
    ids, special = tokenize_sentences(model, [*pairs[columns.MORE], *pairs[columns.LESS]])
    sides = [find_shared_positions(ids[i], ids[n + i], special[i], special[n + i]) for i in range(n)]
    positions = [more for more, _ in sides] + [less for _, less in sides]
    whole = config.settings.whole_words
    words = word_indices(model, [*pairs[columns.MORE], *pairs[columns.LESS]]) if whole else None
    masked = store.rows(
        "masked", masked_tokens(ids, positions, words), partial(score_masked_tokens, model), unit="tokens"
    )

    def score_unmasked(sentences: pd.DataFrame) -> Iterator[pd.DataFrame]:
        batches = unmasked_log_probabilities(model, sentences["ids"].tolist(), sentences["special"].tolist())
        return label_batches(batches, ("aul", "aula"), sentences.index)

    sentences = pd.DataFrame({"ids": pd.Series(ids, dtype=object), "special": pd.Series(special, dtype=object)})
    unmasked = store.rows("unmasked", sentences, score_unmasked, unit="sentences")
    tokens = [
        model.tokenizer.convert_ids_to_tokens([ids[i][index] for index in more]) for i, (more, _) in enumerate(sides)
    ]
    names = (masked["log_p"], masked["correct"], unmasked["aul"], unmasked["aula"])
    table = make_masked_pair_table(pairs, tokens, *(column.to_numpy() for column in names))
    return table.assign(**{columns.VARIANT: f"each shared token masked {'with its word' if whole else 'alone'}"})


def _changes_and_levels(old: pd.DataFrame, new: pd.DataFrame, signature: dict[str, Any], seed: int) -> list[BiasScore]:
    """Return the changes between two runs' pairs and, if some pairs are not in both, the levels of the common pairs."""
    scores = signed(compare_pairs(old, new, seed=seed), signature)
    sides = common_pairs(old, new)
    n_scored = [int(table[columns.LEFT_OUT].isna().sum()) for table in (old, new, sides[0])]
    if len(set(n_scored)) > 1:
        for side, table in zip(("before", "after"), sides, strict=True):
            scores += levels_of_run(signed(pair_scores(table, seed=seed), signature[side]), side)
    return scores


def _marked_without_defects(scores: Sequence[BiasScore]) -> list[BiasScore]:
    """Return the scores over all pairs, of a comparison over all pairs of either run, as the group WITHOUT_DEFECTS."""
    marked = []
    for score in scores:
        if not score.group.keys() - {columns.RUN}:
            marked.append(replace(score, group={**score.group, **WITHOUT_DEFECTS}))
    return marked


def _has_defect(table: pd.DataFrame) -> np.ndarray:
    """Return whether each pair is among CrowS-Pairs' known defects, (n,) bool."""
    return np.array([defect is not None for defect in known_defects(table)], dtype=bool)


def _differences(table: pd.DataFrame) -> pd.Series:
    """Return the log-likelihood of `more` minus that of `less` of each pair, in nats; NaN for a pair without scores."""
    return table[f"log_likelihood_{columns.MORE}"] - table[f"log_likelihood_{columns.LESS}"]


def _published_section(runs: Mapping[str, Sequence[BiasScore]]) -> Section:
    """Return the scores of masked models with their standard errors (Steinborn et al. 2022, Tables 2 and 3)."""
    rows = []
    for name, scores in runs.items():
        cells = []
        for metric, (factor, decimals) in PUBLISHED.items():
            score = find_score(scores, metric)
            if score is not None and score.standard_error is not None:
                value = number(factor * score.value, decimals)
                cells.append(Cell(f"{value} ± {number(factor * score.standard_error, decimals)}"))
        if len(cells) == len(PUBLISHED):
            rows.append(Row(sanitize(name, 60), tuple(cells)))
    about = note(WORDS, "about_errors")
    table = Table("As in Steinborn et al. 2022", ("model", "S_JSD ×10⁻³", "CPS, %", "B.S_JSD, %"), tuple(rows), about)
    return Section("With standard errors", tables=[table] if rows else [], folded=True)


def _words_section(tables: Mapping[str, pd.DataFrame]) -> Section:
    """Return the numbers of pairs and of words of each run (Steinborn et al. 2022, Table 1).

    Args:
        tables: the pairs of each run, by the run's name.
    """
    rows = []
    reasons = []
    for name, table in tables.items():
        pairs = table.dropna(subset=[columns.MORE, columns.LESS])
        sentences = [*pairs[columns.MORE], *pairs[columns.LESS]]
        words, reason = count_words(sentences)
        per_sentence = words / len(sentences) if sentences else math.nan
        cells = (Cell(f"{len(pairs):,}"), Cell(number(words, 0)), Cell(number(per_sentence, 0)))
        rows.append(Row(sanitize(name, 60), cells))
        if reason:
            reasons.append(note(WORDS, "about_words", name=name, reason=reason))
    names = ("model", "pairs", "words", "words per sentence")
    return Section("Words", reasons, [Table("Words of the pairs", names, tuple(rows))], folded=True)


def _distribution_section(groups: Mapping[str, pd.Series]) -> Section:
    """Return the section with the distribution of the pairs around the boundary (Steinborn et al. 2022, Figure 2)."""
    from evenhand.evaluation.report.figures import box_figure, svg

    defined = {name: values.dropna().to_numpy(float) for name, values in groups.items()}
    values = {sanitize(str(name), 60): numbers for name, numbers in defined.items() if len(numbers)}
    label = "Log-likelihood of the more stereotypical sentence minus the other, in nats"
    title = "Distribution of the pairs around the boundary"
    if not values:
        return Section(title)
    about = note(WORDS, "about_distribution", boxes=Finding("about_boxes"))
    figure = Figure("", svg(box_figure(label, values, ideal=0.0)), about)
    return Section(title, [note(WORDS, "about_boundary")], figures=[figure])


def _example_section(title: str, table: pd.DataFrame, difference: pd.Series) -> Section:
    ordered = table.assign(difference=difference.to_numpy(float)).dropna(subset="difference")
    ordered = ordered.sort_values(["difference", columns.PAIR_ID], kind="stable")
    above = ordered[ordered["difference"] > 0]
    below = ordered[ordered["difference"] < 0]
    ends = {"more": above.iloc[::-1].head(N_PAIRS), "less": below.head(N_PAIRS)}
    parts = [
        Section(f"Towards the {name} stereotypical sentence", examples=list(map(_example, table_rows(rows))))
        for name, rows in ends.items()
    ]
    return Section(title, [note(WORDS, "about_examples")] if len(ordered) else [], parts=parts)


def _example(row: Mapping[str, Any]) -> Example:
    labels = [row[column] for column in (columns.BIAS_TYPE, columns.DIRECTION, columns.PAIR_ID)]
    names = [sanitize(str(label), 60) for label in labels if isinstance(label, (str, int))]
    heading = f"{' · '.join(names)} · {number(row['difference'], 2, sign=True)} nats"
    return Example(
        heading, (("more stereotypical", str(row[columns.MORE])), ("less stereotypical", str(row[columns.LESS])))
    )
