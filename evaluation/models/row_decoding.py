"""The decoding loop: rows of many lengths without padding, written in place, leaving as soon as they end.

At every step all rows of the batch are equally long. The shortest contexts begin; longer ones join when the rows
before them have grown to their length; a row that ends leaves at once, and the last one takes its slot. So no step
computes padding, and the batch stays full for longer than that of contexts of one length.

`generate` takes the loop as its `custom_generate` and prepares it as it does its own. Letters in shapes: b rows,
c tokens of a context, m tokens at most of a response, v tokens of the vocabulary.
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

# The fixed cost of calling a small model on a CPU, in tokens: 3 to 4 ms, and 30 to 40 µs a token, at 1 M parameters.
CALL_COST_TOKENS = 100


class RefuseNaN(LogitsProcessor):
    """Raises an InputError where a model's scores are not numbers: decoding would go on and write tokens by chance."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if scores.amax(1).isnan().any():
            raise InputError(f"model: its probabilities are not numbers; {BROKEN_WEIGHTS}")
        return scores


class ResponseNGramBlock(LogitsProcessor):
    """Forbids a token that would repeat an n-gram of the response; the context before `start` is not looked at."""

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
    """Return the token ids of the responses, (b, m), decoded greedily or by each row's own uniforms (b, m).

    The rows are those of input_ids, contexts of one length, and then those of `longer`, each a tensor of contexts of
    one length, in ascending order. Ids after a response's end are padding.
    """
    groups = [input_ids, *longer]
    begun = torch.cat([torch.full((len(group),), group.shape[1], device=group.device) for group in groups])
    most = generation_config.max_length - input_ids.shape[1]
    ids = input_ids.new_zeros((len(begun), groups[-1].shape[1] + most))
    responses = input_ids.new_full((len(begun), most), int(generation_config._pad_token_tensor))
    # The library's limit on the length is that of the shortest contexts.
    ends = StoppingCriteriaList([one for one in stopping_criteria if not isinstance(one, MaxLengthCriteria)])
    names = ("past_key_values", "encoder_outputs", "logits_to_keep", "use_cache")
    inputs = {name: model_kwargs[name] for name in names if name in model_kwargs}
    place = begun.new_empty(0)  # slot i holds row place[i]
    logits = torch.empty(0, device=ids.device)
    joined = 0
    for length in range(input_ids.shape[1], ids.shape[1]):
        if groups and groups[0].shape[1] == length:
            group = groups.pop(0)
            ids[len(place) : len(place) + len(group), :length] = group
            place = torch.cat([place, torch.arange(joined, joined + len(group), device=place.device)])
            logits = torch.cat([logits, _add_contexts(model, group, inputs, ids.shape)])
            joined += len(group)
        if not len(place):
            continue
        scores = logits_processor(ids[: len(place), :length], logits)
        step = length - begun[place]
        tokens = scores.argmax(1) if uniforms is None else _sample_tokens(scores, uniforms[place, step])
        ids[: len(place), length] = responses[place, step] = tokens
        ended = ends(ids[: len(place), : length + 1], None) | (step == most - 1)
        if ended.any():
            place = _drop_rows(ended, ids, place, inputs)
        if len(place):
            logits = _forward(model, ids[: len(place), length : length + 1], inputs)
        elif groups:
            logits = logits[:0]
        else:
            break
    return responses


def _drop_rows(ended: torch.Tensor, ids: torch.Tensor, place: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Free the slots of the rows that have ended, in place; return which row each slot left holds."""
    left = len(ended) - int(ended.sum())
    # The running rows behind the first `left` slots move into the slots there whose rows have ended.
    targets, sources = torch.where(ended[:left])[0], left + torch.where(~ended[left:])[0]
    ids[targets], place[targets] = ids[sources], place[sources]
    _move_rows(inputs, sources, targets, left)
    return place[:left]


def _sample_tokens(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return one token per row by the inverse of its cumulative distribution; scores (b, v), uniforms (b,) in [0, 1).

    It is the first token whose cumulative probability exceeds u. Sums that a GPU adds up in parallel need not ascend,
    and end a search on a token of probability 0 or behind the last one, once in millions: then it is the likeliest one.
    """
    probabilities = scores.softmax(1)
    cumulative = probabilities.cumsum(1)
    tokens = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    tokens.clamp_(max=scores.shape[1] - 1)
    return torch.where(probabilities.gather(1, tokens) > 0, tokens, probabilities.argmax(1, keepdim=True)).squeeze(1)


class PreallocatedCacheLayer(DynamicLayer):
    """A layer's keys and values in two tensors that hold all rows and tokens to come, written in place.

    `DynamicLayer` concatenates, that is, copies everything at every token: half of a small model's time.
    """

    def __init__(self, layer: DynamicLayer, rows: int, length: int) -> None:
        super().__init__()
        self.dtype, self.device, self.is_initialized = layer.dtype, layer.device, True
        self.all_keys, self.all_values = (
            states.new_empty((rows, states.shape[1], length, states.shape[3])) for states in (layer.keys, layer.values)
        )
        self._show(0, 0)
        self.join(layer)

    def join(self, layer: DynamicLayer) -> None:
        """Append the rows of `layer`, which are as long as the rows here."""
        start, end, filled = len(self.keys), len(self.keys) + len(layer.keys), layer.keys.shape[2]
        self.all_keys[start:end, :, :filled] = layer.keys
        self.all_values[start:end, :, :filled] = layer.values
        self._show(end, filled)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        rows, _, filled, _ = self.keys.shape
        end = filled + key_states.shape[2]
        self.all_keys[:rows, :, filled:end] = key_states
        self.all_values[:rows, :, filled:end] = value_states
        self._show(rows, end)
        return self.keys, self.values

    def move_rows(self, sources: torch.Tensor, targets: torch.Tensor, left: int) -> None:
        """Copy rows `sources` over rows `targets`, then keep the first `left` rows."""
        filled = self.keys.shape[2]
        if len(sources):
            for states in (self.all_keys, self.all_values):
                states[targets, :, :filled] = states[sources, :, :filled]
        self._show(left, filled)

    def _show(self, rows: int, filled: int) -> None:
        self.keys, self.values = self.all_keys[:rows, :, :filled], self.all_values[:rows, :, :filled]


def _forward(model: Any, tokens: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Feed tokens (b, n) and return float32 scores (b, v) of the token after them.

    No attention mask and no positions: without padding they are what every model assumes.
    """
    name = "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"
    return model(**{name: tokens}, **inputs).logits[:, -1].float()


def _add_contexts(model: Any, group: torch.Tensor, inputs: dict[str, Any], shape: torch.Size) -> torch.Tensor:
    """Feed a group of contexts (b, c), add it to the cache, and return the scores (b, v) of the token after each."""
    cache = inputs.get("past_key_values")
    if cache is None:
        raise InputError(f"model: {type(model).__name__} keeps no cache of keys and values; give another model.")
    decoder_cache = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache
    if decoder_cache.layers and all(isinstance(one, PreallocatedCacheLayer) for one in decoder_cache.layers):
        fresh = DynamicCache(config=model.config)
        logits = _prefill(model, group, {**inputs, "past_key_values": fresh})
        for kept, layer in zip(decoder_cache.layers, fresh.layers, strict=True):
            kept.join(layer)
        return logits
    logits = _prefill(model, group, inputs)
    decoder_cache.layers = [
        PreallocatedCacheLayer(layer, *shape) if type(layer) is DynamicLayer else layer
        for layer in decoder_cache.layers
    ]
    return logits


def _prefill(model: Any, contexts: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
    """Feed contexts (b, c) into an empty cache, shared beginnings once; return the scores (b, v) of the next tokens."""
    if not supports_joining(model):
        return _forward(model, contexts, inputs)
    cache, ids, length = inputs["past_key_values"], contexts.cpu().numpy(), contexts.shape[1]
    # A row's first n tokens are new, unlike those of the row before, if the two differ before n: differs_at < n.
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
    """Say whether rows can join others in the model's cache, and a part of a context can follow another.

    Both are so where all layers keep all keys and values; sliding windows and recurrent layers keep something else.
    """
    if model.config.is_encoder_decoder:
        return False
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def _prefill_stages(differs_at: np.ndarray, length: int) -> list[int]:
    """Return the ends of the stretches in which to feed contexts of `length` tokens, at the least total cost.

    A stretch from p to q costs q − p tokens for each distinct beginning of q tokens, plus the call.
    """
    distinct = np.searchsorted(np.sort(differs_at), np.arange(length + 1))  # [n]: distinct beginnings of n tokens
    cost, before = np.zeros(length + 1), np.zeros(length + 1, int)
    for end in range(1, length + 1):
        costs = cost[:end] + (end - np.arange(end)) * distinct[end] + CALL_COST_TOKENS
        before[end] = costs.argmin()
        cost[end] = costs[before[end]]
    ends = [length]
    while before[ends[-1]]:
        ends.append(int(before[ends[-1]]))
    return ends[::-1]


def _move_rows(inputs: dict[str, Any], sources: torch.Tensor, targets: torch.Tensor, left: int) -> None:
    """Copy rows `sources` of everything that has rows over rows `targets`, then keep the first `left` rows."""
    index = torch.arange(left, device=sources.device)
    index[targets] = sources
    cache = inputs["past_key_values"]
    caches = [cache.self_attention_cache, cache.cross_attention_cache] if "encoder_outputs" in inputs else [cache]
    for layer in (layer for part in caches for layer in part.layers):
        if isinstance(layer, PreallocatedCacheLayer):
            layer.move_rows(sources, targets, left)
        else:
            layer.reorder_cache(index)
    if "encoder_outputs" in inputs:
        encoded = inputs["encoder_outputs"]
        inputs["encoder_outputs"] = type(encoded)(last_hidden_state=encoded.last_hidden_state[index])
