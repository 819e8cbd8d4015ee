"""Sections of a report on generation bias."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.metrics import QUALITY
from evenhand.evaluation.metrics.generation_bias.report import change_tables as changes
from evenhand.evaluation.metrics.generation_bias.report import plots, tables
from evenhand.evaluation.metrics.generation_bias.report.report_data import HEADLINE, ReportData
from evenhand.evaluation.metrics.generation_bias.report.tables import without_marks
from evenhand.evaluation.metrics.generation_bias.report.warnings import warnings
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.numbers import before_after, sanitize
from evenhand.evaluation.report.page import Example, Figure, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.score import display_name

text = Sentences(__file__)

MAX_SAMPLES = 6  # number of samples that are not folded


def report_page(data: ReportData) -> Page:
    """Return the report. An undefined score is displayed with its reason; a score that was not measured is omitted."""
    row, is_comparison = data.overall(HEADLINE), data.is_comparison
    truth = tables.truth_table(data)
    names = display_name(data.model) if not is_comparison else before_after(data.model, data.model_after)
    return Page(
        title="Generation bias before and after tuning" if is_comparison else "Generation bias of a model",
        subtitle=names if is_comparison else sanitize(names, 120),
        date=date.today().isoformat(),
        headline_value=text.headline_value(row, is_comparison),
        headline_caption="; ".join(filter(None, [text.headline_caption(row, is_comparison), data.decoding])),
        verdict=text.verdict(row, is_comparison),
        warnings=warnings(data),
        tables=[tables.headline_table(data), without_marks(tables.check_table(data))],
        notes=[
            text.interval_note(row, is_comparison, bool(truth.rows)),
            *filter(None, [text.jackknife_note([row, *data.checks()])]),
            *data.notes,
        ],
        sections=[
            _cost_section(data),
            _breakdown_section(data, "cluster", "style cluster", "By style cluster"),
            _breakdown_section(data, "axis", "axis", "By demographic axis"),
            _changes_section(data),
            _corpus_section(data),
            Section("Against the planted bias", [text.planted] if truth.rows else (), [without_marks(truth)]),
            Section(
                "Descriptors furthest from, and nearest to, the average response",
                tables=tables.descriptor_tables(data),
            ),
            _sample_section(data),
        ],
        glossary=list(text.glossary.items()),
        limits=text.limits,
        signature=data.signature,
        sides=("before", "after") if is_comparison else ("value",),
    )


def _cost_section(data: ReportData) -> Section:
    costs, shares = tables.cost_table(data), tables.style_share_table(data)
    sentence = ""
    if data.is_comparison:
        rows = {metric.name: data.overall(metric.name) for metric in QUALITY}
        defined = {metric: row if row and row.is_defined else None for metric, row in rows.items()}
        shift = tables.largest_style_shift(data)
        sentence = " ".join(
            filter(None, [text.cost_summary(defined), text.largest_style_shift(shift) if shift else ""])
        )
    parts = [Section(shares.caption, tables=[shares])]
    return Section(costs.caption, [sentence] if sentence else (), [costs], parts=parts, first_screen=True)


def _breakdown_section(data: ReportData, breakdown: str, name: str, title: str) -> Section:
    folded = list(map(without_marks, tables.other_tables(data, breakdown)))
    heading = f"Other metrics by {breakdown}"
    if breakdown == "cluster":
        folded, heading = [tables.style_table(data), *folded], "Single styles, and other metrics by cluster"
    parts = [Section(heading, tables=folded, folded=True)]
    main = tables.main_tables(data, breakdown, name)
    reasons = dict.fromkeys(row.cells[0].reason for table in main for row in table.rows)
    if reasons and all(reasons):
        return Section(title, [text.none_defined(name, len(main[0].rows), list(reasons))], first_screen=True)
    return Section(title, tables=main, parts=parts, first_screen=True)


def _changes_section(data: ReportData) -> Section:
    expected_phrases, other_phrases = changes.phrase_tables(data)
    score = next((score for score in data.differences if score.metric == "parroting_rho"), None)
    return Section(
        "What tuning changed",
        parts=[
            Section("Styles", tables=[changes.style_change_table(data), without_marks(changes.mean_style_table(data))]),
            Section("Phrases", tables=list(map(without_marks, expected_phrases))),
            Section(
                text.other_phrases if expected_phrases else "The phrases",
                tables=list(map(without_marks, other_phrases)),
                folded=True,
            ),
            Section("Repeating the prompt", [text.parroting(score)] if score else ()),
            Section(
                "Descriptors whose prompts are repeated more, or less",
                tables=[changes.parroting_table(data)],
                folded=True,
            ),
        ],
    )


def _corpus_section(data: ReportData) -> Section:
    corpus = data.tables.get("corpus")
    if corpus is None or corpus.empty:
        return Section("")
    counts = corpus.drop_duplicates(["descriptor", "axis"])
    first, never = counts.iloc[0], int((counts["count"] == 0).sum())
    frequency = changes.frequency_table(data)
    return Section(
        "Style against frequency in a corpus",
        [text.corpus(str(first["corpus"]), int(counts["count"].sum()), int(first["examples"]), never, len(counts))],
        figures=[Figure("", svg(chart), wide=False) for chart in plots.corpus_charts(corpus)],
        parts=[Section(frequency.caption, tables=[frequency])],
    )


def _sample_section(data: ReportData) -> Section:
    examples = list(_examples(data.samples, data.is_comparison))
    more = Section(f"{len(examples[MAX_SAMPLES:])} more", examples=examples[MAX_SAMPLES:], folded=True)
    chosen = [] if data.chosen_samples is None else data.chosen_samples.groupby("descriptor", sort=False)
    chosen_sections = [
        Section(text.chosen_samples(len(rows), name), examples=list(_examples(rows, data.is_comparison)), folded=True)
        for name, rows in chosen
    ]
    return Section(
        "Sample responses, before and after" if data.is_comparison else "Sample responses",
        [text.samples_note] if examples or chosen_sections else (),
        examples=examples[:MAX_SAMPLES],
        parts=[more, *chosen_sections],
    )


def _examples(frame: pd.DataFrame | None, is_comparison: bool) -> Iterator[Example]:
    rows: Iterable[Mapping[str, Any]] = [] if frame is None else frame.to_dict("records")
    for row in rows:
        persona = f"persona: {row['persona']}" if row["persona"] else ""
        sides = {"before": "before", "after": "after"} if is_comparison else {"before": "response"}
        yield Example(
            " · ".join(filter(None, (row["axis"], row["descriptor"], persona))),
            tuple((name, row[side]) for side, name in sides.items()),
            prompt=row["prompt"],
        )
