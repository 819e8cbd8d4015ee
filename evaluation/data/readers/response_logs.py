"""Readers of other tools' logs of responses: batches, traces, chats, lm-evaluation-harness and inspect_ai.

A reader yields rows with the columns of a file of responses (`response_files.read_responses`), and with the column
`left_out`: the reason why a response is empty, or None. Sources of the formats:

- OpenAI Batch: platform.openai.com/docs/api-reference/batch/request-output. vLLM's `run-batch` writes the same, but its
  `error` may be a text. The bodies are those of `/v1/chat/completions`, `/v1/completions` or `/v1/responses`.
- Anthropic Message Batches: docs.anthropic.com/en/api/retrieving-message-batch-results.
- lm-evaluation-harness: `EvaluationTracker.save_results_samples` and `evaluate` of version 0.4.13 (`--log_samples`).
- langfuse: langfuse.com/docs/api-and-data-platform/features/export-from-ui, traces and observations in CSV or JSON.
- inspect_ai: inspect.aisi.org.uk/eval-logs.html, read by its function `read_eval_log`; tried with version 0.3.285.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.evaluation import columns
from evenhand.evaluation.data.readers.answers import FILTERED, NO_ANSWER, Answer, error_reason, short_reason
from evenhand.evaluation.data.readers.chats import (
    CHATS,
    KNOWN_ROLES,
    answer_in,
    exchange_in,
    is_chat,
    parse_chat,
    parse_json,
    prompt_in,
    role_of,
    value_at,
)
from evenhand.evaluation.data.readers.table_files import columns_of, decode_text
from evenhand.evaluation.errors import InputError, format_value, require_extra

if TYPE_CHECKING:  # of the extra `inspect`
    from inspect_ai.log import EvalLog, EvalSample

log = logging.getLogger("evenhand")

UNANSWERED = "unanswered_end"  # column: whether a chat ends with a message of the user that has no answer
INSPECT_SUFFIX = ".eval"

LogRow = dict[str, object]


def parse_log(rows: Sequence[LogRow]) -> list[LogRow] | None:
    """Return the rows of a log of another tool, known by the keys of its rows; None for a table of responses.

    Raises:
        ValueError: a row of a log has another content than the log's format.
    """
    keys = set().union(*rows) if rows else set()
    if keys >= {columns.TEXT, columns.RESPONSE}:
        return None
    parse = next((parse for needed, parse in PARSERS if needed <= keys), None)
    chat = next((name for name in CHATS if name in keys), None)
    if parse is None and chat is not None and columns.RESPONSE not in keys:
        parse = _chat_rows
    return None if parse is None else list(parse(rows))


def _batch_rows(rows: Sequence[LogRow]) -> Iterator[LogRow]:
    """Yield prompt_id, response and left_out of each line of a batch's output or error file."""
    for number, row in enumerate(rows, start=1):
        custom_id = row.get("custom_id")
        if not isinstance(custom_id, str):
            raise ValueError(f"request {number}: custom_id is {format_value(custom_id)}; write the prompt_id")
        answer = _anthropic_answer(row) if "result" in row else _openai_answer(row)
        if answer is None:
            raise ValueError(
                f"request {number}: its answer is {format_value(row.get('response', row.get('result')))}, without one "
                "text; ask /v1/chat/completions, /v1/completions or /v1/responses with n = 1"
            )
        yield {columns.PROMPT_ID: custom_id} | _response(answer)


def _openai_answer(row: LogRow) -> Answer | None:
    answer = row.get("response")
    error = row.get("error")
    status = answer.get("status_code") if isinstance(answer, dict) else None
    body = answer.get("body") if isinstance(answer, dict) else None
    if status is not None and status != 200:
        is_filter = error_reason(body) == FILTERED
        return Answer(None, error=FILTERED if is_filter else short_reason(f"status {status}"))
    if error or not answer:
        return Answer(None, error=error_reason(error) or "no response")
    return answer_in(body) if isinstance(body, dict) else None


def _anthropic_answer(row: LogRow) -> Answer | None:
    result = row.get("result")
    if not isinstance(result, Mapping):
        return Answer(None, error="no response")
    kind = result.get("type")
    if kind != "succeeded":
        if error_reason(result.get("error")) == FILTERED:
            return Answer(None, error=FILTERED)
        code = value_at(result, "error.error.type") or value_at(result, "error.type")
        return Answer(None, error=short_reason(f"{kind} {code}" if code else str(kind or "no response")))
    return answer_in(result.get("message"))


def _response(answer: Answer | None) -> LogRow:
    """Return the columns response and left_out: a row of a log without a text has a reason (`measured_answer`)."""
    return {columns.RESPONSE: answer or Answer(None), columns.LEFT_OUT: None}


def _harness_rows(rows: Sequence[LogRow]) -> Iterator[LogRow]:
    """Yield the dataset's columns, text, response and left_out for each response in samples of generated text.

    The text of a response is `resps`, before any filter. A task with several filters has a line for each document and
    filter; the lines of the first filter of a document are used, since a file may have several tasks. A document with
    several responses (`repeats`) has a row for each. The prompt of a model behind an API of chats is a list of one text
    of JSON with the messages, of which the turns before the last one are the persona.
    """
    first_filters: dict[str, object] = {}
    for number, row in enumerate(rows, start=1):
        document = row.get("doc")
        request = json.dumps([document, row.get("arguments")], sort_keys=True, default=str)
        if first_filters.setdefault(request, row.get("filter")) != row.get("filter"):
            continue
        resps = row.get("resps")
        texts = resps[0] if isinstance(resps, list) and len(resps) == 1 else None
        prompt = value_at(row, "arguments.gen_args_0.arg_0") or value_at(row, "arguments.0.0")  # the latter: older
        if isinstance(prompt, list) and len(prompt) == 1:
            (prompt,) = prompt
        prompt, turns = prompt_in(parse_chat(prompt)) if isinstance(prompt, str) else (prompt, "")
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"sample {number}: resps is {format_value(resps)}, not the text of one request; log a task with "
                "output_type generate_until"
            )
        if not isinstance(prompt, str):
            arguments = format_value(row.get("arguments"))
            raise ValueError(f"sample {number}: arguments is {arguments}, without the text of a prompt")
        if not isinstance(document, dict):
            raise ValueError(f"sample {number}: doc is {format_value(document)}, not the columns of a document")
        said = {columns.TEXT: _sent_text(prompt, document)} | ({columns.PERSONA: turns} if turns else {})
        for text in texts:
            yield {**document, **said, columns.RESPONSE: text, columns.LEFT_OUT: None}


def _chat_rows(rows: Sequence[LogRow]) -> Iterator[LogRow]:
    """Yield text, persona (the turns before), response and the other columns of each chat: its last answer.

    A chat without a message of the user has no prompt, and no row.
    """
    n_without = 0
    for number, row in enumerate(rows, start=1):
        chat = parse_json(next((row[name] for name in CHATS if row.get(name)), None))
        if not is_chat(chat):
            raise ValueError(f"chat {number} is {format_value(chat)}; write a list of messages with role and content")
        found = exchange_in(chat)
        unknown = dict.fromkeys(role for role in map(role_of, chat) if role not in KNOWN_ROLES)
        if unknown and (found.text is None or found.answer.error == NO_ANSWER):
            raise ValueError(f"chat {number} has messages of {', '.join(unknown)}; write the roles user and assistant")
        if found.text is None:
            n_without += 1
            continue
        end = {UNANSWERED: found.has_unanswered_end}
        yield _exchange(row, CHATS, found.text, found.turns, found.answer) | end
    if n_without == len(rows):
        raise ValueError("no chat has a message of the user")
    if n_without:
        log.warning("responses: %d of %d chats have no message of the user, and are no rows", n_without, len(rows))


def _instruction_rows(rows: Sequence[LogRow]) -> Iterator[LogRow]:
    """Yield text, response and the other columns of instructions with their outputs, as Alpaca and Dolly have them.

    The text is the instruction and what it is about, if that is given, on separate lines.
    """
    for row in rows:
        parts = [row.get(name) for name in ("instruction", "input", "context")]
        text = "\n".join(part for part in parts if isinstance(part, str) and part)
        answer = answer_in(parse_chat(row.get("output", row.get("response"))))
        yield _exchange(row, ("instruction", "input", "context", "output", "response"), text, "", answer)


def _trace_rows(rows: Sequence[LogRow]) -> Iterator[LogRow]:
    """Yield text, persona, response and the other columns of each trace, which has an input and an output."""
    for row in rows:
        text, turns = prompt_in(parse_chat(row.get("input")))
        answer = answer_in(parse_chat(row.get("output")))
        if str(row.get("level")).upper() == "ERROR":  # of langfuse: the call failed
            error = {"code": "level ERROR", "message": row.get("statusMessage", row.get("status_message"))}
            answer = Answer(None, error=error_reason(error))
        yield _exchange(row, ("input", "output"), text, turns, answer)


def _completion_rows(rows: Sequence[LogRow]) -> Iterator[LogRow]:
    """Yield text, persona, response and the other columns of rows with a prompt and a completion, as TRL has them."""
    for row in rows:
        text, turns = prompt_in(parse_chat(row["prompt"]))
        yield _exchange(row, ("prompt", "completion"), text, turns, answer_in(parse_chat(row["completion"])))


def _exchange(row: LogRow, drop: Sequence[str], text: str | None, turns: str, answer: Answer | None) -> LogRow:
    """Return a row of a message and its answer, with the other columns of the original row and of its metadata.

    The message, and the turns before it if there are some, win over columns that have their names.
    """
    others = _other_columns(row, drop)
    said = {columns.TEXT: text, columns.PERSONA: turns}
    kept = {name: value for name, value in said.items() if value or name not in others}
    return {**others, **kept, **_response(answer)}


def _sent_text(prompt: str, table: Mapping[str, object]) -> object:
    """Return a column `text`, if the prompt that was sent contains it, as after a persona; else the prompt."""
    own = table.get(columns.TEXT)
    return own if isinstance(own, str) and own.strip() and own in prompt else prompt


def _other_columns(row: LogRow, drop: Sequence[str]) -> LogRow:
    """Return the other columns of a row, and of its metadata."""
    metadata = parse_json(row.get("metadata"))
    rest = {name: value for name, value in row.items() if name not in drop}
    if isinstance(metadata, Mapping):
        rest = {name: value for name, value in metadata.items() if is_scalar(value)} | rest
    return rest


# What the keys of the rows say about the format.
PARSERS: tuple[tuple[set[str], Callable[[Sequence[LogRow]], Iterator[LogRow]]], ...] = (
    ({"custom_id", "response"}, _batch_rows),
    ({"custom_id", "result"}, _batch_rows),
    ({"doc", "resps"}, _harness_rows),
    ({"prompt", "completion"}, _completion_rows),
    ({"instruction", "output"}, _instruction_rows),
    ({"instruction", "response"}, _instruction_rows),
    ({"input", "output"}, _trace_rows),
)


def is_scalar(value: object) -> bool:
    """Return whether a value fits into a cell of a table."""
    return value is None or isinstance(value, (str, int, float, bool))


def is_inspect_log(path: Path) -> bool:
    """Return whether a file is a log of inspect_ai, by its suffix or by the keys of its JSON."""
    if path.suffix.lower() == INSPECT_SUFFIX:
        return True
    if path.suffix.lower() != ".json" or not path.exists():
        return False
    try:
        content = json.loads(decode_text(path))
    except (OSError, ValueError, RecursionError):  # the reader of tables reports the error
        return False
    return isinstance(content, dict) and isinstance(content.get("eval"), dict) and "version" in content


def read_inspect(path: Path, descriptor_column: str | None) -> dict[str, list]:
    """Return the columns of a log of inspect_ai: the metadata, text, response and left_out of each sample.

    A sample whose metadata have no descriptor has its id as prompt_id. The second epoch of the id "a" is "a#2", as the
    second row of a prompts file with `repeats`.
    """
    require_extra("inspect", "inspect_ai", field=f"responses: {path}")
    from inspect_ai.log import read_eval_log

    try:
        found = read_eval_log(str(path), resolve_attachments=True)
    except Exception as error:  # errors of files, archives, JSON and validation, without a common class
        reason = format_value(" ".join(str(error).split()))
        raise InputError("responses", f"{path} cannot be read as a log of inspect_ai: {reason}.") from None
    if not found.samples:
        raise InputError("responses", f"{path} has no samples; give a log of an evaluation that has run.")
    _warn_of_part(found)
    return columns_of([row for sample in found.samples for row in inspect_rows(sample, descriptor_column)])


def _warn_of_part(found: "EvalLog") -> None:
    """Warn of a log of inspect_ai that has not all samples: its evaluation was cancelled, failed or is not finished."""
    if found.status == "success":
        return
    n = found.eval.dataset.samples
    epochs = found.eval.config.epochs or 1
    of = "" if n is None else f" of {n * epochs}"
    log.warning(
        "responses: the evaluation of this log has the status %r: it has %d%s samples, and only these are measured",
        found.status,
        len(found.samples or []),
        of,
    )


def inspect_rows(sample: "EvalSample", descriptor_column: str | None) -> Iterator[LogRow]:
    """Yield the rows of a sample of inspect_ai, one for each choice (`num_choices`)."""
    has_descriptor = {columns.DESCRIPTOR, descriptor_column} & {*sample.metadata}
    prompt_id = sample.metadata.get(columns.PROMPT_ID, None if has_descriptor else sample.id)
    text, turns = sample.input, ""
    if not isinstance(sample.input, str):
        text, turns = prompt_in([{"role": message.role, "content": message.text} for message in sample.input])
    said = {columns.TEXT: _sent_text(text or "", sample.metadata)} | ({columns.PERSONA: turns} if turns else {})
    choices = sample.output.choices or [None]
    for place, choice in enumerate(choices):
        number = (sample.epoch - 1) * len(choices) + place + 1  # of the responses to the prompt
        repeat = f"#{number}" if number > 1 else ""
        key = {} if prompt_id is None else {columns.PROMPT_ID: f"{prompt_id}{repeat}"}
        error = "failed: error" if sample.error or choice is None else ""
        response = None
        if choice is not None:
            response = sample.output.completion if place == 0 else choice.message.text
        answer = Answer(response, stop="" if choice is None else choice.stop_reason, error=error)
        yield {**sample.metadata, **said, **key, **_response(answer)}
