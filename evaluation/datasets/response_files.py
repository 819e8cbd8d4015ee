"""Responses from elsewhere (an API, another server, logs): what is to be answered is written, answers are read."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from datasets import Dataset

from evenhand.evaluation.datasets.prompt_files import CONTROL_TAG, REPEATS, build_prompts, check_texts, read_columns
from evenhand.evaluation.datasets.prompts import cumcount, require_columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.results import AXIS, DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.runs.files import atomic_write

UNSPECIFIED = "(unspecified)"  # the template or axis of prompts whose file has none
PROMPT, SYSTEM, REPEAT = "prompt", "system", "repeat"  # of what is written: to be sent as they stand
NAMED = 3  # ids that an error names of each kind
WRITERS: Mapping[str, Callable[[pd.DataFrame, Path], Any]] = {
    ".parquet": lambda rows, path: rows.to_parquet(path, index=False),
    ".csv": lambda rows, path: rows.to_csv(path, index=False),
    ".jsonl": lambda rows, path: rows.to_json(path, orient="records", lines=True, force_ascii=False),
}


def write_prompts(path: Path, prompts: pd.DataFrame, system: str, tag: str) -> None:
    """Write what is to be answered, a row for each response, as Parquet, CSV or JSONL by the file's suffix.

    Columns: prompt_id; repeat, which of the equal messages it is, from 1 on; prompt, the user's message with persona
    and control tag as it is to be sent; system, the system message, "" for none; and those that prompts have, and
    control_tag.

    Raises:
        InputError: the file is there already, its suffix is another, or it cannot be written.
    """
    if path.suffix not in WRITERS:
        raise InputError(f"write_prompts: {path}: {path.suffix!r} is no format for prompts; give {_suffixes()}.")
    if path.exists():
        raise InputError(f"write_prompts: {path} is there already, and may hold responses; give another file.")
    sent = [f"{persona}\n{text}{tag}" if persona else f"{text}{tag}" for persona, text in _pairs(prompts)]
    repeat = [n + 1 for n in cumcount(sent)]
    first = {PROMPT_ID: prompts[PROMPT_ID], REPEAT: repeat, PROMPT: sent, SYSTEM: system}
    rows = prompts.drop(columns=[PROMPT_ID]).assign(**{CONTROL_TAG: tag})
    with atomic_write(path) as temporary:
        WRITERS[path.suffix](pd.DataFrame(first).join(rows), temporary)


def _pairs(prompts: pd.DataFrame) -> Any:
    return zip(prompts[PERSONA], prompts[TEXT], strict=True)


def _suffixes() -> str:
    return f"a file that ends in {', '.join(WRITERS)}"


def read_responses(path: Path) -> dict[str, list]:
    """Return the columns of a file of responses; one that is null is "", no answer.

    It has the column response and either prompt_id, of the prompts that were written for it, or its own prompts: text
    and descriptor, better template and axis as well, and persona if there is one.

    Raises:
        InputError: the file cannot be read, columns are missing, or a response is no text.
    """
    columns = read_columns(path, "responses")
    require_columns(
        list(columns), [RESPONSE, *([] if PROMPT_ID in columns else [TEXT, DESCRIPTOR])], f"responses: {path}"
    )
    for row, value in enumerate(columns[RESPONSE], start=1):
        if value is not None and not isinstance(value, str):
            raise InputError(f"responses: {path}: column {RESPONSE}, row {row} is {value!r}; write text, or null.")
    columns[RESPONSE] = [value or "" for value in columns[RESPONSE]]
    if PROMPT_ID not in columns:
        n = len(columns[RESPONSE])
        columns = {TEMPLATE: [UNSPECIFIED] * n, AXIS: [UNSPECIFIED] * n, **columns}
        columns = {name: values for name, values in columns.items() if name != REPEATS}
        check_texts(columns, path)
    return columns


def prompts_from_responses(columns: Mapping[str, list], path: Path) -> Dataset:
    """Return the prompts of a file of responses that brings them, with the column response.

    Sorted by what their ids are made of, so that two files of answers to the same prompts are in the same order.

    Raises:
        InputError: a column holds values of several kinds.
    """
    keys = [columns[name] for name in (TEMPLATE, AXIS, DESCRIPTOR, TEXT)]
    order = sorted(range(len(keys[0])), key=lambda row: [key[row] for key in keys])
    return build_prompts({name: [values[row] for row in order] for name, values in columns.items()}, path)


def match_responses(columns: Mapping[str, list], prompt_ids: Sequence[str], path: Path) -> list[str]:
    """Return the response to each prompt id, in their order.

    Raises:
        InputError: ids without a row, with two rows or more, or that are none of the prompts', all counted at once.
    """
    given, wanted = Counter(map(str, columns[PROMPT_ID])), set(prompt_ids)
    wrong = {
        "without a row": [one for one in prompt_ids if one not in given],
        "with several rows": [one for one in given if given[one] > 1],
        "unknown": [one for one in given if one not in wanted],
    }
    told = [f"{len(ids):,} {how} ({_named(ids)})" for how, ids in wrong.items() if ids]
    if told:
        raise InputError(
            f"responses: {path} does not answer each of {len(prompt_ids):,} prompts once: of its {PROMPT_ID}s "
            f"{'; '.join(told)}. Write an empty response where none came, and measure with the settings (prompts, "
            "seed, side) that the prompts were written with."
        )
    found = dict(zip(map(str, columns[PROMPT_ID]), columns[RESPONSE], strict=True))
    return [found[one] for one in prompt_ids]


def resolve_control_tag(columns: Mapping[str, list], told: str | None, path: Path) -> str:
    """Return the control tag that responses were given under: the file's, else the one that is told, else none.

    Raises:
        InputError: the file has several, or another than the one that is told.
    """
    tags = {value or "" for value in columns.get(CONTROL_TAG, ())} or {told or ""}
    if len(tags) > 1:
        named = ", ".join(map(repr, sorted(tags)))
        raise InputError(f"responses: {path}: {CONTROL_TAG} is {named}; measure the responses under each apart.")
    (tag,) = tags
    if told is not None and tag != told:
        raise InputError(f"control_tag: {told!r}, and in {path} it is {tag!r}; leave it out here, or mend the file.")
    return tag


def _named(ids: Sequence[str]) -> str:
    return ", ".join(ids[:NAMED]) + (", …" if len(ids) > NAMED else "")
