"""Checks of a tuning's configuration before any weights are loaded, and a dry run on a tiny model.

TRL's trainers check some fields of their configs only when a trainer is built or computes a loss.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedConfig, PreTrainedTokenizerFast

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import load_config, resolve_device
from evenhand.evaluation.models.loading import DialogueModel, load_control_tag, model_kind, text_generation_class
from evenhand.evaluation.models.model_paths import is_gguf
from evenhand.evaluation.models.revisions import adapter_base, first_line, is_adapter, local_folder
from evenhand.evaluation.runs import processes
from evenhand.evaluation.score import LABEL
from evenhand.evaluation.settings import ModelSettings
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.training.arguments import lora_config, trainer_arguments
from evenhand.mitigation.training.callbacks import preserve_random_states, suppress_warnings
from evenhand.mitigation.training.fit import Training, build_trainer
from evenhand.mitigation.training.guards import check_single_gpu
from evenhand.mitigation.training.settings import OF_SIZE, TuningSettings
from evenhand.mitigation.training.trainers import load_trainer

# Stands for training rows, which are not labelled yet.
PLACEHOLDER_ROWS = Dataset.from_dict({LABEL: [True, False] * 500})
# Fields that affect the loss. Other fields may depend on the model, its tokenizer or the machine.
LOSS_FIELDS = {"discopop_tau", "f_alpha_divergence_coef", "f_divergence_type", "importance_sampling_level"}
LOSS_FIELDS |= {"label_smoothing", "ld_alpha", "loss_type", "loss_weights", "sync_ref_model"}
LOSS_FIELDS |= {"train_sampling_strategy", "use_weighting"}
ROWS = {"prompt": ["a", "b"], "context": ["a", "b"], "completion": ["c", "d"], "label": [True, False]}
ROWS |= {"chosen": ["c", "d"], "rejected": ["d", "c"], "others": [["b"], ["a"]]}
WITHOUT_FILES = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}


def check_tuning(model: ModelSettings, method: TrainedMethod, settings: TuningSettings, rounds: int = 1) -> None:
    """Raise InputError for a tuning that would fail with any rows. Only the model's config is read, no weights.

    Args:
        model: the model to measure and tune; its name is resolved (not "testbed").
        settings: the result of `with_defaults`.
        rounds: the number of tunings; each starts from the model that the tuning before returned.

    Raises:
        InputError: the trainer does not support encoder-decoder models; the base has another control tag; `peft` is set
            without `lora`, or the trainer needs `lora`; quantized weights would have to change; PEFT cannot put the
            adapter onto the model; `model.base` or `model.adapter_strength` is set; see also `check_single_gpu`,
            `trainer_arguments`, `lora_config` and `dry_run`.
    """
    if model.base is not None:
        raise InputError(
            f"model.base: {model.name} is an adapter that is measured on another base than it names, but a model tuned "
            f"from it would be loaded on the named base; write {model.base} into its adapter_config.json, and leave "
            "model.base out."
        )
    if model.adapter_strength is not None:
        raise InputError(
            f"model.adapter_strength: {model.adapter_strength:g} of {model.name}, but a model tuned from it would be "
            "loaded with all of it; export that strength (docs/mitigation.md), and tune the export."
        )
    config, is_adapted = _load_base_config(model)
    _check_trainable(model, config, method, settings, is_adapted or rounds > 1)
    device = resolve_device(model.device)
    has_device_map = model.device_map is not None or model.quantization is not None  # which is loaded by a device map
    check_single_gpu(device, has_device_map)
    trainer_arguments(load_trainer(method.TRAINER), settings, PLACEHOLDER_ROWS, device)
    if settings.lora:
        _check_adapter(model, config, settings)
    dry_run(method, settings, device)


def default_methods(model: ModelSettings) -> list[str]:
    """Return the methods of a loop without `methods`; `tune` uses the first one (docs/mitigation.md).

    A chat model loses relevance if it is trained only on responses to other people. TRL's DPO trainer does not support
    encoder-decoder models.

    Raises:
        InputError: the model's config or tokenizer cannot be read, or its chat template is broken.
    """
    kinds = {"chat": ["distill", "resample"], "encoder_decoder": ["exchange"], "dialogue": ["exchange", "dpo"]}
    return kinds[model_kind(model)]


def with_defaults(model: ModelSettings, method: TrainedMethod, settings: TuningSettings) -> TuningSettings:
    """Return the settings, with defaults for the method and for the model's size in place of null.

    Raises:
        InputError: the model's config cannot be read, or is not of a model that generates text.
    """
    settings = settings.with_method_defaults(method, n_parameters=None)
    if all(getattr(settings, name) is not None for name in OF_SIZE):
        return settings
    network = _without_weights(model, _load_base_config(model)[0])
    return settings.with_method_defaults(method, sum(parameter.numel() for parameter in network.parameters()))


def _check_trainable(
    model: ModelSettings, config: PreTrainedConfig, method: TrainedMethod, settings: TuningSettings, is_adapted: bool
) -> None:
    """Raise InputError for a model that the method cannot tune, and for contradictory settings.

    `is_adapted` is whether the model is an adapter, or becomes an adapter before it is tuned again.
    """
    name, trainer, module = model.name, method.TRAINER.upper(), load_trainer(method.TRAINER)
    base_tag, tag = load_control_tag(name), method.INFERENCE_TAG
    is_quantized = model.quantization is not None or getattr(config, "quantization_config", None) is not None
    if config.is_encoder_decoder and not module.SUPPORTS_ENCODER_DECODER:
        raise InputError(
            f"model: {name} is an encoder-decoder model, which TRL's {trainer} trainer does not support; give "
            "another method."
        )
    if base_tag and base_tag != tag:
        raise InputError(
            f"model: {name} was tuned with the control tag {base_tag!r}, and the method uses {tag!r}; use the same "
            "method again, or tune the model's base."
        )
    if settings.peft and not settings.lora:
        raise InputError(
            f"training.peft: {settings.peft} needs training.lora, which is false; leave training.peft out."
        )
    if module.NEEDS_LORA and not settings.lora:
        raise InputError(
            f"training.lora: false; the {trainer} trainer compares the model with itself without the adapter: use "
            "LoRA, or another method."
        )
    if is_quantized and not settings.lora:
        raise InputError(f"training.lora: false; the weights of {name} are quantized and cannot be trained: use LoRA.")
    if is_quantized and is_adapted:
        raise InputError(
            f"model.quantization: {name} is or becomes an adapter on a quantized base, into which it cannot be merged "
            "to be tuned again; use rounds 1, or no quantization."
        )


def _load_base_config(model: ModelSettings) -> tuple[PreTrainedConfig, bool]:
    """Return the config of a model, or of an adapter's base, and whether the model is an adapter."""
    folder = None if is_gguf(model.name) else local_folder(model.name)
    if folder is None or not is_adapter(folder):
        return load_config(model), False
    base, revision = adapter_base(folder, None, model.revision)
    return _load_base_config(replace(model, name=base, revision=revision))[0], True


def _without_weights(model: ModelSettings, config: PreTrainedConfig) -> torch.nn.Module:
    """Return a network with this config and without weights, on the meta device."""
    with torch.device("meta"):
        return text_generation_class(model, config).from_config(config, trust_remote_code=model.trust_remote_code)


def _check_adapter(model: ModelSettings, config: PreTrainedConfig, settings: TuningSettings) -> None:
    """Raise InputError if PEFT cannot put the adapter onto a network of this config; the network has no weights."""
    network = _without_weights(model, config)
    adapter = lora_config(network, model.name, settings)
    try:
        with suppress_warnings():
            get_peft_model(network, adapter, low_cpu_mem_usage=True)
    except (ValueError, TypeError) as error:
        raise InputError(f"training.peft: PEFT rejects it for {model.name}: {first_line(error)}") from None


@preserve_random_states()
def dry_run(method: TrainedMethod, settings: TuningSettings, device: torch.device) -> None:
    """Train on two rows with a method's trainer, if `settings` have fields of the loss or a batch size of 1.

    The dry run takes a second. It is omitted if several processes train together.

    Raises:
        InputError: the trainer rejects a value.
    """
    loss_fields = {name: value for name, value in settings.trainer.items() if name in LOSS_FIELDS}
    if processes.world_size() > 1 or not (loss_fields or settings.batch_size == 1):
        return
    trainer_module, base = load_trainer(method.TRAINER), _tiny_model(device)
    rewards = [_index_rewards] if method.rewards else []
    neutral = {"peft": {}, "lora_rank": 1, "optimizer": None, "epochs": 1, "gradient_accumulation_steps": 1}
    settings = replace(settings, trainer=loss_fields, **neutral)
    with tempfile.TemporaryDirectory() as folder, suppress_warnings():
        try:
            rows = trainer_module.encode_rows(base, Dataset.from_dict(ROWS), settings, 0)
            arguments = trainer_arguments(
                trainer_module, settings, rows, device, output_dir=Path(folder), **WITHOUT_FILES
            )
            lora = lora_config(base.model, base.name, settings) if settings.lora else None
            build_trainer(Training(base, trainer_module, rows, rows, settings, arguments, lora, rewards)).train()
        except InputError:
            raise
        except Exception as error:  # an unsuitable value may cause any error in the libraries
            field = f"trainer: {loss_fields}" if loss_fields else f"batch_size: {settings.batch_size}"
            message = f"TRL's {method.TRAINER.upper()} trainer rejects it: {first_line(error)}"
            raise InputError(f"training.{field}: {message}") from None


def _tiny_model(device: torch.device) -> DialogueModel:
    words = {word: index for index, word in enumerate(["<eos>", "<pad>", "<unk>", *"abcd"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = LlamaConfig(vocab_size=len(words), **sizes, bos_token_id=None, eos_token_id=0, pad_token_id=1)
    return DialogueModel(
        LlamaForCausalLM(config).to(device).eval(), tokenizer, "dialogue", "the model of the dry run", ""
    )


def _index_rewards(completions: Sequence[Any], **columns: Any) -> list[float]:
    return [float(index) for index in range(len(completions))]
