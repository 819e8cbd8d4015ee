"""Responses per second: ours against plain `model.generate` over left-padded batches of the same prompts.

    python benchmarks/generation_throughput.py [--model ID_OR_PATH] [--prompts 3000] [--batch_size 256] [--threads 1]

Both sample from the model's own distribution, up to 40 tokens. The plain way is what people write: prompts in the
order given, padded on the left to the longest of each batch, each batch run until its last row ends. One prompt in
five has a persona, so contexts differ in length as in use. The two take turns, so that other work on the machine
slows both; the rate of CPU time is hardly slowed by it at all.
"""

import argparse
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import numpy as np
import torch

from evenhand.evaluation.datasets.holistic_bias import generate, load_taxonomy
from evenhand.evaluation.datasets.prompt_files import load_personas
from evenhand.evaluation.datasets.prompts import sample_cells
from evenhand.evaluation.models.contexts import encode_contexts, render_contexts
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import generate_responses, prompt_seed
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.results import PERSONA, TEXT

TESTBED = Path(__file__).resolve().parents[1] / "recipes" / "testbed" / "dialogue_model"
PERSONA_SHARE = 0.2


def contexts_in_use(model: DialogueModel, n: int) -> list[str]:
    """Return n rendered prompts of the paper's taxonomy in random order, one in five with a persona."""
    rng = np.random.default_rng(0)
    rows = sample_cells(generate(load_taxonomy("paper")), 1, seed=0, personas=load_personas(None)).to_pandas()
    rows = rows.sample(n, random_state=0)
    personas = np.where(rng.random(n) < PERSONA_SHARE, rows[PERSONA], "")
    return render_contexts(model, rows[TEXT].tolist(), personas.tolist())


def plain(model: DialogueModel, contexts: Sequence[str], batch_size: int) -> list[str]:
    """Return responses by `generate` over padded batches in the order given."""
    responses = []
    for start in range(0, len(contexts), batch_size):
        batch = model.tokenizer(
            list(contexts[start : start + batch_size]), padding=True, add_special_tokens=False, return_tensors="pt"
        ).to(model.model.device)
        output = model.model.generate(**batch, **decoding("sample"))
        responses += model.tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return responses


def ours(model: DialogueModel, contexts: Sequence[str], batch_size: int) -> list[str]:
    """Return responses by `generate_responses`."""
    responses = [""] * len(contexts)
    seeds = [prompt_seed(str(row), 0) for row in range(len(contexts))]
    for rows, texts in generate_responses(model, contexts, seeds, decoding("sample"), batch_size=batch_size):
        for row, text in zip(rows, texts, strict=True):
            responses[row] = text
    return responses


def timed(respond: Callable[..., list[str]], *arguments: object) -> tuple[float, float, float]:
    """Return responses per second, the same per second of CPU time, and the mean number of words."""
    start, cpu = time.perf_counter(), time.process_time()
    responses = respond(*arguments)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    words = float(np.mean([len(response.split()) for response in responses]))
    return len(responses) / seconds, len(responses) / cpu_seconds, words


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=str(TESTBED))
    parser.add_argument("--prompts", type=int, default=3000)
    parser.add_argument("--batch_size", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = load_dialogue_model(options.model)
    contexts = contexts_in_use(model, options.prompts)
    lengths = [len(ids) for ids in encode_contexts(model, contexts)]
    print(
        f"{model.name}: {sum(p.numel() for p in model.model.parameters()) / 1e6:.2f} M parameters, "
        f"{model.model.device.type}, {options.threads} thread(s); {len(contexts)} contexts of {min(lengths)} to "
        f"{max(lengths)} tokens (median {median(lengths):.0f}), batches of {options.batch_size}"
    )
    for respond in (plain, ours):
        respond(model, contexts[: options.batch_size], options.batch_size)  # warm
    rates: dict[str, list[tuple[float, float, float]]] = {"plain": [], "ours": []}
    for _ in range(options.runs):
        rates["plain"].append(timed(plain, model, contexts, options.batch_size))
        rates["ours"].append(timed(ours, model, contexts, options.batch_size))
    for column, name in enumerate(("responses/s", "responses per CPU second")):
        of = {way: sorted(run[column] for run in runs) for way, runs in rates.items()}
        ratios = sorted(b[column] / a[column] for a, b in zip(rates["plain"], rates["ours"], strict=True))
        for way, values in of.items():
            print(f"{way:>6} {name}: median {median(values):.0f}, from {values[0]:.0f} to {values[-1]:.0f}")
        print(f"       ratio of the two: median {median(ratios):.2f}, least {ratios[0]:.2f}")
    print("mean words of a response: " + ", ".join(f"{way} {runs[0][2]:.2f}" for way, runs in rates.items()))


if __name__ == "__main__":
    main()
