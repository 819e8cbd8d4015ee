"""The sections of a report on generation bias."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

import pandas as pd

from evenhand.evaluation.families.generation_bias.metrics import QUALITY
from evenhand.evaluation.families.generation_bias.report import change_tables as changes
from evenhand.evaluation.families.generation_bias.report import plots, tables
from evenhand.evaluation.families.generation_bias.report.report_data import HEADLINE, ReportData
from evenhand.evaluation.families.generation_bias.report.warnings import warnings
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.numbers import before_after, sanitize
from evenhand.evaluation.report.page import Example, Figure, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import without_marks
from evenhand.evaluation.results import display_name

say = Sentences(__file__)

SAMPLES_SHOWN = 6  # the rest can be unfolded


def content_page(content: ReportData) -> Page:
    """Return the report; what is undefined shows its reason, and what was not measured has no place in it."""
    row, compared = content.overall(HEADLINE), content.compared
    planted = tables.planted_table(content)
    names = display_name(content.model) if not compared else before_after(content.model, content.model_after)
    return Page(
        title="Generation bias before and after tuning" if compared else "Generation bias of a model",
        subtitle=names if compared else sanitize(names, 120),
        date=date.today().isoformat(),
        headline_value=say.headline_value(row, compared),
        headline_caption="; ".join(filter(None, [say.headline_caption(row, compared), content.decoding])),
        verdict=say.verdict(row, compared),
        warnings=warnings(content),
        tables=[tables.headline_table(content), without_marks(tables.check_table(content))],
        notes=[
            say.reading(content.overall(HEADLINE), compared, bool(planted.rows)),
            *filter(None, [say.wider([content.overall(HEADLINE), *content.checks()])]),
            *content.notes,
        ],
        sections=[
            _cost_section(content),
            _cut_section(content, "cluster", "style cluster", "By style cluster"),
            _cut_section(content, "axis", "axis", "By demographic axis"),
            _changes_section(content),
            _corpus_section(content),
            Section("Against what was planted", [say.planted] if planted.rows else (), [without_marks(planted)]),
            Section(
                "Descriptors furthest from, and nearest to, the average response",
                tables=tables.descriptor_tables(content),
            ),
            _sample_section(content),
        ],
        glossary=list(say.glossary.items()),
        limits=say.limits,
        signature=content.signature,
        sides=("before", "after") if compared else ("value",),
    )


def _cost_section(content: ReportData) -> Section:
    costs, shares = tables.cost_table(content), tables.style_share_table(content)
    sentence = ""
    if content.compared:
        rows = {metric.name: content.overall(metric.name) for metric in QUALITY}
        known = {metric: row if row and row.defined else None for metric, row in rows.items()}
        sentence = " ".join(filter(None, [say.cost(known), say.moved_most(tables.most_moved(content))]))
    parts = [Section(shares.caption, tables=[shares])]
    return Section(costs.caption, [sentence] if sentence else (), [costs], parts=parts, first_screen=True)


def _cut_section(content: ReportData, cut: str, name: str, title: str) -> Section:
    others = list(map(without_marks, tables.other_tables(content, cut)))
    below = Section(f"The other measures by {cut}", tables=others, folded=True)
    if cut == "cluster":
        styles = [tables.style_table(content), *others]
        below = Section("Single styles, and the other measures by cluster", tables=styles, folded=True)
    return Section(title, tables=tables.watched_tables(content, cut, name), parts=[below], first_screen=True)


def _changes_section(content: ReportData) -> Section:
    own_phrases, other_phrases = changes.phrase_tables(content)
    score = next((score for score in content.differences if score.metric == "parroting_rho"), None)
    repeated = changes.parroting_table(content)
    return Section(
        "What tuning changed",
        parts=[
            Section(
                "Styles", tables=[changes.style_change_table(content), without_marks(changes.moved_table(content))]
            ),
            Section("Phrases", tables=list(map(without_marks, own_phrases))),
            Section(
                say.other_phrases if own_phrases else "The phrases",
                tables=list(map(without_marks, other_phrases)),
                folded=True,
            ),
            Section("Repeating the prompt", [say.parroting(score)] if score else ()),
            Section("The descriptors whose prompts are repeated more, or less", tables=[repeated], folded=True),
        ],
    )


def _corpus_section(content: ReportData) -> Section:
    corpus = content.tables.get("corpus")
    if corpus is None or corpus.empty:
        return Section("")
    each = corpus.drop_duplicates(["descriptor", "axis"])
    first, never = each.iloc[0], int((each["count"] == 0).sum())
    frequency = changes.frequency_table(content)
    return Section(
        "Style against frequency in a corpus",
        [say.corpus(str(first["corpus"]), int(each["count"].sum()), int(first["examples"]), never, len(each))],
        figures=[Figure("", svg(chart), wide=False) for chart in plots.corpus_charts(corpus)],
        parts=[Section(frequency.caption, tables=[frequency])],
    )


def _sample_section(content: ReportData) -> Section:
    examples = list(_examples(content.samples, content.compared))
    more = Section(f"{len(examples[SAMPLES_SHOWN:])} more", examples=examples[SAMPLES_SHOWN:], folded=True)
    chosen = [] if content.chosen_samples is None else content.chosen_samples.groupby("descriptor", sort=False)
    sample_descriptors = [
        Section(say.chosen_samples(len(rows), name), examples=list(_examples(rows, content.compared)), folded=True)
        for name, rows in chosen
    ]
    return Section(
        "Sample responses, before and after" if content.compared else "Sample responses",
        [say.samples_note] if examples or sample_descriptors else (),
        examples=examples[:SAMPLES_SHOWN],
        parts=[more, *sample_descriptors],
    )


def _examples(frame: pd.DataFrame | None, compared: bool) -> Iterator[Example]:
    rows: Iterable[Mapping[str, Any]] = [] if frame is None else frame.to_dict("records")
    for row in rows:
        persona = f"persona: {row['persona']}" if row["persona"] else ""
        sides = {"before": "before", "after": "after"} if compared else {"before": "response"}
        yield Example(
            " · ".join(filter(None, (row["axis"], row["descriptor"], persona))),
            tuple((name, ((row[side], False),)) for side, name in sides.items()),
            prompt=row["prompt"],
        )
