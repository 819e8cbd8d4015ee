"""Translation bias: translations against gendered references (Costa-jussà et al. 2023, §4).

Translations come from a model or from a folder. The folder has a file SOURCE-TARGET.txt for each pair of languages,
with one line per source sentence.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.gendered_translations import (
    ENGLISH_LANGUAGE,
    GENDERS,
    LANG,
    comparable_references,
    count_references,
    language_name,
    load_references,
    read_translations,
    references_sha256,
)
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import Family, FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.translation_bias import metric
from evenhand.evaluation.metrics.translation_bias.metric import GAP, TRANSLATION
from evenhand.evaluation.metrics.translation_bias.shares import added_toxicity, gender_accuracy
from evenhand.evaluation.model_settings import OffensiveClassifierSettings
from evenhand.evaluation.models.classifier_kinds import classifier_labels, classifier_revision
from evenhand.evaluation.models.revisions import find_label, model_revision
from evenhand.evaluation.report.formats import Format, find_format
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Cell, Figure, Row, Section, Table
from evenhand.evaluation.report.score_sections import (
    ROWS_AT_EACH_END,
    count_cells,
    number_cell,
    score_cell,
)
from evenhand.evaluation.report.words import note
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore, display_name, find_score, shown_direction, signed
from evenhand.evaluation.settings import BY_CONTENT, StrictSettings, as_settings
from evenhand.evaluation.tables import label_batches, table_rows

PAIR = "pair"
MAX_BATCH_SIZE = 32  # a beam search needs five times the memory
HEADINGS = {"en-xx": "From English", "xx-en": "Into English", "xx-xx": "Between other languages"}
PREFERENCE = "gap, % of the mean"
WORDS = Path(__file__).with_name("words.j2")
gap_format = partial(Format, ideal=0, signed=True)
accuracy_format = partial(Format, unit="%", factor=100, decimals=1, ideal=1)


class Settings(StrictSettings):
    """Translation bias: is a translation closer to masculine references than to feminine ones?"""

    directions: Annotated[list[Literal["en-xx", "xx-en", "xx-xx"]], Field(min_length=1)] = Field(
        default_factory=lambda: ["en-xx"],
        description="en-xx: from English; xx-en: into English; xx-xx: between the other languages",
    )
    translations: Path | None = Field(
        None,
        description="folder of translations, SOURCE-TARGET.txt, one line per source sentence; null: the model "
        "translates",
        json_schema_extra=BY_CONTENT,
    )
    tokenize: str = Field(
        "flores101", description="tokenizer of sacrebleu; 'flores101' is the paper's, '13a' needs no download"
    )


class TranslationBias(Family):
    """Scores of a translation model, or of translations in files."""

    Settings = Settings
    SHARED = ("references", "offensive_classifier")
    FORMATS = (
        Format("spbleu", "spBLEU", "Overlap with references in n-grams of sentence pieces, 0 to 100."),
        Format("bleu", "BLEU", "Overlap with the references in n-grams of words, 0 to 100."),
        Format("chrf", "chrF++", "Overlap in n-grams of characters and of words, 0 to 100."),
        gap_format(GAP, "gap", "Score against masculine references minus score against feminine references."),
        gap_format("chrf_gap", "gap in chrF++", "chrF++ against masculine references minus against feminine ones."),
        accuracy_format(
            "gender_accuracy",
            "right gender",
            "Share of translations with the gender of their source, of those that show exactly one gender.",
        ),
        accuracy_format(
            "gender_accuracy_mt_geneval",
            "MT-GenEval’s accuracy",
            "Share of translations without a word that only the other gender’s references have.",
        ),
        accuracy_format(
            "gender_accuracy_spans",
            "accuracy by annotated spans",
            "Share of translations without a word that is only in the marked spans of the other gender’s references.",
        ),
        accuracy_format(
            "masculine_rendering",
            "overgeneralisation",
            "Share of masculine translations among those that show exactly one gender, where the source shows none.",
            ideal=0.5,
        ),
        Format(
            "added_toxicity",
            "added toxicity",
            "Share of translations that a classifier finds toxic although their source is not.",
            unit="%",
            factor=100,
            ideal=0,
        ),
    )
    TITLE = "Translations and gender"
    WORDS = ("words.j2",)

    def loads_model(self, config: FamilyConfig) -> bool:
        return config.settings.translations is None

    def inputs(self, config: FamilyConfig) -> dict[str, Json]:
        """Return fingerprints of the references, of the model or the translations, and of the toxicity classifier.

        If files of translations are missing, the sentences to translate are written to the subfolder `sources` of the
        folder of translations, under the same file names.
        """
        metric.check_installed()
        settings = config.settings
        fingerprints: dict[str, Json] = {"references": references_sha256(config.references.name)}
        if settings.translations is None:
            fingerprints["model"] = model_revision(config.model.name, config.model.revision, config.model.base)
        minimum = config.references.min_masculine_references
        references = comparable_references(load_references(config.references), minimum)
        tables = metric.make_source_tables(references, settings.directions)
        if settings.translations is not None:
            fingerprints["model"] = config.model.name
            fingerprints["translations"] = metric.hash_translations(settings.translations.expanduser(), tables)
        metric.bleu(settings.tokenize)
        classifier = config.offensive_classifier
        if classifier.name is not None:
            fingerprints["toxicity"] = classifier_revision(classifier)
            labels = classifier_labels(classifier)
            find_label(labels, classifier.label, classifier.name, "offensive_classifier.label")
        return fingerprints

    def collect(self, store: Store, config: FamilyConfig) -> tuple[pd.DataFrame, pd.DataFrame]:
        minimum = config.references.min_masculine_references
        all_references = load_references(config.references)
        references = comparable_references(all_references, minimum)
        store.ensure("languages", lambda: count_references(all_references, minimum))
        compute = partial(_translations, store, config, references)
        return references, store.table("translations", compute, on_all_ranks=True)

    def score(
        self, store: Store, config: FamilyConfig, collected: tuple[pd.DataFrame, pd.DataFrame]
    ) -> list[BiasScore]:
        settings = config.settings
        references, translations = collected
        parts = []
        for pair, part in translations.groupby(PAIR, sort=False):
            source, target = str(pair).split("-")
            parts.append(metric.align(part.drop(columns=PAIR), references, source=source, target=target))
        rows = pd.concat(parts, ignore_index=True)
        if settings.translations is None:
            translator = {"model": config.open_model().description}
        else:
            translator = {"translations": {"name": str(settings.translations), "files": store.inputs["translations"]}}
        signature = {
            **translator,
            **config.references.signature(str(store.inputs["references"])),
            "directions": settings.directions,
            "packages": package_versions(),
        }
        scores = metric.translation_scores(rows, tokenize=settings.tokenize, seed=config.seed, signature=signature)
        scores += signed(gender_accuracy(rows), signature)
        store.ensure("sentence_scores", lambda: metric.sentence_scores(rows, tokenize=settings.tokenize))
        if config.offensive_classifier.name is not None:
            scores += signed([_toxicity(store, config.offensive_classifier, translations)], signature)
        store.record["translations"] = len(translations)
        return scores

    def headline(self, scores: list[BiasScore]) -> BiasScore | None:
        means = (find_score(scores, GAP, direction=direction) for direction in HEADINGS)
        return next(filter(None, means), None)

    def subtitle(self, run: FamilyRun) -> str:
        config = run.config
        system = config.settings.translations or config.model.name
        return f"{display_name(str(system))} · {display_name(str(config.references.name))}"

    def find_verdict(self, run: FamilyRun) -> Finding:
        """Return which references the translations are nearer to, and the mean gap over languages."""
        gap = self.headline(run.scores)
        direction = "en-xx" if gap is None else gap.group["direction"]
        return Finding(shown_direction(gap), {"gap": gap, "direction": direction})

    def find_left_out(self, run: FamilyRun) -> list[Finding]:
        """Return how many languages are in the scores, and how many of their sentences are not."""
        languages = run.table("languages")
        is_used = languages["left_out"].isna()
        n_missing = int(languages["missing"][is_used].sum())
        counts = {"n_used": int(is_used.sum()), "n_languages": len(languages), "n_missing": n_missing}
        return [Finding("languages", counts)]

    def label(self, score: BiasScore) -> str:
        group = score.group
        side = next(group[name] for name in ("lang", "direction", "source", "target") if name in group)
        first = HEADINGS.get(side) or " → ".join(map(language_name, side.split("-", 1)))
        parts = [first, group.get("gender"), "references of both" if metric.REFERENCES in group else ""]
        parts.append("into English" if "lang" in group and group["direction"] == "xx-en" else "")
        return ", ".join(filter(None, parts))

    def sections(self, run: FamilyRun) -> list[Section]:
        languages = run.table("languages")
        cuts = _cut_sections(run.table("sentence_scores"), self.headline(run.scores))
        further = [_map_section(run.scores), *cuts, _language_section(languages, run.scores)]
        left_out = [self.sentence(found) for found in self.find_left_out(run)]
        return [*super().sections(run), *further, _left_out_section(languages, left_out)]


def _language_section(languages: pd.DataFrame, scores: Sequence[BiasScore]) -> Section:
    """Return each language's gaps as source and target, and its references (Costa-jussà et al. 2023, Table 2)."""
    codes = sorted(languages[LANG])
    gaps = {side: _gaps_by(scores, side) for side in ("source", "target")}
    sides = [side for side in gaps if gaps[side]]
    counts = {row[LANG]: row for row in table_rows(languages)}
    rows = []
    for code in [ENGLISH_LANGUAGE.code, *codes] if sides else codes:
        cells = [score_cell(gaps[side].get(code), missing="") for side in sides]
        if code in counts:
            cells += count_cells(*(counts[code][name] for name in ("sentences", *GENDERS)))
        else:  # English sentences are the sources of the references
            cells += [Cell("")] * (1 + len(GENDERS))
        rows.append(Row(language_name(code), tuple(cells)))
    caption = "Sentences with a reference of each gender"
    about = ""
    if sides:
        caption = f"Gap by source and target, and {caption.lower()}"
        about = note(WORDS, "about_sides")
    columns = ("language", *(f"gap as {side}" for side in sides), "sentences", *GENDERS)
    return Section("References by gender", tables=[Table(caption, columns, tuple(rows), about)])


def _gaps_by(scores: Sequence[BiasScore], key: str) -> dict[str, BiasScore]:
    """Return the mean gaps over all targets, or all sources, by language."""
    return {score.group[key]: score for score in scores if score.metric == GAP and key in score.group}


def _map_section(scores: Sequence[BiasScore]) -> Section:
    """Return the section with the map of the gaps by source and target; without pairs of languages, it is empty."""
    from evenhand.evaluation.metrics.translation_bias.pair_map import pair_gaps, pair_map
    from evenhand.evaluation.report.figures import svg

    gaps = pair_gaps(scores)
    has_map = min(gaps.shape) > 1 and gaps.notna().any(axis=None)
    figures = [Figure("", svg(pair_map(gaps)), note(WORDS, "about_map"))] if has_map else []
    return Section("Map of the gaps", figures=figures)


def _left_out_section(languages: pd.DataFrame, sentences: list[str]) -> Section:
    """Return the section of the languages that are left out, by reason."""
    rows = []
    for reason, group in languages.groupby("left_out", sort=True):
        names = ", ".join(map(language_name, group["lang"]))
        rows.append(Row(sanitize(str(reason), 200), (Cell(names, prose=True),)))
    return Section("Languages left out", sentences, [Table("", ("reason", "languages"), tuple(rows))])


def _translations(store: Store, config: FamilyConfig, references: pd.DataFrame) -> pd.DataFrame:
    """Return the sentences to translate, with `pair` ("eng_Latn-spa_Latn") and `translation`, a row per sentence."""
    sources = metric.make_source_tables(references, config.settings.directions)
    if config.settings.translations is None:
        translations = _translate(store, config, sources)
    else:
        folder = config.settings.translations.expanduser()
        translations = {
            pair: read_translations(folder / f"{pair}.txt", len(sentences)) for pair, sentences in sources.items()
        }
    parts = [sentences.assign(**{TRANSLATION: translations[pair], PAIR: pair}) for pair, sentences in sources.items()]
    return pd.concat(parts, ignore_index=True)


def _translate(store: Store, config: FamilyConfig, sources: dict[str, pd.DataFrame]) -> dict[str, list[str]]:
    """Return the model's translations of the sentences of each pair of languages."""
    from evenhand.evaluation.models.loading import load_dialogue_model
    from evenhand.evaluation.models.translation import translate

    model = load_dialogue_model(config.model)
    batch_size = min(config.decoding.batch_size, MAX_BATCH_SIZE)

    def translate_pair(pair: str, sentences: pd.DataFrame) -> list[str]:
        source, target = pair.split("-")

        def compute(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
            batches = translate(model, rows["text"].tolist(), source=source, target=target, batch_size=batch_size)
            return label_batches(batches, (TRANSLATION,), rows.index)

        rows = store.rows(f"translations/{pair}", sentences[["text"]], compute, unit="sentences")
        return rows[TRANSLATION].tolist()

    return {pair: translate_pair(pair, sentences) for pair, sentences in sources.items()}


def _toxicity(store: Store, settings: OffensiveClassifierSettings, translations: pd.DataFrame) -> BiasScore:
    from evenhand.evaluation.models.classifier_kinds import load_style_classifier
    from evenhand.evaluation.models.styles import classify_rows

    classifier = load_style_classifier(settings, field="offensive_classifier")
    label = find_label(classifier.labels, settings.label, classifier.name, "offensive_classifier.label")
    texts = [*translations["text"], *translations[TRANSLATION]]
    source, translation = np.split(classify_rows(store, "toxicity", classifier, texts)[0][:, label], 2)
    facts = as_settings(settings) | {"revision": classifier.revision}
    return replace(added_toxicity(source, translation), signature={"offensiveness_classifier": facts})


def _cut_sections(sentences: pd.DataFrame, gap: BiasScore | None) -> Iterator[Section]:
    """Yield mean scores by axis, descriptor and template, lowest first (Costa-jussà et al. 2023, Tables 3, 5, 6)."""
    bleu = "spbleu" if "spbleu" in sentences else "bleu"
    rows = sentences[sentences["direction"] == (gap.group["direction"] if gap else "en-xx")]
    numbers = ("masculine", "feminine", "both", "mean")
    for by in (columns.AXIS, columns.DESCRIPTOR, columns.TEMPLATE):
        cuts = metric.cut_table(rows[rows[by] != ""], by, bleu)
        n = ROWS_AT_EACH_END
        caption = f"{find_format(bleu).label} of single sentences by {by}"
        if len(cuts) > 2 * n:
            caption += f", {n} at each end of {len(cuts)}"
            cuts = pd.concat([cuts.head(n), cuts.tail(n)])
        lines = []
        for row in table_rows(cuts):
            cells = [*(number_cell(row[name]) for name in numbers), number_cell(row["gap"], sign=True)]
            cells.append(number_cell(100 * row["preference"], sign=True))
            lines.append(Row(sanitize(str(row[by]), 60), (*cells, *count_cells(row["count"]))))
        about = ""
        if by == columns.AXIS and len(cuts):
            about = note(WORDS, "about_outlier", descriptor=metric.OUTLIER)
        names = (by, *numbers, "gap", PREFERENCE, "scores")
        yield Section(f"By {by}", tables=[Table(caption, names, tuple(lines), about)])
