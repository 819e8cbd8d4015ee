"""Selection of prompts: filters, seeded samples of each cell, stylistic variations, disjoint splits, untuned values.

Prompts are a table with at least the columns text, template, axis and descriptor, from `holistic_bias.generate_prompts`
or `prompt_files.read_prompts`.

A cell is a template and a descriptor on an axis. The sample of a cell depends only on the seed, the cell and its
sentences: not on the order of rows or on other cells. A descriptor with two axes ("queer") is one descriptor in the
variance over descriptors. Such a descriptor is sampled once *for each axis*, so that the cells of each axis are
complete; over all axes its cell then has twice the responses, and the noise correction uses this larger number.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import (
    NONE,
    PHRASE_COLUMNS,
    PLURAL_SLOT,
    SINGULAR_SLOT,
    AnyTaxonomy,
    Template,
    all_prompts,
    generate_prompts,
    load_taxonomy,
)
from evenhand.evaluation.data.language.languages import load_language
from evenhand.evaluation.data.readers.table_files import MAX_ROWS
from evenhand.evaluation.data.strata import sample_strata, stable_hash
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.tables import table_rows

REQUIRED_COLUMNS = (columns.TEXT, columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR)
# Column to split by → column of the strata within which it is split, or None.
SPLIT_STRATA = {columns.DESCRIPTOR: columns.AXIS, columns.NOUN: "noun_gender", columns.TEMPLATE: None}
UNSEEN_STRATA = {columns.DESCRIPTOR: columns.AXIS, columns.AXIS: None, columns.TEMPLATE: None, columns.CUE: None}
# The stylistic variations of Smith et al. 2022, A.3. Each is a boolean column, true if the variation was applied to the
# row, also if the text did not change.
VARIATIONS = ("descriptor_lowercased", "hyphens_removed", "contraction_removed", "period_removed")
NO_VARIATION = "0" * len(VARIATIONS)
VARIED_COLUMNS = (columns.TEXT, columns.TEMPLATE, columns.NOUN, "plural_noun", "noun_phrase", "plural_noun_phrase")
DESCRIPTORS_SEED = 0  # of the sample of descriptors; the same for all runs
MAX_VALUES = 5000  # of which an error suggests the closest one


def select_prompts(prompts: pd.DataFrame, filters: Mapping[str, object]) -> pd.DataFrame:
    """Return the prompts whose columns have the values in `filters`, in the order of `prompts`.

    Args:
        filters: column → value or list of values.

    Raises:
        InputError: a column is unknown, a value does not occur in its column, or no prompt matches all filters.
    """
    keep = np.ones(len(prompts), dtype=bool)
    for name, wanted in filters.items():
        if name not in prompts:
            raise unknown_name("filter", name, map(str, prompts))
        wanted = list(wanted) if isinstance(wanted, (list, tuple, set)) else [wanted]
        present = prompts[name].unique().tolist()
        for value in wanted:  # types are compared because 1 == True
            if not any(value == other and type(value) is type(other) for other in present):
                known = map(str, present if len(present) < MAX_VALUES else [*present[:9], "…"])
                raise unknown_name(f"filter {name}", str(value), known)
        keep &= prompts[name].isin(wanted).to_numpy()
    if not keep.any():
        raise InputError("filters", f"no prompt has all of {filters}; each value occurs, but not together. Drop one.")
    return prompts[keep].reset_index(drop=True)


def sample_cells(
    prompts: pd.DataFrame,
    answers_per_cell: int,
    seed: int,
    *,
    descriptors: int | None = None,
    personas: Sequence[str] = (),
    variations: bool = False,
) -> pd.DataFrame:
    """Return a sample of exactly `answers_per_cell` prompts for each cell (template, descriptor) of each axis.

    Sampling is uniform over the sentences of the cell, with replacement: responses in a cell are then independent, as
    the noise correction assumes. (Without replacement, FGB* is too low by the variance between n nouns over n − 1.) A
    sentence can occur more than once, and the estimated quantity is the mean over the nouns of a descriptor, which all
    have one gender if the descriptor has one. Sentences without a descriptor belong to no cell and are left out.

    The columns `prompt_id` and `persona` ("" if none) are added, and rows are sorted by template, axis and descriptor.
    An id is a hash of the sentence, its persona, its variations and the number of its earlier occurrences in the cell.

    Args:
        descriptors: number of descriptors to sample, from each axis in proportion to its number of descriptors and at
            least one; None for all descriptors.
        personas: texts of which one is sampled for each row; if empty, a column `persona` of the prompts is used.
        variations: apply each of `VARIATIONS` (Smith et al. 2022, A.3) to a row with probability 1/2; hyphens become
            spaces.

    Raises:
        InputError: descriptors is out of range, no prompt has a descriptor, or `variations` is set and a
            text is not its template filled with its noun phrase.
    """
    table = sample_descriptors(prompts[prompts[columns.DESCRIPTOR] != NONE], descriptors).reset_index(drop=True)
    if not len(table):
        raise InputError("prompts", "no prompt has a descriptor, so no cell can be sampled; select other prompts.")
    names = [columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR]
    context = _context(table)
    cells = table[[*names, *context]].drop_duplicates().sort_values([*names, *context]).groupby(names).groups
    check_row_count(
        len(cells) * answers_per_cell, f"answers_per_cell: {answers_per_cell:,} in each of {len(cells):,} cells"
    )
    sampled_rows, persona_draws, flags = _draw_rows(cells, answers_per_cell, seed)
    table = table.iloc[sampled_rows].reset_index(drop=True)
    keys = [table[name].tolist() for name in REQUIRED_COLUMNS]
    if personas:
        row_personas = [personas[int(u * len(personas))] for u in persona_draws]
    else:
        row_personas = table[columns.PERSONA].tolist() if columns.PERSONA in table else [""] * len(table)
    bits = [NO_VARIATION] * len(table)
    if variations:
        require_columns(list(table), VARIED_COLUMNS, "variations")
        table = apply_variations(table, flags)
        bits = ["".join("1" if flag else "0" for flag in row) for row in flags.tolist()]
    ids = compute_prompt_ids(keys, row_personas, pd.Series(sampled_rows).groupby(sampled_rows).cumcount(), bits)
    return with_id_columns(table, ids, row_personas)


def _draw_rows(
    cells: Mapping[tuple[str, ...], pd.Index], answers_per_cell: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sample n prompts, the same number from each cell.

    The draws of a cell depend on the seed and the cell alone. Personas and variations are drawn even if nobody uses
    them, so that these two options do not change which sentences are sampled.

    Args:
        cells: the rows of the sentences of each cell.
        answers_per_cell: the number of prompts to sample from each cell.
        seed: the seed of the draws.

    Returns:
        The sampled rows, (n,); a random number in [0, 1) that chooses the persona of each row, (n,); and whether each
        of the four stylistic variations is applied to it, (n, 4) bool.
    """
    rows = []
    persona_draws = []
    flags = []
    for cell, sentences in cells.items():
        generator = np.random.default_rng(stable_hash(seed, *cell))
        rows.append(generator.choice(sentences.to_numpy(), answers_per_cell))
        persona_draws.append(generator.random(answers_per_cell))
        flags.append(generator.random((answers_per_cell, len(VARIATIONS))) < 0.5)
    return np.concatenate(rows), np.concatenate(persona_draws), np.concatenate(flags)


def split_prompts(prompts: pd.DataFrame, by: str, fraction: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return (train, measure), two sets of prompts that share no value of column `by` and no text.

    About `fraction` of the values are in train. Descriptors are split within their axis, and nouns within their gender
    if it is known, so that both sets have each axis or gender with two or more values. Rows whose value is "(none)" are
    in neither set; a row of train whose text is also in measure is left out.

    Raises:
        InputError: `by` is no column, a value is missing, or a set would be empty.
    """
    require_columns(list(prompts), [by], f"split by {by}")
    if missing := int(prompts[by].isna().sum()):
        raise InputError(f"split by {by}", f"{missing} rows have no value; give each row one.")
    table = prompts[prompts[by] != NONE] if by in SPLIT_STRATA else prompts
    stratum = SPLIT_STRATA.get(by)
    strata = _strata(table, by, stratum if stratum in table else None)
    total = sum(map(len, strata.values()))
    n = 0 if total < 2 else min(max(round(fraction * total), 1), total - 1)
    in_train = table[by].isin(sample_strata(strata, n, seed, f"split by {by}", split=True))
    measure = table[~in_train]
    read = _context(table)
    # Numbering groups takes much longer than comparing the texts themselves.
    context = table[read[0]] if len(read) == 1 else table.groupby(read, sort=False, dropna=False).ngroup()
    in_measure = context.isin(context[~in_train])
    train = table[in_train & ~in_measure]
    if not len(train):
        raise InputError(f"split by {by}", f"{total} value(s) leave no text for training; split by another column.")
    return train.reset_index(drop=True), measure.reset_index(drop=True)


def untuned_mask(prompts: pd.DataFrame, by: str, fraction: float, seed: int) -> np.ndarray:
    """Return a boolean mask, (n,), that is true for prompts whose value of column `by` must not be used in tuning.

    About `fraction` of the values of `by` ("descriptor", "axis" or "template") are untuned; descriptors are sampled
    within their axis. Both sets of `split_prompts`, sampled in the same way, have the same untuned values if
    `have_same_cells` is true for the sets: if the masked rows are removed from train, measure has values of
    both kinds.

    A descriptor with two axes ("queer") is untuned in both axes or in neither, because a model reads the same string.
    With `by` "axis", a descriptor of an untuned axis is therefore untuned in its other axis too.

    Raises:
        InputError: fewer than 2 values would be tuned or untuned.
    """
    require_columns(list(prompts), [by, UNSEEN_STRATA[by] or by], f"untuned_by {by}")
    strata = _strata(prompts, by, UNSEEN_STRATA[by])
    n = round(fraction * sum(map(len, strata.values())))
    # The name of the random numbers is that of earlier versions, so that a seed still draws the same values.
    untuned_values = sample_strata(strata, n, seed, f"unseen by {by}", split=True)
    untuned = prompts[by].isin(untuned_values)
    if by == columns.AXIS:
        untuned = prompts[columns.DESCRIPTOR].isin(prompts[columns.DESCRIPTOR][untuned])
    n_tuned = prompts[by][~untuned].nunique()
    needed = 1 if by == columns.CUE else 2
    if min(n_tuned, len(untuned_values)) < needed:
        raise InputError(
            "untuned_by",
            f"{fraction} leaves {n_tuned} {by}(s) tuned on and {len(untuned_values)} untuned, and "
            f"{needed} of each are needed; give more prompts.",
        )
    return untuned.to_numpy()


def have_same_cells(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Return whether two sets of prompts have the same cells (template, axis, descriptor).

    From two sets with the same cells, `sample_cells` samples the same descriptors, and `untuned_mask` the same values.
    """
    cells = [
        pd.MultiIndex.from_frame(prompts[[columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR]]).unique()
        for prompts in (first, second)
    ]
    return not len(cells[0].symmetric_difference(cells[1]))


def compute_prompt_ids(
    keys: Sequence[Sequence[str]], personas: Sequence[str], occurrences: Iterable[int], bits: Sequence[str]
) -> list[str]:
    """Return the id of each prompt, a hash of its arguments of 16 hexadecimal digits.

    `keys` are the values of the `REQUIRED_COLUMNS`, `occurrences` counts earlier equal prompts, `bits` are variations.
    """
    return [f"{stable_hash(*parts):032x}"[:16] for parts in zip(*keys, personas, occurrences, bits, strict=True)]


def with_id_columns(table: pd.DataFrame, ids: Sequence[str], personas: Sequence[str]) -> pd.DataFrame:
    """Return the table with prompt_id and persona as its first columns, which replace columns of the same names."""
    rest = table.drop(columns=[columns.PROMPT_ID, columns.PERSONA], errors="ignore")
    return pd.concat([pd.DataFrame({columns.PROMPT_ID: ids, columns.PERSONA: personas}), rest], axis=1)


def require_columns(
    columns: Collection[object], wanted: Iterable[str], purpose: str, header: Collection[object] | None = None
) -> None:
    """Raise `InputError` if some of the wanted columns are missing; the message begins with `purpose`.

    `header` has the columns' names in the file; None: they have the same names.
    """
    missing = [repr(name) for name in dict.fromkeys(wanted) if name not in columns]
    if missing:
        subject = f"column {missing[0]} is" if len(missing) == 1 else f"columns {', '.join(missing)} are"
        listed = ", ".join(map(str, columns if header is None else header)) or "none"
        raise InputError(purpose, f"{subject} missing; the columns are: {listed}.")


def check_row_count(rows: int, setting: str) -> None:
    """Raise `InputError` if `rows` is larger than `MAX_ROWS`; the message begins with `setting`."""
    if rows > MAX_ROWS:
        raise InputError(setting, f"results in {rows:,} rows; reduce it to at most {MAX_ROWS:,}, or measure in parts.")


def sample_descriptors(prompts: pd.DataFrame, n: int | None) -> pd.DataFrame:
    """Return the prompts of n descriptors, or all prompts if n is None.

    The descriptors are a random sample that is the same for all seeds, so that measurements cover the same people.

    The number of descriptors from an axis is proportional to the axis' number of descriptors, and at least one.

    Raises:
        InputError: n is out of range.
    """
    if n is None:
        return prompts
    table = prompts[prompts[columns.DESCRIPTOR] != NONE]
    strata = _strata(table, columns.DESCRIPTOR, columns.AXIS)
    total = sum(map(len, strata.values()))
    if not len(strata) <= n <= total:
        default = ", the default," if n == PromptSettings.model_fields["descriptors"].default else ""
        if n > total:
            raise InputError(
                "descriptors",
                f"{n}{default} is more than the {total} descriptors of these prompts; for all of them, add "
                f"{spelled('prompts.descriptors', 'null')}.",
            )
        raise InputError(
            "descriptors",
            f"{n}{default} is less than one for each of the {len(strata)} axes; give {len(strata)} to {total}, or "
            "choose axes: prompts.filters, such as '{axis: [age]}'.",
        )
    return table[table[columns.DESCRIPTOR].isin(sample_strata(strata, n, DESCRIPTORS_SEED, "descriptors"))].reset_index(
        drop=True
    )


def prompts_taxonomy(settings: PromptSettings) -> AnyTaxonomy:
    """Return the taxonomy of the settings' language; InputError if it cannot be read."""
    return load_language(settings.language, settings.dataset) if settings.language else load_taxonomy(settings.dataset)


def dataset_prompts(settings: PromptSettings, seed: int, table: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return each prompt of the dataset, or of `table`, that filters and the sample of descriptors select, once.

    With `settings.variations`, the seed and the text decide which of `VARIATIONS` (Smith et al. 2022, A.3) a prompt
    gets, each with probability 1/2.
    """
    table = all_prompts(prompts_taxonomy(settings)) if table is None else table
    table = sample_descriptors(select_prompts(table, settings.active_filters()), settings.descriptors)
    if not settings.variations:
        return table
    hashes = np.array([stable_hash(seed, "variations", text) % 2 ** len(VARIATIONS) for text in table[columns.TEXT]])
    is_applied = hashes[:, None] >> np.arange(len(VARIATIONS)) & 1  # each bit of a hash is a coin
    return apply_variations(table, is_applied.astype(bool))


def taxonomy_sha256(prompts: PromptSettings) -> str:
    """Return the SHA-256 of the taxonomy `prompts.dataset`, for the metrics that score the taxonomy's sentences.

    Raises:
        InputError: the taxonomy is unknown, `prompts.dataset` is a table of prompts, or filters or
            `prompts.descriptors` select no prompts.
    """
    if prompts.is_own:
        raise InputError(
            "prompts.dataset",
            f"{prompts.source} can be used by generation_bias and likelihood_bias only; leave it out, or "
            "measure the other families, which score the sentences of prompts.dataset, in another run.",
        )
    taxonomy = prompts_taxonomy(prompts)
    # A masked model's phrases are scored in other templates, so filters of templates are checked when it is measured.
    filters = {name: value for name, value in prompts.active_filters().items() if name in PHRASE_COLUMNS}
    phrases = generate_prompts(replace(taxonomy, templates=(Template("{noun_phrase}."),)))
    selected = select_prompts(phrases, filters)
    sample_descriptors(selected, prompts.descriptors)
    return taxonomy.sha256


def _context(table: pd.DataFrame) -> list[str]:
    """Return the columns that make up what a model reads: prompts with cues have their person in the persona."""
    return [columns.TEXT, columns.PERSONA] if columns.CUE in table else [columns.TEXT]


def _strata(table: pd.DataFrame, by: str, stratum: str | None) -> dict[str, list[str]]:
    """Return the sorted values of column `by` in each stratum; a value of several strata is in the smallest stratum."""
    pairs = set(zip(table[by].tolist(), table[stratum].tolist() if stratum else [""] * len(table), strict=True))
    sizes = Counter(name for _, name in pairs)
    smallest: dict[str, str] = {}
    for value, name in sorted(pairs, key=lambda pair: (sizes[pair[1]], pair[1])):
        smallest.setdefault(value, name)
    return {name: sorted(v for v in smallest if smallest[v] == name) for name in sorted(set(smallest.values()))}


def vary_text(prompt: Mapping[str, str], flags: Sequence[bool]) -> str:
    """Return a prompt's text with the stylistic variations whose flags are set (Smith et al. 2022, A.3).

    The first two variations change only the descriptor, which is the noun phrase without its noun.

    All variations except the first are applied to "I'm a hard-of-hearing mom.":

    >>> deaf = {"template": "I'm {noun_phrase}.", "noun": "mom", "noun_phrase": "a hard-of-hearing mom"}
    >>> deaf |= {"plural_noun": "moms", "plural_noun_phrase": "hard-of-hearing moms"}
    >>> vary_text(deaf, (False, True, True, True))
    'I am a hard of hearing mom'
    """
    lowercase, no_hyphens, no_contraction, no_period = flags
    text = prompt[columns.TEMPLATE]
    if no_contraction:
        text = text.replace("I'm", "I am")
    for slot, noun in ((SINGULAR_SLOT, prompt[columns.NOUN]), (PLURAL_SLOT, prompt["plural_noun"])):
        before, noun, after = prompt[slot.strip("{}")].partition(noun)
        if lowercase:
            before = before.lower()
            after = after.lower()
        if no_hyphens:
            before = before.replace("-", " ")
            after = after.replace("-", " ")
        text = text.replace(slot, before + noun + after)
    return text.removesuffix(".") if no_period else text


def apply_variations(table: pd.DataFrame, flags: np.ndarray) -> pd.DataFrame:
    """Return the table with varied texts and the boolean columns VARIATIONS, whose values are `flags`, (n, 4)."""
    texts = []
    for prompt, row_flags in zip(table_rows(table[list(VARIED_COLUMNS)]), flags.tolist(), strict=True):
        if vary_text(prompt, (False,) * len(VARIATIONS)) != prompt[columns.TEXT]:
            raise InputError(
                "variations", f"{prompt[columns.TEXT]!r} is not its template and noun phrase; turn it off."
            )
        texts.append(vary_text(prompt, row_flags))
    varied = table.copy()
    varied[columns.TEXT] = texts
    for name, has_variation in zip(VARIATIONS, flags.T, strict=True):
        varied[name] = has_variation
    return varied
