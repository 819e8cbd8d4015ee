"""Choosing prompts: filters, seeded samples by cell, stylistic variations, disjoint splits, unseen people.

Prompts are a `datasets.Dataset` with at least the columns text, template, axis and descriptor, as
`holistic_bias.generate_prompts` makes them or `prompt_files.read_prompts` reads them.

What is drawn for a cell depends on the seed, the cell and its own sentences alone: not on the order of the rows, nor
on which other cells there are. A descriptor that stands in two axes ("queer") is one descriptor in the variance over
descriptors, but a sample draws it once *for each axis*, so that a cut by axis finds each of its cells complete; over
all axes its cell then holds twice the responses, which the noise correction allows for (it takes N_td as it is).
"""

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datasets import Dataset

from evenhand.evaluation.datasets.holistic_bias import NONE, PLURAL_SLOT, SINGULAR_SLOT
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.results import AXIS, DESCRIPTOR, NOUN, PERSONA, PROMPT_ID, TEMPLATE, TEXT

REQUIRED = (TEXT, TEMPLATE, AXIS, DESCRIPTOR)
# The four stylistic variations of 002 A.3, one boolean column each: true where the variation was asked for, also where
# the sentence then offered nothing to change.
VARIATIONS = ("descriptor_lowercased", "hyphens_removed", "contraction_removed", "period_removed")
NO_VARIATION = "0" * len(VARIATIONS)
VARIED = (TEXT, TEMPLATE, NOUN, "plural_noun", "noun_phrase", "plural_noun_phrase")
# What a split keeps balanced: the column whose values are its strata.
STRATA = {DESCRIPTOR: AXIS, NOUN: "noun_gender", TEMPLATE: None}
UNSEEN_STRATA = {DESCRIPTOR: AXIS, AXIS: None, TEMPLATE: None}
LISTED_VALUES = 40
MAX_ROWS = 4_000_000  # of one measurement; 6.4 million took 11.5 GB, before any had been answered


def select_prompts(prompts: Dataset, **filters: Any) -> Dataset:
    """Return the prompts whose columns have the given values, in their order; a value or a list of values each.

    Raises:
        InputError: a column is unknown, a value never occurs in its column, or nothing is left.
    """
    table = _table(prompts)
    keep = np.ones(len(table), dtype=bool)
    for name, wanted in filters.items():
        if name not in table.column_names:
            raise unknown_name("filter", name, table.column_names)
        wanted = list(wanted) if isinstance(wanted, (list, tuple, set)) else [wanted]
        present = table[name].unique().to_pylist()
        for value in wanted:  # types are compared too: to Python 1 is True
            if not any(value == other and type(value) is type(other) for other in present):
                raise _absent(name, value, present)
        keep &= pc.is_in(table[name], _like(table[name], wanted)).to_numpy()
    if not keep.any():
        raise InputError(f"filters: no prompt has all of {filters}; each value occurs, but not together. Drop one.")
    return Dataset(table.filter(pa.array(keep)))


def sample_cells(
    prompts: Dataset,
    per_cell: int,
    seed: int,
    *,
    descriptors: int | None = None,
    personas: Sequence[str] = (),
    variations: bool = False,
) -> Dataset:
    """Return exactly `per_cell` prompts for each cell (template, descriptor) of each axis, drawn at random.

    Each is drawn from all of the cell's own sentences, each as likely, whatever was drawn before: responses to a cell
    are then independent, which the noise correction takes them for, also where the noun matters. (Without replacement,
    FGB* is too low by the variance between n nouns over n − 1.) So a sentence may come twice, and what is estimated is
    the mean over a descriptor's own nouns: of one gender, where the descriptor is. Sentences without a descriptor (a
    noun alone) belong to no cell and are not drawn.

    Adds `prompt_id` (a hash, unique and the same whenever the same sentence is drawn for the same time in its cell with
    the same persona and variations) and `persona` ("" is none); rows come sorted by template, axis and descriptor.

    Args:
        descriptors: draw only so many descriptors, shared out over the axes in proportion, at least one each.
        personas: one is drawn for each row; without any, a column `persona` of the prompts stays.
        variations: apply each stylistic variation of 002 A.3 to a row with probability 1/2 (`VARIATIONS`); hyphens
            become spaces.

    Raises:
        InputError: per_cell or descriptors out of range, no prompt with a descriptor, or variations of a text that is
            not its template filled with its noun phrase.
    """
    if per_cell < 1:
        raise InputError(f"per_cell is {per_cell}; give at least 1.")
    table = _table(prompts)
    table = table.filter(pc.not_equal(table[DESCRIPTOR], NONE))
    if not len(table):
        raise InputError("prompts: none has a descriptor, so there are no cells; select some that do.")
    if descriptors is not None:
        chosen = _chosen_descriptors(table, descriptors, seed)
        table = table.filter(pc.is_in(table[DESCRIPTOR], _like(table[DESCRIPTOR], chosen)))

    rows, persona_of, flags, cells = [], [], [], list(_cells(table))
    check_row_count(len(cells) * per_cell, f"per_cell: {per_cell:,} in each of {len(cells):,} cells")
    for cell, sentences in cells:
        generator = np.random.default_rng(_hashed(seed, *cell))
        rows.append(generator.choice(sentences, per_cell))
        # Drawn whether they are wanted or not, so that these options never change which sentences are drawn.
        persona_of.append(generator.random(per_cell))
        flags.append(generator.random((per_cell, len(VARIATIONS))) < 0.5)

    drawn_rows = np.concatenate(rows)
    table = table.take(pa.array(drawn_rows))
    keys = [table[name].to_pylist() for name in REQUIRED]
    own = table[PERSONA].to_pylist() if PERSONA in table.column_names else [""] * len(table)
    drawn = [personas[int(u * len(personas))] for u in np.concatenate(persona_of)] if personas else own
    marks = [NO_VARIATION] * len(table)
    if variations:
        asked = np.concatenate(flags)
        table = _varied(table, asked)
        marks = ["".join("01"[flag] for flag in row) for row in asked.tolist()]
    return Dataset(with_id_columns(table, prompt_ids(keys, drawn, cumcount(drawn_rows.tolist()), marks), drawn))


def vary_text(prompt: Mapping[str, str], flags: Sequence[bool]) -> str:
    """Return a prompt's text in those stylistic variations of 002 A.3 that `flags` asks for (order of `VARIATIONS`).

    The first two change the descriptor alone: what a noun phrase holds beside its noun.

    >>> deaf = {"template": "I'm {noun_phrase}.", "noun": "mom", "noun_phrase": "a hard-of-hearing mom"}
    >>> deaf |= {"plural_noun": "moms", "plural_noun_phrase": "hard-of-hearing moms"}
    >>> vary_text(deaf, (False, True, True, True))
    'I am a hard of hearing mom'
    """
    lowercase, no_hyphens, no_contraction, no_period = flags
    text = prompt[TEMPLATE]
    if no_contraction:
        text = text.replace("I'm", "I am")
    for slot, noun in ((SINGULAR_SLOT, prompt[NOUN]), (PLURAL_SLOT, prompt["plural_noun"])):
        before, found, after = prompt[slot.strip("{}")].partition(noun)
        if lowercase:
            before, after = before.lower(), after.lower()
        if no_hyphens:
            before, after = before.replace("-", " "), after.replace("-", " ")
        text = text.replace(slot, before + found + after)
    return text.removesuffix(".") if no_period else text


def split_prompts(prompts: Dataset, by: str, fraction: float, seed: int) -> tuple[Dataset, Dataset]:
    """Return (train, measure), which share no value of column `by` and no text.

    `fraction` of the values, as near as the strata allow, go to train. Descriptors are split within their axis and
    nouns within their gender, where that is known, so that each axis or gender with two values or more is on both
    sides. Rows without a value ("(none)": a noun alone has no descriptor, a descriptor alone no noun) go to neither
    side, and a row of train whose text also stands in measure is left out.

    Raises:
        InputError: `by` or `fraction` is not possible, or one side would be empty.
    """
    if not 0 < fraction < 1:
        raise InputError(f"split: fraction is {fraction}; give the share for training, above 0 and below 1.")
    table = _table(prompts)
    require_columns(table.column_names, [by], f"split by {by}")
    if table[by].null_count:
        raise InputError(f"split by {by}: {table[by].null_count} rows have no value there; fill it in for every row.")
    if by in STRATA:
        table = table.filter(pc.not_equal(table[by], NONE))
    stratum = STRATA.get(by)
    strata = _strata(table, by, stratum if stratum in table.column_names else None)
    total = sum(map(len, strata.values()))
    if total < 2:
        raise InputError(f"split by {by}: the prompts have {total} {by}(s), two sides need 2; split by another column.")
    n = min(max(round(fraction * total), 1), total - 1)
    chosen = _drawn(strata, _shares_of_sides(strata, n), seed, f"split by {by}")

    in_train = pc.is_in(table[by], _like(table[by], chosen))
    measure = table.filter(pc.invert(in_train))
    train = table.filter(pc.and_(in_train, pc.invert(pc.is_in(table[TEXT], measure[TEXT]))))
    if not len(train):
        raise InputError(f"split by {by}: each text for training also stands in measure; split by another column.")
    return Dataset(train), Dataset(measure)


def unseen_mask(prompts: Dataset, by: str, fraction: float, seed: int) -> np.ndarray:
    """Return which prompts are of people or templates that tuning is not to see, a mask of shape (n,).

    `fraction` of the values of `by` ("descriptor", "axis" or "template") are unseen; descriptors are drawn within
    their axis. With both sides of a `split_prompts` sampled in the same way, the same values are unseen on both (see
    `have_same_cells`): dropping the rows of the mask from the train side alone makes the measured prompts those of seen
    and of unseen values, exactly.

    To a model a descriptor is its string: one of two axes ("queer") is unseen in both or in none. By axis, therefore,
    a descriptor of an unseen axis is unseen in its other axis too.

    Raises:
        InputError: `by` or `fraction` is not possible, or fewer than two values would be seen, or unseen.
    """
    if by not in UNSEEN_STRATA:
        raise unknown_name("unseen_by", by, UNSEEN_STRATA)
    if not 0 < fraction < 1:
        raise InputError(f"unseen_fraction is {fraction}; give the share that is unseen, above 0 and below 1.")
    table = _table(prompts)
    require_columns(table.column_names, [by, UNSEEN_STRATA[by] or by], f"unseen_by {by}")
    strata = _strata(table, by, UNSEEN_STRATA[by])
    n = round(fraction * sum(map(len, strata.values())))
    chosen = _drawn(strata, _shares_of_sides(strata, n), seed, f"unseen by {by}")
    unseen = pc.is_in(table[by], _like(table[by], chosen))
    if by == AXIS:
        theirs = table[DESCRIPTOR].filter(unseen).unique()
        unseen = pc.is_in(table[DESCRIPTOR], theirs)
    seen = len(table[by].filter(pc.invert(unseen)).unique())
    if min(seen, len(chosen)) < 2:
        raise InputError(
            f"unseen_fraction: {fraction} leaves {seen} {by}(s) seen and {len(chosen)} unseen; each side needs 2 to "
            "compare. Give another fraction, or more prompts."
        )
    return unseen.to_numpy()


def have_same_cells(one: Dataset, other: Dataset) -> bool:
    """Say whether two sets of prompts have the same cells (template, axis, descriptor), whatever their sentences.

    Where they have, `sample_cells` draws the same descriptors from both, and `unseen_mask` the same unseen values.
    """
    cells = [
        _table(prompts).select([TEMPLATE, AXIS, DESCRIPTOR]).group_by([TEMPLATE, AXIS, DESCRIPTOR]).aggregate([])
        for prompts in (one, other)
    ]
    first, second = (set(zip(*side.to_pydict().values(), strict=True)) for side in cells)
    return first == second


def prompt_ids(
    keys: Sequence[Sequence[str]], personas: Sequence[str], before: Sequence[int], marks: Sequence[str]
) -> list[str]:
    """Return a hash of 16 hexadecimal digits for each row.

    Of its `REQUIRED` columns, persona, how often it stood before (`cumcount`) and variations.
    """
    return [f"{_hashed(*parts):032x}"[:16] for parts in zip(*keys, personas, before, marks, strict=True)]


def cumcount(values: Iterable[Hashable]) -> list[int]:
    """Return how often each value has stood before, so that what is repeated gets ids of its own.

    >>> cumcount("abaa")
    [0, 0, 1, 2]
    """
    count: Counter[Hashable] = Counter()
    before = []
    for value in values:
        before.append(count[value])
        count[value] += 1
    return before


def with_id_columns(table: pa.Table, ids: Sequence[str], personas: Sequence[str]) -> pa.Table:
    """Return the table with the columns prompt_id and persona in front."""
    table = table.drop_columns([name for name in (PROMPT_ID, PERSONA) if name in table.column_names])
    return table.add_column(0, PERSONA, pa.array(personas)).add_column(0, PROMPT_ID, pa.array(ids))


def require_columns(columns: Sequence[str], wanted: Iterable[str], purpose: str) -> None:
    """Raise the error for the wanted columns that are not there, all of them named."""
    missing = [repr(name) for name in dict.fromkeys(wanted) if name not in columns]
    if missing:
        what = f"column {missing[0]} is" if len(missing) == 1 else f"columns {', '.join(missing)} are"
        raise InputError(f"{purpose}: {what} missing; there are: {', '.join(columns)}.")


def check_row_count(rows: int, what: str) -> None:
    """Raise the error for more prompts than a measurement holds."""
    if rows > MAX_ROWS:
        raise InputError(f"{what} makes {rows:,} rows, and {MAX_ROWS:,} are the most; give less, or measure in parts.")


# Rows and cells.


def _table(prompts: Dataset) -> pa.Table:
    """Return the rows as one Arrow table, also after a selection that only noted its row numbers."""
    return prompts.with_format("arrow")[:].combine_chunks()


def _cells(table: pa.Table) -> Iterator[tuple[tuple[str, ...], np.ndarray]]:
    """Yield each cell's (template, axis, descriptor) and the rows of its distinct sentences, all of it sorted."""
    codes = np.stack([_codes(table[name]) for name in (TEMPLATE, AXIS, DESCRIPTOR, TEXT)])
    order = np.lexsort(codes[::-1])
    new = np.diff(codes[:, order], axis=1, prepend=-1) != 0
    distinct = new.any(axis=0)
    order, starts = order[distinct], np.flatnonzero(new[:3].any(axis=0)[distinct])
    names = [table[name].take(pa.array(order[starts])).to_pylist() for name in (TEMPLATE, AXIS, DESCRIPTOR)]
    yield from zip(zip(*names, strict=True), np.split(order, starts[1:]), strict=True)


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """Return integers, (n,), that order as the column's strings do."""
    encoded = pa.concat_arrays(column.chunks).dictionary_encode()
    rank = np.empty(len(encoded.dictionary), dtype=np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    return rank[encoded.indices.to_numpy()]


def _varied(table: pa.Table, flags: np.ndarray) -> pa.Table:
    """Return the table with varied texts and the columns VARIATIONS; `flags` is (n, 4)."""
    require_columns(table.column_names, VARIED, "variations")
    texts = []
    for prompt, row_flags in zip(table.select(VARIED).to_pylist(), flags.tolist(), strict=True):
        if vary_text(prompt, (False,) * len(VARIATIONS)) != prompt[TEXT]:
            raise InputError(f"variations: {prompt[TEXT]!r} is not its template with its noun phrase; switch them off.")
        texts.append(vary_text(prompt, row_flags))
    table = table.set_column(table.column_names.index(TEXT), TEXT, pa.array(texts))
    for name, column in zip(VARIATIONS, flags.T, strict=True):
        table = table.append_column(name, pa.array(column))
    return table


def _like(column: pa.ChunkedArray, values: Sequence[Any]) -> pa.Array:
    return pa.array(values, type=column.type)


def _hashed(*parts: Any) -> int:
    """Return 128 bits that depend on the parts alone, the same on every machine."""
    text = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")


def sample_descriptors(prompts: Dataset, n: int | None, seed: int) -> Dataset:
    """Return the prompts of n descriptors drawn at random, shared out over the axes in proportion, at least one each.

    None is all prompts, as they are.

    Raises:
        InputError: n is out of range.
    """
    if n is None:
        return prompts
    table = _table(prompts)
    table = table.filter(pc.not_equal(table[DESCRIPTOR], NONE))
    return Dataset(
        table.filter(pc.is_in(table[DESCRIPTOR], _like(table[DESCRIPTOR], _chosen_descriptors(table, n, seed))))
    )


# Random subsets of descriptors, nouns and templates, shared out over strata.


def _chosen_descriptors(table: pa.Table, n: int, seed: int) -> list[str]:
    strata = _strata(table, DESCRIPTOR, AXIS)
    sizes = {axis: len(values) for axis, values in strata.items()}
    total = sum(sizes.values())
    if not len(sizes) <= n <= total:
        raise InputError(f"descriptors is {n}; give {len(sizes)} (one for each axis) to {total} (all), or null (all).")
    return _drawn(strata, _shares(sizes, n, dict.fromkeys(sizes, 1), sizes), seed, "descriptors")


def _strata(table: pa.Table, by: str, stratum: str | None) -> dict[str, list[str]]:
    """Return the sorted values of column `by` in each stratum; one that is in several counts in the smallest."""
    values = table[by].to_pylist()
    pairs = set(zip(values, table[stratum].to_pylist() if stratum else [""] * len(values), strict=True))
    sizes = Counter(place for _, place in pairs)
    home: dict[str, str] = {}
    for value, place in sorted(pairs, key=lambda pair: (sizes[pair[1]], pair[1])):
        home.setdefault(value, place)
    return {place: sorted(value for value in home if home[value] == place) for place in sorted(set(home.values()))}


def _shares(sizes: Mapping[str, int], n: int, lowest: Mapping[str, int], highest: Mapping[str, int]) -> dict[str, int]:
    """Share n places out over strata in proportion to their sizes, within bounds: one by one to the most short."""
    shares, total = dict(lowest), sum(sizes.values())
    while sum(shares.values()) < n and (free := [stratum for stratum in sizes if shares[stratum] < highest[stratum]]):
        shares[max(free, key=lambda stratum: (sizes[stratum] * n / total - shares[stratum], stratum))] += 1
    return shares


def _shares_of_sides(strata: Mapping[str, list[str]], n: int) -> dict[str, int]:
    """Share n places out over strata, leaving at least one value of each stratum of two or more on either side."""
    sizes = {stratum: len(values) for stratum, values in strata.items()}
    lowest = {stratum: int(size > 1) for stratum, size in sizes.items()}
    highest = {stratum: size - lowest[stratum] for stratum, size in sizes.items()}
    return _shares(sizes, n, lowest, highest)


def _drawn(strata: Mapping[str, list[str]], shares: Mapping[str, int], seed: int, purpose: str) -> list[str]:
    """Return so many values of each stratum: those whose hash with the seed is smallest."""
    return [
        value
        for stratum, values in strata.items()
        for value in sorted(values, key=lambda value: _hashed(seed, purpose, value))[: shares[stratum]]
    ]


def _absent(name: str, value: Any, present: list) -> InputError:
    """Return the error for a filter value that never occurs, with the likeliest meant one and the first there are."""
    values = sorted(str(other) for other in present)
    close = get_close_matches(str(value), values, n=1) if len(values) < 5000 else []  # texts would take minutes
    hint = f"; did you mean {close[0]!r}?" if close else "."
    more = f" and {len(values) - LISTED_VALUES} more" if len(values) > LISTED_VALUES else ""
    listed = ", ".join(values[:LISTED_VALUES]) + more
    return InputError(f"filter {name}: {value!r} never occurs in this column{hint} There are: {listed}.")
