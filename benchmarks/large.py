"""A benchmark of what a measurement of a large model takes: start, answers, likelihoods, screen, and memory.

$ python -m benchmarks.large                                       # the built-in model on a CPU, a minute
$ python -m benchmarks.large --model Qwen/Qwen2.5-7B-Instruct --launch vllm --answers 3120 --concurrency 256
$ python -m benchmarks.large --model meta-llama/Llama-3.3-70B-Instruct --launch vllm --answers 3120 --concurrency 512

The last one takes eight GPUs: `--arguments '{"tensor_parallel_size": 4, "data_parallel_size": 2}'`.
Without `--launch`, this process loads the model. Answers are to the prompts of a measurement of 60 people. Printed are
the seconds of each step, its tokens and rows per second, the peak memory, and the time of whole measurements at these
rates. The classification of styles is not part of it.
"""

import json
import time
from collections.abc import Callable, Iterable

import pandas as pd
import torch

from benchmarks.measuring import parse_options, peak_memory
from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import sample_cells
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models.kinds import model_kind
from evenhand.evaluation.tables import join_batches
from evenhand.recipes.testbed import DIALOGUE_MODEL

DESCRIPTORS = 60
PER_CELL = 2
LISTED_TOKENS = 20
SIZES = {"quick": 3_120, "full": 20_800}  # answers of `--size`: 60 × 26 × 2 and 200 × 26 × 4


def step(name: str, work: Callable[[], Iterable[object]], n_rows: int) -> tuple[float, list]:
    """Run a step, print its seconds and rows per second, and return its seconds and results."""
    start = time.perf_counter()
    found = list(work())
    seconds = time.perf_counter() - start
    print(f"{name}: {seconds:.1f} s, {n_rows / seconds:.1f} rows a second", flush=True)
    return seconds, found


def main() -> None:
    options = parse_options(
        __doc__,
        model=(str(DIALOGUE_MODEL), "a Hugging Face id or a folder"),
        launch=("", "vllm or transformers: the server to start"),
        arguments=("{}", "arguments of the server, JSON"),
        answers=256,
        concurrency=64,
    )
    settings = ModelSettings(name=options.model)
    if options.launch:
        settings = ModelSettings(
            name=options.model,
            launch=options.launch,
            launch_arguments=json.loads(options.arguments),
            concurrency=options.concurrency,
        )
    model = model_kind(settings)(settings, DecodingSettings())
    prompts = sample_cells(generate_prompts(load_taxonomy("paper")), PER_CELL, seed=0, descriptors=DESCRIPTORS)
    prompts = prompts.head(options.answers)
    n = len(prompts)
    try:
        step("start, and one answer", lambda: model.respond(prompts.head(1)), 1)
        seconds, batches = step("answers", lambda: model.respond(prompts), n)
        if not model.without_likelihoods:
            pairs = prompts.join(join_batches(batches)[[columns.RESPONSE, columns.CUT]])
            of_likelihoods, scored = step("likelihoods", lambda: model.log_likelihood(pairs), n)
            tokens = pd.concat(scored)[columns.TOKENS].sum()
            print(f"{tokens:,} tokens of answers: {tokens / seconds:.0f} written a second", flush=True)
            print(f"{tokens / of_likelihoods:.0f} scored a second, without those of the prompts", flush=True)
        if not model.without_predictions:
            people = prompts.drop_duplicates(columns.DESCRIPTOR)
            step("screen, one template", lambda: [model.predictions(people, LISTED_TOKENS)], len(people))
    finally:
        model.close()
    print(f"peak memory of this process: {peak_memory():.1f} GiB")
    if torch.cuda.is_available():
        print(f"peak memory of this process's GPU: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    for size, n_answers in SIZES.items():
        print(f"--size {size}: {n_answers:,} answers in {n_answers * seconds / n / 60:.1f} minutes at this rate")


if __name__ == "__main__":
    main()
