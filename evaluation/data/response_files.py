"""Files of prompts to send to any model, and files of responses from any source, such as an API or logs."""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.data.prompt_files import (
    CONTROL_TAG,
    REPEATS,
    build_prompts,
    check_texts,
    clean_columns,
    name_descriptor,
    read_rows,
)
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.data.response_logs import read_log
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.files import atomic_write
from evenhand.evaluation.score import AXIS, DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.settings import MAX_RESPONSE_CHARACTERS

PROMPT_KEY = (TEMPLATE, AXIS, DESCRIPTOR, TEXT, PERSONA)
UNSPECIFIED = "(unspecified)"  # the default template and axis
PROMPT, SYSTEM, REPEAT = "prompt", "system", "repeat"  # columns of a file of prompts
WRITTEN_ID = re.compile(r"[0-9a-f]{16}(#\d+)?")  # `prompts.compute_prompt_ids`
BATCH = ".jsonl"  # suffix of requests for OpenAI's Batch API (`write_batch`)


def write_prompts(path: Path, prompts: pd.DataFrame, system: str, tag: str) -> None:
    """Write a table of prompts with one row for each response to collect, Parquet or CSV by the suffix.

    The columns are prompt_id; repeat, the number of the row among the rows with the same message, from 1; prompt, the
    complete user message with persona and control tag; system, the system message or ""; the other columns of the
    prompts; and control_tag.

    Raises:
        InputError: the file has another suffix or cannot be written.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise InputError(f"write_prompts: {path}: {path.suffix!r} is no format; give .parquet, .csv or {BATCH}.")
    personas_and_texts = zip(prompts[PERSONA], prompts[TEXT], strict=True)
    messages = [f"{persona}\n{text}{tag}" if persona else f"{text}{tag}" for persona, text in personas_and_texts]
    repeat = (pd.Series(messages).groupby(messages).cumcount() + 1).to_numpy()
    first_columns = {PROMPT_ID: prompts[PROMPT_ID], REPEAT: repeat, PROMPT: messages, SYSTEM: system}
    rest = prompts.drop(columns=[PROMPT_ID]).assign(**{CONTROL_TAG: tag})
    rows = pd.DataFrame(first_columns).join(rest)
    with atomic_write(path) as temporary:
        if path.suffix == ".csv":
            rows.to_csv(temporary, index=False)
        else:
            rows.to_parquet(temporary, index=False)


def write_batch(path: Path, prompt_ids: Sequence[str], bodies: Sequence[Mapping[str, Any]], url: str) -> None:
    """Write requests as input of OpenAI's Batch API: one JSON object per line, with the prompt id as `custom_id`.

    Source: platform.openai.com/docs/api-reference/batch/request-input. vLLM (`vllm run-batch`) reads the same format.

    `bodies` are the bodies of the requests, and `url` is the path of the endpoint, such as "/v1/chat/completions".
    """
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for prompt_id, body in zip(prompt_ids, bodies, strict=True):
            request = {"custom_id": prompt_id, "method": "POST", "url": url, "body": body}
            file.write(json.dumps(request, ensure_ascii=False) + "\n")


def has_own_prompts(columns: Mapping[str, list], descriptor_column: str | None) -> bool:
    """Return whether a file of responses has prompts of its own, although it has a column prompt_id of another tool.

    Files of `write_prompts` have the columns prompt and repeat, and by default ids of 16 hexadecimal digits.
    """
    if TEXT not in columns or not {DESCRIPTOR, descriptor_column}.intersection(columns):
        return False
    if PROMPT in columns and REPEAT in columns:
        return False
    return not all(isinstance(value, str) and WRITTEN_ID.fullmatch(value) for value in columns[PROMPT_ID])


def read_responses(path: Path, descriptor_column: str | None = None, has_ids: bool = False) -> dict[str, list]:
    """Return the columns of a file of responses, name → values; null responses become "".

    With `has_ids`, a column prompt_id is kept in any case; otherwise it is left out if the prompts are in the file, and
    it is of another tool (`has_own_prompts`).

    The file is a table or a log of another tool (`response_logs`). It has the column response and either prompt_id,
    from a file of `write_prompts`, or the columns of prompts: text, descriptor, and optionally template, axis and
    persona.

    Raises:
        InputError: the file does not exist or cannot be read, columns are missing, or a response is not text.
    """
    if not path.exists():
        raise InputError(f"responses: {path} does not exist.")
    columns = read_log(path, descriptor_column) or read_rows(path, "responses", descriptor_column)
    if PROMPT_ID in columns and not has_ids and has_own_prompts(columns, descriptor_column):
        del columns[PROMPT_ID]
    if PROMPT_ID not in columns or descriptor_column in columns:  # with ids, the prompts have the descriptors
        columns = name_descriptor(columns, path, descriptor_column)
    require_columns(
        list(columns), [RESPONSE, *([] if PROMPT_ID in columns else [TEXT, DESCRIPTOR])], f"responses: {path}"
    )
    for row, value in enumerate(columns[RESPONSE], start=1):
        if value is not None and not isinstance(value, str):
            raise InputError(
                f"responses: {path}: column {RESPONSE}, row {row} is {format_value(value)}; write text, or null."
            )
        if value is not None and len(value) > MAX_RESPONSE_CHARACTERS:
            raise InputError(
                f"responses: {path}: row {row} has {len(value):,} characters; give {MAX_RESPONSE_CHARACTERS:,} at most."
            )
    columns[RESPONSE] = [value or "" for value in columns[RESPONSE]]
    if PROMPT_ID not in columns:
        n = len(columns[RESPONSE])
        columns = {TEMPLATE: [UNSPECIFIED] * n, AXIS: [UNSPECIFIED] * n, **columns}
        columns.pop(REPEATS, None)
        columns = clean_columns(columns, path)
        check_texts(columns, path)
    return columns


def drop_repeated_rows(columns: Mapping[str, list]) -> dict[str, list]:
    """Return the columns of a file without rows that have the prompt and the nonempty response of an earlier row."""
    table = pd.DataFrame({name: columns[name] for name in (*PROMPT_KEY, RESPONSE) if name in columns})
    kept = (~table.duplicated() | (table[RESPONSE].str.strip() == "")).tolist()
    return {name: list(compress(values, kept)) for name, values in columns.items()}


def is_repeated(table: pd.DataFrame) -> pd.Series:
    """Return whether each row has the prompt and the response of an earlier row, (n,) bool.

    Case, punctuation and spaces do not count. An empty response repeats nothing.

    Args:
        table: a row for each response, with the columns of the prompts and `response`.

    >>> is_repeated(pd.DataFrame({"text": ["a", "a", "b"], "response": ["Yes!", "yes", "yes"]})).tolist()
    [False, True, False]
    """
    prompt = table.groupby([name for name in PROMPT_KEY if name in table], dropna=False).ngroup()
    words = table[RESPONSE].str.casefold().str.replace(r"[\W_]+", " ", regex=True).str.strip()
    pairs = pd.DataFrame({"prompt": prompt.to_numpy(), "response": words.to_numpy()})
    return pairs.duplicated() & (pairs["response"] != "")


def prompts_from_responses(columns: Mapping[str, list], path: Path) -> pd.DataFrame:
    """Return the prompts in the columns of a file of responses, together with the responses.

    Rows are sorted by template, axis, descriptor, text and persona, so that two files with the same prompts have the
    same order.
    """
    keys = [columns[name] for name in (TEMPLATE, AXIS, DESCRIPTOR, TEXT)]
    keys += [[persona or "" for persona in columns[PERSONA]]] if PERSONA in columns else []
    order = sorted(range(len(keys[0])), key=lambda row: [key[row] for key in keys])
    return build_prompts({name: [values[row] for row in order] for name, values in columns.items()}, path)


def match_responses(columns: Mapping[str, list], prompt_ids: Sequence[str], path: Path) -> list[str]:
    """Return the response to each prompt id, in the order of `prompt_ids`."""
    counts, wanted = Counter(map(str, columns[PROMPT_ID])), {*prompt_ids}
    wrong_ids = {
        "without a row": wanted - counts.keys(),
        "with several rows": {prompt_id for prompt_id, count in counts.items() if count > 1},
        "unknown": counts.keys() - wanted,
    }
    if problems := [f"{len(ids):,} {problem} ({min(ids)} …)" for problem, ids in wrong_ids.items() if ids]:
        raise InputError(
            f"responses: {path} needs one row for each of {len(prompt_ids):,} prompts, but {PROMPT_ID}s are "
            f"{', '.join(problems)}. Add an empty response for each missing one, and measure with the settings "
            "(prompts, seed, split) of the run that wrote the prompts."
        )
    responses = dict(zip(map(str, columns[PROMPT_ID]), columns[RESPONSE], strict=True))
    return [responses[prompt_id] for prompt_id in prompt_ids]


def resolve_control_tag(columns: Mapping[str, list], setting: str | None, path: Path) -> str:
    """Return the control tag of a file of responses: from the column control_tag, else from the settings, else ""."""
    tags = {value or "" for value in columns.get(CONTROL_TAG, ())} or {setting or ""}
    if len(tags) > 1 or (setting is not None and {setting} != tags):
        listed = ", ".join(map(repr, sorted(tags)))
        raise InputError(
            f"control_tag: {path} has {listed}, the settings {setting!r}; measure the responses to each tag in another "
            "run, with this tag in its settings."
        )
    return tags.pop()
