"""A benchmark of the host memory and CPU time of each stage after classification, by the number of responses.

    python -m benchmarks.flat_memory [--responses 10000,100000] [--styles 217]

The input is random float32 style vectors over 26 templates × 200 descriptors, in parts as a classifier writes them.
Each stage runs in a separate process; its peak resident memory is printed, less the memory of the libraries.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measuring import DESCRIPTORS, TEMPLATES, make_prompts, parse_options, peak_memory, timed
from evenhand.evaluation.families.generation_bias.changes.style_changes import (
    descriptor_styles,
    moved_descriptors,
    style_changes,
)
from evenhand.evaluation.families.generation_bias.collect.rows import read_styled_run, style_tables
from evenhand.evaluation.families.generation_bias.costs.relevance import cell_codes
from evenhand.evaluation.families.generation_bias.costs.style_drift import style_drift
from evenhand.evaluation.families.generation_bias.metric import compare_generation_bias, generation_bias
from evenhand.evaluation.rows import blocks, copy_rows
from evenhand.evaluation.runs.parts import Parts
from evenhand.evaluation.runs.tables import write_table
from evenhand.evaluation.score import DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.mitigation.labelling.labels import add_labels, choose_threshold
from evenhand.mitigation.labelling.projection import bias_values
from evenhand.mitigation.labelling.threshold_plan import threshold_plan
from evenhand.recipes.responses import write_responses

CLUSTERS, ROWS_OF_A_PART = 6, 8192


def make(folder: Path, n: int, styles: int) -> None:
    """Write a run's random prompts and responses, and style vectors in parts."""
    rng, of_descriptor = np.random.default_rng(0), np.arange(n) % DESCRIPTORS
    prompts = make_prompts([f"I'm descriptor {d}, a person." for d in of_descriptor])
    write_table(folder / "prompts.parquet", prompts)
    responses = [f"This is the response to prompt number {row}." for row in range(n)]
    write_table(folder / "responses.parquet", pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses}))
    effects = rng.random((DESCRIPTORS, styles)) * 0.05
    for start in range(0, n, ROWS_OF_A_PART):
        rows = np.arange(start, min(n, start + ROWS_OF_A_PART))
        vectors = rng.gamma(0.05 + effects[of_descriptor[rows]]).astype(np.float32) + np.float32(1e-6)
        vectors /= vectors.sum(axis=1, keepdims=True)
        part = pd.DataFrame({"row": rows, "cut": False, **{f"p{style}": vectors[:, style] for style in range(styles)}})
        write_table(folder / "parts" / f"{rows[-1] + 1:08d}.parquet", part)


def collect(folder: Path, n: int, styles: int) -> None:
    """Write the table of style vectors from the parts."""
    columns = ["cut", *(f"p{style}" for style in range(styles))]
    cut, vectors = Parts(folder / "parts", columns, n).read_numbers()
    ids = pd.read_parquet(folder / "prompts.parquet", columns=[PROMPT_ID])[PROMPT_ID]
    names = tuple(f"style {style}" for style in range(styles))
    write_table(folder / "styles.parquet", style_tables(ids, blocks(vectors), names, cut))


def score(folder: Path, n: int, styles: int) -> None:
    """Compute all scores of the run, with the permutation test."""
    clusters = {f"cluster {i}": range(3 * i, 3 * i + 3) for i in range(CLUSTERS)}
    generation_bias(read_styled_run(folder).styled(), clusters, permutations=99)


def compare(folder: Path, n: int, styles: int) -> None:
    """Compare the run with its responses in another order: paired differences, style drift, tables of styles."""
    clusters = {f"cluster {i}": range(3 * i, 3 * i + 3) for i in range(CLUSTERS)}
    before = read_styled_run(folder)
    after = replace(before, vectors=copy_rows(before.vectors, np.roll(np.arange(n), TEMPLATES * DESCRIPTORS)))
    compare_generation_bias(before.styled(), after.styled(), clusters)
    style_drift(before.vectors, after.vectors, cell_codes(before.shared))
    style_changes(before.styled(), after.styled())
    moved_descriptors(*(descriptor_styles(side.styled()) for side in (before, after)), before.styles)


def label(folder: Path, n: int, styles: int) -> None:
    """Label the run as the command does, without a threshold plan."""
    run = read_styled_run(folder)
    template, descriptor = (to_codes(run.shared[name]) for name in (TEMPLATE, DESCRIPTOR))
    b = bias_values(run.vectors, template, descriptor)
    threshold = choose_threshold(b, alpha=0)
    parts = run.texts(PROMPT_ID, DESCRIPTOR, PERSONA, TEXT)
    ends = accumulate(map(len, run.texts(PROMPT_ID)))
    labelled = (add_labels(part, b[end - len(part) : end], threshold) for part, end in zip(parts, ends, strict=True))
    write_table(folder / "labels.parquet", labelled)


def plan(folder: Path, n: int, styles: int) -> None:
    """Compute the threshold plan of the run."""
    run = read_styled_run(folder)
    template, descriptor = (to_codes(run.shared[name]) for name in (TEMPLATE, DESCRIPTOR))
    threshold_plan(run.vectors, template, descriptor, quantiles=(0.5, 0.9))


def page(folder: Path, n: int, styles: int) -> None:
    """Write the page of all responses of the run."""
    write_responses(folder, "benchmark", folder)


STAGES: dict[str, Callable[[Path, int, int], None]] = {
    function.__name__: function for function in (make, collect, score, compare, label, plan, page)
}


def main() -> None:
    """Run each stage with each number of responses in a subprocess; with `--stage`, run that stage."""
    hidden = argparse.SUPPRESS
    arguments = parse_options(__doc__, responses="10000,100000", styles=217, stage=(str, hidden), folder=(Path, hidden))
    styles = arguments.styles
    if arguments.stage:
        libraries = peak_memory()
        seconds, _ = timed(STAGES[arguments.stage], arguments.folder, int(arguments.responses), styles)
        print(f"{arguments.stage:8} {peak_memory() - libraries:6.2f} GiB {seconds:7.1f} s of CPU", flush=True)
        return
    for n in map(int, arguments.responses.split(",")):
        print(f"{n:,} responses × {styles} styles, {4 * n * styles / 2**30:.2f} GiB as float32", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "benchmarks.flat_memory", "--responses", str(n), "--styles", str(styles)]
            for stage in STAGES:
                subprocess.run([*command, "--folder", folder, "--stage", stage], check=True)


if __name__ == "__main__":
    main()
