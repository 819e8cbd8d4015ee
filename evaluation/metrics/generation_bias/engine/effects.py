"""Effects of each descriptor, and of groups of descriptors, on each style and style cluster, with their certainty.

An effect is the difference between a descriptor's (or a group's) mean probability of a style and the average over
descriptors on the same templates. Effects here are probabilities; reports show percentage points.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.answers import Answers, common_level
from evenhand.evaluation.metrics.generation_bias.engine.estimates import (
    OF_METRICS,
    check_arguments,
    check_same_prompts,
)
from evenhand.evaluation.metrics.generation_bias.people import (
    People,
    compared_people,
)
from evenhand.evaluation.score import BiasScore, Kind
from evenhand.evaluation.statistics.cell_table import SetOfTests
from evenhand.evaluation.statistics.cells import Labels, sum_by
from evenhand.evaluation.statistics.person_effects import Effects, changed_effects, joint_effects
from evenhand.evaluation.tables import table_rows

if TYPE_CHECKING:
    pass

# Certainties.
SHOWN = "shown"
WORTH_A_LOOK = "worth a look"
INCONCLUSIVE = "inconclusive"
FAMILY_LEVEL = 0.05
DISCOVERY_LEVEL = 0.10
EFFECT = "effect"
REQUESTED_EFFECTS = "effects_in_the_requests_language"  # the table of effects on styles of the answers in that language
DIFFERENCE_BOUND = "difference_bound"
NO_BOUND = "no two descriptors have a common template"
NOTHING_VARIES = "nothing varies in these responses, so they say nothing about rarer differences"
EFFECT_KINDS = (columns.STYLE, columns.CLUSTER)  # outcomes of the tables of effects on styles
SMALLEST = 0.0005  # the smallest effect on a style that sentences name: of smaller ones, both numbers would be “0.0”
IN_USE = 0.01  # mean share of the responses from which a style is in use
# Transitions.
REMOVED = "removed"
REDUCED = "reduced"
KEPT = "kept"
GROWN = "grown"
NEW = "new"
TURNED = "turned round"
# Columns of the tables of effects, of changes of effects, and of shifts.
IDENTITY = ["kind", "unit", "axis", "outcome", "name"]
ESTIMATES = ["shrunk", "low", "high", "detectable"]
TESTS = ["z", "p", "q", "p_set", "p_joint", "certainty"]
COLUMNS = [*IDENTITY, "mean", "average", "effect", *ESTIMATES, "at_most", "at_least", *TESTS, "n", "hits"]
SIDES = [f"{name}_{side}" for name in ("mean", "average", "shrunk", "certainty") for side in ("before", "after")]
CHANGE_COLUMNS = [*IDENTITY, "transition", *SIDES, "change", *ESTIMATES, *TESTS, "n"]
SHIFT_COLUMNS = ["unit", "axis", "moved", "p_set", "p_joint", "certainty", "n"]


def effects(
    responses: Answers,
    clusters: Mapping[str, Sequence[int]],
    *,
    groups: Mapping[str, Labels] | None = None,
    permutations: int = 999,
    seed: int = 0,
    are_shares: bool = True,
) -> pd.DataFrame:
    """Return a table of effects, one row per unit (a descriptor or group) and outcome (a style or style cluster).

    Args:
        responses: style vectors by template and descriptor; one response per cell is enough, rows of NaN are left out.
        clusters: style cluster → columns of its styles.
        groups: kind of group ("axis", "bucket") → the group of each response, (n,); default: the axis. A descriptor
            that occurs in several groups of a kind belongs to the first of these groups in sorted order. A group of
            one descriptor, of all, or of the same descriptors as an earlier group, is left out.
        permutations: number of permutations of people within templates; 999 resolve `p_set` to 0.001. At one of several
            looks it needs `responses.level.draws(permutations)`.
        seed: seed of the permutations.
        are_shares: whether the columns are probabilities, whose variance depends on their mean; else any numbers.

    Returns:
        A row for each outcome of each descriptor and group, the largest |shrunk| first; empty if no two descriptors
        have a common template. The columns:

        - kind ("descriptor" or a key of `groups`), unit (the name of the descriptor or group), axis;
        - outcome ("style" or "cluster") and its name;
        - mean: mean probability over templates; average: the same over all descriptors on the same templates;
        - effect: mean − average, in [−1, 1], 0 without bias; shrunk: the effect shrunk toward 0;
        - low, high: the 95 % interval of a shown effect, or two one-sided 95 % bounds; at_most, at_least: bounds of
          |effect|;
        - detectable: the size of an effect that is shown with a probability of 80 %;
        - z, p, q, p_set, p_joint: as in `statistics.person_effects.Effects`;
        - certainty: "shown" (p_joint ≤ 0.05: if nothing differed, 5 of 100 such pages would show anything), "worth a
          look" (q ≤ 0.10: about one in ten of these is false) or "inconclusive";
        - n: responses of the unit with a value, to templates on which somebody else has one; hits: how many of these
          have a column of 0 and 1, NaN for other numbers.

    Raises:
        InputError: a cluster has a column that no style has, or `permutations` is not a whole number from 0.

    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> styled = Answers(frame, np.eye(2).repeat(2, axis=0), ["s", "r"])
    >>> effects(styled, {}, permutations=9).query("kind == 'descriptor'")[["unit", "name", "effect"]].values.tolist()
    [['a', 's', 0.5], ['a', 'r', -0.5], ['b', 's', -0.5], ['b', 'r', 0.5]]
    """
    check_arguments(responses, clusters, permutations)
    people = compared_people(responses, groups)
    if people is None:
        return pd.DataFrame(columns=COLUMNS)
    test_set = style_tests(people.responses, clusters, are_shares=are_shares)
    found = joint_effects(people.design, [test_set], permutations, np.random.default_rng(seed), responses.level)[0]
    return effect_table(people, test_set, clusters, found)


def style_tests(responses: Answers, clusters: Mapping[str, Sequence[int]], *, are_shares: bool = True) -> SetOfTests:
    """Return the set of tests of the styles and style clusters of responses."""
    indicator = np.zeros((len(responses.columns), len(clusters)))
    for cluster, names in enumerate(clusters.values()):
        indicator[list(names), cluster] = 1
    return SetOfTests(columns.STYLE, responses.values, indicator, are_shares=are_shares)


def effect_table(
    people: People, test_set: SetOfTests, clusters: Mapping[str, Sequence[int]], found: Effects
) -> pd.DataFrame:
    """Return the table that `effects` describes, of the effects that were found in a set, the largest first."""
    table = people.units.merge(_names(people.responses, clusters), how="cross")
    n, hits = _counts(people, test_set)
    table["n"] = n.ravel()
    table["hits"] = hits.ravel()
    table["mean"] = found.mean.ravel()
    table["effect"] = found.effect.ravel()
    table["average"] = table["mean"] - table["effect"]
    for name in (*ESTIMATES, "at_most", "at_least", "z", "p", "q", "p_set", "p_joint"):
        table[name] = getattr(found, name).ravel()
    table["certainty"] = _certainty(found)
    largest_first = np.argsort(-table["shrunk"].abs().to_numpy(), kind="stable")
    table = table.loc[largest_first, COLUMNS]
    return table[table["n"] > 0].reset_index(drop=True)


def _names(responses: Answers, clusters: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Return outcome ("style" or "cluster") and name of each style and each style cluster."""
    names = [(columns.STYLE, style) for style in responses.columns] + [
        (columns.CLUSTER, cluster) for cluster in clusters
    ]
    return pd.DataFrame(names, columns=["outcome", "name"])


def _counts(people: People, test_set: SetOfTests) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of responses with a value, and with the value 1 in a column of shares of 0 and 1, (u, c) each.

    As in the means, responses to a template on which nobody else has a value do not count.
    """
    values = test_set.all_values
    has_value = people.design.is_compared(np.asarray(np.isfinite(values).all(axis=1)))
    person = people.design.person[has_value]
    n_people = people.design.n_people
    members = np.concatenate([np.eye(n_people), (people.design.groups > 0).astype(float)])
    n = members @ np.bincount(person, minlength=n_people)
    hits = members @ sum_by(person, values[has_value], n_people)
    is_binary = np.isin(values[has_value], (0, 1)).all(axis=0) & test_set.are_shares
    return np.repeat(n[:, None], values.shape[1], axis=1), np.where(is_binary, hits, np.nan)


def shift_table(people: People, test_set: SetOfTests, found: Effects) -> pd.DataFrame:
    """Return who is shown to get another mix of styles, one row per descriptor, the surest first.

    Columns: unit, axis; moved: the length of the shift of the mean style vector, over √2: the share of answers that
    would have to move to another style, with the noise of sampling; p_set, p_joint and certainty as in `effects`; n.
    """
    people_only = people.units[people.units["kind"] == columns.DESCRIPTOR]
    n_styles = test_set.values.shape[1]
    length = np.sqrt((found.effect[: len(people_only), :n_styles] ** 2).sum(axis=1) / 2)
    table = people_only[["unit", "axis"]].assign(
        moved=length,
        p_set=found.shift_p,
        p_joint=found.shift_joint,
        certainty=np.where(found.shift_joint <= FAMILY_LEVEL, SHOWN, INCONCLUSIVE),
        n=_counts(people, test_set)[0][: len(people_only), 0].astype(int),
    )
    return table.sort_values(["p_joint", "p_set", "moved"], ascending=[True, True, False], ignore_index=True)


def detectable_sizes(table: pd.DataFrame) -> tuple[float, float]:
    """Return the size of an effect on a descriptor, or of its change, that is shown with a probability of 80 %.

    The first number is the median over descriptors and the styles in use, the second is the largest size. A style is in
    use if the average descriptor gets it in at least IN_USE of the responses, in a comparison before or after. Of rarer
    styles a small size is detectable, but no such effect can exist. Both are NaN if no size is known.

    Args:
        table: the result of `effects` or `effect_changes`.
    """
    rows = table[(table["kind"] == columns.DESCRIPTOR) & (table["outcome"] == columns.STYLE)]
    share = rows.filter(regex="^average").max(axis=1).groupby(rows["name"]).transform("mean")
    sizes = rows.loc[share >= IN_USE, "detectable"].replace(np.inf, np.nan).dropna()
    return float(sizes.median()), float(sizes.max())


def effect_changes(
    before: Answers,
    after: Answers,
    clusters: Mapping[str, Sequence[int]],
    *,
    groups: Mapping[str, Labels] | None = None,
    permutations: int = 999,
    seed: int = 0,
) -> pd.DataFrame:
    """Return the change of each effect (`effects`) between responses before and after tuning, to the same prompts.

    Responses are paired by row; a pair without two style vectors is left out. An effect or a change is "shown" if its
    `p_set` is at most 0.05; `p_set` is computed separately for all effects before, all effects after, and all
    changes.

    The arguments are as in `effects`; `permutations` is also the number of random signs.

    Returns:
        A row for each outcome of each descriptor and group, the largest |shrunk| first; empty if no two descriptors
        have a common template. The columns:

        - kind, unit, axis, outcome, name and n (pairs of responses) as in `effects`; transition (`transitions`);
        - before and after: the mean probability, its average over all descriptors on the same templates, the shrunk
          effect and its certainty;
        - change: effect after − effect before, in [−2, 2], 0 without a change;
        - shrunk, low, high: the change shrunk toward 0, and its interval or bounds, as in `effects`;
        - detectable, z, p, q, p_set and certainty of the change, as in `effects`, by random signs of the paired
          differences.

    Raises:
        InputError: the numbers of rows, the styles, the templates or the descriptors differ.

    In the example, the effect of descriptor a on style s falls from 0.5 to 0, too few data for a shown change.

    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> sides = [Answers(frame, vectors, ["s", "r"]) for vectors in (np.eye(2)[[0, 0, 1, 1]], np.eye(2)[[0, 1, 0, 1]])]
    >>> row = effect_changes(*sides, {}, permutations=9).query("unit == 'a' and name == 's'").iloc[0]
    >>> float(row["change"]), row["transition"]  # from +0.5 to 0
    (-0.5, 'inconclusive')
    """
    check_same_prompts(before, after)
    check_arguments(before, clusters, permutations)
    level = common_level(before, after)
    has_both = before.has_value() & after.has_value()
    kept_groups = {kind: pd.Series(list(values))[has_both] for kind, values in (groups or {}).items()}
    people = compared_people(before.rows(has_both), kept_groups)
    if people is None:
        return pd.DataFrame(columns=CHANGE_COLUMNS)
    old = style_tests(before.rows(has_both).rows(people.is_compared), clusters)
    new = style_tests(after.rows(has_both).rows(people.is_compared), clusters)
    found_old = joint_effects(people.design, [old], permutations, np.random.default_rng(seed), level)[0]
    found_new = joint_effects(people.design, [new], permutations, np.random.default_rng(seed), level)[0]
    rng = np.random.default_rng(seed)
    change = changed_effects(people.design, old, new, found_old, found_new, permutations, rng, level)
    table = effect_table(people, old, clusters, change).rename(columns={"effect": "change"})
    return _with_sides(table, people, clusters, found_old, found_new, change)[CHANGE_COLUMNS]


def _with_sides(
    table: pd.DataFrame,
    people: People,
    clusters: Mapping[str, Sequence[int]],
    before: Effects,
    after: Effects,
    change: Effects,
) -> pd.DataFrame:
    """Return a table of changes with the effects before and after, and each row's transition."""
    keys = people.units[["kind", "unit"]].merge(_names(people.responses, clusters), how="cross")
    for side, found in (("before", before), ("after", after)):
        keys[f"mean_{side}"] = found.mean.ravel()
        keys[f"average_{side}"] = (found.mean - found.effect).ravel()
        keys[f"shrunk_{side}"] = found.shrunk.ravel()
        keys[f"certainty_{side}"] = _certainty(found)
    keys["transition"] = transitions(
        before.effect.ravel(),
        after.effect.ravel(),
        _certainty(before) == SHOWN,
        _certainty(after) == SHOWN,
        _certainty(change) == SHOWN,
    )
    return table.merge(keys, on=["kind", "unit", "outcome", "name"], how="left")


def transitions(
    before: np.ndarray, after: np.ndarray, shown_before: np.ndarray, shown_after: np.ndarray, change_shown: np.ndarray
) -> np.ndarray:
    """Return the transition of each of n effects before and after, (n,):

        removed       shown before, not after; the change is shown and opposite to the effect before
        reduced       shown before and after in the same direction; the change is shown and opposite to both
        kept          shown before and after in the same direction; no change is shown
        grown         shown before and after in the same direction; the change is shown, in this direction
        new           shown after, not before; the change is shown, in the direction of the effect after
        turned round  shown before and after in opposite directions; the change is shown
        inconclusive  anything else

    A "removed" effect may be smaller but not 0: `shrunk_after` in `effect_changes` estimates the rest.

    The last three arguments say whether each effect, or its change, is shown, (n,) bool.
    """
    both = shown_before & shown_after
    same = np.sign(before) == np.sign(after)
    with_before = np.sign(after - before) == np.sign(before)
    with_after = np.sign(after - before) == np.sign(after)
    conditions = {
        REMOVED: shown_before & ~shown_after & change_shown & ~with_before,
        TURNED: both & ~same & change_shown,
        REDUCED: both & same & change_shown & ~with_before,
        GROWN: both & same & change_shown & with_before,
        KEPT: both & same & ~change_shown,
        NEW: ~shown_before & shown_after & change_shown & with_after,
    }
    return np.select(list(conditions.values()), list(conditions), INCONCLUSIVE)


def _certainty(found: Effects) -> np.ndarray:
    """Return the certainty of each effect, (u · c,), row by row."""
    levels = [found.p_joint <= FAMILY_LEVEL, found.q <= DISCOVERY_LEVEL]
    return np.select(levels, [SHOWN, WORTH_A_LOOK], INCONCLUSIVE).ravel()


def effect_scores(table: pd.DataFrame) -> list[BiasScore]:
    """Return a score `effect` for each shown effect, or its difference for each shown change of an effect.

    The group is the unit and the outcome, such as {"descriptor": "paralyzed", "style": "fear"}. The value is shrunk
    toward 0, in probability. The p-value is adjusted for everything that the page tests. The ideal of an effect is 0;
    the ideal of a change is the negative effect before.

    Args:
        table: the result of `effects` or `effect_changes`.
    """
    is_change = "shrunk_before" in table
    scores = []
    for row in table_rows(table[table["certainty"] == SHOWN]):
        scores.append(
            BiasScore(
                EFFECT,
                row["shrunk"],
                ideal=-row["shrunk_before"] if is_change else 0.0,
                bounds=(-2.0, 2.0) if is_change else (-1.0, 1.0),
                n=int(row["n"]),
                interval=(row["low"], row["high"]),
                p_value=row["p_joint"],
                group={row["kind"]: row["unit"], row["outcome"]: row["name"]},
                signature=OF_METRICS,
                kind=Kind.DIFFERENCE if is_change else Kind.LEVEL,
            )
        )
    return scores


def difference_bound(table: pd.DataFrame, *, outcome: str | None = None) -> BiasScore:
    """Return the smallest m for which everybody is within m of the average, with 95 % confidence.

    The value is the largest end of any interval in the table: of a shown effect, the further end of its interval; of
    any other one, its upper one-sided bound, |e| + 1.64 standard errors. No correction for many effects is needed,
    since evenness needs all of them to be small: the intersection–union test (Berger and Hsu 1996, "Bioequivalence
    trials, intersection-union tests and equivalence confidence sets"). The lower bound of the interval, corrected for
    all effects, says that somebody is at least so far from the average. Ideal 0. A column that never varies says
    nothing about rare cases and has no bound. NaN if no column has one.

    Args:
        table: the result of `effects`, or of outcomes.
        outcome: the outcome of a table of outcomes; the group of the score, whose range then is that of the outcome.
    """
    upper = 1.0 if outcome is None else np.inf
    furthest = table[["low", "high"]].abs().max(axis=1)
    ends = table["at_most"].where(table["certainty"] != SHOWN, furthest)
    value = float(ends.max())
    interval = None
    reason = None
    if np.isfinite(value):
        value = min(value, upper)
        interval = (min(float(table["at_least"].max()), value), value)
    else:
        value = np.nan
        reason = NOTHING_VARIES if len(table) else NO_BOUND
    return BiasScore(
        DIFFERENCE_BOUND,
        value,
        ideal=0.0,
        bounds=(0.0, upper),
        n=int(table.loc[table["kind"] == columns.DESCRIPTOR].drop_duplicates("unit")["n"].sum()),
        interval=interval,
        group={} if outcome is None else {"outcome": outcome},
        reason=reason,
        signature=OF_METRICS,
    )


def is_named(effects: pd.DataFrame) -> pd.Series:
    """Return for each effect on a style whether pages name it, (n,): it is shown, and at least SMALLEST.

    Probabilities of a classifier can differ for certain where no answer does.
    """
    return (effects["certainty"] == SHOWN) & ((effects["mean"] - effects["average"]).abs() >= SMALLEST)
