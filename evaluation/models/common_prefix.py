"""The common prefix of a batch, such as a system prompt and the start of a chat template, which a model reads once."""

from collections.abc import Sequence

import torch
from transformers import Cache, DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

# These use the number of a key's column, also of padding between the prefix and the rest: MPT as the distance of ALiBi,
# GPT-Neo for the window of its local layers.
COUNTS_PADDING = ("mpt", "gpt_neo")
MIN_SHARED_TOKENS = 8  # a shorter prefix is read with each row, because a pass of the model has a fixed cost


def has_attention_only(model: PreTrainedModel, *, sliding_windows: bool = True) -> bool:
    """Return True for a decoder with attention layers only, whose cache has keys and values for each position.

    Padding before a context cannot change the responses of such a model. With `sliding_windows` false, the result is
    False for a model with a layer that attends to the last positions only.
    """
    if model.config.is_encoder_decoder:
        return False
    layers = (DynamicLayer, DynamicSlidingWindowLayer) if sliding_windows else (DynamicLayer,)
    return all(type(layer) in layers for layer in DynamicCache(config=model.config).layers)


def common_prefix_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many tokens two sequences have in common before their first difference."""
    pairs = zip(first, second, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))


def shared_tokens(model: PreTrainedModel, rows: Sequence[list[int]], *, sliding_windows: bool = True) -> int:
    """Return the length of the common prefix that the model should read only once for all rows; 0 for none.

    At least one token of each row is not part of the prefix, because its logits are needed. The result is 0 for a
    single row, for a short prefix, for COUNTS_PADDING, and if `has_attention_only`, with the same `sliding_windows`, is
    false.
    """
    if model.config.model_type in COUNTS_PADDING:
        return 0
    # The first and the last row in lexicographic order differ no later than any other two.
    shared = min(common_prefix_length(min(rows), max(rows)), min(map(len, rows)) - 1)
    if len(rows) == 1 or shared < MIN_SHARED_TOKENS:
        return 0
    return shared if has_attention_only(model, sliding_windows=sliding_windows) else 0


@torch.inference_mode()
def prefix_cache(model: PreTrainedModel, prefix: list[int], n_rows: int) -> Cache:
    """Return the keys and values of a prefix, repeated for `n_rows` rows."""
    cache = model(input_ids=torch.tensor([prefix], device=model.device), use_cache=True).past_key_values
    cache.batch_repeat_interleave(n_rows)
    return cache
