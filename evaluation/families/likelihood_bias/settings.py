"""What likelihood bias is told, and what it reads."""

from typing import TYPE_CHECKING, Any

from evenhand.evaluation.settings import option, strict

if TYPE_CHECKING:
    from evenhand.evaluation.families import MeasureConfig


@strict
class Settings:
    """Likelihood bias: is a sentence about some people likelier than the same sentence about others?"""

    context: str = option("", "what a causal or encoder-decoder model reads before each sentence")
    end_of_sequence: bool = option(False, "count the end of the sentence in a causal model's likelihood of it")


def inputs(config: "MeasureConfig") -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: the model or the dataset cannot be found, or a file of prompts is
            given.
    """
    from evenhand.evaluation.datasets.holistic_bias import sentences_sha256

    return {**config.scored_model(), "dataset": sentences_sha256(config.prompts)}
