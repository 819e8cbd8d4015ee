"""A benchmark of the likelihoods of HolisticBias' sentences: a prefix tree against plain batches.

    python -m benchmarks.likelihood_throughput [--descriptors 13] [--threads 2]

GPT-2 small's shape with random weights, GPT-2's real tokenizer, all sentences of random descriptors over all axes of
HolisticBias v1.0 (`--dataset`). The two methods alternate, so that other work on the machine slows both. "Plain" runs
each sentence whole, in batches sorted by length, as lm-evaluation-harness does.
"""

from pathlib import Path
from statistics import median

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Tokenizer

from benchmarks.measuring import SHARED, parse_options, peak_memory, timed
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import sample_descriptors
from evenhand.evaluation.models.likelihood.prefix_tree import node_log_probabilities, prefix_tree, sum_sequences
from evenhand.evaluation.models.likelihood.sentences import EncodedSentences, encode_sentences, sequence_log_likelihoods
from evenhand.evaluation.models.loading import DialogueModel
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


def main() -> None:
    given = parse_options(
        __doc__,
        dataset=str(SHARED / "holistic_bias_v1.0"),
        tokenizer=str(SHARED / "tokenizers" / "gpt2"),
        descriptors=(13, "of the sample, at least one an axis"),
        rounds=2,
        threads=torch.get_num_threads(),
    )
    torch.set_num_threads(given.threads)
    model = gpt2_small(Path(given.tokenizer))
    prompts = sample_descriptors(generate_prompts(load_taxonomy(given.dataset)), given.descriptors, seed=0)
    encoded = encode_sentences(model, list(dict.fromkeys(prompts[TEXT])))
    tokens, nodes = sum(map(len, encoded.ids)), len(prefix_tree(encoded.ids).token)
    print(f"{len(encoded.ids):,} sentences, {tokens:,} tokens, {nodes:,} distinct beginnings")
    pairs = [(timed(by_tree, model, encoded), timed(plainly, model, encoded)) for _ in range(given.rounds)]
    ratio = median(plain[0] / tree[0] for tree, plain in pairs)
    difference = np.abs(pairs[0][0][1] - pairs[0][1][1]).max()
    print(f"tree {median(tree[0] for tree, _ in pairs):.1f} s of CPU, {ratio:.1f} × as fast as plain batches")
    print(f"largest difference of a sentence {difference:.1e} nats; peak memory {peak_memory():.2f} GiB")


if __name__ == "__main__":
    main()
