"""The identity of a model that the caller has loaded."""

import copy
from dataclasses import replace

from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.in_memory import InMemoryModel
from evenhand.evaluation.models.kinds.weights import LoadedModel
from tests.tiny_models import tiny


def test_the_identity_is_of_the_weights_and_of_the_format_of_prompts():
    plain = tiny("gpt2")
    named = LoadedModel(ModelSettings(name="x"))
    identity = InMemoryModel(plain, named).identity()
    assert identity == InMemoryModel(tiny("gpt2"), named).identity()
    tokenizer = copy.deepcopy(plain.tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }} b {% endfor %}"
    chat = InMemoryModel(replace(plain, tokenizer=tokenizer, kind="chat"), named).identity()
    assert chat != identity and chat["model"] == identity["model"]
    assert InMemoryModel(tiny("llama"), named).identity()["model"] != identity["model"]
