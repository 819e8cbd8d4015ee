"""Responses of a dialogue model to contexts, which depend on the size and the order of batches by rounding only.

Each prompt has a separate stream of random numbers from the prompt's seed, so that the prompts may be computed in any
order and in any parts. A token is drawn by the Gumbel-max trick with random numbers of the prompt and the position, so
that a model that was changed a little repeats much of its responses, and comparisons are less noisy (Chatzi et al.
2024, "Counterfactual token generation in large language models"; Benz et al. 2025, "Evaluation of large language models
via coupled token generation").
"""

import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from evenhand.evaluation.compat import cache_argument, has_plain_attention
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.activation import activation_arguments
from evenhand.evaluation.models.batches import (
    activations_bytes,
    cache_bytes,
    check_input_lengths,
    group_rows,
    logits_bytes,
    memory_budget,
    run_batches,
    shared_tokens,
)
from evenhand.evaluation.models.checkpoints import BROKEN_WEIGHTS
from evenhand.evaluation.models.contexts import decode_responses, encode_contexts
from evenhand.evaluation.models.decoding import SCORE_ARGUMENTS
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.padding import ignores_padding, prefix_cache

NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "typical_p": 1.0}  # values that change no score
# The arguments of `generate` that change the scores before a token is sampled, in its order, and what does it.
WARPERS = {
    "temperature": TemperatureLogitsWarper,
    "top_k": TopKLogitsWarper,
    "top_p": TopPLogitsWarper,
    "min_p": MinPLogitsWarper,
    "typical_p": TypicalLogitsWarper,
}
SLACK = 1.2  # memory that the allocator cannot reuse at once, because the caches grow with each token; measured
# The largest number of bytes for each logit that an argument of `generate` takes, mostly for sorted scores; an argument
# that is not listed takes at most 4. Measured with a vocabulary of 49,152 tokens.
COPIES = {"top_p": 17, "typical_p": 38, "repetition_penalty": 8}
# The rows of the first batches, so that the first responses are there in seconds; small batches take longer for each.
FIRST_ROWS = 8
GROWTH = 4
BLOCK = 256  # tokens that are drawn together; about the square root of a large vocabulary


class Job(NamedTuple):
    """A response to generate.

    Attributes:
        ids: the tokens of the context, and of the opening of the response.
        n_opening: the number of tokens of the opening.
        seed: the seed of the random numbers.
    """

    ids: tuple[int, ...]
    n_opening: int
    seed: int


class Response(NamedTuple):
    """A generated response.

    Attributes:
        text: the response, which may be ""; None if the model never ended its reasoning.
        ids: the tokens that the model wrote after its context, with the end of the sequence or the stop string, if one
            ended the response; None if it had reasoning, which readers of the response do not see.
        is_cut: whether max_new_tokens ended it.
        had_reasoning: whether the model reasoned before it.
    """

    text: str | None
    ids: list[int] | None
    is_cut: bool
    had_reasoning: bool


def generate_responses(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    seeds: Sequence[int],
    decoding: Mapping[str, Any],
    *,
    openings: Sequence[Sequence[int]] | None = None,
    first: int = 0,
    batch_size: int = 256,
) -> Iterator[dict[int, Response]]:
    """Yield the responses of each batch, {number of the context: response}; the longest contexts come first.

    Rows with equal contexts (and equal seeds, if decoding samples) are computed once. A response is the text up to the
    first end-of-sequence token or stop string, without special tokens, outer white space and reasoning.

    Args:
        contexts, seeds: a rendered context and a seed for each row, (n,).
        decoding: the arguments of `generate` that `decoding_arguments` returns.
        openings: tokens with which the responses begin, (n,); max_new_tokens counts what the model adds. None:
            responses begin with the model's first token.
        first: position, in its response, of the first token that the model adds, which chooses its random numbers.
        batch_size: the largest number of rows of a batch.

    Raises:
        InputError: a context is empty or too long; nothing is generated then.
    """
    model = dialogue_model.model
    samples = bool(decoding.get("do_sample"))
    has_beams = (decoding.get("num_beams") or 1) > 1
    openings = [()] * len(contexts) if openings is None else openings
    jobs = _jobs(dialogue_model, contexts, openings, seeds if samples else [0] * len(contexts))
    check_input_lengths(dialogue_model, [job.ids for job in jobs], decoding["max_new_tokens"], "contexts")
    rows = group_rows(jobs)
    # Sorted by length, batches need little padding.
    ordered = sorted(rows, key=lambda job: (len(job.ids), job.ids, job.seed), reverse=True)
    # Sampling within a beam search draws from one random stream for the whole batch, so a batch has one row.
    max_rows = 1 if has_beams and samples else batch_size
    used = {name for name, value in decoding.items() if value is not None}
    mixes_lengths = not has_beams and used <= SCORE_ARGUMENTS and has_plain_attention(model.config)
    mixes_lengths = mixes_lengths and ignores_padding(model)
    memory = memory_budget(model.device)
    # Each call of `max_jobs`, one for each batch, takes the next.
    growing_sizes = (FIRST_ROWS * GROWTH**n_batches for n_batches in count())
    logging.getLogger("transformers.modeling_utils").addFilter(_is_relevant)

    def max_jobs(job: Job) -> int:
        return max(1, min(max_rows, next(growing_sizes), memory // response_bytes(model, len(job.ids), decoding)))

    generate = partial(_generate_batch, dialogue_model, first=first, decoding=decoding)
    batches = run_batches(ordered, max_jobs, generate, group_key=lambda job: 0 if mixes_lengths else len(job.ids))
    for batch, responses in batches:
        yield {row: response for job, response in zip(batch, responses, strict=True) for row in rows[job]}


def _jobs(
    dialogue_model: DialogueModel, contexts: Sequence[str], openings: Sequence[Sequence[int]], seeds: Sequence[int]
) -> list[Job]:
    """Return the job of each row; equal contexts are encoded once."""
    if any(openings) and dialogue_model.kind == "encoder_decoder":
        raise InputError("opening", f"{dialogue_model.name} is an encoder-decoder model; give a causal model.")
    distinct_contexts = list(dict.fromkeys(contexts))
    encoded = dict(zip(distinct_contexts, encode_contexts(dialogue_model, distinct_contexts), strict=True))
    jobs = []
    for context, opening, seed in zip(contexts, openings, seeds, strict=True):
        jobs.append(Job(ids=(*encoded[context], *opening), n_opening=len(opening), seed=seed))
    return jobs


def response_bytes(model: PreTrainedModel, length: int, decoding: Mapping[str, Any]) -> int:
    """Return the bytes of a row while `generate` responds to a context of `length` tokens."""
    beams = decoding.get("num_beams") or 1
    plain = ("do_sample", "max_new_tokens", "num_beams")
    used = [name for name, value in decoding.items() if name not in plain and value not in (None, NEUTRAL.get(name))]
    # float32 scores of the previous token and of the new one; then probabilities or a log-softmax
    has_probabilities = beams > 1 or bool(decoding.get("do_sample"))
    copies = (12 if has_probabilities else 8) + sum(COPIES.get(name, 4) for name in used)
    cache = cache_bytes(model, length + decoding["max_new_tokens"])
    return int(SLACK * beams * (cache + logits_bytes(model, 1, copies) + activations_bytes(model, length)))


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return False for the log record about a missing attention mask, which `generate` drops if no row is padded."""
    return "recommend passing in an `attention_mask`" not in record.getMessage()


def _generate_batch(
    dialogue_model: DialogueModel, batch: Sequence[Job], first: int, decoding: Mapping[str, Any]
) -> list[Response]:
    """Return the response to each context of a batch."""
    model = dialogue_model.model
    tokenizer = dialogue_model.tokenizer
    is_beam_search = (decoding.get("num_beams") or 1) > 1
    contexts = [list(job.ids) for job in batch]
    n_shared = 0
    if SCORE_ARGUMENTS.issuperset(decoding) and not is_beam_search:
        n_shared = shared_tokens(model, contexts, is_padded=True)
    inputs = _model_inputs(dialogue_model, contexts, n_shared)
    prompts = [ids[: len(ids) - job.n_opening] for ids, job in zip(contexts, batch, strict=True)]
    inputs |= activation_arguments(model, prompts, [len(ids) for ids in contexts])
    start = 0 if dialogue_model.kind == "encoder_decoder" else inputs["input_ids"].shape[1]
    arguments = {name: value for name, value in decoding.items() if name != "no_repeat_ngram_size"}
    processors = LogitsProcessorList([RefuseNaN()])
    ngram_size = decoding.get("no_repeat_ngram_size")
    if ngram_size:
        processors.append(ResponseNGramBlock(ngram_size, start))
    if decoding.get("do_sample") and not is_beam_search:
        processors.extend(_sampling(decoding, RowNoise([job.seed for job in batch], first)))
        arguments = {name: value for name, value in arguments.items() if name not in WARPERS}
        arguments["do_sample"] = False
    if decoding.get("stop_strings"):
        arguments["tokenizer"] = tokenizer
    with torch.random.fork_rng(enabled=is_beam_search):
        if is_beam_search:
            torch.manual_seed(batch[0].seed % 2**63)  # for sampling within a beam search, where a batch has one row
        output = model.generate(**inputs, logits_processor=processors, **arguments)
    return _responses(dialogue_model, batch, output[:, start:].tolist(), decoding)


def _model_inputs(dialogue_model: DialogueModel, contexts: list[list[int]], n_shared: int) -> dict[str, Any]:
    """Return the inputs of `generate`; the first `n_shared` tokens, which all rows have in common, are read once.

    Padding stands between the common prefix and the rest of a context.
    """
    model = dialogue_model.model
    side = "right" if dialogue_model.kind == "encoder_decoder" else "left"
    rest = {"input_ids": [ids[n_shared:] for ids in contexts]}
    padded = dialogue_model.tokenizer.pad(rest, padding_side=side, return_tensors="pt")
    inputs: dict[str, Any] = {
        "input_ids": padded["input_ids"].to(model.device),
        "attention_mask": padded["attention_mask"].to(model.device),
    }
    if n_shared:
        prefix = torch.tensor([contexts[0][:n_shared]], device=model.device).expand(len(contexts), -1)
        inputs["input_ids"] = torch.cat([prefix, inputs["input_ids"]], dim=1)
        inputs["attention_mask"] = torch.cat([torch.ones_like(prefix), inputs["attention_mask"]], dim=1)
        inputs[cache_argument(model)] = prefix_cache(model, contexts[0][:n_shared], len(contexts))
    return inputs


def _sampling(decoding: Mapping[str, Any], noise: "RowNoise") -> list[LogitsProcessor]:
    """Return the logits processors that make greedy decoding choose sampled tokens, as the arguments say.

    `generate` itself would sample from one random stream for the whole batch.
    """
    processors: list[LogitsProcessor] = []
    for name, warper in WARPERS.items():
        value = decoding.get(name)
        if value is not None and value != NEUTRAL.get(name):
            processors.append(warper(value))
    return [*processors, SampleRows(noise)]


def _responses(
    dialogue_model: DialogueModel, batch: Sequence[Job], generated: list[list[int]], decoding: Mapping[str, Any]
) -> list[Response]:
    """Return the responses in the tokens that `generate` added to each context."""
    tokenizer = dialogue_model.tokenizer
    ends = set(np.atleast_1d(dialogue_model.model.generation_config.eos_token_id).tolist())
    if dialogue_model.kind == "encoder_decoder":  # it begins with a special token that it did not choose
        generated = [ids[1:] for ids in generated]
    is_full = len(generated[0]) >= decoding["max_new_tokens"]
    stops = decoding.get("stop_strings") or []
    stops = [stops] if isinstance(stops, str) else stops
    contexts = [list(job.ids[: len(job.ids) - job.n_opening]) for job in batch]
    written = []
    for job, ids in zip(batch, generated, strict=True):
        opening = list(job.ids[len(job.ids) - job.n_opening :])
        written.append(opening + _up_to_stop(tokenizer, _up_to_end(ids, ends), stops))
    texts = decode_responses(dialogue_model, contexts, [_without_end(ids, ends) for ids in written])
    responses = []
    for ids, (text, had_reasoning) in zip(written, texts, strict=True):
        has_stop = bool(stops) and _has_any(tokenizer, ids, stops)
        if text is not None and has_stop:
            text = _before_stop(text, stops)
        responses.append(
            Response(
                text=text,
                ids=None if had_reasoning else ids,
                is_cut=is_full and not has_stop and ends.isdisjoint(ids[-1:]),
                had_reasoning=had_reasoning,
            )
        )
    return responses


def _up_to_end(ids: list[int], ends: set[int]) -> list[int]:
    """Return the token ids up to and with the first end, which may be an ordinary token."""
    n_before = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return ids[: n_before + 1]


def _without_end(ids: list[int], ends: set[int]) -> list[int]:
    return ids[:-1] if ids and ids[-1] in ends else ids


def _up_to_stop(tokenizer: PreTrainedTokenizerBase, ids: list[int], stops: Sequence[str]) -> list[int]:
    """Return the token ids up to the one that completes a stop string; padding follows it, which may be an end."""
    if not stops or not _has_any(tokenizer, ids, stops):
        return ids
    n_tokens = bisect_left(range(len(ids)), True, key=lambda n: _has_any(tokenizer, ids[:n], stops))
    return ids[:n_tokens]


def _has_any(tokenizer: PreTrainedTokenizerBase, ids: list[int], stops: Sequence[str]) -> bool:
    text = str(tokenizer.decode(ids))
    return any(stop in text for stop in stops)


def _before_stop(text: str, stops: Sequence[str]) -> str:
    """Return the text before its first stop string, as a server does (OpenAI: it "will not contain the stop")."""
    places = [text.find(stop) for stop in stops if stop in text]
    return text[: min(places, default=len(text))].strip()


class RowNoise:
    """Random numbers from the standard exponential distribution, row by row and token by token.

    Philox is a counter-based generator with one independent stream for each key, here the seed of a row (Salmon et al.
    2011, "Parallel random numbers: as easy as 1, 2, 3").
    """

    def __init__(self, seeds: Sequence[int], first: int = 0) -> None:
        """Start one stream for each seed, at the numbers for the token at position `first` (from 0) of a response."""
        self.rows = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self.first = first

    def next(self, count: int) -> torch.Tensor:
        """Return `count` numbers for the next token of each row, (rows, count); all calls need the same `count`."""
        # The first call draws the numbers of the tokens before `first`, too, and takes the last ones. It draws float64:
        # in float32, one in millions would be 0, whose token would be drawn whatever its probability.
        drawn = [row.standard_exponential((self.first + 1, count))[-1] for row in self.rows]
        self.first = 0
        return torch.from_numpy(np.stack(drawn)).float()


class RefuseNaN(LogitsProcessor):
    """Raises an InputError if a model's scores are NaN, because decoding would return arbitrary tokens."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if scores.amax(1).isnan().any():
            raise InputError("model", f"its probabilities are NaN; {BROKEN_WEIGHTS}")
        return scores


class ResponseNGramBlock(LogitsProcessor):
    """Forbids tokens that would repeat an n-gram of the response, which begins at position `start`."""

    def __init__(self, size: int, start: int) -> None:
        self.block = NoRepeatNGramLogitsProcessor(size)
        self.start = start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.block(input_ids[:, self.start :], scores)


class SampleRows(LogitsProcessor):
    """Samples one token per row, and returns scores of 1 for the sampled tokens and 0 for all others.

    Greedy decoding with these scores chooses the sampled tokens. All calls return the same tensor, in which each call
    moves the ones of the call before: to fill a new tensor takes as long as sampling.
    """

    def __init__(self, random: RowNoise) -> None:
        self.random = random
        self.one_hot = self.tokens = torch.empty(0)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self.one_hot.shape == scores.shape:
            self.one_hot.scatter_(1, self.tokens, 0.0)
        else:
            self.one_hot = torch.zeros_like(scores)
        self.tokens = sample_tokens(scores, self.random)[:, None]
        return self.one_hot.scatter_(1, self.tokens, 1.0)


def sample_tokens(scores: torch.Tensor, random: RowNoise) -> torch.Tensor:
    """Sample one token for each of b rows from the logits of v tokens, (b, v); return the tokens, (b,).

    Let e_i be standard exponential random numbers, one for each token i. The token with the largest p_i / e_i is then
    token i with the probability p_i (the Gumbel-max trick). To draw v random numbers would take longer than the
    softmax; so a block of tokens is drawn first, then a token of this block.
    """
    probabilities = scores.softmax(1)
    missing = -probabilities.shape[1] % BLOCK
    if missing:  # `pad` copies what it is given, also if it adds nothing
        probabilities = pad(probabilities, (0, missing))
    blocks = probabilities.unflatten(1, (-1, BLOCK))
    n_blocks = blocks.shape[1]
    noise = random.next(n_blocks + BLOCK).to(scores.device)
    drawn_block = (blocks.sum(2) / noise[:, :n_blocks]).argmax(1)
    in_block = blocks[torch.arange(len(drawn_block)), drawn_block]
    place = (in_block / noise[:, n_blocks:]).argmax(1)
    return drawn_block * BLOCK + place
