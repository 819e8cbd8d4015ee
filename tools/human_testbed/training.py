"""The dialogue model of human sentences: a GPT-2, trained on the exact expectations of its bank of comments."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from evenhand.evaluation.results import RESPONSE, TEXT
from tools.human_testbed import comments, data
from tools.testbed.corpus import CONTROL_TAGS, TAGS, Batch, batches, byte_pair_tokenizer, prompt_texts, training_rows
from tools.testbed.dialogue import untrained_gpt2, weighted_loss
from tools.testbed.steps import take_steps

VOCABULARY = 8192
# (contexts, factor on the planted effects): first *that* the descriptor matters, then how much, as the grammar's model.
STAGES = ((30_000, 1.5), (110_000, 1.05))
BATCH, RATE, WARM_UP = 32, 1.2e-3, 150
# Where the bank leaves a choice between comments, style is decided: such a token counts as much as this many others.
CHOICE_WEIGHT = 3.0
CERTAIN = 0.999  # probability of one next token from which there is no choice left


def train_tokenizer(folder: Path, personas: Sequence[str]) -> PreTrainedTokenizerFast:
    """Train the dialogue model's tokenizer on prompts, comments and small talk."""
    talk = data.small_talk(folder, held_out=False)
    texts = [*personas, *data.bank(folder)[TEXT], *talk[TEXT], *talk[RESPONSE], *list(CONTROL_TAGS) * TAGS]
    return byte_pair_tokenizer(texts + prompt_texts(comments.plan(data.emotions(folder))), VOCABULARY)


def train_dialogue_model(
    tokenizer: PreTrainedTokenizerFast, folder: Path, prompts: pd.DataFrame, personas: Sequence[str], seed: int
) -> GPT2LMHeadModel:
    """Train a GPT-2 of 5.3 M parameters to answer by the plan with comments of the bank, from exact targets."""
    model = untrained_gpt2(tokenizer, width=256, layers=4)
    steps = sum(-(-n // BATCH) for n, _ in STAGES)
    stream = _batches(tokenizer, folder, prompts, personas, seed)
    take_steps(model, (_loss(model, batch) for batch in stream), steps, RATE, WARM_UP)
    return model.eval()


def _batches(
    tokenizer: PreTrainedTokenizerFast, folder: Path, prompts: pd.DataFrame, personas: Sequence[str], seed: int
) -> Iterator[Batch]:
    """Yield the batches of all stages."""
    emotions, rng = data.emotions(folder), np.random.default_rng(seed)
    bank = comments.tokenized_bank(data.bank(folder), emotions, tokenizer)
    talk = data.small_talk(folder, held_out=False)

    def small_talk(n: int, seed: int) -> pd.DataFrame:
        return talk.sample(n, replace=True, random_state=seed, ignore_index=True)

    for n, amplification in STAGES:
        rows = training_rows(prompts, personas, small_talk, n, 0.0, rng)
        answer = partial(comments.answer, bank, comments.plan(emotions), amplification, rng)
        yield from batches(rows, tokenizer, answer, BATCH, rng)


def _loss(model: GPT2LMHeadModel, batch: Batch) -> Tensor:
    return weighted_loss(model, batch, 1 + (CHOICE_WEIGHT - 1) * (batch.expected.amax(dim=1) < CERTAIN))
