"""Settings of likelihood bias, and fingerprints of its inputs."""

from typing import TYPE_CHECKING, Any

from evenhand.evaluation.settings import Count, option, strict_dataclass

if TYPE_CHECKING:
    from evenhand.evaluation.metrics import MeasureConfig

SERVER_APIS = ("completions",)  # likelihoods of given tokens


@strict_dataclass
class Settings:
    """Likelihood bias: is a sentence about some people likelier than the same sentence about other people?"""

    context: str = option("", "text that a causal or encoder-decoder model reads before each sentence")
    end_of_sequence: bool = option(False, "include the end-of-sequence token in a causal model's likelihood")
    limit: Count | None = option(
        None, "score at most so many sentences: random templates of each axis, at least one; null: all"
    )


def inputs(config: "MeasureConfig") -> dict[str, Any]:
    """Return fingerprints of the model and of the dataset, by name.

    Raises:
        InputError: the model or the dataset does not exist, or the settings have a file of prompts.
    """
    from evenhand.evaluation.data.prompts import taxonomy_sha256

    return {**config.open_model().scoring_inputs(), "dataset": taxonomy_sha256(config.prompts)}
