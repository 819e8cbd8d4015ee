"""The testbed's language model: a small GPT-2, trained on the exact sentence probabilities of a grammar."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import torch
from scipy.sparse import csr_matrix
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor, nn
from transformers import GPT2LMHeadModel, PreTrainedTokenizerFast

from evenhand.evaluation.models.likelihood.prefix_tree import PrefixTree, prefix_tree
from tools.testbed import frequencies
from tools.testbed.steps import PAD_WORD, UNKNOWN_WORD, padded_right, small_gpt2, take_steps

LANGUAGE_STEPS = 2000
LANGUAGE_BATCH = 128
LANGUAGE_RATE = 5e-3
LANGUAGE_WARM_UP = 50
LANGUAGE_POSITIONS = 32  # a sentence has 7 tokens with its marks; others, of words that are unknown, have more
BEGIN = "[BOS]"
END = "[EOS]"


def train_language_model(seed: int) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """Return a GPT-2 of 0.15 M parameters, trained on the grammar's sentence probabilities, and its tokenizer.

    Sentences are sampled uniformly, so that the model also learns rare sentences; the target at each token is the exact
    distribution of the next token.
    """
    torch.manual_seed(seed + 3)  # so that building it alone gives the same bytes as building all
    tokenizer = language_tokenizer()
    model = small_gpt2(tokenizer, LANGUAGE_POSITIONS, width=64, layers=2, bos_token_id=tokenizer.bos_token_id)
    texts, p_of_text = frequencies.distinct_sentences()
    tree, p = language_tree(tokenizer, texts, p_of_text)
    expected = next_tokens(tree, p, len(tokenizer))
    stream = language_batches(tree, expected, LANGUAGE_STEPS, np.random.default_rng(seed + 3))

    def losses() -> Iterator[Tensor]:
        for ids, there, expected in stream:
            states = model.transformer(ids, attention_mask=there).last_hidden_state[there]
            yield nn.functional.cross_entropy(model.lm_head(states), expected)

    take_steps(model, losses(), LANGUAGE_STEPS, LANGUAGE_RATE, LANGUAGE_WARM_UP)
    return model.eval(), tokenizer


def language_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are whole phrases of HolisticBias' sentences; any other word is unknown.

    At each position, the longest phrase is the token: "I'm currently", not "I'm".
    """
    phrases = frequencies.lexicon()
    index = {phrase: i for i, phrase in enumerate([PAD_WORD, UNKNOWN_WORD, BEGIN, END, *phrases])}
    words = Tokenizer(models.WordLevel(index, unk_token=UNKNOWN_WORD))
    words.normalizer = normalizers.NFC()
    # By first letter, as a regex tries alternatives one after the other.
    alternatives = []
    for first, some in groupby(phrases, key=lambda phrase: phrase[0]):
        longest_first = sorted(some, key=len, reverse=True)
        ends = "|".join(re.escape(phrase[1:]) for phrase in longest_first)
        alternatives.append(f"{re.escape(first)}(?:{ends})")
    pattern = Regex(rf"(?:{'|'.join(alternatives)})(?!\w)|[\w'-]+|[^\w\s]")
    words.pre_tokenizer = pre_tokenizers.Split(pattern, "removed", invert=True)
    return padded_right(
        words, LANGUAGE_POSITIONS, pad_token=PAD_WORD, unk_token=UNKNOWN_WORD, bos_token=BEGIN, eos_token=END
    )


def language_tree(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], p: np.ndarray
) -> tuple[PrefixTree, np.ndarray]:
    """Return the prefix tree of N sentences with BOS and EOS, and the probability of each node's beginning.

    The probabilities of beginnings are sums of the sentences' probabilities `p` (N,).
    """
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    tree = prefix_tree([[tokenizer.bos_token_id, *row, tokenizer.eos_token_id] for row in ids])
    mass = np.zeros(len(tree.token))
    np.add.at(mass, tree.leaf, p)
    for depth in range(tree.depth.max(), 0, -1):
        nodes = np.flatnonzero(tree.depth == depth)
        np.add.at(mass, tree.parent[nodes], mass[nodes])
    return tree, mass


def next_tokens(tree: PrefixTree, mass: np.ndarray, vocabulary: int) -> csr_matrix:
    """Return the exact p(next token | beginning of the sentence) at each of a tree's m inner nodes, (m, vocabulary)."""
    share = mass[tree.child] / mass[tree.parent[tree.child]]
    return csr_matrix((share, tree.token[tree.child], tree.first_child), (len(tree.inner), vocabulary))


def language_batches(
    tree: PrefixTree, expected: csr_matrix, steps: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield batches: token ids (b, l), a padding mask (b, l) and exact next-token distributions (r, vocabulary).

    The last token of each sentence is left out. The r distributions are for the positions where the mask is true.
    """
    number = np.full(len(tree.token), -1)
    number[tree.inner] = np.arange(len(tree.inner))
    for _ in range(steps):
        path = np.full((LANGUAGE_BATCH, tree.depth.max()), -1)
        node = tree.parent[tree.leaf[rng.integers(len(tree.leaf), size=LANGUAGE_BATCH)]]
        row = np.arange(LANGUAGE_BATCH)
        while len(node):
            path[row, tree.depth[node]] = number[node]
            node = tree.parent[node]
            row = row[node >= 0]
            node = node[node >= 0]
        there = path >= 0
        ids = np.where(there, tree.token[tree.inner[path]], 0)  # no token attends to padding on the right
        wanted = expected[path[there]].toarray().astype(np.float32)
        yield torch.from_numpy(ids).long(), torch.from_numpy(there), torch.from_numpy(wanted)
