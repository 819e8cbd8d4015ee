"""Greedy responses on CPU and GPU: equal to `generate` in float32, the most probable within rounding in bfloat16."""

from dataclasses import replace

import pytest
import torch

from evenhand.evaluation.models.contexts import encode_contexts
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import generate_responses
from tests.tiny_models import tiny

NEW = 10
SPECIAL = [0, 1, 2]  # tokens that are absent from texts: end, padding, unknown
CONTEXTS = ["a b c", "a b c a", "c", "b b a c b a", "a b c"]


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]
        ),
    ]
)
def device(request):
    return request.param


def generate_in_order(model, **arguments):
    arguments = decoding("sample", do_sample=False, max_new_tokens=NEW, **arguments)
    pairs = generate_responses(model, CONTEXTS, [0] * len(CONTEXTS), arguments)
    responses = dict(pair for rows, texts, _ in pairs for pair in zip(rows, texts, strict=True))
    return [responses[row] for row in range(len(CONTEXTS))]


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "sliding", "bart"])
def test_float32_responses_equal_generate(architecture, device):
    model = tiny(architecture)
    model = replace(model, model=model.model.to(device))
    expected = []
    for ids in encode_contexts(model, CONTEXTS):
        ids = torch.tensor([ids], device=device)
        output = model.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW)
        start = 0 if model.kind == "encoder_decoder" else ids.shape[1]
        expected.append(model.tokenizer.decode(output[0, start:], skip_special_tokens=True).strip())
    assert generate_in_order(model) == expected


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "sliding"])
def test_bfloat16_tokens_are_the_most_probable_within_rounding(architecture, device):
    model = tiny(architecture)
    model = replace(model, model=model.model.to(device, torch.bfloat16))
    for context, response in zip(
        encode_contexts(model, CONTEXTS), generate_in_order(model, suppress_tokens=SPECIAL), strict=True
    ):
        ids = model.tokenizer(response, add_special_tokens=False)["input_ids"]
        assert len(ids) == NEW
        with torch.inference_mode():
            logits = model.model(torch.tensor([context + ids], device=device)).logits[0].float().cpu()
        token_logits = logits[len(context) - 1 : -1].clone()
        token_logits[:, SPECIAL] = -torch.inf
        chosen = token_logits[torch.arange(NEW), torch.tensor(ids)]
        # bfloat16 has 8 bits of precision; batches of different sizes differ in the last few.
        assert (token_logits.max(dim=1).values - chosen <= 4 * 2**-8 * logits.abs().max()).all()
