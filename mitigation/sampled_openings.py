"""Openings of responses that the model writes while it is trained, in place of those of the rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from evenhand.mitigation.training_batches import Batch, cut_responses


@torch.no_grad()
def sampled_openings(
    model: torch.nn.Module, sequences: Mapping[str, torch.Tensor], lengths: torch.Tensor, first_tokens: int
) -> torch.Tensor:
    """Return first tokens of a response to each context, sampled from the model's distribution, (rows, first_tokens).

    The model ends no response within its opening: stop tokens are never sampled. Random numbers are torch's, whose
    state is in the checkpoints.

    Args:
        sequences: input_ids, attention_mask and perhaps position_ids of a context with a response, (rows, t), padded on
            the left.
        lengths: the number of tokens of each response, (rows). A shorter response than the opening keeps its length:
            further tokens of its row mean nothing.
    """
    stops = torch.tensor(stop_ids(model), dtype=torch.long, device=lengths.device)
    written = {name: value[:, None] for name, value in sequences.items()}
    opening = torch.zeros(len(lengths), first_tokens, dtype=torch.long, device=lengths.device)
    for number in range(min(first_tokens, int(lengths.max()))):
        cut, _ = cut_responses(written, lengths, number + 1)  # whose last token is predicted
        flat: Batch = {name: value.flatten(0, 1) for name, value in cut.items()}
        logits = model(**flat, use_cache=False, logits_to_keep=2).logits[:, 0].float()
        logits[:, stops] = -torch.inf
        opening[:, number] = torch.multinomial(logits.softmax(-1), 1)[:, 0]
        written["input_ids"] = with_openings(written["input_ids"], opening[:, : number + 1], lengths)
    return opening


def stop_ids(model: torch.nn.Module) -> list[int]:
    """Return the ids of the tokens that end a response."""
    config: Any = model.generation_config
    ids = config.eos_token_id
    return [] if ids is None else np.atleast_1d(ids).tolist()


def with_openings(ids: torch.Tensor, opening: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Return sequences whose responses begin with other tokens.

    Args:
        ids: token ids or labels that end with the response, (rows, sequences, t).
        opening: the first tokens of each row, (rows, k); a response of fewer tokens gets the first of them.
        lengths: the number of tokens of each response, (rows).
    """
    number = torch.arange(ids.shape[-1], device=ids.device) - (ids.shape[-1] - lengths[:, None])  # in the response
    is_opening = (number >= 0) & (number < opening.shape[1])
    tokens = opening.gather(1, number.clamp(min=0, max=opening.shape[1] - 1))
    return torch.where(is_opening[:, None], tokens[:, None], ids)
