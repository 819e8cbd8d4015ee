"""A benchmark of responses per second: `generate_responses` and two methods of transformers on the same prompts.

    python -m benchmarks.generation_throughput [--model ID_OR_PATH] [--prompts 3000] [--batch_size 256] [--runs 3]
    python -m benchmarks.real_model   # the same for a real chat model

All methods sample from the model's distribution, up to 40 tokens. `padded` is `model.generate` over batches in the
given order, padded on the left to the longest context of each batch. `continuous` is `model.generate_batch`, the
library's continuous batching. One prompt in five has a persona, so contexts differ in length as in practice. The
methods alternate, so that other work on the machine slows all of them; the rate per CPU second hardly depends on other
work.
"""

import logging
from collections.abc import Sequence
from statistics import median

import numpy as np
import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from benchmarks.measuring import parse_options, timed
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompt_files import load_personas
from evenhand.evaluation.data.prompts import sample_cells
from evenhand.evaluation.models.contexts import encode_contexts, render_contexts
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.model import prompt_seed
from evenhand.evaluation.score import PERSONA, TEXT
from evenhand.recipes.testbed import DIALOGUE_MODEL

PERSONA_SHARE = 0.2
BLOCK_TOKENS = 32  # block size of the paged cache


def contexts_in_use(model: DialogueModel, n: int, persona_share: float = PERSONA_SHARE) -> list[str]:
    """Return n rendered prompts of the paper's taxonomy in random order, a share of them with a persona."""
    rng = np.random.default_rng(0)
    rows = sample_cells(generate_prompts(load_taxonomy("paper")), 1, seed=0, personas=load_personas(None))
    rows = rows.sample(n, random_state=0)
    personas = np.where(rng.random(n) < persona_share, rows[PERSONA], "")
    return render_contexts(model, rows[TEXT].tolist(), personas.tolist())


def padded(model: DialogueModel, contexts: Sequence[str], batch_size: int, **arguments: object) -> list[str]:
    """Return responses by `model.generate` over padded batches in the given order."""
    responses = []
    for start in range(0, len(contexts), batch_size):
        batch = model.tokenizer(
            list(contexts[start : start + batch_size]), padding=True, add_special_tokens=False, return_tensors="pt"
        ).to(model.model.device)
        output = model.model.generate(**batch, **decoding("sample"), **arguments)
        responses += model.tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return responses


def continuous(model: DialogueModel, contexts: Sequence[str], batch_size: int) -> list[str]:
    """Return responses by `generate_batch`, whose cache has room for `batch_size` contexts and their responses."""
    ids, arguments = encode_contexts(model, contexts), decoding("sample")
    blocks = -(-batch_size * (max(map(len, ids)) + arguments["max_new_tokens"]) // BLOCK_TOKENS)
    defaults = model.model.generation_config
    end = {"eos_token_id": defaults.eos_token_id, "pad_token_id": defaults.pad_token_id}
    outputs = model.model.generate_batch(
        ids,
        generation_config=GenerationConfig(**arguments, **end),
        continuous_batching_config=ContinuousBatchingConfig(seed=0, page_size=BLOCK_TOKENS, num_blocks=blocks),
        persistent_manager=True,
    )
    if errors := {output.error for output in outputs.values() if output.error}:
        raise RuntimeError(f"generate_batch fails: {errors}")
    generated = [output.generated_tokens for output in outputs.values()]
    return model.tokenizer.batch_decode(generated, skip_special_tokens=True)


def responses_by_row(model: DialogueModel, contexts: Sequence[str], batch_size: int) -> list[str]:
    """Return responses by Evenhand's `generate_responses`, in the order of the contexts."""
    responses = [""] * len(contexts)
    seeds = [prompt_seed(str(row), 0) for row in range(len(contexts))]
    for rows, texts, _ in generate_responses(model, contexts, seeds, decoding("sample"), batch_size=batch_size):
        for row, text in zip(rows, texts, strict=True):
            responses[row] = text
    return responses


METHODS = (padded, continuous, responses_by_row)


def main() -> None:
    options = parse_options(__doc__, model=str(DIALOGUE_MODEL), prompts=3000, batch_size=256, threads=1, runs=3)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    logging.getLogger("ContinuousBatchingLogger").setLevel(logging.ERROR)
    model = load_dialogue_model(options.model)
    contexts = contexts_in_use(model, options.prompts)
    lengths = [len(ids) for ids in encode_contexts(model, contexts)]
    print(
        f"{model.name}: {sum(p.numel() for p in model.model.parameters()) / 1e6:.2f} M parameters, "
        f"{model.model.device.type}, {options.threads} thread(s); {len(contexts)} contexts of {min(lengths)} to "
        f"{max(lengths)} tokens (median {median(lengths):.0f}), batches of {options.batch_size}"
    )
    taken: dict[str, list[float]] = {method.__name__: [] for method in METHODS}
    for method in METHODS:
        method(model, contexts[: min(16, options.batch_size)], options.batch_size)  # warm
    for _ in range(options.runs):
        for method in METHODS:
            taken[method.__name__].append(timed(method, model, contexts, options.batch_size)[0])
    for name, seconds in taken.items():
        ratio = median(other / ours for other, ours in zip(seconds, taken["responses_by_row"], strict=True))
        rate = len(contexts) / median(seconds)
        print(f"{name:>16}: {rate:.3g} responses per CPU second; responses_by_row is {ratio:.2f} times as fast")


if __name__ == "__main__":
    main()
