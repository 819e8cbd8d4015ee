"""What a threshold removes and keeps: `distill` on answers above it, by the divergence and by bias values.

$ python -m benchmarks.thresholds RESPONSES --results runs/thresholds          # about 3 CPU minutes for each training
$ python -m benchmarks.thresholds RESPONSES --results runs/try --steps 4 --shares 1 0.5 --seeds 0   # a try

RESPONSES is a folder of `evenhand measure` with responses to tune on, such as `train` of a loop. The model of its
settings is tuned on half of the descriptors, with equal steps: responses above the threshold learn the mean over people
in their first tokens, and the others the base's own prediction. What was learned is read from predictions of responses
to the other half of the descriptors, as in `benchmarks.training`; nothing is sampled. Each training is kept in the
folder `--results` when it is done: the same command continues after a kill.

Foretold is the share of the divergence that the responses above the threshold have, times what the share 1 removes.
"""

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from datasets import Dataset

from benchmarks.measuring import parse_options
from benchmarks.training import (
    BATCH_SIZE,
    Predictions,
    Variant,
    fit,
    predictions,
    removed_and_kept,
    split_people,
)
from evenhand.evaluation.files import write_json
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.score import LABEL, RESPONSE
from evenhand.mitigation.divergences import response_divergences
from evenhand.mitigation.labels import BIAS, label_responses
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.distill import Distill
from evenhand.mitigation.trainers import DistillTrainer
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import FAMILY, family_config

VALUES = ("divergence", "bias_value")
RATE = 1e-3


@dataclass(frozen=True)
class Trained:
    """What a training removed and kept, as (value, low, high), and the share of the divergence above its threshold."""

    value: str
    share: float
    seed: int
    share_of_divergence: float
    removed: tuple[float, float, float]
    kept: tuple[float, float, float]
    perplexity: tuple[float, float, float]
    cpu_seconds: float


def labelled_rows(
    base: DialogueModel, responses: Answers, divergence: np.ndarray, value: str, share: float, seed: int
) -> tuple[Dataset, float]:
    """Return the encoded rows of `distill` with the share above the threshold to even out, and its divergence share."""
    labelled, _ = label_responses(
        responses.table,
        responses.table[RESPONSE],
        responses.values,
        share=share,
        divergence=divergence if value == "divergence" else None,
    )
    is_bias = (labelled[LABEL] == BIAS).to_numpy()
    table = responses.table.assign(**{LABEL: labelled[LABEL].to_numpy()})
    method = trained_method("distill", {"distill": Distill.Settings(only_bias=True)}, seed=seed)
    rows = DistillTrainer.encode_rows(base, method.rows(table, partial(render_contexts, base)))
    return rows.shuffle(seed), float(divergence[is_bias].sum() / divergence.sum())


def points(shares: list[float], seeds: list[int]) -> list[tuple[str, float, int]]:
    """Return each value, share and seed once; with the shares 0 and 1, both values are the same."""
    found = []
    for seed in seeds:
        for share in shares:
            values = VALUES if 0 < share < 1 else VALUES[:1]
            found += [(value, share, seed) for value in values]
    return found


def table_lines(trained: list[Trained]) -> list[str]:
    """Return the Markdown table of all trainings, with what is foretold from the one with the share 1 and its seed."""
    whole = {row.seed: row.removed[0] for row in trained if row.share == 1}
    lines = ["| above the threshold | by | seed | foretold | removed | kept | perplexity |", "|" + " --- |" * 7]
    for row in sorted(trained, key=lambda row: (row.seed, -row.share, row.value)):
        foretold = f"{100 * whole[row.seed] * row.share_of_divergence:.0f} %" if row.seed in whole else "–"
        cells = [percent(row.removed), percent(row.kept), percent(row.perplexity)]
        name = row.value.replace("_", " ") if 0 < row.share < 1 else "either"
        lines.append(f"| {100 * row.share:.0f} % | {name} | {row.seed} | {foretold} | {' | '.join(cells)} |")
    return lines


def percent(interval: tuple[float, float, float]) -> str:
    value, low, high = (round(100 * part) for part in interval)
    return f"{value} % [{low}, {high}]"


def train(
    base: DialogueModel,
    rows: tuple[Dataset, Dataset],
    before: Predictions,
    steps: int,
    point: tuple[str, float, int],
    share_of_divergence: float,
) -> Trained:
    """Return what a training on encoded rows learned, read from test rows."""
    train_rows, test_rows = rows
    value, share, seed = point
    model, seconds = fit(base, Variant(learning_rate=RATE), train_rows, steps, seed=seed)
    removed, kept, rise = removed_and_kept(before, predictions(base, model, test_rows))
    return Trained(
        value=value,
        share=share,
        seed=seed,
        share_of_divergence=share_of_divergence,
        removed=removed,
        kept=kept,
        perplexity=rise,
        cpu_seconds=seconds,
    )


def main() -> None:
    options = parse_options(
        __doc__,
        folders=("responses",),
        results=(Path("runs/thresholds"), "folder of the finished trainings"),
        steps=(120, "of each training"),
        shares=([1.0, 0.75, 0.5, 0.25, 0.1, 0.0], "of the responses above the threshold"),
        seeds=([0, 1, 2], "of descriptors, rows and training"),
    )
    torch.set_num_threads(1)
    wanted = points(options.shares, options.seeds)
    print(f"{len(wanted)} trainings of {options.steps} steps; 120 take about 3 CPU minutes on SmolLM2", flush=True)
    settings, _ = read_measurement(options.responses, "responses")
    base = load_dialogue_model(family_config(settings, FAMILY).model)
    options.results.mkdir(parents=True, exist_ok=True)
    styled = read_answers(options.responses)
    styled = styled.rows(styled.has_value())
    trained: list[Trained] = []
    prepared: dict[int, tuple] = {}
    for value, share, seed in wanted:
        file = options.results / f"{value}_{share:g}_{options.steps}_{seed}.json"
        if not file.exists():
            if seed not in prepared:
                is_tuned, test_rows = split_people(base, styled.table, seed)
                tuned = styled.rows(is_tuned)
                divergence = response_divergences(base, tuned.table, seed=seed)
                prepared[seed] = (tuned, divergence, test_rows, predictions(base, base.model, test_rows))
            tuned, divergence, test_rows, before = prepared[seed]
            rows, share_of_divergence = labelled_rows(base, tuned, divergence, value, share, seed)
            rows = rows.select(range(min(len(rows), BATCH_SIZE * options.steps)))
            point = (value, share, seed)
            write_json(file, asdict(train(base, (rows, test_rows), before, options.steps, point, share_of_divergence)))
        trained.append(Trained(**json.loads(file.read_text(encoding="utf-8"))))
        print(f"{value}, share {share:g}, seed {seed}: removed {percent(trained[-1].removed)}", flush=True)
    pd.DataFrame([asdict(row) for row in trained]).to_json(options.results / "trainings.json", orient="records")
    print("\n".join(table_lines(trained)))


if __name__ == "__main__":
    main()
