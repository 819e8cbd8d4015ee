"""Functions for training the testbed's models: repeatable training steps, model configs and tokenizers."""

import ctypes
import sys
from collections.abc import Iterator

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from transformers import BertConfig, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from evenhand.evaluation.runs.progress import progress

LOWEST_RATE = 0.01  # final learning rate, relative to the maximum
PAD_WORD = "[PAD]"
UNKNOWN_WORD = "[UNK]"


def prepare_torch(seed: int) -> None:
    """Seed torch, make training deterministic, and keep freed memory in the process.

    Returning memory to the system takes a third of the training time.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if sys.platform == "linux":
        m_trim_threshold = -1
        m_mmap_threshold = -3  # malloc.h
        for option in (m_trim_threshold, m_mmap_threshold):
            ctypes.CDLL(None).mallopt(option, 1 << 30)


def take_steps(model: nn.Module, losses: Iterator[Tensor], steps: int, rate: float, warm_up: int) -> None:
    """Take one AdamW step on each loss. The learning rate rises linearly, then falls as half a cosine."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)

    def rate_at(step: int) -> float:
        """Return the learning rate of a step over `rate`."""
        half_cosine = 0.5 * (1 + np.cos(np.pi * step / steps))
        return min(1.0, (step + 1) / warm_up) * (LOWEST_RATE + (1 - LOWEST_RATE) * half_cosine)

    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_at)
    with progress(steps, f"training {type(model).__name__}", "steps") as bar:
        for loss in losses:
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            bar.update(1)


def small_bert(tokenizer: PreTrainedTokenizerFast, positions: int) -> BertConfig:
    """Return the config of a BERT of two layers, without dropout, for the tokenizer's vocabulary."""
    return BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=positions,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=tokenizer.pad_token_id,
    )


def small_gpt2(
    tokenizer: PreTrainedTokenizerFast,
    positions: int,
    width: int,
    layers: int,
    bos_token_id: int,
    activation: str = "gelu_new",
) -> GPT2LMHeadModel:
    """Return an untrained GPT-2 with four heads, without dropout, for the tokenizer's vocabulary."""
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=positions,
        n_embd=width,
        n_layer=layers,
        n_head=4,
        activation_function=activation,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return GPT2LMHeadModel(config)


def word_tokenizer(words: dict[str, int], unknown: str) -> Tokenizer:
    """Return a tokenizer whose tokens are lower-case words and punctuation marks."""
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=unknown))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "removed", invert=True)
    return tokenizer


def padded_right(tokenizer: Tokenizer, longest: int, **special_tokens: str) -> PreTrainedTokenizerFast:
    """Return a transformers tokenizer that pads on the right and decodes texts unchanged."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        **special_tokens,
        padding_side="right",
        model_max_length=longest,
        clean_up_tokenization_spaces=False,
    )
