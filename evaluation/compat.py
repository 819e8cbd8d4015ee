"""All uses of what other packages do not declare as public, each with the reason and what it is tested with.

A new version of such a package may change these; pyproject.toml bounds the versions.
"""

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.evaluation.files import file_version

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


@contextmanager
def gguf_read_once() -> Iterator[None]:
    """Read the config in a GGUF file once, and build the map of the names of its weights once, inside the block.

    transformers reads the whole vocabulary, which takes seconds, to know the config of a tokenizer, too, and builds the
    same map for each module of the network (transformers 5.20 to 5.23, gguf 0.19).
    """
    import gguf
    from transformers import modeling_gguf_pytorch_utils as reading

    read = reading.load_gguf_checkpoint
    name_map = gguf.get_tensor_name_map

    def read_once(path: str, return_tensors: bool = False, **arguments: Any) -> dict[str, Any]:
        if return_tensors:
            return read(path, return_tensors=True, **arguments)
        file = Path(path).resolve()
        return {"config": copy.deepcopy(_gguf_config(read, file, file_version(file)))}

    reading.load_gguf_checkpoint = read_once
    gguf.get_tensor_name_map = cache(name_map)
    try:
        yield
    finally:
        reading.load_gguf_checkpoint = read
        gguf.get_tensor_name_map = name_map


@lru_cache(maxsize=4)
def _gguf_config(read: Callable[[str], dict[str, Any]], file: Path, version: tuple[int, ...]) -> dict[str, Any]:
    """Return the config in a GGUF file of this version (`file_version`), which `read` reads."""
    return read(str(file))["config"]


def lora_layers(network: "Module") -> Iterator["LoraLayer"]:
    """Yield the layers of a network that have a LoRA adapter; PEFT does not export their class (PEFT 0.21)."""
    from peft.tuners.lora import LoraLayer

    for layer in network.modules():
        if isinstance(layer, LoraLayer):
            yield layer
