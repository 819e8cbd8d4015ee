"""Exact log-probabilities of the tokens of sentences under a masked language model.

Pair metrics mask one token at a time (Steinborn et al. 2022, §3.2). A batch has sentences of one length, so it needs
neither padding nor an attention mask, and the head over the vocabulary runs at the masked positions only. AUL and AULA,
which mask nothing, cost one pass for each distinct sentence.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import (
    activations_bytes,
    batch_size_limit,
    group_rows,
    logits_bytes,
    longest_first,
    max_input_length,
    run_batches,
)
from evenhand.evaluation.models.likelihood.tokens import check_not_nan
from evenhand.evaluation.models.loading import MaskedModel
from evenhand.evaluation.tables import label_batches


def tokenize_sentences(masked_model: MaskedModel, sentences: Sequence[str]) -> tuple[list[list[int]], list[list[bool]]]:
    """Return the token ids of each sentence, special tokens included, and whether each token is a special token."""
    encoded = masked_model.tokenizer(list(sentences), return_special_tokens_mask=True, verbose=False)
    ids = encoded["input_ids"]
    special = [[bool(flag) for flag in row] for row in encoded["special_tokens_mask"]]
    limit = max_input_length(masked_model.model)
    for index, (text, flags) in enumerate(zip(sentences, special, strict=True)):
        if all(flags) or len(flags) > limit:
            raise InputError("sentences", f"number {index}, {text[:40]!r}: {len(flags)} tokens; give 3 to {limit:.0f}.")
    return ids, special


def span_positions(
    masked_model: MaskedModel, sentences: Sequence[str], starts: Iterable[int], ends: Iterable[int]
) -> list[list[int]]:
    """Return, for each sentence, the positions of the tokens that overlap the characters start, …, end − 1."""
    offsets = masked_model.tokenizer(list(sentences), return_offsets_mapping=True)["offset_mapping"]
    positions = [
        [index for index, (begin, stop) in enumerate(spans) if begin < end and stop > max(start, begin)]
        for spans, start, end in zip(offsets, starts, ends, strict=True)
    ]
    for text, in_span in zip(sentences, positions, strict=True):
        if not in_span:
            raise InputError("sentences", f"the span of {text!r} has no token; check its start and end.")
    return positions


def word_indices(masked_model: MaskedModel, sentences: Sequence[str]) -> list[list[int | None]]:
    """Return the index of the word of each token, as the tokenizer divides a sentence; None for special tokens.

    Raises:
        InputError: the tokenizer does not tell the words of tokens.
    """
    encoded = masked_model.tokenizer(list(sentences), verbose=False)
    if not encoded.is_fast:
        raise InputError("whole_words", f"the tokenizer of {masked_model.name} does not tell words; leave it out.")
    return [encoded.word_ids(index) for index in range(len(sentences))]


def masked_tokens(
    sentences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    words: Sequence[Sequence[int | None]] | None = None,
) -> pd.DataFrame:
    """Return a row for each token that is masked: `ids` of its sentence, `position` and, if given, `words`."""
    rows = [(sentence, position) for sentence, masked in enumerate(positions) for position in masked]
    table = {
        "ids": pd.Series([sentences[sentence] for sentence, _ in rows], dtype=object),
        "position": pd.Series([position for _, position in rows], dtype=np.int64),
    }
    if words is not None:
        table["words"] = pd.Series([words[sentence] for sentence, _ in rows], dtype=object)
    return pd.DataFrame(table)


def score_masked_tokens(masked_model: MaskedModel, tokens: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield `log_p` of each of the `masked_tokens`, and `correct`, whether the token ranks first, batch by batch."""
    if tokens.empty:
        yield pd.DataFrame({"log_p": [], "correct": []})
        return
    words = tokens["words"].tolist() if "words" in tokens else None
    positions = [[position] for position in tokens["position"]]
    batches = masked_log_probabilities(masked_model, tokens["ids"].tolist(), positions, words)
    yield from label_batches(batches, ("log_p", "correct"), tokens.index)


def masked_log_probabilities(
    masked_model: MaskedModel,
    sentences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    words: Sequence[Sequence[int | None]] | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield batches of log p(token | rest of its sentence) for the tokens at `positions`, each masked separately.

    A row is one position of one sentence, in the order of `positions`; `sentences` are the token ids that
    `tokenize_sentences` returns. With `words` (`word_indices`), the other tokens of the same word are masked, too: p is
    not that of a piece which its word gives away (Steinborn et al. 2022, §5, example 6).

    Yields:
        rows (r,); the natural log-probability of each row's token, float64 (r,) in (−∞, 0]; and whether the model ranks
        that token first, bool (r,).
    """
    model = masked_model.model
    mask = int(masked_model.tokenizer.mask_token_id)
    rows = [(sentence, position) for sentence, masked in enumerate(positions) for position in masked]
    lengths = [len(sentences[sentence]) for sentence, _ in rows]

    @torch.inference_mode()
    def compute(batch: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        ids = torch.tensor([list(sentences[rows[index][0]]) for index in batch], device=model.device)
        masked = torch.tensor([rows[index][1] for index in batch], device=model.device)
        row = torch.arange(len(ids), device=model.device)
        gold = ids[row, masked]
        ids[row, masked] = mask
        if words is not None:
            is_same_word = []
            for index in batch:
                sentence, position = rows[index]
                is_same_word.append([word == words[sentence][position] for word in words[sentence]])
            ids[torch.tensor(is_same_word, device=model.device)] = mask
        with _project_positions(model, masked):
            logits = model(input_ids=ids).logits
        # The hook has no effect on encoders with an unusual output; then the logits have all positions.
        logits = (logits[:, 0] if logits.shape[1] == 1 else logits[row, masked]).float()
        log_p = logits.log_softmax(-1)[row, gold]
        return log_p.double().cpu().numpy(), (logits.argmax(-1) == gold).cpu().numpy()

    limit = batch_size_limit(model, lambda length: logits_bytes(model, 1) + activations_bytes(model, length))
    order = longest_first(lengths)
    for batch, scores in run_batches(order, lambda row: limit(lengths[row]), compute, group_key=lengths.__getitem__):
        log_p, is_top = scores
        yield np.array(batch, dtype=np.int64), check_not_nan(log_p, masked_model.name), is_top


def unmasked_log_probabilities(
    masked_model: MaskedModel,
    sentences: Sequence[Sequence[int]],
    special: Sequence[Sequence[bool]],
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the AUL and the AULA of sentences: mean log-probabilities of the tokens, none of which is masked.

    Kaneko and Bollegala (2021), "Unmasking the Mask", §3: AUL is the mean of log p(token | whole sentence) over the
    tokens of the sentence, without special tokens. AULA is the same mean of terms that are weighted by the attention
    that the token receives, averaged over layers, heads and querying positions. AULA is NaN for a model that does not
    return attention between all pairs of tokens. Equal sentences are computed once. Tokens that are `special` are not
    scored.

    Yields:
        rows (r,), indices of sentences; AUL (r,) and AULA (r,), natural logarithms, float64 in (−∞, 0].
    """
    model = masked_model.model
    config = model.config.get_text_config()
    groups = group_rows(map(tuple, sentences))
    distinct = list(groups)
    rows = list(groups.values())
    lengths = [len(ids) for ids in distinct]
    maps = (getattr(config, "num_hidden_layers", 0) or 0) * (getattr(config, "num_attention_heads", 0) or 0)

    @torch.inference_mode()
    def compute(batch: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        ids = torch.tensor([distinct[index] for index in batch], device=model.device)
        is_scored = ~torch.tensor([list(special[rows[index][0]]) for index in batch], device=model.device)
        implementation = model.config._attn_implementation
        model.set_attn_implementation("eager")  # the only implementation that returns attention weights
        try:
            output = model(input_ids=ids, output_attentions=True)
        finally:
            model.set_attn_implementation(implementation)
        # Position by position, because the whole log-softmax would be a second tensor as large as the logits.
        log_p = [
            output.logits[:, position].float().log_softmax(-1).gather(-1, ids[:, position, None])[:, 0]
            for position in range(ids.shape[1])
        ]
        log_p = torch.stack(log_p, dim=1).double() * is_scored
        aul = log_p.sum(1) / is_scored.sum(1)
        attentions = output.get("attentions")
        if not attentions or attentions[0].shape[-1] != ids.shape[1]:
            return aul.cpu().numpy(), np.full(len(ids), np.nan)
        received = torch.stack([layer.float().mean((1, 2)) for layer in attentions]).double().mean(0)
        return aul.cpu().numpy(), ((log_p * received).sum(1) / is_scored.sum(1)).cpu().numpy()

    # The attention maps of all layers are in memory at the same time.
    limit = batch_size_limit(
        model, lambda length: logits_bytes(model, length) + maps * length * length * model.dtype.itemsize
    )
    order = longest_first(lengths)
    for batch, scores in run_batches(order, lambda row: limit(lengths[row]), compute, group_key=lengths.__getitem__):
        aul, aula = scores
        counts = [len(rows[index]) for index in batch]
        yield (
            np.concatenate([rows[index] for index in batch]),
            check_not_nan(np.repeat(aul, counts), masked_model.name),
            np.repeat(aula, counts),
        )


@contextmanager
def _project_positions(model: PreTrainedModel, positions: torch.Tensor) -> Iterator[None]:
    """Within the context, reduce the encoder's output from (r, t, h) to one position a row, (r, 1, h), by a hook."""

    def select(_module: torch.nn.Module, _inputs: object, output: Any) -> Any:
        if not isinstance(output[0], torch.Tensor) or output[0].dim() != 3:
            return output
        selected = output[0][torch.arange(len(positions), device=positions.device), positions][:, None]
        if isinstance(output, tuple):
            return (selected, *output[1:])
        output[next(iter(output))] = selected
        return output

    handle = model.base_model.register_forward_hook(select)
    try:
        yield
    finally:
        handle.remove()
