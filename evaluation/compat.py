"""All uses of what other packages do not declare as public, each with the reason and what it is tested with.

A new version of such a package may change these; pyproject.toml bounds the versions.
"""

import inspect
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from peft.tuners.lora import LoraLayer
    from sacrebleu.metrics.base import Metric
    from torch.nn import Module
    from transformers import PreTrainedConfig, PreTrainedModel


def segment_statistics(metric: "Metric", hypotheses: list[str], references: Sequence[tuple[Any, ...]]) -> np.ndarray:
    """Return sacrebleu's statistics of n sentences, (n, k) integers, whose sums are the statistics of a corpus.

    `references` has a list for the first reference of each sentence, one for the second, and so on; None for none.

    sacrebleu's score objects have the statistics of BLEU, but not those of chrF, and its own bootstrap draws other
    sentences for each language. Its significance tests use this method, too (sacrebleu 2.6).
    """
    return np.array(metric._extract_corpus_statistics(hypotheses, references), dtype=np.int64)


def score_of_statistics(metric: "Metric", statistics: np.ndarray) -> float:
    """Return the score, in [0, 100], of a corpus with these summed statistics, (k,); see `segment_statistics`."""
    return float(metric._compute_score_from_stats(statistics.tolist()).score)


def cache_argument(model: "PreTrainedModel") -> str:
    """Return the name of the attention keys and values, as an argument and in the output of a model's forward pass.

    transformers 5.24 calls `cache` what was `past_key_values`, and 5.40 removes the old name. Models whose code comes
    with their weights may keep it.
    """
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def has_plain_attention(config: "PreTrainedConfig", *, sliding_windows: bool = True) -> bool:
    """Return whether a model is a decoder whose layers all have plain attention, so that padding changes no response.

    They attend to all positions or, if `sliding_windows`, to a sliding window.

    transformers exports `DynamicLayer`, but not the class of sliding windows. Subclasses compute other attention
    (transformers 5.0 to 5.24).
    """
    if config.is_encoder_decoder:
        return False
    if not sliding_windows and "local" in getattr(config, "attention_layers", ()):  # GPT-Neo, with ordinary caches
        return False
    from transformers import DynamicCache, DynamicLayer
    from transformers.cache_utils import DynamicSlidingWindowLayer

    allowed = {DynamicLayer, DynamicSlidingWindowLayer} if sliding_windows else {DynamicLayer}
    return all(type(layer) in allowed for layer in DynamicCache(config=config).layers)


def config_values(config: "PreTrainedConfig", name: str) -> list[Any]:
    """Return the values of a field of a model's config that it has: one, or one for each layer if layers differ.

    Gemma 3n has a list in the field. Of a config whose layers differ (Gemma 4), transformers 5.20 raises an error where
    such a field is read, in place of a value.
    """
    layers = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    values = []
    for layer in layers:
        value = getattr(layer, name, None)
        values += value if isinstance(value, list | tuple) else [value]
    return [value for value in values if value is not None]


def lora_layers(network: "Module") -> Iterator["LoraLayer"]:
    """Yield the layers of a network that have a LoRA adapter; PEFT does not export their class (PEFT 0.21)."""
    from peft.tuners.lora import LoraLayer

    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            yield layer
