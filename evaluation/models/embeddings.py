"""Sentences → vectors, by sentence-transformers: any encoder in its layout, or a plain one with the mean over tokens.

The library does what becomes of the hidden states: pooling, then perhaps dense layers (LaBSE's, which paper 004 uses in
§5) and a normalisation. What it is lenient with is settled here: one commit for all files, no pickles, every weight
accounted for, and texts that are cut are counted.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import run_batches
from evenhand.evaluation.models.checkpoints import (
    FROM_PRETRAINED_ERRORS,
    check_tokenizer,
    checkpoint_settings,
    from_pretrained_arguments,
    load_weights,
    pad_with_eos,
    resolve_device,
)
from evenhand.evaluation.models.input_lengths import max_input_length
from evenhand.evaluation.models.revisions import (
    MODEL_FILES,
    MODULES_FILE,
    PICKLE_SUFFIXES,
    first_line,
    local_folder,
    model_revision,
    module_folders,
)
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard
from evenhand.evaluation.settings import CheckpointSettings

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

OPTIONAL_WEIGHTS = ("pooler.",)  # a layer that many checkpoints lack and no sentence's vector uses


@dataclass(frozen=True)
class SentenceEncoder:
    """An encoder in evaluation mode on its device. `revision` pins its files: the hub's commit, or a SHA-256."""

    model: "SentenceTransformer"
    name: str
    revision: str

    @property
    def longest(self) -> int:
        """Tokens that it reads, special ones and its prompt included."""
        return self.model.max_seq_length

    @property
    def prompt(self) -> str:
        """What it is to read before every text, "" for most."""
        return self.model.prompts.get(self.model.default_prompt_name) or ""


def load_sentence_encoder(model: CheckpointSettings | str) -> SentenceEncoder:
    """Load an encoder by model id or folder, from safetensors; without `modules.json`, with mean pooling.

    Raises:
        InputError: the name is no model, its weights are pickled or incomplete, its layout asks for code that is not
            the library's, or it is no encoder; it is to be quantized, or spread over devices.
    """
    settings = checkpoint_settings(model)
    for field in ("device_map", "quantization"):
        if (value := getattr(settings, field)) is not None:
            raise InputError(f"model.{field}: {value!r}; a sentence encoder runs whole on one device: leave it out.")
    device, revision = resolve_device(settings.device), model_revision(settings.name, settings.revision, settings.base)
    folder = local_folder(settings.name) or _download_model(settings, revision)
    _check_layout(settings, folder)
    encoder = _load_sentence_transformer(settings, folder, device)
    network, tokenizer = encoder.transformers_model, encoder.tokenizer
    if network is None or network.config.is_encoder_decoder:
        kind = "not a transformer" if network is None else f"an encoder-decoder ({network.config.model_type})"
        raise InputError(f"model: {settings.name} is {kind}; give an encoder.")
    check_tokenizer(settings.name, tokenizer, network.config)
    pad_with_eos(tokenizer, "model", settings.name)
    # Read once more to be sure of it: the library would fill missing weights with random numbers.
    weights = replace(settings, name=str(next(iter(module_folders(folder)), folder)), revision=None)
    load_weights(type(network), weights, optional=OPTIONAL_WEIGHTS)
    # A layout may promise more than there is.
    encoder.max_seq_length = min(encoder.max_seq_length, max_input_length(network))
    try:
        encoder.encode("a text", show_progress_bar=False)
    except KeyError:
        raise InputError(f"model: {settings.name} makes no vectors; its {MODULES_FILE} needs a pooling.") from None
    return SentenceEncoder(encoder, settings.name, revision)


def encode_texts(encoder: SentenceEncoder, texts: Sequence[str]) -> tuple[list[list[int]], np.ndarray]:
    """Return each text's token ids as the encoder reads them, (n,) lists, and whether it was cut to fit, bool (n,).

    Raises:
        InputError: a text has no tokens of its own, as a blank one.
    """
    if not texts:
        return [], np.zeros(0, dtype=bool)
    tokenizer = encoder.model.tokenizer
    read = [encoder.prompt + text for text in texts]
    # Said explicitly: a tokenizer's file may ask for a truncation and a padding of its own.
    plain = {"truncation": False, "padding": False, "return_attention_mask": False, "verbose": False}
    encoded = tokenizer(read, **plain, return_special_tokens_mask=True)
    for row, special in enumerate(encoded["special_tokens_mask"]):
        if all(special) or not texts[row].strip():
            raise InputError(f"texts: number {row}, {texts[row]!r}, has no tokens; leave out empty sentences.")
    ids = encoded["input_ids"]
    cut = np.array([len(each) > encoder.longest for each in ids])
    for row in np.flatnonzero(cut):
        ids[row] = tokenizer(read[row], truncation=True, max_length=encoder.longest)["input_ids"]
    return ids, cut


def sentence_embeddings(
    encoder: SentenceEncoder, texts: Sequence[str], *, batch_size: int = 64, shard: WorkShard = ALL_ROWS
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, batch by batch, the rows (r,) of texts and their vectors, float32 (r, h), until every text has one.

    Texts of the same tokens are run once and have exactly one vector. They come in a fixed order, the longest first, in
    batches of `batch_size` distinct texts at most; of a `share` there are its rows alone. A text longer
    than the encoder reads is cut; `encode_texts` says which are.

    Raises:
        InputError: before any work, if a text has no tokens or batch_size is less than 1.
    """
    if batch_size < 1:
        raise InputError(f"batch_size: {batch_size} is not at least 1.")
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for row, ids in enumerate(encode_texts(encoder, texts)[0]):
        rows_of.setdefault(tuple(ids), []).append(row)
    distinct = [rows_of[ids] for ids in sorted(rows_of, key=lambda ids: (len(ids), ids), reverse=True)]
    batches = run_batches(
        distinct,
        lambda rows: batch_size,
        lambda batch: _embed_batch(encoder, [texts[rows[0]] for rows in batch]),
        shard=shard,
        row_of=lambda rows: rows[0],
    )
    return (
        (np.concatenate(batch), np.repeat(vectors, [len(rows) for rows in batch], axis=0)) for batch, vectors in batches
    )


def _embed_batch(encoder: SentenceEncoder, texts: list[str]) -> np.ndarray:
    """Return the vectors of one batch, float32 (r, h)."""
    vectors = encoder.model.encode(texts, batch_size=len(texts), show_progress_bar=False, convert_to_numpy=True)
    return vectors.astype(np.float32, copy=False)


def _download_model(settings: CheckpointSettings, commit: str) -> Path:
    """Return the folder of a model on the hub at one commit, without what may hold a pickle."""
    from huggingface_hub import snapshot_download

    files = [*MODEL_FILES, *(["*.py"] if settings.trust_remote_code else [])]
    try:
        return Path(snapshot_download(settings.name, revision=commit, allow_patterns=files))
    except (OSError, ValueError) as error:
        raise InputError(
            f"model: the files of {settings.name} cannot be downloaded ({first_line(error)}); go online, or give a "
            "local folder."
        ) from None


def _check_layout(settings: CheckpointSettings, folder: Path) -> None:
    """Raise an InputError for what sentence-transformers would read with a warning at most."""
    for part in module_folders(folder)[1:]:
        if (
            any(file.suffix in PICKLE_SUFFIXES for file in part.glob("*"))
            and not (part / "model.safetensors").is_file()
        ):
            raise InputError(f"model: {part} has its weights in a pickle, which is refused; save it as safetensors.")
        config = part / "config.json"
        try:
            facts = json.loads(config.read_text(encoding="utf-8")) if config.is_file() else {}
        except ValueError as error:
            raise InputError(f"model: {config} is not JSON ({error}); save the model again.") from None
        activation = facts.get("activation_function", "torch.")
        if not (str(activation).startswith("torch.") or settings.trust_remote_code):
            raise InputError(
                f"model: {config} asks for the activation function {activation}, code that is not PyTorch's; set "
                "trust_remote_code if you trust it."
            )


def _load_sentence_transformer(
    settings: CheckpointSettings, folder: Path, device: torch.device
) -> "SentenceTransformer":
    from sentence_transformers import SentenceTransformer  # takes seconds, which no other measure need wait

    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)  # that a plain encoder is given the mean
    try:
        return SentenceTransformer(
            str(folder),
            device=str(device),
            trust_remote_code=settings.trust_remote_code,
            local_files_only=True,
            model_kwargs=from_pretrained_arguments(settings),
        ).eval()
    except (*FROM_PRETRAINED_ERRORS, TypeError, AttributeError) as error:
        why = first_line(error)
        raise InputError(f"model: {settings.name} cannot be loaded as a sentence encoder: {why}") from None
