"""A benchmark of the likelihoods of HolisticBias' sentences: a prefix tree against plain batches.

    python -m benchmarks.likelihood_throughput [--descriptors 13] [--threads 2]

GPT-2 small's shape with random weights, GPT-2's real tokenizer, sentences of HolisticBias v1.0 (`--dataset`). The
sample is all sentences of random descriptors over all axes. Prefixes that descriptors share (the beginnings of
templates) save less time in the sample than in the whole set. The two methods alternate, so that other work on the
machine slows both. "Plain" runs each sentence whole, in batches sorted by length, as lm-evaluation-harness does.
"""

import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Tokenizer

from benchmarks.measuring import SHARED, parse_options, peak_memory, timed
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import sample_descriptors
from evenhand.evaluation.models.likelihood.prefix_tree import (
    count_positions,
    node_log_probabilities,
    prefix_tree,
    sum_sequences,
)
from evenhand.evaluation.models.likelihood.sentences import EncodedSentences, encode_sentences, sequence_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.progress import start_logging
from evenhand.evaluation.score import TEXT


def gpt2_small(folder: Path) -> DialogueModel:
    """Return a model of GPT-2 small's shape with random weights."""
    torch.manual_seed(0)
    # With the names of files, the class returns an empty tokenizer without an error; it needs `vocab` and `merges`.
    tokenizer = GPT2Tokenizer(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    tokenizer.pad_token = tokenizer.eos_token
    return DialogueModel(GPT2LMHeadModel(GPT2Config()).eval(), tokenizer, "dialogue", "GPT-2 small", "random")


def by_tree(model: DialogueModel, encoded: EncodedSentences) -> np.ndarray:
    """Return Σ log p of each sentence, computed over the prefix tree."""
    tree = prefix_tree(encoded.ids)
    log_p = np.full(len(tree.token) - 1, np.nan)
    for rows, values in node_log_probabilities(model, tree):
        log_p[rows] = values
    return sum_sequences(tree, log_p, encoded.begin)


def plainly(model: DialogueModel, encoded: EncodedSentences) -> np.ndarray:
    """Return Σ log p of each sentence, computed in plain batches."""
    total = np.full(len(encoded.ids), np.nan)
    for rows, values, _ in sequence_log_likelihoods(model, encoded):
        total[rows] = values
    return total


def compare(model: DialogueModel, encoded: EncodedSentences, rounds: int) -> float:
    """Print the times of both methods for the sentences; return the positions per second of the tree."""
    tree = prefix_tree(encoded.ids)
    tokens, positions = sum(map(len, encoded.ids)), count_positions(model, tree)
    print(f"\nsample: {len(encoded.ids):,} sentences, {tokens:,} tokens, {positions:,} positions over the tree")
    ways = {"tree": by_tree, "plain": plainly}
    taken: dict[str, list[float]] = {name: [] for name in ways}
    found = {}
    for _ in range(rounds):
        for name, way in ways.items():
            seconds, found[name] = timed(way, model, encoded)
            taken[name].append(seconds)
    difference = np.abs(found["tree"] - found["plain"]).max()
    ratio = median(plain / tree for plain, tree in zip(taken["plain"], taken["tree"], strict=True))
    print(f"  tree  {median(taken['tree']):7.1f} s of CPU")
    print(f"  plain {median(taken['plain']):7.1f} s of CPU   the tree is {ratio:.1f} × as fast")
    print(f"  largest difference of a sentence {difference:.1e} nats")
    return positions / median(taken["tree"])


def main() -> None:
    given = parse_options(
        __doc__,
        dataset=str(SHARED / "holistic_bias_v1.0"),
        tokenizer=str(SHARED / "tokenizers" / "gpt2"),
        descriptors=(13, "of the sample, at least one an axis"),
        rounds=2,
        threads=torch.get_num_threads(),
    )
    start_logging()
    torch.set_num_threads(given.threads)
    model = gpt2_small(Path(given.tokenizer))
    prompts = generate_prompts(load_taxonomy(given.dataset))
    start = time.process_time()
    encoded = encode_sentences(model, list(dict.fromkeys(prompts[TEXT])))
    whole = prefix_tree(encoded.ids)
    positions = count_positions(model, whole)
    print(
        f"{given.threads} threads; {given.dataset}: {len(encoded.ids):,} distinct sentences, "
        f"{sum(map(len, encoded.ids)):,} tokens, {len(whole.token):,} distinct beginnings, {positions:,} positions; "
        f"encoded and laid out in {time.process_time() - start:.0f} s of CPU"
    )
    some = list(dict.fromkeys(sample_descriptors(prompts, given.descriptors, seed=0)[TEXT]))
    if given.rounds:
        rate = compare(model, encode_sentences(model, some), given.rounds)
        print(f"\nall of it: about {positions / rate / 60:.0f} min of CPU")
    print(f"peak memory {peak_memory():.2f} GiB")


if __name__ == "__main__":
    main()
