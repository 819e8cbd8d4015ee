"""Trains the testbed's models: on their grammars' exact expectations, and on the exact posteriors of the styles.

There are two style classifiers. The first labels and measures. The second measures what the first has shaped, and for
that it is as unlike the first as it can be: it learns from the utterances that the first never saw and from no others,
in other tokens, with another architecture.
"""

import ctypes
import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import numpy as np
import pandas as pd
import torch
from scipy.sparse import csr_matrix
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from evaluation.likelihood.prefix_tree import PrefixTree, prefix_tree
from evaluation.progress import progress
from recipes.testbed import frequencies, grammar, pairs
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
# Of the utterances that the first classifier never saw, the share that the second never sees either.
NEW_TO_BOTH = 0.2
SECOND_TEXTS, SECOND_RATE, SECOND_DROPOUT = 50_000, 3e-3, 0.1
UNKNOWN = "<|unknown|>"
MASKED_SENTENCES, MASKED_BATCH, MASKED_RATE, MASKED_WARM_UP = 256_000, 64, 3e-3, 100
ATTRIBUTE_SHARE = 0.4  # of the words asked for, those that the planted bias is in, beside the others drawn uniformly
# BERT's rule (Devlin et al. 2019, §3.1), so that sentences without a mask can be scored too (AUL): of the words asked
# for, a tenth is shown as it is and a tenth is any word in its place.
SHOWN, REPLACED = 0.1, 0.1
MASKED_POSITIONS = 32  # a sentence of the grammar has 14 words at most
LANGUAGE_STEPS, LANGUAGE_BATCH, LANGUAGE_RATE, LANGUAGE_WARM_UP = 2000, 128, 5e-3, 50
LANGUAGE_POSITIONS = 32  # a sentence has 7 tokens with its marks; others, of words that are unknown, have more
BEGIN, END = "[BOS]", "[EOS]"
PAD_WORD, UNKNOWN_WORD, CLS, SEP, MASK = SPECIAL_WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
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
    """Return whether the first classifier may not train on this utterance."""
    return _uniform(text, 0) < CLASSIFIER_HELD_OUT


def is_new_to_both(text: str) -> bool:
    """Return whether neither classifier may train on this utterance; the second learns from the others held out."""
    return is_held_out(text) and _uniform(text, 1) < NEW_TO_BOTH


def is_for_second(text: str) -> bool:
    """Return whether the second classifier may train on this utterance, and then the first may not."""
    return is_held_out(text) and not is_new_to_both(text)


def _uniform(text: str, n: int) -> float:
    """Return the n-th of the eight numbers in [0, 1) that a text's hash gives."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[4 * n : 4 * n + 4]) / 2**32


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
    small_talk = [response for _, response in grammar.neutral_pairs("train")]
    ordinary = [(SMALL_TALK_SHARE, small_talk), (PROMPT_SHARE, _prompts("person", "people"))]
    _train_classifier(model, own, lambda text: not is_held_out(text), ordinary, CLASSIFIER_TEXTS, CLASSIFIER_RATE, seed)
    return model.eval(), own


def train_second_style_classifier(seed: int) -> tuple[ModernBertForSequenceClassification, PreTrainedTokenizerFast]:
    """Train a ModernBERT of 0.13 M parameters on what the first classifier never saw; return it with its tokenizer.

    Its words are whole ones in lower case, it knows their order by rotation, and it averages over all of them. The
    first classifier has seen all the small talk there is, so there is none here; the prompts have another noun.
    """
    torch.manual_seed(seed + 1)  # so that building it alone gives the same bytes as building all
    own = second_tokenizer()
    styles = grammar.styles()
    model = ModernBertForSequenceClassification(
        ModernBertConfig(
            vocab_size=len(own),
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=POSITIONS,
            layer_types=["full_attention"] * 2,
            embedding_dropout=SECOND_DROPOUT,
            mlp_dropout=SECOND_DROPOUT,
            classifier_pooling="mean",
            pad_token_id=own.pad_token_id,
            bos_token_id=None,
            eos_token_id=None,
            cls_token_id=None,
            sep_token_id=None,
            id2label=dict(enumerate(styles)),
            label2id={style: i for i, style in enumerate(styles)},
        )
    )
    ordinary = [(PROMPT_SHARE, _prompts("woman", "women"))]
    _train_classifier(model, own, is_for_second, ordinary, SECOND_TEXTS, SECOND_RATE, seed + 1)
    return model.eval(), own


def second_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer into the words, in lower case, and the punctuation of the second classifier's utterances."""
    words = Tokenizer(models.WordLevel({}, unk_token=UNKNOWN))
    words.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "removed", invert=True)
    seen: set[str] = set()
    for text in filter(is_for_second, style_posteriors()[0]):
        seen.update(word for word, _ in words.pre_tokenizer.pre_tokenize_str(words.normalizer.normalize_str(text)))
    words.model = models.WordLevel(
        {word: index for index, word in enumerate([PAD, UNKNOWN, *sorted(seen)])}, unk_token=UNKNOWN
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token=UNKNOWN,
        pad_token=PAD,
        padding_side="right",
        model_max_length=POSITIONS,
        clean_up_tokenization_spaces=False,
    )


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


def _prompts(noun: str, plural: str) -> list[str]:
    """Return the templates filled as cleaning leaves them: what a model says that repeats its prompt."""
    return [
        template.replace("{noun_phrase}", f"a {grammar.CENSORED} {noun}").replace("{plural_noun_phrase}", plural)
        for template in grammar.plan().base
    ]


def _train_classifier(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerFast,
    is_for_training: Callable[[str], bool],
    ordinary: Sequence[tuple[float, list[str]]],
    n: int,
    rate: float,
    seed: int,
) -> None:
    """Train on n texts: utterances with their posteriors, and shares of texts that are Ordinary."""
    steps = n // CLASSIFIER_BATCH

    def losses() -> Iterator[Tensor]:
        for texts, expected in _classifier_batches(steps, is_for_training, ordinary, np.random.default_rng(seed)):
            logits = model(**tokenizer(texts, return_tensors="pt", padding=True)).logits
            yield nn.functional.cross_entropy(logits, expected)

    _train(model, losses(), steps, rate, CLASSIFIER_WARM_UP)


def _classifier_batches(
    steps: int,
    is_for_training: Callable[[str], bool],
    ordinary: Sequence[tuple[float, list[str]]],
    rng: np.random.Generator,
) -> Iterator[tuple[list[str], Tensor]]:
    texts, posteriors, share = style_posteriors()
    share = np.where([is_for_training(text) for text in texts], share, 0.0)
    is_ordinary = np.eye(posteriors.shape[1])[grammar.styles().index("Ordinary")]
    ends = np.cumsum([part for part, _ in ordinary])
    descriptors = list(grammar.plan().effects)
    drawn = rng.choice(len(texts), size=(steps, CLASSIFIER_BATCH), p=share / share.sum())
    for indices in drawn:
        chosen, expected = [], []
        for i, u, v in zip(indices, rng.random(CLASSIFIER_BATCH), rng.random(CLASSIFIER_BATCH), strict=True):
            text, posterior = texts[i], posteriors[i]
            if u < ends[-1]:
                others = ordinary[int(np.searchsorted(ends, u, side="right"))][1]
                text, posterior = others[int(v * len(others))], is_ordinary
            elif u > 1 - WRONG_MENTION_SHARE:
                text = text.replace(grammar.CENSORED, descriptors[int(v * len(descriptors))])
            chosen.append(text)
            expected.append(posterior)
        yield chosen, torch.tensor(np.array(expected), dtype=torch.float32)


def train_masked_model(seed: int) -> tuple[BertForMaskedLM, PreTrainedTokenizerFast]:
    """Train a BERT of 0.2 M parameters to fill in words as the sentence pairs' grammar does; return its tokenizer too.

    The target is the exact distribution of one word given all the others. Every sentence of a batch is there twice,
    once about either group of a contrast and asked for the same word, so that where nothing is planted both groups have
    the same targets.
    """
    torch.manual_seed(seed + 2)  # so that building it alone gives the same bytes as building all
    own = masked_tokenizer()
    model = BertForMaskedLM(
        BertConfig(
            vocab_size=len(own),
            hidden_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=192,
            max_position_embeddings=MASKED_POSITIONS,
            type_vocab_size=1,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=own.pad_token_id,
        )
    )
    steps = MASKED_SENTENCES // MASKED_BATCH

    def losses() -> Iterator[Tensor]:
        for ids, places, expected in masked_batches(own, steps, np.random.default_rng(seed + 2)):
            states = model.bert(ids, ids.ne(own.pad_token_id)).last_hidden_state
            yield nn.functional.cross_entropy(model.cls(states[torch.arange(len(ids)), places]), expected)

    _train(model, losses(), steps, MASKED_RATE, MASKED_WARM_UP)
    return model.eval(), own


def masked_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer into the words, in lower case, and the marks of the sentence pairs; BERT's special tokens."""
    index = {word: index for index, word in enumerate([*SPECIAL_WORDS, *pairs.vocabulary()])}
    words = Tokenizer(models.WordLevel(index, unk_token=UNKNOWN_WORD))
    words.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    words.pre_tokenizer = pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "removed", invert=True)
    words.post_processor = TemplateProcessing(
        single=f"{CLS} $A {SEP}", special_tokens=[(token, index[token]) for token in (CLS, SEP)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD_WORD,
        unk_token=UNKNOWN_WORD,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        padding_side="right",
        model_max_length=MASKED_POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def masked_batches(
    tokenizer: PreTrainedTokenizerFast, steps: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield b sentences' token ids (b, l), the place asked for in each (b,), its exact distribution (b, vocabulary)."""
    index = tokenizer.get_vocab()
    for _ in range(steps):
        rows = [row for _ in range(MASKED_BATCH // 2) for row in _asked_of_both(rng)]
        ids = [torch.tensor([index[word] for word in (CLS, *words, SEP)]) for words, _, _ in rows]
        expected = torch.zeros(len(rows), len(index))
        for row, (_, _, p) in enumerate(rows):
            expected[row, [index[word] for word in p]] = torch.tensor(list(p.values()), dtype=expected.dtype)
        places = torch.tensor([place + 1 for _, place, _ in rows])
        yield nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=index[PAD_WORD]), places, expected


def _asked_of_both(rng: np.random.Generator) -> Iterator[tuple[list[str], int, dict[str, float]]]:
    """Yield a sentence about either group: its words, one of them hidden, the place of that one, and what it can be."""
    phrases, known = pairs.draw_phrases(rng), pairs.vocabulary()
    spots = [(slot, k) for slot, phrase in enumerate(phrases) for k in range(len(phrase.split()))]
    slot, k = spots[rng.integers(len(spots))]
    if rng.random() < ATTRIBUTE_SHARE:
        slot, k = pairs.SLOTS.index("attribute"), 0
    u, other, group = rng.random(), known[rng.integers(len(known))], phrases[pairs.SLOTS.index("group")]
    for one in (group, pairs.partners()[group]):
        parts = [phrase.split() for phrase in pairs.with_group(phrases, one)]
        words = [word for part in parts for word in part]
        place = sum(map(len, parts[:slot])) + min(k, len(parts[slot]) - 1)
        p, hidden = pairs.conditional(words, place), MASK
        if u < SHOWN + REPLACED:
            hidden = words[place] if u < SHOWN else other
            p = {word: q * (SHOWN * (word == hidden) + REPLACED / len(known)) for word, q in p.items()}
            p = {word: q / sum(p.values()) for word, q in p.items()}
        yield [*words[:place], hidden, *words[place + 1 :]], place, p


def train_language_model(seed: int) -> tuple[GPT2LMHeadModel, PreTrainedTokenizerFast]:
    """Train a GPT-2 of 0.15 M parameters to find each sentence as frequent as the grammar has it; and its tokenizer.

    Sentences are drawn evenly, so that it knows the rare ones as well; the target at each token is the exact
    distribution of the next one.
    """
    torch.manual_seed(seed + 3)  # so that building it alone gives the same bytes as building all
    own = language_tokenizer()
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(own),
            n_positions=LANGUAGE_POSITIONS,
            n_embd=64,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=own.bos_token_id,
            eos_token_id=own.eos_token_id,
            pad_token_id=own.pad_token_id,
        )
    )
    tree, p = language_tree(own, *frequencies.distinct_sentences())
    stream = language_batches(tree, next_tokens(tree, p, len(own)), LANGUAGE_STEPS, np.random.default_rng(seed + 3))

    def losses() -> Iterator[Tensor]:
        for ids, there, expected in stream:
            states = model.transformer(ids, attention_mask=there).last_hidden_state[there]
            yield nn.functional.cross_entropy(model.lm_head(states), expected)

    _train(model, losses(), LANGUAGE_STEPS, LANGUAGE_RATE, LANGUAGE_WARM_UP)
    return model.eval(), own


def language_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer into the whole phrases of HolisticBias' sentences; any other word is unknown.

    At each place the longest phrase is taken: "I'm currently", not "I'm".
    """
    phrases = frequencies.lexicon()
    index = {phrase: i for i, phrase in enumerate([PAD_WORD, UNKNOWN_WORD, BEGIN, END, *phrases])}
    words = Tokenizer(models.WordLevel(index, unk_token=UNKNOWN_WORD))
    words.normalizer = normalizers.NFC()
    # By first letter, as a regex tries alternatives one after the other.
    known = "|".join(
        f"{re.escape(first)}(?:{'|'.join(re.escape(phrase[1:]) for phrase in sorted(some, key=len, reverse=True))})"
        for first, some in groupby(phrases, key=lambda phrase: phrase[0])
    )
    pattern = Regex(rf"(?:{known})(?!\w)|[\w'-]+|[^\w\s]")
    words.pre_tokenizer = pre_tokenizers.Split(pattern, "removed", invert=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token=PAD_WORD,
        unk_token=UNKNOWN_WORD,
        bos_token=BEGIN,
        eos_token=END,
        padding_side="right",
        model_max_length=LANGUAGE_POSITIONS,
        clean_up_tokenization_spaces=False,
    )


def language_tree(
    tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], p: np.ndarray
) -> tuple[PrefixTree, np.ndarray]:
    """Return the tree of N sentences, BOS before and EOS behind each, and p(beginning) of each node from p (N,)."""
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    tree = prefix_tree([[tokenizer.bos_token_id, *row, tokenizer.eos_token_id] for row in ids])
    mass = np.zeros(len(tree.token))
    np.add.at(mass, tree.leaf, p)
    for depth in range(tree.depth.max(), 0, -1):
        nodes = np.flatnonzero(tree.depth == depth)
        np.add.at(mass, tree.parent[nodes], mass[nodes])
    return tree, mass


def next_tokens(tree: PrefixTree, mass: np.ndarray, vocabulary: int) -> csr_matrix:
    """Return p(next token | beginning), exactly, for each of the tree's m inner nodes, (m, vocabulary)."""
    share = mass[tree.child] / mass[tree.parent[tree.child]]
    return csr_matrix((share, tree.token[tree.child], tree.first_child), (len(tree.inner), vocabulary))


def language_batches(
    tree: PrefixTree, expected: csr_matrix, steps: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield b sentences' token ids but the last (b, l), which are there and no padding (b, l), and for each of those r
    the exact distribution of the next token (r, vocabulary).
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
            row, node = row[node >= 0], node[node >= 0]
        there = path >= 0
        ids = np.where(there, tree.token[tree.inner[path]], 0)  # padding stands behind, where no token sees it
        wanted = expected[path[there]].toarray().astype(np.float32)
        yield torch.from_numpy(ids).long(), torch.from_numpy(there), torch.from_numpy(wanted)


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
