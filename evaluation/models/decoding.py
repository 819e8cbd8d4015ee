"""Presets of decoding arguments for transformers' `generate`, and checks of arguments that override a preset."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictFloat, StrictInt, StrictStr, ValidationError
from transformers import GenerationConfig

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.models.revisions import first_line

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Draw from the model's unmodified distribution.
        "sample": {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 40},
        # Smith et al. 2022, A.4, DialoGPT (BlenderBot 2.0: num_beams 3). The paper gives no max_new_tokens; 80 is our
        # choice.
        "paper": {
            "do_sample": False,
            "num_beams": 10,
            "min_new_tokens": 20,
            "no_repeat_ngram_size": 3,
            "max_new_tokens": 80,
        },
    }
)

# Arguments whose effect on a token depends on scores only. With these arguments, contexts of all lengths share a batch.
SCORE_ARGUMENTS = {
    *("do_sample", "epsilon_cutoff", "eta_cutoff", "max_new_tokens", "min_p"),
    *("num_beams", "remove_invalid_values", "renormalize_logits", "stop_strings", "suppress_tokens"),
    *("temperature", "top_h", "top_k", "top_p", "typical_p"),
}
# Arguments whose effect depends on the tokens of the same row too. With these arguments, contexts of equal length share
# a batch. With any other argument, a batch has one row, because the argument may be a tensor with an entry for every
# row, or another model's cache.
ROW_ARGUMENTS = SCORE_ARGUMENTS | {
    *("bad_words_ids", "begin_suppress_tokens", "exponential_decay_length_penalty", "min_new_tokens"),
    *("no_repeat_ngram_size", "repetition_penalty", "sequence_bias"),
}

_Count = Annotated[StrictInt, Field(ge=0)]
_Finite = Annotated[StrictFloat, Field(allow_inf_nan=False)]
_Positive = Annotated[_Finite, Field(ge=1e-4)]
_Fraction = Annotated[_Finite, Field(ge=0, le=1)]
_PositiveFraction = Annotated[_Positive, Field(le=1)]
_Text = Annotated[StrictStr, Field(min_length=1)]
_TokenIds = Annotated[list[StrictInt], Field(min_length=1)]


class _Arguments(BaseModel, extra="forbid"):
    """The arguments of `generate` that change a response, with types and ranges, which `generate` does not check."""

    do_sample: StrictBool = False
    max_new_tokens: Annotated[StrictInt, Field(ge=1)] = 1
    temperature: _Positive = 1.0
    top_k: _Count = 0
    top_p: _PositiveFraction = 1.0
    min_new_tokens: _Count | None = None
    num_beams: Annotated[StrictInt, Field(ge=1)] | None = None
    early_stopping: StrictBool | Literal["never"] | None = None
    no_repeat_ngram_size: _Count | None = None
    encoder_no_repeat_ngram_size: _Count | None = None
    min_p: _Fraction | None = None
    top_h: _PositiveFraction | None = None
    typical_p: _PositiveFraction | None = None
    epsilon_cutoff: _Fraction | None = None
    eta_cutoff: _Fraction | None = None
    repetition_penalty: _Positive | None = None
    encoder_repetition_penalty: _Positive | None = None
    length_penalty: _Finite | None = None
    guidance_scale: _Finite | None = None
    remove_invalid_values: StrictBool | None = None
    renormalize_logits: StrictBool | None = None
    suppress_tokens: _TokenIds | None = None
    begin_suppress_tokens: _TokenIds | None = None
    bad_words_ids: Annotated[list[_TokenIds], Field(min_length=1)] | None = None
    sequence_bias: Annotated[list[tuple[_TokenIds, _Finite]], Field(min_length=1)] | None = None
    stop_strings: _Text | Annotated[list[_Text], Field(min_length=1)] | None = None
    exponential_decay_length_penalty: tuple[StrictInt, _Finite] | None = None


def decoding(preset: str = "sample", **overrides: Any) -> dict[str, Any]:
    """Return the arguments of `generate` for a named preset, updated with `overrides`.

    One argument differs from `generate`: `no_repeat_ngram_size` blocks n-grams "within the response but not the
    context" (Smith et al. 2022, A.4) for every kind of model.

    InputError if the preset or an argument is unknown, or a value has the wrong type or is out of range.

    >>> decoding("sample", temperature=0.7)["temperature"]
    0.7
    """
    if preset not in PRESETS:
        raise unknown_name("decoding", preset, PRESETS)
    for name in overrides.keys() - _Arguments.model_fields.keys():
        raise unknown_name("decoding", name, _Arguments.model_fields)
    chosen = {**PRESETS[preset], **overrides}
    if not chosen["do_sample"]:  # `generate` logs a warning at every batch if it gets the preset's sampling arguments
        unused = {"temperature", "top_k", "top_p"} - overrides.keys()
        chosen = {name: value for name, value in chosen.items() if name not in unused}
    try:
        checked = _Arguments(**chosen).model_dump(exclude_unset=True)
        GenerationConfig(**chosen)
    except ValidationError as error:
        (name, *index), message = error.errors()[-1]["loc"], error.errors()[-1]["msg"]
        where = f" ({'.'.join(map(str, index))})" if index else ""
        raise InputError(f"decoding: {name} is {chosen[name]!r}{where}: {message}.") from None
    except (ValueError, TypeError) as error:
        raise InputError(f"decoding: {first_line(error)}") from None
    if (chosen.get("min_new_tokens") or 0) > chosen["max_new_tokens"]:
        n_min, n_max = chosen["min_new_tokens"], chosen["max_new_tokens"]
        raise InputError(f"decoding: min_new_tokens is {n_min}; it must be at most max_new_tokens, which is {n_max}.")
    # The library rejects an integer where it expects a float.
    return chosen | {name: value for name, value in checked.items() if isinstance(value, float)}
