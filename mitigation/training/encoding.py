"""Training rows as token ids, equal to the tokens of generation.

Contexts are encoded as for generation, and responses separately, since they are generated token by token. TRL would
encode both as one string with additional special tokens (a second BOS after the one of a chat template), and takes ten
times as long.
"""

import math
from collections.abc import Iterable, Sequence

from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts, encode_responses
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.training.data import CONTEXT

PROMPT, COMPLETION = "prompt", "completion"


def check_columns(rows: Dataset, *columns: str) -> None:
    """Raise InputError if a column is missing or there are no rows."""
    for name in columns:
        if name not in rows.column_names:
            raise InputError(f"rows: no column {name!r}; the columns are {', '.join(rows.column_names) or 'none'}.")
    if not len(rows):
        raise InputError("rows: the training or validation rows are empty; label more responses.")


def prompt_ids(base: DialogueModel, rows: Dataset) -> list[list[int]]:
    """Return the token ids of each row's prompt, with an empty reasoning section for reasoning models.

    Raises:
        InputError: the tokenizer encodes different prompts as the same tokens.
    """
    distinct = list(dict.fromkeys(rows[PROMPT]))
    tokens_of = dict(zip(distinct, encode_contexts(base, close_reasoning(distinct)), strict=True))
    if len({tuple(tokens) for tokens in tokens_of.values()}) < len(distinct):
        raise InputError(
            f"model: the tokenizer of {base.name} encodes different prompts as the same tokens, perhaps because it has "
            "no tokens for the control tag; use another model or a method without tags."
        )
    return [tokens_of[prompt] for prompt in rows[PROMPT]]


def shared_tag_words(base: DialogueModel, tags: Sequence[str], rows: Dataset) -> list[str]:
    """Return the tokens, as text, that both the tags and the rows contain: training changes their embeddings.

    A tokenizer without a token for " no_bias" encodes it as " no", "_" and "bias".
    """
    if not tags:
        return []
    texts = dict.fromkeys([*rows[CONTEXT], *rows[COMPLETION]])
    shared = token_ids(base, tags) & token_ids(base, texts)
    return [base.tokenizer.decode([token_id]) for token_id in sorted(shared)]


def token_ids(base: DialogueModel, texts: Iterable[str]) -> set[int]:
    """Return the distinct token ids of texts, without special tokens."""
    texts = list(texts)
    return set().union(*base.tokenizer(texts, add_special_tokens=False)["input_ids"]) if texts else set()


def max_positions(base: DialogueModel) -> float:
    """Return the maximum number of tokens of the model; infinity if its config has none."""
    limit = getattr(base.model.config, "max_position_embeddings", None)
    return math.inf if limit is None else limit


def response_ids(base: DialogueModel, rows: Dataset, column: str, prompts: list[list[int]]) -> list[list[int]]:
    """Return the token ids of each row's response in `column`, with EOS at the end.

    Raises:
        InputError: a prompt with its response is too long for the model.
    """
    responses = encode_responses(base, list(rows[column]))
    is_encoder_decoder = base.kind == "encoder_decoder"
    longest = max(
        max(len(prompt), len(response)) if is_encoder_decoder else len(prompt) + len(response)
        for prompt, response in zip(prompts, responses, strict=True)
    )
    if longest > (limit := max_positions(base)):
        raise InputError(
            f"rows: a row has {longest} tokens, and the context of {base.name} has {limit}; leave out such rows."
        )
    return responses
