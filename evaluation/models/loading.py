"""Loaders of dialogue models and masked language models with their tokenizers.

A model's name is a Hugging Face id, a local folder, a local folder with a PEFT adapter, or a GGUF file.
"""

import copy
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle
from transformers import (
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultimodalLM,
    AutoModelForSeq2SeqLM,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.activations import NewGELUActivation
from transformers.models.auto import modeling_auto

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import is_gguf
from evenhand.evaluation.model_settings import CheckpointSettings, ModelSettings
from evenhand.evaluation.models.activation import without_adapter
from evenhand.evaluation.models.chat_templates import check_chat_template, render_if_accepted
from evenhand.evaluation.models.checkpoints import (
    adapter_vocabulary,
    load_config,
    load_network,
    load_tokenizer,
    move_to_device,
    pad_with_eos,
    resolve_device,
    split_adapter,
)
from evenhand.evaluation.models.modes import evaluation_mode
from evenhand.evaluation.models.revisions import load_control_tag, local_path, model_revision

log = logging.getLogger("evenhand")

ModelKind = Literal["dialogue", "chat", "encoder_decoder"]

THE_MODEL = "the model in training"  # the name of a model that was not loaded by name
# The fields of a checkpoint's generation config that are used; decoding defaults are not, nor an EOS that is forced as
# the last token, which would hide that a response was cut.
SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id", "forced_bos_token_id")
# These detect replaced tokens; other classes ...ForPreTraining, such as BERT's, have a masked language model's head.
DISCRIMINATORS = ("ElectraForPreTraining", "FunnelForPreTraining")


@dataclass(frozen=True)
class DialogueModel:
    """A model that generates text, in evaluation mode on its device, with its tokenizer.

    Attributes:
        kind: the format of contexts: "dialogue" (DialoGPT: turns end with EOS), "chat" (the tokenizer's chat template)
            or "encoder_decoder".
        revision: the return value of `model_revision`.
        control_tag: the tag that the model was tuned with, "" if none.
        system_prompt: the text before every prompt, "" if none.
        reasoning: the start and end of its reasoning, if they are not known ones (`reasoning`).
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    kind: ModelKind
    name: str
    revision: str
    control_tag: str = ""
    system_prompt: str = ""
    reasoning: tuple[str, ...] = ()


@cache  # once for each model, although the stages of a loop load it again
def _note_missing_template(name: str) -> None:
    log.info(
        "%s has no chat template: prompts end with EOS, as DialoGPT's; a base model needs one (docs/real_models.md)",
        name,
    )


def load_dialogue_model(model: ModelSettings | str) -> DialogueModel:
    """Load a causal or encoder-decoder model with its tokenizer; of an adapter, see `load_network`.

    A causal model is a chat model if its tokenizer has a chat template that does more than end each turn with EOS (as
    DialoGPT's does), else a dialogue model. InputError if the model cannot be loaded or does not generate text.
    """
    model = ModelSettings(name=model) if isinstance(model, str) else model
    resolve_device(model.device)  # raises before weights are read
    name = model.name
    revision = model_revision(name, model.revision, model.base)
    tag = load_control_tag(name, model.revision, model.base)
    network, tokenizer = load_network(model, text_generation_class)
    kind = _checked_kind(network.config, tokenizer)
    if kind == "dialogue" and not tokenizer.chat_template:
        _note_missing_template(name)
    inner = without_adapter(network)
    _set_special_tokens(name, inner, tokenizer, kind)
    _fuse_activations(inner)
    _copy_head_input(inner)
    network = move_to_device(network, model)
    return DialogueModel(
        model=network,
        tokenizer=tokenizer,
        kind=kind,
        name=name,
        revision=revision,
        control_tag=tag,
        system_prompt=model.system_prompt or "",
        reasoning=tuple(model.reasoning or ()),
    )


@contextmanager
def loaded_dialogue_model(
    network: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    control_tag: str = "",
    system_prompt: str = "",
    reasoning: Sequence[str] | None = None,
) -> Iterator[DialogueModel]:
    """Yield a loaded network, such as a PEFT model in training, and its tokenizer as a DialogueModel.

    The network is in evaluation mode in the block, and has the mode and the generation config of before after it; the
    tokenizer is copied. The other arguments are attributes of `DialogueModel`.
    """
    tokenizer = copy.deepcopy(tokenizer)
    inner = without_adapter(network)
    generation_config = inner.generation_config
    kind = _context_format(tokenizer, inner.config)
    _set_special_tokens(THE_MODEL, inner, tokenizer, kind)
    hook = _copy_head_input(inner)
    try:
        with evaluation_mode(network):
            yield DialogueModel(
                model=network,
                tokenizer=tokenizer,
                kind=kind,
                name=THE_MODEL,
                revision="",
                control_tag=control_tag,
                system_prompt=system_prompt,
                reasoning=tuple(reasoning or ()),
            )
    finally:
        hook.remove()
        inner.generation_config = generation_config


def network_without_weights(model: CheckpointSettings, config: PreTrainedConfig) -> PreTrainedModel:
    """Return a network with this config and without weights, on the meta device."""
    with torch.device("meta"):
        return text_generation_class(model, config).from_config(config, trust_remote_code=model.trust_remote_code)


def load_without_weights(checkpoint: CheckpointSettings, model: ModelSettings) -> DialogueModel:
    """Return the tokenizer of a checkpoint, with a network that knows its sizes and special tokens, but no weights.

    It renders and encodes prompts and responses as the loaded model does.

    Args:
        checkpoint: the folder or repository with tokenizer and config.
        model: the settings with the system prompt and the markers of reasoning.

    Raises:
        InputError: a file is missing, or the model does not generate text.
    """
    config = load_config(checkpoint)
    tokenizer = load_tokenizer(checkpoint, config)
    kind = _checked_kind(config, tokenizer)
    network = network_without_weights(checkpoint, config)
    if not is_gguf(checkpoint.name):
        with suppress(OSError):  # a checkpoint without the file has the special tokens of its config
            network.generation_config = GenerationConfig.from_pretrained(
                str(local_path(checkpoint.name)), revision=checkpoint.revision or "main"
            )
    _set_special_tokens(checkpoint.name, network, tokenizer, kind)
    return DialogueModel(
        model=network,
        tokenizer=tokenizer,
        kind=kind,
        name=model.name,
        revision="",
        system_prompt=model.system_prompt or "",
        reasoning=tuple(model.reasoning or ()),
    )


def model_kind(model: ModelSettings) -> ModelKind:
    """Return the kind of a model, as `load_dialogue_model` determines it, without reading weights."""
    folder, base = split_adapter(model)
    if folder is not None and not (folder / "tokenizer_config.json").exists():
        return model_kind(base)
    config = load_config(base)
    if folder is None:
        return _checked_kind(config, load_tokenizer(model, config))
    config.get_text_config().vocab_size = adapter_vocabulary(folder) or config.get_text_config().vocab_size
    tokenizer = load_tokenizer(model.replaced(name=str(folder), revision=None), config)
    return _checked_kind(config, tokenizer)


def _checked_kind(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> ModelKind:
    if tokenizer.chat_template:
        check_chat_template(tokenizer)
    return _context_format(tokenizer, config)


def _context_format(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> ModelKind:
    if config.is_encoder_decoder:
        return "encoder_decoder"
    return "chat" if tokenizer.chat_template and not _only_ends_turns(tokenizer) else "dialogue"


@dataclass(frozen=True)
class MaskedModel:
    """A masked language model in evaluation mode on its device; `revision` is the return value of `model_revision`."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str


def load_masked_model(model: CheckpointSettings) -> MaskedModel:
    """Load a masked language model with its tokenizer, as `load_dialogue_model` loads models that generate text."""
    resolve_device(model.device)
    name = model.name
    revision = model_revision(name, model.revision, model.base)
    network, tokenizer = load_network(model, _masked_lm_class)
    mask = tokenizer.mask_token_id
    if mask is None or mask >= network.config.get_text_config().vocab_size:
        raise InputError("model", f"the tokenizer of {name} has no mask token in the model's vocabulary.")
    return MaskedModel(move_to_device(network, model), tokenizer, name, revision)


def is_masked_lm(model: CheckpointSettings) -> bool:
    """Return whether a model is a masked language model, by its config; an adapter has the config of its base model."""
    folder, base = split_adapter(model)
    return _has_masked_lm_head(load_config(base)) if folder is None else is_masked_lm(base)


def text_generation_class(model: CheckpointSettings, config: PreTrainedConfig) -> Any:
    """Return the auto class for a model that generates text: seq2seq for an encoder-decoder, else causal.

    A model that also reads images or sounds is loaded by the causal class of its type, without its towers, or, if
    transformers has none, whole.
    """
    mapping = "SEQ_TO_SEQ_CAUSAL_LM" if config.is_encoder_decoder else "CAUSAL_LM"
    known = _class_names(f"MODEL_FOR_{mapping}_MAPPING_NAMES")
    architectures = set(config.architectures or [])
    custom = model.trust_remote_code and hasattr(config, "auto_map")
    if not architectures or known & architectures or custom:
        return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    if config.is_encoder_decoder or not _class_names("MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES") & architectures:
        listed = ", ".join(sorted(architectures))
        raise InputError("model", f"{model.name} is a {listed}, which does not generate text.")
    is_causal = config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return AutoModelForCausalLM if is_causal else AutoModelForMultimodalLM


def _class_names(mapping: str) -> set[str]:
    """Return the names of the classes in one of transformers' mappings, whose values are names or several names."""
    values = getattr(modeling_auto, mapping).values()
    return {name for names in values for name in ((names,) if isinstance(names, str) else names)}


def _masked_lm_class(model: CheckpointSettings, config: PreTrainedConfig) -> Any:
    if config.architectures and not _has_masked_lm_head(config):
        raise InputError("model", f"{model.name} is a {', '.join(config.architectures)}, no masked language model.")
    return AutoModelForMaskedLM


def _has_masked_lm_head(config: PreTrainedConfig) -> bool:
    known = modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return any(
        architecture.endswith("ForMaskedLM")
        # BERT's original checkpoints have a masked language model's head and a next-sentence head.
        or (architecture.endswith("ForPreTraining") and config.model_type in known)
        for architecture in config.architectures or []
        if architecture not in DISCRIMINATORS
    )


def _only_ends_turns(tokenizer: PreTrainedTokenizerBase) -> bool:
    chat = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    return render_if_accepted(tokenizer, chat) == f"a{tokenizer.eos_token}b{tokenizer.eos_token}"


def turn_end(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids of the tokens that the chat template writes after an answer."""
    chat = [{"role": "user", "content": "a prompt"}, {"role": "assistant", "content": "an answer"}]
    text = render_if_accepted(tokenizer, chat)
    if text is None or "an answer" not in text:
        return []
    rest = text.rpartition("an answer")[2]
    return tokenizer(rest, add_special_tokens=False)["input_ids"]


def _set_special_tokens(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, kind: str) -> None:
    """Set the tokenizer's padding token and remove the decoding defaults from the model's generation config."""
    if tokenizer.eos_token_id is None:
        raise InputError("model", f"the tokenizer of {name} has no end-of-sequence token, so no response would end.")
    if tokenizer.pad_token_id is None and model.config.is_encoder_decoder:  # it may start decoding from padding
        raise InputError("model", f"the tokenizer of {name} has no padding token; save it with one.")
    pad_with_eos(tokenizer, "model", name)
    if not model.config.is_encoder_decoder:
        tokenizer.padding_side = "left"  # so that the last column has the last token of every row
    # A checkpoint's decoding defaults (top_k 50, beams, blocked n-grams) would change responses without a trace in the
    # run's config.
    defaults = model.generation_config
    settings = {key: getattr(defaults, key, None) for key in SPECIAL_TOKENS}
    settings = {key: value for key, value in settings.items() if value is not None}
    size = model.config.get_text_config().vocab_size
    for key, value in settings.items():
        ids = value if isinstance(value, list) else [value]
        if not all(type(index) is int and index < size for index in ids):
            raise InputError("model", f"{key} of {name} is {value!r}, and not the ids of tokens below {size:,}.")
    # Marian predicts padding unless its config forbids the token.
    padding = [[settings.get("pad_token_id", tokenizer.pad_token_id)]]
    if model.config.is_encoder_decoder and padding[0] in (defaults.bad_words_ids or []):
        settings["bad_words_ids"] = padding
    # A tuned model's tokenizer may end turns with another token than its base, and GGUF files have one EOS only.
    added = tokenizer.added_tokens_decoder
    ends = [token for token in turn_end(tokenizer) if token in added and added[token].special] if kind == "chat" else []
    stops = [*np.atleast_1d(settings.get("eos_token_id", [])).tolist(), tokenizer.eos_token_id, *ends[:1]]
    settings["eos_token_id"] = list(dict.fromkeys(map(int, stops)))
    # A config may name an ordinary token, such as 0, which is "!" of GPT-2; after a stop string it would be read.
    if not model.config.is_encoder_decoder or "pad_token_id" not in settings:
        settings["pad_token_id"] = tokenizer.pad_token_id
    model.generation_config = GenerationConfig(**settings)


def _fuse_activations(model: PreTrainedModel) -> None:
    """Replace a model's activation "gelu_new" by PyTorch's tanh approximation of GELU: one call instead of seven."""
    for module in list(model.modules()):
        for child_name, child in module.named_children():
            if isinstance(child, NewGELUActivation):
                setattr(module, child_name, torch.nn.GELU(approximate="tanh"))


def _copy_head_input(model: PreTrainedModel) -> RemovableHandle:
    """Make the input of a model's output layer contiguous, from now on until the handle is removed.

    Otherwise `torch.matmul` copies frozen weights for each row of a prompt: 7 GB for 128 rows and SmolLM2's vocabulary.
    """
    return model.get_output_embeddings().register_forward_pre_hook(
        lambda _, inputs: tuple(tensor.contiguous() for tensor in inputs)
    )
