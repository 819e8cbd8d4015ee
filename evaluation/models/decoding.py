"""Presets of decoding arguments for transformers' `generate`, and checks of arguments that override a preset."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from evenhand.evaluation.errors import InputError, unknown_name

# Arguments with which the model's unmodified distribution is drawn from; without them, `generate` takes a top_k of 50.
UNMODIFIED: Mapping[str, float] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "sample": {"do_sample": True, **UNMODIFIED, "max_new_tokens": 40},
    # Smith et al. 2022, A.4, DialoGPT (BlenderBot 2.0: num_beams 3). max_new_tokens is our choice.
    "paper": {
        "do_sample": False,
        "num_beams": 10,
        "min_new_tokens": 20,
        "no_repeat_ngram_size": 3,
        "max_new_tokens": 80,
    },
}

# Arguments whose effect on a token depends on scores only. With these arguments, contexts of all lengths share a batch;
# with the others, whose effect depends on the tokens of the same row too, contexts of equal length.
SCORE_ARGUMENTS = {
    "do_sample",
    "max_new_tokens",
    "min_p",
    "num_beams",
    "stop_strings",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
}

# Limits above all models and hardware: a number beyond them would only hang, or fill the memory.
MAX_TOKENS = 1 << 20
MAX_BEAMS = 100
_Count = Annotated[int, Field(ge=0, lt=2**31)]
_Positive = Annotated[float, Field(ge=1e-4, allow_inf_nan=False)]
_PositiveFraction = Annotated[_Positive, Field(le=1)]
_Text = Annotated[str, Field(min_length=1)]


class _Arguments(BaseModel, extra="forbid", strict=True):
    """The supported arguments of `generate`, with types and ranges, which `generate` does not check."""

    do_sample: bool = False
    max_new_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = 1
    temperature: _Positive = 1.0
    top_k: _Count = 0
    top_p: _PositiveFraction = 1.0
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    typical_p: _PositiveFraction | None = None
    min_new_tokens: _Count | None = None
    num_beams: Annotated[int, Field(ge=1, le=MAX_BEAMS)] | None = None
    early_stopping: bool | Literal["never"] | None = None
    length_penalty: Annotated[float, Field(allow_inf_nan=False)] | None = None
    no_repeat_ngram_size: _Count | None = None
    repetition_penalty: _Positive | None = None
    suppress_tokens: Annotated[list[_Count], Field(min_length=1)] | None = None
    stop_strings: _Text | Annotated[list[_Text], Field(min_length=1)] | None = None


def decoding_arguments(preset: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments of `generate` for a named preset, updated with `overrides`.

    One argument differs from `generate`: `no_repeat_ngram_size` blocks n-grams "within the response but not the
    context" (Smith et al. 2022, A.4) for every kind of model.

    InputError if the preset or an argument is unknown, or a value has the wrong type or is out of range.

    >>> decoding_arguments("sample", {"temperature": 0.7})["temperature"]
    0.7
    """
    if preset not in PRESETS:
        raise unknown_name("decoding", preset, PRESETS)
    overrides = overrides or {}
    for name in overrides.keys() - _Arguments.model_fields.keys():
        raise unknown_name("decoding", name, _Arguments.model_fields)
    chosen = {**PRESETS[preset], **overrides}
    if chosen["do_sample"]:
        chosen = {**UNMODIFIED, **chosen}
    else:  # `generate` logs a warning at every batch if it gets the preset's sampling arguments
        unused = UNMODIFIED.keys() - overrides.keys()
        chosen = {name: value for name, value in chosen.items() if name not in unused}
    try:
        checked = _Arguments(**chosen).model_dump(exclude_unset=True)
    except ValidationError as error:
        problem = error.errors()[-1]
        name, *index = map(str, problem["loc"])
        where = f" ({'.'.join(index)})" if index else ""
        raise InputError("decoding", f"{name} is {chosen[name]!r}{where}: {problem['msg']}.") from None
    fewest = chosen.get("min_new_tokens") or 0
    most = chosen["max_new_tokens"]
    if fewest > most:
        raise InputError("decoding", f"min_new_tokens is {fewest}; it must be at most max_new_tokens, which is {most}.")
    return {name: checked[name] for name in chosen}  # floats for integers, which `generate` rejects


def arguments_of_part(arguments: Mapping[str, Any], tokens: range) -> dict[str, Any]:
    """Return decoding arguments that generate some tokens of a response, by their positions in the response.

    >>> arguments_of_part({"max_new_tokens": 40, "min_new_tokens": 20}, range(4, 40))
    {'max_new_tokens': 36, 'min_new_tokens': 16}
    """
    limits = {"max_new_tokens": len(tokens)}
    if arguments.get("min_new_tokens"):
        limits["min_new_tokens"] = min(max(0, arguments["min_new_tokens"] - tokens.start), len(tokens))
    return {**arguments, **limits}


def check_no_beams(arguments: Mapping[str, Any]) -> None:
    """Raise InputError if the arguments of `generate` have beams, with which PEFT activates no adapter."""
    beams = arguments.get("num_beams") or 1
    if beams > 1:
        raise InputError("decoding.num_beams", f"{beams}; an activated adapter needs 1, or another preset of decoding.")
