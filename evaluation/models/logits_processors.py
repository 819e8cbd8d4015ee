"""Logits processors of `generate`: a check for NaN, n-gram blocking within the response, and seeded sampling by row.

Shapes: b rows, m new tokens, v tokens of the vocabulary.
"""

from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation import NoRepeatNGramLogitsProcessor

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import BROKEN_WEIGHTS

BLOCK = 256  # tokens that are summed together; about the square root of a large vocabulary


class RefuseNaN(LogitsProcessor):
    """Raises an InputError if a model's scores are NaN, because decoding would return arbitrary tokens."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if scores.amax(1).isnan().any():
            raise InputError(f"model: its probabilities are NaN; {BROKEN_WEIGHTS}")
        return scores


class ResponseNGramBlock(LogitsProcessor):
    """Forbids tokens that would repeat an n-gram of the response, which begins at position `start`.

    N-grams of the context may be repeated.
    """

    def __init__(self, size: int, start: int) -> None:
        self.block, self.start = NoRepeatNGramLogitsProcessor(size), start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.block(input_ids[:, self.start :], scores)


class SampleRows(LogitsProcessor):
    """Samples one token per row, and returns scores of 1 for the sampled tokens and 0 for all others.

    `uniforms` are random numbers in [0, 1), (b, m), one for each row and new token; responses begin at position
    `start`. Greedy decoding with these scores chooses the sampled tokens. All calls return the same tensor, because
    filling a new one takes as long as sampling.
    """

    def __init__(self, uniforms: torch.Tensor, start: int) -> None:
        self.uniforms, self.start = uniforms, start
        self.one_hot = self.tokens = torch.empty(0)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.one_hot.shape == scores.shape:
            self.one_hot.scatter_(1, self.tokens, 0.0)
        else:
            self.one_hot = torch.zeros_like(scores)
        self.tokens = _sample_tokens(scores, self.uniforms[:, input_ids.shape[1] - self.start])[:, None]
        return self.one_hot.scatter_(1, self.tokens, 1.0)


def sample_rows(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    generation_config: GenerationConfig,
    uniforms: torch.Tensor,
    **arguments: Any,
) -> torch.Tensor:
    """Return sampled token ids as `generate` does, but with separate random numbers for each row.

    `generate` calls this function as its `custom_generate`. Without it, the library samples from one random stream for
    the whole batch, so that a response depends on the other rows. The argument `logits_processor` of `generate` cannot
    change that, because temperature and the other warpers are applied later.
    """
    generation_config.do_sample = False
    processors = LogitsProcessorList([*logits_processor, SampleRows(uniforms, input_ids.shape[1])])
    return model._sample(input_ids, processors, generation_config=generation_config, **arguments)


def _sample_tokens(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return one sampled token per row by inverse transform sampling; scores (b, v), uniforms (b,) in [0, 1).

    The sampled token is the first whose cumulative probability exceeds the row's uniform number. The search is first
    over sums of BLOCK tokens, then within a block, because a cumulative sum over the vocabulary takes longer than the
    softmax. Sums are rounded, so that once in millions of draws the search ends at a token of probability 0 or after
    the last token. The most probable token is then returned.
    """
    probabilities = scores.softmax(1)
    n_rows, n_tokens = probabilities.shape
    n_full = n_tokens // BLOCK * BLOCK
    sums = [probabilities[:, :n_full].view(n_rows, -1, BLOCK).sum(2), probabilities[:, n_full:].sum(1, keepdim=True)]
    cumulative = torch.cat(sums, dim=1).cumsum(1)
    target = uniforms[:, None] * cumulative[:, -1:]
    block = torch.searchsorted(cumulative, target, right=True).clamp_(max=cumulative.shape[1] - 1)
    target -= torch.where(block > 0, cumulative.gather(1, (block - 1).clamp_(min=0)), 0.0)
    candidates = block * BLOCK + torch.arange(BLOCK, device=scores.device)
    exists = candidates < n_tokens
    candidates.clamp_(max=n_tokens - 1)
    within = torch.where(exists, probabilities.gather(1, candidates), 0.0).cumsum(1)
    place = torch.searchsorted(within, target, right=True).clamp_(max=BLOCK - 1)
    tokens = candidates.gather(1, place)
    is_possible = probabilities.gather(1, tokens) > 0
    if not is_possible.all():
        tokens = torch.where(is_possible, tokens, probabilities.argmax(1, keepdim=True))
    return tokens.squeeze(1)
