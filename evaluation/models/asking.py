"""Requests to a model behind an API: at most so many at a time, and the answers as they arrive."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Generic, TypeVar

from evenhand.evaluation.data.readers.answers import FILTER_REASONS
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.request_parameters import RejectedRequest

log = logging.getLogger("evenhand")

MIN_FAILURES = 16  # a run ends if so many requests or more fail,
MAX_FAILED_SHARE = 0.9  # and they are more than this share of all

Parsed = TypeVar("Parsed")
Result = TypeVar("Result")


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

    The cause may be the text of the request, or the server. `is_rate_limit` says that the server has too many requests.
    """

    def __init__(self, field: str, problem: str, reason: str = "", *, is_rate_limit: bool = False) -> None:
        super().__init__(field, problem)
        self.reason = reason
        self.is_rate_limit = is_rate_limit


class _SentLater(Exception):
    """A request has no answer yet; it is sent again."""


class NoAnswer(InputError):
    """Error: an answer is missing where one is needed; `reason` says why."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__("model.server", f"{address}: {reason} in place of an answer.")
        self.reason = reason


@dataclass(frozen=True)
class Reply(Generic[Parsed]):
    """What stands for the answer to a request; `failure` says why the request failed, None if it did not."""

    parsed: Parsed
    failure: str | None = None


def ask_all(
    send: Callable[[int], Coroutine[Any, Any, Parsed]],
    n: int,
    *,
    name: str,
    concurrency: int,
    answers_again: Callable[[int | None], Coroutine[Any, Any, bool]],
    close: Callable[[], Coroutine[Any, Any, None]],
    on_missing: Callable[[str], Parsed] | None = None,
) -> Iterator[tuple[list[int], list[Parsed]]]:
    """Send the requests 0 to n − 1, and yield (numbers of requests, parsed answers) as the answers arrive.

    Args:
        send: sends the request with a number, and returns its parsed answer. It raises MissingAnswer for an answer that
            is withheld or failed, FailedRequest and RejectedRequest.
        name: the API and the model, for errors.
        concurrency: the largest number of requests in flight. It is halved when a rate limit fails a request, which is
            then sent again.
        answers_again: returns whether the request with a number, which was answered, is answered again; for None,
            whether the server has spoken at all. A request that fails is left out only then.
        close: closes the client, after the last answer or an error.
        on_missing: returns what stands for a missing answer, from the reason why it is missing; without it, a missing
            answer is an error.

    Raises:
        InputError: the server fails, or nearly all requests do; earlier answers are yielded first.
    """

    async def stop() -> None:  # the requests first: a waiting one would use the closed client
        await requests.stop()
        await close()

    requests = _Requests(send, answers_again, on_missing, name, range(n), min(concurrency, n))
    with _event_loop() as run:
        try:
            yield from _after_first_failures(requests, run, name)
        finally:
            run(stop())


class _Requests(Generic[Parsed]):
    """Requests that are sent in order, at most `concurrency` at a time; the other arguments are those of `ask_all`."""

    def __init__(
        self,
        send: Callable[[int], Coroutine[Any, Any, Parsed]],
        answers_again: Callable[[int | None], Coroutine[Any, Any, bool]],
        on_missing: Callable[[str], Parsed] | None,
        name: str,
        numbers: Iterable[int],
        concurrency: int,
    ) -> None:
        self.send = send
        self.answers_again = answers_again
        self.on_missing = on_missing
        self.name = name
        self.numbers = iter(numbers)
        self.concurrency = concurrency
        self.answered: int | None = None  # the last request that was answered
        self.has_answered = True  # since `concurrency` was halved
        self.tasks: dict[asyncio.Task[Reply[Parsed]], int] = {}

    async def next_replies(self) -> dict[int, asyncio.Task[Reply[Parsed]]]:
        """Wait for replies, and return their tasks by the numbers of their requests; {} after the last one."""
        while True:
            n_free = max(0, self.concurrency - len(self.tasks))
            for number in islice(self.numbers, n_free):
                self.tasks[asyncio.create_task(self.reply(number, self.concurrency))] = number
            if not self.tasks:
                return {}
            done, _ = await asyncio.wait(self.tasks, return_when=asyncio.FIRST_COMPLETED)
            replies = {}
            for task in done:
                number = self.tasks.pop(task)
                if isinstance(task.exception(), _SentLater):
                    self.numbers = chain([number], self.numbers)
                else:
                    replies[number] = task
            if replies:
                return replies

    async def reply(self, number: int, concurrency: int) -> Reply[Parsed]:
        """Return the answer to a request, or what stands for it.

        Args:
            number: of the request.
            concurrency: the largest number of requests in flight when this one was sent.

        Raises:
            _SentLater: the request is to be sent again, with fewer others.
        """
        try:
            parsed = await self.send(number)
            self.answered = number
            self.has_answered = True
            return Reply(parsed)
        except MissingAnswer as error:
            reason = error.reason
            if self.on_missing is None:
                raise NoAnswer(self.name, reason) from None
        except RejectedRequest as error:
            reason = f"rejected: status {error.status}"
            if self.on_missing is None or not error.is_of_the_text:
                raise
            log.warning("%s", error)
        except FailedRequest as error:
            if error.is_rate_limit and self.send_fewer(concurrency):
                raise _SentLater from None
            reason = error.reason
            if self.on_missing is None or not await self.answers_again(self.answered):
                raise
            log.warning("%s", error)
        return Reply(self.on_missing(reason), failure=None if reason in FILTER_REASONS else reason)

    def send_fewer(self, concurrency: int) -> bool:
        """Halve the number of requests in flight after a rate limit has failed one; return whether it is now lower.

        It stays if it is 1, if no request was answered since it was last halved, or if it is already lower than
        `concurrency`, which it was when the failed request was sent.
        """
        if concurrency > self.concurrency:
            return True
        if self.concurrency == 1 or not self.has_answered:
            return False
        self.concurrency //= 2
        self.has_answered = False
        log.warning(
            "%s: it limits the rate of requests; from now on, at most %d at a time", self.name, self.concurrency
        )
        return True

    async def stop(self) -> None:
        """Give up all requests in flight."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def _after_first_failures(
    requests: _Requests[Parsed],
    run: Callable[[Coroutine[Any, Any, Mapping[int, asyncio.Task[Reply[Parsed]]]]], Mapping],
    name: str,
) -> Iterator[tuple[list[int], list[Parsed]]]:
    """Yield (numbers, parsed answers), beginning when a request has not failed.

    Raises:
        InputError: a request raised it, or nearly all of MIN_FAILURES or more requests failed.
    """
    held: dict[int, Parsed] = {}  # what stands for the answers to the first requests, while all have failed
    n_done = 0
    n_failed = 0
    while done := run(requests.next_replies()):
        replies = {number: task.result() for number, task in done.items() if task.exception() is None}
        held |= {number: reply.parsed for number, reply in replies.items()}
        failures = [reply.failure for reply in replies.values() if reply.failure is not None]
        n_done += len(replies)
        n_failed += len(failures)
        if held and n_failed < n_done:
            yield list(held), list(held.values())
            held = {}
        for error in filter(None, [task.exception() for task in done.values()]):
            raise error
        if failures and n_failed >= max(MIN_FAILURES, MAX_FAILED_SHARE * n_done):
            raise InputError(
                "model.server",
                f"{name}: {n_failed} of the first {n_done} requests failed, the last with “{failures[-1]}”; see the "
                "server's log. If the answers are whole, collect them in a file, and give it as "
                f"{spelled('responses')}.",
            )
    if held:
        yield list(held), list(held.values())


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
