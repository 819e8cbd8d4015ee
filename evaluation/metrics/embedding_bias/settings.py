"""Settings of embedding bias, and fingerprints of its inputs."""

from typing import TYPE_CHECKING, Any

from evenhand.evaluation.settings import CONTENT, AnyPath, option, strict_dataclass

if TYPE_CHECKING:
    from evenhand.evaluation.metrics import MeasureConfig


@strict_dataclass
class Settings:
    """Embedding bias: is an English sentence nearer to its masculine translation than to its feminine one?"""

    references: AnyPath | None = option(
        None, "gendered translations: a CSV file, or a folder of MT-GenEval or MMHB", identity=CONTENT
    )
    split: str = option("dev", "which split of MT-GenEval or MMHB")
    languages: list[str] = option(list, "languages of the references, such as 'es' or 'spa_Latn'; empty: all")


def inputs(config: "MeasureConfig") -> dict[str, Any]:
    """Return fingerprints of the references and of the sentence encoder, by name.

    Raises:
        InputError: the references do not exist, cannot be read or lack a language, or the encoder does not exist.
    """
    from evenhand.evaluation.data.references import load_references, references_sha256
    from evenhand.evaluation.models.revisions import model_revision

    settings = config.settings
    references = references_sha256(settings.references)
    load_references(settings.references, settings.split, settings.languages, "embedding_bias.languages")
    model = model_revision(config.model.name, config.model.revision, config.model.base)
    return {"references": references, "model": model}
