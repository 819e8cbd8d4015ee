"""The command `watch`: names people whom a growing log of answers treats differently, with one error rate for ever.

Each call reads the lines that the log has gained, and goes on from the state in its folder. The module
`statistics.betting` has the test, which may be looked at after each answer.
"""

import datetime
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.cells import is_blank
from evenhand.evaluation.errors import InputError, format_value, unknown_name
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import write_json, write_text
from evenhand.evaluation.metrics.generation_bias.engine.values import measured_values
from evenhand.evaluation.metrics.generation_bias.measures import Context, ValueKind, all_measures
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.numbers import number, sanitize
from evenhand.evaluation.report.page import Cell, Page, Row, Section, Table
from evenhand.evaluation.report.words import listed, sentence
from evenhand.evaluation.runs.lock import run_lock
from evenhand.evaluation.runs.pages import claim_pages
from evenhand.evaluation.statistics.betting import BETS, HIGHER, LOWER, Blocks, StreamTest, evidence
from evenhand.recipes.command_settings import WatchSettings
from evenhand.recipes.watch_log import read_new_rows
from evenhand.recipes.watch_state import DIRECTIONS, STATE, Named, State, read_days, read_state, write_days

REPORT = "report.html"
YES_OR_NO = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
WORDS = Path(__file__).with_name("watch.j2")


def watch(settings: WatchSettings) -> int:
    """Read what the log has gained, write the state, a line for the day and the page; return 1 if somebody is named.

    Only names that this call adds count for the exit status, so that each alarm rings once.

    Raises:
        InputError: an outcome is given twice; the log is not JSON lines, lacks a column, was replaced by another file,
            or the folder has a state with other settings.
    """
    if not settings.logs.is_file():
        raise InputError("logs", f"{settings.logs} is no file; give a log of JSON lines.")
    if len(set(settings.outcomes)) < len(settings.outcomes):
        raise InputError("outcomes", f"{', '.join(settings.outcomes)}: one is repeated; give each once.")
    claim_pages(settings.output_dir, "watch")
    with run_lock(settings.output_dir):
        state = read_state(settings)
        days = read_days(settings.output_dir)
        earlier = len(state.named)
        rows = read_new_rows(settings, state)
        if rows is not None:
            follow(state, rows, settings)
        write_json(settings.output_dir / STATE, asdict(state))
        write_days(settings.output_dir, days, state)
        page = watch_page(state)
        write_text(settings.output_dir / REPORT, page_html(page))
    new = state.named[earlier:]
    print(words("state", {"log": str(settings.logs)} | counts_of(state)))
    for left_out in left_out_lines(state):
        print(f"  {left_out}")
    for entry in new:
        print(f"  new: {words('named', vars(entry))}")
    return 1 if new else 0


def words(kind: str, values: Mapping[str, Any]) -> str:
    """Return a sentence of watch.j2."""
    return sentence(Finding(kind, values), WORDS)


def outcome_values(rows: pd.DataFrame, outcome: str, *, was_read: bool) -> tuple[np.ndarray, int]:
    """Return the values of a measure that is a share, or of a yes-or-no column, and how many of these are unclear.

    The values are (n,) in [0, 1]; NaN: there is none, or it is neither yes nor no, which is unclear. `was_read` is
    whether earlier lines of the log had the outcome: a column that all new lines lack has no value then.

    Raises:
        InputError: there is no such measure or column, or at the first call no value of the column is yes or no.
    """
    names = [measure.name for measure in all_measures() if measure.kind == ValueKind.SHARE and not measure.table]
    if outcome in names:
        return measured_values(outcome, rows, Context(each_alone=True)).numbers[:, 0], 0
    if outcome not in rows and was_read:
        return np.full(len(rows), np.nan), 0
    if outcome not in rows:
        raise unknown_name("outcomes", outcome, [*names, *map(str, rows.columns)])
    values = np.full(len(rows), np.nan)
    unclear = []
    for row, value in enumerate(rows[outcome]):
        known = YES_OR_NO.get(str(value).strip().lower().removesuffix(".0"))
        if known is not None:
            values[row] = known
        elif not is_blank(value):
            unclear.append(value)
    if unclear and not was_read and np.isnan(values).all():
        raise InputError("outcomes", f"column {outcome!r} has {format_value(unclear[0])}; write true, false or null.")
    return values, len(unclear)


def follow(state: State, rows: pd.DataFrame, settings: WatchSettings) -> None:
    """Bet with each block that the rows complete, and record who is named."""
    found = [outcome_values(rows, outcome, was_read=state.answers > 0) for outcome in settings.outcomes]
    values = np.column_stack([of_outcome for of_outcome, _ in found])
    state.unclear += sum(n_unclear for _, n_unclear in found)
    test = continued_test(state, settings)
    today = datetime.datetime.now().astimezone().date().isoformat()
    people = rows[columns.DESCRIPTOR].astype(str)
    strata = rows[columns.TEMPLATE].astype(str)
    for stratum, name, of_answer in zip(strata, people, values, strict=True):
        state.answers += 1
        for person, outcome, direction in test.add(stratum, name, of_answer):
            entry = Named(
                person=person,
                outcome=settings.outcomes[outcome],
                direction=DIRECTIONS[direction],
                date=today,
                answers=state.answers,
            )
            state.named.append(entry)
    counts = np.zeros((len(test.positions), len(settings.outcomes), 2))
    if state.counts:
        counts[: len(state.counts)] = state.counts
    positions = np.array([test.positions[person] for person in people], dtype=int)
    np.add.at(counts, positions, np.stack([~np.isnan(values), np.nan_to_num(values)], axis=-1))
    state.counts = counts.tolist()
    state.people = list(test.positions)
    state.log_wealth = test.log_wealth.tolist()
    state.open_blocks = test.blocks.open
    state.blocks = test.n_blocks


def continued_test(state: State, settings: WatchSettings) -> StreamTest:
    """Return the test as the last call left it."""
    test = StreamTest(len(settings.outcomes), margin=settings.margin / 100, error=settings.error)
    test.positions = {person: position for position, person in enumerate(state.people)}
    test.blocks = Blocks(state.open_blocks)
    test.n_blocks = state.blocks
    if state.people:
        test.log_wealth = np.array(state.log_wealth)
        test.is_named = np.zeros(test.log_wealth.shape[:-1], dtype=bool)
    for entry in state.named:
        outcome = settings.outcomes.index(entry.outcome)
        test.is_named[test.positions[entry.person], outcome, DIRECTIONS.index(entry.direction)] = True
    return test


def counts_of(state: State) -> dict[str, int]:
    """Return the numbers of answers, of people, and of people who are named."""
    n_named = len({entry.person for entry in state.named})
    return {"n_answers": state.answers, "n_people": len(state.people), "n_named": n_named}


def left_out_lines(state: State) -> list[str]:
    """Return a sentence for each kind of lines that are in no number, and each outcome without any value."""
    counts = {"without_person": state.without_person, "unreadable": state.unreadable, "unclear": state.unclear}
    found = [words(kind, {"n": n}) for kind, n in counts.items() if n]
    for column, outcome in enumerate(state.settings["outcomes"]):
        if state.counts and not any(person[column][0] for person in state.counts):
            found.append(words("no_value", {"outcome": outcome}))
    return found


def watch_page(state: State) -> Page:
    """Return the page: who is named, and the numbers of all people."""
    counts = counts_of(state)
    outcomes = state.settings["outcomes"]
    log_wealth = np.array(state.log_wealth) if state.log_wealth else np.zeros((0, len(outcomes), 2, len(BETS)))
    e_values = evidence(log_wealth)
    tables = [people_table(state, name, place, e_values[:, place]) for place, name in enumerate(outcomes)]
    return Page(
        title="Watch: who is treated differently",
        subtitle=words("size", counts),
        headline_value=str(counts["n_named"]),
        headline_caption=words("people_named", counts),
        verdict=words("verdict", counts),
        warnings=left_out_lines(state),
        explanations=[words("rule", state.settings)],
        sections=[
            Section("Named", [f"{words('named', vars(entry))}." for entry in state.named], first_screen=True),
            Section("Everybody", tables=tables),
        ],
        limits=listed("limits", WORDS),
        notes=[words("about_evidence", {}), words("blocks", {"n": state.blocks})],
    )


def people_table(state: State, outcome: str, place: int, e_values: np.ndarray) -> Table:
    """Return the table of everybody's answers: first who is named, then others, the largest share first.

    `place` is the outcome's place in the counts, and `e_values` are its (people, directions).
    """
    named = {entry.person: entry for entry in state.named if entry.outcome == outcome}
    numbers = np.array([of_person[place] for of_person in state.counts]).reshape(-1, 2)
    n_answers = numbers[:, 0]
    shares = np.divide(numbers[:, 1], n_answers, out=np.full(len(numbers), -1.0), where=n_answers > 0)
    is_named = np.array([person in named for person in state.people], dtype=bool)
    rows = []
    for row in np.lexsort((-shares, ~is_named)):
        person = state.people[row]
        share = (
            Cell(number(100 * float(shares[row]), 1)) if n_answers[row] else Cell("", reason="no answer has a value")
        )
        strength = [Cell(f"{e_values[row, direction]:.3g}") for direction in (HIGHER, LOWER)]
        entry = named.get(person)
        status = Cell(f"{entry.direction}, {entry.date}" if entry else "", prose=True)
        rows.append(Row(sanitize(person, 60), (Cell(f"{n_answers[row]:,.0f}"), share, *strength, status)))
    names = ("person", "answers with a value", "of 100", "evidence: more often", "evidence: less often", "named")
    return Table(f"{outcome}: each person's answers", names, tuple(rows))
