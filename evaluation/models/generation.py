"""Contexts → responses: batches whose result depends on neither their size nor order.

What makes it fast is in `row_decoding`. Two facts make it repeatable. Every prompt has its own stream of random
numbers, keyed by its seed, one number per token; and the contexts come in a fixed order, so a run that goes on after a
kill, or one process of several, computes what is left to it. Batches are as large as was asked for, or as fits
into memory (`batches`).
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from transformers import LogitsProcessorList, StoppingCriteriaList
from transformers.generation.stopping_criteria import StopStringCriteria

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import (
    activations_bytes,
    cache_bytes,
    logits_bytes,
    memory_budget,
    run_batches,
)
from evenhand.evaluation.models.contexts import decode_responses, encode_contexts
from evenhand.evaluation.models.decoding import ROW_ARGUMENTS, SCORE_ARGUMENTS, check_token_ids
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.row_decoding import RefuseNaN, ResponseNGramBlock, decode_rows, supports_joining
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard


def prompt_seed(prompt_id: str, seed: int) -> int:
    """Return the 64-bit seed of one prompt in a run: a hash of both, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{prompt_id}".encode(), digest_size=8).digest(), "big")


def generate_responses(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    seeds: Sequence[int],
    decoding: Mapping[str, Any],
    *,
    batch_size: int = 256,
    shard: WorkShard = ALL_ROWS,
) -> Iterator[tuple[list[int], list[str | None]]]:
    """Yield (row indices, their responses) batch by batch, until every row of `contexts` has one response.

    Rows with the same context (and, where decoding samples, the same seed) are computed once. Rows come in a fixed
    order, those of the longest contexts first; of a `shard` there are its rows alone. A batch has `batch_size` rows at
    most, fewer where memory is short. A response is the text up to the first end-of-sequence token, without special
    tokens, outer blanks and what the model thought before it; it may be "", and is None where the model never left its
    thought.

    Raises:
        InputError: before any work, if a context is empty or too long for the model, or lengths do not agree.
    """
    if len(contexts) != len(seeds):
        raise InputError(f"seeds: {len(seeds)} for {len(contexts)} contexts; give one each.")
    if batch_size < 1:
        raise InputError(f"batch_size: {batch_size} is not at least 1.")
    distinct = {context: index for index, context in enumerate(dict.fromkeys(contexts))}
    encoded = encode_contexts(dialogue_model, list(distinct))
    _check_lengths(dialogue_model, encoded, decoding)
    check_token_ids(decoding, dialogue_model.model.config.get_text_config(decoder=True).vocab_size)

    rows_of: dict[tuple[int, int], list[int]] = {}
    for row, (context, seed) in enumerate(zip(contexts, seeds, strict=True)):
        rows_of.setdefault((distinct[context], seed if decoding.get("do_sample") else 0), []).append(row)
    # By length for batches without padding; by tokens within it, so that rows with a common beginning are neighbours.
    jobs = sorted(rows_of, key=lambda job: (len(encoded[job[0]]), encoded[job[0]], job[1]), reverse=True)
    return _each_batch(dialogue_model, encoded, jobs, rows_of, dict(decoding), batch_size, shard)


def _batching_limits(dialogue_model: DialogueModel, decoding: Mapping[str, Any], batch_size: int) -> tuple[int, bool]:
    """Return the largest batch that the decoding allows, and whether contexts of all lengths may share it."""
    asked = {name for name, value in decoding.items() if value is not None}
    if decoding.get("num_beams", 1) > 1:
        # Sampling inside a beam search draws from one stream for the whole batch; there, a batch is one row.
        return 1 if decoding.get("do_sample") else batch_size, False
    mixed = asked <= SCORE_ARGUMENTS and supports_joining(dialogue_model.model)
    return batch_size if asked <= ROW_ARGUMENTS else 1, mixed


def _check_lengths(dialogue_model: DialogueModel, encoded: list[list[int]], decoding: Mapping[str, Any]) -> None:
    room = getattr(dialogue_model.model.config, "max_position_embeddings", None) or np.inf
    if dialogue_model.kind != "encoder_decoder":
        room -= decoding["max_new_tokens"]
    elif decoding["max_new_tokens"] > room:
        raise InputError(
            f"decoding: max_new_tokens is {decoding['max_new_tokens']}; {dialogue_model.name} has room for {room}."
        )
    for ids in encoded:
        if not ids:
            raise InputError("contexts: one is empty; leave out empty prompts.")
        if len(ids) > room:
            raise InputError(
                f"contexts: one has {len(ids)} tokens; {dialogue_model.name} has room for {room:.0f} beside the "
                f"{decoding['max_new_tokens']} of max_new_tokens. Shorten personas or lower max_new_tokens."
            )


def _each_batch(
    dialogue_model: DialogueModel,
    encoded: list[list[int]],
    jobs: list[tuple[int, int]],
    rows_of: Mapping[tuple[int, int], list[int]],
    decoding: Mapping[str, Any],
    batch_size: int,
    shard: WorkShard,
) -> Iterator[tuple[list[int], list[str | None]]]:
    model, new, beams = dialogue_model.model, decoding["max_new_tokens"], decoding.get("num_beams", 1)
    most, mixed = _batching_limits(dialogue_model, decoding, batch_size)
    memory = memory_budget(model.device)

    def length(job: tuple[int, int]) -> int:
        return len(encoded[job[0]])

    def fits(job: tuple[int, int]) -> int:
        # The context's keys and values stand there twice while they join the others'.
        row = cache_bytes(model, 2 * length(job) + new) + logits_bytes(model, 1) + activations_bytes(model, length(job))
        return max(1, min(most, memory // (beams * row)))

    def respond(batch: Sequence[tuple[int, int]]) -> list[str | None]:
        ascending = batch[::-1]
        contexts, seeds = [encoded[context] for context, _ in ascending], [seed for _, seed in ascending]
        return _generate_batch(dialogue_model, contexts, seeds, decoding)[::-1]

    mine = {"shard": shard, "row_of": lambda job: rows_of[job][0]}
    for batch, texts in run_batches(jobs, fits, respond, alike=lambda job: mixed or length(job), **mine):
        rows = [row for job in batch for row in rows_of[job]]
        yield rows, [text for job, text in zip(batch, texts, strict=True) for _ in rows_of[job]]


def _generate_batch(
    dialogue_model: DialogueModel, contexts: Sequence[list[int]], seeds: Sequence[int], arguments: dict[str, Any]
) -> list[str | None]:
    """Return the responses to a batch of contexts of ascending lengths, one seed each."""
    model, tokenizer = dialogue_model.model, dialogue_model.tokenizer
    shortest, *longer = (torch.tensor(list(group)).to(model.device) for _, group in groupby(contexts, key=len))
    start = 0 if dialogue_model.kind == "encoder_decoder" else shortest.shape[1]
    processors = LogitsProcessorList([RefuseNaN()])
    arguments = {"logits_processor": processors, "stopping_criteria": StoppingCriteriaList(), **arguments}
    if size := arguments.pop("no_repeat_ngram_size", None):
        processors.append(ResponseNGramBlock(size, start))
    if strings := arguments.pop("stop_strings", None):
        arguments["stopping_criteria"].append(StopStringCriteria(tokenizer, strings))
    by_rows = arguments.get("num_beams", 1) == 1
    if by_rows:
        uniforms = None
        if arguments.get("do_sample"):
            uniforms = torch.from_numpy(_uniforms(seeds, arguments["max_new_tokens"])).to(model.device)
        arguments |= {"custom_generate": decode_rows, "uniforms": uniforms, "longer": longer}
    with torch.random.fork_rng(enabled=not by_rows):
        if not by_rows:
            torch.manual_seed(seeds[0] % 2**63)  # for sampling inside a beam search, where a batch is one row
        output = model.generate(inputs=shortest, attention_mask=torch.ones_like(shortest), **arguments)
    return decode_responses(dialogue_model, contexts, (output if by_rows else output[:, start:]).tolist())


def _uniforms(seeds: Sequence[int], count: int) -> np.ndarray:
    """Return numbers in [0, 1), shape (len(seeds), count), each row a function of its seed alone.

    Philox is a counter-based generator: a key (here the seed) names a stream, and its streams are independent
    (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
    """
    return np.stack([np.random.Generator(np.random.Philox(key=seed)).random(count, dtype=np.float32) for seed in seeds])
