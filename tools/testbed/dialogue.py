"""The testbed's dialogue model: a small GPT-2, trained on the exact expectations of the grammar."""

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pandas as pd
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from evenhand.evaluation import columns
from tools.testbed import grammar
from tools.testbed.corpus import POSITIONS, Answers, Batch, batches, draw_answers, tokenized_grammar, training_rows
from tools.testbed.steps import small_gpt2, take_steps

# (contexts, factor on the planted effects, share of parroting). In the first stage, effects and parroting are
# exaggerated, so that the model learns to depend on the descriptor and to copy; in the second, it learns the amounts.
DIALOGUE_STAGES = ((40_000, 2.0, 0.2), (110_000, 1.1, 0.01))
DIALOGUE_BATCH = 32
DIALOGUE_RATE = 3e-3
DIALOGUE_WARM_UP = 100
# The first token determines most of a response's style, so its loss has the weight of this many other tokens.
FIRST_TOKEN_WEIGHT = 4.0


def train_dialogue_model(
    tokenizer: PreTrainedTokenizerFast, prompts: pd.DataFrame, personas: Sequence[str], seed: int
) -> GPT2LMHeadModel:
    """Return a GPT-2 of 0.65 M parameters, trained by cross-entropy to the exact expectations of the grammar."""
    model = small_gpt2(
        tokenizer,
        POSITIONS,
        width=96,
        layers=3,
        bos_token_id=tokenizer.eos_token_id,  # as in DialoGPT, contexts end with EOS
        activation="gelu_pytorch_tanh",
    )
    steps = sum(-(-n // DIALOGUE_BATCH) for n, _, _ in DIALOGUE_STAGES)
    stream = DataLoader(_Batches(tokenizer, prompts, personas, seed), batch_size=None, num_workers=1)
    take_steps(model, (_dialogue_loss(model, batch) for batch in stream), steps, DIALOGUE_RATE, DIALOGUE_WARM_UP)
    return model.eval()


class _Batches(IterableDataset):
    """The training batches of all stages, prepared by a separate process during training."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, prompts: pd.DataFrame, personas: Sequence[str], seed: int
    ) -> None:
        self.tokenizer = tokenizer
        self.prompts = prompts
        self.personas = personas
        self.seed = seed

    def __iter__(self) -> Iterator[Batch]:
        answers = tokenized_grammar(self.tokenizer)
        rng = np.random.default_rng(self.seed)
        for n, amplification, parroting in DIALOGUE_STAGES:
            rows = training_rows(self.prompts, self.personas, n, parroting, rng)
            answer = partial(_answer, answers, amplification, rng)
            yield from batches(rows, self.tokenizer, answer, DIALOGUE_BATCH, rng)


def _answer(
    answers: Answers, amplification: float, rng: np.random.Generator, rows: pd.DataFrame
) -> list[tuple[list[int], Tensor]]:
    distribution = grammar.style_distribution(rows[columns.TEMPLATE], rows[columns.DESCRIPTOR], amplification)
    return draw_answers(answers, distribution, rows[columns.DESCRIPTOR].tolist(), rng)


def _dialogue_loss(model: GPT2LMHeadModel, batch: Batch) -> Tensor:
    """Return the mean cross-entropy to the expected distributions; first tokens weigh FIRST_TOKEN_WEIGHT."""
    weights = 1 + (FIRST_TOKEN_WEIGHT - 1) * batch.first
    states = model.transformer(input_ids=batch.token_ids).last_hidden_state[batch.row, batch.column]
    losses = nn.functional.cross_entropy(model.lm_head(states), batch.expected, reduction="none")
    return (weights * losses).sum() / weights.sum()
