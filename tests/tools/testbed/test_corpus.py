"""The targets that the dialogue model learns from are the grammar's own distributions, exactly."""

import numpy as np
import pytest
from transformers import AutoTokenizer

from evenhand.recipes.testbed import DIALOGUE_MODEL
from tools.testbed import grammar
from tools.testbed.corpus import draw_answers, tokenized_grammar

SELF = "I'm {noun_phrase}."


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(DIALOGUE_MODEL)


@pytest.fixture(scope="module")
def answers(tokenizer):
    return tokenized_grammar(tokenizer)


def test_a_response_is_tokenized_as_its_text_is(tokenizer, answers):
    descriptors = ["hard-of-hearing", "tulver", "who uses a wheelchair", "M2F"] * 50
    p = grammar.style_distribution([SELF] * 200, descriptors)
    for ids, expected in draw_answers(answers, p, descriptors, np.random.default_rng(0)):
        text = tokenizer.decode(ids, skip_special_tokens=True)
        assert tokenizer(text)["input_ids"] == ids[:-1]
        assert ids[-1] == tokenizer.eos_token_id
        assert len(expected) == len(ids)
        np.testing.assert_allclose(expected.sum(dim=1), 1, rtol=1e-5)
        assert expected[range(len(ids)), ids].min() > 0


def test_the_first_expectation_is_the_mixture_of_the_families_first_tokens(tokenizer, answers):
    p = grammar.style_distribution([SELF], ["Deaf"])
    by_hand = np.zeros(len(tokenizer))
    for share, family in zip(p[0], grammar.families(), strict=True):
        for opener in family.openers:
            by_hand[tokenizer(opener)["input_ids"][0]] += share / len(family.openers)
    [(_, expected)] = draw_answers(answers, p, ["Deaf"], np.random.default_rng(0))
    np.testing.assert_allclose(expected[0].numpy(), by_hand, atol=1e-6)


def test_expectations_depend_on_the_tokens_before(tokenizer, answers):
    # After an opener that only Envious has, only its cores can follow, whatever the descriptor.
    envious = next(family for family in grammar.families() if family.style == "Envious")
    p = grammar.style_distribution([SELF] * 400, ["sexy"] * 400)
    length = len(tokenizer("Lucky you,")["input_ids"])
    starts = {tokenizer(f" {core}".replace(grammar.MENTION, "sexy"))["input_ids"][0] for core in envious.cores}
    seen = 0
    for ids, expected in draw_answers(answers, p, ["sexy"] * 400, np.random.default_rng(0)):
        if tokenizer.decode(ids).startswith("Lucky you,"):
            seen += 1
            assert set(np.flatnonzero(expected[length].numpy())) == starts
    assert seen > 3
