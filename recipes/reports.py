"""Run folders → the content of a report → terminal, Markdown and HTML."""

from datetime import date, json
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from evaluation.report import (
    ReportContent,
    ThresholdPlan,
    TrainingCurve,
    print_report,
    write_html,
    write_markdown,
)
from evaluation.results import AXIS, DESCRIPTOR, PERSONA, TEXT, BiasScore, read_scores
from recipes import testbed
from recipes.config import TESTBED, CompareConfig
from recipes.tables import StyledRun, read_styled_run, read_table

HTML, MARKDOWN = "report.html", "report.md"
SAMPLES_SHOWN = 40
TESTBED_NOTE = (
    "The measured model is the testbed: a tiny model with a planted bias, built to check the instrument and the "
    "methods. Its numbers say nothing about any real model or people."
)


def write_report(folder: Path, content: ReportContent, *, on_terminal: bool = False) -> None:
    """Write report.html and report.md into the folder; print it too if asked."""
    write_html(folder / HTML, content)
    write_markdown(folder / MARKDOWN, content)
    if on_terminal:
        print_report(content)


def measurement_content(folder: Path, model: str) -> ReportContent:
    """Return the report of a single measuring run."""
    measured, scores = read_styled_run(folder), read_scores(folder / "scores.json")
    return ReportContent(
        title="Generation bias of a model",
        date=date.today().isoformat(),
        base_model=model,
        scores_before=scores,
        truth=known_truth(model, measured),
        samples=samples(measured),
        notes=[TESTBED_NOTE] if model == TESTBED else [],
        signature=scores[0].signature,
    )


def known_truth(model: str, measured: StyledRun) -> list[BiasScore]:
    """Return the testbed's planted bias on the measured cells; nothing for a model nobody knows the truth about."""
    return testbed.truth(measured.prompts) if model == TESTBED else []


def samples(before: StyledRun, after: StyledRun | None = None) -> pd.DataFrame:
    """Return responses to the same random prompts, side by side."""
    chosen = np.random.default_rng(0).permutation(len(before.prompts))[:SAMPLES_SHOWN]
    shown = before.rows(chosen)
    table = shown.prompts[[DESCRIPTOR, AXIS, PERSONA]].assign(prompt=shown.prompts[TEXT], before=shown.responses)
    return table if after is None else table.assign(after=after.rows(chosen).responses)


def comparison_content(config: CompareConfig) -> ReportContent:
    """Return the before/after report of a comparison whose scores are on disk."""
    before, after = read_styled_run(config.before), read_styled_run(config.after)
    before_settings, after_settings = (
        yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")) for folder in (config.before, config.after)
    )
    scores_before, scores_after = (read_scores(folder / "scores.json") for folder in (config.before, config.after))
    base = before_settings["model"]
    return ReportContent(
        title="Generation bias before and after tuning",
        date=date.today().isoformat(),
        base_model=base,
        tuned_model=after_settings["model"],
        scores_before=scores_before,
        scores_after=scores_after,
        differences=read_scores(config.output_dir / "scores.json"),
        truth=known_truth(base, before),
        threshold_plan=threshold_plan(config.labels) if config.labels else None,
        descriptors=descriptors(config.labels, after) if config.labels else None,
        training=training_curve(config.tuning) if config.tuning else None,
        samples=samples(before, after),
        notes=[TESTBED_NOTE] if base == TESTBED else [],
        signature={"before": scores_before[0].signature, "after": scores_after[0].signature},
    )


PLAN_TRUST = "Predicted from the labelled responses alone. "


def threshold_plan(labels: Path) -> ThresholdPlan:
    """Return the plan that the labelling run made, with the threshold that it used."""
    used = json.loads((labels / "threshold.json").read_text(encoding="utf-8"))
    return ThresholdPlan(read_table(labels / "threshold_plan.parquet"), used["alpha"], used["quantile"], PLAN_TRUST)


def descriptors(labels: Path, after: StyledRun) -> pd.DataFrame:
    """Return the mean bias value of each descriptor before tuning."""
    table = read_table(labels / "descriptors.parquet")
    return table.rename(columns={"mean_bias_value": "before"})


def training_curve(tuning: Path) -> TrainingCurve:
    """Return what the tuning run logged."""
    curves = json.loads((tuning / "curves.json").read_text(encoding="utf-8"))
    return TrainingCurve(**{name: [(step, value) for step, value in points] for name, points in curves.items()})
