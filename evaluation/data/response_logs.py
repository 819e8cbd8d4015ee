"""Readers of other tools' logs of responses: OpenAI's Batch API, lm-evaluation-harness and inspect_ai.

A reader returns the columns of a file of responses (`response_files.read_responses`), with the column `left_out`: the
reason why a response is empty, or None. Sources of the formats:

- OpenAI Batch: platform.openai.com/docs/api-reference/batch/request-output. vLLM's `run-batch` writes the same, but its
  `error` may be a text.
- lm-evaluation-harness: `EvaluationTracker.save_results_samples` and `evaluate` of version 0.4.13 (`--log_samples`).
- inspect_ai: inspect.aisi.org.uk/eval-logs.html, read by its function `read_eval_log`; tried with version 0.3.285.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenhand.evaluation.data.table_files import columns_of, read_json_lines
from evenhand.evaluation.errors import InputError, format_value, require_extra
from evenhand.evaluation.models.chat_templates import UNFINISHED_REASONING, strip_reasoning
from evenhand.evaluation.score import DESCRIPTOR, LEFT_OUT, PROMPT_ID, RESPONSE, TEXT
from evenhand.evaluation.untrusted_text import escape_hidden

REFUSAL, NO_CONTENT = "refusal", "no content"  # reasons why a response is left out
MAX_REASON = 60  # characters
INSPECT_SUFFIXES = (".eval", ".json")


def read_log(path: Path, descriptor_column: str | None = None) -> dict[str, list] | None:
    """Return the columns of a log of another tool, known by suffix and keys of its lines; None for other files."""
    if path.suffix in INSPECT_SUFFIXES:
        return _read_inspect(path, descriptor_column)
    try:
        lines = read_json_lines(path, replace_surrogates=True) if path.suffix == ".jsonl" else []
    except (OSError, ValueError):  # the reader of tables reports the error
        return None
    keys = lines[0].keys() if lines else set()
    parsers = {_batch_rows: {"custom_id", "response"}, _harness_rows: {"doc", "resps"}}
    parse = next((parse for parse, needed in parsers.items() if keys >= needed), None)
    try:
        return columns_of(list(parse(lines))) if parse else None
    except ValueError as error:
        raise InputError(f"responses: {path} cannot be read as a log: {error}.") from None


def _batch_rows(lines: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield prompt_id, response and left_out of each line of a batch's output or error file."""
    for number, line in enumerate(lines, start=1):
        custom_id = line.get("custom_id")
        if not isinstance(custom_id, str):
            raise ValueError(f"request {number}: custom_id is {format_value(custom_id)}; write the prompt_id")
        text, reason = _batch_answer(line, f"request {number}")
        yield {PROMPT_ID: custom_id, RESPONSE: text, LEFT_OUT: reason}


def _batch_answer(line: Mapping[str, Any], where: str) -> tuple[str | None, str | None]:
    """Return the response in one line of a batch's output and None, or None and the reason for leaving it out."""
    answer, error = line.get("response") or {}, line.get("error")
    status = answer.get("status_code", 200) if isinstance(answer, dict) else None
    if status is not None and status != 200:
        return None, escape_hidden(f"status {status}")[:MAX_REASON]
    if error or not answer:
        code = error.get("code") if isinstance(error, dict) else error
        return None, escape_hidden(f"error {code}" if code else "no response")[:MAX_REASON]
    try:
        (choice,) = answer["body"]["choices"]
        message = choice["message"] if "message" in choice else {"content": choice["text"]}
        text, refusal, is_cut = message["content"], message.get("refusal"), choice.get("finish_reason") == "length"
        if not (text is None or isinstance(text, str)):
            raise TypeError
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ValueError(
            f"{where}: response is {format_value(answer)}, without one choice with a text; ask /v1/chat/completions or "
            "/v1/completions with n = 1"
        ) from None
    if refusal and not text:
        return None, REFUSAL
    text = strip_reasoning(text or "", is_cut)
    return text, UNFINISHED_REASONING if text is None else None if text else NO_CONTENT


def _harness_rows(lines: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the dataset's columns, text, response and left_out for each response in samples of generated text.

    The text of a response is `resps`, before any filter. A task with several filters has a line for each document and
    filter; the lines of the first filter are used. A document with several responses (`repeats`) has a row for each.
    """
    for number, line in enumerate(lines, start=1):
        if line.get("filter") != lines[0].get("filter"):
            continue
        document, resps = line.get("doc"), line.get("resps")
        try:
            (texts,) = resps
            if not (isinstance(document, dict) and all(isinstance(text, str) for text in texts)):
                raise TypeError
            prompt = line["arguments"]["gen_args_0"]["arg_0"]
        except (KeyError, TypeError, ValueError):
            raise ValueError(
                f"sample {number}: resps is {format_value(resps)}, not the text of one request; log a task with "
                "output_type generate_until"
            ) from None
        for text in texts:
            yield {TEXT: prompt, **document, RESPONSE: text, LEFT_OUT: None if text.strip() else NO_CONTENT}


def _read_inspect(path: Path, descriptor_column: str | None) -> dict[str, list]:
    """Return the columns of a log of inspect_ai: the metadata, text, response and left_out of each sample.

    A sample whose metadata have no descriptor has its id as prompt_id.
    """
    require_extra("inspect", "inspect_ai", field=f"responses: {path}")
    from inspect_ai.log import read_eval_log

    try:
        samples = read_eval_log(str(path), resolve_attachments=True).samples
    except Exception as error:  # errors of files, archives, JSON and validation, without a common class
        reason = format_value(" ".join(str(error).split()))
        raise InputError(f"responses: {path} cannot be read as a log of inspect_ai: {reason}.") from None
    if not samples:
        raise InputError(f"responses: {path} has no samples; give a log of an evaluation that has run.")
    return columns_of([_inspect_row(sample, descriptor_column) for sample in samples])


def _inspect_row(sample: Any, descriptor_column: str | None) -> dict[str, Any]:
    has_descriptor = {DESCRIPTOR, descriptor_column} & {*sample.metadata}
    key = {} if has_descriptor or PROMPT_ID in sample.metadata else {PROMPT_ID: str(sample.id)}
    is_text = isinstance(sample.input, str)
    messages = [] if is_text else [message.text for message in sample.input if message.role == "user"]
    text = sample.input if is_text else "\n".join(messages)
    choice = sample.output.choices[0] if sample.output.choices else None
    response = sample.output.completion if choice and not sample.error else ""
    stop = "error" if sample.error or not choice else choice.stop_reason
    if stop == "content_filter":
        response = ""
    reason = None if response.strip() else stop if stop != "stop" else NO_CONTENT
    return {TEXT: text, **sample.metadata, **key, RESPONSE: response, LEFT_OUT: reason}
