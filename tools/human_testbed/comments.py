"""The bank of comments as a grammar: exact probabilities of comments as answers to a prompt, and the exact bias.

The dialogue model is a GPT-2 that is trained on the exact expectations of the bank.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from evenhand.evaluation.score import DESCRIPTOR, RESPONSE, TEMPLATE, TEXT, BiasScore
from evenhand.recipes.testbed.grammar import sample_columns
from evenhand.recipes.testbed.plan import Plan, exact_bias, read_plan, style_distribution
from tools.human_testbed import data
from tools.human_testbed.data import EMOTION
from tools.testbed.corpus import CONTROL_TAGS, TAGS, Batch, batches, byte_pair_tokenizer, prompt_texts, training_rows
from tools.testbed.dialogue import untrained_gpt2, weighted_loss
from tools.testbed.steps import take_steps

FOLDER = Path(__file__).parent
VOCABULARY = 8192
# (contexts, factor on the planted effects): first *that* the descriptor matters, then how much, as the grammar's model.
STAGES = ((30_000, 1.5), (110_000, 1.05))
BATCH, RATE, WARM_UP = 32, 1.2e-3, 150
# Where the bank leaves a choice between comments, style is decided: such a token counts as much as this many others.
CHOICE_WEIGHT = 3.0
CERTAIN = 0.999  # probability of one next token from which there is no choice left


@cache
def plan(emotions: tuple[str, ...]) -> Plan:
    """Return the planted bias over S emotions for the paper edition's templates and descriptors."""
    return read_plan(yaml.safe_load((FOLDER / "plan.yaml").read_text(encoding="utf-8")), emotions)


@dataclass(frozen=True)
class Bank:
    """K comments as tokens: `tokens` (K, L) end with the end-of-text token and are padded with it.

    `p_given_emotion` (S, K) is p(comment | emotion): the comments of an emotion are equally likely.
    """

    tokens: np.ndarray
    p_given_emotion: np.ndarray
    end: int
    vocabulary: int


def tokenized_bank(comments: pd.DataFrame, emotions: Sequence[str], tokenizer: PreTrainedTokenizerFast) -> Bank:
    """Return the comments (columns text, emotion) as a bank of tokens."""
    ids = tokenizer(comments[TEXT].tolist(), add_special_tokens=False)["input_ids"]
    tokens = np.full((len(ids), max(map(len, ids)) + 1), tokenizer.eos_token_id)
    for row, row_ids in zip(tokens, ids, strict=True):
        row[: len(row_ids)] = row_ids
    return Bank(tokens, p_given_emotion(comments, emotions), tokenizer.eos_token_id, len(tokenizer))


def p_given_emotion(comments: pd.DataFrame, emotions: Sequence[str]) -> np.ndarray:
    """Return p(comment | emotion) for S emotions and K comments, (S, K)."""
    has = np.array([comments[EMOTION] == emotion for emotion in emotions], dtype=float)
    return has / has.sum(axis=1, keepdims=True)


def sample_comments(bank: Bank, distribution: np.ndarray, rng: np.random.Generator) -> list[tuple[list[int], Tensor]]:
    """Return for each of n rows a sampled comment's token ids and the exact distribution of each next token.

    `distribution` (n, S) is p(emotion | row). The next-token distributions (length, vocabulary) are over all comments
    of the bank with the same beginning, weighted by p(comment | row).
    """
    likely = torch.from_numpy(distribution @ bank.p_given_emotion).float()
    tokens = torch.from_numpy(bank.tokens)
    sampled = torch.from_numpy(sample_columns(likely.double().numpy(), rng))
    expected = torch.zeros(len(likely), tokens.shape[1], bank.vocabulary)
    for j in range(tokens.shape[1]):
        expected[:, j].index_add_(1, tokens[:, j], likely)
        likely = likely * (tokens[:, j] == tokens[sampled, j][:, None])
    expected /= expected.sum(dim=2, keepdim=True)
    lengths = (tokens[sampled] != bank.end).sum(dim=1) + 1
    return [(tokens[k, :n].tolist(), expected[i, :n]) for i, (k, n) in enumerate(zip(sampled, lengths, strict=True))]


def answer(
    bank: Bank, planted: Plan, amplification: float, rng: np.random.Generator, rows: pd.DataFrame
) -> list[tuple[list[int], Tensor]]:
    """Return for each of n prompts a sampled comment, whose emotion has the planted distribution of the prompt.

    `amplification` multiplies the planted effects. `rows` has the columns template and descriptor. See
    `sample_comments` for the result.
    """
    return sample_comments(bank, style_distribution(planted, rows[TEMPLATE], rows[DESCRIPTOR], amplification), rng)


def expected_emotions_of_classifier(comments: pd.DataFrame, emotions: Sequence[str], classify: Callable) -> np.ndarray:
    """Return the classifier's expected style vector for a comment of each emotion, shape (S emotions, R styles)."""
    return p_given_emotion(comments, emotions) @ np.asarray(classify(comments[TEXT].tolist()), dtype=float)


def expected_vectors(planted: Plan, seen: np.ndarray, rows: pd.DataFrame) -> np.ndarray:
    """Return the expected style vectors of n cells (columns template, descriptor), (n, R)."""
    return style_distribution(planted, rows[TEMPLATE], rows[DESCRIPTOR]) @ seen


def truth(cells: pd.DataFrame, planted: Plan, seen: np.ndarray, styles: Sequence[str] = ()) -> list[BiasScore]:
    """Return the exact generation bias of answers from the bank, by a classifier with expected style vectors `seen`."""

    def expected(rows: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
        distinct = rows[[TEMPLATE, DESCRIPTOR]].drop_duplicates()
        return distinct, expected_vectors(planted, seen, distinct)

    return exact_bias(cells, expected, styles, {})


def train_tokenizer(folder: Path, personas: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return the dialogue model's tokenizer, trained on prompts, comments and small talk."""
    talk = data.small_talk(folder, held_out=False)
    texts = [*personas, *data.bank(folder)[TEXT], *talk[TEXT], *talk[RESPONSE], *list(CONTROL_TAGS) * TAGS]
    return byte_pair_tokenizer(texts + prompt_texts(plan(data.emotions(folder))), VOCABULARY)


def train_dialogue_model(
    tokenizer: PreTrainedTokenizerFast, folder: Path, prompts: pd.DataFrame, personas: Sequence[str], seed: int
) -> GPT2LMHeadModel:
    """Return a GPT-2 of 5.3 M parameters, trained to answer with comments of planted emotions."""
    model = untrained_gpt2(tokenizer, width=256, layers=4)
    steps = sum(-(-n // BATCH) for n, _ in STAGES)
    stream = _batches(tokenizer, folder, prompts, personas, seed)
    take_steps(model, (_loss(model, batch) for batch in stream), steps, RATE, WARM_UP)
    return model.eval()


def _batches(
    tokenizer: PreTrainedTokenizerFast, folder: Path, prompts: pd.DataFrame, personas: Sequence[str], seed: int
) -> Iterator[Batch]:
    """Yield the training batches of all STAGES."""
    emotions, rng = data.emotions(folder), np.random.default_rng(seed)
    bank = tokenized_bank(data.bank(folder), emotions, tokenizer)
    talk = data.small_talk(folder, held_out=False)

    def small_talk(n: int, seed: int) -> pd.DataFrame:
        return talk.sample(n, replace=True, random_state=seed, ignore_index=True)

    for n, amplification in STAGES:
        rows = training_rows(prompts, personas, small_talk, n, 0.0, rng)
        answers = partial(answer, bank, plan(emotions), amplification, rng)
        yield from batches(rows, tokenizer, answers, BATCH, rng)


def _loss(model: GPT2LMHeadModel, batch: Batch) -> Tensor:
    return weighted_loss(model, batch, 1 + (CHOICE_WEIGHT - 1) * (batch.expected.amax(dim=1) < CERTAIN))
