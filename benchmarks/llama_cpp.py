"""Batched generation by llama.cpp's C interface (package llama-cpp-python), for comparisons of speed.

The high-level class of the package decodes one sequence at a time; llama.cpp's server batches sequences as this module.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 8192  # that a batch of prompts may have


def generate(file: Path, contexts: Sequence[str], new_tokens: int, threads: int) -> list[list[int]]:
    """Return the token ids of the sampled response to each rendered context, from the model's distribution."""
    import llama_cpp

    quiet = llama_cpp.llama_log_callback(lambda *arguments: None)
    llama_cpp.llama_log_set(quiet, None)
    network = llama_cpp.llama_model_load_from_file(str(file).encode(), llama_cpp.llama_model_default_params())
    vocabulary = llama_cpp.llama_model_get_vocab(network)
    prompts = [_tokens(llama_cpp, vocabulary, context) for context in contexts]
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = len(prompts) * (max(map(len, prompts)) + new_tokens)
    settings.n_seq_max, settings.n_batch = len(prompts), PROMPT_TOKENS
    settings.n_threads = settings.n_threads_batch = threads
    session = llama_cpp.llama_init_from_model(network, settings)
    samplers = []
    for row in range(len(prompts)):
        chain = llama_cpp.llama_sampler_chain_init(llama_cpp.llama_sampler_chain_default_params())
        llama_cpp.llama_sampler_chain_add(chain, llama_cpp.llama_sampler_init_dist(row))
        samplers.append(chain)
    batch = llama_cpp.llama_batch_init(PROMPT_TOKENS, 0, 1)

    def decode(tokens: Sequence[tuple[int, int, int, bool]]) -> None:
        """Read tokens, each with its row, position and whether its logits are needed."""
        for place, (token, row, position, is_scored) in enumerate(tokens):
            batch.token[place], batch.pos[place], batch.logits[place] = token, position, is_scored
            batch.n_seq_id[place], batch.seq_id[place][0] = 1, row
        batch.n_tokens = len(tokens)
        if llama_cpp.llama_decode(session, batch):
            raise RuntimeError("llama_decode fails")

    responses: list[list[int]] = [[] for _ in prompts]
    read = [
        (token, row, position, position == len(ids) - 1)
        for row, ids in enumerate(prompts)
        for position, token in enumerate(ids)
    ]
    while read and len(responses[read[-1][1]]) < new_tokens:
        decode(read)
        last = [(place, row, position) for place, (_, row, position, is_scored) in enumerate(read) if is_scored]
        read = []
        for place, row, position in last:
            token = llama_cpp.llama_sampler_sample(samplers[row], session, place)
            responses[row].append(token)
            if not llama_cpp.llama_vocab_is_eog(vocabulary, token):
                read.append((token, row, position + 1, True))
    llama_cpp.llama_free(session)
    llama_cpp.llama_model_free(network)
    return responses


def _tokens(llama_cpp: Any, vocabulary: Any, text: str) -> list[int]:
    encoded = text.encode()
    ids = (llama_cpp.llama_token * (len(encoded) + 8))()
    n = llama_cpp.llama_tokenize(vocabulary, encoded, len(encoded), ids, len(ids), False, True)
    return list(ids[:n])
