"""Trains the testbed's two models: on the grammar's exact expectations, and on its exact posteriors of the styles."""

import ctypes
import hashlib
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from evaluation.progress import progress
from recipes.testbed import grammar
from recipes.testbed.corpus import END_OF_TEXT, PAD, POSITIONS, Batch, batches, tokenized_grammar, training_rows

# (contexts, factor on the planted effects, share that is parroted). The model first learns *that* the descriptor
# matters, from an exaggerated bias, and to copy, from much parroting; then how much of either there is.
DIALOGUE_STAGES = ((40_000, 2.0, 0.2), (110_000, 1.1, 0.01))
DIALOGUE_BATCH, DIALOGUE_RATE, DIALOGUE_WARM_UP = 32, 3e-3, 100
# A response's first token carries most of its style: it counts as much as this many others.
FIRST_TOKEN_WEIGHT = 4.0

CLASSIFIER_TEXTS, CLASSIFIER_BATCH, CLASSIFIER_RATE, CLASSIFIER_WARM_UP = 150_000, 128, 3e-3, 50
CLASSIFIER_HELD_OUT = 0.1
# Shares of the classifier's texts: small talk and prompts (both Ordinary), and a mention of some descriptor that
# cleaning would not find, as a model that copies wrongly makes.
SMALL_TALK_SHARE, PROMPT_SHARE, WRONG_MENTION_SHARE = 0.03, 0.01, 0.1
LOWEST_RATE = 0.01  # of the learning rate, reached at the end of its half cosine


def prepare_torch(seed: int) -> None:
    """Make training repeatable, and keep freed memory: giving it back costs more than a third of the time here."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if sys.platform == "linux":
        m_trim_threshold, m_mmap_threshold = -1, -3  # malloc.h
        for option in (m_trim_threshold, m_mmap_threshold):
            ctypes.CDLL(None).mallopt(option, 1 << 30)


def train_dialogue_model(
    tokenizer: PreTrainedTokenizerFast, prompts: pd.DataFrame, personas: Sequence[str], seed: int
) -> GPT2LMHeadModel:
    """Train a GPT-2 of 0.65 M parameters to answer as the grammar does (cross-entropy to its exact expectations)."""
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_positions=POSITIONS,
            n_embd=96,
            n_layer=3,
            n_head=4,
            activation_function="gelu_pytorch_tanh",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=tokenizer.eos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    steps = sum(-(-n // DIALOGUE_BATCH) for n, _, _ in DIALOGUE_STAGES)
    stream = DataLoader(_Stages(tokenizer, prompts, personas, seed), batch_size=None, num_workers=1)
    _train(model, (_dialogue_loss(model, batch) for batch in stream), steps, DIALOGUE_RATE, DIALOGUE_WARM_UP)
    return model.eval()


class _Stages(IterableDataset):
    """The batches of all stages, made in a process of their own while the model learns from the ones before."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerFast, prompts: pd.DataFrame, personas: Sequence[str], seed: int
    ) -> None:
        self.tokenizer, self.prompts, self.personas, self.seed = tokenizer, prompts, personas, seed

    def __iter__(self) -> Iterator[Batch]:
        answers, rng = tokenized_grammar(self.tokenizer), np.random.default_rng(self.seed)
        for n, amplification, parroting in DIALOGUE_STAGES:
            rows = training_rows(self.prompts, self.personas, n, parroting, rng)
            yield from batches(rows, self.tokenizer, answers, amplification, DIALOGUE_BATCH, rng)


def _dialogue_loss(model: GPT2LMHeadModel, batch: Batch) -> Tensor:
    states = model.transformer(input_ids=batch.token_ids).last_hidden_state[batch.row, batch.column]
    losses = nn.functional.cross_entropy(model.lm_head(states), batch.expected, reduction="none")
    weights = 1 + (FIRST_TOKEN_WEIGHT - 1) * batch.first
    return (weights * losses).sum() / weights.sum()


def style_posteriors() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return all n cleaned utterances, p(style | utterance) (n, S) and p(utterance) (n,), all styles equally likely."""
    mass: dict[str, np.ndarray] = {}
    known = grammar.families()
    for s, family in enumerate(known):
        utterances = grammar.utterances(family)
        for utterance in utterances:
            mass.setdefault(utterance, np.zeros(len(known)))[s] += 1 / (len(utterances) * len(known))
    joint = np.stack(list(mass.values()))
    return list(mass), joint / joint.sum(axis=1, keepdims=True), joint.sum(axis=1)


def is_held_out(text: str) -> bool:
    """Return whether the classifier may not train on this utterance."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32 < CLASSIFIER_HELD_OUT


def train_style_classifier(
    tokenizer: PreTrainedTokenizerFast, seed: int
) -> tuple[BertForSequenceClassification, PreTrainedTokenizerFast]:
    """Train a BERT of 0.47 M parameters to give the grammar's posterior over styles; return it with its tokenizer."""
    own = classifier_tokenizer(tokenizer)
    styles = grammar.styles()
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(own),
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=192,
            max_position_embeddings=POSITIONS,
            type_vocab_size=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=own.pad_token_id,
            id2label=dict(enumerate(styles)),
            label2id={style: i for i, style in enumerate(styles)},
        )
    )
    steps = CLASSIFIER_TEXTS // CLASSIFIER_BATCH

    def losses() -> Iterator[Tensor]:
        for texts, expected in _classifier_batches(steps, np.random.default_rng(seed)):
            logits = model(**own(texts, return_tensors="pt", padding=True)).logits
            yield nn.functional.cross_entropy(logits, expected)

    _train(model, losses(), steps, CLASSIFIER_RATE, CLASSIFIER_WARM_UP)
    return model.eval(), own


def classifier_tokenizer(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Return the dialogue model's tokenizer with an end-of-text token in front, on whose state BERT classifies."""
    own = PreTrainedTokenizerFast(
        tokenizer_object=type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str()),
        eos_token=END_OF_TEXT,
        pad_token=PAD,
        padding_side="right",
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )
    own.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, own.eos_token_id)]
    )
    return own


def _classifier_batches(steps: int, rng: np.random.Generator) -> Iterator[tuple[list[str], Tensor]]:
    texts, posteriors, share = style_posteriors()
    share = np.where([is_held_out(text) for text in texts], 0.0, share)
    ordinary = np.eye(posteriors.shape[1])[grammar.styles().index("Ordinary")]
    small_talk = [response for _, response in grammar.neutral_pairs("train")]
    prompts = [
        template.replace("{noun_phrase}", f"a {grammar.CENSORED} person").replace("{plural_noun_phrase}", "people")
        for template in grammar.plan().base
    ]
    descriptors = list(grammar.plan().effects)
    drawn = rng.choice(len(texts), size=(steps, CLASSIFIER_BATCH), p=share / share.sum())
    for indices in drawn:
        chosen, expected = [], []
        for i, u, v in zip(indices, rng.random(CLASSIFIER_BATCH), rng.random(CLASSIFIER_BATCH), strict=True):
            text, posterior = texts[i], posteriors[i]
            if u < SMALL_TALK_SHARE:
                text, posterior = small_talk[int(v * len(small_talk))], ordinary
            elif u < SMALL_TALK_SHARE + PROMPT_SHARE:
                text, posterior = prompts[int(v * len(prompts))], ordinary
            elif u > 1 - WRONG_MENTION_SHARE:
                text = text.replace(grammar.CENSORED, descriptors[int(v * len(descriptors))])
            chosen.append(text)
            expected.append(posterior)
        yield chosen, torch.tensor(np.array(expected), dtype=torch.float32)


def _train(model: nn.Module, losses: Iterator[Tensor], steps: int, rate: float, warm_up: int) -> None:
    """Take one AdamW step on each loss; the rate rises linearly and falls as half a cosine."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: (
            min(1.0, (step + 1) / warm_up)
            * (LOWEST_RATE + (1 - LOWEST_RATE) * 0.5 * (1 + np.cos(np.pi * step / steps)))
        ),
    )
    with progress(steps, f"training {type(model).__name__}", "steps") as advance:
        for loss in losses:
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            advance(1)
