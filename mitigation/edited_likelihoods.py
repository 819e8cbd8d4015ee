"""Log-likelihoods of responses by a model whose hidden states are mapped at the first tokens (`hidden_state_maps`)."""

from collections.abc import Sequence

import numpy as np
import torch

from evenhand.evaluation.models.batches import longest_first, max_positions, run_batches, tokens_per_pass
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.hidden_state_maps import Maps, edited, left_padded


def edited_log_likelihoods(
    model: DialogueModel,
    maps: Maps,
    strength: float,
    heads: Sequence[list[int]],
    tails: Sequence[list[int]],
) -> tuple[np.ndarray, np.ndarray]:
    """Return log p(tail | head) of each row in nats, (n,), and the number of tokens of the tail, (n,).

    The maps act at the first tokens of the tail; without maps, nothing is edited. A row that is too long for the model
    has NaN, as of `pair_log_likelihoods`.
    """
    n_edited = len(next(iter(maps.values())).mean) if maps else 0
    lengths = [len(head) + len(tail) for head, tail in zip(heads, tails, strict=True)]
    limit = max_positions(model.model.config)
    order = [row for row in longest_first(lengths) if lengths[row] <= limit]
    total = np.full(len(heads), np.nan)

    def compute(rows: Sequence[int]) -> list[float]:
        inputs = left_padded(model.model, [heads[row] + tails[row] for row in rows])
        length = inputs["input_ids"].shape[1]
        longest = max(len(tails[row]) for row in rows)
        with torch.inference_mode(), edited(model.model, maps, strength) as editor:
            if n_edited:
                begin = torch.tensor([length - len(tails[row]) - 1 for row in rows])
                # Columns after the end of a short response predict nothing that is scored.
                columns = (begin[:, None] + torch.arange(n_edited)).clamp(max=length - 1)
                editor.columns = columns.to(model.model.device)
            logits = model.model(**inputs, use_cache=False, logits_to_keep=longest + 1).logits[:, :-1]
            log_p = logits.float().log_softmax(-1)
            found = log_p.gather(-1, inputs["input_ids"][:, -longest:, None])[..., 0].double().cpu().numpy()
        return [values[longest - len(tails[row]) :].sum() for row, values in zip(rows, found, strict=True)]

    for rows, sums in run_batches(order, lambda row: max(1, tokens_per_pass(model.model) // lengths[row]), compute):
        total[rows] = sums
    return total, np.array([len(tail) for tail in tails])
