"""Σ log p of token sequences, each token given those before it, by a causal or an encoder-decoder model."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from evenhand.evaluation.models.loading import DialogueModel

IGNORED = -100  # the label of a position that is not scored, as in torch's cross_entropy


@torch.inference_mode()
def log_likelihoods(
    dialogue_model: DialogueModel,
    heads: Sequence[list[int]],
    tails: Sequence[list[int]],
    batches: Iterable[Sequence[int]],
) -> Iterator[tuple[Sequence[int], np.ndarray]]:
    """Yield, batch by batch, rows (r,) and Σ log p of each one's tail given its head, in nats, float64 (r,).

    An encoder-decoder model encodes the head; a causal one reads both in one sequence, the head unscored.
    """
    model, filler = dialogue_model.model, dialogue_model.tokenizer.pad_token_id
    for rows in batches:
        read, scored = [heads[row] for row in rows], [tails[row] for row in rows]
        encoder_decoder = dialogue_model.kind == "encoder_decoder"
        inputs = read if encoder_decoder else [head + tail for head, tail in zip(read, scored, strict=True)]
        # Padding stands on the right, behind all that is scored, so a causal model never sees it.
        arguments = {
            "input_ids": _padded(inputs, filler).to(model.device),
            "attention_mask": _padded([[1] * len(ids) for ids in inputs], 0).to(model.device),
        }
        if encoder_decoder:
            labels = _padded(scored, IGNORED).to(model.device)
            logits = model(**arguments, labels=labels).logits  # the model shifts the labels to the right itself
        else:
            labels = [[IGNORED] * len(head) + tail for head, tail in zip(read, scored, strict=True)]
            first = max(1, min(map(len, read)))  # nothing before it is scored in any row
            labels = _padded(labels, IGNORED)[:, first:].to(model.device)
            logits = model(**arguments, use_cache=False).logits[:, first - 1 : -1]
        losses = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
        )
        yield rows, -losses.view(labels.shape).double().sum(1).cpu().numpy()


def _padded(rows: Sequence[list[int]], filler: int) -> torch.Tensor:
    """Return the rows as a tensor, filled up on the right."""
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])
