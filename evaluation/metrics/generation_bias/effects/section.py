"""Opening sections of a report: largest effects in sentences with responses, a map, and a table of all effects."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effects.table import OPEN, SHOWN, WORTH_A_LOOK
from evenhand.evaluation.metrics.generation_bias.scale import DETECTABLE, MOVED, SHARE, SHIFT, root
from evenhand.evaluation.report.numbers import interval, number, p_value
from evenhand.evaluation.report.page import Example, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.table_data import Cell, Row, Table
from evenhand.evaluation.score import BiasScore, find_score
from evenhand.evaluation.statistics.variance_shares import SOURCES

text = Sentences(__file__)

N_SENTENCES, MAX_ROWS, MAX_LINKED = 5, 600, 60  # effects in sentences, in the table, with responses in the page
N_PAIRS = 2  # pairs of responses of an effect
FULL_SHADE = 20.0  # percentage points of the darkest shade
COLUMNS = ("descriptor or group", "axis", "style", "difference", "certainty", "mean", "average", "p, all tests")
FILTERS = ("axis", "style", "certainty")

Examples = Callable[[dict, int], Sequence[Example]]  # (effect, maximum number) → examples


def lead_sections(effects: pd.DataFrame, scores: Sequence[BiasScore], examples: Examples) -> list[Section]:
    """Return the sections that open a report; [] if the table of effects is empty.

    All numbers are percentage points of mean probability; differences are shrunk, with their 95 % intervals.

    Args:
        effects: the table of `effects.table.effects`.
        scores: the scores of the run.
        examples: function that returns the responses that carry an effect (`EffectExamples.examples`).
    """
    if not len(effects):
        return []
    linked = effects[effects["certainty"] != OPEN].head(MAX_LINKED).to_dict("records")
    anchors = {_key(row): f"responses{number}" for number, row in enumerate(linked, 1)}
    responses = [example for row in linked for example in _responses(row, examples, anchors[_key(row)])]
    anchors = {key: f"#{anchor}" for key, anchor in anchors.items() if anchor in {it.anchor for it in responses}}
    descriptor_map = _map(effects)
    return [
        _summary_section(effects, scores, examples),
        Section(text.map_title, [text.map_caption_note] if descriptor_map.rows else [], [descriptor_map]),
        Section(
            text.table_title,
            [text.certainty_note],
            [_table(effects, anchors)],
            parts=[Section(text.responses_title, [text.examples_rule], examples=responses, folded=True)],
        ),
    ]


def plain_verdict(effects: pd.DataFrame, verdict: str) -> str:
    """Return the verdict on the bias of one run as one sentence without symbols.

    Args:
        effects: the table of effects.
        verdict: the result of `bias_verdict` for pooled FGB*.
    """
    largest = named_effects(effects)[:1]
    return text.plain_verdict(verdict, text.who(largest[0]) if largest else "", largest[0] if largest else None)


def named_effects(effects: pd.DataFrame) -> list[dict]:
    """Return the largest shown effect of each descriptor or group, in percentage points; at most N_SENTENCES."""
    shown = effects[effects["certainty"] == SHOWN].drop_duplicates(["kind", "unit"]).head(N_SENTENCES)
    return [_points(row) for row in shown.to_dict("records")]


def _summary_section(effects: pd.DataFrame, scores: Sequence[BiasScore], examples: Examples) -> Section:
    n_shown, n_leads = (int((effects["certainty"] == level).sum()) for level in (SHOWN, WORTH_A_LOOK))
    claims = []
    for row in named_effects(effects):
        first = next(iter(_responses(row, examples)), Example("", ()))
        claims.append(replace(first, texts=first.texts[:2], claim=text.effect(row), hidden=first.hidden & {0, 1}))
    sentences = [_scale_sentence(scores), _share_sentence(scores), _resolution_sentence(effects, scores)]
    size = Section(text.size_title, list(filter(None, sentences)), first_screen=True)
    summary = text.summary(n_shown, n_leads, len(effects))
    return Section(text.title, [summary], examples=claims, parts=[size], first_screen=True)


def _scale_sentence(scores: Sequence[BiasScore]) -> str:
    moved, shift = (find_score(scores, name) for name in (MOVED, SHIFT))
    return text.scale(moved, shift) if moved and shift and math.isfinite(moved.value) else ""


def _share_sentence(scores: Sequence[BiasScore]) -> str:
    shares = {source: find_score(scores, SHARE, source=source) for source in SOURCES}
    return text.shares(shares) if all(it and math.isfinite(it.value) for it in shares.values()) else ""


def _resolution_sentence(effects: pd.DataFrame, scores: Sequence[BiasScore]) -> str:
    """Return a sentence with the effect and the spread that this run detects with a probability of 80 %, or ""."""
    of_descriptors = effects[(effects["kind"] == "descriptor") & (effects["outcome"] == "style")]
    effect = 100 * of_descriptors["detectable"].median()
    spread = find_score(scores, DETECTABLE)
    moved = 100 * root(spread.value, None, 2.0)[0] if spread and math.isfinite(spread.value) else math.nan
    n = int(of_descriptors.drop_duplicates("unit")["n"].sum())
    if not np.isfinite(effect) and math.isnan(moved):
        return ""
    return text.resolution(effect, moved, spread.value if spread else math.nan, n)


def _responses(row: dict, examples: Examples, anchor: str = "") -> list[Example]:
    """Return one example that contains all pairs of responses of an effect; [] if the effect has no pairs."""
    pairs = examples(row, N_PAIRS)
    if not pairs:
        return []
    hidden = frozenset(2 * number + place for number, pair in enumerate(pairs) for place in pair.hidden)
    texts = tuple(it for pair in pairs for it in pair.texts)
    return [Example("", texts, hidden=hidden, claim=text.effect_label(row) if anchor else "", anchor=anchor)]


def _key(row: Mapping) -> tuple:
    return row["kind"], row["unit"], row["outcome"], row["name"]


def _points(row: dict) -> dict:
    """Return a row of the table of effects with probabilities in percentage points."""
    return row | {name: 100 * row[name] for name in ("mean", "average", "shrunk", "low", "high")}


def _table(effects: pd.DataFrame, anchors: Mapping[tuple, str]) -> Table:
    rows = [_row(_points(row), anchors) for row in effects.head(MAX_ROWS).to_dict("records")]
    note = text.more(len(effects) - len(rows)) if len(effects) > len(rows) else ""
    return Table(text.caption, COLUMNS, tuple(rows), note, filters=FILTERS)


def _row(row: dict, anchors: Mapping[tuple, str]) -> Row:
    cells = (
        Cell(text.plain(row["axis"]), prose=True),
        Cell(text.plain(row["name"]), prose=True),
        Cell(number(row["shrunk"], 1, sign=True), interval((row["low"], row["high"]), 1, sign=True)),
        Cell(row["certainty"], prose=True),
        Cell(number(row["mean"], 1)),
        Cell(number(row["average"], 1)),
        Cell(p_value(row["p_family"])),
    )
    column = ("descriptor", "unit") if row["kind"] == "descriptor" else ("axis", "axis")
    elsewhere = f"./responses.html#{column[0]}={quote(row[column[1]], safe='')}"
    return Row(text.unit(row), cells, href=anchors.get(_key(row), elsewhere))


def _map(effects: pd.DataFrame) -> Table:
    """Return a map of the effects of descriptors on style clusters, sorted by axis. Shown effects are bold."""
    chosen = effects[(effects["kind"] == "descriptor") & (effects["outcome"] == "cluster")]
    names = sorted(chosen["name"].unique())
    of_unit = {unit: rows.set_index("name") for unit, rows in chosen.groupby("unit")}
    order = chosen[["axis", "unit"]].drop_duplicates().sort_values(["axis", "unit"])
    rows = [Row(unit, tuple(_shaded(of_unit[unit], axis, names))) for axis, unit in order.to_numpy().tolist()]
    columns = ("descriptor", "axis", *map(text.plain, names))
    return Table(text.map_caption, columns, tuple(rows) if names else (), filters=("axis",))


def _shaded(effects: pd.DataFrame, axis: str, names: Sequence[str]) -> list[Cell]:
    cells = [Cell(text.plain(axis), prose=True)]
    for name in names:
        row = _points(effects.loc[name].to_dict())
        shade = max(-1.0, min(1.0, row["shrunk"] / FULL_SHADE))
        tooltip = f"{number(row['mean'], 1)} %, {interval((row['low'], row['high']), 1, sign=True)}"
        cells.append(
            Cell(number(row["shrunk"], 1, sign=True), "", "", False, shade, tooltip, row["certainty"] == SHOWN)
        )
    return cells
