"""The log-probabilities that a masked language model gives to the tokens of sentences, exactly, at the least cost.

Masked one at a time, as pair metrics ask (paper 001, §3.2): each masked position costs one pass through the encoder
over its own sentence and nothing else. Rows of one length go together, so that there is no padding and no attention
mask, and the head over the vocabulary runs at the masked position alone. With nothing masked (AUL and AULA), one pass
per distinct sentence.

Rows come in an order that the sentences alone decide: a killed run goes on at the row it had reached.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import activations_bytes, batch_size_limit, logits_bytes, run_batches
from evenhand.evaluation.models.likelihood.tokens import check_not_nan
from evenhand.evaluation.models.loading import MaskedModel
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard


def encode_sentences(masked_model: MaskedModel, sentences: Sequence[str]) -> tuple[list[list[int]], list[list[bool]]]:
    """Return each sentence's token ids, special tokens included, and which of them are special.

    Raises:
        InputError: a sentence has no tokens of its own, or more than the model has positions for.
    """
    encoded = masked_model.tokenizer(
        list(sentences),
        return_special_tokens_mask=True,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,
    )
    ids = encoded["input_ids"]
    special = [[bool(flag) for flag in row] for row in encoded["special_tokens_mask"]]
    room = longest_input(masked_model.model)
    for index, (text, flags) in enumerate(zip(sentences, special, strict=True)):
        if all(flags):
            raise InputError(
                f"sentences: number {index}, {text!r}, has no tokens for {masked_model.name}; give it some text."
            )
        if len(flags) > room:
            raise InputError(
                f"sentences: number {index}, {text[:40]!r}…, has {len(flags)} tokens with the special ones, "
                f"{masked_model.name} has room for {room:.0f}; shorten it or leave it out."
            )
    return ids, special


def span_positions(
    masked_model: MaskedModel, sentences: Sequence[str], starts: Sequence[int], ends: Sequence[int]
) -> list[list[int]]:
    """Return the positions of the tokens of the characters start … end − 1 of each sentence, as it is encoded.

    Raises:
        InputError: the tokenizer cannot say which characters a token stands for, or a span has no token.
    """
    if not masked_model.tokenizer.is_fast:
        raise InputError(f"model: the tokenizer of {masked_model.name} has no offsets; give one with a fast tokenizer.")
    offsets = masked_model.tokenizer(list(sentences), return_offsets_mapping=True)["offset_mapping"]
    found = [
        [place for place, (begin, stop) in enumerate(spans) if begin < end and stop > max(start, begin)]
        for spans, start, end in zip(offsets, starts, ends, strict=True)
    ]
    for text, places in zip(sentences, found, strict=True):
        if not places:
            raise InputError(f"sentences: no token of {text!r} stands in its span; check its start and end.")
    return found


def longest_input(model: PreTrainedModel) -> float:
    """Return how many tokens the model can read at once, special ones included; infinity where its config has no bound.

    RoBERTa and its kin count positions from behind the padding token's id, and have that many fewer than rows in
    their table.
    """
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return module.num_embeddings - module.padding_idx - 1
    return getattr(model.config, "max_position_embeddings", None) or np.inf


def masked_log_probabilities(
    masked_model: MaskedModel,
    sentences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    *,
    shard: WorkShard = ALL_ROWS,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, batch by batch, log p(token | the rest of its sentence) of the tokens at `positions`, each masked alone.

    A row is one position of one sentence; rows are numbered through in the order given, and come out by length, the
    longest first.

    Args:
        masked_model: the model and its tokenizer.
        sentences: token ids, special tokens included (`encode_sentences`), (n,) lists.
        positions: for each sentence, the positions to mask, (n,) lists.
        shard: of the rows; by default all.

    Yields:
        rows (r,), the natural log-probability of each row's token, float64 (r,) in (−∞, 0], and whether that token is
        the most probable one, bool (r,).
    """
    model, mask = masked_model.model, masked_model.tokenizer.mask_token_id
    rows = [(sentence, position) for sentence, places in enumerate(positions) for position in places]
    lengths = np.array([len(sentences[sentence]) for sentence, _ in rows], dtype=np.int64)

    def compute(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        chosen = [rows[row] for row in batch]
        ids = torch.tensor([list(sentences[sentence]) for sentence, _ in chosen], device=model.device)
        places = torch.tensor([position for _, position in chosen], device=model.device)
        return _score_masked(model, ids, places, mask)

    at_once = batch_size_limit(model, lambda length: logits_bytes(model, 1) + activations_bytes(model, length))
    order = np.argsort(-lengths, kind="stable")
    how = {"alike": lengths.item, "shard": shard}
    for batch, (log_p, correct) in run_batches(order, lambda row: at_once(lengths[row]), compute, **how):
        yield batch, check_not_nan(log_p, masked_model.name), correct


def unmasked_log_probabilities(
    masked_model: MaskedModel,
    sentences: Sequence[Sequence[int]],
    special: Sequence[Sequence[bool]],
    *,
    shard: WorkShard = ALL_ROWS,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, batch by batch, AUL and AULA of sentences of which nothing is masked.

    Kaneko and Bollegala (2021), "Unmasking the Mask", §3: AUL is the mean over the sentence's own tokens of
    log p(token | the whole sentence). AULA weights each term with the attention that its token receives, a mean over
    layers, heads and all querying positions, before it takes the same mean. AULA is NaN for a model that
    does not return attention from each token to each. A sentence that occurs several times is run once.

    Args:
        masked_model: the model and its tokenizer.
        sentences: token ids, special tokens included, (n,) lists.
        special: which of them are special tokens and do not count, (n,) lists.
        shard: of the rows; by default all.

    Yields:
        rows (r,), indices of sentences; AUL (r,) and AULA (r,), natural logarithms, float64 in (−∞, 0].
    """
    model, config = masked_model.model, masked_model.model.config.get_text_config()
    same: dict[tuple[int, ...], list[int]] = {}
    for row, ids in enumerate(sentences):
        same.setdefault(tuple(ids), []).append(row)
    distinct = list(same)
    lengths = np.array([len(ids) for ids in distinct], dtype=np.int64)
    rows_of = list(same.values())
    maps = (getattr(config, "num_hidden_layers", 0) or 0) * (getattr(config, "num_attention_heads", 0) or 0)

    def compute(batch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        ids = torch.tensor([distinct[index] for index in batch], device=model.device)
        counted = ~torch.tensor([list(special[rows_of[index][0]]) for index in batch], device=model.device)
        return _score_unmasked(model, ids, counted)

    # All layers' attentions are held at once.
    at_once = batch_size_limit(
        model, lambda length: logits_bytes(model, length) + maps * length * length * model.dtype.itemsize
    )
    order = np.argsort(-lengths, kind="stable")
    how = {"alike": lengths.item, "shard": shard, "row_of": lambda index: rows_of[index][0]}
    for batch, found in run_batches(order, lambda index: at_once(lengths[index]), compute, **how):
        times = [len(rows_of[index]) for index in batch]
        aul, aula = (np.repeat(values, times) for values in found)
        yield np.concatenate([rows_of[index] for index in batch]), check_not_nan(aul, masked_model.name), aula


@torch.inference_mode()
def _score_masked(
    model: PreTrainedModel, ids: torch.Tensor, places: torch.Tensor, mask: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return log p of the token at each row's place, and whether it is the most probable; ids (r, t), places (r,)."""
    row = torch.arange(len(ids), device=ids.device)
    gold = ids[row, places]
    masked = ids.clone()
    masked[row, places] = mask
    with _project_positions(model, places):
        logits = model(input_ids=masked).logits
    # A model whose encoder does not hand its output over in the usual way gives all positions.
    logits = (logits[:, 0] if logits.shape[1] == 1 else logits[row, places]).float()
    log_p = logits.log_softmax(-1)[row, gold]
    return log_p.double().cpu().numpy(), (logits.argmax(-1) == gold).cpu().numpy()


@contextmanager
def _project_positions(model: PreTrainedModel, places: torch.Tensor) -> Iterator[None]:
    """Let the model's own head see one position of each row: the encoder's output (r, t, h) becomes (r, 1, h)."""

    def keep(_module: torch.nn.Module, _inputs: Any, output: Any) -> Any:
        if not isinstance(output[0], torch.Tensor) or output[0].dim() != 3:
            return output
        kept = output[0][torch.arange(len(places), device=places.device), places][:, None]
        if isinstance(output, tuple):
            return (kept, *output[1:])
        output[next(iter(output))] = kept
        return output

    handle = model.base_model.register_forward_hook(keep)
    try:
        yield
    finally:
        handle.remove()


@torch.inference_mode()
def _score_unmasked(model: PreTrainedModel, ids: torch.Tensor, counted: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return AUL and AULA of each row; ids (r, t), counted (r, t) true at the tokens that count."""
    with _eager_attention(model):
        output = model(input_ids=ids, output_attentions=True)
    # One position after the other: a whole log-softmax would be a second tensor as large as the logits.
    log_p = torch.stack(
        [
            output.logits[:, place].float().log_softmax(-1).gather(-1, ids[:, place, None])[:, 0]
            for place in range(ids.shape[1])
        ],
        dim=1,
    ).double()
    aul = (log_p * counted).sum(1) / counted.sum(1)
    attentions = output.get("attentions")
    if not attentions or attentions[0].shape[-1] != ids.shape[1]:
        return aul.cpu().numpy(), np.full(len(ids), np.nan)
    received = torch.stack([layer.float().mean((1, 2)) for layer in attentions]).double().mean(0)
    aula = (log_p * received * counted).sum(1) / counted.sum(1)
    return aul.cpu().numpy(), aula.cpu().numpy()


@contextmanager
def _eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Have attention computed in the one way that can return its weights."""
    before = model.config._attn_implementation
    if before == "eager":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)
