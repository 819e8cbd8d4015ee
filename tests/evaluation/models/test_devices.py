"""Responses on the device at hand: in float32 those of `generate`, in bfloat16 the likeliest within rounding."""

from dataclasses import replace

import pytest
import torch

from evenhand.evaluation.models.contexts import encode_contexts
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import generate_responses
from tests.tiny_models import tiny

NEW = 10
SILENT = [0, 1, 2]  # tokens that no text shows: end, padding, unknown
CONTEXTS = ["a b c", "a b c a", "c", "b b a c b a", "a b c"]


@pytest.fixture(
    params=[
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
        ),
    ]
)
def device(request):
    return request.param


def answered(model, **arguments):
    asked = decoding("sample", do_sample=False, max_new_tokens=NEW, **arguments)
    pairs = generate_responses(model, CONTEXTS, [0] * len(CONTEXTS), asked)
    found = dict(pair for rows, texts in pairs for pair in zip(rows, texts, strict=True))
    return [found[row] for row in range(len(CONTEXTS))]


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "sliding", "bart"])
def test_in_float32_they_are_those_of_generate(architecture, device):
    model = tiny(architecture)
    model = replace(model, model=model.model.to(device))
    expected = []
    for ids in encode_contexts(model, CONTEXTS):
        ids = torch.tensor([ids], device=device)
        output = model.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=NEW)
        start = 0 if model.kind == "encoder_decoder" else ids.shape[1]
        expected.append(model.tokenizer.decode(output[0, start:], skip_special_tokens=True).strip())
    assert answered(model) == expected


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "sliding"])
def test_in_bfloat16_each_token_is_the_likeliest_within_rounding(architecture, device):
    model = tiny(architecture)
    model = replace(model, model=model.model.to(device, torch.bfloat16))
    for context, response in zip(
        encode_contexts(model, CONTEXTS), answered(model, suppress_tokens=SILENT), strict=True
    ):
        said = model.tokenizer(response, add_special_tokens=False)["input_ids"]
        assert len(said) == NEW
        with torch.inference_mode():
            logits = model.model(torch.tensor([context + said], device=device)).logits[0].float().cpu()
        given = logits[len(context) - 1 : -1].clone()
        given[:, SILENT] = -torch.inf
        chosen = given[torch.arange(NEW), torch.tensor(said)]
        # bfloat16 keeps 8 bits of a number; the sums of two ways to batch differ by a few of the last.
        assert (given.max(dim=1).values - chosen <= 4 * 2**-8 * logits.abs().max()).all()
