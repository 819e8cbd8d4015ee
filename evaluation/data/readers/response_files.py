"""Files of prompts to send to any model, and files of responses from any source, such as an API or logs."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import lru_cache
from itertools import compress
from pathlib import Path

import pandas as pd
import pyarrow as pa

from evenhand.evaluation import columns
from evenhand.evaluation.csv_files import csv_text
from evenhand.evaluation.data.language.mentions import FORMS, NEUTRAL
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.data.readers.answers import NO_CONTENT, Answer, error_reason, measured_answer
from evenhand.evaluation.data.readers.cells import NO_CLASS, is_blank, name_text, read_cells
from evenhand.evaluation.data.readers.chats import (
    STOPS,
    answer_at,
    answer_in,
    exchange_in,
    is_chat,
    parse_chat,
    parse_json,
    prompt_in,
    value_at,
)
from evenhand.evaluation.data.readers.periods import in_period
from evenhand.evaluation.data.readers.prompt_files import (
    CONTROL_TAG,
    REPEATS,
    build_prompts,
    check_texts,
    clean_columns,
    name_descriptor,
    read_rows,
)
from evenhand.evaluation.data.readers.response_logs import (
    UNANSWERED,
    is_inspect_log,
    is_scalar,
    parse_log,
    read_inspect,
)
from evenhand.evaluation.data.readers.table_files import arrow_columns, columns_of, nan_as_none
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.files import atomic_write, file_version, json_sha256, sha256_of, write_text
from evenhand.evaluation.model_settings import MAX_RESPONSE_CHARACTERS
from evenhand.evaluation.tables import table_rows

PROMPT_KEY = (columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR, columns.TEXT, columns.PERSONA)
UNSPECIFIED = "(unspecified)"  # the default template and axis
# columns of a file of prompts
PROMPT = "prompt"
SYSTEM = "system"
REPEAT = "repeat"
ERROR = "error"  # column: why there is no response
REASONING = ("reasoning", "reasoning_content")  # columns: reasoning in a field of its own
# Columns of a file that are of its responses, and of no prompt.
RESPONSE_COLUMNS = (
    columns.RESPONSE,
    CONTROL_TAG,
    columns.LEFT_OUT,
    columns.CUT,
    columns.REASONED,
    UNANSWERED,
    *STOPS,
    *REASONING,
)
WITHOUT_IDS = (columns.RESPONSE, columns.TEXT, columns.DESCRIPTOR)  # what a file without ids of our prompts must have
WRITTEN_ID = re.compile(r"[0-9a-f]{16}(#\d+)?")  # `prompts.compute_prompt_ids`
BATCH = ".jsonl"  # suffix of requests for OpenAI's Batch API (`write_batch`)


@dataclass(frozen=True)
class ResponseFile:
    """A file of responses and how it is read; it is parsed again only if it has changed.

    Attributes:
        path: the path of the file.
        descriptor_column: the column with the descriptors; None: `descriptor`.
        named: our column → its name in the file, or a dotted path into nested values.
        reasoning: the start and end of the model's reasoning, if they are not known ones (`language/reasoning`).
        once: whether rows that repeat prompt and response are dropped, if the prompts are in the file.
        has_ids: whether a column prompt_id is of the configured prompts in any case (`has_own_prompts`).
        unknown: the descriptor of rows without one, whose template and axis may be missing, too; None: such a row is an
            error.
        since: the first day of the responses; None: all.
        before: the day before which the responses are; None: all.
        frame: the columns of responses in memory (`responses_in_frame`), which `path` then only names; None: a file.
    """

    path: Path
    descriptor_column: str | None = None
    named: Mapping[str, str] = field(default_factory=dict, hash=False)
    reasoning: tuple[str, ...] = ()
    once: bool = False
    has_ids: bool = False
    unknown: str | None = None
    since: date | None = None
    before: date | None = None
    frame: dict[str, list] | None = field(default=None, compare=False)

    @property
    def columns(self) -> dict[str, list]:
        """The columns of the file."""
        if self.frame is not None:
            return self.frame
        return _read(self, file_version(self.path) if self.path.exists() else None)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file, or of the columns in memory."""
        return sha256_of(self.path) if self.frame is None else json_sha256(self.frame)

    @property
    def has_prompts(self) -> bool:
        """Whether the prompts are in the file. Otherwise its ids lead to the prompts of `--write_prompts`."""
        return columns.PROMPT_ID not in self.columns

    def prompts(self) -> pd.DataFrame:
        """Return the prompts in the file."""
        return prompts_from_responses(self.columns, self.path).drop(columns=list(RESPONSE_COLUMNS), errors="ignore")


@lru_cache(maxsize=1)
def _read(file: ResponseFile, version: tuple[int, ...] | None) -> dict[str, list]:
    return read_responses(file)


def write_prompt_table(path: Path, prompts: pd.DataFrame, system: str, tag: str) -> None:
    """Write a table of prompts with one row for each response to collect, Parquet or CSV by the suffix.

    The columns are prompt_id; repeat, the number of the row among the rows with the same message, from 1; prompt, the
    complete user message with persona and control tag; system, the system message or ""; the other columns of the
    prompts; and control_tag.

    Raises:
        InputError: the file has another suffix or cannot be written, or a spreadsheet would run a text of a CSV file.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise InputError("write_prompts", f"{path}: {path.suffix!r} is no format; give .parquet, .csv or {BATCH}.")
    personas_and_texts = zip(prompts[columns.PERSONA], prompts[columns.TEXT], strict=True)
    messages = [f"{persona}\n{text}{tag}" if persona else f"{text}{tag}" for persona, text in personas_and_texts]
    repeat = (pd.Series(messages).groupby(messages).cumcount() + 1).to_numpy()
    first_columns = {columns.PROMPT_ID: prompts[columns.PROMPT_ID], REPEAT: repeat, PROMPT: messages, SYSTEM: system}
    rest = prompts.drop(columns=[columns.PROMPT_ID])
    rest[CONTROL_TAG] = tag
    rows = pd.DataFrame(first_columns).join(rest)
    if path.suffix == ".csv":
        try:
            content = csv_text(rows.columns.tolist(), table_rows(rows), is_exact=True)
        except ValueError as error:
            raise InputError("write_prompts", f"{path}: {error}; give a .parquet or {BATCH} file.") from None
        write_text(path, content)
        return
    with atomic_write(path) as temporary:
        rows.to_parquet(temporary, index=False)


def write_batch(path: Path, prompt_ids: Sequence[str], bodies: Sequence[Mapping[str, object]], url: str) -> None:
    """Write requests as input of OpenAI's Batch API: one JSON object per line, with the prompt id as `custom_id`.

    Source: platform.openai.com/docs/api-reference/batch/request-input. vLLM (`vllm run-batch`) reads the same format.

    `bodies` are the bodies of the requests, and `url` is the path of the endpoint, such as "/v1/chat/completions".
    """
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for prompt_id, body in zip(prompt_ids, bodies, strict=True):
            request = {"custom_id": prompt_id, "method": "POST", "url": url, "body": body}
            file.write(json.dumps(request, ensure_ascii=False) + "\n")


def has_own_prompts(table: Mapping[str, list], descriptor_column: str | None) -> bool:
    """Return whether a file of responses contains its prompts, although it has a column prompt_id of another tool.

    Files of `write_prompt_table` have the columns prompt and repeat, and by default ids of 16 hexadecimal digits.
    """
    if columns.TEXT not in table or not {columns.DESCRIPTOR, descriptor_column}.intersection(table):
        return False
    if PROMPT in table and REPEAT in table:
        return False
    return not all(isinstance(value, str) and WRITTEN_ID.fullmatch(value) for value in table[columns.PROMPT_ID])


def read_responses(file: ResponseFile) -> dict[str, list]:
    """Return the columns of a file of responses, name → values; null responses become "".

    A column prompt_id is left out if the prompts are in the file, and it is of another tool (`has_own_prompts`).
    Reasoning is no part of a response; the column reasoned is true where there was some. Cells of other columns are
    read by `cells.read_cells`.

    The file is a table or a log of another tool (`response_logs`). It has the column response and either prompt_id,
    from a file of `write_prompt_table`, or the columns of prompts: text, descriptor, and optionally template, axis and
    persona. A response or a text may be a chat: then it is the last message of the assistant, or of the user.

    Raises:
        InputError: the file does not exist or cannot be read, columns are missing, a response is not text, or none is
            in the period.
    """
    path = file.path
    if not path.exists():
        raise InputError("responses", f"{path} does not exist.")
    if is_inspect_log(path):
        rows = read_inspect(path, file.descriptor_column)
        table = rows | _named_columns(_rows_of(rows), file)
    else:
        rows = read_rows(path, "responses", file.descriptor_column, file.named.values())
        table = _parsed_columns(rows, file)
    header = list(rows)
    table = in_period(_checked(table, header, file), path, file.since, file.before, header, file.named)
    return drop_repeated_rows(table) if file.once and columns.PROMPT_ID not in table else table


def responses_in_frame(frame: pd.DataFrame, path: Path, *, once: bool = False) -> dict[str, list]:
    """Return the columns of a data frame as `read_responses` returns those of a file.

    Args:
        path: what messages call the frame.
        once: whether rows that repeat prompt and response are dropped.

    Raises:
        InputError: as `read_responses`; or a column has values of several types, or occurs twice.
    """
    try:
        columns_of_frame = arrow_columns(pa.Table.from_pandas(frame, preserve_index=False))
    except (ValueError, TypeError, pa.ArrowException) as error:
        problem = " ".join(str(error).split())
        raise InputError(path, f"{problem}; write text in one column of each name.") from None
    table = {name: nan_as_none(values) for name, values in columns_of_frame.items()}
    file = ResponseFile(path)
    table = _checked(_parsed_columns(table, file), list(table), file)
    return drop_repeated_rows(table) if once else table


def _checked(table: dict[str, list], header: Sequence[str], file: ResponseFile) -> dict[str, list]:
    """Return the columns of a table as `read_responses` returns those of a file.

    `header` has the columns of the file, by which messages call them.
    """
    path = file.path
    descriptor_column = file.descriptor_column
    named = dict(file.named)
    if descriptor_column is not None:
        named[columns.DESCRIPTOR] = descriptor_column
    if not table:
        raise InputError("responses", f"{path} is empty; give a file with a row for each answer.")
    if columns.PROMPT_ID in table and not file.has_ids and has_own_prompts(table, descriptor_column):
        del table[columns.PROMPT_ID]
    if columns.PROMPT_ID not in table or descriptor_column in table:  # with ids, the prompts have the descriptors
        table = name_descriptor(table, path, descriptor_column)
    if file.unknown is not None:
        table[columns.DESCRIPTOR] = _named(table, columns.DESCRIPTOR, file.unknown)
        kinds = [name for name in (columns.TEMPLATE, columns.AXIS) if name in table]
        table |= {name: _as_texts(_named(table, name, UNSPECIFIED)) for name in kinds}
    required = (columns.RESPONSE,) if columns.PROMPT_ID in table else WITHOUT_IDS
    try:
        require_columns(list(table), required, f"responses: {path}", header)
    except InputError as error:
        flag = spelled("responses.columns", "{text: …, response: …, descriptor: …}")
        fix = f"rename them, or name them by {flag}." if flag else "rename them."
        raise InputError(error.field, f"{error.problem[:-1]}; {fix}") from None
    if columns.TEXT in table:
        table |= _paired_chats(table)
    answers = _answers(table, file)
    other = table.keys() - {*PROMPT_KEY, *RESPONSE_COLUMNS, columns.PROMPT_ID, columns.BUCKET, FORMS, NEUTRAL, SYSTEM}
    table |= {name: read_cells(table[name]) for name in other}
    if columns.PROMPT_ID in table:
        table.pop(columns.CUT, None)
    else:
        n = len(table[columns.RESPONSE])
        table = {columns.TEMPLATE: [UNSPECIFIED] * n, columns.AXIS: [UNSPECIFIED] * n, **table}
        table.pop(REPEATS, None)
        table = clean_columns(table, path, named)
        check_texts(table, path, named)
    return table | answers


def _named(table: Mapping[str, list], name: str, unknown: str) -> list[object]:
    """Return the values of a column of names; `unknown` where there is none. A word such as "none" may be a name."""
    given = table.get(name, [None] * len(table[next(iter(table))]))
    return [unknown if value is None or str(value).strip().casefold() in ("", *NO_CLASS) else value for value in given]


def _parsed_columns(table: dict[str, list], file: ResponseFile) -> dict[str, list]:
    """Return the columns of a table, or, if its rows are the log of another tool, the columns of that log."""
    rows = _rows_of(table)
    try:
        found = None if file.named.keys() >= {columns.TEXT, columns.RESPONSE} else parse_log(rows)
    except ValueError as error:
        raise InputError("responses", f"{file.path} cannot be read as a log: {error}.") from None
    if found is None and not file.named:
        return table
    parsed = rows if found is None else found
    names = columns_of([{name: value for name, value in row.items() if _fits_cell(name, value)} for row in parsed])
    names = {name: values if name == columns.RESPONSE else _one_type(values) for name, values in names.items()}
    return names | _named_columns(rows if len(rows) == len(parsed) else parsed, file)


def _rows_of(columns: Mapping[str, list]) -> list[dict[str, object]]:
    """Return the rows of columns, name → value."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _fits_cell(name: str, value: object) -> bool:
    return name in (columns.TEXT, columns.RESPONSE) or is_scalar(value)


def _one_type(values: list) -> list:
    """Return the values of a column, as text if they have several types."""
    kinds = {type(value) for value in values if value is not None}
    return values if len(kinds) < 2 else _as_texts(values)


def _as_texts(values: Sequence[object]) -> list[str | None]:
    """Return the values of a column as texts; None stays."""
    return [None if value is None else name_text(value) for value in values]


def _named_columns(rows: Sequence[Mapping[str, object]], file: ResponseFile) -> dict[str, list]:
    """Return the columns of `file.named`, found by name or dotted path; InputError if no row has one."""
    table = {}
    for name, place in file.named.items():
        values = [value_at(row, place) for row in rows]
        if all(value is None for value in values):
            known = ", ".join(dict.fromkeys(key for row in rows[:100] for key in _places(row)))
            raise InputError("responses.columns", f"{file.path} has no {place!r} for {name}; give one of {known}.")
        if name == columns.RESPONSE:
            values = [answer_at(row, place) for row in rows]
            table[columns.LEFT_OUT] = [None] * len(rows)
        if name not in (columns.TEXT, columns.RESPONSE):
            values = _one_type([value if is_scalar(value) else json.dumps(value) for value in values])
        if name in (columns.DESCRIPTOR, columns.TEMPLATE, columns.AXIS, columns.PROMPT_ID):
            values = _as_texts(values)
        table[name] = values
    return table


def _places(row: Mapping[str, object], prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of the values in a row, to a depth of three names."""
    for key, value in row.items():
        value = parse_json(value)
        if isinstance(value, Mapping) and prefix.count(".") < 2:
            yield from _places(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _paired_chats(table: Mapping[str, list]) -> dict[str, list]:
    """Return the columns text and response, in which a chat that is both is its last message with an answer.

    If a text is a chat with turns before its last message, these are in the column persona.
    """
    texts = []
    responses = []
    personas = list(table.get(columns.PERSONA, [""] * len(table[columns.TEXT])))
    has_turns = False
    for row, (text, response) in enumerate(zip(table[columns.TEXT], table[columns.RESPONSE], strict=True)):
        chat = parse_chat(text)
        turns = ""
        if is_chat(chat) and chat == parse_chat(response):
            found = exchange_in(chat)
            text, response, turns = found.text, found.answer, found.turns
        elif not isinstance(text, str) or chat is not text:
            found_text, turns = prompt_in(chat)
            text = text if found_text is None else found_text  # what is no text is named by an error
        texts.append(text)
        responses.append(response)
        personas[row] = turns or personas[row]
        has_turns = has_turns or turns != ""
    return {columns.TEXT: texts, columns.RESPONSE: responses, **({columns.PERSONA: personas} if has_turns else {})}


def _answers(table: Mapping[str, list], file: ResponseFile) -> dict[str, list]:
    """Return the columns response, reasoned, left_out and, if a source says why its answers ended, cut.

    InputError if a response is not a text, an answer with a text, or null.
    """
    n = len(table[columns.RESPONSE])
    stops = _first_given(table, STOPS, n)
    thoughts = _first_given(table, REASONING, n)
    errors = _first_given(table, [ERROR], n)
    answers = []
    rows = zip(table[columns.RESPONSE], stops, thoughts, errors, strict=True)
    for row, (value, stop, thought, error) in enumerate(rows, start=1):
        answer = _read_answer(value, row, file)
        is_body = isinstance(parse_json(error), Mapping)  # of a provider; other texts may be remarks on an answer
        if not answer.error and (is_body or not (answer.text or "").strip()):
            answer = replace(answer, error=error_reason(parse_json(error)))
        stop = answer.stop or ("" if stop is None else str(stop))
        reasoning = answer.reasoning or (str(thought) if thought else "")
        answers.append(replace(answer, stop=stop, reasoning=reasoning))
    measured = [measured_answer(answer, file.reasoning) for answer in answers]
    reasons = [answer.reason for answer in measured]
    if columns.LEFT_OUT in table:  # a log, in which an answer without a text is missing
        given = table[columns.LEFT_OUT]
        missing = [None if answer.text else NO_CONTENT for answer in measured]
        reasons = [answer.reason or own or none for answer, own, none in zip(measured, given, missing, strict=True)]
    found: dict[str, list] = {
        columns.RESPONSE: [answer.text for answer in measured],
        columns.REASONED: [answer.had_reasoning for answer in measured],
    }
    if any(answer.stop for answer in answers):
        found[columns.CUT] = [answer.is_cut for answer in measured]
    if any(reasons) or columns.LEFT_OUT in table:
        found[columns.LEFT_OUT] = reasons
    return found


def _first_given(columns: Mapping[str, list], names: Sequence[str], n: int) -> list[object]:
    """Return, for each of n rows, the first value in the columns of these names that is not blank; None without one.

    A table of several providers has several such columns, each with the values of one provider's rows.
    """
    found: list[object] = [None] * n
    for name in names:
        for row, value in enumerate(columns.get(name, ())):
            if found[row] is None and not is_blank(value):
                found[row] = value
    return found


def _read_answer(value: object, row: int, file: ResponseFile) -> Answer:
    """Return the answer in a cell of the column of responses; InputError if it is no text, or too long."""
    answer = answer_in(parse_chat(value))
    if answer is None:
        column = file.named.get(columns.RESPONSE, columns.RESPONSE)
        raise InputError(
            "responses", f"{file.path}: column {column}, row {row} is {format_value(value)}; write text or null."
        )
    n_characters = len(answer.text or "")
    if n_characters > MAX_RESPONSE_CHARACTERS:
        raise InputError(
            "responses",
            f"{file.path}: row {row} has {n_characters:,} characters; give {MAX_RESPONSE_CHARACTERS:,} at most.",
        )
    return answer


def drop_repeated_rows(names: Mapping[str, list]) -> dict[str, list]:
    """Return the columns of a file without repeated rows (`is_repeated`)."""
    table = pd.DataFrame({name: names[name] for name in (*PROMPT_KEY, columns.RESPONSE) if name in names})
    kept = (~is_repeated(table)).tolist()
    return {name: list(compress(values, kept)) for name, values in names.items()}


def is_repeated(table: pd.DataFrame) -> pd.Series:
    """Return whether each row has the prompt and the response of an earlier row, (n,) bool.

    Case, punctuation and spaces do not count. An empty response repeats nothing.

    Args:
        table: a row for each response, with the columns of the prompts and `response`.

    >>> is_repeated(pd.DataFrame({"text": ["a", "a", "b"], "response": ["Yes!", "yes", "yes"]})).tolist()
    [False, True, False]
    """
    prompt = table.groupby([name for name in PROMPT_KEY if name in table], dropna=False).ngroup()
    words = table[columns.RESPONSE].str.casefold().str.replace(r"[\W_]+", " ", regex=True).str.strip()
    pairs = pd.DataFrame({"prompt": prompt.to_numpy(), "response": words.to_numpy()})
    return pairs.duplicated() & (pairs["response"] != "")


def prompts_from_responses(table: Mapping[str, list], path: Path) -> pd.DataFrame:
    """Return the prompts in the columns of a file of responses, together with the responses.

    Rows are sorted by template, axis, descriptor, text and persona, so that two files with the same prompts have the
    same order.
    """
    keys = [table[name] for name in PROMPT_KEY if name in table]
    order = sorted(range(len(table[columns.TEXT])), key=lambda row: [key[row] or "" for key in keys])
    return build_prompts({name: [values[row] for row in order] for name, values in table.items()}, path)


def with_repeats(prompts: pd.DataFrame, prompt_ids: Sequence[object]) -> pd.DataFrame:
    """Return the prompts and, for each id of a repeat, the prompt again: "a#2" is the second response to "a"."""
    known = {prompt_id: row for row, prompt_id in enumerate(prompts[columns.PROMPT_ID])}
    repeats = {}
    for prompt_id in map(name_text, prompt_ids):
        name, _, number = prompt_id.rpartition("#")
        if prompt_id not in known and name in known and number.isdigit():
            repeats[prompt_id] = known[name]
    if not repeats:
        return prompts
    added = prompts.iloc[list(repeats.values())].copy()
    added[columns.PROMPT_ID] = list(repeats)
    return pd.concat([prompts, added], ignore_index=True)


def match_responses(table: Mapping[str, list], prompt_ids: Sequence[str], path: Path) -> list[str]:
    """Return the response to each prompt id, in the order of `prompt_ids`."""
    ids = list(map(name_text, table[columns.PROMPT_ID]))
    counts = Counter(ids)
    wanted = {*prompt_ids}
    wrong_ids = {
        "without a row": wanted - counts.keys(),
        "with several rows": {prompt_id for prompt_id, count in counts.items() if count > 1},
        "unknown": counts.keys() - wanted,
    }
    if problems := [f"{len(ids):,} {problem} ({min(ids)} …)" for problem, ids in wrong_ids.items() if ids]:
        raise InputError(
            "responses",
            f"{path} needs one row for each of {len(prompt_ids):,} prompts; {columns.PROMPT_ID}s: "
            f"{', '.join(problems)}. Add an empty response for each missing one, and measure with the settings "
            "(prompts, seed, split) of the run that wrote the prompts.",
        )
    responses = dict(zip(ids, table[columns.RESPONSE], strict=True))
    return [responses[prompt_id] for prompt_id in prompt_ids]


def resolve_control_tag(columns: Mapping[str, list], setting: str | None, path: Path) -> str:
    """Return the control tag of a file of responses: from the column control_tag, else from the settings, else ""."""
    tags = {value or "" for value in columns.get(CONTROL_TAG, ())} or {setting or ""}
    if len(tags) > 1 or (setting is not None and {setting} != tags):
        listed = ", ".join(map(repr, sorted(tags)))
        raise InputError(
            "control_tag",
            f"{path} has {listed}, the settings {setting!r}; measure the responses to each tag in another "
            "run, with this tag in its settings.",
        )
    return tags.pop()
