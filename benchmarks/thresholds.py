"""What a threshold removes and keeps: `distill` on answers above it, by the divergence and by bias values.

$ python -m benchmarks.thresholds RESPONSES --results runs/thresholds          # about 3 CPU minutes for each training
$ python -m benchmarks.thresholds RESPONSES --results runs/try --steps 4 --shares 1 0.5 --seeds 0   # a try

RESPONSES is a folder of `evenhand measure` with responses to tune on, such as `train` of a loop. The model of its
settings is tuned on half of the descriptors, with equal steps and the same responses: those above the threshold learn
the mean over people in their first tokens, and the others the base's own prediction. What was learned is read from
predictions of responses to the other half of the descriptors, as in `benchmarks.training`; nothing is sampled. Each
training is kept in the folder `--results` when it is done: the same command continues after a kill.

Foretold is the share of the divergence that the responses above the threshold have, times what the share 1 removes.
The table and `--figure` have all finished trainings of so many steps in `--results`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import torch
from datasets import Dataset

from benchmarks.measuring import parse_options
from benchmarks.training import (
    BATCH_SIZE,
    FIRST_TOKENS,
    Predictions,
    Variant,
    fit,
    predictions,
    removed_and_kept,
    split_people,
)
from evenhand.evaluation import columns
from evenhand.evaluation.files import write_json
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.report.figures import AFTER_COLOR, BEFORE_COLOR, MUTED
from evenhand.evaluation.statistics.cells import to_codes
from evenhand.evaluation.statistics.people_divergence import people_divergence
from evenhand.mitigation.labelled_responses import IS_EVEN, rows_of_several_people
from evenhand.mitigation.labels import BIAS, DIVERGENCE, NO_BIAS, bias_values, value_above_share
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.control_tags import NO_BIAS_TAG, ControlTags
from evenhand.mitigation.methods.control_tags import TAGS as TAGS_OF_LABELS
from evenhand.mitigation.trainers import SFT, DistillTrainer, log_probabilities, sequences_of
from evenhand.mitigation.training_batches import Batch, cut_responses
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import GENERATION_BIAS, family_config

TAGS = "control_tags"  # answers with the tag of their label by the bias value, as in the paper
KINDS = {DIVERGENCE: "divergence", columns.BIAS_VALUE: "bias value", TAGS: "bias value, the paper's control tags"}
ROW = "row"
RATE = 1e-3


@dataclass(frozen=True)
class Trained:
    """What a training removed and kept, as (value, low, high), and the share of the divergence above its threshold.

    `kind` is one of KINDS.
    """

    kind: str
    share: float
    seed: int
    share_of_divergence: float
    removed: tuple[float, float, float]
    kept: tuple[float, float, float]
    perplexity: tuple[float, float, float]
    cpu_seconds: float


@dataclass(frozen=True)
class Tuning:
    """What all trainings of a seed have in common.

    Attributes:
        table: the responses to tune on, in the order of training.
        rows: the same as encoded rows of `distill`.
        divergence, bias_value: of each response, (rows).
        test_rows: encoded rows of the people never tuned on; `tagged_test_rows` have the control tag.
        before: the base's predictions of `test_rows`.
        trainer_class: remembers the base's predictions of `rows`, which are the same in all trainings.
    """

    table: pd.DataFrame
    rows: Dataset
    divergence: np.ndarray
    bias_value: np.ndarray
    test_rows: Dataset
    tagged_test_rows: Dataset
    before: Predictions
    trainer_class: type[DistillTrainer]


def remembering_trainer() -> type[DistillTrainer]:
    """Return a trainer class that computes the base's predictions of a batch once for all trainings of one base."""
    remembered: dict[bytes, tuple[torch.Tensor, torch.Tensor]] = {}

    class RememberingTrainer(DistillTrainer):
        def _base_predictions(
            self, model: torch.nn.Module, sequences: Batch, n_trained: int, is_response: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            key = sequences["input_ids"].numpy().tobytes()
            if key not in remembered:
                remembered[key] = super()._base_predictions(model, sequences, n_trained, is_response)
            of_trained, of_others = remembered[key]
            return of_trained.clone(), of_others  # the first are changed into the targets

    return RememberingTrainer


def row_divergences(base: DialogueModel, rows: Dataset) -> np.ndarray:
    """Return how much the predictions of each encoded row's first tokens depend on who asks, in nats, (rows)."""
    collate = DistillTrainer.collator(base, pad_token_id=0)
    found = []
    for row in rows:
        sequences = sequences_of(collate([row]), "")
        tokens = torch.tensor(row["labels"][1:])
        openings, is_in_opening = cut_responses(sequences, torch.tensor([len(tokens)]), FIRST_TOKENS)
        with torch.no_grad():
            predictions = log_probabilities(base.model, openings, is_in_opening)
        found.append(float(people_divergence(predictions[:, None], tokens[None, :FIRST_TOKENS]).mean()))
    return np.array(found)


def prepare(base: DialogueModel, styled: Answers, n_rows: int, seed: int) -> Tuning:
    """Return what the trainings of a seed on so many responses have in common."""
    is_tuned, test_rows = split_people(base, styled.table, seed)
    tuned = styled.rows(is_tuned)
    b = bias_values(tuned.values, to_codes(tuned.table[columns.TEMPLATE]), to_codes(tuned.table[columns.DESCRIPTOR]))
    rows = rows_of_several_people(tuned.table, partial(render_contexts, base), "", seed)
    chosen = rows.add_column(ROW, np.arange(len(tuned))).shuffle(seed).select(range(min(n_rows, len(rows))))
    encoded = DistillTrainer.encode_rows(base, chosen)
    return Tuning(
        table=tuned.table.iloc[chosen[ROW]],
        rows=encoded,
        divergence=row_divergences(base, encoded),
        bias_value=b[chosen[ROW]],
        test_rows=test_rows,
        tagged_test_rows=split_people(base, styled.table, seed, NO_BIAS_TAG)[1],
        before=predictions(base, base.model, test_rows),
        trainer_class=remembering_trainer(),
    )


def tagged_rows(base: DialogueModel, table: pd.DataFrame, is_bias: np.ndarray) -> Dataset:
    """Return encoded responses with the control tag of their label at the end of the context."""
    labelled = table.assign(**{columns.LABEL: np.where(is_bias, BIAS, NO_BIAS)})
    method = trained_method(TAGS, {TAGS: ControlTags.Settings(targets="labels")})
    return SFT.encode_rows(base, method.rows(labelled, partial(render_contexts, base)))


def train(base: DialogueModel, tuning: Tuning, steps: int, kind: str, share: float, seed: int) -> Trained:
    """Return what a training with a threshold learned, read from test rows."""
    values = tuning.divergence if kind == DIVERGENCE else tuning.bias_value
    is_above = values > value_above_share(values, share)
    variant = Variant(learning_rate=RATE)
    rows = tuning.rows.add_column(IS_EVEN, is_above.tolist())
    test_rows = tuning.test_rows
    trainer_class: type[SFT] = tuning.trainer_class
    if kind == TAGS:
        variant = Variant(learning_rate=RATE, trained_tags=tuple(TAGS_OF_LABELS.values()))
        rows = tagged_rows(base, tuning.table, is_above)
        test_rows = tuning.tagged_test_rows
        trainer_class = SFT
    model, seconds = fit(base, variant, rows, steps, seed=seed, trainer_class=trainer_class)
    removed, kept, rise = removed_and_kept(tuning.before, predictions(base, model, test_rows))
    return Trained(
        kind=kind,
        share=share,
        seed=seed,
        share_of_divergence=float(tuning.divergence[is_above].sum() / tuning.divergence.sum()),
        removed=removed,
        kept=kept,
        perplexity=rise,
        cpu_seconds=seconds,
    )


def points(kinds: Sequence[str], shares: Sequence[float], seeds: Sequence[int]) -> list[tuple[str, float, int]]:
    """Return each kind, share and seed once; with the shares 0 and 1, both values are the same, and no tags differ."""
    found = []
    for seed in seeds:
        for share in shares:
            of_share = kinds if 0 < share < 1 else [DIVERGENCE]
            found += [(kind, share, seed) for kind in of_share]
    return found


def table_lines(trained: list[Trained]) -> list[str]:
    """Return the Markdown table of all trainings, with what is foretold from the one with the share 1 and its seed."""
    whole = {row.seed: row.removed[0] for row in trained if row.share == 1}
    lines = ["| above the threshold | by | seed | foretold | removed | kept | perplexity |", "|" + " --- |" * 7]
    for row in sorted(trained, key=lambda row: (row.seed, -row.share, list(KINDS).index(row.kind))):
        has_forecast = row.seed in whole and row.kind != TAGS
        foretold = f"{100 * whole[row.seed] * row.share_of_divergence:.0f} %" if has_forecast else "–"
        cells = [percent(row.removed), percent(row.kept), percent(row.perplexity)]
        name = KINDS[row.kind] if 0 < row.share < 1 else "either"
        lines.append(f"| {100 * row.share:.0f} % | {name} | {row.seed} | {foretold} | {' | '.join(cells)} |")
    return lines


def percent(interval: tuple[float, float, float]) -> str:
    value, low, high = (round(100 * part) for part in interval)
    return f"{value} % [{low}, {high}]"


def write_figure(file: Path, trained: list[Trained]) -> None:
    """Draw the means over seeds of what is removed and kept against the share above the threshold, with all seeds."""
    matplotlib.use("Agg")
    from matplotlib import pyplot

    table = pd.DataFrame([{**asdict(row), "removed": row.removed[0], "kept": row.kept[0]} for row in trained])
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4), sharex=True, layout="constrained")
    for panel, name in zip(panels, ("removed", "kept"), strict=True):
        for kind, color in zip(KINDS, (AFTER_COLOR, BEFORE_COLOR, MUTED), strict=True):
            is_shared = (table["share"] == 1) | (table["share"] == 0)
            rows = table[(table["kind"] == kind) | (is_shared & (kind != TAGS))]
            means = rows.groupby("share")[name].mean()
            panel.plot(100 * means.index, 100 * means, color=color, label=KINDS[kind])
            panel.scatter(100 * rows["share"], 100 * rows[name], color=color, s=14)
        panel.set_xlabel("responses above the threshold, %")
    panels[0].set_ylabel("removed of the divergence, first four tokens, %")
    panels[1].set_ylabel("kept of the divergence, later tokens, %")
    panels[0].legend(frameon=False, fontsize="small")
    figure.savefig(file, dpi=150, facecolor="white")
    pyplot.close(figure)


def main() -> None:
    options = parse_options(
        __doc__,
        folders=("responses",),
        results=(Path("runs/thresholds"), "folder of the finished trainings"),
        steps=(120, "of each training"),
        shares=([1.0, 0.75, 0.5, 0.25, 0.1, 0.0], "of the responses above the threshold"),
        kinds=(list(KINDS), "of thresholds"),
        seeds=([0, 1, 2], "of descriptors, rows and training"),
        figure=(Path, "file of the figure"),
    )
    torch.set_num_threads(1)
    wanted = points(options.kinds, options.shares, options.seeds)
    files = {point: options.results / file_name(*point, options.steps) for point in wanted}
    missing = [point for point, file in files.items() if not file.exists()]
    print(f"{len(missing)} trainings of {options.steps} steps; 120 take about 3 CPU minutes on SmolLM2", flush=True)
    settings, _ = read_measurement(options.responses, "responses")
    base = load_dialogue_model(family_config(settings, GENERATION_BIAS).model)
    options.results.mkdir(parents=True, exist_ok=True)
    styled = read_answers(options.responses)
    styled = styled.rows(styled.has_value())
    tunings: dict[int, Tuning] = {}
    for kind, share, seed in missing:
        if seed not in tunings:
            tunings = {seed: prepare(base, styled, BATCH_SIZE * options.steps, seed)}
        found = train(base, tunings[seed], options.steps, kind, share, seed)
        write_json(files[kind, share, seed], asdict(found))
        print(f"{kind}, share {share:g}, seed {seed}: removed {percent(found.removed)}", flush=True)
    finished = options.results.glob(file_name("*", "*", "*", options.steps))
    trained = [Trained(**json.loads(file.read_text(encoding="utf-8"))) for file in finished]
    print("\n".join(table_lines(trained)))
    if options.figure:
        write_figure(options.figure, trained)


def file_name(kind: str, share: object, seed: object, steps: int) -> str:
    """Return the name of the file of a training, or the pattern of several."""
    return f"{kind}_{share}_{seed}_{steps}_steps.json"


if __name__ == "__main__":
    main()
