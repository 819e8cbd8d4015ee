"""Measurement of translation bias: scores of translations against gendered references (Costa-jussà et al. 2023, §4).

Translations come from a model or from a folder. The folder has a file SOURCE-TARGET.txt for each pair of languages,
with one line per source sentence.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.data.gendered_translations import read_translations
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.translation_bias.metric import TRANSLATION, align, sentence_scores, translation_scores
from evenhand.evaluation.metrics.translation_bias.shares import added_toxicity, gender_accuracy
from evenhand.evaluation.metrics.translation_bias.sources import load_comparable_references, make_source_tables
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.revisions import find_label
from evenhand.evaluation.models.styles import label_probabilities, load_style_classifier
from evenhand.evaluation.models.translation import translate
from evenhand.evaluation.progress import progress
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import ClassifierSettings, as_settings, model_signature
from evenhand.evaluation.store import Store

PAIR = "pair"
MAX_BATCH_SIZE = 32  # a beam search needs five times the memory


def measure(run: Store, config: MeasureConfig) -> list[BiasScore]:
    """Write the languages, translations and sentence scores to the run's folder, and return the scores."""
    settings = config.settings
    sets = load_comparable_references(
        settings.references, settings.split, settings.languages, settings.min_masculine_references
    )
    run.ensure("languages", lambda: sets.languages)
    translations = run.table("translations", lambda: _translations(run, config, sets.table), on_all_ranks=True)
    return processes.on_rank_zero(lambda: _scores(run, config, sets.table, translations))


def _scores(run: Store, config: MeasureConfig, references: pd.DataFrame, translations: pd.DataFrame) -> list[BiasScore]:
    settings = config.settings
    rows = pd.concat(
        [
            align(part.drop(columns=PAIR), references, source=pair.split("-")[0], target=pair.split("-")[1])
            for pair, part in translations.groupby(PAIR, sort=False)
        ],
        ignore_index=True,
    )
    signature = _signature(run, config)
    with run.step("scores"):
        scores = translation_scores(rows, tokenize=settings.tokenize, seed=config.seed, signature=signature)
        scores += gender_accuracy(rows, signature)
    run.ensure("sentence_scores", lambda: sentence_scores(rows, tokenize=settings.tokenize))
    if settings.toxicity.name is not None:
        with run.step("toxicity"):
            scores.append(_toxicity(settings.toxicity, translations, signature))
    run.facts["translations"] = len(translations)
    return scores


def _signature(run: Store, config: MeasureConfig) -> dict[str, Any]:
    settings = config.settings
    if settings.translations is None:
        source = {"model": model_signature(config.model, run.inputs)}
    else:
        source = {"translations": {"name": str(settings.translations), "files": run.inputs["translations"]}}
    return {
        **source,
        "references": {"name": str(settings.references), "sha256": run.inputs["references"], "split": settings.split},
        "languages": settings.languages,
        "min_masculine_references": settings.min_masculine_references,
        "directions": settings.directions,
        "packages": package_versions(),
    }


def _translations(run: Store, config: MeasureConfig, table: pd.DataFrame) -> pd.DataFrame:
    folder, parts = config.settings.translations, []
    if folder is None:
        model = load_dialogue_model(config.model, kind="encoder_decoder")
    for pair, sentences in make_source_tables(table, config.settings.directions).items():
        if folder is None:
            texts = _translate(run, model, pair, sentences["text"].tolist(), config.decoding.batch_size)
        else:
            texts = read_translations(folder.expanduser() / f"{pair}.txt", len(sentences))
        parts.append(sentences.assign(**{TRANSLATION: texts, PAIR: pair}))
    return pd.concat(parts, ignore_index=True)


def _translate(run: Store, model: DialogueModel, pair: str, texts: list[str], batch_size: int) -> list[str]:
    source, target = pair.split("-")
    size = min(batch_size, MAX_BATCH_SIZE)

    compute = partial(translate, model, source=source, target=target, batch_size=size)
    return run.rows(f"translations/{pair}", [TRANSLATION], compute, texts, unit="sentences")[TRANSLATION].tolist()


def _toxicity(settings: ClassifierSettings, translations: pd.DataFrame, signature: Mapping[str, Any]) -> BiasScore:
    """Return the score of added toxicity. The classifier must support the languages of sources and translations."""
    classifier = load_style_classifier(settings, field="toxicity")
    label = find_label(classifier.labels, settings.label, classifier.name, "toxicity.label")
    texts = [*translations["text"], *translations[TRANSLATION]]
    with progress(len(texts), "toxicity", "texts") as advance:
        probabilities = label_probabilities(classifier, texts, on_progress=advance)[:, label]
    source, translation = np.split(np.asarray(probabilities), 2)
    facts = as_settings(settings) | {"revision": classifier.revision}
    return added_toxicity(source, translation, {**signature, "offensiveness_classifier": facts})
