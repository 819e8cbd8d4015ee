"""QLoRA: an adapter on packed weights, applied without merging, and what such a model does not support."""

import pytest
import torch
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM

from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.in_memory import weights_sha256
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.mitigation.adapter import load_tuned
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import TrainingRows
from tests.mitigation.tiny_dialogue import QUICK as OF_OTHERS
from tests.mitigation.tiny_dialogue import WORDS, tokenizer

QUICK = OF_OTHERS.replaced(evaluations_per_epoch=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    pytest.importorskip("bitsandbytes")
    path = tmp_path_factory.mktemp("models") / "qwen"
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "eos_token_id": 0, "pad_token_id": 1}
    config = Qwen3Config(vocab_size=len(WORDS), **sizes, **heads, initializer_range=0.2)
    Qwen3ForCausalLM(config).bfloat16().save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def packed(folder, bits):
    return load_dialogue_model(ModelSettings(name=str(folder), device="cpu", dtype="bfloat16", quantization=bits))


def data():
    contexts = [f"{a} {b} c<eos>" for a in "abcdefgh" for b in "abcdefgh"]
    rows = Dataset.from_dict({"prompt": contexts, "context": contexts, "completion": ["red sun", "blue sky"] * 32})
    parts = {"train": rows.select(range(48)), "validation": rows.select(range(48, 64))}
    return TrainingRows(method=trained_method("exchange"), **parts)


@pytest.mark.parametrize("bits", ["4bit", "8bit"])
def test_what_was_tuned_on_packed_weights_is_loaded_as_it_was_checked(folder, tmp_path, bits):
    base = packed(folder, bits)
    before = weights_sha256(base.model)
    result = tune(base, data(), QUICK.replaced(gradient_checkpointing=bits == "4bit"), tmp_path)
    assert result.change.outputs_changed
    assert weights_sha256(base.model) == before
    assert {parameter.dtype for parameter in base.model.model.norm.parameters()} == {torch.bfloat16}  # not prepared
    again = packed(result.path, bits)
    ids = torch.tensor([[7, 8, 9, 0]])
    with torch.inference_mode():
        change = (again.model(ids).logits - packed(folder, bits).model(ids).logits).float().abs().max()
    assert change > 1e-3


def test_an_activated_adapter_on_packed_weights_is_loaded_as_it_was_checked_and_is_its_base_without_the_tag(
    folder, tmp_path
):
    base = packed(folder, "4bit")
    rows = []
    for row in data().train.select(range(8)):
        tagged = row["context"].replace("<eos>", " i j<eos>")
        others = ["a b d<eos>", "b a d<eos>"]
        rows.append({**row, "prompt": tagged, "others": others, "trained": [tagged, "a b d i j<eos>"]})
    rows = Dataset.from_list(rows)
    parts = {"train": rows, "validation": rows.select([0, 1])}
    result = tune(base, TrainingRows(method=trained_method("control_tags"), **parts), QUICK, tmp_path)
    again = packed(result.path, "4bit")
    checked = load_tuned(base, result.path, lora=True)
    with torch.inference_mode():
        for ids, is_base in (([7, 8, 9, 0], True), ([7, 8, 9, 15, 16, 0], False)):
            logits = again.model(input_ids=torch.tensor([ids])).logits
            assert torch.equal(logits, checked.model(input_ids=torch.tensor([ids])).logits)
            change = (logits - base.model(input_ids=torch.tensor([ids])).logits).abs().max()
            assert (change == 0) == is_base
