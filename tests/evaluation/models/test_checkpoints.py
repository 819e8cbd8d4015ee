"""Precision, attention, quantization, devices and the base of an adapter."""

import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.checkpoints import is_quantized
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.revisions import model_revision
from tests.tiny_models import word_level_tokenizer

WORDS = ["<eos>", "<unk>", *"abcdefgh"]
IDS = torch.tensor([[2, 3, 4, 5]])


def save_qwen(path, seed=0, hidden=64):
    torch.manual_seed(seed)
    sizes = {"hidden_size": hidden, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen3Config(vocab_size=len(WORDS), **sizes, **heads, eos_token_id=0, initializer_range=0.2)
    model = Qwen3ForCausalLM(config).bfloat16().eval()
    model.save_pretrained(path)
    word_level_tokenizer(WORDS, eos_token="<eos>", unk_token="<unk>").save_pretrained(path)
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "qwen"
    save_qwen(path)
    return path


@pytest.fixture(scope="module")
def adapter(folder):
    path = folder.parent / "adapter"
    model = get_peft_model(
        Qwen3ForCausalLM.from_pretrained(folder), LoraConfig(target_modules=["q_proj"], init_lora_weights=False)
    )
    model.peft_config["default"].base_model_name_or_path = "somebody/gone"
    model.save_pretrained(path)
    return path


def logits(model):
    with torch.inference_mode():
        return model(IDS).logits.float()


def load(folder, **settings):
    return load_dialogue_model(ModelSettings(name=str(folder), device="cpu", **settings)).model


def test_an_adapter_is_loaded_onto_another_base(folder, adapter):
    name = str(adapter)
    with pytest.raises(InputError, match="somebody/gone"):
        load_dialogue_model(name)
    other = folder.parent / "other"
    save_qwen(other, seed=1)
    first, second = (load(name, base=str(base)) for base in (folder, other))
    assert type(first) is Qwen3ForCausalLM
    assert not torch.allclose(logits(first), logits(second))
    assert not torch.allclose(logits(first), logits(load(folder)))
    assert model_revision(name, base=str(folder)) != model_revision(name, base=str(other))


@pytest.mark.filterwarnings("error::FutureWarning")
def test_an_adapter_is_loaded_without_warnings_of_libraries(folder, adapter):
    load(str(adapter), base=str(folder))


def test_the_strength_multiplies_the_change_of_the_weights(folder, adapter, tmp_path):
    def weights(strength):
        return load(adapter, base=str(folder), adapter_strength=strength).model.layers[0].self_attn.q_proj.weight

    base = load(folder).model.layers[0].self_attn.q_proj.weight
    torch.testing.assert_close(weights(0.25) - base, 0.25 * (weights(None) - base))
    torch.testing.assert_close(weights(1.0), weights(None))
    with pytest.raises(InputError, match="^adapter_strength: "):
        load(folder, adapter_strength=0.5)
    shutil.copytree(adapter, tmp_path / "more")
    file = tmp_path / "more" / "adapter_config.json"
    config = json.loads(file.read_text())
    for field, value in {"modules_to_save": ["lm_head"], "bias": "all", "init_lora_weights": "pissa"}.items():
        file.write_text(json.dumps(config | {field: value}))
        with pytest.raises(InputError, match="^adapter_strength: .*LoRA"):
            load(tmp_path / "more", base=str(folder), adapter_strength=0.5)


@pytest.mark.parametrize("targets", [["embed_tokens", "q_proj"], ["lm_head"]])
def test_an_adapter_of_one_of_two_layers_that_share_weights_changes_this_layer_only(tmp_path, targets):
    tied = Qwen3ForCausalLM(save_qwen(tmp_path / "base").config)
    tied.config.tie_word_embeddings = True
    tied.tie_weights()
    tied.save_pretrained(tmp_path / "base")
    base = Qwen3ForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    assert base.lm_head.weight is base.model.embed_tokens.weight
    model = get_peft_model(base, LoraConfig(target_modules=targets, init_lora_weights=False)).eval()
    model.save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    loaded = load(tmp_path / "adapter", base=str(tmp_path / "base"), dtype="float32")
    torch.testing.assert_close(logits(loaded), logits(model))
    loaded.save_pretrained(tmp_path / "exported")
    exported = Qwen3ForCausalLM.from_pretrained(tmp_path / "exported", dtype=torch.float32)
    assert torch.equal(logits(exported), logits(loaded))


def test_an_adapter_whose_base_cannot_be_made_again_is_refused(folder, adapter, tmp_path):
    shutil.copytree(adapter, tmp_path / "random")
    file = tmp_path / "random" / "adapter_config.json"
    for value in ("pissa_niter_16", "corda", "lora_ga"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"init_lora_weights": value}))
        with pytest.raises(InputError, match=f"^model: .*{value}.*path_initial_model"):
            load(tmp_path / "random", base=str(folder))


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_a_quantized_model_has_similar_logits_and_a_separate_adapter(folder, adapter, bits):
    pytest.importorskip("bitsandbytes")
    whole, quantized = load(folder, dtype="bfloat16"), load(folder, dtype="bfloat16", quantization=bits)
    assert is_quantized(quantized) and not is_quantized(whole)
    layer = quantized.model.layers[0].self_attn.q_proj
    assert layer.weight.element_size() == 1  # a byte has two weights of 4 bits, or one of 8
    assert layer.weight.numel() == whole.model.layers[0].self_attn.q_proj.weight.numel() // (2 if bits == "4bit" else 1)
    correlation = torch.corrcoef(torch.stack([logits(whole).flatten(), logits(quantized).flatten()]))[0, 1]
    assert correlation > 0.9
    adapted = load(adapter, base=str(folder), dtype="bfloat16", quantization=bits)
    assert type(adapted) is Qwen3ForCausalLM and not torch.equal(logits(adapted), logits(quantized))
