"""A benchmark of the host memory and CPU time of a measurement of many responses, by stage.

    python -m benchmarks.response_memory [--responses 240000] [--styles 217] [--words 12]
    python -m benchmarks.response_memory --plan

Prompts and responses are random words and the models are tiny and random: the memory is used by texts, token ids,
vectors and tables, which does not depend on the model. Results are written to disk as in practice. The output is the
peak memory of the process after each stage, and the CPU time of the stage.

With `--plan`, three batches of responses and their likelihoods are computed for each model in SHAPES, each in its own
process. The output is the memory that `evaluation.models.batches` plans for the first batch, the longest, and the peak
of the process minus its memory before.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
)

from benchmarks.measuring import make_prompts, parse_options, peak_memory, timed
from benchmarks.random_models import texts as token_texts
from benchmarks.random_models import words_tokenizer
from evenhand.evaluation.families.generation_bias.collect.classification import classify_in_parts, clean_responses
from evenhand.evaluation.families.generation_bias.collect.responses import likelihoods_of_responses, respond
from evenhand.evaluation.families.generation_bias.collect.rows import read_styled_run, style_tables
from evenhand.evaluation.models.batches import batch_size_limit
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import generate_responses, response_bytes
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.likelihood.tokens import score_bytes
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.styles import StyleClassifier
from evenhand.evaluation.rows import blocks
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import DESCRIPTOR, PROMPT_ID, RESPONSE
from evenhand.recipes.testbed import DIALOGUE_MODEL


def sizes(hidden: int, inner: int, layers: int, heads: int, key_heads: int, vocabulary: int) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_heads,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
        pad_token_id=0,
    )


# Config, dtype, rows of a batch, tokens of a context, max_new_tokens and further arguments of `generate`.
SHAPES = {
    "vocabulary": (sizes(16, 32, 1, 1, 1, 49152), torch.float32, 192, 10, 2, {"top_p": 0.9}),
    "cache": (sizes(128, 256, 12, 4, 4, 8192), torch.float32, 96, 120, 24, {}),
    "smollm2_135m": (sizes(576, 1536, 30, 9, 3, 49152), torch.bfloat16, 128, 30, 40, {}),
}


def compare_plan(shape: str, work: str, batches: int = 3) -> tuple[float, float]:
    """Return the planned and the measured MiB of the responses, or their likelihoods, of a model of a named shape.

    The contexts of each batch are shorter than the contexts of the batch before.
    """
    config, dtype, rows, length, new_tokens, arguments = SHAPES[shape]
    network = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
    network.generation_config.update(eos_token_id=None, pad_token_id=0)
    model = DialogueModel(network, words_tokenizer(config.vocab_size), "dialogue", shape, "random")
    chosen = decoding("sample", max_new_tokens=new_tokens, **arguments)
    contexts = [text for shorter in range(batches) for text in token_texts(rows, length - shorter, shorter)]
    answers, n_tokens = token_texts(len(contexts), new_tokens, 9), length + 1  # with the end of sequence

    def respond_to(contexts: list[str]) -> None:
        list(generate_responses(model, contexts, list(range(len(contexts))), chosen, batch_size=rows))

    if work == "responses":
        respond_to(contexts[:1])  # what the first call imports and compiles
        planned = rows * response_bytes(network, n_tokens, chosen)
        return planned / 2**20, _rise(lambda: respond_to(contexts))
    response_perplexity(model, contexts[:1], answers[:1])
    row_bytes = score_bytes(network, n_tokens + new_tokens + 1, unscored=n_tokens - batches)
    limit = batch_size_limit(network, lambda tokens: row_bytes)(n_tokens + new_tokens + 1)
    return min(len(contexts), limit) * row_bytes / 2**20, _rise(lambda: response_perplexity(model, contexts, answers))


def _rise(work: Callable[[], object]) -> float:
    """Return by how many MiB the peak of resident memory during a call exceeds the memory before."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10


def texts(n: int, length: int, words: list[str], rng: np.random.Generator) -> list[str]:
    """Return n texts of random words."""
    return [" ".join(words[i] for i in row) for row in rng.integers(len(words), size=(n, length))]


def main() -> None:
    """Run the stages; print the peak memory and the CPU time of each stage."""
    hidden = argparse.SUPPRESS
    given = parse_options(
        __doc__,
        responses=240_000,
        styles=217,
        words=(12, "of a response"),
        plan=False,
        shape=(str, hidden),
        work=(str, hidden),
    )
    torch.set_num_threads(1)
    if given.plan:
        print(f"{'shape':14}{'work':12}{'planned':>12}{'measured':>12}  ratio", flush=True)
        for shape, work in product(SHAPES, ("responses", "likelihoods")):
            command = [sys.executable, "-m", "benchmarks.response_memory", "--shape", shape, "--work", work]
            subprocess.run(command, check=True)
        return
    if given.shape:
        planned, measured = compare_plan(given.shape, given.work)
        print(f"{given.shape:14}{given.work:12}{planned:8.0f} MiB{measured:8.0f} MiB{measured / planned:7.2f}")
        return
    rng = np.random.default_rng(0)
    model = load_dialogue_model(str(DIALOGUE_MODEL))
    size = len(model.tokenizer)
    config = GPT2Config(vocab_size=size, n_embd=16, n_layer=1, n_head=1, n_positions=160)
    network = GPT2LMHeadModel(config).eval()
    network.generation_config = model.model.generation_config
    model = replace(model, model=network)
    words = [word for word in model.tokenizer.get_vocab() if word.isalpha() and word.islower()]
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    network = BertForSequenceClassification(BertConfig(**sizes, vocab_size=size, num_labels=given.styles)).eval()
    labels = tuple(f"style {i}" for i in range(given.styles))
    classifier = StyleClassifier(network, model.tokenizer, labels, "", "random", "0")
    prompts = make_prompts(texts(given.responses, 10, words, rng))
    responses = texts(given.responses, given.words, words, rng)

    def report(stage: str, work: Callable[[], object]) -> None:
        seconds, _ = timed(work)
        print(f"{stage:40} peak {peak_memory():.2f} GiB, {seconds:.0f} s of CPU", flush=True)

    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), "", Tracker())
        short = decoding("sample", max_new_tokens=2)

        def classify() -> None:
            vectors, cut = classify_in_parts(run, "styles", classifier, clean_responses(responses, prompts[DESCRIPTOR]))
            run.ensure("styles", lambda: style_tables(prompts[PROMPT_ID], blocks(vectors), labels, cut))

        report(f"{given.responses:,} prompts, models loaded", lambda: None)
        report("answered (2 tokens each)", lambda: respond(model, prompts, "", short, seed=0, batch_size=512, run=run))
        report(
            "likelihoods, of two contexts each",
            lambda: likelihoods_of_responses(run, "fit", model, prompts, responses, ""),
        )
        run.write("prompts", prompts)
        run.write("responses", pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses}))
        report(f"classified into {given.styles} styles", classify)
        report("read back for the scores", lambda: read_styled_run(run.folder))


if __name__ == "__main__":
    main()
