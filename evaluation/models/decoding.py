"""How a model answers, as arguments of `generate`: presets, and what may be given over them, checked."""

import math
import sys
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from transformers import GenerationConfig

from evenhand.evaluation.errors import InputError, unknown_name

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # The model's own distribution, unshaped: what a bias of its responses is a property of.
        "sample": {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 40},
        # Paper 002, A.4, as for DialoGPT (BlenderBot 2.0: num_beams 3). The paper gives no maximum; this is ours.
        "paper": {
            "do_sample": False,
            "num_beams": 10,
            "min_new_tokens": 20,
            "no_repeat_ngram_size": 3,
            "max_new_tokens": 80,
        },
    }
)

# Arguments that shape a token's probabilities from the scores alone: with them, contexts of all lengths share a batch.
FROM_SCORES_ALONE = {
    "do_sample",
    "epsilon_cutoff",
    "eta_cutoff",
    "max_new_tokens",
    "min_p",
    "num_beams",
    "remove_invalid_values",
    "renormalize_logits",
    "stop_strings",
    "suppress_tokens",
    "temperature",
    "top_h",
    "top_k",
    "top_p",
    "typical_p",
}
# Arguments that look at a row's own tokens too: with them, contexts of equal length share a batch. What is in neither
# list may hold a tensor with an entry for every row, or another model's cache: a batch is one row.
FROM_ROW_ALONE = FROM_SCORES_ALONE | {
    "bad_words_ids",
    "begin_suppress_tokens",
    "exponential_decay_length_penalty",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "sequence_bias",
}

# Fields of GenerationConfig that say how `generate` computes or what it returns, not which response is given, and
# those whose result would depend on the machine (max_time) or on the context's length (max_length, min_length).
_NOT_DECODING = (
    "assistant_",
    "bos_token_id",
    "cache_",
    "compile_config",
    "continuous_batching_config",
    "decoder_start_token_id",
    "disable_compile",
    "eos_token_id",
    "is_assistant",
    "low_memory",
    "max_cache_len",
    "max_length",
    "max_matching_ngram_size",
    "max_time",
    "min_length",
    "num_assistant_tokens",
    "num_return_sequences",
    "output_",
    "pad_token_id",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "return_dict_in_generate",
    "speculation_type",
    "target_lookbehind",
    "token_healing",
    "transformers_version",
    "use_cache",
    "use_mtp",
    "_",
)
# What earlier versions of `generate` decoded by, or other ways of decoding; nothing here would look at them.
_NOT_USED = ("constraints", "diversity_penalty", "dola_layers", "force_words_ids", "num_beam_groups", "penalty_alpha")

_Range = tuple[type, float, float | None]
_RANGES: Mapping[str, _Range] = MappingProxyType(
    {
        "do_sample": (bool, False, True),
        "max_new_tokens": (int, 1, None),
        "min_new_tokens": (int, 0, None),
        "num_beams": (int, 1, None),
        "no_repeat_ngram_size": (int, 0, None),
        "encoder_no_repeat_ngram_size": (int, 0, None),
        "temperature": (float, 1e-4, None),
        "top_k": (int, 0, None),
        "top_p": (float, 1e-4, 1),
        "min_p": (float, 0, 1),
        "top_h": (float, 1e-4, 1),
        "typical_p": (float, 1e-4, 1),
        "epsilon_cutoff": (float, 0, 1),
        "eta_cutoff": (float, 0, 1),
        "repetition_penalty": (float, 1e-4, None),
        "encoder_repetition_penalty": (float, 1e-4, None),
        "length_penalty": (float, -math.inf, None),
        "guidance_scale": (float, -math.inf, None),
        "remove_invalid_values": (bool, False, True),
        "renormalize_logits": (bool, False, True),
    }
)
# What holds token ids, and how it is written.
_TOKEN_IDS: Mapping[str, str] = MappingProxyType(
    {
        "suppress_tokens": "a list of token ids",
        "begin_suppress_tokens": "a list of token ids",
        "bad_words_ids": "a list of lists of token ids",
        "sequence_bias": "a list of pairs, a list of token ids and a number",
    }
)


def decoding(preset: str = "sample", **overrides: Any) -> dict[str, Any]:
    """Return the arguments of `generate` for a named preset, changed by `overrides`.

    Any field of `transformers.GenerationConfig` that shapes the response may be given. One differs from `generate`:
    `no_repeat_ngram_size` blocks n-grams "within the response but not the context" (paper 002, A.4) for every kind
    of model.

    Raises:
        InputError: the preset or an argument is unknown, or a value out of range.

    >>> decoding("sample", temperature=0.7)["temperature"]
    0.7
    """
    if preset not in PRESETS:
        raise unknown_name("decoding", preset, PRESETS)
    allowed = [name for name in vars(GenerationConfig()) if not name.startswith(_NOT_DECODING)]
    for name in overrides:
        if name not in allowed:
            raise unknown_name("decoding", name, allowed)
        if name in _NOT_USED:
            raise InputError(f"decoding: {name} would be passed over: no decoding here has it; leave it out.")
    chosen = {**PRESETS[preset], **overrides}
    if not chosen["do_sample"]:  # `generate` warns of the preset's sampling arguments at every batch
        chosen = {
            name: chosen[name] for name in chosen if name in overrides or name not in ("temperature", "top_k", "top_p")
        }
    for name in chosen:
        if name in _RANGES and (chosen[name] is not None or name in PRESETS["sample"]):
            _check_range(name, chosen[name], *_RANGES[name])
    if chosen.get("min_new_tokens"):
        _check_range("min_new_tokens", chosen["min_new_tokens"], int, 0, chosen["max_new_tokens"])
    _check_lists(chosen)
    try:
        GenerationConfig(**chosen)
    except (ValueError, TypeError) as error:
        raise InputError(f"decoding: {error}") from None
    return chosen


def check_token_ids(decoding: Mapping[str, Any], vocabulary: int) -> None:
    """Raise an InputError if an argument of `generate` names a token that a model of so many tokens does not have."""
    for name in (name for name in _TOKEN_IDS if decoding.get(name) is not None):
        unknown = [token for token in _token_ids(name, decoding[name]) if not 0 <= token < vocabulary]
        if unknown:
            raise InputError(f"decoding: {name} has the token id {unknown[0]}; the model has 0 to {vocabulary - 1}.")


def _token_ids(name: str, value: Any) -> Iterator[int]:
    """Yield the token ids in an argument's value; raises TypeError or ValueError where it is not of its form."""
    if name == "sequence_bias":
        pairs = list(value.items() if isinstance(value, Mapping) else value)
        if not all(_is_finite(bias) for _, bias in pairs):
            raise TypeError
        value = [ids for ids, _ in pairs]
    for ids in [value] if name.endswith("suppress_tokens") else value:
        if isinstance(ids, str) or not len(ids) or any(type(token) is not int for token in ids):
            raise TypeError
        yield from ids


def _check_lists(chosen: Mapping[str, Any]) -> None:
    for name, form in _TOKEN_IDS.items():
        value = chosen.get(name)
        try:
            if value is not None and not list(_token_ids(name, value)):
                raise ValueError
        except (TypeError, ValueError):
            raise InputError(f"decoding: {name} is {value!r}; it must be {form}.") from None
    strings = chosen.get("stop_strings")
    listed = [strings] if isinstance(strings, str) else strings
    if strings is not None and not (
        isinstance(listed, list) and listed and all(isinstance(one, str) and one for one in listed)
    ):
        raise InputError(f"decoding: stop_strings is {strings!r}; it must be a text or a list of texts, none empty.")
    decay = chosen.get("exponential_decay_length_penalty")
    if decay is not None and not (
        isinstance(decay, (list, tuple)) and len(decay) == 2 and type(decay[0]) is int and _is_finite(decay[1])
    ):
        raise InputError(
            f"decoding: exponential_decay_length_penalty is {decay!r}; it must be two numbers, the token where it "
            "begins and the factor."
        )


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _check_range(name: str, value: Any, type_: type, least: float, most: float | None) -> None:
    types = (int, float) if type_ is float else type_
    is_typed = isinstance(value, types) and isinstance(value, bool) == (type_ is bool)
    is_typed = is_typed and abs(value) <= sys.float_info.max
    if is_typed and least <= value and (most is None or value <= most):
        return
    wanted = "true or false"
    if type_ is not bool:
        wanted = "a number" if type_ is float else "an integer"
        wanted += f" from {least}" * math.isfinite(least) + (f" to {most}" if most else "")
    raise InputError(f"decoding: {name} is {value!r}; it must be {wanted}.")
