"""A benchmark of the host memory and CPU time of a measurement of many responses, by stage.

    python -m benchmarks.response_memory [--responses 240000] [--styles 217] [--words 12]

Prompts and responses are random words and the models are tiny and random: the memory is used by texts, token ids,
vectors and tables, which does not depend on the model. Results are written to disk as in practice. The output is the
peak memory of the process after each stage, and the CPU time of the stage.
"""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel

from benchmarks.measuring import make_prompts, parse_options, peak_memory, timed
from evenhand.evaluation.families.generation_bias.collect.classification import classify_in_parts, clean_responses
from evenhand.evaluation.families.generation_bias.collect.responses import likelihoods_of_responses, respond
from evenhand.evaluation.families.generation_bias.collect.rows import read_styled_run, style_tables
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.styles import StyleClassifier
from evenhand.evaluation.results import DESCRIPTOR, PROMPT_ID, RESPONSE
from evenhand.evaluation.rows import blocks
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.recipes.testbed import DIALOGUE_MODEL


def texts(n: int, length: int, words: list[str], rng: np.random.Generator) -> list[str]:
    """Return n texts of random words."""
    return [" ".join(words[i] for i in row) for row in rng.integers(len(words), size=(n, length))]


def main() -> None:
    """Run the stages; print the peak memory and the CPU time of each stage."""
    given = parse_options(__doc__, responses=240_000, styles=217, words=(12, "of a response"))
    torch.set_num_threads(1)
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
