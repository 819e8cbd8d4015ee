"""Logits processors of `generate`: a check for NaN, n-gram blocking within the response, and seeded sampling by row.

Shapes: b rows, m new tokens, v tokens of the vocabulary.
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
    """Forbids tokens that would repeat an n-gram of the response, which begins at position `start`.

    N-grams of the context may be repeated.
    """

    def __init__(self, size: int, start: int) -> None:
        self.block, self.start = NoRepeatNGramLogitsProcessor(size), start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.block(input_ids[:, self.start :], scores)


class SampleRows(LogitsProcessor):
    """Samples one token per row and sets the scores of all other tokens to −∞, for greedy decoding.

    `uniforms` are random numbers in [0, 1), (b, m), one for each row and new token; responses begin at position
    `start`.
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

    The sampled token is the first whose cumulative probability exceeds the row's uniform number. A GPU's parallel sums
    need not be monotone, so that once in millions of draws the search ends at a token of probability 0 or after the
    last token. The most probable token is then returned.
    """
    probabilities = scores.softmax(1)
    cumulative = probabilities.cumsum(1)
    tokens = torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True)
    tokens.clamp_(max=scores.shape[1] - 1)
    return torch.where(probabilities.gather(1, tokens) > 0, tokens, probabilities.argmax(1, keepdim=True)).squeeze(1)
