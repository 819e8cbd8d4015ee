"""How many rows a model runs at once: what a budget of memory holds, and half of that wherever it did not.

The budget is the device's, read when the work begins; what a row takes is estimated out of the model's config. Neither
shapes a row: work that was killed goes on with the rows that are not finished, whatever batches come then.
"""

import gc
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, TypeVar

import psutil
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard

log = logging.getLogger("evenhand")

Item, Result = TypeVar("Item"), TypeVar("Result")

GPU_MEMORY_FRACTION = 0.6  # of what is free: the rest is for fragments, and for what the estimates leave out
MAX_HOST_BYTES = 3 << 29  # bytes; more makes no CPU faster, and a measurement fits beside other work
# A GPU needs many tokens to be busy. A CPU needs few, whose widest activations stay in its caches: 1,024 tokens of
# BERT-base, which measured best; of tiny models, whose calls are dear, more, but no more than pay.
GPU_TOKENS_PER_PASS, MAX_CPU_TOKENS_PER_PASS, CPU_CACHE_BYTES = 32768, 4096, 12 << 20
TOKENIZER_BATCH_SIZE = 10_000  # texts
OUT_OF_MEMORY_MESSAGES = ("out of memory", "not enough memory", "can't allocate memory", "ALLOC_FAILED")


def memory_budget(device: torch.device) -> int:
    """Return the bytes that one batch may take on a device, beside the weights that are there."""
    if device.type != "cuda":
        return min(MAX_HOST_BYTES, psutil.virtual_memory().available // 2)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(GPU_MEMORY_FRACTION * (torch.cuda.mem_get_info(device)[0] + unused))


def tokens_per_pass(model: PreTrainedModel) -> int:
    """Return how many tokens keep a model's device busy in one pass; more gain nothing."""
    if model.device.type != "cpu":
        return GPU_TOKENS_PER_PASS
    return max(
        1, min(MAX_CPU_TOKENS_PER_PASS, CPU_CACHE_BYTES // (_model_sizes(model)["inner"] * model.dtype.itemsize))
    )


def batch_size_limit(model: PreTrainedModel, bytes_of: Callable[[int], int]) -> Callable[[int], int]:
    """Return a function: length of a row in tokens → how many such rows to run; at least 1.

    `bytes_of(length)` is what one row takes. The budget is read once, here.
    """
    memory, tokens = memory_budget(model.device), tokens_per_pass(model)
    return lambda length: max(1, min(tokens // length, memory // bytes_of(length)))


def logits_bytes(model: PreTrainedModel, positions: int) -> int:
    """Return the bytes of the logits at some positions, with their copy in float32 and its log-softmax."""
    return positions * model.config.get_text_config(decoder=True).vocab_size * (model.dtype.itemsize + 8)


def activations_bytes(model: PreTrainedModel, length: int) -> int:
    """Return the bytes of what one layer holds of a row of `length` tokens: its states, and the attention's weights."""
    shape = _model_sizes(model)
    states = 8 * shape["hidden"] + 3 * shape["inner"]
    return length * (states + 2 * shape["heads"] * length) * model.dtype.itemsize


def cache_bytes(model: PreTrainedModel, length: int) -> int:
    """Return the bytes of the keys and values of a row of `length` tokens."""
    shape = _model_sizes(model)
    return 2 * length * shape["layers"] * shape["key_heads"] * shape["head"] * model.dtype.itemsize


def _model_sizes(model: PreTrainedModel) -> dict[str, int]:
    """Return the sizes of a model by its config; where that says nothing, BERT-large's."""
    config = model.config.get_text_config(decoder=True)

    def size(default: int, *names: str) -> int:
        return next((found for name in names if (found := getattr(config, name, None))), default)

    hidden, heads = size(1024, "hidden_size", "d_model"), size(16, "num_attention_heads")
    return {
        "hidden": hidden,
        "heads": heads,
        "inner": size(4 * hidden, "intermediate_size", "decoder_ffn_dim", "d_ff"),
        "layers": size(24, "num_hidden_layers", "num_layers"),
        "key_heads": size(heads, "num_key_value_heads"),
        "head": size(max(1, hidden // heads), "head_dim", "d_kv"),
    }


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether an error is a device's or the host's memory running out, and nothing about the model."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in OUT_OF_MEMORY_MESSAGES)


def run_batches(
    items: Sequence[Item],
    fits: Callable[[Item], int],
    compute: Callable[[Sequence[Item]], Result],
    *,
    alike: Callable[[Item], Any] = lambda item: None,
    shard: WorkShard = ALL_ROWS,
    row_of: Callable[[Item], int] = int,
) -> Iterator[tuple[Sequence[Item], Result]]:
    """Yield batch by batch the items and what `compute` makes of them, in their order.

    A batch begins with an item, which says how many like it fit, and goes on while `alike` stays the same; give the
    largest items first. One that runs out of memory is halved and computed again, and no later one is larger. Of a
    `shard` there are its batches alone; `row_of` returns a row that an item makes.

    Raises:
        InputError: a single item does not fit.
    """
    left, most = deque(shard.unfinished_batches(_split_batches(items, fits, alike), row_of)), len(items)
    while left:
        batch = left.popleft()
        some = batch[:most]
        try:
            result = compute(some)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(some) == 1:
                raise InputError(
                    f"device: one row alone does not fit into its memory ({str(error).splitlines()[0]}); give a device "
                    "with more, a narrower dtype, or shorter texts."
                ) from None
        else:
            yield some, result
            if len(batch) > len(some):
                left.appendleft(batch[len(some) :])
            continue
        left.appendleft(batch)
        free_gpu_memory()  # out of the handler, where the error no longer holds the batch's tensors
        if most == len(items):
            log.warning("a batch of %d does not fit into memory; going on with half as many", len(some))
        most = len(some) // 2


def _split_batches(
    items: Sequence[Item], fits: Callable[[Item], int], alike: Callable[[Item], Any]
) -> Iterator[Sequence[Item]]:
    """Yield the items batch by batch, as they are where memory suffices."""
    start = 0
    while start < len(items):
        some = items[start : start + fits(items[start])]
        some = some[: sum(1 for _ in takewhile(lambda item, one=some[0]: alike(item) == alike(one), some))]
        yield some
        start += len(some)


def tokenize_texts(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], **arguments: Any) -> list[list[int]]:
    """Return the token ids of texts; equal texts share one list, and no more are encoded at once than memory needs."""
    distinct, encoded = list(dict.fromkeys(texts)), []
    for start in range(0, len(distinct), TOKENIZER_BATCH_SIZE):  # what a tokenizer returns besides ids takes gigabytes
        some = distinct[start : start + TOKENIZER_BATCH_SIZE]
        encoded += tokenizer(some, return_attention_mask=False, **arguments)["input_ids"]
    of_text = dict(zip(distinct, encoded, strict=True))
    return [of_text[text] for text in texts]


def free_gpu_memory() -> None:
    """Give back what models that nobody holds any more have taken of a GPU."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
