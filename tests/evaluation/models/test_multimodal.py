"""Models that also read images are loaded for text; adapters stay out of towers and of Mamba's projections."""

import re

import pytest
import torch
import transformers
from peft import get_peft_model

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainer_configs import excluded_modules, lora_config
from tests.tiny_checkpoints import CHAT_THAT_CAN_THINK, HEADS, SIZES, save_model, save_tokenizer_with_bos

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
IDS = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
PATCHES = {"image_size": 16, "patch_size": 8}
QWEN_VISION = {
    **{"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32},
    **{"patch_size": 8, "num_position_embeddings": 16},
}
LLAMA4_VISION = {
    **{**VISION, "intermediate_size": 64, **PATCHES, "vision_output_dim": 16, "pixel_shuffle_ratio": 0.5},
    **{"projector_input_dim": 16, "projector_output_dim": 16},
}


def rope(*sections, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections), **more}}


LINEAR = {"layer_types": ["linear_attention", "full_attention"], **rope(2, 1, 1, partial_rotary_factor=0.5)}
LINEAR |= {f"linear_{name}": n for name, n in (("num_key_heads", 2), ("num_value_heads", 2))}
LINEAR |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}
# Of each architecture: the fields of the text model, of the vision model, and of both.
CONFIGS = {
    "Qwen3VL": (rope(2, 3, 3), {**QWEN_VISION, "deepstack_visual_indexes": [0]}, {}),
    "Qwen3_5": (LINEAR, QWEN_VISION, {}),
    "Mistral3": (
        {"model_type": "ministral3"},
        {"model_type": "pixtral", **VISION, **PATCHES, "head_dim": 8},
        {"image_token_index": 5},
    ),
    "Llama4": ({"intermediate_size_mlp": 32, "num_local_experts": 2}, LLAMA4_VISION, {}),
    "SmolVLM": ({"model_type": "llama"}, {**VISION, **PATCHES}, {"scale_factor": 2, "image_token_id": 5}),
    "Lfm2Vl": (
        {"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
        {**VISION, "num_patches": 16, "patch_size": 8},
        {"projector_hidden_size": 16, "image_token_id": 5},
    ),
    "Gemma3": ({"sliding_window": 16}, {**VISION, **PATCHES}, {"mm_tokens_per_image": 4, "image_token_index": 5}),
}
WITHOUT_TOWERS = ("Qwen3_5", "Llama4")  # transformers has a causal class of the text model
HYBRIDS = {
    "Mamba": {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2},
    "Mamba2": {
        "hidden_size": 32,
        "state_size": 8,
        "num_hidden_layers": 2,
        "num_heads": 4,
        "head_dim": 16,
        "n_groups": 1,
    },
    "FalconH1": {**SIZES, **HEADS, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_state": 8, "mamba_d_head": 8},
    "NemotronH": {
        **{**SIZES, **HEADS, "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 1},
        **{"hybrid_override_pattern": "M*-", "num_hidden_layers": 3},
    },
}


def build(folder, name):
    """Write a tiny checkpoint of a class ...ForConditionalGeneration with its tokenizer."""
    size = save_tokenizer_with_bos(
        folder, SPECIAL, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=CHAT_THAT_CAN_THINK
    )
    text, vision, both = CONFIGS[name]
    text = {"vocab_size": size, **SIZES, **HEADS, **IDS, **text}
    config = getattr(transformers, f"{name}Config")(text_config=text, vision_config=vision, **both)
    torch.manual_seed(0)
    save_model(folder, getattr(transformers, f"{name}ForConditionalGeneration")(config))
    return folder


@pytest.fixture(scope="module", params=CONFIGS)
def loaded(request, tmp_path_factory):
    return request.param, load_dialogue_model(
        str(build(tmp_path_factory.mktemp("model") / request.param, request.param))
    )


def test_a_multimodal_chat_model_answers_texts(loaded):
    name, model = loaded
    is_text_only = type(model.model).__name__ == f"{name}ForCausalLM"
    assert model.kind == "chat" and is_text_only == (name in WITHOUT_TOWERS)
    contexts = render_contexts(model, ["Hi there.", "I'm a grandmother."], ["", ""])
    answers = {}
    for size in (1, 2):  # a batch changes nothing
        for batch in generate_responses(
            model, contexts, [1, 2], {"do_sample": True, "max_new_tokens": 5}, batch_size=size
        ):
            for row, response in batch.items():
                answers.setdefault(row, []).append(response.text)
    assert all(first == second for first, second in answers.values()) and len(answers) == 2


def adapted_layers(network, **settings):
    model = get_peft_model(network, lora_config(network, TuningSettings(**settings)))
    return {name.partition(".lora_A")[0] for name, _ in model.named_modules() if name.endswith("lora_A")}


def test_an_adapter_stays_out_of_the_towers(loaded):
    name, model = loaded
    layers = adapted_layers(model.model)
    pattern = excluded_modules(model.model)
    assert layers and (pattern is None) == (name in WITHOUT_TOWERS)
    assert not [layer for layer in layers if re.search("vision|visual|projector|connector", layer)]
    if pattern is not None:
        chosen = lora_config(model.model, TuningSettings(peft={"exclude_modules": ["q_proj"]}))
        assert chosen.exclude_modules == {"q_proj"}


@pytest.mark.parametrize("name", HYBRIDS)
def test_an_adapter_fits_hybrids(name):
    """PEFT refuses the output projections of Mamba's layers."""
    config = getattr(transformers, f"{name}Config")(vocab_size=64, **IDS, **HYBRIDS[name])
    network = getattr(transformers, f"{name}ForCausalLM")(config)
    layers = adapted_layers(network)
    assert any("in_proj" in layer for layer in layers) and not any(layer.endswith("out_proj") for layer in layers)


def test_a_model_that_writes_no_text_is_refused(tmp_path):
    config = transformers.ViTConfig(**VISION, **PATCHES)
    save_tokenizer_with_bos(tmp_path, SPECIAL, eos_token="<|im_end|>")
    save_model(tmp_path, transformers.ViTForImageClassification(config))
    with pytest.raises(InputError, match="^model: "):
        load_dialogue_model(str(tmp_path))
