"""Seeded samples of values within strata. A sample depends only on the seed, the purpose and the values."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np


def stable_hash(*parts: object) -> int:
    """Return a hash of 128 bits of the parts' texts, which is the same in every process and version."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")


def sample_strata(
    strata: Mapping[str, Sequence[str]], n: int, seed: int, purpose: str, *, split: bool = False
) -> list[str]:
    """Return n values, from each stratum in proportion to its size: the values with the smallest hashes.

    The hash is of seed, purpose and value. Each stratum has at least one value in the sample if n is not below the
    number of strata. For a split, each stratum of two or more values has at least one in the sample and one outside it.
    """
    sizes = {stratum: len(values) for stratum, values in strata.items()}
    counts = {stratum: int(size > 1 if split else n >= len(sizes)) for stratum, size in sizes.items()}
    most = {stratum: size - counts[stratum] if split else size for stratum, size in sizes.items()}
    while sum(counts.values()) < n and (free := [stratum for stratum in sizes if counts[stratum] < most[stratum]]):
        missing = {stratum: sizes[stratum] * n / sum(sizes.values()) - counts[stratum] for stratum in free}
        counts[max(free, key=lambda stratum: (missing[stratum], stratum))] += 1
    return [
        value
        for stratum, values in strata.items()
        for value in sorted(values, key=lambda value: stable_hash(seed, purpose, value))[: counts[stratum]]
    ]


def stratified_rows(strata: Sequence[str], ids: Sequence[str], n: int, seed: int) -> np.ndarray:
    """Return the sorted indices of n of the rows, from each stratum in proportion to its size (`sample_strata`).

    Args:
        strata: the stratum of each row.
        ids: the id of each row; ids are distinct.
        n: the size of the sample; all rows are returned if there are at most n.
    """
    values: dict[str, list[str]] = {}
    for stratum, name in zip(strata, ids, strict=True):
        values.setdefault(stratum, []).append(name)
    sampled = {*sample_strata(values, n, seed, "limit")}
    return np.array([index for index, name in enumerate(ids) if name in sampled])
