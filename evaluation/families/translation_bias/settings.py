"""What translation bias is told, and what it reads."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import ClassifierSettings, Folder, option, strict

if TYPE_CHECKING:
    from evenhand.evaluation.families import MeasureConfig


@strict
class Settings:
    """Translation bias: is a translation closer to masculine references than to feminine ones?"""

    references: Folder | None = option(None, "gendered translations: a CSV file, or a folder of MT-GenEval or MMHB")
    split: str = option("dev", "which split of MT-GenEval or MMHB")
    languages: list[str] = option(list, "languages of the references, as 'es' or 'spa_Latn'; empty: all there are")
    min_masculine_references: Annotated[int, Field(ge=0)] = option(
        100, "leave languages out that have fewer masculine references than so many (004, §4.1)"
    )
    directions: Annotated[list[Literal["en-xx", "xx-en", "xx-xx"]], Field(min_length=1)] = option(
        lambda: ["en-xx"], "from and to English, and between the other languages"
    )
    translations: Folder | None = option(
        None, "folder of translations, SOURCE-TARGET.txt, a line for each source; null: the model translates"
    )
    tokenize: str = option("flores200", "tokenizer of sacrebleu; 'flores101' is the paper's, '13a' needs no download")
    toxicity: ClassifierSettings = option(ClassifierSettings, "toxicity that a translation adds")


def inputs(config: "MeasureConfig") -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Where files of translations are missing, the sentences to translate are written into the folder `sources` in that
    of the translations, under the same names.

    Raises:
        InputError: there are no references, or neither a model nor translations; a file of translations is missing or
            has a wrong number of lines; the tokenizer, or the classifier of toxicity, cannot be used.
    """
    from evenhand.evaluation.datasets.references import references_sha256
    from evenhand.evaluation.families.translation_bias.bleu import bleu
    from evenhand.evaluation.families.translation_bias.sources import (
        comparable_references,
        source_tables,
        translation_hashes,
    )
    from evenhand.evaluation.models.classifier_labels import classifier_labels, place_of_label
    from evenhand.evaluation.models.revisions import model_revision

    settings = config.settings
    found: dict[str, Any] = {"references": references_sha256(settings.references)}
    if settings.translations is None:
        found["model"] = model_revision(
            config.place(config.model.name, "model"), config.model.revision, config.model.base
        )
    sources = source_tables(comparable_references(settings).table, settings.directions)
    if settings.translations is not None:
        found["translations"] = translation_hashes(settings.translations.expanduser(), sources)
    bleu(settings.tokenize)
    judge = settings.toxicity
    if judge.name is None and judge.label is not None:
        raise InputError(f"toxicity.name: none is given with the label {judge.label!r}; give the classifier too.")
    if judge.name is not None:
        found["toxicity"] = model_revision(judge.name, judge.revision, judge.base)
        labels = classifier_labels(judge.name, judge.revision, judge.base)
        place_of_label(labels, judge.label, judge.name, "toxicity.label")
    return found
