"""Logits processors of `generate`: a check for NaN, n-gram blocking within the response, and seeded sampling by row.

Shapes: b rows, c tokens of a context and of the response until now, m new tokens, v tokens of the vocabulary.
"""

from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation import NoRepeatNGramLogitsProcessor

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.checkpoints import BROKEN_WEIGHTS


class RefuseNaN(LogitsProcessor):
    """Raises an InputError if a model's scores are NaN, because decoding would return arbitrary tokens."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if scores.amax(1).isnan().any():
            raise InputError(f"model: its probabilities are NaN; {BROKEN_WEIGHTS}")
        return scores


class ResponseNGramBlock(LogitsProcessor):
    """Forbids tokens that would repeat an n-gram of the response; n-grams of the context before `start` are allowed."""

    def __init__(self, size: int, start: int) -> None:
        self.block, self.start = NoRepeatNGramLogitsProcessor(size), start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.block(input_ids[:, self.start :], scores)


class SampleRows(LogitsProcessor):
    """Leaves one token per row, sampled by the row's uniform random number of this step; greedy decoding follows.

    `uniforms` are in [0, 1), (b, m); responses begin at position `start`.
    """

    def __init__(self, uniforms: torch.Tensor, start: int) -> None:
        self.uniforms, self.start = uniforms, start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        tokens = _sample_tokens(scores, self.uniforms[:, input_ids.shape[1] - self.start])
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens[:, None], 0.0)


def sample_rows(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    generation_config: GenerationConfig,
    uniforms: torch.Tensor,
    **arguments: Any,
) -> torch.Tensor:
    """Sample as `generate` does, with random numbers of each row; a `custom_generate` of `generate`.

    The library samples from one random stream for the whole batch, so that a response depends on the other rows. Its
    argument `logits_processor` cannot change that, because temperature and the other warpers are applied later.
    """
    generation_config.do_sample = False
    processors = LogitsProcessorList([*logits_processor, SampleRows(uniforms, input_ids.shape[1])])
    return model._sample(input_ids, processors, generation_config=generation_config, **arguments)


def _sample_tokens(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return one sampled token per row by inverse transform sampling; scores (b, v), uniforms (b,) in [0, 1).

    The token is the first whose cumulative probability exceeds u. A GPU's parallel sums need not be monotone, so that
    once in millions of draws the search ends at a token of probability 0 or after the last token. The most probable
    token replaces it.
    """
    probabilities = scores.softmax(1)
    cumulative = probabilities.cumsum(1)
    tokens = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    tokens.clamp_(max=scores.shape[1] - 1)
    return torch.where(probabilities.gather(1, tokens) > 0, tokens, probabilities.argmax(1, keepdim=True)).squeeze(1)
