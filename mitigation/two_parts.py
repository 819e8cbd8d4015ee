"""Responses in two parts: the first tokens answer one prompt or come from one model, and the rest another."""

from collections.abc import Iterator

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.base import Model


def check_two_parts(model: Model, first_tokens: int) -> None:
    """Raise InputError if a model cannot continue an opening, or its responses would consist of the opening only."""
    if not model.can_be_asked:
        raise InputError("method", "a file cannot be continued; leave it out, or give a model.")
    limit = model.arguments["max_new_tokens"]
    if first_tokens >= limit:
        raise InputError("method", f"{first_tokens} tokens are all of a response (max_new_tokens {limit}).")


def respond_in_two_parts(
    opener: Model, opened: pd.DataFrame, model: Model, prompts: pd.DataFrame, first_tokens: int, tokens: range | None
) -> Iterator[pd.DataFrame]:
    """Yield responses to `prompts` by `model`, which begin with the first tokens of `opener`'s responses to `opened`.

    A response that ends within its opening is not continued.

    Args:
        opened: prompts with the same index as `prompts`.
        tokens: see `Model.respond`.
    """
    whole = range(model.arguments["max_new_tokens"]) if tokens is None else tokens
    first = whole[:first_tokens]
    rest = whole[first_tokens:]
    for openings in opener.respond(opened, first):
        is_unfinished = openings[columns.CUT].to_numpy(dtype=bool)
        if not is_unfinished.all():
            yield openings.loc[~is_unfinished]
        if is_unfinished.any():
            begun = openings.loc[is_unfinished]
            continued = prompts.loc[begun.index].copy()
            # A token may be a part of a character; its text is then U+FFFD.
            continued[columns.OPENING] = [text.rstrip("\ufffd") for text in begun[columns.RESPONSE]]
            if columns.RESPONSE_IDS in begun:
                continued[columns.OPENING_IDS] = begun[columns.RESPONSE_IDS]
            yield from model.respond(continued, rest)
