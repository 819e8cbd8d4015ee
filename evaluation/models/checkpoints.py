"""Reads weights, configs and tokenizers safely: from safetensors only, every weight accounted for, or one clear error.

`from_pretrained` is lenient where a measurement must not be: it fills missing weights with random numbers, turns a
masked model into a causal one, and makes an empty tokenizer for a folder that has none, each with a warning at most.
"""

import os
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from huggingface_hub.errors import HFValidationError
from peft import PeftModel
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.revisions import adapter_base, first_line, is_adapter, local_folder, model_revision
from evenhand.evaluation.runs import processes
from evenhand.evaluation.settings import AUTO, CheckpointSettings

disable_progress_bar()  # of loading weights: a bar for each small model hides the ones that matter

FROM_PRETRAINED_ERRORS = (OSError, ValueError, KeyError, RuntimeError, ImportError, HFValidationError, SafetensorError)

# Why a model gives NaN, and what to do: the end of every error that says so.
BROKEN_WEIGHTS = "its weights are broken, perhaps by its training, or too large for its dtype."

# One description of a model; a plain string is its name, everything else by default.
ModelDescription = CheckpointSettings | str


def checkpoint_settings(model: ModelDescription) -> CheckpointSettings:
    """Return the description of a model that is described by settings or by its name alone."""
    return CheckpointSettings(name=model) if isinstance(model, str) else model


def load_network(
    model: CheckpointSettings, class_for: Callable[[CheckpointSettings, PreTrainedConfig], Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a model and its tokenizer, an adapter merged into its base.

    `class_for` returns the auto class for a model and its config, or raises InputError where the model is of a kind
    that cannot be used.

    Raises:
        InputError: the name is no model, its weights are pickled or incomplete, or the tokenizer is missing or does not
            fit.
    """
    folder = local_folder(model.name)
    if folder is not None:
        model = replace(model, name=str(folder))  # "~" is for us to resolve
    if folder is None or not is_adapter(folder):
        weights = load_weights(class_for(model, load_config(model)), model)
        return weights, load_tokenizer(model, weights.config)
    base, revision = adapter_base(folder, model.base, model.revision)
    weights, tokenizer = load_network(replace(model, name=base, revision=revision, base=None), class_for)
    try:
        adapted = PeftModel.from_pretrained(weights, str(folder), use_safetensors=True)
        # Merged into packed weights, most of an adapter would be rounded away.
        weights = adapted.get_base_model() if is_quantized(weights) else adapted.merge_and_unload(safe_merge=True)
    except FROM_PRETRAINED_ERRORS as error:
        reason = " ".join(str(error).split("\n")[:2])  # the first line only says that there are some
        why = f"the adapter {folder} does not fit {base}: {reason}"
        raise InputError(f"model{'.base' if model.base else ''}: {why}") from None
    if (folder / "tokenizer_config.json").exists():
        tokenizer = load_tokenizer(replace(model, revision=None), weights.config)
    return weights, tokenizer


def load_config(model: CheckpointSettings) -> PreTrainedConfig:
    """Return a model's config, or one error for whatever is wrong with it."""
    try:
        return AutoConfig.from_pretrained(
            model.name, revision=model.revision, trust_remote_code=model.trust_remote_code
        )
    except FROM_PRETRAINED_ERRORS as error:
        raise InputError(f"model: the config of {model.name} cannot be read: {first_line(error)}") from None


def load_weights(auto_class: Any, model: CheckpointSettings, optional: tuple[str, ...] = ()) -> PreTrainedModel:
    """Return the model of an auto class with all its weights read from safetensors.

    Weights whose names begin with one of `optional` may be missing.

    Raises:
        InputError: the weights cannot be read, or some of the model's are not among them.
    """
    revision, hint = model.revision, ""
    if local_folder(model.name) is None:
        # Of a branch without safetensors, transformers would have the hub convert the weights and load those. They are
        # not in the commit that the manifest and the adapter name, so no tuned model could be loaded again.
        revision = model_revision(model.name, revision)
        hint = (
            " If it has no safetensors, give the revision of a conversion (refs/pr/N on the hub), or, if you trust it, "
            "load it with from_pretrained(..., use_safetensors=False) and give the folder that save_pretrained writes."
        )
    try:
        network, loaded = auto_class.from_pretrained(
            model.name,
            revision=revision,
            trust_remote_code=model.trust_remote_code,
            output_loading_info=True,
            **from_pretrained_arguments(model),
        )
    except FROM_PRETRAINED_ERRORS as error:
        raise InputError(f"model: {model.name} cannot be loaded from safetensors: {first_line(error)}{hint}") from None
    if lacking := sorted(key for key in loaded["missing_keys"] if not key.startswith(optional)):
        raise InputError(
            f"model: {model.name} lacks {len(lacking)} of the weights of {type(network).__name__}, among them "
            f"{lacking[0]}; it was saved from another kind of model."
        )
    for module in network.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # bitsandbytes 0.50 repacks 4-bit weights where the CPU has AVX512-BF16, once they are first used: their
            # scales are rounded, and no gradient passes them any more.
            module.support_avx512bf16_for_cpu = False
    return network


def from_pretrained_arguments(model: CheckpointSettings) -> dict[str, Any]:
    """Return what `from_pretrained` is told of precision, devices, attention and quantization.

    Raises:
        InputError: bitsandbytes is wanted and not installed, there is no such device, or a map of devices is given to
            each of several processes.
    """
    # Without dtype a bfloat16 checkpoint stays bfloat16, on a CPU too.
    dtype = model.dtype if model.dtype == AUTO else getattr(torch, model.dtype)
    arguments: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
    if model.attn_implementation is not None:
        arguments["attn_implementation"] = model.attn_implementation
    if model.device_map is not None:
        if processes.launched_world_size() > 1:
            raise InputError(
                f"model.device_map: {model.device_map!r}; each of {processes.launched_world_size()} processes "
                "has its own model on one device: leave the map out, or start without a launcher."
            )
        arguments["device_map"] = model.device_map
    if model.quantization is not None:
        if find_spec("bitsandbytes") is None:
            raise InputError(
                f"model.quantization: {model.quantization!r} needs bitsandbytes; pip install 'evenhand[quantization]'."
            )
        # Weights are packed where they are to stay.
        arguments["device_map"] = model.device_map or {"": resolve_device(model.device)}
        arguments["quantization_config"] = _quantization_config(model)
    return arguments


def _quantization_config(model: CheckpointSettings) -> BitsAndBytesConfig:
    """Return how weights are packed: in 8 bits (Dettmers et al. 2022, LLM.int8()), or in 4 (2023, NF4 of QLoRA, §3)."""
    if model.quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    dtype = load_config(model).dtype if model.dtype == AUTO else getattr(torch, model.dtype)
    return BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype)


def move_to_device(network: PreTrainedModel, model: CheckpointSettings) -> PreTrainedModel:
    """Return the network in evaluation mode on the device that is asked for, if it was not put there as it was read."""
    placed = model.device_map is not None or model.quantization is not None
    return (network if placed else network.to(resolve_device(model.device))).eval()


def load_tokenizer(model: CheckpointSettings, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer.

    Raises:
        InputError: there is none, or it has token ids that the model does not know.
    """
    name = model.name
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            name, revision=model.revision, trust_remote_code=model.trust_remote_code
        )
    except (*FROM_PRETRAINED_ERRORS, TypeError, AttributeError) as error:
        raise InputError(f"model: the tokenizer of {name} cannot be loaded: {first_line(error)}") from None
    check_tokenizer(name, tokenizer, config)
    return tokenizer


def check_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Raise an InputError if a tokenizer knows no text, or has token ids that the model does not know."""
    # Without its files, a tokenizer is made with special tokens alone and a sign for a blank: every text is unknown.
    own = tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)
    if own <= {"▁"} or not tokenizer("a text", add_special_tokens=False)["input_ids"]:
        raise InputError(f"model: {name} has no tokenizer; save it into the same folder with save_pretrained.")
    size = config.get_text_config().vocab_size
    # Gemma 3's tokenizer has a token for images, and BlenderBot's one for masks, that the models do not know. No text
    # is made of these, unlike of those that begin, end and fill up texts, or that a chat template writes.
    needed = (getattr(tokenizer, f"{use}_token") for use in ("bos", "eos", "unk", "sep", "pad", "cls"))
    needed, template = {token for token in needed if token}, str(tokenizer.chat_template)
    unused = {
        index
        for index, token in tokenizer.added_tokens_decoder.items()
        if token.special and token.content not in needed and token.content not in template
    }
    if max(index for index in tokenizer.get_vocab().values() if index not in unused) >= size:
        raise InputError(
            f"model: the tokenizer of {name} has {len(tokenizer)} tokens, the model only {size}; "
            "they do not belong together."
        )


def is_quantized(network: torch.nn.Module) -> bool:
    """Return whether a network's weights are packed in few bits."""
    return bool(getattr(network, "is_quantized", False))


def pad_with_eos(tokenizer: PreTrainedTokenizerBase, field: str, name: str) -> None:
    """Give a tokenizer without a padding token its EOS for one: padding is always masked, so its meaning is none.

    Raises:
        InputError: it has no EOS either; `field` is the setting that the error names.
    """
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise InputError(f"{field}: the tokenizer of {name} has no padding token; save it with one.")
        tokenizer.pad_token = tokenizer.eos_token


def resolve_device(device: str) -> torch.device:
    """Return the device of this name; "auto" is a CUDA device where there is one, else the CPU.

    Of the processes on one machine each has another of its CUDA devices, as long as there are any.

    Raises:
        InputError: there is no such device.
    """
    if device == AUTO:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and processes.launched_world_size() > 1:
        device = f"cuda:{int(os.environ['LOCAL_RANK']) % max(1, torch.cuda.device_count())}"
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device: {device!r} cannot be used ({first_line(error)}); use 'auto' or 'cpu'.") from None
