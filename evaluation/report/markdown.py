"""The report as GitHub-flavoured Markdown; text that a model wrote stands in code spans, where it can do nothing."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from evaluation.files import write_text
from evaluation.report import changes, tables, wording
from evaluation.report.comparison import PER_UNIT, UNIT, number, visible
from evaluation.report.content import ReportContent, TrainingCurve

# What can begin markup anywhere in a line, and what would make a bare address a link.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~!$@&]|:(?=/)|(?<=www)\.)", re.IGNORECASE)


def write_markdown(path: Path, content: ReportContent) -> None:
    """Write the report; the same content gives the same bytes.

    Raises:
        InputError: the file cannot be written.
    """
    write_text(path, markdown_report(content))


def markdown_report(content: ReportContent) -> str:
    """Return the report, ended by a line break."""
    models = content.base_model + (f" → {content.tuned_model}" if content.tuned else "")
    costs, shares = tables.cost_table(content), tables.style_share_table(content)
    parts = [
        f"# {escaped(content.title)}",
        f"{escaped(models)} · {escaped(content.date)}" + (f" · {escaped(content.method)}" if content.method else ""),
        f"**{escaped(wording.verdict(content))}**",
        *(f"> **Warning.** {escaped(warning)}" for warning in wording.warnings(content)),
        table_block(tables.headline_table(content)),
        table_block(tables.further_table(content)),
        *map(escaped, (wording.INTERVAL_IN_WORDS, wording.permutation_note(content), *content.notes)),
        section(costs.caption, [escaped(wording.cost_sentence(content)), _grid_of(costs), table_block(shares)]),
        section("By style cluster", map(table_block, tables.cluster_tables(content))),
        section("By demographic axis", map(table_block, tables.axis_tables(content))),
        section("What tuning changed", _changes(content)),
        section("Style against frequency in a corpus", _frequency(content)),
        section("Against what was planted", [table_block(tables.truth_table(content))]),
        section("The threshold plan", [table_block(tables.plan_table(content)), _trust(content)]),
        section("Descriptors", map(table_block, tables.descriptor_tables(content))),
        section("Training", [_curve_table(content.training)]),
        section("Sample responses", [_sample_table(content.samples, content.tuned)]),
        section(
            "Sample responses to descriptors with the highest mean b",
            [_sample_table(content.changes.samples, content.tuned)],
        ),
        section("How to read the numbers", [f"- **{escaped(word)}**: {escaped(it)}" for word, it in wording.GLOSSARY]),
        section("What they do not say", [f"- {escaped(limit)}" for limit in wording.LIMITS]),
        section("Signature", [signature_block(content.signature)]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def section(title: str, parts: Iterable[str]) -> str:
    """Return the parts under their heading, or nothing if all of them are empty."""
    text = "\n\n".join(part for part in parts if part)
    return f"## {title}\n\n{text}" if text else ""


def table_block(table: tables.Table) -> str:
    """Return a table under its caption."""
    parts = [f"{escaped(table.caption)}:", _grid_of(table), escaped(table.note)]
    return "\n\n".join(part for part in parts if part) if table.rows or table.note else ""


def _grid_of(table: tables.Table) -> str:
    if not table.rows:
        return ""
    body = [
        [f"{escaped(row.label)}{' **rose**' if row.direction > 0 else ''}"]
        + [f"{escaped(cell.full)} {cell.interval}".rstrip() for cell in row.cells]
        for row in table.rows
    ]
    return _grid(map(escaped, table.columns), body, right_from=1)


def _changes(content: ReportContent) -> list[str]:
    return [
        table_block(changes.style_change_table(content)),
        table_block(changes.moved_table(content)),
        *(table_block(table) for part in changes.phrase_tables(content) for table in part),
        escaped(changes.parroting_sentence(content)),
        table_block(changes.parroting_table(content)),
    ]


def _frequency(content: ReportContent) -> list[str]:
    return [escaped(changes.corpus_sentence(content)), table_block(changes.frequency_table(content))]


def _sample_table(samples: pd.DataFrame | None, tuned: bool) -> str:
    if samples is None or samples.empty:
        return ""
    roles = [role for role in ("before", "after") if role in samples]
    body = [
        [_literal(row["axis"]), _literal(row["descriptor"]), _literal(row["prompt"]), _literal(row["persona"])]
        + [_literal(row[role]) for role in roles]
        for row in samples.to_dict("records")
    ]
    heads = roles if tuned else ["response"]
    return _grid(["axis", "descriptor", "prompt", "persona", *heads], body, right_from=6)


def _curve_table(training: TrainingCurve | None) -> str:
    """Return the curve at the steps at which the validation loss or the bias was measured."""
    if training is None:
        return ""
    loss, bias, train = dict(training.validation_loss), dict(training.bias), dict(training.train_loss)
    steps = sorted(loss.keys() | bias.keys()) or sorted(train)
    columns = [("training loss", train, 1.0), ("validation loss", loss, 1.0), (f"pooled FGB*, {UNIT}", bias, PER_UNIT)]
    body = [
        [f"{step:,}", *(number(curve[step] * factor, 3) if step in curve else "" for _, curve, factor in columns)]
        for step in steps
    ]
    return _grid(["step", *(escaped(name) for name, *_ in columns)], body, right_from=0)


def _trust(content: ReportContent) -> str:
    return escaped(content.threshold_plan.trust) if content.threshold_plan else ""


def signature_block(signature: Mapping[str, Any]) -> str:
    """Return a signature as JSON in a code block that it cannot end, or nothing if it is empty."""
    if not signature:
        return ""
    text = json.dumps(signature, indent=1, ensure_ascii=False, default=str)
    text = "\n".join(visible(line) for line in text.split("\n"))
    fence = _fence(text, at_least=3)
    return f"{fence}json\n{text}\n{fence}"


def _grid(columns: Iterable[str], rows: Iterable[list[str]], right_from: int) -> str:
    """Return a table; the columns from `right_from` on are flush right."""
    columns = list(columns)
    rule = ["---:" if place >= right_from else ":---" for place in range(len(columns))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (columns, rule, *rows))


def escaped(text: str) -> str:
    """Return text in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", visible(text))


def _literal(text: str) -> str:
    """Return text as a code span that cannot end early or divide a table's cell."""
    text = visible(text).strip()
    if not text:
        return ""
    fence = _fence(text, at_least=1)
    return (
        f"{fence} {text.replace('|', chr(92) + '|')} {fence}"
        if "`" in text
        else f"`{text.replace('|', chr(92) + '|')}`"
    )


def _fence(text: str, at_least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(at_least, longest + 1)
