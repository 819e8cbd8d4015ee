"""Responses of a model on an OpenAI-compatible server: vLLM, SGLang, `transformers serve` or a hosted API.

The `openai` client retries after 429, 5xx, time-outs and resets (back-off with jitter, `Retry-After`). This module also
retries answers that are not JSON or do not have exactly one choice, because the client accepts them. The API key comes
from the environment and is never written, logged or part of an error.
"""

import asyncio
import logging
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain, islice, repeat, takewhile
from typing import Any, TypeVar

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.reasoning import strip_reasoning
from evenhand.evaluation.models.revisions import first_line, tokenizer_revision
from evenhand.evaluation.settings import CheckpointSettings, ModelSettings

log = logging.getLogger("evenhand")

API_KEY_VARIABLES = ("EVENHAND_API_KEY", "OPENAI_API_KEY")  # the first non-empty variable counts
SEED_MODULUS = 2**31  # some servers read a seed as a signed integer of 32 bits
API_ARGUMENTS = {"temperature": "temperature", "top_p": "top_p", "max_new_tokens": "max_tokens", "stop_strings": "stop"}
NEUTRAL_VALUES = {"top_k": 0, "num_beams": 1}  # do not change the distribution and are not sent
MAX_RETRIES = 12  # enough for a minute without a server; with 30 % faults, one request of six million fails
MAX_FIRST_RETRIES = 5  # limit for the first request, so that a wrong address is reported early
TIMEOUT_SECONDS = 600.0  # maximum wait for the next byte; requests to large models wait in the server's queue
REQUEST_SECONDS = 1800.0  # maximum duration of a request with its retries, even if bytes keep arriving
MAX_PENDING_FACTOR = 4  # requests in flight or waiting for an earlier answer, as a multiple of `concurrency`

Body = dict[str, Any]
Parsed = TypeVar("Parsed")


class UnsupportedRequest(InputError):
    """Error: the server rejects a request, or the answer lacks requested data, so that a retry would fail too.

    status: the HTTP status of the rejection; None if the answer lacks data.
    """

    status: int | None = None


def request_arguments(decoding: Mapping[str, Any]) -> dict[str, Any]:
    """Return the API's equivalent of decoding arguments of `generate`; greedy decoding becomes temperature 0.

    Raises:
        InputError: An argument changes the response, and the API has no equivalent.

    >>> request_arguments({"do_sample": True, "temperature": 0.7, "top_k": 0, "max_new_tokens": 40})
    {'temperature': 0.7, 'max_tokens': 40}
    """
    used = {name: value for name, value in decoding.items() if value is not None and NEUTRAL_VALUES.get(name) != value}
    samples = used.pop("do_sample")
    if unknown := sorted(used.keys() - API_ARGUMENTS.keys()):
        raise InputError(
            f"decoding: the API has no argument for {', '.join(unknown)}; use only do_sample, "
            f"{', '.join(API_ARGUMENTS)}."
        )
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
    prompt + tag as user message. A completion has preface and prompt + tag on separate lines; a token that ends the
    prompt, such as EOS, must be part of the tag.

    Args:
        personas: one persona for each prompt, "" for none.
        seeds: one seed for each prompt, sent modulo 2³¹.
        tag: the control tag after each prompt, "" for none.
        arguments: the return value of `request_arguments`.
    """
    prefaces = ["\n".join(filter(None, (model.system_prompt, persona))) for persona in personas]

    def content(prompt: str, preface: str) -> Body:
        if model.api == "completions":
            return {"prompt": "\n".join(filter(None, (preface, prompt + tag)))}
        system = [{"role": "system", "content": preface}] if preface else []
        return {"messages": [*system, {"role": "user", "content": prompt + tag}]}

    return [
        {"model": model.name, "seed": seed % SEED_MODULUS, **arguments, **content(prompt, preface)}
        for prompt, preface, seed in zip(prompts, prefaces, seeds, strict=True)
    ]


def parse_response(answer: Any, body: Body) -> str | None:
    """Return the text of the response in a server's answer, without outer white space and reasoning.

    The text may be ""; the return value is None if the model never ended its reasoning.

    Raises:
        ValueError, TypeError, AttributeError: The answer does not have exactly one choice with a text.
    """
    (choice,) = answer.choices
    is_chat = "messages" in body
    text = choice.message.content if is_chat else choice.text
    if text is None and is_chat:
        text = choice.message.refusal or ""
    return strip_reasoning(text, choice.finish_reason == "length")


def parse_full_response(answer: Any, body: Body) -> tuple[str | None, bool, str]:
    """Return the response in an answer (`parse_response`), whether max_tokens ended it, and the answer's model name."""
    text, (choice,) = parse_response(answer, body), answer.choices
    return text, choice.finish_reason == "length", answer.model if isinstance(answer.model, str) else body["model"]


def fetch_answers(
    model: ModelSettings,
    requests: Sequence[Body],
    parse: Callable[[Any, Body], Parsed] = parse_response,
    rejected: Callable[[UnsupportedRequest], Parsed | InputError] = lambda error: error,
) -> Iterator[tuple[list[int], list[Parsed]]]:
    """Send requests to the server, and yield (row indices, parsed answers) in the order of the requests.

    At most `model.concurrency` requests are in flight, each for REQUEST_SECONDS at most. A request is retried if
    `parse` raises a ValueError, TypeError or AttributeError. `rejected` returns the
    parsed answer to a request that the server rejects, or an error to raise.

    Raises:
        InputError: The server rejects a request, or fails after all retries. Earlier answers are yielded first.
    """
    log.info("%s: %d requests at a time, %.0f minutes for each", model.server, model.concurrency, REQUEST_SECONDS / 60)
    pending: deque[tuple[int, asyncio.Task[Parsed | InputError]]] = deque()
    with asyncio.Runner() as runner:
        client, semaphore = _make_client(model, MAX_RETRIES), asyncio.Semaphore(model.concurrency)
        first_client = client.with_options(max_retries=min(MAX_RETRIES, MAX_FIRST_RETRIES))
        queue = zip(range(len(requests)), chain([first_client], repeat(client)), strict=False)

        async def send(body: Body, client: Any) -> Parsed | InputError:
            async with semaphore:
                try:
                    return await _send_request(client, model, body, parse)
                except UnsupportedRequest as error:
                    return rejected(error)
                except InputError as error:  # raised after the earlier answers are yielded
                    return error

        async def next_answers() -> list[tuple[int, Parsed | InputError]]:
            for row, row_client in islice(queue, MAX_PENDING_FACTOR * model.concurrency - len(pending)):
                pending.append((row, asyncio.create_task(send(requests[row], row_client))))
            done = []
            while pending and (not done or pending[0][1].done()):
                row, task = pending.popleft()
                done.append((row, await task))
            return done

        async def stop() -> None:  # the tasks first: a waiting task would use the closed client
            tasks = [task for _, task in pending]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

        try:
            while done := runner.run(next_answers()):
                answers = list(takewhile(lambda pair: not isinstance(pair[1], InputError), done))
                if answers:
                    yield [row for row, _ in answers], [answer for _, answer in answers]
                if len(answers) < len(done):
                    raise done[len(answers)][1]
        finally:
            runner.run(stop())


def request_once(model: ModelSettings, body: Body, parse: Callable[[Any, Body], Parsed]) -> Parsed:
    """Send one request to the server, with few retries, and return the parsed answer.

    Raises:
        UnsupportedRequest: The server rejects the request, or `parse` raises UnsupportedRequest.
        InputError: The server does not answer, or rejects the key.
    """

    async def send() -> Parsed:
        async with (client := _make_client(model, MAX_FIRST_RETRIES)):
            return await _send_request(client, model, body, parse)

    return asyncio.run(send())


def served_tokenizer(model: ModelSettings) -> CheckpointSettings:
    """Return the settings of a served model's tokenizer: `model.tokenizer`, else the model's name and revision."""
    if model.tokenizer is not None:
        return CheckpointSettings(name=model.tokenizer)
    return CheckpointSettings(name=model.name, revision=model.revision)


def served_fingerprints(model: ModelSettings) -> dict[str, str]:
    """Return the name of a served model and the revision of its tokenizer, for runs that score sentences.

    Raises:
        InputError: The client is not installed, or the tokenizer does not exist.
    """
    check_client()
    tokenizer = served_tokenizer(model)
    try:
        return {"model": model.name, "tokenizer": tokenizer_revision(tokenizer.name, tokenizer.revision)}
    except InputError:
        raise InputError(
            f"model.tokenizer: {tokenizer.name!r} does not exist, and likelihoods are requested by token ids; "
            "give the Hugging Face id or the folder of the served model's tokenizer."
        ) from None


def check_client() -> None:
    """Raise an InputError if the client is not installed, or the API key has invalid characters."""
    if find_spec("openai") is None:
        raise InputError("model.server: the client `openai` is not installed; run pip install 'evenhand[server]'.")
    _api_key()


def _api_key() -> str:
    name, key = next(((name, key) for name in API_KEY_VARIABLES if (key := os.environ.get(name, "").strip())), ("", ""))
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"model.server: the key in {name} has characters that are invalid in a key; set it again.")
    return key


def _make_client(model: ModelSettings, retries: int) -> Any:
    from evenhand.evaluation.models.server_client import make_client  # takes a second

    return make_client(model.server, _api_key(), retries, TIMEOUT_SECONDS)


async def _send_request(client: Any, model: ModelSettings, body: Body, parse: Callable[[Any, Body], Parsed]) -> Parsed:
    from openai import APIConnectionError, APIError, APIStatusError, OpenAIError

    create: Callable = client.chat.completions.create if model.api == "chat" else client.completions.create
    try:
        async with asyncio.timeout(REQUEST_SECONDS):
            for attempt in range(client.max_retries + 1):
                if attempt:
                    await asyncio.sleep(min(8.0, 0.25 * 2**attempt) * random.uniform(0.75, 1))
                try:
                    return parse(await create(**body), body)
                except (APIConnectionError, APIStatusError, UnsupportedRequest):
                    raise
                except (
                    APIError,
                    ValueError,
                    TypeError,
                    AttributeError,
                    RecursionError,
                ):  # not JSON of the API's format
                    continue
    except APIStatusError as error:
        raise _refusal_error(model, error) from None
    except OpenAIError as error:
        raise InputError(_failure_message(model, first_line(error))) from None
    except TimeoutError:
        raise InputError(_failure_message(model, f"no complete answer in {REQUEST_SECONDS:g} seconds")) from None
    raise InputError(_failure_message(model, "its answers do not have the API's format"))


def _failure_message(model: ModelSettings, reason: str) -> str:
    return (
        f"model.server: {model.server} failed after all retries ({_redact_key(reason)}; model {model.name}, api "
        f"{model.api}). Check the server and run the command again; finished answers are saved."
    )


def _refusal_error(model: ModelSettings, error: Any) -> InputError:
    status = error.status_code
    if 300 <= status < 400:
        target = error.response.headers.get("location", "another address")
        return InputError(
            f"model.server: {model.server} redirects to {_redact_key(target)[:300]}; prompts are not sent there. Give "
            "the address of the server itself."
        )
    if status in (401, 403):
        return InputError(
            f"model.server: {model.server} rejects the key ({status}); set {' or '.join(API_KEY_VARIABLES)}."
        )
    if status in (408, 409, 429) or status >= 500:  # the client has retried these
        return InputError(_failure_message(model, f"status {status}"))
    detail = error.body.get("detail") if isinstance(error.body, Mapping) else None  # FastAPI's field for the reason
    reason = _redact_key(str(detail) if detail else first_line(error))[:300]
    rejection = UnsupportedRequest(
        f"model.server: {model.server} rejects a request (model {model.name}, api {model.api}): {reason}"
    )
    rejection.status = status
    return rejection


def _redact_key(text: str) -> str:
    return text.replace(key, "…") if (key := _api_key()) else text
