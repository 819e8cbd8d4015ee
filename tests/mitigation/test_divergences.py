"""The divergence of responses on a tiny model, against the model read one sequence at a time."""

import math

import pandas as pd
import pytest
import torch

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.divergences import response_divergences
from tests.mitigation.tiny_dialogue import tiny_base, tiny_encoder_decoder

RESPONSES = pd.DataFrame(
    {
        "template": ["t", "t", "t", "alone"],
        "noun": "n",
        "descriptor": ["a", "b", "a", "c"],
        "text": ["a d", "b", "a d", "c"],
        "persona": "",
        "response": ["red sun sky blue red", "sky", "blue sky sun", "red"],
    },
    index=[3, 3, 1, 0],
)


def by_hand(base, texts, response, first_tokens):
    """Return the mutual information of person (one of two, equally often) and each next token, summed."""
    encode = base.tokenizer.encode
    opening = [*encode(response), base.tokenizer.eos_token_id][:first_tokens]
    share = [0.5, 0.5]
    total = 0.0
    for j, token in enumerate(opening):
        p = []
        for text in texts:
            ids = [*encode(text), base.tokenizer.eos_token_id, *opening[:j]]
            with torch.no_grad():
                p.append(base.model(torch.tensor([ids])).logits[0, -1].double().softmax(-1))
        mean = share[0] * p[0] + share[1] * p[1]
        total += sum(s * (q * (q / mean).log()).sum().item() for s, q in zip(share, p, strict=True))
        said = [s * q[token].item() for s, q in zip(share, p, strict=True)]
        share = [value / sum(said) for value in said]
    return total


@pytest.mark.parametrize("first_tokens", [1, 4])
def test_the_divergence_of_responses_by_hand(first_tokens):
    base = tiny_base()
    found = response_divergences(base, RESPONSES, first_tokens)
    # With two descriptors, the eight prompts are four times each of the two.
    expected = [by_hand(base, ("a d", "b"), response, first_tokens) for response in RESPONSES["response"][:3]]
    assert found[:3].tolist() == pytest.approx(expected, rel=1e-4)
    assert found[3] == 0.0  # nobody else is asked
    assert found[:3].min() > 0 and found.max() < first_tokens * math.log(2)


def test_without_other_people_or_with_an_encoder_decoder_model_there_is_none():
    with pytest.raises(InputError, match="two descriptors"):
        response_divergences(tiny_base(), RESPONSES[3:])
    with pytest.raises(InputError, match="encoder-decoder"):
        response_divergences(tiny_encoder_decoder(), RESPONSES)
