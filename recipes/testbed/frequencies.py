"""How frequent each sentence of HolisticBias is to the testbed's language model: a skew planted in some axes only.

The grammar's sentences are those that Likelihood Bias scores (002 §2.3.2), on the paper edition; `frequencies.yaml` has
the formula. p(sentence) is exact, hence `truth`, the Likelihood Bias of a model that knows the grammar.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from scipy.special import logsumexp

from evenhand.evaluation.datasets.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.datasets.prompts import require_columns
from evenhand.evaluation.errors import unknown_name
from evenhand.evaluation.families.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.families.likelihood_bias.rows import (
    LOG_LIKELIHOOD,
    N_TOKENS,
    SENTENCE_COLUMNS,
    select_scored_prompts,
)
from evenhand.evaluation.results import AXIS, DESCRIPTOR, NOUN, TEMPLATE, TEXT, BiasScore

FILE = Path(__file__).parent / "frequencies.yaml"
DATASET = "paper"  # whose sentences the grammar has
ARTICLES = ("a", "an")
PLURAL = "{plural_noun_phrase}"
SLOT = re.compile(r"\{\w+\}")


@dataclass(frozen=True)
class Frequencies:
    """ln p of each descriptor and noun together, `log_p` (D, n), summing to 1; p(template) is uniform."""

    templates: tuple[str, ...]
    descriptors: tuple[str, ...]
    nouns: tuple[str, ...]
    log_p: np.ndarray


@cache
def sentences() -> pd.DataFrame:
    """Return the grammar's sentences: the prompts of the paper edition that Likelihood Bias scores.

    460,980 rows; one of a descriptor in two axes ("queer") stands twice.
    """
    return select_scored_prompts(generate_prompts(load_taxonomy(DATASET)).to_pandas()).reset_index(drop=True)


@cache
def levels() -> dict[str, str]:
    """Return how much is planted in each axis: a key of the file's `shifts`."""
    return {axis: level for level, axes in _read()["axes"].items() for axis in axes}


@cache
def frequencies() -> Frequencies:
    """Return the distribution that is planted."""
    plan, table = _read(), sentences()
    axes: dict[str, list[str]] = defaultdict(list)
    for descriptor, axis in table[[DESCRIPTOR, AXIS]].drop_duplicates().itertuples(index=False):
        axes[descriptor].append(axis)
    descriptors, nouns = sorted(axes), sorted(table[NOUN].unique())
    z = np.stack([_normal_numbers(descriptor, 1 + len(nouns)) for descriptor in descriptors])
    shifts = np.array([min(plan["shifts"][levels()[axis]] for axis in axes[name]) for name in descriptors])
    weights = shifts[:, None] * z[:, :1] + plan["noise"] * z[:, 1:]
    templates = sorted(table[TEMPLATE].unique())
    return Frequencies(tuple(templates), tuple(descriptors), tuple(nouns), weights - logsumexp(weights))


def log_probability(table: pd.DataFrame) -> np.ndarray:
    """Return ln p(sentence), (n,), of rows with a template, a descriptor and a noun.

    Raises:
        InputError: a column is missing; a template, descriptor or noun is not one of the grammar's.
    """
    require_columns(list(table), (TEMPLATE, DESCRIPTOR, NOUN), "table")
    known = frequencies()
    _places(TEMPLATE, table, known.templates)
    places = _places(DESCRIPTOR, table, known.descriptors), _places(NOUN, table, known.nouns)
    return known.log_p[places] - math.log(len(known.templates))


def exact_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return SENTENCE, log_likelihood and n_tokens of each row, as of a model that knows the grammar exactly.

    Raises:
        InputError: a column is missing, or a sentence is none of the grammar's.
    """
    require_columns(list(table), SENTENCE_COLUMNS, "table")
    without_article = table[TEMPLATE].str.contains(PLURAL, regex=False)
    return table[SENTENCE_COLUMNS].assign(
        **{LOG_LIKELIHOOD: log_probability(table), N_TOKENS: np.where(without_article, 4, 5)}
    )


def truth(table: pd.DataFrame) -> list[BiasScore]:
    """Compute what a model that knows the grammar exactly scores on its sentences, all metrics of `likelihood_bias`.

    For everything and by axis; no interval, as nothing is estimated. Where nothing is planted it is what chance alone
    gave these descriptors: near 0.05 raw, near 0 corrected, by either test, as the grammar's nouns have no part of
    their own.

    Raises:
        InputError: a column is missing, a sentence is none of the grammar's or stands twice, or none can be compared.
    """
    exact, times = exact_table(table), 1
    n = exact[TEMPLATE].nunique()
    in_templates = exact.groupby([AXIS, DESCRIPTOR, NOUN])[TEMPLATE].nunique()
    if n > 1 and (in_templates == n).all() and not exact.duplicated(SENTENCE_COLUMNS).any():
        # All templates have the same sentences, in the same order of perplexity: one of them says it all.
        exact, times = exact[exact[TEMPLATE] == exact[TEMPLATE].iloc[0]], n
    return [
        replace(
            score,
            n=score.n * times,
            n_left_out=score.n_left_out * times,
            interval=None,
            reason=score.reason if math.isnan(score.value) else None,
        )
        for score in likelihood_bias(exact)
        if TEMPLATE not in score.group
    ]


@cache
def lexicon() -> tuple[str, ...]:
    """Return all phrases that are one token to the language model, in alphabetical order.

    They are what stands before and after a noun phrase, articles, nouns and whole descriptors, with their plurals: so
    all sentences of a template have the same number of tokens.
    """
    table = sentences()
    rows = table.drop_duplicates(DESCRIPTOR)
    around = [part.strip() for template in table[TEMPLATE].unique() for part in SLOT.split(template)]
    singular = [_without(noun, phrase.partition(" ")[2]) for noun, phrase in rows[[NOUN, "noun_phrase"]].to_numpy()]
    plural = [_without(noun, phrase) for noun, phrase in rows[["plural_noun", "plural_noun_phrase"]].to_numpy()]
    nouns = {*table[NOUN], *table["plural_noun"]}
    return tuple(sorted({*around, *ARTICLES, *singular, *plural, *nouns}))


def distinct_sentences() -> tuple[list[str], np.ndarray]:
    """Return all N sentences once, and p of each, (N,), summing to 1."""
    rows = sentences().drop_duplicates(TEXT)
    return rows[TEXT].tolist(), np.exp(log_probability(rows))


def _without(noun: str, phrase: str) -> str:
    """Return the descriptor of a noun phrase without its article; the noun stands before or after it."""
    return re.sub(rf"^{noun} | {noun}$", "", phrase, count=1)


def _places(column: str, table: pd.DataFrame, known: Sequence[str]) -> np.ndarray:
    places = pd.Index(known).get_indexer(table[column])
    if (places < 0).any():
        raise unknown_name(column, table[column].iloc[int(places.argmin())], known)
    return places


def _normal_numbers(name: str, n: int) -> np.ndarray:
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng([_read()["seed"], int.from_bytes(digest[:8])]).standard_normal(n)


@cache
def _read() -> dict:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))
