"""The likelihood of given responses to given contexts, and with it the perplexity of a dialogue model."""

from collections.abc import Callable, Sequence

import numpy as np
import torch

from evaluation.errors import InputError
from evaluation.generation import encode_contexts, encode_responses
from evaluation.models import DialogueModel

IGNORED = -100  # the label of a position that is not scored, as in torch's cross_entropy


@torch.inference_mode()
def response_perplexity(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    responses: Sequence[str],
    batch_size: int = 64,
    on_progress: Callable[[int], None] = lambda rows: None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return Σ log p and the number of tokens of each response followed by the end of sequence, given its context.

    Natural logarithms, float64 of shape (n,), and int64 of shape (n,). The perplexity of a corpus is
    e^(−Σ Σ log p / Σ tokens), the sums being over all its responses: a mean per token, and so in [1, ∞). The context
    is rendered (`evaluation.generation.render_contexts`) and is not scored; the response is encoded apart from it, as
    it comes about when it is generated. `on_progress` is called with the number of rows done since its last call.

    Raises:
        InputError: the lists differ in length, or a context with its response is too long for the model.
    """
    if len(contexts) != len(responses):
        raise InputError(f"responses: {len(responses)} for {len(contexts)} contexts; give one each.")
    tokenizer, model = dialogue_model.tokenizer, dialogue_model.model
    heads = encode_contexts(dialogue_model, contexts)
    tails = encode_responses(dialogue_model, responses)
    seq2seq = dialogue_model.kind == "encoder_decoder"
    _check_lengths(dialogue_model, heads, tails)
    log_likelihood = np.zeros(len(contexts))
    order = sorted(range(len(contexts)), key=lambda row: (len(heads[row]) + len(tails[row]), len(tails[row])))
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        labels = _padded([tails[row] for row in rows], IGNORED)
        if seq2seq:
            inputs = _padded([heads[row] for row in rows], tokenizer.pad_token_id)
            lengths = [len(heads[row]) for row in rows]
        else:
            inputs = _padded([heads[row] + tails[row] for row in rows], tokenizer.pad_token_id)
            labels = _padded([[IGNORED] * len(heads[row]) + tails[row] for row in rows], IGNORED)
            lengths = [len(heads[row]) + len(tails[row]) for row in rows]
        # Padding stands on the right, behind all that is scored, so a causal model never sees it.
        mask = (torch.arange(inputs.shape[1])[None] < torch.tensor(lengths)[:, None]).long()
        arguments = {"input_ids": inputs.to(model.device), "attention_mask": mask.to(model.device)}
        labels = labels.to(model.device)
        if seq2seq:
            logits = model(**arguments, labels=labels).logits  # the model shifts the labels to the right itself
        else:
            logits, labels = model(**arguments, use_cache=False).logits[:, :-1], labels[:, 1:]
        losses = torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none"
        )
        log_likelihood[rows] = -losses.view(labels.shape).double().sum(1).cpu().numpy()
        on_progress(len(rows))
    return log_likelihood, np.array([len(ids) for ids in tails], dtype=np.int64)


def _check_lengths(dialogue_model: DialogueModel, heads: list[list[int]], tails: list[list[int]]) -> None:
    room = getattr(dialogue_model.model.config, "max_position_embeddings", None) or np.inf
    for head, tail in zip(heads, tails, strict=True):
        longest = max(len(head), len(tail)) if dialogue_model.kind == "encoder_decoder" else len(head) + len(tail)
        if longest > room:
            raise InputError(
                f"responses: a context with its response has {longest} tokens, {dialogue_model.name} has room for "
                f"{room:.0f}; leave out long dialogues."
            )


def _padded(rows: list[list[int]], filler: int) -> torch.Tensor:
    """Return the rows as a tensor, filled up on the right."""
    width = max(map(len, rows))
    return torch.tensor([row + [filler] * (width - len(row)) for row in rows])
