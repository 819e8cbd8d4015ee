"""Settings of the sentence pair metrics, and fingerprints of their inputs."""

from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.settings import CONTENT, Count, option, strict_dataclass

if TYPE_CHECKING:
    from evenhand.evaluation.metrics import MeasureConfig

SERVER_APIS = ("completions",)  # likelihoods of given tokens


@strict_dataclass
class Settings:
    """Sentence pairs: is the more stereotypical sentence of a pair the likelier one?"""

    pairs: str = option(
        "crows_pairs",
        "sentence pairs: 'crows_pairs', 's_jsd_de' (or another language), or a CSV or JSONL file",
        identity=CONTENT,
    )
    columns: dict[str, str] = option(
        dict, "columns of your own file: {more: NAME, less: NAME, pair_id: NAME, bias_type: NAME, direction: NAME}"
    )
    perturbed: bool = option(False, "first remove the last character of each sentence (Steinborn et al. 2022, Table 3)")
    context: str = option("", "text that a causal or encoder-decoder model reads before each sentence")
    end_of_sequence: bool = option(False, "include the end-of-sequence token in a causal model's likelihood")
    limit: Count | None = option(None, "score a random sample of so many pairs, stratified by bias type; null: all")


def inputs(config: "MeasureConfig") -> dict[str, str]:
    """Return fingerprints of the model and of the pairs, by name.

    Raises:
        InputError: the model or the pairs do not exist, or the pairs cannot be read.
    """
    from evenhand.evaluation.data.sentence_pairs import read_pairs
    from evenhand.evaluation.files import sha256_of

    file = pairs_path(config)
    read_pairs(file, config.settings.columns)
    return {**config.open_model().scoring_inputs(), "pairs": sha256_of(file)}


def pairs_path(config: "MeasureConfig") -> Path:
    """Return the local file of the pairs, and download a published set first if needed."""
    from evenhand.evaluation.data.sentence_pairs import resolve_pairs_file

    return resolve_pairs_file(str(local_path(config.settings.pairs)))
