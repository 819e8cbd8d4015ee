"""The tokens from which on an activated adapter acts, cut from encoded contexts."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.activation import last_occurrence
from evenhand.evaluation.models.batches import common_prefix_length
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.labelled_responses import CONTEXT, PROMPT
from evenhand.mitigation.training_rows import prompt_ids


def tag_tokens(base: DialogueModel, rows: Dataset) -> list[int]:
    """Return the tokens that the control tag adds to the contexts of a method's rows.

    They are cut from encoded contexts, because a tokenizer may merge the tag with the text around it: `prompt` of a row
    has the tag, and `context` has not.

    Raises:
        InputError: the tag adds other tokens to some contexts than to others, so that no tokens could be looked for.
    """
    tagged = prompt_ids(base, rows[PROMPT])
    untagged = prompt_ids(base, rows[CONTEXT])
    added = {tuple(added_tokens(short, long)) for short, long in zip(untagged, tagged, strict=True)}
    tokens = max(added, key=len)
    if len(added) > 1 or not tokens:
        raise InputError(
            "model",
            f"the tokenizer of {base.name} encodes the control tag differently at the end of different contexts; "
            "give control_tags.targets labels, or another method.",
        )
    return list(tokens)


def added_tokens(short: Sequence[int], long: Sequence[int]) -> list[int]:
    """Return the tokens of `long` between the beginning and the end that both sequences have in common.

    >>> added_tokens([1, 2, 9], [1, 2, 7, 8, 9])
    [7, 8]
    """
    start = common_prefix_length(short, long)
    end = common_prefix_length(short[start:][::-1], long[start:][::-1])
    return list(long[start : len(long) - end])


def check_invocation(base: DialogueModel, encoded: Dataset, tokens: Sequence[int]) -> None:
    """Check that an adapter that acts from these tokens on starts in the context of each encoded row.

    Raises:
        InputError: a context lacks the tokens, or a response has them, where the adapter would start anew.
    """
    for row in cast(Iterable[Mapping[str, list]], encoded):
        sequences = row.get("trained_ids") or [row["input_ids"]]
        n_response = sum(label >= 0 for label in row["labels"])
        for ids in sequences:
            n_context = len(ids) - n_response
            start = last_occurrence(ids, tokens)
            if start is None or start + len(tokens) > n_context:
                where = "no context" if start is None else "a response"
                text = base.tokenizer.decode(list(tokens))
                raise InputError(
                    "rows", f"the adapter would act after {text!r}, which {where} has; leave out such rows."
                )
