"""The testbed's masked model: a small BERT, trained on the exact distribution of one word given the other words."""

from collections.abc import Iterator

import numpy as np
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import BertForMaskedLM, PreTrainedTokenizerFast

from tools.testbed import pairs
from tools.testbed.steps import PAD_WORD, UNKNOWN_WORD, padded_right, small_bert, take_steps, word_tokenizer

MASKED_SENTENCES = 256_000
MASKED_BATCH = 64
MASKED_RATE = 3e-3
MASKED_WARM_UP = 100
ATTRIBUTE_SHARE = 0.4  # share of masked words that carry the planted bias; the others are drawn uniformly
# BERT's rule (Devlin et al. 2019, §3.1), so that sentences without a mask can be scored too (AUL): of the words asked
# for, a tenth is shown as it is and a tenth is any word in its position.
SHOWN = 0.1
REPLACED = 0.1
MASKED_POSITIONS = 32  # a sentence of the grammar has 14 words at most
CLS = "[CLS]"
SEP = "[SEP]"
MASK = "[MASK]"
SPECIAL_WORDS = (PAD_WORD, UNKNOWN_WORD, CLS, SEP, MASK)


def train_masked_model(seed: int) -> tuple[BertForMaskedLM, PreTrainedTokenizerFast]:
    """Return a BERT of 0.2 M parameters, trained to fill in words of the sentence pairs' grammar, and its tokenizer.

    The target is the exact distribution of one word given all other words. A batch contains each sentence twice, once
    with each group of a contrast and with the same word masked, so that both groups have the same targets if no
    stereotype is planted.
    """
    torch.manual_seed(seed + 2)  # so that building it alone gives the same bytes as building all
    tokenizer = masked_tokenizer()
    model = BertForMaskedLM(small_bert(tokenizer, MASKED_POSITIONS))
    steps = MASKED_SENTENCES // MASKED_BATCH

    def losses() -> Iterator[Tensor]:
        for ids, positions, expected in masked_batches(tokenizer, steps, np.random.default_rng(seed + 2)):
            states = model.bert(ids, ids.ne(tokenizer.pad_token_id)).last_hidden_state
            yield nn.functional.cross_entropy(model.cls(states[torch.arange(len(ids)), positions]), expected)

    take_steps(model, losses(), steps, MASKED_RATE, MASKED_WARM_UP)
    return model.eval(), tokenizer


def masked_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the lower-case words and punctuation in the pairs' grammar, with BERT's special tokens."""
    index = {word: index for index, word in enumerate([*SPECIAL_WORDS, *pairs.vocabulary()])}
    words = word_tokenizer(index, UNKNOWN_WORD)
    words.post_processor = TemplateProcessing(
        single=f"{CLS} $A {SEP}", special_tokens=[(token, index[token]) for token in (CLS, SEP)]
    )
    return padded_right(
        words,
        MASKED_POSITIONS,
        pad_token=PAD_WORD,
        unk_token=UNKNOWN_WORD,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
    )


def masked_batches(
    tokenizer: PreTrainedTokenizerFast, steps: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield token ids of b sentences (b, l), a position in each (b,), and its exact distribution (b, vocabulary)."""
    index = tokenizer.get_vocab()
    for _ in range(steps):
        rows = [row for _ in range(MASKED_BATCH // 2) for row in _masked_sentences(rng)]
        ids = [torch.tensor([index[word] for word in (CLS, *words, SEP)]) for words, _, _ in rows]
        expected = torch.zeros(len(rows), len(index))
        for row, (_, _, p) in enumerate(rows):
            expected[row, [index[word] for word in p]] = torch.tensor(list(p.values()), dtype=expected.dtype)
        positions = torch.tensor([position + 1 for _, position, _ in rows])
        yield nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=index[PAD_WORD]), positions, expected


def _masked_sentences(rng: np.random.Generator) -> Iterator[tuple[list[str], int, dict[str, float]]]:
    """Yield a sentence with each group: its words, the masked word's position, and that word's exact distribution."""
    phrases = pairs.draw_phrases(rng)
    known = pairs.vocabulary()
    spots = [(slot, k) for slot, phrase in enumerate(phrases) for k in range(len(phrase.split()))]
    slot, k = spots[rng.integers(len(spots))]
    if rng.random() < ATTRIBUTE_SHARE:
        slot = pairs.SLOTS.index("attribute")
        k = 0
    u = rng.random()
    other = known[rng.integers(len(known))]
    group = phrases[pairs.SLOTS.index("group")]
    for one in (group, pairs.partners()[group]):
        parts = [phrase.split() for phrase in pairs.with_group(phrases, one)]
        words = [word for part in parts for word in part]
        position = sum(map(len, parts[:slot])) + min(k, len(parts[slot]) - 1)
        p = pairs.conditional(words, position)
        hidden = MASK
        if u < SHOWN + REPLACED:
            hidden = words[position] if u < SHOWN else other
            p = {word: q * (SHOWN * (word == hidden) + REPLACED / len(known)) for word, q in p.items()}
            p = {word: q / sum(p.values()) for word, q in p.items()}
        yield [*words[:position], hidden, *words[position + 1 :]], position, p
