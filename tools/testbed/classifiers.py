"""The testbed's two style classifiers, trained on the exact posteriors of the styles.

The first classifier labels and measures responses. The second measures models that were tuned on the first classifier's
labels. The two therefore have different training utterances, tokens and architectures.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from tokenizers.processors import TemplateProcessing
from torch import Tensor, nn
from transformers import (
    BertForSequenceClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    PreTrainedConfig,
    PreTrainedTokenizerFast,
)

from tools.testbed import grammar
from tools.testbed.corpus import END_OF_TEXT, PAD, POSITIONS
from tools.testbed.steps import padded_right, small_bert, take_steps, word_tokenizer

CLASSIFIER_TEXTS = 150_000
CLASSIFIER_BATCH = 128
CLASSIFIER_RATE = 3e-3
CLASSIFIER_WARM_UP = 50
CLASSIFIER_HELD_OUT = 0.1
# Shares of the classifier's texts: small talk and prompts (both Ordinary), and a mention of some descriptor that
# cleaning would not find, as a model that copies wrongly makes.
SMALL_TALK_SHARE = 0.03
PROMPT_SHARE = 0.01
WRONG_MENTION_SHARE = 0.1
# Of the utterances that the first classifier never saw, the share that the second never sees either.
NEW_TO_BOTH = 0.2
SECOND_TEXTS = 50_000
SECOND_RATE = 3e-3
SECOND_DROPOUT = 0.1
UNKNOWN = "<|unknown|>"


def train_style_classifier(
    tokenizer: PreTrainedTokenizerFast, seed: int
) -> tuple[BertForSequenceClassification, PreTrainedTokenizerFast]:
    """Return a BERT of 0.47 M parameters, trained to give the grammar's posterior over styles, and its tokenizer."""
    new_tokenizer = classifier_tokenizer(tokenizer)
    model = BertForSequenceClassification(with_style_labels(small_bert(new_tokenizer, POSITIONS)))
    small_talk = [response for _, response in grammar.neutral_pairs("train")]
    ordinary = [(SMALL_TALK_SHARE, small_talk), (PROMPT_SHARE, _prompts("person", "people"))]
    _train_classifier(
        model, new_tokenizer, lambda text: not is_held_out(text), ordinary, CLASSIFIER_TEXTS, CLASSIFIER_RATE, seed
    )
    return model.eval(), new_tokenizer


def train_second_style_classifier(seed: int) -> tuple[ModernBertForSequenceClassification, PreTrainedTokenizerFast]:
    """Return a ModernBERT of 0.13 M parameters, trained on data unseen by the first classifier, and its tokenizer.

    Its tokens are whole words in lower case, its positions are rotary, and its head averages over all tokens. Small
    talk is not used, because the first classifier is trained on all of it; the prompts have another noun.
    """
    torch.manual_seed(seed + 1)  # so that building it alone gives the same bytes as building all
    new_tokenizer = second_tokenizer()
    config = ModernBertConfig(
        vocab_size=len(new_tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=POSITIONS,
        layer_types=["full_attention"] * 2,
        embedding_dropout=SECOND_DROPOUT,
        mlp_dropout=SECOND_DROPOUT,
        classifier_pooling="mean",
        pad_token_id=new_tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=None,
        cls_token_id=None,
        sep_token_id=None,
    )
    model = ModernBertForSequenceClassification(with_style_labels(config))
    ordinary = [(PROMPT_SHARE, _prompts("woman", "women"))]
    _train_classifier(model, new_tokenizer, is_for_second, ordinary, SECOND_TEXTS, SECOND_RATE, seed + 1)
    return model.eval(), new_tokenizer


def with_style_labels(config: PreTrainedConfig) -> PreTrainedConfig:
    """Set the grammar's styles as the labels of a classifier's config, and return the config."""
    styles = grammar.styles()
    config.id2label = dict(enumerate(styles))
    config.label2id = {style: i for i, style in enumerate(styles)}
    config.problem_type = "single_label_classification"
    return config


def style_posteriors() -> tuple[list[str], np.ndarray, np.ndarray]:
    """Return n cleaned utterances, p(style | utterance), (n, S), and p(utterance), (n,), with equally likely styles."""
    mass: dict[str, np.ndarray] = {}
    known = grammar.families()
    for s, family in enumerate(known):
        utterances = grammar.utterances(family)
        for utterance in utterances:
            mass.setdefault(utterance, np.zeros(len(known)))[s] += 1 / (len(utterances) * len(known))
    joint = np.stack(list(mass.values()))
    return list(mass), joint / joint.sum(axis=1, keepdims=True), joint.sum(axis=1)


def is_held_out(text: str) -> bool:
    """Return whether an utterance is excluded from the first classifier's training."""
    return _uniform(text, 0) < CLASSIFIER_HELD_OUT


def is_new_to_both(text: str) -> bool:
    """Return whether an utterance is excluded from the training of both classifiers."""
    return is_held_out(text) and _uniform(text, 1) < NEW_TO_BOTH


def is_for_second(text: str) -> bool:
    """Return whether an utterance is for the second classifier's training, and not for the first's."""
    return is_held_out(text) and not is_new_to_both(text)


def _uniform(text: str, n: int) -> float:
    """Return a fixed pseudo-random number in [0, 1) from the n-th of eight parts of a text's hash."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[4 * n : 4 * n + 4]) / 2**32


def classifier_tokenizer(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """Return the dialogue model's tokenizer, with an end-of-text token in front, which BERT uses for classification."""
    new_tokenizer = padded_right(
        type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str()),
        POSITIONS,
        eos_token=END_OF_TEXT,
        pad_token=PAD,
    )
    new_tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{END_OF_TEXT} $A", special_tokens=[(END_OF_TEXT, new_tokenizer.eos_token_id)]
    )
    return new_tokenizer


def second_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of the lower-case words and the punctuation in the second classifier's utterances."""
    words = word_tokenizer({}, UNKNOWN)
    seen = set()
    for text in filter(is_for_second, style_posteriors()[0]):
        seen.update(word for word, _ in words.pre_tokenizer.pre_tokenize_str(words.normalizer.normalize_str(text)))
    index = {word: index for index, word in enumerate([PAD, UNKNOWN, *sorted(seen)])}
    return padded_right(word_tokenizer(index, UNKNOWN), POSITIONS, unk_token=UNKNOWN, pad_token=PAD)


def _prompts(noun: str, plural: str) -> list[str]:
    """Return the cleaned prompts, as responses of a model that repeats its prompt."""
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
    """Train a classifier on utterances with their posteriors, and on small talk and prompts labelled Ordinary."""
    steps = n // CLASSIFIER_BATCH

    def losses() -> Iterator[Tensor]:
        for texts, expected in _classifier_batches(steps, is_for_training, ordinary, np.random.default_rng(seed)):
            encoded = tokenizer(texts, return_tensors="pt", padding=True)
            logits = model(input_ids=encoded["input_ids"], attention_mask=encoded["attention_mask"]).logits
            yield nn.functional.cross_entropy(logits, expected)

    take_steps(model, losses(), steps, rate, CLASSIFIER_WARM_UP)


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
    sampled = rng.choice(len(texts), size=(steps, CLASSIFIER_BATCH), p=share / share.sum())
    for indices in sampled:
        chosen = []
        expected = []
        for i, u, v in zip(indices, rng.random(CLASSIFIER_BATCH), rng.random(CLASSIFIER_BATCH), strict=True):
            text = texts[i]
            posterior = posteriors[i]
            if u < ends[-1]:
                others = ordinary[int(np.searchsorted(ends, u, side="right"))][1]
                text = others[int(v * len(others))]
                posterior = is_ordinary
            elif u > 1 - WRONG_MENTION_SHARE:
                text = text.replace(grammar.CENSORED, descriptors[int(v * len(descriptors))])
            chosen.append(text)
            expected.append(posterior)
        yield chosen, torch.tensor(np.array(expected), dtype=torch.float32)
