"""Responses of a dialogue model to contexts. Batch size and order change the responses by rounding only.

Each prompt has a separate stream of random numbers from the prompt's seed, so that the prompts may be computed in any
order and in any parts. A token is drawn by the Gumbel-max trick with random numbers of the prompt and the position, so
that a model that was changed a little repeats much of its responses, and comparisons are less noisy (Chatzi et al.
2024, "Counterfactual token generation in large language models"; Benz et al. 2025, "Evaluation of large language models
via coupled token generation").
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    StoppingCriteriaList,
)
from transformers.generation import NoRepeatNGramLogitsProcessor, StopStringCriteria

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import (
    activations_bytes,
    cache_bytes,
    check_input_lengths,
    group_rows,
    has_attention_only,
    logits_bytes,
    memory_budget,
    prefix_cache,
    run_batches,
    shared_tokens,
)
from evenhand.evaluation.models.checkpoints import BROKEN_WEIGHTS
from evenhand.evaluation.models.contexts import decode_responses, encode_contexts
from evenhand.evaluation.models.decoding import SCORE_ARGUMENTS
from evenhand.evaluation.models.loading import DialogueModel

NEUTRAL = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}  # values that change no score, so that `generate` skips them
SLACK = 1.2  # memory that the allocator cannot reuse at once, because the caches grow with each token; measured
# Bytes for each logit that an argument of `generate` takes at its peak, mostly for sorted scores; other arguments take
# at most 4. Measured with a vocabulary of 49,152 tokens.
COPIES = {"top_p": 17, "typical_p": 38, "repetition_penalty": 8}
FIRST_ROWS = 8  # of the first batch; each following one has twice as many, up to the largest
BLOCK = 256  # tokens that are drawn together; about the square root of a large vocabulary


def generate_responses(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    seeds: Sequence[int],
    decoding: Mapping[str, Any],
    *,
    openings: Sequence[str] | None = None,
    first: int = 0,
    batch_size: int = 256,
) -> Iterator[tuple[list[int], list[str | None], list[bool], list[bool]]]:
    """Yield (row indices, responses, cuts, had reasoning) by batches, one response for each row of `contexts`.

    Rows with equal contexts (and equal seeds, if decoding samples) are computed once. The order of the rows is fixed:
    the longest contexts first. A response is the text up to the first end-of-sequence token, without special tokens,
    outer white space and reasoning. A response may be "", and is None if the model never ended its reasoning. A cut is
    true if max_new_tokens ended the response. InputError, before any work, if a context is empty or too long.

    Args:
        contexts, seeds: a rendered context and a seed for each row, (n,).
        decoding: the arguments of `generate` that `decoding.decoding` returns.
        openings: texts with which the responses begin, (n,); max_new_tokens counts what the model adds. None: responses
            begin with the model's first token.
        first: position, in its response, of the first token that the model adds, which chooses its random numbers.
    """
    begun = list(zip(contexts, [""] * len(contexts) if openings is None else openings, strict=True))
    distinct = {context: index for index, context in enumerate(dict.fromkeys(begun))}
    if any(opening for _, opening in distinct) and dialogue_model.kind == "encoder_decoder":
        raise InputError("opening", f"{dialogue_model.name} is an encoder-decoder model; give a causal model.")
    tokenizer, model = dialogue_model.tokenizer, dialogue_model.model
    opened = [tokenizer(it, add_special_tokens=False)["input_ids"] if it else [] for _, it in distinct]
    encoded = encode_contexts(dialogue_model, [context for context, _ in distinct])
    encoded = [context + opening for context, opening in zip(encoded, opened, strict=True)]
    check_input_lengths(dialogue_model, encoded, decoding["max_new_tokens"], "contexts")

    samples, has_beams = bool(decoding.get("do_sample")), (decoding.get("num_beams") or 1) > 1
    keys = ((distinct[context], seed if samples else 0) for context, seed in zip(begun, seeds, strict=True))
    rows = group_rows(keys)
    # Sorted by length, batches need little padding.
    jobs = sorted(rows, key=lambda job: (len(encoded[job[0]]), encoded[job[0]], job[1]), reverse=True)
    # Sampling within a beam search draws from one random stream for the whole batch, so a batch has one row.
    max_rows = 1 if has_beams and samples else batch_size
    used = {name for name, value in decoding.items() if value is not None}
    mixes_lengths = not has_beams and used <= SCORE_ARGUMENTS and has_attention_only(model)
    memory = memory_budget(model.device)
    ramp = (FIRST_ROWS * 2**n_batches for n_batches in count())  # so that the first responses are there in seconds
    logging.getLogger("transformers.modeling_utils").addFilter(_is_relevant)

    def length(job: tuple[int, int]) -> int:
        return len(encoded[job[0]])

    def max_jobs(job: tuple[int, int]) -> int:
        return max(1, min(max_rows, next(ramp), memory // response_bytes(model, length(job), decoding)))

    def generate(batch: Sequence[tuple[int, int]]) -> list[tuple[str | None, bool, bool]]:
        inputs = [(encoded[context], seed, len(opened[context])) for context, seed in batch]
        return _generate_batch(dialogue_model, *zip(*inputs, strict=True), first, dict(decoding))

    for batch, responses in run_batches(jobs, max_jobs, generate, group_key=lambda job: mixes_lengths or length(job)):
        answered = [(row, *found) for job, found in zip(batch, responses, strict=True) for row in rows[job]]
        yield tuple(map(list, zip(*answered, strict=True)))


def response_bytes(model: PreTrainedModel, length: int, decoding: Mapping[str, Any]) -> int:
    """Return the bytes of a row while `generate` responds to a context of `length` tokens."""
    beams = decoding.get("num_beams") or 1
    plain = ("do_sample", "max_new_tokens", "num_beams")
    used = [name for name, value in decoding.items() if name not in plain and value not in (None, NEUTRAL.get(name))]
    # float32 scores of the previous token and of the new one; then probabilities or a log-softmax
    copies = 8 + 4 * (beams > 1 or bool(decoding.get("do_sample"))) + sum(COPIES.get(name, 4) for name in used)
    cache = cache_bytes(model, length + decoding["max_new_tokens"])
    return int(SLACK * beams * (cache + logits_bytes(model, 1, copies) + activations_bytes(model, length)))


def _is_relevant(record: logging.LogRecord) -> bool:
    """Return False for the log record about a missing attention mask, which `generate` drops if no row is padded."""
    return "recommend passing in an `attention_mask`" not in record.getMessage()


def _generate_batch(
    dialogue_model: DialogueModel,
    contexts: Sequence[list[int]],
    seeds: Sequence[int],
    opened: Sequence[int],
    first: int,
    arguments: dict[str, Any],
) -> list[tuple[str | None, bool, bool]]:
    """Return the response to each context of a batch, whether max_new_tokens ended it, and whether it had reasoning.

    The last `opened` tokens of a context are the first of its response.
    """
    model, tokenizer = dialogue_model.model, dialogue_model.tokenizer
    samples, is_beam_search = bool(arguments.get("do_sample")), (arguments.get("num_beams") or 1) > 1
    side, shared = "right" if dialogue_model.kind == "encoder_decoder" else "left", 0
    if SCORE_ARGUMENTS.issuperset(arguments) and not is_beam_search:
        # Padding stands between the common prefix and the rest of a context. A sliding window counts padding as
        # positions, so it would lose the prefix too early.
        shared = shared_tokens(model, contexts, sliding_windows=False)
    inputs = tokenizer.pad({"input_ids": [ids[shared:] for ids in contexts]}, padding_side=side, return_tensors="pt")
    inputs = {name: inputs[name].to(model.device) for name in ("input_ids", "attention_mask")}
    if shared:
        prefix = torch.tensor([contexts[0][:shared]], device=model.device).expand(len(contexts), -1)
        inputs["input_ids"] = torch.cat([prefix, inputs["input_ids"]], dim=1)
        inputs["attention_mask"] = torch.cat([torch.ones_like(prefix), inputs["attention_mask"]], dim=1)
        inputs["past_key_values"] = prefix_cache(model, contexts[0][:shared], len(contexts))
    start = 0 if dialogue_model.kind == "encoder_decoder" else inputs["input_ids"].shape[1]
    processors = LogitsProcessorList([RefuseNaN()])
    arguments = {"logits_processor": processors, **arguments}
    if strings := arguments.pop("stop_strings", None):  # with a `custom_generate`, `generate` ignores its tokenizer
        arguments["stopping_criteria"] = StoppingCriteriaList([StopStringCriteria(tokenizer, strings)])
    if size := arguments.pop("no_repeat_ngram_size", None):
        processors.append(ResponseNGramBlock(size, start))
    if samples and not is_beam_search:
        arguments |= {"custom_generate": sample_rows, "random": RowNoise(seeds, first)}
    with torch.random.fork_rng(enabled=is_beam_search):
        if is_beam_search:
            torch.manual_seed(seeds[0] % 2**63)  # for sampling within a beam search, where a batch has one row
        output = model.generate(**inputs, **arguments)
    tokens = output[:, start:].tolist()
    ends = set(np.atleast_1d(model.generation_config.eos_token_id).tolist())
    n_special = 1 if dialogue_model.kind == "encoder_decoder" else 0  # an encoder-decoder begins with a special token
    is_full = len(tokens[0]) - n_special >= arguments["max_new_tokens"]
    cuts = [is_full and ends.isdisjoint(ids[n_special:]) for ids in tokens]
    if strings:
        stops = [strings] if isinstance(strings, str) else strings
        cuts = [
            cut and not any(stop in tokenizer.decode(ids) for stop in stops)
            for cut, ids in zip(cuts, tokens, strict=True)
        ]
    tokens = [context[len(context) - n :] + ids for context, n, ids in zip(contexts, opened, tokens, strict=True)]
    contexts = [context[: len(context) - n] for context, n in zip(contexts, opened, strict=True)]
    texts = decode_responses(dialogue_model, contexts, tokens)
    return [(text, cut, reasoned) for (text, reasoned), cut in zip(texts, cuts, strict=True)]


class RowNoise:
    """Random numbers from the standard exponential distribution, row by row and token by token.

    Philox is a counter-based generator with one independent stream for each key, here the seed of a row (Salmon et al.
    2011, "Parallel random numbers: as easy as 1, 2, 3").
    """

    def __init__(self, seeds: Sequence[int], first: int = 0) -> None:
        """Start one stream for each seed, at the numbers for the token at position `first` (from 0) of a response."""
        self.rows, self.first = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds], first

    def next(self, count: int) -> torch.Tensor:
        """Return `count` numbers for the next token of each row, (rows, count); all calls need the same `count`."""
        # In float32, one in millions would be 0, whose token would be drawn whatever its probability.
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
        self.block, self.start = NoRepeatNGramLogitsProcessor(size), start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.block(input_ids[:, self.start :], scores)


class SampleRows(LogitsProcessor):
    """Samples one token per row, and returns scores of 1 for the sampled tokens and 0 for all others.

    Greedy decoding with these scores chooses the sampled tokens. All calls return the same tensor, because filling a
    new one takes as long as sampling.
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


def sample_rows(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    generation_config: GenerationConfig,
    random: RowNoise,
    **arguments: Any,
) -> torch.Tensor:
    """Return sampled token ids as `generate` does, but with separate random numbers for each row.

    Without this `custom_generate`, the library samples from one random stream for the whole batch. The argument
    `logits_processor` of `generate` cannot change that, because temperature and the other warpers are applied later.
    """
    generation_config.do_sample = False
    processors = LogitsProcessorList([*logits_processor, SampleRows(random)])
    return model._sample(input_ids, processors, generation_config=generation_config, **arguments)


def sample_tokens(scores: torch.Tensor, random: RowNoise) -> torch.Tensor:
    """Sample one token for each of b rows from the logits of v tokens, (b, v); return the tokens, (b,).

    Let e_i be standard exponential random numbers, one for each token i. The token with the largest p_i / e_i is then
    token i with the probability p_i (the Gumbel-max trick). To draw v random numbers would take longer than the
    softmax; so a block of tokens is drawn first, then a token of this block.
    """
    probabilities = scores.softmax(1)
    blocks = pad(probabilities, (0, -probabilities.shape[1] % BLOCK)).unflatten(1, (-1, BLOCK))
    noise = random.next(blocks.shape[1] + BLOCK).to(scores.device)
    block = (blocks.sum(2) / noise[:, :-BLOCK]).argmax(1)
    return block * BLOCK + (blocks[torch.arange(len(block)), block] / noise[:, -BLOCK:]).argmax(1)
