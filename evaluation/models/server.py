"""Answers of a model that an OpenAI-compatible server has: vLLM, SGLang, `transformers serve`, hosted ones.

The `openai` client waits and tries again (429, 5xx, time-outs and resets; back-off with jitter, `Retry-After`). What it
takes as it is, and a measurement must not, is asked for again here: bodies that are no JSON, and answers that are not
one. The key comes from the environment, and is in nothing that is written, logged or raised.
"""

import asyncio
import os
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain, islice, repeat
from typing import Any, TypeVar

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.reasoning import REASONING_FORMATS
from evenhand.evaluation.models.revisions import first_line, tokenizer_revision
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard
from evenhand.evaluation.settings import CheckpointSettings, ModelSettings

API_KEY_VARIABLES = ("EVENHAND_API_KEY", "OPENAI_API_KEY")  # the first that is set
SEED_MODULUS = 2**31  # servers take 32 or 64 bits, some of them signed
API_ARGUMENTS = {"temperature": "temperature", "top_p": "top_p", "max_new_tokens": "max_tokens", "stop_strings": "stop"}
NEUTRAL_VALUES = {"top_k": 0, "num_beams": 1}  # what leaves the distribution as it is need not be sent
MAX_RETRIES = 12  # at 30 % faults one request of six million fails for good; a server may be away for a minute
MAX_FIRST_RETRIES = 5  # of a server that may not be there at all
TIMEOUT_SECONDS = 600.0  # seconds; answers of large models wait in the server's queue
MAX_PENDING_FACTOR = 4  # so many times `concurrency` answers may wait for an earlier one

Body = dict[str, Any]
Parsed = TypeVar("Parsed")


class UnsupportedRequest(InputError):
    """The server refuses a request, or its answer has not what was asked for: to ask again is of no use."""


def request_arguments(decoding: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of `generate` as the API has them; greedy decoding is temperature 0.

    Raises:
        InputError: some of them shape the response, and the API has nothing like them.

    >>> request_arguments({"do_sample": True, "temperature": 0.7, "top_k": 0, "max_new_tokens": 40})
    {'temperature': 0.7, 'max_tokens': 40}
    """
    given = {name: value for name, value in decoding.items() if value is not None and NEUTRAL_VALUES.get(name) != value}
    samples = given.pop("do_sample")
    if unknown := sorted(given.keys() - API_ARGUMENTS.keys()):
        raise InputError(
            f"decoding: a server cannot be told {', '.join(unknown)}; leave them out. It can be told do_sample, "
            f"{', '.join(API_ARGUMENTS)}."
        )
    sent = {API_ARGUMENTS[name]: value for name, value in given.items()}
    return sent if samples else {**sent, "temperature": 0}


def build_requests(
    model: ModelSettings,
    prompts: Sequence[str],
    personas: Sequence[str],
    seeds: Sequence[int],
    tag: str,
    arguments: Mapping[str, Any],
) -> list[Body]:
    """Return the body of a request for each prompt.

    The preface is the system prompt and the persona, on lines of their own. In a chat it is the system message, and
    prompt + tag the user's; in completions preface and prompt + tag are lines, and what ends a prompt there, such as
    an EOS, is for the tag to say.

    Args:
        seeds: one for each prompt, sent modulo 2³¹.
        arguments: as `request_arguments` returns them.
    """
    prefaces = ["\n".join(filter(None, (model.system_prompt, persona))) for persona in personas]

    def said(prompt: str, preface: str) -> Body:
        if model.api == "completions":
            return {"prompt": "\n".join(filter(None, (preface, prompt + tag)))}
        system = [{"role": "system", "content": preface}] if preface else []
        return {"messages": [*system, {"role": "user", "content": prompt + tag}]}

    return [
        {"model": model.name, "seed": seed % SEED_MODULUS, **arguments, **said(prompt, preface)}
        for prompt, preface, seed in zip(prompts, prefaces, seeds, strict=True)
    ]


def parse_response(answer: Any, body: Body) -> str | None:
    """Return the response in an answer, without outer blanks and what the model thought before it.

    It may be "", and is None where the model never left its thought.

    Raises:
        ValueError, TypeError, AttributeError: there is not one.
    """
    (choice,) = answer.choices
    chat = "messages" in body
    text = choice.message.content if chat else choice.text
    if text is None and chat:
        text = choice.message.refusal or ""
    if not text and choice.finish_reason == "length":
        return None  # all that it was given went into its thought, which the server keeps apart
    for marks in REASONING_FORMATS:
        if marks.end in text:
            text = text.partition(marks.end)[2]
        elif text.lstrip().startswith(marks.cue):
            return None
    return text.strip()


def fetch_answers(
    model: ModelSettings,
    asked: Sequence[Body],
    shard: WorkShard = ALL_ROWS,
    read: Callable[[Any, Body], Parsed] = parse_response,
) -> Iterator[tuple[list[int], list[Parsed]]]:
    """Yield (row indices, what is read from their answers) in the rows' order, as they come; of a `shard`, its own.

    `model.concurrency` requests are under way at any time. What `read` raises a ValueError, TypeError or AttributeError
    for is asked for again.

    Raises:
        InputError: the server refuses a request, or fails for it again and again.
    """
    rows = (row for alone in shard.unfinished_batches([[row] for row in range(len(asked))]) for row in alone)
    under_way: deque[tuple[int, asyncio.Task[Parsed | InputError]]] = deque()
    with asyncio.Runner() as runner:
        client, gate = _make_client(model, MAX_RETRIES), asyncio.Semaphore(model.concurrency)
        # The first request has fewer retries, so that a wrong address is reported early.
        clients = chain([client.with_options(max_retries=min(MAX_RETRIES, MAX_FIRST_RETRIES))], repeat(client))
        queue = zip(rows, clients, strict=False)

        async def ask(body: Body, client: Any) -> Parsed | InputError:
            async with gate:
                try:
                    return await _send_request(client, model, body, read)
                except InputError as error:  # raised when its turn comes, after what was answered before
                    return error

        async def next_answers() -> list[tuple[int, Parsed | InputError]]:
            for row, patient in islice(queue, MAX_PENDING_FACTOR * model.concurrency - len(under_way)):
                under_way.append((row, asyncio.create_task(ask(asked[row], patient))))
            found = []
            while under_way and (not found or under_way[0][1].done()):
                row, task = under_way.popleft()
                found.append((row, await task))
            return found

        try:
            while found := runner.run(next_answers()):
                made = [it for _, it in found]
                good = next((place for place, it in enumerate(made) if isinstance(it, InputError)), len(made))
                if good:
                    yield [row for row, _ in found[:good]], made[:good]
                if good < len(made):
                    raise made[good]
        finally:
            runner.run(client.close())


def request_once(model: ModelSettings, body: Body, read: Callable[[Any, Body], Parsed]) -> Parsed:
    """Return what is read from the answer to one request, of a server that may not be there at all.

    Raises:
        UnsupportedRequest: the server refuses it, or `read` says that what was asked for is not there.
        InputError: there is no such server, or the key is refused.
    """

    async def ask() -> Parsed:
        async with (client := _make_client(model, MAX_FIRST_RETRIES)):
            return await _send_request(client, model, body, read)

    return asyncio.run(ask())


def served_tokenizer(model: ModelSettings) -> CheckpointSettings:
    """Return where the tokenizer of a served model comes from: as told, else from the model of its name."""
    if model.tokenizer is not None:
        return CheckpointSettings(name=model.tokenizer)
    return CheckpointSettings(name=model.name, revision=model.revision)


def served_fingerprints(model: ModelSettings) -> dict[str, str]:
    """Return what is known of a served model that is asked for likelihoods: its name, its tokenizer's revision.

    Raises:
        InputError: there is no client, or no such tokenizer.
    """
    check_client()
    tokenizer = served_tokenizer(model)
    try:
        return {"model": model.name, "tokenizer": tokenizer_revision(tokenizer.name, tokenizer.revision)}
    except InputError:
        raise InputError(
            f"model.tokenizer: a server is asked for likelihoods by token ids, and no tokenizer was found as "
            f"{tokenizer.name!r}; give that of the served model: its Hugging Face id or a folder."
        ) from None


def check_client() -> None:
    """Raise an InputError if there is no client to ask a server with, or the key in the environment is none."""
    if find_spec("openai") is None:
        raise InputError("model.server: the client `openai` is not installed; run pip install 'evenhand[server]'.")
    _api_key()


def _api_key() -> str:
    name, key = next(((name, key) for name in API_KEY_VARIABLES if (key := os.environ.get(name, "").strip())), ("", ""))
    if not (key.isascii() and key.isprintable()):
        raise InputError(f"model.server: the key in {name} has characters that no key has; set it again.")
    return key


def _make_client(model: ModelSettings, retries: int) -> Any:
    from openai import AsyncOpenAI

    # A server of one's own asks for none, but the client does.
    return AsyncOpenAI(
        base_url=model.server, api_key=_api_key() or "none", max_retries=retries, timeout=TIMEOUT_SECONDS
    )


async def _send_request(client: Any, model: ModelSettings, body: Body, read: Callable[[Any, Body], Parsed]) -> Parsed:
    from openai import APIConnectionError, APIError, APIStatusError

    ask: Callable = client.chat.completions.create if model.api == "chat" else client.completions.create
    for attempt in range(client.max_retries + 1):
        if attempt:
            await asyncio.sleep(min(8.0, 0.25 * 2**attempt) * random.uniform(0.75, 1))
        try:
            return read(await ask(**body), body)
        except APIConnectionError as error:
            raise InputError(_failure_message(model, first_line(error))) from None
        except APIStatusError as error:
            raise _refusal_error(model, error) from None
        except UnsupportedRequest:
            raise
        except (APIError, ValueError, TypeError, AttributeError):  # no JSON, or not of the form of one answer
            continue
    raise InputError(_failure_message(model, "what it sends is no answer of this API"))


def _failure_message(model: ModelSettings, reason: str) -> str:
    return (
        f"model.server: {model.server}, asked as {model.name} by {model.api}, failed again and again "
        f"({_redact_key(reason)}); see to it and run again: what was answered is kept."
    )


def _refusal_error(model: ModelSettings, error: Any) -> InputError:
    """Return what a request was refused for; what a server says of a key may hold a part of it."""
    status = error.status_code
    if status in (401, 403):
        return InputError(
            f"model.server: {model.server} refuses the key ({status}); set {' or '.join(API_KEY_VARIABLES)}."
        )
    if status in (408, 409, 429) or status >= 500:  # what the client tries again
        return InputError(_failure_message(model, f"status {status}"))
    detail = error.body.get("detail") if isinstance(error.body, Mapping) else None  # FastAPI's, which no message has
    said = _redact_key(str(detail) if detail else first_line(error))[:300]
    return UnsupportedRequest(f"model.server: {model.server} refuses to answer as {model.name} by {model.api}: {said}")


def _redact_key(text: str) -> str:
    return text.replace(key, "…") if (key := _api_key()) else text
