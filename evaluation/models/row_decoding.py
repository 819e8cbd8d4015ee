"""A decoding loop without padding, in which rows of different lengths share a batch and leave it when they end.

At every step, all rows of the batch have the same length. The shortest contexts start; longer contexts join when the
earlier rows have grown to their length. A row that ends leaves at once, and another row takes its slot. No step
computes padding, and batches stay fuller than batches of contexts of one length.

`generate` runs the loop as its `custom_generate`. Shapes: b rows, c tokens of a context, at most m tokens of a
response, v tokens of the vocabulary.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache
from transformers.generation import MaxLengthCriteria, NoRepeatNGramLogitsProcessor

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import BROKEN_WEIGHTS

# The fixed cost of a forward pass of a small model on a CPU, in tokens: 3 to 4 ms at 30 to 40 µs per token (1 M
# parameters).
CALL_COST_TOKENS = 100


class RefuseNaN(LogitsProcessor):
    """Raises an InputError if a model's scores are NaN, because decoding would return arbitrary tokens."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if scores.amax(1).isnan().any():
            raise InputError(f"model: its probabilities are NaN; {BROKEN_WEIGHTS}")
        return scores


class ResponseNGramBlock(LogitsProcessor):
    """Forbids tokens that would repeat an n-gram of the response; n-grams of the context before `start` are allowed."""

    def __init__(self, size: int, start: int) -> None:
        self.block, self.start = NoRepeatNGramLogitsProcessor(size), start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.block(input_ids[:, self.start :], scores)


def decode_rows(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    uniforms: torch.Tensor | None,
    longer: Sequence[torch.Tensor],
    **model_kwargs: Any,
) -> torch.Tensor:
    """Return the token ids of the responses, (b, m), padded after their ends.

    Args:
        input_ids: the shortest contexts, all of one length.
        uniforms: uniform random numbers, (b, m), one for each token; None for greedy decoding.
        longer: tensors of longer contexts, one for each length, in ascending order of length.
    """
    groups = [input_ids, *longer]
    context_lengths = torch.cat([torch.full((len(group),), group.shape[1], device=group.device) for group in groups])
    max_new_tokens = generation_config.max_length - input_ids.shape[1]
    ids = input_ids.new_zeros((len(context_lengths), groups[-1].shape[1] + max_new_tokens))
    responses = input_ids.new_full((len(context_lengths), max_new_tokens), int(generation_config._pad_token_tensor))
    # The library's maximum length only holds for the shortest contexts.
    has_ended = StoppingCriteriaList([rule for rule in stopping_criteria if not isinstance(rule, MaxLengthCriteria)])
    names = ("past_key_values", "encoder_outputs", "logits_to_keep", "use_cache")
    inputs = {name: model_kwargs[name] for name in names if name in model_kwargs}
    slot_rows = context_lengths.new_empty(0)  # slot i holds row slot_rows[i]
    logits = torch.empty(0, device=ids.device)
    joined = 0
    for length in range(input_ids.shape[1], ids.shape[1]):
        if groups and groups[0].shape[1] == length:
            group = groups.pop(0)
            ids[len(slot_rows) : len(slot_rows) + len(group), :length] = group
            slot_rows = torch.cat([slot_rows, torch.arange(joined, joined + len(group), device=slot_rows.device)])
            logits = torch.cat([logits, _add_contexts(model, group, inputs, ids.shape)])
            joined += len(group)
        if not len(slot_rows):
            continue
        scores = logits_processor(ids[: len(slot_rows), :length], logits)
        step = length - context_lengths[slot_rows]
        tokens = scores.argmax(1) if uniforms is None else _sample_tokens(scores, uniforms[slot_rows, step])
        ids[: len(slot_rows), length] = responses[slot_rows, step] = tokens
        ended = has_ended(ids[: len(slot_rows), : length + 1], None) | (step == max_new_tokens - 1)
        if ended.any():
            slot_rows = _drop_rows(ended, ids, slot_rows, inputs)
        if len(slot_rows):
            logits = _forward(model, ids[: len(slot_rows), length : length + 1], inputs)
        elif groups:
            logits = logits[:0]
        else:
            break
    return responses


def _drop_rows(ended: torch.Tensor, ids: torch.Tensor, slot_rows: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Move the running rows into the first slots, in place; return the row of each remaining slot."""
    n_running = len(ended) - int(ended.sum())
    # Running rows after the first n_running slots move into earlier slots whose rows have ended.
    targets, sources = torch.where(ended[:n_running])[0], n_running + torch.where(~ended[n_running:])[0]
    ids[targets], slot_rows[targets] = ids[sources], slot_rows[sources]
    _move_rows(inputs, sources, targets, n_running)
    return slot_rows[:n_running]


def _sample_tokens(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return one sampled token per row by inverse transform sampling; scores (b, v), uniforms (b,) in [0, 1).

    The token is the first whose cumulative probability exceeds u. A GPU's parallel sums need not be monotone, so that
    once in millions of draws the search ends at a token of probability 0 or after the last token. The most probable
    token replaces it.
    """
    probabilities = scores.softmax(1)
    cumulative = probabilities.cumsum(1)
    tokens = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    tokens.clamp_(max=scores.shape[1] - 1)
    return torch.where(probabilities.gather(1, tokens) > 0, tokens, probabilities.argmax(1, keepdim=True)).squeeze(1)


class PreallocatedCacheLayer(DynamicLayer):
    """A cache layer that writes keys and values in place into tensors allocated for all rows and tokens.

    `DynamicLayer` concatenates, and so copies everything at every token, which takes half of a small model's time.
    """

    def __init__(self, layer: DynamicLayer, rows: int, length: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = layer.dtype, layer.device, True
        self.all_keys, self.all_values = (
            states.new_empty((rows, states.shape[1], length, states.shape[3])) for states in (layer.keys, layer.values)
        )
        self._set_views(0, 0)
        self.join(layer)

    def join(self, layer: DynamicLayer) -> None:
        """Append the rows of `layer`, which have the same length as the rows of this layer."""
        start, end, filled = len(self.keys), len(self.keys) + len(layer.keys), layer.keys.shape[2]
        self.all_keys[start:end, :, :filled] = layer.keys
        self.all_values[start:end, :, :filled] = layer.values
        self._set_views(end, filled)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, _, filled, _ = self.keys.shape
        end = filled + key_states.shape[2]
        self.all_keys[:rows, :, filled:end] = key_states
        self.all_values[:rows, :, filled:end] = value_states
        self._set_views(rows, end)
        return self.keys, self.values

    def move_rows(self, sources: torch.Tensor, targets: torch.Tensor, n_rows: int) -> None:
        """Copy rows `sources` to rows `targets`, then truncate the layer to `n_rows` rows."""
        filled = self.keys.shape[2]
        if len(sources):
            for states in (self.all_keys, self.all_values):
                states[targets, :, :filled] = states[sources, :, :filled]
        self._set_views(n_rows, filled)

    def _set_views(self, rows: int, filled: int) -> None:
        self.keys, self.values = self.all_keys[:rows, :, :filled], self.all_values[:rows, :, :filled]


def _forward(model: Any, tokens: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Return the float32 scores (b, v) of the token after the given tokens (b, n).

    Without padding, models need neither an attention mask nor positions.
    """
    name = "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"
    return model(**{name: tokens}, **inputs).logits[:, -1].float()


def _add_contexts(model: Any, group: torch.Tensor, inputs: dict[str, Any], shape: torch.Size) -> torch.Tensor:
    """Add contexts (b, c) to the cache and return the scores (b, v) of the token after each context."""
    cache = inputs.get("past_key_values")
    if cache is None:
        raise InputError(f"model: {type(model).__name__} has no cache of keys and values; give another model.")
    decoder_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    if decoder_cache.layers and all(isinstance(layer, PreallocatedCacheLayer) for layer in decoder_cache.layers):
        fresh = DynamicCache(config=model.config)
        logits = _prefill(model, group, {**inputs, "past_key_values": fresh})
        for batch_layer, layer in zip(decoder_cache.layers, fresh.layers, strict=True):
            batch_layer.join(layer)
        return logits
    logits = _prefill(model, group, inputs)
    decoder_cache.layers = [
        PreallocatedCacheLayer(layer, *shape) if type(layer) is DynamicLayer else layer
        for layer in decoder_cache.layers
    ]
    return logits


def _prefill(model: Any, contexts: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Fill an empty cache with contexts (b, c), common prefixes once; return the scores (b, v) of the next tokens."""
    if not supports_joining(model):
        return _forward(model, contexts, inputs)
    cache, ids, length = inputs["past_key_values"], contexts.cpu().numpy(), contexts.shape[1]
    # The first n tokens of a row are a new prefix if the row differs from the previous row before n: differs_at < n.
    unlike = np.concatenate([np.ones_like(ids[:1], bool), ids[1:] != ids[:-1]])
    differs_at = np.where(unlike.any(1), unlike.argmax(1), length)
    start, group = 0, np.zeros(len(ids), int)
    for end in _prefill_stages(differs_at, length):
        new = np.flatnonzero(differs_at < end)
        if start:
            cache.reorder_cache(torch.from_numpy(group[new]).to(contexts.device))
        logits = _forward(model, contexts[torch.from_numpy(new).to(contexts.device), start:end], inputs)
        start, group = end, np.cumsum(differs_at < end) - 1
    if len(new) == len(ids):
        return logits
    index = torch.from_numpy(group).to(contexts.device)
    cache.reorder_cache(index)
    return logits[index]


def supports_joining(model: Any) -> bool:
    """Return whether rows can be added to the model's cache, and whether a context can be computed in several parts.

    Both hold if all layers keep all keys and values, unlike sliding windows and recurrent layers.
    """
    if model.config.is_encoder_decoder:
        return False
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def _prefill_stages(differs_at: np.ndarray, length: int) -> list[int]:
    """Return the ends of the stages that compute contexts of `length` tokens at the lowest total cost.

    A stage from p to q costs q − p tokens for each distinct prefix of q tokens, plus CALL_COST_TOKENS.
    """
    distinct = np.searchsorted(np.sort(differs_at), np.arange(length + 1))  # [n]: distinct prefixes of n tokens
    cost, before = np.zeros(length + 1), np.zeros(length + 1, int)
    for end in range(1, length + 1):
        costs = cost[:end] + (end - np.arange(end)) * distinct[end] + CALL_COST_TOKENS
        before[end] = costs.argmin()
        cost[end] = costs[before[end]]
    ends = [length]
    while before[ends[-1]]:
        ends.append(int(before[ends[-1]]))
    return ends[::-1]


def _move_rows(inputs: dict[str, Any], sources: torch.Tensor, targets: torch.Tensor, n_rows: int) -> None:
    """Copy rows `sources` of the model's inputs to rows `targets`, then truncate the inputs to `n_rows` rows."""
    index = torch.arange(n_rows, device=sources.device)
    index[targets] = sources
    cache = inputs["past_key_values"]
    caches = [cache.self_attention_cache, cache.cross_attention_cache] if "encoder_outputs" in inputs else [cache]
    for layer in (layer for part in caches for layer in part.layers):
        if isinstance(layer, PreallocatedCacheLayer):
            layer.move_rows(sources, targets, n_rows)
        else:
            layer.reorder_cache(index)
    if "encoder_outputs" in inputs:
        encoded = inputs["encoder_outputs"]
        inputs["encoder_outputs"] = type(encoded)(last_hidden_state=encoded.last_hidden_state[index])
