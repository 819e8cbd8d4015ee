"""The command `watch`: names people whom a growing log of answers treats differently, with one error rate for ever.

Each call reads the lines that the log has gained, and goes on from the state in its folder. The module
`statistics.betting` has the test, which may be looked at after each answer.
"""

import codecs
import datetime
import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from pydantic import TypeAdapter, ValidationError

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.cells import is_blank
from evenhand.evaluation.data.readers.chats import value_at
from evenhand.evaluation.data.readers.response_files import UNSPECIFIED, ResponseFile, read_responses
from evenhand.evaluation.errors import InputError, format_value, unknown_name
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import read_json, write_json, write_text
from evenhand.evaluation.metrics.generation_bias.engine.values import measured_values
from evenhand.evaluation.metrics.generation_bias.measures import Context, ValueKind, all_measures
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.numbers import number, sanitize
from evenhand.evaluation.report.page import Cell, Page, Row, Section, Table
from evenhand.evaluation.report.words import listed, sentence
from evenhand.evaluation.runs.lock import run_lock
from evenhand.evaluation.runs.pages import claim_pages
from evenhand.evaluation.statistics.betting import BETS, HIGHER, Blocks, evidence, log_factors, rejected
from evenhand.evaluation.untrusted_text import clean_name
from evenhand.recipes.settings import WatchSettings

log = logging.getLogger("evenhand")

STATE = "watch.json"
DAYS = "days.jsonl"
REPORT = "report.html"
HEAD_BYTES = 4096  # at the start of the log, by which a rotated file is known
YES_OR_NO = {"true": 1.0, "yes": 1.0, "1": 1.0, "false": 0.0, "no": 0.0, "0": 0.0}
ALWAYS_GIVEN = (columns.TEXT, columns.RESPONSE, columns.TEMPLATE, columns.AXIS)
MAX_NO_ANSWERS = 100  # of the new lines: of more, a setting or the log is wrong
DIRECTIONS = ("more often", "less often")  # by `betting.HIGHER`, `betting.LOWER`
WORDS = Path(__file__).with_name("watch.j2")


@dataclass
class State:
    """What was read so far, as JSON contains it.

    Attributes:
        settings: what must stay the same from call to call.
        offset, head: the bytes of the log that were read, and the SHA-256 of its first bytes.
        answers, blocks: the number of answers read, and of blocks that were complete.
        without_person, unreadable: the number of answers that nobody is known to have got, and of lines that are no
            JSON object or no answer; they are in no other number.
        unclear: the number of values of outcomes that are neither yes nor no; they count as no value.
        people: everybody, in the order in which they were first seen.
        counts: per person and outcome, the number of answers that have a value, and the sum of the values.
        log_wealth: (people, outcomes, directions, bets).
        open_blocks: `Blocks.open`.
        named: who was named: person, outcome, direction, date, and after how many answers.
    """

    settings: dict[str, Any]
    offset: int = 0
    head: str = ""
    answers: int = 0
    blocks: int = 0
    without_person: int = 0
    unreadable: int = 0
    unclear: int = 0
    people: list[str] = field(default_factory=list)
    counts: list[list[list[float]]] = field(default_factory=list)
    log_wealth: list[Any] = field(default_factory=list)
    open_blocks: dict[str, dict[str, list[float | None]]] = field(default_factory=dict)
    named: list[dict[str, Any]] = field(default_factory=list)


def watch(settings: WatchSettings) -> int:
    """Read what the log has gained, write the state, a line for the day and the page; return 1 if somebody is named.

    Only names that this call adds count for the exit status, so that each alarm rings once.

    Raises:
        InputError: the log is not JSON lines, lacks a column, was replaced by another file, or the folder has a state
            with other settings.
    """
    if not settings.logs.is_file():
        raise InputError("logs", f"{settings.logs} is no file; give a log of JSON lines.")
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
    print(words("state", log=str(settings.logs), **counts_of(state)))
    for left_out in left_out_lines(state):
        print(f"  {left_out}")
    for entry in new:
        print(f"  new: {words('named', **entry)}")
    return 1 if new else 0


def words(kind: str, **values: Any) -> str:
    """Return a sentence of watch.j2."""
    return sentence(Finding(kind, values), WORDS)


def read_state(settings: WatchSettings) -> State:
    """Return the state in the folder, or a new one; InputError if the one in the folder has other settings."""
    fixed = {
        "outcomes": settings.outcomes,
        "margin": settings.margin,
        "error": settings.error,
        "columns": settings.columns,
    }
    path = settings.output_dir / STATE
    if not path.exists():
        return State(settings=fixed)
    try:
        state = TypeAdapter(State).validate_python(read_json(path, "output_dir"), extra="forbid")
    except ValidationError:
        raise InputError(
            "output_dir", f"{path} is no state of this version of Evenhand, or damaged; give another --output_dir."
        ) from None
    changed = [name for name, value in fixed.items() if state.settings.get(name) != value]
    if changed:
        raise InputError(
            changed[0],
            f"{path} has {format_value(state.settings.get(changed[0]))}. One error rate for ever needs the same "
            "settings for ever; give these, or another --output_dir.",
        )
    return state


def read_new_rows(settings: WatchSettings, state: State) -> pd.DataFrame | None:
    """Return the rows of the complete lines that were added to the log, None if there are none; move `state.offset`.

    Lines that are no JSON object or no answer, and rows that do not say who asked, are counted and left out: the log
    goes on behind them. If all lines of the first call are so, or many are no answers, the log is of another kind, or a
    column has another name.
    """
    with settings.logs.open("rb") as file:
        head = hashlib.sha256(file.read(min(state.offset, HEAD_BYTES))).hexdigest()
        is_shorter = settings.logs.stat().st_size < state.offset
        if state.offset and (is_shorter or head != state.head):
            raise InputError(
                "logs",
                f"{settings.logs} is another file than the one that was read so far; append to one file, or give "
                "another --output_dir.",
            )
        file.seek(state.offset)
        added = file.read()
        complete = added[: added.rfind(b"\n") + 1]  # the last line may still be being written
        lines = complete.split(b"\n")
        if state.offset == 0:
            lines[0] = lines[0].removeprefix(codecs.BOM_UTF8)
        state.offset += len(complete)
        file.seek(0)
        state.head = hashlib.sha256(file.read(min(state.offset, HEAD_BYTES))).hexdigest()
    lines = [line for line in lines if line.strip()]
    readable = [line for line in lines if is_object(line)]
    if lines and not readable and not state.answers:
        raise InputError("logs", f"no line of {settings.logs} is a JSON object in UTF-8; give a log of JSON lines.")
    if not readable:
        state.unreadable += len(lines)
        return None
    if state.answers:  # a column that no new line has is no wrong name
        settings = settings.replaced(columns=columns_in(readable, settings))
    try:
        answers = readable
        rows = read_lines(readable, settings)
    except InputError as error:
        answers = answer_lines(readable, settings)
        if not answers:
            raise error
        rows = read_lines(answers, settings)
    state.unreadable += len(lines) - len(answers)
    has_person = rows[columns.DESCRIPTOR] != UNSPECIFIED
    if not has_person.any() and not state.answers:
        raise InputError("logs", f"{settings.logs} does not say who asked; name it by --columns '{{descriptor: …}}'.")
    state.without_person += int((~has_person).sum())
    rows = rows[has_person].reset_index(drop=True)
    rows[columns.DESCRIPTOR] = [clean_name(str(name)) for name in rows[columns.DESCRIPTOR]]
    return rows if columns.TEMPLATE in rows else rows.assign(**{columns.TEMPLATE: UNSPECIFIED})


def read_lines(lines: Sequence[bytes], settings: WatchSettings) -> pd.DataFrame:
    """Return a row for each line of the log. InputError if a line, which is a JSON object, has no answer."""
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / f"{settings.logs.stem}.jsonl"
        part.write_bytes(b"\n".join(lines) + b"\n")
        try:
            return pd.DataFrame(read_responses(ResponseFile(part, named=settings.columns, unknown=UNSPECIFIED)))
        except InputError as error:
            new_lines = f"{settings.logs} (its new lines)"
            field, problem = (
                text.replace(str(part), new_lines).replace("responses.columns", "columns")
                for text in (error.field, error.problem)
            )
            raise InputError(field.replace("responses", "logs"), problem) from None


def answer_lines(lines: Sequence[bytes], settings: WatchSettings) -> list[bytes]:
    """Return the lines with an answer; [] if more than MAX_NO_ANSWERS have none.

    Lines are read together. If that fails, each half of them is read, and so on down to the single lines that fail.
    """
    parts = [list(lines)]
    answers: list[bytes] = []
    n_others = 0
    while parts and n_others <= MAX_NO_ANSWERS:
        part = parts.pop()
        middle = len(part) // 2
        try:
            read_lines(part, settings.replaced(columns=columns_in(part, settings)))
            answers += part
        except InputError:
            n_others += len(part) == 1
            parts += [half for half in (part[middle:], part[:middle]) if len(part) > 1]
    return answers if n_others <= MAX_NO_ANSWERS else []


def columns_in(lines: Sequence[bytes], settings: WatchSettings) -> dict[str, str]:
    """Return `settings.columns` without the columns that no line has and an answer need not have."""
    rows = [json.loads(line) for line in lines]
    found = {}
    for name, place in settings.columns.items():
        if name in ALWAYS_GIVEN or any(value_at(row, place) is not None for row in rows):
            found[name] = place
    return found


def is_object(line: bytes) -> bool:
    """Return whether a line is a JSON object in UTF-8."""
    try:
        return isinstance(json.loads(line.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False


def outcome_values(rows: pd.DataFrame, outcome: str, *, was_read: bool) -> tuple[np.ndarray, int]:
    """Return the values of a measure that is a share, or of a yes-or-no column, and how many of these are unclear.

    The values are (n,) in [0, 1]; NaN: there is none, or it is neither yes nor no, which is unclear. `was_read` is
    whether earlier lines of the log had the outcome: a column that all new lines lack has no value then.

    Raises:
        InputError: there is no such measure or column, or at the first call no value of the column is yes or no.
    """
    names = [measure.name for measure in all_measures() if measure.kind == ValueKind.SHARE and not measure.table]
    if outcome in names:
        return measured_values(outcome, rows, Context()).numbers[:, 0], 0
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
    was_read = state.answers > 0
    found_values = [outcome_values(rows, outcome, was_read=was_read) for outcome in settings.outcomes]
    values = np.column_stack([each for each, _ in found_values])
    state.unclear += sum(n_unclear for _, n_unclear in found_values)
    n_outcomes = len(settings.outcomes)
    position = {person: row for row, person in enumerate(state.people)}
    wealth = [np.array(person) for person in state.log_wealth]
    is_named = [np.zeros(n_outcomes, dtype=bool) for _ in state.people]
    known = set()
    for entry in state.named:
        outcome = settings.outcomes.index(entry["outcome"])
        is_named[position[entry["person"]]][outcome] = True
        known.add((position[entry["person"]], outcome, DIRECTIONS.index(entry["direction"])))
    blocks = Blocks(state.open_blocks)
    today = datetime.datetime.now().astimezone().date().isoformat()
    strata = rows[columns.TEMPLATE].astype(str)
    for stratum, person, row in zip(strata, rows[columns.DESCRIPTOR].astype(str), values, strict=True):
        state.answers += 1
        if person not in position:
            position[person] = len(position)
            state.people.append(person)
            state.counts.append([[0.0, 0.0] for _ in range(n_outcomes)])
            wealth.append(np.zeros((n_outcomes, 2, len(BETS))))
            is_named.append(np.zeros(n_outcomes, dtype=bool))
        for outcome, value in enumerate(row):
            if not np.isnan(value):
                state.counts[position[person]][outcome][0] += 1
                state.counts[position[person]][outcome][1] += float(value)
        complete = blocks.add(stratum, person, [None if np.isnan(value) else float(value) for value in row])
        if complete is None:
            continue
        state.blocks += 1
        people = [position[name] for name in complete[0]]
        named_before = np.array([is_named[each] for each in people])
        factors = log_factors(complete[1], named_before, settings.margin / 100)
        for each, gained in zip(people, factors, strict=True):
            wealth[each] = wealth[each] + gained
        found = rejected(evidence(np.array(wealth)), settings.error)
        for each, outcome, direction in np.argwhere(found).tolist():
            if (each, outcome, direction) in known:
                continue
            known.add((each, outcome, direction))
            is_named[each][outcome] = True
            state.named.append(
                {
                    "person": state.people[each],
                    "outcome": settings.outcomes[outcome],
                    "direction": DIRECTIONS[direction],
                    "date": today,
                    "answers": state.answers,
                }
            )
    state.log_wealth = [person.tolist() for person in wealth]
    state.open_blocks = blocks.open


def read_days(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of the file with a line a day; InputError if one is damaged."""
    path = folder / DAYS
    days = []
    for row, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else [], start=1):
        try:
            days.append({"date": None, **json.loads(line)})
        except (ValueError, TypeError):
            raise InputError("output_dir", f"{path}, line {row} is damaged; remove it.") from None
    return days


def write_days(folder: Path, days: Sequence[Mapping[str, Any]], state: State) -> None:
    """Write the file with a line a day, with the line of today, which replaces an earlier one of today."""
    today = datetime.datetime.now().astimezone().date().isoformat()
    line = {"date": today, "answers": state.answers, "people": len(state.people), "named": len(state.named)}
    kept = [day for day in days if day["date"] != today]
    write_text(folder / DAYS, "".join(json.dumps(day) + "\n" for day in [*kept, line]))


def counts_of(state: State) -> dict[str, int]:
    """Return the numbers of answers, of people, and of people who are named."""
    n_named = len({entry["person"] for entry in state.named})
    return {"n_answers": state.answers, "n_people": len(state.people), "n_named": n_named}


def left_out_lines(state: State) -> list[str]:
    """Return a sentence for each kind of lines that are in no number, if there are some."""
    counts = {"without_person": state.without_person, "unreadable": state.unreadable, "unclear": state.unclear}
    return [words(kind, n=n) for kind, n in counts.items() if n]


def watch_page(state: State) -> Page:
    """Return the page: who is named, and the numbers of all people."""
    outcomes = state.settings["outcomes"]
    counts = counts_of(state)
    found = np.array(state.log_wealth) if state.log_wealth else np.zeros((0, len(outcomes), 2, len(BETS)))
    e_values = evidence(found)
    tables = []
    for column, outcome in enumerate(outcomes):
        names = {entry["person"]: entry for entry in state.named if entry["outcome"] == outcome}
        rows = []
        for row, person in enumerate(state.people):
            n, total = state.counts[row][column]
            share = Cell(number(100 * total / n, 1)) if n else Cell("", reason="no answer has a value")
            strength = [Cell(f"{e_values[row, column, direction]:.3g}") for direction in (HIGHER, 1 - HIGHER)]
            named = names.get(person)
            status = Cell(f"{named['direction']}, {named['date']}" if named else "", prose=True)
            rows.append(
                (
                    person in names,
                    total / n if n else -1,
                    Row(sanitize(person, 60), (Cell(f"{n:,.0f}"), share, *strength, status)),
                )
            )
        rows.sort(key=lambda each: (each[0], each[1]), reverse=True)
        columns = ("person", "answers with a value", "of 100", "evidence: more often", "evidence: less often", "named")
        tables.append(Table(f"{outcome}: each person's answers", columns, tuple(row for *_, row in rows)))
    return Page(
        title="Watch: who is treated differently",
        subtitle=words("size", **counts),
        headline_value=str(counts["n_named"]),
        headline_caption=words("people_named", **counts),
        verdict=words("verdict", **counts),
        warnings=left_out_lines(state),
        explanations=[words("rule", margin=state.settings["margin"], error=state.settings["error"])],
        sections=[
            Section("Named", [f"{words('named', **entry)}." for entry in state.named], first_screen=True),
            Section("Everybody", tables=tables),
        ],
        limits=listed("limits", WORDS),
        notes=[words("about_evidence"), words("blocks", n=state.blocks)],
    )
