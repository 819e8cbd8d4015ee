"""Settings of translation bias, and fingerprints of its inputs."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import CONTENT, AnyPath, ClassifierSettings, option, strict_dataclass

if TYPE_CHECKING:
    from evenhand.evaluation.metrics import MeasureConfig

RECOMPUTABLE = {"tokenize": "sentence_scores"}


@strict_dataclass
class Settings:
    """Translation bias: is a translation closer to masculine references than to feminine ones?"""

    references: AnyPath | None = option(
        None, "gendered translations: a CSV file, or a folder of MT-GenEval or MMHB", identity=CONTENT
    )
    split: str = option("dev", "which split of MT-GenEval or MMHB")
    languages: list[str] = option(list, "languages of the references, such as 'es' or 'spa_Latn'; empty: all")
    min_masculine_references: Annotated[int, Field(ge=0)] = option(
        100, "leave out languages with fewer masculine references (Costa-jussà et al. 2023, §4.1)"
    )
    directions: Annotated[list[Literal["en-xx", "xx-en", "xx-xx"]], Field(min_length=1)] = option(
        lambda: ["en-xx"], "from English, into English, and between the other languages"
    )
    translations: AnyPath | None = option(
        None,
        "folder of translations, SOURCE-TARGET.txt, one line per source sentence; null: the model translates",
        identity=CONTENT,
    )
    tokenize: str = option("flores101", "tokenizer of sacrebleu; 'flores101' is the paper's, '13a' needs no download")
    toxicity: ClassifierSettings = option(ClassifierSettings, "classifier for added toxicity; none by default")


def inputs(config: "MeasureConfig") -> dict[str, Any]:
    """Return fingerprints of the references, of the model or the translations, and of the toxicity classifier, by name.

    If files of translations are missing, the sentences to translate are written to the subfolder `sources` of the
    folder of translations, under the same file names.

    Raises:
        InputError: there are no references, or neither a model nor translations; a file of translations is missing or
            has a wrong number of lines; the tokenizer or the toxicity classifier cannot be used.
    """
    from evenhand.evaluation.data.references import references_sha256
    from evenhand.evaluation.metrics.translation_bias.bleu import bleu
    from evenhand.evaluation.metrics.translation_bias.sources import (
        hash_translations,
        load_comparable_references,
        make_source_tables,
    )
    from evenhand.evaluation.models.revisions import classifier_labels, find_label, model_revision

    settings = config.settings
    fingerprints: dict[str, Any] = {"references": references_sha256(settings.references)}
    if settings.translations is None:
        fingerprints["model"] = model_revision(config.model.name, config.model.revision, config.model.base)
    sets = load_comparable_references(
        settings.references, settings.split, settings.languages, settings.min_masculine_references
    )
    sources = make_source_tables(sets.table, settings.directions)
    if settings.translations is not None:
        fingerprints["model"] = config.model.name
        fingerprints["translations"] = hash_translations(settings.translations.expanduser(), sources)
    bleu(settings.tokenize)
    classifier = settings.toxicity
    if classifier.name is None and classifier.label is not None:
        raise InputError(f"toxicity.name: none with the label {classifier.label!r}; name the classifier too.")
    if classifier.name is not None:
        fingerprints["toxicity"] = model_revision(classifier.name, classifier.revision, classifier.base)
        labels = classifier_labels(classifier.name, classifier.revision, classifier.base)
        find_label(labels, classifier.label, classifier.name, "toxicity.label")
    return fingerprints
