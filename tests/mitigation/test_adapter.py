"""One copy of the base: other modules on its tensors, adapters merged a layer at a time as they are served."""

import copy
import json

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoConfig,
    GPT2Config,
    GPT2LMHeadModel,
    OPTConfig,
    OPTForCausalLM,
    PhimoeConfig,
    PhimoeForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.in_memory import weights_sha256
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import adapter_base
from evenhand.mitigation.adapter import (
    check_layers,
    copy_weights,
    load_tuned,
    loadable_name,
    merge_in_forward,
    share_weights,
)
from tests.mitigation.tiny_dialogue import tokenizer

DIALOGUE_MODEL = "package:evenhand/recipes/testbed/dialogue_model"
IDS = torch.tensor([[3, 1, 4, 1, 5]])


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=2, n_head=2)).eval()


def qwen():
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 4}
    config = Qwen3Config(vocab_size=11, num_attention_heads=2, num_key_value_heads=1, **sizes, tie_word_embeddings=True)
    return Qwen3ForCausalLM(config).eval()


def adapted(network, size=0.5):
    """A network with an adapter that says something, on the same tensors."""
    config = LoraConfig(
        r=2,
        target_modules="all-linear",
        trainable_token_indices=[1],
        fan_in_fan_out=isinstance(network, GPT2LMHeadModel),
    )
    model = get_peft_model(share_weights(network), config).eval()
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name or "tokens_delta" in name:
            parameter.data.normal_(std=size)
    return model


@pytest.mark.parametrize("build", [gpt2, qwen])
def test_the_copy_has_the_tensors_of_the_base_and_all_else_of_its_own(build):
    base = build()
    before = weights_sha256(base)
    other = share_weights(base)
    assert torch.equal(other(IDS).logits, base(IDS).logits)
    storages = [{each.untyped_storage().data_ptr() for each in model.parameters()} for model in (base, other)]
    assert storages[0] == storages[1]
    assert other.get_input_embeddings().weight is other.get_output_embeddings().weight  # tied as they were

    other.float().train()
    other.bfloat16()
    other.config.pad_token_id = 7
    assert base.dtype == torch.float32 and not base.training and base.config.pad_token_id != 7
    get_peft_model(share_weights(base), LoraConfig(target_modules="all-linear"))
    assert all(parameter.requires_grad for parameter in base.parameters())
    assert weights_sha256(base) == before


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("build", [gpt2, qwen])
def test_served_it_computes_what_the_merged_model_does_bit_by_bit_and_leaves_the_base(build, dtype):
    base = build().to(dtype)
    before = weights_sha256(base)
    model = adapted(base)
    merged = copy.deepcopy(model).merge_and_unload(safe_merge=True)
    apart = model(IDS).logits
    merge_in_forward(model)
    with torch.inference_mode():
        assert torch.equal(model(IDS).logits, merged(IDS).logits)
        assert torch.equal(model(IDS).logits, merged(IDS).logits)  # and once more
    assert not torch.equal(merged(IDS).logits, base(IDS).logits)
    if dtype == torch.bfloat16:
        assert not torch.equal(merged(IDS).logits, apart)  # rounded
    assert weights_sha256(base) == before


def test_other_libraries_find_a_base_in_a_package(tmp_path):
    found = loadable_name(DIALOGUE_MODEL)
    assert AutoConfig.from_pretrained(found).model_type == "gpt2" and loadable_name("org/model") == "org/model"
    tuned = {"base_model_name_or_path": "/a/folder/of/another/machine", "revision": None}
    (tmp_path / "adapter_config.json").write_text(json.dumps(tuned))
    (tmp_path / "evenhand.json").write_text(json.dumps({"base": DIALOGUE_MODEL}))
    assert adapter_base(tmp_path) == (found, None)


class WithOwnCode(GPT2LMHeadModel):
    """A model whose code comes with its weights."""


def test_all_weights_of_a_model_with_its_own_code_are_loaded_by_this_code(tmp_path):
    """By an auto class, transformers would ask at the terminal whether to execute the code."""
    base = DialogueModel(WithOwnCode(gpt2().config).eval(), tokenizer(), "dialogue", str(tmp_path / "base"), "r0")
    base.model.config.auto_map = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.WithOwnCode"}
    base.model.save_pretrained(tmp_path / "checkpoint-3")
    (tmp_path / "checkpoint-3" / "own.py").write_text("# the code")
    (tmp_path / "adapter").mkdir()
    copy_weights(tmp_path / "checkpoint-3", tmp_path / "adapter", base)
    assert (tmp_path / "adapter" / "own.py").exists()
    tuned = load_tuned(base, tmp_path / "adapter", lora=False)
    assert type(tuned.model) is WithOwnCode and torch.equal(tuned.model(IDS).logits, base.model(IDS).logits)


def opt():
    sizes = {"hidden_size": 8, "word_embed_proj_dim": 8, "ffn_dim": 16, "num_hidden_layers": 1}
    return OPTForCausalLM(OPTConfig(vocab_size=11, num_attention_heads=2, max_position_embeddings=8, **sizes))


def phimoe():
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_local_experts": 2}
    return PhimoeForCausalLM(PhimoeConfig(vocab_size=11, num_attention_heads=2, num_key_value_heads=1, **sizes))


@pytest.mark.parametrize(
    ("network", "excluded", "invocation"), [(opt, ["fc1", "fc2"], [3]), (phimoe, ["router"], None)]
)
def test_a_layer_that_fails_with_an_adapter_is_named_before_training(network, excluded, invocation):
    """OPT's feed-forward layers get tokens without their rows, and a router returns more than a tensor."""
    base = DialogueModel(network().eval(), tokenizer(), "dialogue", "tiny", "r0")
    config = LoraConfig(
        r=2, target_modules="all-linear", task_type="CAUSAL_LM", alora_invocation_tokens=invocation, lora_alpha=32
    )
    before = weights_sha256(base.model)
    with pytest.raises(InputError, match=rf'^training\.peft: .* layers {excluded[0]} of .*\["{excluded[0]}"\]'):
        check_layers(base, config)
    config.exclude_modules = excluded
    check_layers(base, config)
    assert weights_sha256(base.model) == before
