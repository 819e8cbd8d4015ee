"""How a model runs: its precision, attention and packing, and an adapter's base, each an error where it cannot be."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from pydantic import ValidationError
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models import checkpoints
from evenhand.evaluation.models.checkpoints import is_quantized
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.revisions import model_revision
from evenhand.evaluation.settings import ClassifierSettings, ModelSettings

WORDS = ["<eos>", "<unk>", *"abcdefgh"]
IDS = torch.tensor([[2, 3, 4, 5]])


def save_qwen(path, seed=0, hidden=64):
    torch.manual_seed(seed)
    sizes = {"hidden_size": hidden, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    config = Qwen3Config(vocab_size=len(WORDS), **sizes, **heads, eos_token_id=0, initializer_range=0.2)
    model = Qwen3ForCausalLM(config).bfloat16().eval()
    model.save_pretrained(path)
    words = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token="<eos>", unk_token="<unk>").save_pretrained(path)
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


def loaded(folder, **settings):
    return load_dialogue_model(ModelSettings(name=str(folder), device="cpu", **settings)).model


def test_auto_is_the_precision_of_the_checkpoint(folder):
    assert loaded(folder, dtype="auto").dtype == torch.bfloat16
    assert loaded(folder).dtype == torch.float32


def test_attention_is_computed_as_it_is_asked_for(folder):
    eager = loaded(folder, attn_implementation="eager")
    assert eager.config._attn_implementation == "eager"
    torch.testing.assert_close(logits(eager), logits(loaded(folder)))
    with pytest.raises(InputError, match="attn_implementation"):
        loaded(folder, attn_implementation="egar")


def test_an_adapter_is_loaded_onto_another_base_than_it_names(folder, adapter):
    name = str(adapter)
    with pytest.raises(InputError, match="somebody/gone"):
        load_dialogue_model(name)
    other = folder.parent / "other"
    save_qwen(other, seed=1)
    first, second = (loaded(name, base=str(base)) for base in (folder, other))
    assert type(first) is Qwen3ForCausalLM
    assert not torch.allclose(logits(first), logits(second))
    assert not torch.allclose(logits(first), logits(loaded(folder)))
    assert model_revision(name, base=str(folder)) != model_revision(name, base=str(other))


def test_a_base_that_does_not_fit_or_is_for_no_adapter_is_refused(folder, adapter, tmp_path):
    save_qwen(tmp_path / "wider", hidden=96)
    with pytest.raises(InputError, match=r"model\.base: .*wider: .*size mismatch"):
        loaded(adapter, base=str(tmp_path / "wider"))
    with pytest.raises(InputError, match=r"model\.base: .* adapter; leave it out"):
        loaded(folder, base=str(adapter))


@pytest.mark.parametrize("settings", [ModelSettings, ClassifierSettings])
def test_one_device_and_a_map_of_devices_are_too_many(settings):
    with pytest.raises(ValidationError, match=r"device: 'cuda:1' is one device and device_map 'auto' says"):
        settings(device="cuda:1", device_map="auto")


def test_a_device_map_places_the_model_by_itself(folder):
    model = load_dialogue_model(ModelSettings(name=str(folder), device_map={"": "cpu"})).model
    torch.testing.assert_close(logits(model), logits(loaded(folder)))


def test_quantization_without_its_extra_names_it(folder, monkeypatch):
    monkeypatch.setattr(checkpoints, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"model\.quantization: '4bit' needs bitsandbytes; pip install 'evenhand\[q"):
        loaded(folder, quantization="4bit")


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_a_packed_model_says_nearly_the_same_and_keeps_its_adapter_apart(folder, adapter, bits):
    pytest.importorskip("bitsandbytes")
    whole, packed = loaded(folder, dtype="bfloat16"), loaded(folder, dtype="bfloat16", quantization=bits)
    assert is_quantized(packed) and not is_quantized(whole)
    layer = packed.model.layers[0].self_attn.q_proj
    assert layer.weight.element_size() == 1  # two weights to a byte in 4 bits, one in 8
    assert layer.weight.numel() == whole.model.layers[0].self_attn.q_proj.weight.numel() // (2 if bits == "4bit" else 1)
    correlation = torch.corrcoef(torch.stack([logits(whole).flatten(), logits(packed).flatten()]))[0, 1]
    assert correlation > 0.9
    adapted = loaded(adapter, base=str(folder), dtype="bfloat16", quantization=bits)
    assert type(adapted) is Qwen3ForCausalLM and not torch.equal(logits(adapted), logits(packed))
