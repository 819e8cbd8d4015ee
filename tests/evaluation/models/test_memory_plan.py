"""The planned memory of a batch of responses."""

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from evenhand.evaluation.models.generation import SLACK, response_bytes


@pytest.mark.parametrize(
    ("arguments", "bytes_per_logit"),
    [
        ({"do_sample": False}, 8),
        ({"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}, 12),
        ({"do_sample": True, "temperature": 0.7, "top_k": 50, "top_p": 0.9}, 12 + 4 + 4 + 17),
        ({"do_sample": False, "num_beams": 3}, 3 * 12),
    ],
)
def test_copies_of_the_logits_are_in_the_plan(arguments, bytes_per_logit):
    """Each logit takes the model's 4 bytes and the copies' bytes, in each beam."""
    config = LlamaConfig(vocab_size=500, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    larger = LlamaConfig(**{**config.to_dict(), "vocab_size": 1500})
    plans = [response_bytes(LlamaForCausalLM(each), 5, {"max_new_tokens": 3, **arguments}) for each in (config, larger)]
    own = 4 * (arguments.get("num_beams") or 1)
    assert plans[1] - plans[0] == pytest.approx(SLACK * 1000 * (own + bytes_per_logit), abs=2)
