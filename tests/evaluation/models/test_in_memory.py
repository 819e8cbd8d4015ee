"""The identity of a model that the caller has loaded."""

import copy
from dataclasses import replace

from peft import LoraConfig, get_peft_model

from evenhand.evaluation.compat import lora_layers
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.in_memory import InMemoryModel, weights_sha256
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


def test_the_hash_tells_which_adapters_act_and_how_strongly():
    """All of these have the same weights, and other answers."""
    config = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
    model = get_peft_model(tiny("gpt2").model, config, adapter_name="a")
    model.add_adapter("b", config)
    found = []
    for name in ("a", "b"):
        model.set_adapter(name)
        found.append(weights_sha256(model))
    with model.disable_adapter():
        found.append(weights_sha256(model))
    assert weights_sha256(model) == found[1]
    for layer in lora_layers(model):
        layer.scale_layer(0.5)
    found.append(weights_sha256(model))
    assert len(set(found)) == 4
