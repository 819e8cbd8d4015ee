"""Rows as token ids: the very tokens of generation, so that a model is tuned on what it will see.

A context is encoded as it is for generation and a response apart from it, as it comes about token by token. TRL would
encode both as one string, with special tokens of its own (a second BOS after a chat template's), and takes ten times
as long.
"""

from collections.abc import Sequence
from functools import partial

from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts, encode_responses
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.data import CONTEXT

PROMPT, COMPLETION = "prompt", "completion"


def check_columns(rows: Dataset, *columns: str) -> None:
    """Refuse rows without one of the columns, and no rows at all.

    Raises:
        InputError: as said.
    """
    for name in columns:
        if name not in rows.column_names:
            raise InputError(f"rows: no column {name!r}; there are {', '.join(rows.column_names) or 'none'}.")
    if not len(rows):
        raise InputError("rows: there are none to train or to validate on.")


def prompt_ids(base: DialogueModel, rows: Dataset) -> list[list[int]]:
    """Return the token ids of each row's prompt, where the base thinks before it answers with no thought.

    Raises:
        InputError: two prompts that differ are the same to the tokenizer.
    """
    distinct = list(dict.fromkeys(rows[PROMPT]))
    tokens_of = dict(zip(distinct, encode_contexts(base, close_reasoning(distinct)), strict=True))
    if len({tuple(tokens) for tokens in tokens_of.values()}) < len(distinct):
        raise InputError(
            f"model: to the tokenizer of {base.name} some prompts that differ are the same, perhaps in their control "
            "tag; it has no tokens for them, so they cannot be told apart in tuning."
        )
    return [tokens_of[prompt] for prompt in rows[PROMPT]]


def shared_tag_words(base: DialogueModel, tags: Sequence[str], rows: Dataset) -> list[str]:
    """Return those of the tags' tokens, as text, that the rows have elsewhere too: their embeddings move there as well.

    A tokenizer without a token of its own for " no_bias" writes it as " no", "_" and "bias".
    """
    if not tags:
        return []
    encode = partial(base.tokenizer, add_special_tokens=False)
    texts = list(dict.fromkeys([*rows[CONTEXT], *rows[COMPLETION]]))
    of_tags, of_rows = (set().union(*encode(list(one))["input_ids"]) for one in (tags, texts))
    return [base.tokenizer.decode([token]) for token in sorted(of_tags & of_rows)]


def response_ids(base: DialogueModel, rows: Dataset, column: str, prompts: list[list[int]]) -> list[list[int]]:
    """Return the token ids of each row's response in `column`, ended by EOS.

    Raises:
        InputError: a response with its prompt is too long for the model.
    """
    responses = encode_responses(base, list(rows[column]))
    room = getattr(base.model.config, "max_position_embeddings", None)
    apart = base.kind == "encoder_decoder"
    longest = max(
        max(len(prompt), len(response)) if apart else len(prompt) + len(response)
        for prompt, response in zip(prompts, responses, strict=True)
    )
    if room is not None and longest > room:
        raise InputError(f"rows: one has {longest} tokens, {base.name} has room for {room}; leave such rows out.")
    return responses
