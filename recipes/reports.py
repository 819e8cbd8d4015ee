"""Run folders → the page of a report → terminal, Markdown and HTML."""

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from evaluation.errors import InputError
from evaluation.report import (
    GenerationContent,
    Page,
    ThresholdPlan,
    TrainingCurve,
    generation_page,
    print_page,
    write_page,
)
from evaluation.report.generation_bias.comparison import HEADLINE
from evaluation.report.numbers import PER_UNIT, UNIT, interval, number
from evaluation.results import AXIS, DESCRIPTOR, PERSONA, TEMPLATE, TEXT, BiasScore, find_score, read_scores
from mitigation.projection import descriptor_means, project
from mitigation.threshold_plan import TRUST
from recipes.changes import read_changes
from recipes.config import TESTBED, CompareConfig
from recipes.tables import SCORES, StyledRun, read_styled_run, read_table
from recipes.testbed import grammar

REPORT, HTML, MARKDOWN = "report", "report.html", "report.md"
SAMPLES_SHOWN = 40
TESTBED_NOTE = (
    "The measured model is the testbed: a tiny model with a planted bias, built to check the instrument and the "
    "methods. Its numbers say nothing about any real model or people."
)

CLASSIFIER_NOTE = (
    "The style classifier is the testbed's, which knows the testbed's sentences alone: for any other model its styles "
    "mean little. Give --style_classifier and --style_clusters of your own."
)
TAG_NOTE = (
    'These results hold with the control tag "{tag}" at the end of every context, which evenhand adds by itself. '
    "Without the tag the tuned model can be more biased than the original."
)


def present(folder: Path, pages: Mapping[str, Page], *, write: bool, show: bool) -> list[Path]:
    """Write the report of each metric family into the folder, and print it, as asked; return the paths of the files.

    The first family's page is report.html, a further one's is called by the family as well.
    """
    files: list[Path] = []
    for family, page in pages.items():
        stem = f"{REPORT}_{family}" if files else REPORT
        files += [folder / f"{stem}.html", folder / f"{stem}.md"]
        if show:
            print_page(page)
        if write:
            write_page(folder, stem, page)
        if show:
            print(f"\nReport: {files[-2].resolve()}")
    return files


def measurement_page(folder: Path, model: str) -> Page:
    """Return the report of a single measuring run."""
    measured, scores = read_styled_run(folder), read_scores(folder / SCORES)
    settings = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    return generation_page(
        GenerationContent(
            title="Generation bias of a model",
            date=date.today().isoformat(),
            base_model=model,
            scores_before=scores,
            truth=known_truth(model, measured),
            samples=samples(measured),
            notes=notes_on(model, settings),
            signature=scores[0].signature,
        )
    )


def notes_on(model: str, settings: Mapping[str, Any]) -> list[str]:
    """Return what a reader must know of the measured model and of the ruler it was measured with."""
    if model == TESTBED:
        return [TESTBED_NOTE]
    of_testbed = settings["style_classifier"] == TESTBED and "control_tag" not in tuning_facts(Path(model))
    return [CLASSIFIER_NOTE] if of_testbed else []


def known_truth(model: str, measured: StyledRun) -> list[BiasScore]:
    """Return the testbed's planted bias on the measured cells; nothing for a model nobody knows the truth about."""
    if model != TESTBED:
        return []
    try:
        planted = grammar.truth(measured.prompts)
    except InputError:  # prompts of another taxonomy or file, which the grammar does not answer
        return []
    shown = ("fgb", "fgb_corrected", "fgb_pooled_corrected", "scgb_pooled_corrected")
    return [score for score in planted if score.metric in shown and "style" not in score.group]


def samples(before: StyledRun, after: StyledRun | None = None) -> pd.DataFrame:
    """Return responses to the same random prompts, side by side."""
    chosen = np.random.default_rng(0).permutation(len(before.prompts))[:SAMPLES_SHOWN]
    shown = before.rows(chosen)
    table = shown.prompts[[DESCRIPTOR, AXIS, PERSONA]].assign(prompt=shown.prompts[TEXT], before=shown.responses)
    return table if after is None else table.assign(after=after.rows(chosen).responses)


def comparison_page(config: CompareConfig) -> Page:
    """Return the before/after report of a comparison whose scores are on disk."""
    before, after = read_styled_run(config.before), read_styled_run(config.after)
    before_settings, after_settings = (
        yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")) for folder in (config.before, config.after)
    )
    scores_before, scores_after = (read_scores(folder / SCORES) for folder in (config.before, config.after))
    base = before_settings["model"]
    facts = tuning_facts(Path(after_settings["model"]))
    notes = notes_on(base, before_settings)
    if tag := facts.get("control_tag"):
        notes.append(
            TAG_NOTE.format(tag=tag) + (untagged_sentence(config.untagged, config.before) if config.untagged else "")
        )
    return generation_page(
        GenerationContent(
            title="Generation bias before and after tuning",
            date=date.today().isoformat(),
            base_model=base,
            tuned_model=after_settings["model"],
            scores_before=scores_before,
            scores_after=scores_after,
            differences=read_scores(config.output_dir / SCORES),
            truth=known_truth(base, before),
            threshold_plan=threshold_plan(config.labels) if config.labels else None,
            descriptors=descriptors(config.labels, before, after) if config.labels else None,
            training=training_curve(config.tuning) if config.tuning else None,
            samples=samples(before, after),
            changes=read_changes(config.output_dir, before, after),
            unseen_by=before_settings.get("unseen_by") or "descriptor",
            method=facts.get("method"),
            notes=notes,
            signature={"before": scores_before[0].signature, "after": scores_after[0].signature},
        )
    )


def untagged_sentence(untagged: Path, before: Path) -> str:
    """Return how biased the tuned model is without its tag, beside the model it was made from."""
    without, base = (pooled_text(read_scores(folder / SCORES)) for folder in (untagged, before))
    return f" Measured without it: pooled FGB* {without}, against {base} before tuning."


def pooled_text(scores: Sequence[BiasScore]) -> str:
    """Return "15.78 [14.52, 17.04] ×10⁻³"."""
    score = find_score(scores, HEADLINE)
    bounds = score.interval and tuple(PER_UNIT * end for end in score.interval)
    return f"{' '.join(filter(None, (number(PER_UNIT * score.value), interval(bounds))))} {UNIT}"


def threshold_plan(labels: Path) -> ThresholdPlan:
    """Return the plan that the labelling run made, with the threshold that it used."""
    used = json.loads((labels / "threshold.json").read_text(encoding="utf-8"))
    return ThresholdPlan(read_table(labels / "threshold_plan.parquet"), used["alpha"], used["quantile"], TRUST)


def descriptors(labels: Path, before: StyledRun, after: StyledRun) -> pd.DataFrame:
    """Return the mean bias value of each descriptor's responses, before and after, largest before first.

    The bias directions are those of the labelled responses, to other prompts than the measured ones, so that no
    response has shaped the direction it is projected on. Descriptors without a direction are left out.
    """
    manifest = json.loads((labels / "run.json").read_text(encoding="utf-8"))
    labelled = read_styled_run(Path(manifest["responses"]))
    labelled = labelled.rows(np.isfinite(labelled.vectors).all(axis=1))
    names, descriptor = np.unique(labelled.prompts[DESCRIPTOR], return_inverse=True)
    m_d = descriptor_means(labelled.vectors, np.unique(labelled.prompts[TEMPLATE], return_inverse=True)[1], descriptor)
    m_bar = m_d.mean(axis=0)
    known = before.prompts[DESCRIPTOR].isin(names).to_numpy()
    rows = before.prompts.loc[known, [DESCRIPTOR, AXIS]]
    direction = m_d[np.searchsorted(names, rows[DESCRIPTOR])] - m_bar
    for column, run in (("before", before), ("after", after)):
        rows[column] = project(run.vectors[known], m_bar, direction, manifest["threshold"]["alpha"])
    table = rows.groupby([DESCRIPTOR, AXIS], as_index=False).agg(
        before=("before", "mean"), after=("after", "mean"), n=("before", "count")
    )
    return table.sort_values("before", ascending=False, ignore_index=True)


def tuning_facts(model: Path) -> dict[str, str]:
    """Return what the tuning wrote beside the weights, nothing for a model that was not tuned here."""
    file = model / "evenhand.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def training_curve(tuning: Path) -> TrainingCurve:
    """Return what the tuning run logged."""
    curves = json.loads((tuning / "curves.json").read_text(encoding="utf-8"))
    return TrainingCurve(**{name: [(step, value) for step, value in points] for name, points in curves.items()})
