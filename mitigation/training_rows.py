"""Training rows of a method, split into training and validation rows by context, and their token ids.

Contexts are encoded as for generation, and responses have the ids in which the model wrote them. TRL would encode both
as one string with additional special tokens (a second BOS after the chat template's), and takes ten times as long.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import max_positions
from evenhand.evaluation.models.contexts import close_reasoning, encode_contexts, encode_responses
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.labelled_responses import (
    COMPLETION,
    COMPLETION_CUT,
    COMPLETION_IDS,
    CONTEXT,
    PROMPT,
    ContextRenderer,
)
from evenhand.mitigation.methods import TrainedMethod

HALF_CHARACTER = "\ufffd"  # what some bytes of a character decode to


@dataclass(frozen=True, kw_only=True)
class TrainingRows:
    """The training rows of a method, and its validation rows."""

    method: TrainedMethod
    train: Dataset
    validation: Dataset


def training_rows(
    method: TrainedMethod,
    labelled: pd.DataFrame,
    render: ContextRenderer,
    *,
    seed: int = 0,
    validation_fraction: float = 0.05,
    max_rows: int | None = None,
) -> TrainingRows:
    """Return the rows of a method on labelled responses, split into training and validation rows.

    Raises:
        InputError: see `hold_out`; the labelled responses give no row.
    """
    rows = method.rows(labelled, render)
    train, validation = hold_out(rows, validation_fraction, seed, max_rows)
    return TrainingRows(method=method, train=train, validation=validation)


def hold_out(rows: Dataset, fraction: float, seed: int, max_rows: int | None = None) -> tuple[Dataset, Dataset]:
    """Return (training rows, validation rows), which have no context in common.

    At most `max_rows` rows are used, sampled by `seed`. Contexts are held out in an order shuffled by `seed`, until
    their rows make up `fraction` of all rows.

    Raises:
        InputError: the rows have fewer than two distinct contexts.
    """
    if max_rows is not None and max_rows < len(rows):
        rows = rows.select(np.sort(np.random.default_rng(seed).permutation(len(rows))[:max_rows]))
    contexts, context_number, sizes = np.unique(list(rows[CONTEXT]), return_inverse=True, return_counts=True)
    if len(contexts) < 2:
        raise InputError(
            "rows", f"{len(contexts)} distinct contexts; a split into training and validation rows needs 2."
        )
    order = np.random.default_rng(seed).permutation(len(contexts))
    n_held_out = 1 + np.searchsorted(np.cumsum(sizes[order]), fraction * len(rows))
    held_out = np.isin(context_number, order[: min(n_held_out, len(contexts) - 1)])
    return rows.select(np.flatnonzero(~held_out)), rows.select(np.flatnonzero(held_out))


def rows_sha256(*datasets: Dataset) -> str:
    """Return the SHA-256 of all column values of the data sets."""
    digest = hashlib.sha256()
    for rows in datasets:
        for column in rows.column_names:
            digest.update(json.dumps(list(rows[column])).encode())
    return digest.hexdigest()


def prompt_ids(base: DialogueModel, prompts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of prompts, with an empty reasoning section for reasoning models.

    Raises:
        InputError: the tokenizer encodes different prompts as the same tokens.
    """
    distinct = list(dict.fromkeys(prompts))
    encoded = encode_contexts(base, close_reasoning(distinct, base.reasoning))
    if len({tuple(tokens) for tokens in encoded}) < len(distinct):
        raise InputError(
            "model",
            f"the tokenizer of {base.name} encodes different prompts as the same tokens, perhaps because it has "
            "no tokens for the control tag; use another model or a method without tags.",
        )
    tokens = dict(zip(distinct, encoded, strict=True))
    return [tokens[prompt] for prompt in prompts]


def trained_texts(rows: Dataset) -> tuple[list[str], list[bool]]:
    """Return the text of each row's response that training uses, and whether max_new_tokens ended the response.

    A cut response loses half a character at its end, which decodes to U+FFFD.
    """
    is_cut = list(rows[COMPLETION_CUT]) if COMPLETION_CUT in rows.column_names else [False] * len(rows)
    texts = []
    for text, cut in zip(rows[COMPLETION], is_cut, strict=True):
        whole = text.rstrip(HALF_CHARACTER)
        texts.append(whole if cut and whole else text)
    return texts, is_cut


def response_ids(base: DialogueModel, rows: Dataset, prompts: list[list[int]]) -> list[list[int]]:
    """Return the token ids of each row's response: those in which the base wrote it, if they are known, with its end.

    A response that max_new_tokens ended (see `trained_texts`) has no end: otherwise the model would learn to end there.

    Raises:
        InputError: a prompt with its response is too long for the model.
    """
    texts, is_cut = trained_texts(rows)
    written: list[list[int] | None] = [None] * len(rows)
    if COMPLETION_IDS in rows.column_names:
        written = list(rows[COMPLETION_IDS])
    for row, ids in enumerate(written):
        if ids and is_cut[row]:
            written[row] = _whole_characters(base, ids)
    contexts = close_reasoning(list(rows[PROMPT]), base.reasoning)
    responses = encode_responses(base, contexts, texts, written, is_cut)
    lengths = [(len(prompt), len(response)) for prompt, response in zip(prompts, responses, strict=True)]
    # An encoder-decoder model reads the prompt and the response apart.
    needed = max if base.kind == "encoder_decoder" else sum
    longest = max(needed(pair) for pair in lengths)
    limit = max_positions(base.model.config)
    if longest > limit:
        raise InputError(
            "rows", f"a row has {longest} tokens, and the context of {base.name} has {limit}; leave out such rows."
        )
    return responses


def _whole_characters(base: DialogueModel, ids: list[int]) -> list[int]:
    """Return the ids of a cut response without the bytes of a character that it does not finish."""
    for n_kept in range(len(ids), 0, -1):
        text = str(base.tokenizer.decode(ids[:n_kept], skip_special_tokens=True))
        if not text.endswith(HALF_CHARACTER):
            return ids[:n_kept]
    return ids


@dataclass(frozen=True)
class ReadDialogue:
    """Responses whose perplexity is computed, n each.

    Attributes:
        contexts: rendered contexts.
        responses: the texts of the responses.
        written: the token ids in which they were written, None where they are unknown; None: all are unknown.
        is_cut: whether max_new_tokens ended each response; None: no response.
    """

    contexts: Sequence[str]
    responses: Sequence[str]
    written: Sequence[object] | None = None
    is_cut: Sequence[bool] | None = None


def dialogue_of(rows: Dataset, column: str) -> ReadDialogue:
    """Return rows as dialogue with the contexts in a column (PROMPT or CONTEXT), in the token ids that are trained."""
    texts, is_cut = trained_texts(rows)
    written = list(rows[COMPLETION_IDS]) if COMPLETION_IDS in rows.column_names else None
    return ReadDialogue(contexts=list(rows[column]), responses=texts, written=written, is_cut=is_cut)


def token_ids(base: DialogueModel, texts: Iterable[str]) -> set[int]:
    """Return the distinct token ids of texts, without special tokens."""
    ids: set[int] = set()
    for text in texts:
        ids.update(base.tokenizer(text, add_special_tokens=False)["input_ids"])
    return ids
