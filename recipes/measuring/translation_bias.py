"""Translation gaps: is a translation closer to masculine references than to feminine ones? (papers 003 and 004, §4)

The translations are a model's, or from files: a folder with SOURCE-TARGET.txt for each pair of languages, a line for
each source sentence. Where files are missing, what is to be translated is written into the run's folder `sources`
under the same names, and the run begins once they are there.
"""

from collections.abc import Iterator, Mapping
from datetime import date
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from evaluation.datasets.gendered_translations import ENGLISH_LANGUAGE, LANG, comparable_sets, source_sentences
from evaluation.errors import InputError
from evaluation.files import sha256_of, write_text
from evaluation.metrics.translation_bias import (
    added_toxicity,
    align,
    gender_accuracy,
    sentence_scores,
    translation_scores,
)
from evaluation.models import DialogueModel, load_dialogue_model, model_revision
from evaluation.progress import progress
from evaluation.report import Page, translation_page
from evaluation.results import BiasScore, read_scores
from evaluation.styles import label_index, label_probability, load_style_classifier
from evaluation.translation import read_translations, translate
from recipes.batches import gather
from recipes.config import TESTBED, MeasureConfig
from recipes.references import load_references, references_sha256
from recipes.runs import Run, packages
from recipes.tables import SCORES, read_table, write_table

TRANSLATIONS, SENTENCES, LANGUAGES = "translations.parquet", "sentence_scores.parquet", "languages.parquet"
SOURCES = "sources"
TRANSLATION, PAIR = "translation", "pair"


def inputs(config: MeasureConfig) -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: there are no references, and neither a model nor translations; a file of translations is missing
            or has a wrong number of lines.
    """
    found = {"references": references_sha256(config)}
    if config.translations is None:
        if config.model == TESTBED:
            raise InputError(
                "model: the testbed has no translation model; give one (--model facebook/nllb-200-distilled-600M), or "
                "a folder of --translations."
            )
        return found | {"model": model_revision(config.model, config.revision)}
    return found | {"translations": _file_hashes(config)}


def _file_hashes(config: MeasureConfig) -> dict[str, str]:
    """Return a SHA-256 of each file of translations; where some are missing, write what is to be translated."""
    sources = _sources(config, comparable_sets(load_references(config), config.fewest_masculine).table)
    files = {pair: config.translations / f"{pair}.txt" for pair in sources}
    if missing := [path for path in files.values() if not path.is_file()]:
        folder = config.output_dir / SOURCES
        for path in missing:
            lines = [" ".join(text.splitlines()) for text in sources[path.stem]["text"]]
            write_text(folder / path.name, "".join(f"{line}\n" for line in lines))
        raise InputError(
            f"translations: {config.translations} lacks {len(missing)} of {len(files)} files ({missing[0].name}"
            f"{', …' if len(missing) > 1 else ''}); translate those in {folder}, line by line, and put the results "
            "there under the same names."
        )
    for pair, path in files.items():
        read_translations(path, len(sources[pair]))  # a wrong number of lines shows before the run begins
    return {path.name: sha256_of(path) for path in files.values()}


def measure(run: Run, config: MeasureConfig, inputs: Mapping[str, Any]) -> list[BiasScore]:
    """Write sources, translations and the scores of single sentences into the run's folder; return the scores."""
    folder = run.folder
    sets = comparable_sets(load_references(config), config.fewest_masculine)
    write_table(folder / LANGUAGES, sets.languages)
    if not (folder / TRANSLATIONS).exists():
        with run.step("translations"):
            write_table(folder / TRANSLATIONS, _translated(run, config, sets.table))
    translations = read_table(folder / TRANSLATIONS)
    rows = pd.concat(
        [
            align(part.drop(columns=PAIR), sets.table, source=pair.split("-")[0], target=pair.split("-")[1])
            for pair, part in translations.groupby(PAIR, sort=False)
        ],
        ignore_index=True,
    )
    signature = {
        "model": {"name": config.model, "revision": inputs.get("model"), "dtype": config.dtype}
        if config.translations is None
        else {"translations": inputs["translations"]},
        "references": {"name": str(config.references), "sha256": inputs["references"], "split": config.reference_split},
        "fewest_masculine": config.fewest_masculine,
        "packages": packages(),
    }
    with run.step("scores"):
        scores = translation_scores(rows, tokenize=config.tokenize, seed=config.seed, signature=signature)
        scores += gender_accuracy(rows, signature)
        write_table(folder / SENTENCES, sentence_scores(rows, tokenize=config.tokenize))
    if config.offensiveness_classifier is not None:
        with run.step("toxicity"):
            scores.append(_toxicity(config, translations, signature))
    run.facts |= {"translation_signature": signature, "translations": len(translations)}
    return scores


def page(config: MeasureConfig) -> Page:
    """Return the report of a run whose scores are on disk."""
    folder = config.output_dir
    return translation_page(
        read_scores(folder / SCORES),
        read_table(folder / SENTENCES),
        model=str(config.translations) if config.translations else config.model,
        dataset=str(config.references),
        date=date.today().isoformat(),
        left_out=read_table(folder / LANGUAGES),
    )


def _pairs(config: MeasureConfig, languages: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the (source, target) codes of the directions that are asked for."""
    english = ENGLISH_LANGUAGE.code
    if "en-xx" in config.directions:
        yield from ((english, lang) for lang in languages)
    if "xx-en" in config.directions:
        yield from ((lang, english) for lang in languages)
    if "xx-xx" in config.directions:
        yield from permutations(languages, 2)


def _sources(config: MeasureConfig, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the sentences to translate of every pair of languages, by "SOURCE-TARGET"."""
    return {
        f"{source}-{target}": source_sentences(table, source=source, target=target)
        for source, target in _pairs(config, sorted(set(table[LANG])))
    }


def _translated(run: Run, config: MeasureConfig, table: pd.DataFrame) -> pd.DataFrame:
    """Return the sentences of every pair of languages with their translations."""
    parts = []
    if config.translations is None:
        model = load_dialogue_model(
            config.model,
            revision=config.revision,
            kind="encoder_decoder",
            dtype=config.dtype,
            trust_remote_code=config.trust_remote_code,
        )
    for pair, sentences in _sources(config, table).items():
        if config.translations is None:
            found = _by_model(run, model, pair, sentences["text"].tolist(), config.batch_size)
        else:
            found = read_translations(config.translations / f"{pair}.txt", len(sentences))
        parts.append(sentences.assign(**{TRANSLATION: found, PAIR: pair}))
    return pd.concat(parts, ignore_index=True)


def _by_model(run: Run, model: DialogueModel, pair: str, texts: list[str], batch_size: int) -> list[str]:
    source, target = pair.split("-")
    batches = partial(translate, model, texts, source=source, target=target, batch_size=min(batch_size, 32))
    folder = run.folder / "translations" / pair
    rows = gather(folder, [TRANSLATION], len(texts), lambda first: batches(first=first), pair, "sentences")
    return rows[TRANSLATION].tolist()


def _toxicity(config: MeasureConfig, translations: pd.DataFrame, signature: Mapping[str, Any]) -> BiasScore:
    """Return added toxicity by the offensiveness classifier; it has to know the languages of both sides."""
    classifier = load_style_classifier(config.offensiveness_classifier, field="offensiveness_classifier")
    label = label_index(classifier, config.offensive_label, "offensive_label")
    texts = [*translations["text"], *translations[TRANSLATION]]
    with progress(len(texts), "toxicity", "texts") as advance:
        found = label_probability(classifier, label, texts, on_progress=advance)
    source, translation = np.split(np.asarray(found), 2)
    facts = {"name": config.offensiveness_classifier, "revision": classifier.revision, "label": config.offensive_label}
    return added_toxicity(source, translation, {**signature, "offensiveness_classifier": facts})
