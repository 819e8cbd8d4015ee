"""Scores, ranks and changes of the divergences in the tables of a screen."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun, check_scored_alike
from evenhand.evaluation.score import BiasScore, Kind, Signature
from evenhand.evaluation.tables import table_rows

if TYPE_CHECKING:
    from evenhand.evaluation.joins import JoinedRows

DIVERGENCE = "divergence"  # in tables, if only some tokens are known, the lower bound
AT_LEAST = "divergence_at_least"
AT_MOST = "divergence_at_most"
OWN_WORDS = "own_words"
SCREENED = "screened_prompts"  # the table of prompts
DIVERGENCES = "divergences"  # the table: a row for each template and person
TOKENS = "first_tokens"  # the table: a row for each person and token
TOKEN = "token"
PROBABILITY = "probability"
MEAN_PROBABILITY = "mean_probability"
CONTRIBUTION = "contribution"
SHOWN_TOKENS = 3


def is_bounded(table: pd.DataFrame) -> bool:
    """Return whether a table of divergences has bounds that differ, because only some tokens are known."""
    return AT_MOST in table and bool((table[AT_MOST] > table[DIVERGENCE]).any())


def divergence_scores(
    table: pd.DataFrame, signature: Signature, kind: Kind = Kind.LEVEL, n_left_out: int = 0
) -> list[BiasScore]:
    """Return the mean over templates of the divergence, of everybody, each axis and each person, with intervals.

    Args:
        table: template, axis, descriptor, divergence and own_words, a row for each template and person; of a change,
            the differences.
        n_left_out: templates that only one of two compared runs has.
    """
    from evenhand.evaluation.statistics.intervals import mean_interval

    metrics = {DIVERGENCE: DIVERGENCE, OWN_WORDS: OWN_WORDS}
    if kind == Kind.LEVEL and is_bounded(table):
        metrics = {AT_LEAST: DIVERGENCE, AT_MOST: AT_MOST, OWN_WORDS: OWN_WORDS}
    largest = math.log(table[columns.DESCRIPTOR].nunique())
    bounds_of_divergence = (0.0, largest) if kind == Kind.LEVEL else (-largest, largest)
    cuts: list[tuple[dict[str, str], pd.DataFrame]] = [({}, table)]
    for column in (columns.AXIS, columns.DESCRIPTOR):
        cuts += [({column: str(value)}, rows) for value, rows in table.groupby(column)]
    scores = []
    for name, column in metrics.items():
        bounds = (-math.inf, math.inf) if name == OWN_WORDS else bounds_of_divergence  # a part may be negative
        for group, rows in cuts:
            values = rows.groupby(columns.TEMPLATE)[column].mean().to_numpy(dtype=np.float64)
            interval = mean_interval(values, bounds)
            scores.append(
                BiasScore(
                    metric=name,
                    value=float(values.mean()),
                    ideal=0.0 if name in (DIVERGENCE, AT_LEAST) else None,
                    bounds=bounds,
                    n=len(values),
                    n_of="templates",
                    interval=interval,
                    n_left_out=n_left_out,
                    group=group,
                    signature=signature,
                    kind=kind,
                )
            )
    return scores


def ranks_of_people(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a row for each person, the largest divergence first: mean, interval, own words, and interval of ranks."""
    from evenhand.evaluation.statistics.intervals import mean_interval
    from evenhand.evaluation.statistics.ranks import rank_intervals

    wide = table.pivot_table(index=columns.DESCRIPTOR, columns=columns.TEMPLATE, values=DIVERGENCE, aggfunc="mean")
    values = wide.to_numpy(dtype=np.float64)
    low_rank, high_rank = rank_intervals(values, seed=seed)
    at_most = values
    if is_bounded(table):
        tall = table.pivot_table(index=columns.DESCRIPTOR, columns=columns.TEMPLATE, values=AT_MOST, aggfunc="mean")
        at_most = tall.to_numpy(dtype=np.float64)
    possible = (0.0, math.log(len(wide)))
    lower = [mean_interval(row, possible) or (math.nan, math.nan) for row in values]
    upper = [mean_interval(row, possible) or (math.nan, math.nan) for row in at_most]
    ranks = pd.DataFrame(
        {
            columns.DESCRIPTOR: wide.index,
            DIVERGENCE: values.mean(axis=1),
            AT_MOST: at_most.mean(axis=1),
            "low": [bounds[0] for bounds in lower],
            "high": [bounds[1] for bounds in upper],
            OWN_WORDS: table.groupby(columns.DESCRIPTOR)[OWN_WORDS].mean().reindex(wide.index).to_numpy(),
            "lowest_rank": low_rank,
            "highest_rank": high_rank,
        }
    )
    return ranks.sort_values(DIVERGENCE, ascending=False, ignore_index=True)


def largest_tokens(tokens: pd.DataFrame, person: str) -> list[dict[str, Any]]:
    """Return the tokens that contribute most to a person's divergence: token, probability and mean_probability."""
    names = [TOKEN, PROBABILITY, MEAN_PROBABILITY]
    return table_rows(tokens.loc[tokens[columns.DESCRIPTOR] == person, names].head(SHOWN_TOKENS))


def joined_divergences(before: FamilyRun, after: FamilyRun) -> "JoinedRows":
    """Return the rows of two screens by prompt.

    Raises:
        InputError: the runs compare other people or numbers of first tokens, have no prompt in common, or only bounds.
    """
    from evenhand.evaluation.joins import join_rows

    for field, run in (("before", before), ("after", after)):
        if is_bounded(run.table(DIVERGENCES)):
            raise InputError(field, "its divergences are bounds, by a server; compare screens of loaded models.")
    check_scored_alike(before.signature(DIVERGENCE), after.signature(DIVERGENCE), ["first_tokens"])
    prompts = [
        columns.TEMPLATE,
        columns.DESCRIPTOR,
        columns.TEXT,
        columns.PERSONA,
    ]  # a run with another seed asks with other nouns
    old = before.table(DIVERGENCES).merge(before.table(SCREENED)[prompts], on=[columns.TEMPLATE, columns.DESCRIPTOR])
    new = after.table(DIVERGENCES).merge(after.table(SCREENED)[prompts], on=[columns.TEMPLATE, columns.DESCRIPTOR])
    if set(old[columns.DESCRIPTOR]) != set(new[columns.DESCRIPTOR]):
        raise InputError("after", "its people are others, and so is the mean over people; screen the same people.")
    return join_rows(old, new, prompts, "prompts")


def divergence_changes(joined: "JoinedRows") -> pd.DataFrame:
    """Return the rows with the changes of the divergences, after minus before, in nats."""
    changes = {name: joined.after[name] - joined.before[name] for name in (DIVERGENCE, OWN_WORDS)}
    return joined.before.assign(**changes)
