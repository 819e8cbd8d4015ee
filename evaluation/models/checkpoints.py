"""Safe loading of configs, tokenizers and complete weights, from safetensors or GGUF files only.

Missing weights and an empty tokenizer, about which `from_pretrained` only warns, are InputErrors.
"""

import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import torch
import transformers
from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BitsAndBytesConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto import modeling_auto
from transformers.utils.hub import cached_file
from transformers.utils.logging import disable_progress_bar

from evenhand.evaluation.compat import config_values, gguf_read_once, lora_layers
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, require_extra
from evenhand.evaluation.hub import gated_message, is_gated
from evenhand.evaluation.model_settings import SPLITS, CheckpointSettings, ModelSettings
from evenhand.evaluation.models.activation import invocation_of
from evenhand.evaluation.models.chat_templates import accept_texts, read_template
from evenhand.evaluation.models.gguf_parts import join_parts
from evenhand.evaluation.models.precision import fast_dtype
from evenhand.evaluation.models.revisions import (
    CONFIG,
    adapter_base,
    adapter_folder,
    download,
    first_line,
    gguf_files,
    hub_repository,
    is_gguf,
    local_folder,
    local_path,
    model_revision,
)
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import working
from evenhand.evaluation.score import display_name
from evenhand.evaluation.settings import AUTO

if TYPE_CHECKING:  # slow to import where bitsandbytes is installed, and only adapters need it
    from peft import PeftConfig, PeftModel

log = logging.getLogger("evenhand")

disable_progress_bar()  # a bar for the weights of each small model would hide the bars of long computations

# Weights of an adapter with a row for each token of its tokenizer.
EMBEDDINGS = re.compile(
    r"(?:^|\.)(?:embed_tokens|wte|tok_embeddings|word_embeddings|embed_in|lm_head|embed_out|shared)"
    r"(?:\.modules_to_save(?:\.\w+)?)?\.weight$"
)
# Initialisations of LoRA that change the weights of the base in a way that loading the adapter does not repeat.
UNREPEATABLE = ("pissa_niter", "corda", "lora_ga")
BROKEN_WEIGHTS = "its weights are broken, perhaps by its training, or too large for its dtype."  # ends errors about NaN

MOST = {  # sizes above those of all models
    "num_hidden_layers": 2_000,
    "encoder_layers": 2_000,
    "decoder_layers": 2_000,
    "hidden_size": 1_000_000,
    "num_attention_heads": 100_000,
    "intermediate_size": 10_000_000,
    "vocab_size": 100_000_000,
}


def split_adapter(model: CheckpointSettings) -> tuple[Path | None, CheckpointSettings]:
    """Return the folder of an adapter with the settings of its base model; (None, model) for any other model."""
    folder = adapter_folder(model.name, model.revision, model.base)
    if folder is None:
        return None, model
    base, revision = adapter_base(folder, model.base, model.revision)
    strength = {"adapter_strength": None} if isinstance(model, ModelSettings) else {}
    return folder, model.replaced(name=base, revision=revision, base=None, **strength)


def load_network(
    model: CheckpointSettings, class_for: Callable[[CheckpointSettings, PreTrainedConfig], Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Return a loaded model and its tokenizer; an adapter is merged into its base model unless the base is quantized.

    An activated adapter (`activation`) is not merged either: the model is PEFT's, around its base.

    `class_for` returns the auto class for a model and its config. InputError if the name is not a model, its weights
    are pickled or incomplete, or its tokenizer is missing or does not fit.
    """
    folder, base = split_adapter(model)
    strength = getattr(model, "adapter_strength", None)
    if folder is None:
        if strength is not None:
            raise InputError("adapter_strength", f"{model.name} is not a folder of an adapter; leave it out.")
        config = load_config(model)
        log.info("loading %s, %s in %s", display_name(str(local_path(model.name))), config.model_type, model.dtype)
        with working(f"loading {display_name(model.name)}"):
            weights = load_weights(class_for(model, config), model, config=config if is_gguf(model.name) else None)
        return weights, load_tokenizer(model, weights.config)
    from peft import PeftModel

    config = adapter_config(folder, strength)
    weights, tokenizer = load_network(base, class_for)
    if invocation_of(weights) is not None:
        raise InputError("model", f"the base of {folder} is an activated adapter, on which no other can be loaded.")
    size = adapter_vocabulary(folder)
    if size is not None and size != weights.get_input_embeddings().weight.shape[0]:
        log.info("the adapter was trained with %d tokens: %s has as many now", size, base.name)
        weights.resize_token_embeddings(size, mean_resizing=False)
    try:
        with ignore_renamed_checkpointing():
            adapted = PeftModel.from_pretrained(weights, str(folder), config=config, use_safetensors=True)
        check_adapter_fits(folder, adapted)
        weights = _merged(adapted)
    except Exception as error:  # damaged files, and files for another model, lead to errors of all kinds
        reason = " ".join(str(error).split("\n")[:2])  # the first line has no details
        why = f"the adapter {folder} does not fit {base.name}: {reason}"
        raise InputError(f"model{'.base' if model.base else ''}", f"{why}") from None
    if (folder / "tokenizer_config.json").exists():
        tokenizer = load_tokenizer(model.replaced(name=str(folder), revision=None), weights.config)
    return weights, tokenizer


def _merged(adapted: "PeftModel") -> PreTrainedModel:
    """Return the network of an adapter, merged unless the adapter is an activated one or the weights are quantized."""
    if invocation_of(adapted) is not None:
        return adapted
    if is_quantized(adapted.get_base_model()):  # merging would round most of the adapter away
        return adapted.get_base_model()
    _untie_adapted_embeddings(adapted)
    return adapted.merge_and_unload(safe_merge=True)


def _untie_adapted_embeddings(adapted: "PeftModel") -> None:
    """Give the output layer weights of its own if an adapter changes it or the embeddings, whose weights it shares.

    An adapter changes one layer's output. Merged into weights that two layers share, it would change both.
    """
    network: Any = adapted.get_base_model()
    ends = (network.get_input_embeddings(), network.get_output_embeddings())
    weights = [getattr(getattr(layer, "base_layer", layer), "weight", None) for layer in ends]
    if weights[0] is not weights[1] or not set(ends) & set(lora_layers(network)):
        return
    output = ends[1]
    output = getattr(output, "base_layer", output)
    output.weight = torch.nn.Parameter(output.weight.detach().clone(), requires_grad=False)
    for config in (network.config, network.config.get_text_config()):
        config.tie_word_embeddings = False


def adapter_vocabulary(folder: Path) -> int | None:
    """Return the number of tokens in the embeddings that an adapter brings; None if it brings none.

    An adapter that was trained with added tokens has the whole embeddings and output layer (`modules_to_save`).
    """
    sizes = set()
    for file in folder.glob("adapter_model*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                if EMBEDDINGS.search(name):
                    sizes.add(tensors.get_slice(name).get_shape()[0])
    if len(sizes) > 1:
        raise InputError("model", f"the adapter {folder} has embeddings of {sorted(sizes)} tokens; save it again.")
    return sizes.pop() if sizes else None


@contextmanager
def ignore_renamed_checkpointing() -> Iterator[None]:
    """Ignore, inside the block, the warnings of transformers that `gradient_checkpointing` will have another name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*gradient_checkpointing.*", FutureWarning)
        yield


def check_adapter_fits(folder: Path, adapted: "PeftModel") -> None:
    """Raise ValueError if an adapter's file has weights that fit no layer, or lacks some; PEFT only warns."""
    from peft import get_peft_model_state_dict

    stored: set[str] = set()
    for file in folder.glob("adapter_model*.safetensors"):
        with safe_open(file, framework="pt") as tensors:
            stored.update(tensors.keys())
    needed = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    missing = sorted(needed - stored)
    unused = sorted(stored - needed - adapted.state_dict().keys())
    unused = [name for name in unused if not EMBEDDINGS.search(name)]  # PEFT files whole layers under several names
    faults = []
    if unused:
        faults.append(f"{len(unused)} of its {len(stored)} weights fit no layer, such as {unused[0]}")
    if missing:
        faults.append(f"it lacks {len(missing)} of {len(needed)} weights of its layers, such as {missing[0]}")
    if faults:
        raise ValueError("; ".join(faults))


def adapter_config(folder: Path, strength: float | None = None) -> "PeftConfig":
    """Return the config of the adapter in a folder, with its change of the weights multiplied by `strength`."""
    from peft import PeftConfig

    try:
        config = PeftConfig.from_pretrained(str(folder))
    except Exception as error:  # an unknown type is a KeyError, a missing field a TypeError
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise InputError("model", f"the config of the adapter {folder} cannot be read ({reason}).") from None
    initialization = str(getattr(config, "init_lora_weights", True))
    if initialization.startswith(UNREPEATABLE):
        raise InputError(
            "model",
            f"the adapter {folder} begins with {initialization}, which also changed the weights of its base, by random "
            "numbers or data that the folder lacks; save it with path_initial_model_for_weight_conversion of PEFT's "
            "save_pretrained.",
        )
    if strength is not None:
        check_strength(config, str(folder))
        config.lora_alpha *= strength
        config.alpha_pattern = {layer: alpha * strength for layer, alpha in config.alpha_pattern.items()}
    return config


def check_strength(config: "PeftConfig", name: str) -> None:
    """Raise InputError if an adapter, called `name` in the error, is not LoRA, or changes more than alpha scales."""
    from peft import LoraConfig

    is_lora = type(config) is LoraConfig and not config.use_dora and not isinstance(config.init_lora_weights, str)
    if not is_lora or config.modules_to_save or config.trainable_token_indices or config.bias != "none":
        raise InputError(
            "adapter_strength", f"{name} is not LoRA alone, and nothing else has a strength; leave it out."
        )


def load_config(model: CheckpointSettings) -> PreTrainedConfig:
    """Return a model's config; InputError if it cannot be read."""
    if is_gguf(model.name):
        require_extra("gguf", "gguf", field="model")
        return _gguf_config(model)
    if not local_path(model.name).exists():
        download(model.name, CONFIG, model.revision)
    return _read_config(model)


def _read_config(model: CheckpointSettings) -> PreTrainedConfig:
    with _location(model, f"the config of {model.name} cannot be read") as (name, options):
        config = AutoConfig.from_pretrained(name, **options)
        _check_sizes(config)
    return config


def _gguf_config(model: CheckpointSettings) -> PreTrainedConfig:
    """Return the config of a GGUF model, with the classes that `from_pretrained` would choose."""
    config = _read_config(model)
    config.architectures = _architectures(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, config.model_type)
    if config.is_encoder_decoder:
        names = modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES
        config.architectures = _architectures(names, config.model_type)
    config._name_or_path = model.name
    return config


def _architectures(names: Mapping[Any, str], model_type: str) -> list[str] | None:
    return [names[model_type]] if model_type in names else None


def _check_sizes(config: PreTrainedConfig) -> None:
    """Raise ValueError for sizes that no model has; a network of 100,000 layers would be built for hours."""
    architectures = config.architectures or []
    if not isinstance(architectures, list) or not all(isinstance(name, str) for name in architectures):
        raise ValueError(f"architectures is {architectures!r}, not a list of names")
    for part in (config, config.get_text_config()):
        for name, most in MOST.items():
            for value in config_values(part, name):
                if not (type(value) is int and 1 <= value <= most):
                    raise ValueError(f"{name} is {value!r}, not a whole number from 1 to {most:,}")


@contextmanager
def _location(model: CheckpointSettings, failure: str, hint: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name and the options of a model for `from_pretrained`; errors in the context become InputErrors."""
    try:
        if not is_gguf(model.name):
            options = {"revision": model.revision, "trust_remote_code": model.trust_remote_code}
            yield str(local_path(model.name)), options
            return
        require_extra("gguf", "gguf", field="model")
        paths = gguf_files(model.name, model.revision)
        path = paths[0] if len(paths) == 1 else join_parts(paths)
        # transformers would combine the file with other files in its folder
        with gguf_read_once(), TemporaryDirectory() as folder:
            (Path(folder) / path.name).symlink_to(path.resolve())
            yield folder, {"gguf_file": path.name}
    except InputError:
        raise
    except Exception as error:  # damaged and hostile files lead to errors of all kinds
        if is_gated(error):
            raise InputError("model", gated_message(hub_repository(model.name) or model.name)) from None
        if is_gguf(model.name):
            fix = f"download it again, or serve it by llama-server and give {spelled('model.server')}"
            raise InputError("model", f"transformers cannot read {model.name}: {first_line(error)}; {fix}.") from None
        raise InputError("model", f"{failure}: {first_line(error)}{hint}") from None


def load_weights(
    auto_class: Any,
    model: CheckpointSettings,
    optional: tuple[str, ...] = (),
    config: PreTrainedConfig | None = None,
) -> PreTrainedModel:
    """Return a model of the class `auto_class` with all weights, from safetensors, or dequantized from a GGUF file.

    Weights whose names start with a prefix in `optional` may be missing. A given `config` is not read again.
    """
    revision = model.revision
    hint = ""
    if not is_gguf(model.name) and local_folder(model.name) is None:
        # For a branch without safetensors, transformers would load weights that the hub converts. Converted weights are
        # not in the commit that manifest and adapter record, so tuned models could not be loaded again.
        revision = model_revision(model.name, revision)
        hint = " If it has no safetensors, give a converted revision (refs/pr/N), or convert it by save_pretrained."
    source = model.replaced(revision=revision)
    arguments = {"output_loading_info": True, **from_pretrained_arguments(model)}
    if config is not None:
        arguments["config"] = config
    with _location(source, f"{model.name} cannot be loaded from safetensors", hint) as (name, options):
        network, loaded = auto_class.from_pretrained(name, **options, **arguments)
    if is_gguf(model.name):
        quantizer = getattr(network, "hf_quantizer", None)
        if quantizer is not None:  # transformers would refuse to train or save the model
            quantizer.remove_quantization_config(network)
        network.name_or_path = model.name  # not the temporary folder
        network.config._name_or_path = model.name
    missing = sorted(key for key in loaded["missing_keys"] if not key.startswith(optional))
    if missing:
        raise InputError(
            "model", f"{model.name} lacks {len(missing)} weights of {type(network).__name__}, such as {missing[0]}."
        )
    for module in network.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            # On CPUs with AVX512-BF16, bitsandbytes 0.50 repacks 4-bit weights at their first use, which rounds their
            # scales and blocks gradients.
            module.support_avx512bf16_for_cpu = False
    return network


def from_pretrained_arguments(model: CheckpointSettings) -> dict[str, Any]:
    """Return the arguments of `from_pretrained` for precision, devices, attention and quantization.

    Sources of quantization: Dettmers et al. 2022, LLM.int8() (8 bits); Dettmers et al. 2023, QLoRA, §3 (4 bits).
    """
    # Without this argument, a bfloat16 checkpoint would stay bfloat16, even on a CPU.
    dtype = getattr(torch, fast_dtype(resolve_device(model.device)) if model.dtype == AUTO else model.dtype)
    arguments: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
    if is_gguf(model.name):
        # Since 5.20, transformers computes with quantized weights if a kernel is installed; they cannot be trained.
        arguments["quantization_config"] = transformers.GgufConfig(dequantize=True)
    if model.attn_implementation is not None:
        arguments["attn_implementation"] = model.attn_implementation
    if model.device_map is not None:
        if processes.launched_world_size() > 1:
            raise InputError("model.device", "each process loads the model on one device; give auto.")
        arguments["device_map"] = model.device_map
    if model.quantization is not None:
        # bitsandbytes quantizes the weights on their final device.
        arguments["device_map"] = model.device_map or {"": resolve_device(model.device)}
        if model.quantization == "8bit":
            quantization = BitsAndBytesConfig(load_in_8bit=True)
        else:
            quantization = BitsAndBytesConfig(
                load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
            )
        arguments["quantization_config"] = quantization
    return arguments


def move_to_device(network: PreTrainedModel, model: CheckpointSettings) -> PreTrainedModel:
    """Return the network in evaluation mode on its device; do not move it if it is split or quantized."""
    is_placed = model.device_map is not None or model.quantization is not None
    if not is_placed:
        network = network.to(resolve_device(model.device))
    return network.eval()


def load_tokenizer(model: CheckpointSettings, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer; InputError if it is missing, or `check_tokenizer` rejects it."""
    with _location(model, f"the tokenizer of {model.name} cannot be loaded") as (location, options):
        tokenizer = AutoTokenizer.from_pretrained(location, **options)
        if tokenizer.chat_template is None and not is_gguf(model.name):
            tokenizer.chat_template = processor_template(location, model.revision)
    if is_gguf(model.name):
        tokenizer.name_or_path = model.name
    file = getattr(model, "chat_template", None)
    if file is not None:
        tokenizer.chat_template = read_template(file)
    if isinstance(tokenizer.chat_template, str):
        tokenizer.chat_template = accept_texts(tokenizer.chat_template)
    check_tokenizer(model.name, tokenizer, config)
    return tokenizer


def processor_template(location: str, revision: str | None) -> str | None:
    """Return the chat template in chat_template.json, where older processors of images have it; None if none."""
    path = cached_file(
        location,
        "chat_template.json",
        revision=revision,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        return None
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    template = content.get("chat_template") if isinstance(content, dict) else None
    return template if isinstance(template, str) else None


def check_tokenizer(name: str, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Raise an InputError if a tokenizer has no vocabulary, or token ids outside the model's vocabulary."""
    # From a folder without its files, transformers creates a tokenizer with special tokens and a mark for spaces only.
    words = tokenizer.get_vocab().keys() - set(tokenizer.all_special_tokens)
    if words <= {"▁"} or not tokenizer("a text", add_special_tokens=False)["input_ids"]:
        raise InputError("model", f"{name} has no tokenizer; save it into the same folder with save_pretrained.")
    size = config.get_text_config().vocab_size
    # Gemma 3's image token and BlenderBot's mask token are outside the models' vocabularies. Texts do not contain them,
    # unlike the tokens that `needed` lists and the tokens in a chat template.
    needed = {getattr(tokenizer, f"{use}_token") for use in ("bos", "eos", "unk", "sep", "pad", "cls")}
    unused = {
        index
        for index, token in tokenizer.added_tokens_decoder.items()
        if token.special and token.content not in needed and token.content not in str(tokenizer.chat_template)
    }
    if max(index for index in tokenizer.get_vocab().values() if index not in unused) >= size:
        raise InputError("model", f"the tokenizer of {name} has {len(tokenizer)} tokens, the model only {size}.")


def is_quantized(network: torch.nn.Module) -> bool:
    """Return whether a network's weights are quantized."""
    return bool(getattr(network, "is_quantized", False))


def pad_with_eos(tokenizer: PreTrainedTokenizerBase, field: str, name: str) -> None:
    """Set EOS as padding token if the tokenizer has no padding token; any token serves, because padding is masked."""
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise InputError(field, f"the tokenizer of {name} has no padding token; save it with one.")
        tokenizer.pad_token = tokenizer.eos_token


def resolve_device(device: str | dict[str, Any]) -> torch.device:
    """Return the torch device of a name; "auto" is a CUDA device, another one for each process, else the CPU.

    Of a model that is split over several devices, it is the first device.
    """
    if device == AUTO or isinstance(device, dict) or device in SPLITS:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and processes.launched_world_size() > 1:
        device = f"cuda:{int(os.environ['LOCAL_RANK']) % max(1, torch.cuda.device_count())}"
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:
        raise InputError("device", f"{device!r} cannot be used ({first_line(error)}); use 'auto' or 'cpu'.") from None
