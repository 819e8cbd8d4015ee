"""A benchmark of masked scoring of sentence pairs: Evenhand against the methods of published scripts.

    python -m benchmarks.pair_scoring [--pairs FILE] [--n 24] [--vocabulary 30522 250002] [--threads 2]

The model has BERT-base's shape, random weights and BERT's uncased tokenizer, for realistic lengths. The two other
methods are:

- "a sentence at a time" (paper 001's script): the masks of one sentence are one batch, with logits at all positions;
- "a mask at a time" (the script of CrowS-Pairs).

The methods alternate, and seconds are CPU seconds of all threads, so that other work on the machine matters little. The
encoder's share of the peak is the rate of its matrix products over the rate of one large matrix product in the same
run. bfloat16 is compared with float32 for each pair; the change of each score is printed with the score's standard
error.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import numpy as np
import pandas as pd
import torch
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from benchmarks.measuring import NO_BFLOAT16, SHARED, has_bfloat16, parse_options, timed
from evenhand.evaluation.data.sentence_pairs import read_pairs, resolve_pairs_file
from evenhand.evaluation.families.sentence_pairs.rows import find_shared_positions, jensen_shannon_distance
from evenhand.evaluation.models.likelihood.masked import encode_sentences, masked_log_probabilities
from evenhand.evaluation.models.loading import MaskedModel
from evenhand.evaluation.score import LESS, MORE

Sentences = tuple[list[list[int]], list[list[int]]]  # token ids and the positions to mask, alternately more and less
PEAK_SHAPE = (2048, 768, 3072)


def random_model(vocabulary: int, tokenizer: BertTokenizer) -> MaskedModel:
    """Return a model of BERT-base's shape with random weights."""
    torch.manual_seed(0)
    model = BertForMaskedLM(BertConfig(vocab_size=vocabulary)).eval()
    return MaskedModel(model, tokenizer, f"BERT-base, vocabulary {vocabulary:,}", "random")


def sentences(model: MaskedModel, pairs: pd.DataFrame) -> Sentences:
    """Return the sentences of the pairs and the positions of the tokens that both sentences of a pair share."""
    ids, special = encode_sentences(model, [text for pair in pairs[[MORE, LESS]].to_numpy() for text in pair])
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
        row, gold = torch.arange(len(places)), torch.tensor(sentence)[places]
        masked = torch.tensor(sentence).repeat(len(places), 1)
        masked[row, places] = model.tokenizer.mask_token_id
        logits = model.model(masked).logits[row, places]
        found.append(logits.log_softmax(-1)[row, gold].double().numpy())
    return np.concatenate(found)


def a_mask_at_a_time(model: MaskedModel, ids: list[list[int]], positions: list[list[int]]) -> np.ndarray:
    """Return log p of every masked token, each by a separate pass."""
    rows = [(sentence, [place]) for sentence, places in zip(ids, positions, strict=True) for place in places]
    return a_sentence_at_a_time(model, *map(list, zip(*rows, strict=True)))


def peak() -> float:
    """Return the rate of one large matrix product in float32, FLOP/s: the best of ten."""
    n, k, m = PEAK_SHAPE
    a, b = torch.randn(n, k), torch.randn(k, m)
    times = []
    for _ in range(10):
        start = time.process_time()
        a @ b
        times.append(time.process_time() - start)
    return 2 * n * k * m / min(times)


def encoder_flop(model: MaskedModel, ids: Sequence[Sequence[int]], positions: Sequence[Sequence[int]]) -> float:
    """Return the number of floating-point operations of the encoder's matrix products over all masked rows."""
    config = model.model.config
    h, f, layers = config.hidden_size, config.intermediate_size, config.num_hidden_layers
    tokens = np.array([len(sentence) for sentence in ids], dtype=float)
    rows = np.array([len(places) for places in positions])
    return float((rows * layers * (2 * tokens * (4 * h * h + 2 * h * f) + 4 * tokens**2 * h)).sum())


@contextmanager
def encoder_seconds(model: MaskedModel) -> Iterator[list[float]]:
    """Yield a list that fills with the seconds of each pass of the encoder."""
    seconds: list[float] = []
    begun = [0.0]

    def begin(*_: object) -> None:
        begun[0] = time.process_time()

    encoder = model.model.base_model
    hooks = [
        encoder.register_forward_pre_hook(begin),
        encoder.register_forward_hook(lambda *_: seconds.append(time.process_time() - begun[0])),
    ]
    try:
        yield seconds
    finally:
        for hook in hooks:
            hook.remove()


def pair_values(log_p: np.ndarray, positions: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return each pair's S_JSD and whether `more` has the larger Σ log p."""
    by_sentence = np.split(log_p, np.cumsum([len(places) for places in positions])[:-1])
    more, less = by_sentence[::2], by_sentence[1::2]
    both = list(zip(more, less, strict=True))
    s_jsd = [float((jensen_shannon_distance(a) - jensen_shannon_distance(b)).mean()) for a, b in both]
    return np.array(s_jsd), np.array([a.sum() > b.sum() for a, b in both])


def report(vocabulary: int, tokenizer: BertTokenizer, pairs: pd.DataFrame, rounds: int) -> None:
    """Time the three methods and bfloat16 with one vocabulary, and print the results."""
    model = random_model(vocabulary, tokenizer)
    scored = sentences(model, pairs)
    few = tuple(part[: max(2, len(part) // 4) // 2 * 2] for part in scored)  # one mask at a time is slow
    masked = sum(map(len, scored[1]))
    print(f"\n{model.name}: {len(pairs)} pairs, {masked:,} masked tokens, float32")
    for way in (ours, a_sentence_at_a_time):
        way(model, *few)
    taken: dict[str, list[float]] = {name: [] for name in ("ours", "sentence", "ours_few", "mask")}
    shares, encoder = [], []
    for _ in range(rounds):
        with encoder_seconds(model) as seconds:
            time_ours, log_p = timed(ours, model, *scored)
        encoder.append(sum(seconds) / time_ours)
        shares.append(encoder_flop(model, *scored) / sum(seconds) / peak())
        time_sentence, plain = timed(a_sentence_at_a_time, model, *scored)
        time_few, _ = timed(ours, model, *few)
        time_mask, _ = timed(a_mask_at_a_time, model, *few)
        for name, value in zip(taken, (time_ours, time_sentence, time_few, time_mask), strict=True):
            taken[name].append(value)
    ratio = median(a / b for a, b in zip(taken["sentence"], taken["ours"], strict=True))
    single = median(a / b for a, b in zip(taken["mask"], taken["ours_few"], strict=True))
    print(
        f"  ours                 {median(taken['ours']):7.1f} s   {masked / median(taken['ours']):6.1f} masked tokens/s"
    )
    print(f"  a sentence at a time {median(taken['sentence']):7.1f} s   ours is {ratio:.2f} × as fast")
    print(f"  a mask at a time     ({len(few[0]) // 2} pairs)   ours is {single:.2f} × as fast")
    print(f"  largest difference of a log p {np.abs(log_p - plain).max():.1e}")
    print(
        f"  encoder: {median(encoder):.0%} of the time, at {median(shares):.0%} of the peak {peak() / 1e9:.0f} GFLOP/s"
    )
    in_bfloat16(model, scored if has_bfloat16() else few, median(taken["ours"]), rounds)


def in_bfloat16(model: MaskedModel, scored: Sentences, seconds: float, rounds: int) -> None:
    """Print the speedup by bfloat16, if the processor supports it, and its effect on the scores."""
    exact = ours(model, *scored)
    half = MaskedModel(model.model.to(torch.bfloat16), model.tokenizer, model.name, "random")
    if has_bfloat16():
        taken, rounded = min((timed(ours, half, *scored) for _ in range(rounds)), key=lambda one: one[0])
        print(f"  bfloat16             {taken:7.1f} s   {seconds / taken:.2f} × as fast as float32")
    else:
        rounded = ours(half, *scored)
        print(f"  bfloat16: {NO_BFLOAT16}")
    (s_jsd, more), (s_jsd_half, more_half) = (pair_values(each, scored[1]) for each in (exact, rounded))
    n = len(more)
    error = s_jsd.std(ddof=1) / np.sqrt(n)
    print(f"    {n} pairs: S_JSD {s_jsd.mean():+.2e} → {s_jsd_half.mean():+.2e}; standard error {error:.1e}")
    error = 100 * np.sqrt(more.mean() * (1 - more.mean()) / n)
    print(f"    CPS {100 * more.mean():.1f} → {100 * more_half.mean():.1f}; standard error {error:.1f}")


def main() -> None:
    given = parse_options(
        __doc__,
        pairs=str(SHARED / "s_jsd" / "cps_translated_en_formatted.csv"),
        n=(24, "random pairs of the file"),
        vocabulary=[30_522, 250_002],
        threads=torch.get_num_threads(),
        rounds=3,
    )
    torch.set_num_threads(given.threads)
    words = (SHARED / "tokenizers" / "bert-base-uncased" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    # With `vocab_file`, the class returns an empty tokenizer without an error; it needs `vocab`.
    tokenizer = BertTokenizer(vocab={word: number for number, word in enumerate(words)})
    table = read_pairs(resolve_pairs_file(given.pairs))
    pairs = table[table["left_out"].isna()].sample(given.n, random_state=0)
    print(f"{given.threads} threads; seconds of CPU")
    for vocabulary in given.vocabulary:
        report(vocabulary, tokenizer, pairs, given.rounds)


if __name__ == "__main__":
    main()
