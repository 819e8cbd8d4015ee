"""The folder of `watch`: what was read so far and who is named, and the numbers of each day."""

import datetime
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.files import read_json, write_text
from evenhand.recipes.command_settings import WatchSettings

STATE = "watch.json"
DAYS = "days.jsonl"
DIRECTIONS = ("more often", "less often")  # by `betting.HIGHER`, `betting.LOWER`


@dataclass(frozen=True)
class Named:
    """A person who is shown to differ.

    Attributes:
        person, outcome: who differs, and in what.
        direction: one of DIRECTIONS.
        date: the day on which it was shown.
        answers: the number of answers read until then."""

    person: str
    outcome: str
    direction: str
    date: str
    answers: int


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
        named: who was named, the earliest first.
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
    named: list[Named] = field(default_factory=list)


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
