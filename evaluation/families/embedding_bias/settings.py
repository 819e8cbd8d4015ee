"""What embedding bias is told, and what it reads."""

from typing import TYPE_CHECKING, Any

from evenhand.evaluation.settings import Folder, option, strict

if TYPE_CHECKING:
    from evenhand.evaluation.families import MeasureConfig


@strict
class Settings:
    """Embedding bias: is an English sentence nearer to its masculine translation than to its feminine one?"""

    references: Folder | None = option(None, "gendered translations: a CSV file, or a folder of MT-GenEval or MMHB")
    split: str = option("dev", "which split of MT-GenEval or MMHB")
    languages: list[str] = option(list, "languages of the references, as 'es' or 'spa_Latn'; empty: all there are")


def inputs(config: "MeasureConfig") -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: there are no references, they cannot be read or lack a language, or there is no sentence encoder.
    """
    from evenhand.evaluation.datasets.references import load_references, references_sha256
    from evenhand.evaluation.models.revisions import model_revision

    settings = config.settings
    references = references_sha256(settings.references)
    load_references(settings.references, settings.split, settings.languages, "embedding_bias.languages")
    model = model_revision(config.place(config.model.name, "model"), config.model.revision, config.model.base)
    return {"references": references, "model": model}
