"""A model that a server does not have: the error lists the models that it serves."""

import asyncio
from types import SimpleNamespace

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.server_client import ask_openai

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")
BODY = {"model": "qwen-7b", "messages": [{"role": "user", "content": "Hi"}]}


class Client:
    """A client of a server that has no such model, and lists `served`; None: it lists nothing, but fails."""

    def __init__(self, served):
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self.create))
        self.models = SimpleNamespace(list=self.list)
        self.served = served

    async def create(self, **_):
        raise openai.NotFoundError("no such model", response=self.answer(), body=None)

    def answer(self):
        return httpx.Response(404, request=httpx.Request("POST", "http://localhost/v1"))

    async def list(self):
        if self.served is None:
            raise openai.NotFoundError("no list", response=self.answer(), body=None)
        for name in self.served:
            yield SimpleNamespace(id=name)


def ask(served):
    return asyncio.run(ask_openai(Client(served), BODY, "chat"))


def test_the_models_that_the_server_has_are_listed():
    with pytest.raises(InputError) as raised:
        ask(["qwen-7b-instruct", "llama"])
    assert raised.value.field == "model.name"
    assert "qwen-7b-instruct" in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize("served", [None, [], ["qwen-7b"]])
def test_without_a_list_the_error_is_the_server_s(served):
    with pytest.raises(openai.NotFoundError):
        ask(served)
