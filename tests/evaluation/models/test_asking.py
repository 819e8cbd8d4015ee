"""Requests at a time: fewer after the rate limit of a server."""

import asyncio

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.asking import FailedRequest, ask_all


def ask_at_most(limit, n, concurrency):
    """Ask a server that answers `limit` requests at a time; return the answered ones, and how many were in flight."""
    in_flight = set()
    at_a_time = []

    async def send(number):
        in_flight.add(number)
        at_a_time.append(len(in_flight))
        try:
            await asyncio.sleep(0)  # the requests that are sent together are in flight
            if len(in_flight) > limit:
                raise FailedRequest("model.server", "429", is_rate_limit=True)
            return number
        finally:
            in_flight.discard(number)

    async def answers_again(number):
        return False

    async def close():
        pass

    answered = []
    for numbers, parsed in ask_all(
        send, n, name="server", concurrency=concurrency, answers_again=answers_again, close=close
    ):
        assert numbers == parsed
        answered += numbers
    return answered, at_a_time


def test_after_a_rate_limit_fewer_requests_are_sent_at_a_time_and_all_are_answered():
    answered, at_a_time = ask_at_most(2, n=40, concurrency=16)
    assert sorted(answered) == list(range(40))
    assert max(at_a_time) == 16 and max(at_a_time[-20:]) <= 2


def test_a_rate_limit_that_lets_nothing_through_ends_the_run():
    with pytest.raises(InputError, match="429"):
        ask_at_most(0, n=40, concurrency=16)
