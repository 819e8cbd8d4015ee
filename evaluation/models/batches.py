"""Batches of a size that fits into memory, halved whenever the device runs out of memory; prefixes that they share.

The memory of a row is estimated from the model's config. Batch sizes do not change results.
"""

import logging
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import psutil
import torch
from accelerate.utils.memory import clear_device_cache, should_reduce_batch_size
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from evenhand.evaluation.compat import config_values, has_plain_attention
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.activation import first_activated
from evenhand.evaluation.models.padding import shares_prefixes
from evenhand.evaluation.models.revisions import first_line

if TYPE_CHECKING:
    from evenhand.evaluation.models.loading import DialogueModel

log = logging.getLogger("evenhand")

Item = TypeVar("Item")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)

GPU_MEMORY_FRACTION = 0.6  # the rest of the free memory covers fragmentation and errors of the estimates
MAX_HOST_BYTES = 3 << 29  # larger batches are no faster on a CPU, and other work needs memory too
# A GPU needs many tokens to be busy. On a CPU, the widest activations should fit into the cache: 1,024 tokens of
# BERT-base, the fastest value measured. Tiny models, whose calls have a high fixed cost, run more tokens up to a limit.
GPU_TOKENS_PER_PASS = 32768
MAX_CPU_TOKENS_PER_PASS = 4096
CPU_CACHE_BYTES = 12 << 20
TOKENIZER_BATCH_SIZE = 10_000  # texts
MIN_SHARED_TOKENS = 8  # a shorter prefix is read with each row, because a pass of the model has a fixed cost


def memory_budget(device: torch.device) -> int:
    """Return how many bytes one batch may use on a device on which the weights are already loaded."""
    if device.type != "cuda":
        return min(MAX_HOST_BYTES, psutil.virtual_memory().available // 2)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(GPU_MEMORY_FRACTION * (torch.cuda.mem_get_info(device)[0] + unused))


def tokens_per_pass(model: PreTrainedModel) -> int:
    """Return how many tokens one forward pass should have to keep the model's device busy."""
    if model.device.type != "cpu":
        return GPU_TOKENS_PER_PASS
    tokens = CPU_CACHE_BYTES // (_model_sizes(model)["inner"] * model.dtype.itemsize)
    return max(1, min(MAX_CPU_TOKENS_PER_PASS, tokens))


def batch_size_limit(model: PreTrainedModel, row_bytes: Callable[[int], int]) -> Callable[[int], int]:
    """Return a function from a row's length in tokens to the largest batch of such rows, by memory and tokens."""
    memory = memory_budget(model.device)
    tokens = tokens_per_pass(model)
    return cache(lambda length: max(1, min(tokens // length, memory // row_bytes(length))))


def logits_bytes(model: PreTrainedModel, positions: int, copies: int = 8) -> int:
    """Return the bytes of the logits at `positions` positions, with `copies` bytes for copies of each logit."""
    return positions * model.config.get_text_config(decoder=True).vocab_size * (model.dtype.itemsize + copies)


def activations_bytes(model: PreTrainedModel, length: int) -> int:
    """Return the bytes of one layer's hidden states and attention weights for a row of `length` tokens."""
    sizes = _model_sizes(model)
    states = 8 * sizes["hidden"] + 3 * sizes["inner"]
    return length * (states + 2 * sizes["heads"] * length) * model.dtype.itemsize


def cache_bytes(model: PreTrainedModel, length: int) -> int:
    """Return the bytes of the attention keys and values of all layers for a row of `length` tokens."""
    sizes = _model_sizes(model)
    return 2 * length * sizes["layers"] * sizes["key_heads"] * sizes["head"] * model.dtype.itemsize


def _model_sizes(model: PreTrainedModel) -> dict[str, int]:
    """Return the sizes in a model's config, such as the hidden size: those of the largest layer.

    BERT-large's sizes replace missing fields.
    """
    config = model.config.get_text_config(decoder=True)

    def size(default: int, *names: str) -> int:
        values = (max(config_values(config, name), default=0) for name in names)
        return next((value for value in values if value), default)

    hidden = size(1024, "hidden_size", "d_model")
    heads = size(16, "num_attention_heads")
    return {
        "hidden": hidden,
        "heads": heads,
        "inner": size(4 * hidden, "intermediate_size", "decoder_ffn_dim", "d_ff"),
        "layers": size(24, "num_hidden_layers", "num_layers"),
        "key_heads": size(heads, "num_key_value_heads"),
        "head": size(max(1, hidden // heads), "head_dim", "d_kv"),
    }


def run_batches(
    items: Sequence[Item],
    max_items: Callable[[Item], int],
    compute: Callable[[Sequence[Item]], Result],
    *,
    group_key: Callable[[Item], object] = lambda item: None,
) -> Iterator[tuple[Sequence[Item], Result]]:
    """Yield each batch of items and the result of `compute` for the batch, in the order of the items.

    A batch has at most `max_items(first item)` items, all with the same `group_key`. Sort the largest items first. A
    batch that runs out of memory is halved and computed again, and no later batch is larger.
    """
    start = 0
    limit = len(items)
    while start < len(items):
        batch = items[start : start + min(limit, max_items(items[start]))]
        batch = batch[: len(list(next(groupby(batch, group_key))[1]))]
        try:
            result = compute(batch)
        except (RuntimeError, MemoryError) as error:
            if not (isinstance(error, (torch.OutOfMemoryError, MemoryError)) or should_reduce_batch_size(error)):
                raise
            if len(batch) == 1:
                raise InputError("device", f"a single row does not fit into memory ({first_line(error)}).") from None
        else:
            yield batch, result
            start += len(batch)
            continue
        # Outside the handler, because the error holds the tensors of the batch.
        clear_device_cache(garbage_collection=True)
        if limit == len(items):
            log.warning("a batch of %d rows does not fit into memory; continuing with half the batch size", len(batch))
        limit = len(batch) // 2


def group_rows(keys: Iterable[Key]) -> dict[Key, list[int]]:
    """Return the indices of the rows with each distinct key, in the order of first occurrence.

    >>> group_rows("aba")
    {'a': [0, 2], 'b': [1]}
    """
    groups: dict[Key, list[int]] = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    return groups


def longest_first(lengths: Sequence[int]) -> list[int]:
    """Return the row indices by descending length, (n,), so that a lack of memory is detected in the first batch."""
    return sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True)


def tokenize_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **arguments: Any) -> list[list[int]]:
    """Return the token ids of texts; equal texts are encoded once and share one list."""
    distinct = list(dict.fromkeys(texts))
    encoded: list[list[int]] = []
    for start in range(0, len(distinct), TOKENIZER_BATCH_SIZE):  # the whole output for all texts would take gigabytes
        part = distinct[start : start + TOKENIZER_BATCH_SIZE]
        encoded += tokenizer(part, return_attention_mask=False, **arguments)["input_ids"]
    ids_by_text = dict(zip(distinct, encoded, strict=True))
    return [ids_by_text[text] for text in texts]


def common_prefix_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common before their first difference."""
    pairs = zip(first, second, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def shared_tokens(model: PreTrainedModel, rows: Sequence[list[int]], *, is_padded: bool = False) -> int:
    """Return the length of the common prefix that the model should read only once for all rows; 0 for none.

    At least one token of each row is not part of the prefix, nor is any that an activated adapter changes. `is_padded`
    says whether padding stands after the prefix: a sliding window would count it, and lose the prefix too early.
    """
    # The first and the last row in lexicographic order differ no later than any other two.
    shared = min(common_prefix_length(min(rows), max(rows)), min(map(len, rows)) - 1)
    activated = first_activated(model, rows)
    if activated is not None:
        shared = min(shared, activated)
    if len(rows) == 1 or shared < MIN_SHARED_TOKENS:
        return 0
    if not has_plain_attention(model.config, sliding_windows=not is_padded):
        return 0
    return shared if shares_prefixes(model, is_padded=is_padded) else 0


def max_positions(config: PreTrainedConfig) -> float:
    """Return the number of positions in a model's config, of its text if it reads images; infinity without a limit."""
    return getattr(config.get_text_config(), "max_position_embeddings", None) or math.inf


def max_input_length(model: PreTrainedModel) -> float:
    """Return the largest number of tokens, special tokens included, that an encoder reads; infinity without a limit.

    RoBERTa and related models number positions from the padding token's id on, so that the limit is smaller than the
    size of the position embeddings.
    """
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Embedding) or module.padding_idx is None:
            continue
        if name.endswith("position_embeddings"):
            return module.num_embeddings - module.padding_idx - 1
    return max_positions(model.config)


def check_input_lengths(
    dialogue_model: "DialogueModel", encoded: Sequence[Sequence[int]], max_new_tokens: int, field: str
) -> None:
    """Raise an InputError, about `field`, if an input is empty, or it or its response needs too many positions."""
    limit = max_positions(dialogue_model.model.config)
    if dialogue_model.kind != "encoder_decoder":
        limit -= max_new_tokens
    elif max_new_tokens > limit:
        raise InputError("decoding", f"max_new_tokens is {max_new_tokens}; the model has {limit:.0f} positions.")
    if not all(encoded):
        raise InputError(field, "one is empty; leave out empty texts.")
    longest = max(map(len, encoded), default=0)
    if longest > limit:
        raise InputError(field, f"one has {longest} tokens; with max_new_tokens, the model has room for {limit:.0f}.")
