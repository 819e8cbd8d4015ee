"""Warnings of a report about how the measured model was asked."""

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.parts.spread import FGB
from evenhand.evaluation.models.chat_templates import NO_TEMPLATE
from evenhand.evaluation.models.revisions import PACKAGE


def template_warnings(run: FamilyRun) -> list[str]:
    """Return [a sentence about a model without a chat template], or [] if it has one or ships in a package."""
    signature = run.signature(FGB)
    has_none = signature.get("format", {}).get("template") == NO_TEMPLATE
    if not has_none or str(signature["model"].get("name", "")).startswith(PACKAGE):
        return []
    return [
        f"{run.model_name} has no chat template: each prompt ended with its end-of-sequence token, as DialoGPT’s do. A "
        "base model reads that as the end of a document; give --model.chat_template FILE."
    ]
