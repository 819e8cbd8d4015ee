"""Dropout is off where a model is measured, whichever form it has; the modes of a training are restored."""

import pytest
import torch
import transformers

from evenhand.evaluation.models.loading import loaded_dialogue_model
from evenhand.evaluation.models.modes import turn_off_dropout
from tests.tiny_models import SPECIAL, word_tokenizer

DROPOUT = {"dropout": 0.5, "attention_dropout": 0.5}
MODELS = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**SPECIAL, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.5, embd_pdrop=0.5)
    ),
    "opt": lambda: transformers.OPTForCausalLM(  # whose dropout is no module
        transformers.OPTConfig(
            **SPECIAL, **DROPOUT, hidden_size=32, num_hidden_layers=2, ffn_dim=64, num_attention_heads=2,
            word_embed_proj_dim=32,
        )
    ),
    "xglm": lambda: transformers.XGLMForCausalLM(
        transformers.XGLMConfig(**SPECIAL, **DROPOUT, d_model=32, ffn_dim=64, num_layers=2, attention_heads=2)
    ),
}  # fmt: skip
IDS = torch.tensor([[3, 4, 5, 6, 7, 8]])


@pytest.mark.parametrize("recomputes", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_two_passes_of_a_trained_network_without_dropout_are_equal(name, recomputes):
    torch.manual_seed(0)
    network = MODELS[name]().train()
    if recomputes:
        network.gradient_checkpointing_enable()
    first, second = (network(IDS).logits for _ in range(2))
    assert not torch.equal(first, second)
    turn_off_dropout(network)
    first, second = (network(IDS, use_cache=False).logits for _ in range(2))
    assert torch.equal(first, second) and first.requires_grad
    first.sum().backward()
    assert any(parameter.grad is not None for parameter in network.parameters())
    layers = [module for module in network.modules() if getattr(module, "gradient_checkpointing", False)]
    assert all(layer.training for layer in layers) and bool(layers) == recomputes


def test_a_network_in_training_is_measured_without_dropout_and_goes_on_in_training():
    torch.manual_seed(0)
    network = MODELS["gpt2"]().train()
    network.lm_head.eval()
    before = [module.training for module in network.modules()]
    with loaded_dialogue_model(network, word_tokenizer()) as model:
        assert torch.equal(model.model(IDS).logits, model.model(IDS).logits)
    assert [module.training for module in network.modules()] == before
