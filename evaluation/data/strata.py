"""Seeded samples of values within strata. A sample depends only on the seed, the purpose and the values."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def stable_hash(*parts: Any) -> int:
    """Return a hash of 128 bits of the parts' texts, which is the same in every process and version."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")


def allocate(
    sizes: Mapping[str, int], n: int, minimum: Mapping[str, int], maximum: Mapping[str, int]
) -> dict[str, int]:
    """Return how many of n values to take from each stratum, in proportion to its size, within the given limits."""
    counts, total = dict(minimum), sum(sizes.values())
    while sum(counts.values()) < n and (free := [stratum for stratum in sizes if counts[stratum] < maximum[stratum]]):
        counts[max(free, key=lambda stratum: (sizes[stratum] * n / total - counts[stratum], stratum))] += 1
    return counts


def sample_strata(strata: Mapping[str, list[str]], counts: Mapping[str, int], seed: int, purpose: str) -> list[str]:
    """Return `counts` values from each stratum: the values with the smallest hash of seed, purpose and value."""
    return [
        value
        for stratum, values in strata.items()
        for value in sorted(values, key=lambda value: stable_hash(seed, purpose, value))[: counts[stratum]]
    ]


def stratified_rows(strata: Sequence[str], ids: Sequence[str], n: int, seed: int) -> np.ndarray:
    """Return the sorted indices of n of the rows, sampled from each stratum in proportion to its size.

    Each stratum has at least one row in the sample if n is not below the number of strata.

    Args:
        strata: the stratum of each row.
        ids: the id of each row; ids are distinct.
        n: the size of the sample; all rows are returned if there are at most n.
    """
    values: dict[str, list[str]] = {}
    for stratum, name in zip(strata, ids, strict=True):
        values.setdefault(stratum, []).append(name)
    sizes = {stratum: len(values[stratum]) for stratum in sorted(values)}
    counts = allocate(sizes, n, dict.fromkeys(sizes, int(n >= len(sizes))), sizes)
    sampled = {*sample_strata(values, counts, seed, "limit")}
    return np.array([index for index, name in enumerate(ids) if name in sampled])
