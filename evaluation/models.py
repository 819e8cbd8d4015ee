"""Loads models and tokenizers, safely: from safetensors only, with every weight accounted for, or one clear error.

A name is a Hugging Face model id, a local folder, or a local folder with a PEFT adapter. `from_pretrained` is lenient
where a measurement must not be: it fills missing weights with random numbers, turns a masked model into a causal one,
and makes an empty tokenizer for a folder that has none, each with a warning at most.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import jinja2
import torch
from huggingface_hub.errors import HFValidationError
from peft import PeftModel
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.activations import NewGELUActivation
from transformers.models.auto import modeling_auto
from transformers.utils import cached_file
from transformers.utils.hub import extract_commit_hash
from transformers.utils.logging import disable_progress_bar

from evaluation.errors import InputError, unknown_name
from evaluation.files import sha256_of

disable_progress_bar()  # of loading weights: a bar for each small model hides the ones that matter

Kind = Literal["dialogue", "chat", "encoder_decoder"]

KINDS = ("auto", "dialogue", "chat", "encoder_decoder")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ADAPTER_CONFIG, OUR_FACTS = "adapter_config.json", "evenhand.json"
# Formats that are, or may hold, a pickle, which can run any code when it is read.
PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
# Everything that a model is read from; a README or a training log beside it is not part of it.
MODEL_FILES = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")
FROM_PRETRAINED_ERRORS = (OSError, ValueError, KeyError, RuntimeError, ImportError, HFValidationError, SafetensorError)
# What a checkpoint's generation config may say about responses: the ids of special tokens, and no decoding.
SPECIAL_TOKENS = (
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
)
# Named like BERT's, whose pretraining is a masked language model's; these tell replaced tokens from original ones.
DISCRIMINATORS = ("ElectraForPreTraining", "FunnelForPreTraining")


@dataclass(frozen=True)
class DialogueModel:
    """A model that answers, in evaluation mode on its device, with all that is needed to use it and to name it.

    `kind` says how a context is written: "dialogue" (DialoGPT: turns ended by EOS), "chat" (the tokenizer's template)
    or "encoder_decoder". `revision` is what `model_revision` returns; `control_tag` is the tag that the model is to be
    used with, "" if none.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    kind: Kind
    name: str
    revision: str
    control_tag: str = ""


def load_dialogue_model(
    name: str,
    *,
    revision: str | None = None,
    kind: str = "auto",
    dtype: str = "float32",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> DialogueModel:
    """Load a causal or encoder-decoder model with its tokenizer; an adapter is merged into its base.

    With kind "auto" an encoder-decoder model is one by its config, a model whose tokenizer has a chat template is a
    chat model, and any other a dialogue model; so is one whose template only ends each turn with EOS, as DialoGPT's
    does on the hub. `evenhand.json` beside the weights may name a `control_tag`.

    Raises:
        InputError: the name is no model, its weights are pickled or incomplete, the tokenizer is missing or does not
            fit, or the architecture is not that of a model which generates text.
    """
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    version, tag = model_revision(name, revision), _control_tag(name)
    model, tokenizer = _load(name, revision, DTYPES[dtype], trust_remote_code)
    if kind == "auto":
        kind = "chat" if tokenizer.chat_template and not _only_ends_turns(tokenizer) else "dialogue"
        kind = "encoder_decoder" if model.config.is_encoder_decoder else kind
    if (kind == "encoder_decoder") != bool(model.config.is_encoder_decoder):
        raise InputError(f"kind: {name} is not of kind {kind!r}; its architecture is {type(model).__name__}.")
    if kind == "chat" and not tokenizer.chat_template:
        raise InputError(f"kind: the tokenizer of {name} has no chat template; use kind 'dialogue'.")
    _prepare(name, model, tokenizer)
    return DialogueModel(model.to(best_device(device)).eval(), tokenizer, kind, name, version, tag)


@dataclass(frozen=True)
class MaskedModel:
    """A model that says what stands under a mask, in evaluation mode on its device; `revision` as `model_revision`."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str


def load_masked_model(
    name: str,
    *,
    revision: str | None = None,
    dtype: str = "float32",
    device: str = "auto",
    trust_remote_code: bool = False,
) -> MaskedModel:
    """Load a masked language model with its tokenizer; an adapter is merged into its base.

    Raises:
        InputError: the name is no model, its weights are pickled or incomplete, the tokenizer is missing, does not fit
            or has no mask token, or the architecture is not that of a masked language model.
    """
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    version = model_revision(name, revision)
    model, tokenizer = _load_masked(name, revision, DTYPES[dtype], trust_remote_code)
    return MaskedModel(model.to(best_device(device)).eval(), tokenizer, name, version)


def is_masked(name: str, revision: str | None = None, trust_remote_code: bool = False) -> bool:
    """Say whether a checkpoint, or the base of an adapter, is a masked language model by its config's architectures.

    Raises:
        InputError: the name is no model.
    """
    folder = local_folder(name)
    if folder is not None and (folder / ADAPTER_CONFIG).exists():
        return is_masked(*_base_of(folder), trust_remote_code)
    return _fills_masks(load_config(name, revision, trust_remote_code))


def model_revision(name: str, revision: str | None = None) -> str:
    """Return what pins a model's bytes: the hub's commit hash, or a SHA-256 over a local folder's model files.

    The hash of an adapter covers its base model's revision. No weights are loaded.

    Raises:
        InputError: the name is no model, or its weights are not in safetensors.
    """
    folder = local_folder(name)
    if folder is None:
        try:
            file = cached_file(name, "config.json", revision=revision)
        except FROM_PRETRAINED_ERRORS as error:
            raise InputError(
                f"model: {name!r} is neither a local folder nor a model id that can be reached ({_first_line(error)}) "
                "Give a folder with config.json and model.safetensors, or go online."
            ) from None
        return extract_commit_hash(file, None) or sha256_of(Path(file))
    digest = sha256_of(*sorted({file for pattern in MODEL_FILES for file in folder.glob(pattern)}))
    if (folder / ADAPTER_CONFIG).exists():
        digest = sha256(f"{digest} {model_revision(*_base_of(folder))}".encode()).hexdigest()
    return digest


def local_folder(name: str) -> Path | None:
    """Return the folder that `name` stands for, checked to hold safetensors; None if it is a model id on the hub.

    Raises:
        InputError: a path that is no folder, or a folder without weights that may be read.
    """
    path = Path(name).expanduser()
    if path.is_file():
        raise InputError(f"model: {name} is a file; give the folder that holds config.json and model.safetensors.")
    if not path.is_dir():
        if name.startswith((".", "/", "~")) or name.count("/") > 1 or "\\" in name:
            raise InputError(f"model: there is no folder {name}; give a model's folder or its id on the hub.")
        return None
    is_adapter = (path / ADAPTER_CONFIG).exists()
    if list(path.glob("adapter_model*.safetensors" if is_adapter else "model*.safetensors")):
        return path
    pickles = sorted(file.name for file in path.iterdir() if file.suffix in PICKLES and file.stem != "training_args")
    if pickles:
        how = "peft.PeftModel.from_pretrained" if is_adapter else "from_pretrained(..., use_safetensors=False)"
        raise InputError(
            f"model: {path / pickles[0]} may be a pickle, which can run any code when read, and is refused. If you "
            f"trust it, load it with {how} and write it with save_pretrained, which makes safetensors."
        )
    raise InputError(f"model: {name} is not a model: it holds no *.safetensors; give the folder of a saved model.")


def best_device(device: str) -> torch.device:
    """Return the device of this name; "auto" is a CUDA device where there is one, else the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device: {device!r} cannot be used ({_first_line(error)}); use 'auto' or 'cpu'.") from None


def load_config(name: str, revision: str | None, trust_remote_code: bool) -> PreTrainedConfig:
    """Return a model's config, or one error for whatever is wrong with it."""
    try:
        return AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=trust_remote_code)
    except FROM_PRETRAINED_ERRORS as error:
        raise InputError(f"model: the config of {name} cannot be read: {_first_line(error)}") from None


def load_weights(
    auto_class: Any, name: str, revision: str | None, dtype: torch.dtype, trust_remote_code: bool
) -> PreTrainedModel:
    """Return the model of an auto class with all its weights read from safetensors, in `dtype`.

    Raises:
        InputError: the weights cannot be read, or some of the model's are not among them.
    """
    hint = ""
    if local_folder(name) is None:
        # Of a branch without safetensors, transformers would have the hub convert the weights and load those. They are
        # not in the commit that the manifest and the adapter name, so no tuned model could be loaded again.
        revision = model_revision(name, revision)
        hint = (
            " If it has no safetensors, give the revision of a conversion (refs/pr/N on the hub), or, if you trust it, "
            "load it with from_pretrained(..., use_safetensors=False) and give the folder that save_pretrained writes."
        )
    try:
        # Without dtype a bfloat16 checkpoint stays bfloat16, on a CPU too.
        model, loaded = auto_class.from_pretrained(
            name,
            revision=revision,
            dtype=dtype,
            trust_remote_code=trust_remote_code,
            use_safetensors=True,
            output_loading_info=True,
        )
    except FROM_PRETRAINED_ERRORS as error:
        raise InputError(f"model: {name} cannot be loaded from safetensors: {_first_line(error)}{hint}") from None
    if lacking := sorted(loaded["missing_keys"]):
        raise InputError(
            f"model: {name} lacks {len(lacking)} of the weights of {type(model).__name__}, among them {lacking[0]}; "
            "it was saved from another kind of model."
        )
    return model


def load_tokenizer(
    name: str, revision: str | None, config: PreTrainedConfig, trust_remote_code: bool
) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer.

    Raises:
        InputError: there is none, or it has token ids that the model does not know.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision, trust_remote_code=trust_remote_code)
    except (*FROM_PRETRAINED_ERRORS, TypeError, AttributeError) as error:
        raise InputError(f"model: the tokenizer of {name} cannot be loaded: {_first_line(error)}") from None
    # Without its files, a tokenizer is made with special tokens alone and encodes every text as nothing.
    if not tokenizer("a text", add_special_tokens=False)["input_ids"]:
        raise InputError(f"model: {name} has no tokenizer; save it into the same folder with save_pretrained.")
    size = config.get_text_config().vocab_size
    # BlenderBot's tokenizers have a mask token that the models do not know; no text is made of it.
    if max(index for token, index in tokenizer.get_vocab().items() if token != tokenizer.mask_token) >= size:
        raise InputError(
            f"model: the tokenizer of {name} has {len(tokenizer)} tokens, the model only {size}; "
            "they do not belong together."
        )
    return tokenizer


def _load(
    name: str, revision: str | None, dtype: torch.dtype, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    folder = local_folder(name)
    if folder is not None and (folder / ADAPTER_CONFIG).exists():
        return _load_adapter(folder, dtype, trust_remote_code, _load)
    config = load_config(name, revision, trust_remote_code)
    seq2seq = bool(config.is_encoder_decoder)
    mapping = "SEQ_TO_SEQ_CAUSAL_LM" if seq2seq else "CAUSAL_LM"
    known = getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").values()
    known = {one for names in known for one in ((names,) if isinstance(names, str) else names)}
    architectures = config.architectures or []
    custom = trust_remote_code and hasattr(config, "auto_map")
    if architectures and not known.intersection(architectures) and not custom:
        raise InputError(
            f"model: {name} is a {', '.join(architectures)}, which does not generate text; give a causal or an "
            "encoder-decoder language model."
        )
    auto_class = AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM
    model = load_weights(auto_class, name, revision, dtype, trust_remote_code)
    return model, load_tokenizer(name, revision, model.config, trust_remote_code)


def _load_masked(
    name: str, revision: str | None, dtype: torch.dtype, trust_remote_code: bool
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    folder = local_folder(name)
    if folder is not None and (folder / ADAPTER_CONFIG).exists():
        return _load_adapter(folder, dtype, trust_remote_code, _load_masked)
    config = load_config(name, revision, trust_remote_code)
    if config.architectures and not _fills_masks(config):
        raise InputError(
            f"model: {name} is a {', '.join(config.architectures)}, which is not a masked language model; give one, or "
            "score with a causal model."
        )
    model = load_weights(AutoModelForMaskedLM, name, revision, dtype, trust_remote_code)
    tokenizer = load_tokenizer(name, revision, model.config, trust_remote_code)
    mask = tokenizer.mask_token_id
    if mask is None or mask >= model.config.get_text_config().vocab_size:
        raise InputError(
            f"model: the tokenizer of {name} has no mask token that the model knows; give a masked language model, or "
            "score with a causal model."
        )
    return model, tokenizer


def _fills_masks(config: PreTrainedConfig) -> bool:
    known = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return any(
        architecture.endswith("ForMaskedLM")
        # BERT's own checkpoints have the head for masks beside one for the next sentence.
        or (architecture.endswith("ForPreTraining") and config.model_type in known)
        for architecture in config.architectures or []
        if architecture not in DISCRIMINATORS
    )


def _load_adapter(
    folder: Path, dtype: torch.dtype, trust_remote_code: bool, load: Callable[..., Any]
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    base, revision = _base_of(folder)
    model, tokenizer = load(base, revision, dtype, trust_remote_code)
    try:
        model = PeftModel.from_pretrained(model, str(folder), use_safetensors=True).merge_and_unload()
    except FROM_PRETRAINED_ERRORS as error:
        raise InputError(f"model: the adapter {folder} does not fit {base}: {_first_line(error)}") from None
    if (folder / "tokenizer_config.json").exists():
        tokenizer = load_tokenizer(str(folder), None, model.config, trust_remote_code)
    return model, tokenizer


def _base_of(folder: Path) -> tuple[str, str | None]:
    """Return the name and revision of an adapter's base model; a path that is one from the adapter's folder is that."""
    try:
        settings = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8"))
        base = settings["base_model_name_or_path"]
        if not isinstance(base, str) or not base:
            raise KeyError("base_model_name_or_path")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"model: {folder / ADAPTER_CONFIG} names no base model ({error!r}); save it again.") from None
    beside = (folder / Path(base).expanduser()).resolve()
    return (str(beside) if beside.is_dir() else base), settings.get("revision")


def _control_tag(name: str) -> str:
    """Return the control tag in the evenhand.json beside a local model; "" if there is none."""
    path = Path(name).expanduser() / OUR_FACTS
    if not path.is_file():
        return ""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"model: {path} is not JSON ({error}); repair or remove it.") from None
    tag = facts.get("control_tag", "") if isinstance(facts, Mapping) else None
    if not isinstance(tag, str):
        raise InputError(f"model: {path} must be an object whose control_tag is a string; repair or remove it.")
    return tag


def _only_ends_turns(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Say whether the chat template writes every turn followed by EOS and nothing else."""
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    try:
        text = tokenizer.apply_chat_template(chat, tokenize=False)
    except jinja2.TemplateError:
        return False
    return text == f"a{tokenizer.eos_token}b{tokenizer.eos_token}"


def _prepare(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Settle special tokens, decoding defaults and the activation function, all in memory alone."""
    if tokenizer.eos_token_id is None:
        raise InputError(f"model: the tokenizer of {name} has no end-of-sequence token, so no response would end.")
    if tokenizer.pad_token_id is None:
        if model.config.is_encoder_decoder:
            raise InputError(f"model: the tokenizer of {name} has no padding token; save it with one.")
        # Safe for a decoder: padding is always masked, and EOS as a token of the text never is. An encoder-decoder
        # model may start its decoder from the padding token, so there it has a meaning.
        tokenizer.pad_token = tokenizer.eos_token
    if not model.config.is_encoder_decoder:
        tokenizer.padding_side = "left"  # so that the last column is every row's last token
    # A checkpoint's own decoding defaults (top_k 50, beams, blocked n-grams) would shape responses without a word in
    # the run's config.
    own = model.generation_config
    kept = {key: value for key in SPECIAL_TOKENS if (value := getattr(own, key, None)) is not None}
    kept.setdefault("eos_token_id", tokenizer.eos_token_id)
    kept.setdefault("pad_token_id", tokenizer.pad_token_id)
    model.generation_config = GenerationConfig(**kept)
    # One fused call for the same formula (the tanh approximation of GELU), where "gelu_new" makes seven.
    for module in list(model.modules()):
        for child_name, child in module.named_children():
            if isinstance(child, NewGELUActivation):
                setattr(module, child_name, torch.nn.GELU(approximate="tanh"))


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
