"""Sentences → vectors, by any Hugging Face encoder, or one saved in the layout of sentence-transformers.

A plain encoder's vector of a sentence is the mean over its tokens. A folder with `modules.json` says otherwise what is
done with the tokens' hidden states: which pooling, then perhaps dense layers (LaBSE's, which paper 004 uses in §5) and
a normalisation. Only its JSON and safetensors files are read, and the few operations done here: none of its code runs.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModel, AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from evaluation.errors import InputError
from evaluation.files import sha256_of
from evaluation.likelihood.masked import room_of
from evaluation.models import (
    DTYPES,
    FROM_PRETRAINED_ERRORS,
    MODEL_FILES,
    best_device,
    is_masked,
    load_config,
    load_tokenizer,
    load_weights,
    model_revision,
)

MODULES, SETTINGS, PROMPTS = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
# What a plain encoder's modules.json would say; a pooling without a path is the mean.
PLAIN = [{"type": "Transformer", "path": ""}, {"type": "Pooling", "path": None}]
KINDS = ("Transformer", "Pooling", "Dense", "Normalize")
NORMALIZE = partial(nn.functional.normalize, dim=-1)
ACTIVATIONS = {"Tanh": nn.Tanh(), "Identity": nn.Identity()}
# Until release 5 a pooling was a flag of its own in 1_Pooling/config.json; several are put side by side in this order.
POOLING_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Hidden states (r, t, h) and mask (r, t, 1), with the padding on the right, to (r, h).
POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": lambda states, mask: (states * mask).sum(1) / mask.sum(1),
    "cls": lambda states, mask: states[:, 0],
    "max": lambda states, mask: states.masked_fill(mask == 0, -torch.inf).amax(1),
    "lasttoken": lambda states, mask: states[torch.arange(len(states)), mask[..., 0].sum(1) - 1],
}


@dataclass(frozen=True)
class SentenceEncoder:
    """An encoder in evaluation mode on its device, with all that makes one vector of a sentence's hidden states.

    pooling: names of POOLINGS, put side by side; after: what is done with the pooled vectors, in order; longest: tokens
    it reads, special ones included; lower_case: whether texts are lowered first. `revision` pins all of it: the hub's
    commit, or a SHA-256 over the model's files and those of its layout.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pooling: tuple[str, ...]
    after: tuple[Callable[[Tensor], Tensor], ...]
    longest: int
    lower_case: bool
    name: str
    revision: str


def load_sentence_encoder(
    name: str, *, revision: str | None = None, device: str = "auto", trust_remote_code: bool = False
) -> SentenceEncoder:
    """Load an encoder by model id or folder, in float32 from safetensors; without `modules.json`, with mean pooling.

    Raises:
        InputError: the name is no model, its weights are pickled or incomplete, it is an encoder–decoder, or its
            layout asks for what is not done here.
    """
    folder = Path(name).expanduser()
    if not folder.is_dir():
        revision = model_revision(name, revision)  # one commit for all files
    modules = _json(name, MODULES, revision) or PLAIN
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    unknown = [module["type"] for kind, module in zip(kinds, modules, strict=True) if kind not in KINDS]
    if unknown or kinds[:2] != ["Transformer", "Pooling"] or not set(kinds[2:]) <= {"Dense", "Normalize"}:
        raise InputError(
            f"model: the {MODULES} of {name} asks for {unknown[0] if unknown else ', '.join(kinds)}; give an encoder "
            "that is a Transformer, a Pooling and perhaps Dense and Normalize, or a plain encoder without that file."
        )
    source, settings = _transformer(name, modules[0]["path"], revision)
    config = load_config(source, revision, trust_remote_code)
    if config.is_encoder_decoder:
        raise InputError(f"model: {name} is an encoder-decoder ({config.model_type}); give an encoder.")
    version = model_revision(source, revision)
    if folder.is_dir() and modules is not PLAIN:
        beside = {file for one in modules[1:] for kind in MODEL_FILES for file in (folder / one["path"]).glob(kind)}
        version = sha256(f"{version} {sha256_of(folder / MODULES, *sorted(beside))}".encode()).hexdigest()
    # A masked language model's checkpoint lacks the weights of the layer that AutoModel would put behind its encoder.
    auto_class = AutoModelForMaskedLM if is_masked(source, revision, trust_remote_code) else AutoModel
    model = load_weights(auto_class, source, revision, DTYPES["float32"], trust_remote_code).base_model
    tokenizer = load_tokenizer(source, revision, config, trust_remote_code)
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token_id is None:
            raise InputError(f"model: the tokenizer of {name} has no padding token; save it with one.")
        tokenizer.pad_token = tokenizer.eos_token  # masked, so its meaning does not matter
    model = model.to(best_device(device)).eval()
    after = tuple(
        _dense(name, module["path"], revision).to(model.device) if kind == "Dense" else NORMALIZE
        for kind, module in zip(kinds[2:], modules[2:], strict=True)
    )
    return SentenceEncoder(
        model,
        tokenizer,
        _pooling(name, modules[1]["path"], revision),
        after,
        int(min(settings.get("max_seq_length") or np.inf, tokenizer.model_max_length, room_of(model))),
        bool(settings.get("do_lower_case")),
        name,
        version,
    )


def encode_texts(encoder: SentenceEncoder, texts: Sequence[str]) -> tuple[list[list[int]], np.ndarray]:
    """Return each text's token ids as the encoder reads them, (n,) lists, and whether it was cut to fit, bool (n,).

    Raises:
        InputError: a text has no tokens of its own, as a blank one.
    """
    texts = [text.lower() for text in texts] if encoder.lower_case else list(texts)
    if not texts:
        return [], np.zeros(0, dtype=bool)
    # Said explicitly: a tokenizer's file may ask for a truncation and a padding of its own.
    encoded = encoder.tokenizer(
        texts,
        truncation=False,
        padding=False,
        return_special_tokens_mask=True,
        return_attention_mask=False,
        verbose=False,
    )
    if empty := [row for row, special in enumerate(encoded["special_tokens_mask"]) if all(special)]:
        raise InputError(f"texts: number {empty[0]}, {texts[empty[0]]!r}, has no tokens; leave out empty sentences.")
    ids = encoded["input_ids"]
    cut = np.array([len(each) > encoder.longest for each in ids])
    for row in np.flatnonzero(cut):
        ids[row] = encoder.tokenizer(texts[row], truncation=True, max_length=encoder.longest)["input_ids"]
    return ids, cut


def sentence_embeddings(
    encoder: SentenceEncoder, texts: Sequence[str], *, batch_size: int = 64, first: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, batch by batch, the rows (r,) of texts and their vectors, float32 (r, h), until every text has one.

    Texts of the same tokens are run once and have exactly one vector. Batches come in a fixed order, the longest texts
    first; `first` of them are skipped, which is how a run goes on after a kill. A text longer than the encoder reads is
    cut; `encode_texts` says which are.

    Args:
        encoder: the encoder.
        texts: (n,) sentences.
        batch_size: distinct texts in a batch.
        first: batches to skip.

    Raises:
        InputError: before any work, if a text has no tokens or batch_size is less than 1.
    """
    if batch_size < 1:
        raise InputError(f"batch_size: {batch_size} is not at least 1.")
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for row, ids in enumerate(encode_texts(encoder, texts)[0]):
        rows_of.setdefault(tuple(ids), []).append(row)
    distinct = sorted(rows_of, key=lambda ids: (len(ids), ids), reverse=True)
    batches = [distinct[start : start + batch_size] for start in range(0, len(distinct), batch_size)]
    return (
        (np.concatenate([rows_of[ids] for ids in batch]), np.repeat(vectors, [len(rows_of[ids]) for ids in batch], 0))
        for batch in batches[first:]
        for vectors in [_vectors(encoder, batch)]
    )


@torch.inference_mode()
def _vectors(encoder: SentenceEncoder, batch: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the vectors of a batch of token ids, float32 (r, h)."""
    inputs = encoder.tokenizer.pad(
        {"input_ids": [list(ids) for ids in batch]},
        padding_side="right",  # a first token is the first, and a position counts from there
        return_attention_mask=True,
        return_tensors="pt",
    ).to(encoder.model.device)
    mask = inputs["attention_mask"]
    states = encoder.model(input_ids=inputs["input_ids"], attention_mask=mask).last_hidden_state.float()
    vectors = torch.cat([POOLINGS[name](states, mask[..., None]) for name in encoder.pooling], dim=-1)
    for step in encoder.after:
        vectors = step(vectors)
    return vectors.cpu().numpy()


def _transformer(name: str, path: str, revision: str | None) -> tuple[str, dict[str, Any]]:
    """Return where the encoder itself is, and the settings of its texts."""
    folder = Path(name).expanduser()
    if path and not folder.is_dir():
        raise InputError(f"model: {name} has its weights in {path}; download it and give the local folder.")
    prompt = (_json(name, PROMPTS, revision) or {}).get("default_prompt_name")
    if prompt is not None:
        raise InputError(
            f"model: {name} puts its prompt {prompt!r} before every text, which is not done here; set "
            f"default_prompt_name to null in a local copy's {PROMPTS}, and put the prompt into the texts."
        )
    return str(folder / path) if path else name, _json(name, _join(path, SETTINGS), revision) or {}


def _pooling(name: str, path: str | None, revision: str | None) -> tuple[str, ...]:
    """Return the names of a layout's poolings."""
    if path is None:
        return ("mean",)
    config = _json(name, _join(path, "config.json"), revision)
    if config is None:
        raise InputError(f"model: {name} has no {path}/config.json, which its {MODULES} names; save it again.")
    # Without a mode, and with no flag that is true, sentence-transformers takes the mean.
    modes = config.get("pooling_mode") or [mode for flag, mode in POOLING_FLAGS.items() if config.get(flag)] or "mean"
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    for mode in modes:
        if mode not in POOLINGS:
            raise InputError(f"model: {name} has the pooling {mode!r}; give an encoder with {', '.join(POOLINGS)}.")
    return modes


def _dense(name: str, path: str, revision: str | None) -> nn.Module:
    """Return a layout's linear layer with its activation function."""
    config = _json(name, _join(path, "config.json"), revision) or {}
    weights = _file(name, _join(path, "model.safetensors"), revision)
    activation = str(config.get("activation_function")).rpartition(".")[2]
    if activation not in ACTIVATIONS or config.get("use_residual") or weights is None:
        raise InputError(
            f"model: the layer {path} of {name} must have a model.safetensors, the activation function "
            f"{' or '.join(ACTIVATIONS)} (it has {activation}) and no residual; save it so, or give another encoder."
        )
    linear = nn.Linear(config["in_features"], config["out_features"], config.get("bias", True))
    try:
        linear.load_state_dict({key.removeprefix("linear."): value for key, value in load_file(weights).items()})
    except (RuntimeError, SafetensorError) as error:
        raise InputError(f"model: {weights} does not fit its config.json ({error}); save the model again.") from None
    return nn.Sequential(linear, ACTIVATIONS[activation]).requires_grad_(False)


def _json(name: str, path: str, revision: str | None) -> Any:
    """Return what a JSON file of a model holds, None if it has no such file."""
    file = _file(name, path, revision)
    try:
        return None if file is None else json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"model: {file} is not JSON ({error}); save the model again.") from None


def _file(name: str, path: str, revision: str | None) -> Path | None:
    """Return where a file of a model lies on this machine, None if the model has no such file."""
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder / path if (folder / path).is_file() else None
    try:
        found = cached_file(name, path, revision=revision, _raise_exceptions_for_missing_entries=False)
    except FROM_PRETRAINED_ERRORS as error:
        raise InputError(
            f"model: whether {name} has a {path} cannot be found out ({str(error).splitlines()[0]}); go online, or "
            "give a local folder."
        ) from None
    return found and Path(found)


def _join(path: str, file: str) -> str:
    return f"{path}/{file}" if path else file
