"""Planted sentence frequencies of the testbed's language model: skewed in some axes of HolisticBias, equal in others.

The grammar consists of the sentences of the paper edition that Likelihood Bias scores (Smith et al. 2022, §2.3.2);
`frequencies.yaml` has the formula of p(sentence). `truth` is the Likelihood Bias of a model with exactly these
probabilities.
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

from evenhand.evaluation import columns
from evenhand.evaluation.data.holistic_bias import NONE, generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.errors import unknown_name
from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import (
    N_TOKENS,
    SENTENCE_COLUMNS,
    select_scored_prompts,
)
from evenhand.evaluation.metrics.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.score import BiasScore

FILE = Path(__file__).parent / "frequencies.yaml"
DATASET = "paper"  # the edition with the grammar's sentences
ARTICLES = ("a", "an")
PLURAL = "{plural_noun_phrase}"
SLOT = re.compile(r"\{\w+\}")


@dataclass(frozen=True)
class Frequencies:
    """The planted distribution. `log_p` is ln p(descriptor, noun), (D, n); p(template) is uniform."""

    templates: tuple[str, ...]
    descriptors: tuple[str, ...]
    nouns: tuple[str, ...]
    log_p: np.ndarray


@cache
def sentences() -> pd.DataFrame:
    """Return the sentences of the grammar: prompts of HolisticBias v1.0 whose descriptor fits any noun.

    460,980 rows; a sentence with a descriptor of two axes ("queer") has two rows.
    """
    prompts = generate_prompts(load_taxonomy(DATASET))
    return select_scored_prompts(prompts[prompts["descriptor_gender"] == NONE]).reset_index(drop=True)


@cache
def levels() -> dict[str, str]:
    """Return {axis: size of its planted skew}; a size is a key of `shifts` in the file."""
    return {axis: level for level, axes in _read()["axes"].items() for axis in axes}


@cache
def frequencies() -> Frequencies:
    """Return the planted distribution of sentences."""
    plan = _read()
    table = sentences()
    axes: dict[str, list[str]] = defaultdict(list)
    for descriptor, axis in table[[columns.DESCRIPTOR, columns.AXIS]].drop_duplicates().itertuples(index=False):
        axes[descriptor].append(axis)
    descriptors = sorted(axes)
    nouns = sorted(table[columns.NOUN].unique())
    z = np.stack([_normal_numbers(descriptor, 1 + len(nouns)) for descriptor in descriptors])
    shifts = np.array([min(plan["shifts"][levels()[axis]] for axis in axes[name]) for name in descriptors])
    weights = shifts[:, None] * z[:, :1] + plan["noise"] * z[:, 1:]
    templates = sorted(table[columns.TEMPLATE].unique())
    return Frequencies(tuple(templates), tuple(descriptors), tuple(nouns), weights - logsumexp(weights))


def log_probability(table: pd.DataFrame) -> np.ndarray:
    """Return ln p(sentence) of n rows with the columns template, descriptor and noun, (n,).

    Raises:
        InputError: a column is missing, or the grammar lacks a template, descriptor or noun.
    """
    require_columns(list(table), (columns.TEMPLATE, columns.DESCRIPTOR, columns.NOUN), "table")
    planted = frequencies()
    _look_up(columns.TEMPLATE, table, planted.templates)
    descriptors = _look_up(columns.DESCRIPTOR, table, planted.descriptors)
    nouns = _look_up(columns.NOUN, table, planted.nouns)
    return planted.log_p[descriptors, nouns] - math.log(len(planted.templates))


def exact_table(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns SENTENCE_COLUMNS, log_likelihood and n_tokens with the grammar's exact probabilities.

    Raises:
        InputError: a column is missing, or the grammar lacks a sentence.
    """
    require_columns(list(table), SENTENCE_COLUMNS, "table")
    without_article = table[columns.TEMPLATE].str.contains(PLURAL, regex=False)
    exact = table[SENTENCE_COLUMNS].copy()
    exact[columns.LOG_LIKELIHOOD] = log_probability(table)
    exact[N_TOKENS] = np.where(without_article, 4, 5)
    return exact


def truth(table: pd.DataFrame) -> list[BiasScore]:
    """Return all metrics of `likelihood_bias` for a model with the grammar's exact probabilities.

    The scores are for all sentences and by axis, without intervals, because nothing is estimated. The score of an axis
    without a planted skew is the rate of false positives: near 0.05 for raw and near 0 for corrected fractions, by
    either test, because nouns have no main effect in the grammar.

    Raises:
        InputError: a column is missing, a sentence is not of the grammar or is repeated, or no sentences are
            comparable.
    """
    exact = exact_table(table)
    n_equal_templates = 1
    n = exact[columns.TEMPLATE].nunique()
    in_templates = exact.groupby([columns.AXIS, columns.DESCRIPTOR, columns.NOUN])[columns.TEMPLATE].nunique()
    if n > 1 and (in_templates == n).all() and not exact.duplicated(SENTENCE_COLUMNS).any():
        # All templates have the same sentences in the same order of perplexity, so one template gives the result.
        exact = exact[exact[columns.TEMPLATE] == exact[columns.TEMPLATE].iloc[0]]
        n_equal_templates = n
    return [
        replace(
            score,
            n=score.n * n_equal_templates,
            n_left_out=score.n_left_out * n_equal_templates,
            interval=None,
            reason=score.reason if math.isnan(score.value) else None,
        )
        for score in likelihood_bias(exact)
        if columns.TEMPLATE not in score.group
    ]


@cache
def lexicon() -> tuple[str, ...]:
    """Return the words and phrases that are single tokens of the language model, in alphabetical order.

    They are articles, nouns, whole descriptors, and the parts of a template before and after its noun phrase.
    Plurals are separate tokens. All sentences of a template therefore have the same number of tokens.
    """
    table = sentences()
    rows = table.drop_duplicates(columns.DESCRIPTOR)
    around = [part.strip() for template in table[columns.TEMPLATE].unique() for part in SLOT.split(template)]
    singular = [
        _without(noun, phrase.partition(" ")[2]) for noun, phrase in rows[[columns.NOUN, "noun_phrase"]].to_numpy()
    ]
    plural = [_without(noun, phrase) for noun, phrase in rows[["plural_noun", "plural_noun_phrase"]].to_numpy()]
    nouns = {*table[columns.NOUN], *table["plural_noun"]}
    return tuple(sorted({*around, *ARTICLES, *singular, *plural, *nouns}))


def distinct_sentences() -> tuple[list[str], np.ndarray]:
    """Return the N different sentences and their probabilities, (N,), which sum to 1."""
    rows = sentences().drop_duplicates(columns.TEXT)
    return rows[columns.TEXT].tolist(), np.exp(log_probability(rows))


def _without(noun: str, phrase: str) -> str:
    """Return the descriptor in a noun phrase without article, by removing the noun before or after the descriptor."""
    return re.sub(rf"^{noun} | {noun}$", "", phrase, count=1)


def _look_up(column: str, table: pd.DataFrame, names: Sequence[str]) -> np.ndarray:
    """Return the index in `names` of each value in the column `column` of a table, (n,)."""
    indices = pd.Index(names).get_indexer(table[column])
    if (indices < 0).any():
        raise unknown_name(column, table[column].iloc[int(indices.argmin())], names)
    return indices


def _normal_numbers(name: str, n: int) -> np.ndarray:
    digest = hashlib.sha256(name.encode()).digest()
    return np.random.default_rng([_read()["seed"], int.from_bytes(digest[:8])]).standard_normal(n)


@cache
def _read() -> dict:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))
