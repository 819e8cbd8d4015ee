"""Sentence embeddings by the library sentence-transformers; plain encoders get mean pooling.

The library computes pooling, dense layers (LaBSE, Costa-jussà et al. 2023, §5) and normalization. This module adds
checks: all files are from one commit, no file is a pickle, no weights are missing, and truncated texts are reported.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.evaluation.errors import InputError, require_extra
from evenhand.evaluation.hub import hub
from evenhand.evaluation.model_settings import CheckpointSettings
from evenhand.evaluation.models.batches import group_rows, max_input_length, run_batches
from evenhand.evaluation.models.checkpoints import (
    check_tokenizer,
    from_pretrained_arguments,
    load_weights,
    pad_with_eos,
    resolve_device,
)
from evenhand.evaluation.models.revisions import (
    PICKLE_SUFFIXES,
    first_line,
    local_folder,
    model_revision,
    module_folders,
)

DOWNLOADED = ("*.safetensors", "*.json", "*.jinja", "*.model", "*.txt")  # no file of them can be a pickle
OPTIONAL_WEIGHTS = ("pooler.",)  # many checkpoints lack this layer, and no embedding uses it


@dataclass(frozen=True)
class SentenceEncoder:
    """A SentenceTransformer in evaluation mode on its device; `revision` is the return value of `model_revision`."""

    model: Any
    name: str
    revision: str


def load_sentence_encoder(settings: CheckpointSettings) -> SentenceEncoder:
    """Load a sentence encoder from safetensors; a model without `modules.json` gets mean pooling.

    InputError if the name is not an encoder, weights are pickled or missing, or the layout needs code of its own.
    """
    require_extra("translation", "sentence_transformers", field="model")
    from sentence_transformers import SentenceTransformer  # takes seconds

    unavailable = {
        "device": settings.device_map,
        "quantization": settings.quantization,
        "adapter_strength": getattr(settings, "adapter_strength", None),
    }
    for field, value in unavailable.items():
        if value is not None:
            raise InputError(f"model.{field}", f"{value!r} is not available for a sentence encoder; leave it out.")
    device = resolve_device(settings.device)
    revision = model_revision(settings.name, settings.revision, settings.base)
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # no warning for mean pooling
    files = [*DOWNLOADED, *(["*.py"] if settings.trust_remote_code else [])]
    try:
        folder = local_folder(settings.name) or Path(
            hub().snapshot_download(settings.name, revision=revision, allow_patterns=files)
        )
        _check_layout(settings, folder)
        encoder = SentenceTransformer(
            str(folder),
            device=str(device),
            trust_remote_code=settings.trust_remote_code,
            local_files_only=True,
            model_kwargs=from_pretrained_arguments(settings),
        ).eval()
    except InputError:
        raise
    except Exception as error:  # damaged files lead to errors of all kinds
        reason = first_line(error)
        raise InputError("model", f"{settings.name} cannot be loaded as a sentence encoder: {reason}") from None
    network = encoder.transformers_model
    tokenizer = encoder.tokenizer
    if network is None or network.config.is_encoder_decoder:
        kind = "not a transformer" if network is None else f"an encoder-decoder ({network.config.model_type})"
        raise InputError("model", f"{settings.name} is {kind}; give an encoder.")
    check_tokenizer(settings.name, tokenizer, network.config)
    pad_with_eos(tokenizer, "model", settings.name)
    # The second reading raises an error for missing weights, which the library fills with random numbers.
    weights = settings.replaced(name=str(next(iter(module_folders(folder)), folder)), revision=None)
    load_weights(type(network), weights, optional=OPTIONAL_WEIGHTS)
    # The layout's limit may be larger than the network's number of positions.
    encoder.max_seq_length = min(encoder.max_seq_length, max_input_length(network))
    return SentenceEncoder(encoder, settings.name, revision)


def encode_texts(encoder: SentenceEncoder, texts: Sequence[str]) -> tuple[list[list[int]], np.ndarray]:
    """Return the token ids that the encoder reads of each text, (n,) lists, and which texts are truncated, (n,)."""
    if not texts:
        return [], np.zeros(0, dtype=bool)
    tokenizer = encoder.model.tokenizer
    prompt = encoder.model.prompts.get(encoder.model.default_prompt_name) or ""
    inputs = [prompt + text for text in texts]
    # Set explicitly, because a tokenizer's file may turn on truncation and padding.
    plain = {"truncation": False, "padding": False, "return_attention_mask": False, "verbose": False}
    encoded = tokenizer(inputs, **plain, return_special_tokens_mask=True)
    for row, special in enumerate(encoded["special_tokens_mask"]):
        if all(special) or not texts[row].strip():
            raise InputError("texts", f"number {row}, {texts[row]!r}, has no tokens; leave out empty sentences.")
    ids = encoded["input_ids"]
    limit = encoder.model.max_seq_length  # special tokens and the prompt included
    is_truncated = np.array([len(row) > limit for row in ids])
    for row in np.flatnonzero(is_truncated):
        ids[row] = tokenizer(inputs[row], truncation=True, max_length=limit)["input_ids"]
    return ids, is_truncated


def sentence_embeddings(
    encoder: SentenceEncoder, texts: Sequence[str], *, batch_size: int = 64
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the row indices (r,) and the embeddings, float32 (r, h), of r texts, batch by batch.

    Texts with equal tokens are computed once, the longest first; texts that are too long are truncated.
    """
    rows_of = group_rows(map(tuple, encode_texts(encoder, texts)[0]))
    distinct = [rows_of[ids] for ids in sorted(rows_of, key=lambda ids: (len(ids), ids), reverse=True)]

    def embed(batch: Sequence[list[int]]) -> np.ndarray:
        first = [texts[rows[0]] for rows in batch]
        vectors = encoder.model.encode(first, batch_size=len(first), show_progress_bar=False, convert_to_numpy=True)
        return vectors.astype(np.float32, copy=False)

    for batch, vectors in run_batches(distinct, lambda rows: batch_size, embed):
        yield np.concatenate(batch), np.repeat(vectors, [len(rows) for rows in batch], axis=0)


def _check_layout(settings: CheckpointSettings, folder: Path) -> None:
    """Raise an InputError if a module after the first has pickled weights or code outside PyTorch."""
    for part in module_folders(folder)[1:]:
        has_pickle = any(file.suffix in PICKLE_SUFFIXES for file in part.glob("*"))
        if has_pickle and not (part / "model.safetensors").is_file():
            raise InputError("model", f"{part} has pickled weights, which are unsafe; save them as safetensors.")
        config = part / "config.json"
        module = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
        activation = module.get("activation_function", "torch.")
        if not (str(activation).startswith("torch.") or settings.trust_remote_code):
            raise InputError("model", f"{config}: the activation function {activation} is code; set trust_remote_code.")
