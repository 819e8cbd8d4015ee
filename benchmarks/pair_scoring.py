"""A benchmark of masked scoring of sentence pairs: Evenhand against the methods of published scripts.

$ python -m benchmarks.pair_scoring --threads 1                                      # 6 minutes of one core
$ python -m benchmarks.pair_scoring --threads 1 --n 2 --rounds 1 --vocabulary 30522  # a try, 20 seconds

The model has BERT-base's shape, random weights and BERT's uncased tokenizer, for realistic lengths. The two other
methods are "a sentence at a time" (the script of Steinborn et al. 2022: the masks of one sentence are one batch, with
logits at all positions) and "a mask at a time" (the script of CrowS-Pairs). The methods alternate, and seconds are CPU
seconds of all threads, so that other work on the machine matters little.
"""

from statistics import median

import numpy as np
import pandas as pd
import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from benchmarks.measuring import SHARED, parse_options, timed
from evenhand.evaluation import columns
from evenhand.evaluation.data.sentence_pairs import read_sentence_pairs, resolve_pairs_file
from evenhand.evaluation.metrics.sentence_pairs.metric import find_shared_positions
from evenhand.evaluation.models.likelihood.masked import masked_log_probabilities, tokenize_sentences
from evenhand.evaluation.models.loading import MaskedModel

Sentences = tuple[list[list[int]], list[list[int]]]  # token ids and the positions to mask, alternately more and less


def random_model(vocabulary: int, tokenizer: BertTokenizer) -> MaskedModel:
    """Return a model of BERT-base's shape with random weights."""
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(vocab_size=vocabulary)).eval()
    return MaskedModel(model, tokenizer, f"BERT-base, vocabulary {vocabulary:,}", "random")


def sentences(model: MaskedModel, pairs: pd.DataFrame) -> Sentences:
    """Return the sentences of the pairs and the positions of the tokens that both sentences of a pair share."""
    ids, special = tokenize_sentences(
        model, [text for pair in pairs[[columns.MORE, columns.LESS]].to_numpy() for text in pair]
    )
    positions = []
    for more in range(0, len(ids), 2):
        positions += find_shared_positions(ids[more], ids[more + 1], special[more], special[more + 1])
    return ids, positions


def ours(model: MaskedModel, ids: list[list[int]], positions: list[list[int]]) -> np.ndarray:
    """Return log p of every masked token, computed by Evenhand's `masked_log_probabilities`."""
    log_p = np.full(sum(map(len, positions)), np.nan)
    for rows, values, _ in masked_log_probabilities(model, ids, positions):
        log_p[rows] = values
    return log_p


@torch.inference_mode()
def a_sentence_at_a_time(model: MaskedModel, ids: list[list[int]], positions: list[list[int]]) -> np.ndarray:
    """Return log p of every masked token; the masks of one sentence are one batch."""
    found = []
    for sentence, places in zip(ids, positions, strict=True):
        row = torch.arange(len(places))
        gold = torch.tensor(sentence)[places]
        masked = torch.tensor(sentence).repeat(len(places), 1)
        masked[row, places] = model.tokenizer.mask_token_id
        logits = model.model(masked).logits[row, places]
        found.append(logits.log_softmax(-1)[row, gold].double().numpy())
    return np.concatenate(found)


def a_mask_at_a_time(model: MaskedModel, ids: list[list[int]], positions: list[list[int]]) -> np.ndarray:
    """Return log p of every masked token, each by a separate pass."""
    repeated_ids = []
    single_positions = []
    for sentence, places in zip(ids, positions, strict=True):
        for place in places:
            repeated_ids.append(sentence)
            single_positions.append([place])
    return a_sentence_at_a_time(model, repeated_ids, single_positions)


def report(vocabulary: int, tokenizer: BertTokenizer, pairs: pd.DataFrame, rounds: int) -> None:
    """Time the three methods with one vocabulary, and print the results."""
    model = random_model(vocabulary, tokenizer)
    ids, positions = sentences(model, pairs)
    n_few = max(2, len(ids) // 4) // 2 * 2  # one mask at a time is slow
    few_ids = ids[:n_few]
    few_positions = positions[:n_few]
    masked = sum(map(len, positions))
    print(f"\n{model.name}: {len(pairs)} pairs, {masked:,} masked tokens, float32")
    for method in (ours, a_sentence_at_a_time):
        method(model, few_ids, few_positions)  # warm
    sentence_ratios = []
    mask_ratios = []
    for _ in range(rounds):
        seconds, log_p = timed(ours, model, ids, positions)
        slower, plain = timed(a_sentence_at_a_time, model, ids, positions)
        sentence_ratios.append(slower / seconds)
        slowest, _ = timed(a_mask_at_a_time, model, few_ids, few_positions)
        few_seconds, _ = timed(ours, model, few_ids, few_positions)
        mask_ratios.append(slowest / few_seconds)
    print(f"  ours: {masked / seconds:.1f} masked tokens per CPU second")
    print(f"  a sentence at a time: ours is {median(sentence_ratios):.2f} times as fast")
    print(f"  a mask at a time, {n_few // 2} pairs: ours is {median(mask_ratios):.2f} times as fast")
    print(f"  largest difference of a log p {np.abs(log_p - plain).max():.1e}")


def main() -> None:
    given = parse_options(
        __doc__,
        pairs=(str(SHARED / "s_jsd" / "cps_translated_en_formatted.csv"), "a file of pairs"),
        n=(24, "random pairs of the file"),
        vocabulary=([30_522, 250_002], "numbers of words, each at least the tokenizer's 30,522"),
        threads=torch.get_num_threads(),
        rounds=(3, "timings of each method, of which the median counts"),
    )
    torch.set_num_threads(given.threads)
    words = (SHARED / "tokenizers" / "bert-base-uncased" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    # With `vocab_file`, the class returns an empty tokenizer without an error; it needs `vocab`.
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
    table = read_sentence_pairs(resolve_pairs_file(given.pairs))
    pairs = table[table["left_out"].isna()].sample(given.n, random_state=0)
    print(f"{given.threads} threads; seconds of CPU")
    for vocabulary in given.vocabulary:
        report(vocabulary, tokenizer, pairs, given.rounds)


if __name__ == "__main__":
    main()
