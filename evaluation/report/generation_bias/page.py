"""The report on generation bias: one measurement, or a model before and after tuning."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd
from markupsafe import Markup

from evaluation.report.generation_bias import changes, plots, tables, wording
from evaluation.report.generation_bias.content import GenerationContent, TrainingCurve
from evaluation.report.numbers import PER_UNIT, UNIT, number, visible
from evaluation.report.page import Example, Figure, Page, Section
from evaluation.report.tables import Cell, Row, Table, undrawn

SAMPLES_SHOWN = 6  # the rest can be unfolded


def generation_page(content: GenerationContent) -> Page:
    """Return the report; what is undefined shows its reason, and what was not measured has no place in it."""
    models = visible(content.base_model, 120)
    if content.tuned:
        models = f"○ {models} → ● {visible(content.tuned_model, 120)}"
    big, under = wording.headline(content)
    planted = tables.truth_table(content)
    reading = (wording.INTERVAL_IN_WORDS, wording.permutation_note(content))
    truth_mark = "◇ marks what was planted in the testbed." if planted.rows else ""
    return Page(
        title=content.title,
        subtitle=", ".join(filter(None, (models, content.method))),
        date=content.date,
        big=big,
        under=under,
        verdict=wording.verdict(content),
        warnings=wording.warnings(content),
        tables=[tables.headline_table(content), undrawn(tables.further_table(content))],
        notes=[" ".join(filter(None, (*reading, truth_mark))), *content.notes],
        sections=[
            _cost_section(content),
            Section(
                "By style cluster",
                tables=tables.cluster_tables(content),
                parts=[
                    Section(
                        "Single styles, and the other measures by cluster",
                        tables=[tables.style_table(content), *map(undrawn, tables.other_tables(content, "cluster"))],
                        folded=True,
                    )
                ],
                first_screen=True,
            ),
            Section(
                "By demographic axis",
                tables=tables.axis_tables(content),
                parts=[
                    Section(
                        "The other measures by axis",
                        tables=[undrawn(table) for table in tables.other_tables(content, "axis")],
                        folded=True,
                    )
                ],
                first_screen=True,
            ),
            _changes_section(content),
            _corpus_section(content),
            Section("Against what was planted", _PLANTED if planted.rows else (), [undrawn(planted)]),
            _plan_section(content),
            Section(
                "Descriptors furthest from, and nearest to, the average response",
                tables=tables.descriptor_tables(content),
            ),
            _training_section(content.training),
            _sample_section(content),
        ],
        glossary=wording.GLOSSARY,
        limits=wording.LIMITS,
        signature=content.signature,
        sides=("before", "after") if content.tuned else ("value",),
    )


_PLANTED = (
    "This model learned from a grammar in which the bias is planted, so what a perfect learner would score is known "
    "exactly. “Measured” is the model before tuning; its share says how much of the planted bias it learned.",
)


def _cost_section(content: GenerationContent) -> Section:
    costs, shares = tables.cost_table(content), tables.style_share_table(content)
    return Section(
        costs.caption,
        _said(wording.cost_sentence(content)),
        [costs],
        parts=[Section(shares.caption, tables=[shares])],
        first_screen=True,
    )


def _changes_section(content: GenerationContent) -> Section:
    own_phrases, other_phrases = changes.phrase_tables(content)
    others = "The other phrases for these descriptors, and all phrases for the other descriptors"
    return Section(
        "What tuning changed",
        parts=[
            Section("Styles", tables=[changes.style_change_table(content), undrawn(changes.moved_table(content))]),
            Section("Phrases", tables=list(map(undrawn, own_phrases))),
            Section(others if own_phrases else "The phrases", tables=list(map(undrawn, other_phrases)), folded=True),
            Section("Repeating the prompt", _said(changes.parroting_sentence(content))),
            Section(
                "The descriptors whose prompts are repeated more, or less",
                tables=[undrawn(changes.parroting_table(content))],
                folded=True,
            ),
        ],
    )


def _corpus_section(content: GenerationContent) -> Section:
    corpus = content.changes.corpus
    if corpus is None or corpus.empty:
        return Section("")
    frequency = changes.frequency_table(content)
    told = (
        "Each point is one descriptor, ○ before and ● after tuning: its mean probability of a style cluster, over all "
        "templates."
    )
    return Section(
        "Style against frequency in a corpus",
        [f"{changes.corpus_sentence(content)} {told}"],
        figures=_panels(plots.corpus_panels(corpus)),
        parts=[Section(frequency.caption, tables=[undrawn(frequency)])],
    )


def _plan_section(content: GenerationContent) -> Section:
    plan = content.threshold_plan
    if plan is None:
        return Section("")
    told = (
        "Predicted share of pooled FGB* left after tuning, against the quantile of b above which a response is "
        "labelled biased. Shaded quantiles are not to be trusted; the table has what lies outside the frame."
    )
    return Section(
        "The threshold plan",
        [told, plan.trust],
        figures=_panels(plots.plan_panels(plan)),
        parts=[Section("The plan as a table", tables=[tables.plan_table(content)], folded=True)],
    )


def _training_section(training: TrainingCurve | None) -> Section:
    if training is None:
        return Section("")
    return Section(
        "Training",
        figures=_panels(plots.training_panels(training)),
        parts=[Section("The curves as a table", tables=[_curve_table(training)], folded=True)],
    )


def _curve_table(training: TrainingCurve) -> Table:
    """Return the curves at the steps at which the validation loss or the bias was measured."""
    curves = [
        ("training loss", dict(training.train_loss), 1.0),
        ("validation loss", dict(training.validation_loss), 1.0),
        (f"pooled FGB*, {UNIT}", dict(training.bias), PER_UNIT),
    ]
    (_, train, _), (_, loss, _), (_, bias, _) = curves
    rows = tuple(
        Row(
            f"{step:,}",
            tuple(Cell(number(curve[step] * factor, 3) if step in curve else "") for _, curve, factor in curves),
        )
        for step in sorted(loss.keys() | bias.keys()) or sorted(train)
    )
    return Table("The curves as a table", ("step", *(name for name, *_ in curves)), rows)


def _sample_section(content: GenerationContent) -> Section:
    examples = list(_examples(_records(content.samples), content.tuned))
    more = examples[SAMPLES_SHOWN:]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in _records(content.changes.samples):
        groups.setdefault(row["descriptor"], []).append(row)
    note = "Written by the models. “↵” is a line break; other hidden characters are shown by their code."
    return Section(
        "Sample responses, before and after" if content.tuned else "Sample responses",
        _said(note if examples or groups else ""),
        examples=examples[:SAMPLES_SHOWN],
        parts=[
            Section(f"{len(more)} more", examples=more, folded=True),
            *(
                Section(
                    f"{len(rows)} to “{name}”, one of the descriptors with the highest mean b",
                    examples=list(_examples(rows, content.tuned)),
                    folded=True,
                )
                for name, rows in groups.items()
            ),
        ],
    )


def _examples(rows: Iterable[Mapping[str, Any]], tuned: bool) -> Iterator[Example]:
    for row in rows:
        persona = f"persona: {row['persona']}" if row["persona"] else ""
        yield Example(
            " · ".join(filter(None, (row["axis"], row["descriptor"], persona))),
            tuple(
                (side if tuned else "response", ((row[side], False),)) for side in ("before", "after") if side in row
            ),
            asked=row["prompt"],
        )


def _records(frame: pd.DataFrame | None) -> list[dict[str, Any]]:
    return [] if frame is None else frame.to_dict("records")


def _panels(panels: Iterable[Markup]) -> list[Figure]:
    return [Figure("", panel, wide=False) for panel in panels]


def _said(sentence: str) -> list[str]:
    return [sentence] if sentence else []
