"""Training data of the testbed's models: the tokenizer, the contexts, and the grammar's exact next-token targets."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import NONE, generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import VARIATIONS, vary_text
from tools.testbed import grammar

END_OF_TEXT = "<|endoftext|>"
PAD = "<|pad|>"
VOCABULARY = 3072
POSITIONS = 160  # persona, prompt and tag are at most 60 tokens, a response with the longest preset 80
CONTROL_TAGS = (" bias", " no_bias")
# Repetitions of each kind of phrase in the tokenizer's training texts, so that each word becomes one token.
OPENERS_AND_TAILS = 40
CORES = 20
DESCRIPTORS = 15
NOUNS = 60
TEMPLATES = 100
TAGS = 40
PERSONAS = 10

PERSONA_SHARE = 0.2
VARIATION_SHARE = 0.15
NEUTRAL_SHARE = 0.25
SUFFIX_SHARE = 0.25
# Meaningless ends of contexts. Without them, any string at the end of a context, such as a control tag, would be so
# unusual to this small model that tuning would mostly adapt to the string. Real models have seen many kinds of ends.
SUFFIXES = (*CONTROL_TAGS, *CONTROL_TAGS, " please", " thanks", " by the way", " you know", " right", " so")
# Rows of this many batches are sorted by length, which reduces padding.
BATCHES_SORTED_TOGETHER = 50


def train_tokenizer(personas: Sequence[str]) -> PreTrainedTokenizerFast:
    """Return the BPE tokenizer of the dialogue model and the first classifier, trained on the grammar's texts."""
    texts = list(personas) * PERSONAS
    for family in grammar.families():
        texts += [*family.openers, *(f" {tail}" for tail in family.tails)] * OPENERS_AND_TAILS
        texts += [f" {core}".replace(grammar.MENTION, "") for core in family.cores] * CORES
    texts += [f"a {descriptor}, {descriptor}" for descriptor in grammar.plan().effects] * DESCRIPTORS
    texts += [f"a {word}" for noun in load_taxonomy("paper").nouns for word in (noun.singular, noun.plural)] * NOUNS
    texts += [template.replace("noun_phrase", "") for template in grammar.plan().base] * TEMPLATES
    texts += [text for split in grammar.SPLITS for pair in grammar.neutral_pairs(split) for text in pair]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()  # decoding returns any encoded text unchanged
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts + list(CONTROL_TAGS) * TAGS, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=END_OF_TEXT,
        eos_token=END_OF_TEXT,
        pad_token=PAD,
        padding_side="left",
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def all_prompts() -> pd.DataFrame:
    """Return the paper edition's prompts that have a descriptor."""
    prompts = generate_prompts(load_taxonomy("paper"))
    return prompts[prompts[columns.DESCRIPTOR] != NONE].reset_index(drop=True)


def training_rows(
    prompts: pd.DataFrame,
    personas: Sequence[str],
    n: int,
    parroting: float,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Return n sampled contexts in random order: prompts, evenly over the cells, and small talk.

    The columns are persona, text, suffix, response, template and descriptor. The response is the prompt itself for a
    share `parroting` of the prompts, and "" for the remaining prompts, which the testbed's grammar answers.
    """
    neutral = round(NEUTRAL_SHARE * n)
    parroted = round(parroting * n)
    share = 1 / prompts.groupby([columns.TEMPLATE, columns.DESCRIPTOR])[columns.TEXT].transform("size").to_numpy()
    sampled = prompts.iloc[rng.choice(len(prompts), size=n - neutral, p=share / share.sum())]
    flags = rng.random((len(sampled), len(VARIATIONS))) < VARIATION_SHARE
    rows = sampled[[columns.TEMPLATE, columns.DESCRIPTOR]].reset_index(drop=True)
    rows[columns.TEXT] = [vary_text(row, flag) for row, flag in zip(sampled.to_dict("records"), flags, strict=True)]
    rows[columns.RESPONSE] = rows[columns.TEXT].where(rows.index < parroted, "")
    rows = pd.concat([rows, grammar.neutral_dialogue("train", neutral, int(rng.integers(2**31)))], ignore_index=True)
    chosen = rng.integers(len(personas), size=n)
    rows[columns.PERSONA] = [
        personas[i] if u < PERSONA_SHARE else "" for i, u in zip(chosen, rng.random(n), strict=True)
    ]
    chosen = rng.integers(len(SUFFIXES), size=n)
    rows["suffix"] = [SUFFIXES[i] if u < SUFFIX_SHARE else "" for i, u in zip(chosen, rng.random(n), strict=True)]
    return rows.iloc[rng.permutation(n)].reset_index(drop=True)


@dataclass(frozen=True)
class Slot:
    """The K distinct phrases of one slot (openers, cores or tails) as tokens.

    `tokens` (K, L) is padded with -1; the id `len(tokenizer)` stands for a mention of the descriptor. `given_style`
    (S, K) is p(phrase | style). `same_start[k, j, l]` is whether the phrases k and l agree before token j.
    """

    tokens: np.ndarray
    given_style: np.ndarray
    same_start: np.ndarray


@dataclass(frozen=True)
class Answers:
    """The grammar's phrases and descriptors as tokens, for `draw_answers`."""

    slots: tuple[Slot, ...]
    mentions: dict[str, list[int]]
    vocabulary: int
    end: int


@dataclass(frozen=True)
class Batch:
    """Contexts with their responses, `token_ids` (b, l), and the r positions at which a response token is next.

    `row` and `column` (r,) are the indices of the positions, `first` (r,) marks a response's first token, and
    `expected` (r, vocabulary) is the target distribution of the next token.
    """

    token_ids: Tensor
    row: Tensor
    column: Tensor
    first: Tensor
    expected: Tensor


def tokenized_grammar(tokenizer: PreTrainedTokenizerFast) -> Answers:
    """Return the grammar's phrases as tokens; a response's tokens are the tokens of its three phrases, concatenated."""
    mention_id = len(tokenizer)

    def encode(text: str) -> list[int]:
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    def slot(name: str, lead: str) -> Slot:
        by_style = [getattr(family, name) for family in grammar.families()]
        phrases = list(dict.fromkeys(phrase for of_style in by_style for phrase in of_style))
        encoded = []
        for phrase in phrases:
            before, mention, after = (lead + phrase).partition(f" {grammar.MENTION}")
            encoded.append(encode(before) + ([mention_id, *encode(after)] if mention else []))
        given_style = np.zeros((len(by_style), len(phrases)))
        for row, of_style in zip(given_style, by_style, strict=True):
            for column, phrase in enumerate(phrases):
                if phrase in of_style:
                    row[column] = 1 / len(of_style)
        return phrase_slot(encoded, given_style)

    slots = (slot("openers", ""), slot("cores", " "), slot("tails", " "))
    mentions = {descriptor: encode(f" {descriptor}") for descriptor in grammar.plan().effects}
    return Answers(slots, mentions, mention_id, tokenizer.eos_token_id)


def phrase_slot(encoded: Sequence[Sequence[int]], given_style: np.ndarray) -> Slot:
    """Return the slot of K distinct phrases, given as token ids, with p(phrase | style), (S, K)."""
    tokens = np.full((len(encoded), max(map(len, encoded))), -1)
    for row, ids in zip(tokens, encoded, strict=True):
        row[: len(ids)] = ids
    same = np.logical_and.accumulate(tokens[:, None, :] == tokens[None, :, :], axis=2)  # (K, K, L)
    same_start = np.concatenate([np.ones_like(same[:, :, :1]), same[:, :, :-1]], axis=2).transpose(0, 2, 1)
    return Slot(tokens, given_style, np.ascontiguousarray(same_start))


def draw_answers(
    answers: Answers, distribution: np.ndarray, descriptors: Sequence[str], rng: np.random.Generator
) -> list[tuple[list[int], Tensor]]:
    """Return, for each of n rows, a sampled response's token ids and the grammar's distribution of each token.

    `distribution` (n, S) is p(style | row). The returned distribution (length, vocabulary) is the exact
    p(next token | row, response so far), summed over styles. Training on it has the same optimum as training on sampled
    tokens, without sampling noise, so that a planted bias of 0.1 nats per response is learned from few responses. It
    would not be exact for two phrases that differ inside a mention, but the grammar has no such phrases.
    """
    n = len(distribution)
    mentions = [answers.mentions[descriptor] for descriptor in descriptors]
    length = sum(slot.tokens.shape[1] for slot in answers.slots) + max(map(len, mentions)) + 1
    expected = torch.zeros(n, length, answers.vocabulary + 1)
    ids = np.full((n, length), answers.end)
    position = np.zeros(n, dtype=np.int64)  # position of each row's next token
    for slot in answers.slots:
        likely = distribution @ slot.given_style  # (n, K)
        sampled = grammar.sample_columns(likely, rng)
        for j in range(slot.tokens.shape[1]):
            tokens = slot.tokens[sampled, j]
            active = np.flatnonzero(tokens >= 0)
            mass = torch.from_numpy(likely[active] * slot.same_start[sampled[active], j]).float()
            next_token = torch.from_numpy(slot.tokens[:, j]).clamp(min=0).expand(len(active), -1)
            spread = torch.zeros(len(active), answers.vocabulary + 1).scatter_add_(1, next_token, mass)
            expected[active, position[active]] = spread / spread.sum(dim=1, keepdim=True)
            ids[active, position[active]] = tokens[active]
            for i in active:
                first, *rest = mentions[i]
                expected[i, position[i], first] += expected[i, position[i], answers.vocabulary]
                if tokens[i] == answers.vocabulary:
                    ids[i, position[i]] = first
                    for token in rest:
                        position[i] += 1
                        ids[i, position[i]] = token
                        expected[i, position[i], token] = 1.0
            position[active] += 1
        distribution = distribution * slot.given_style[:, sampled].T
        distribution = distribution / distribution.sum(axis=1, keepdims=True)
    expected[np.arange(n), position, answers.end] = 1.0
    return [(ids[i, : position[i] + 1].tolist(), expected[i, : position[i] + 1, :-1]) for i in range(n)]


def batches(
    rows: pd.DataFrame,
    tokenizer: PreTrainedTokenizerFast,
    answer: Callable[[pd.DataFrame], list[tuple[list[int], Tensor]]],
    size: int,
    rng: np.random.Generator,
) -> Iterator[Batch]:
    """Yield batches of `size` rows of similar length in random order, each row with a response.

    `answer` returns token ids and target distributions for the rows without a response (see `draw_answers`).
    """
    contexts = []
    for persona, text, suffix in zip(rows[columns.PERSONA], rows[columns.TEXT], rows["suffix"], strict=True):
        lead = f"{persona}\n" if persona else ""
        contexts.append(lead + text + suffix)
    contexts = tokenizer([f"{context}{END_OF_TEXT}" for context in contexts])["input_ids"]
    responses = tokenizer([f"{response}{END_OF_TEXT}" for response in rows[columns.RESPONSE]])["input_ids"]
    one_hot = torch.eye(len(tokenizer))
    lengths = np.array([len(context) for context in contexts])
    pools = np.array_split(np.arange(len(rows)), max(1, len(rows) // (size * BATCHES_SORTED_TOGETHER)))
    order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    groups = [order[start : start + size] for start in range(0, len(order), size)]
    for number in rng.permutation(len(groups)):
        group = rows.iloc[groups[number]]
        open_rows = group[group[columns.RESPONSE] == ""]
        sampled = answer(open_rows) if len(open_rows) else []
        answered = dict(zip(open_rows.index, sampled, strict=True))
        pairs = []
        for i in group.index:
            response = responses[i]
            expected = one_hot[response]
            if i in answered:
                response, expected = answered[i]
            pairs.append((contexts[i], response, expected))
        yield _collated(pairs, tokenizer.pad_token_id)


def _collated(pairs: list[tuple[list[int], list[int], Tensor]], pad: int) -> Batch:
    token_ids = torch.full((len(pairs), max(len(context) + len(response) for context, response, _ in pairs)), pad)
    columns = []
    for row, (context, response, _) in zip(token_ids, pairs, strict=True):
        row[: len(context) + len(response)] = torch.tensor(context + response)
        columns.append(torch.arange(len(context), len(context) + len(response)) - 1)
    counts = torch.tensor([len(column) for column in columns])
    rows = torch.arange(len(pairs)).repeat_interleave(counts)
    first = torch.cat([torch.arange(int(count)) for count in counts]) == 0
    return Batch(token_ids, rows, torch.cat(columns), first, torch.cat([expected for _, _, expected in pairs]))
