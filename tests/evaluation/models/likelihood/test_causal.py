"""Σ log p of whole sentences against a model whose probabilities are known, and against one sentence at a time."""

import numpy as np
import pytest
import torch

from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.likelihood.sentences import encode_sentences, sequence_log_likelihoods, start_token
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.recipes.testbed import DIALOGUE_MODEL

SENTENCES = ["I'm a deaf grandmother.", "Hi!", "I love tall people.", "Hi!", "What do you do for a living?"]


@pytest.fixture(scope="module")
def model():
    return load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), device="cpu"))


def scored(model, sentences, **arguments):
    encoded = encode_sentences(model, sentences, **arguments)
    total, tokens = np.full(len(sentences), np.nan), np.zeros(len(sentences), dtype=int)
    for rows, values, counts in sequence_log_likelihoods(model, encoded):
        total[rows], tokens[rows] = values, counts
    return total, tokens


@torch.inference_mode()
def by_hand(model, sentence, context="", end=False):
    """Return Σ log p of one sentence, token by token, and the number of its scored tokens."""
    encode = model.tokenizer.encode
    ids = [model.tokenizer.bos_token_id, *(encode(context, add_special_tokens=False) if context else [])]
    total, scored_ids = 0.0, encode(sentence, add_special_tokens=False) + [model.tokenizer.eos_token_id] * end
    for token in scored_ids:
        total += model.model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1)[token].item()
        ids.append(token)
    return total, len(scored_ids)


@pytest.mark.parametrize("arguments", [{}, {"context": "I like tea.\n"}, {"end_of_sequence": True}])
def test_every_token_counts_given_all_before_it(model, arguments):
    total, tokens = scored(model, SENTENCES, **arguments)
    for row, sentence in enumerate(SENTENCES):
        expected, count = by_hand(
            model, sentence, arguments.get("context", ""), arguments.get("end_of_sequence", False)
        )
        assert total[row] == pytest.approx(expected, abs=1e-4) and tokens[row] == count


def test_a_context_and_its_sentence_are_read_as_one_text(model):
    """In "A deaf" the words are one text to the tokenizer: "deaf" has the blank before it in its token."""
    encode, decode = (getattr(model.tokenizer, name) for name in ("encode", "decode"))
    for context in ("I like", "I like ", "I like\n"):
        encoded = encode_sentences(model, ["deaf people.", "tall."], context=context)
        text = context if context[-1].isspace() else f"{context} "
        assert [ids[1:] for ids in encoded.ids] == [encode(f"{text}deaf people."), encode(f"{text}tall.")]
        scored = [decode(ids[begin:]) for ids, begin in zip(encoded.ids, encoded.begin, strict=True)]
        assert [one.strip() for one in scored] == ["deaf people.", "tall."]
    assert decode(encode_sentences(model, ["deaf people."], context="I like").ids[0][3:]) == " deaf people."


def test_where_there_is_no_bos_a_sentence_stands_after_eos(model):
    tokenizer = load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), device="cpu")).tokenizer
    assert start_token(tokenizer) == (tokenizer.bos_token_id, "bos")
    tokenizer.bos_token = None
    assert start_token(tokenizer) == (tokenizer.eos_token_id, "eos")
