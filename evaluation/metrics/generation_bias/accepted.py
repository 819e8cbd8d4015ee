"""Accepted differences: effects that somebody has signed as right, which are measured and left alone.

A file of accepted differences is a YAML list. Each entry names who (`descriptor`, `bucket` or `axis`), what (`style` or
`cluster`), `why`, and who `signed` it. For bias and labels, the accepted styles of these responses have the values that
other people get on the same template, so that no bias and no direction contains them. Methods that use no labels even
out accepted differences, too: a comparison shows what became of each.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import json_sha256, read_yaml
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import ACCEPTED, PROMPTS, read_answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import effect_changes, effects
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.parts import (
    ClassifiedRun,
    ComparedSide,
    Comparison,
    JointTests,
    Part,
)
from evenhand.evaluation.metrics.generation_bias.requested_language import (
    in_another_language,
    is_language_shown,
    without_vectors,
)
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.classifier_kinds import classifier_labels
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.report.score_sections import change_table, group_label, score_changes
from evenhand.evaluation.score import BiasScore, Kind, comparable_levels, levels_of_run
from evenhand.evaluation.statistics.level import Level
from evenhand.evaluation.tables import table_rows

ACCEPTED_EFFECT = "accepted_effect"
WHO = (columns.DESCRIPTOR, columns.BUCKET, columns.AXIS)
WHAT = (columns.STYLE, columns.CLUSTER)
NO_EFFECT = (
    "nobody of this name is compared with others, or the group is one person, everybody, or the people of another group"
)
NEVER_VARIES = "no interval: it never varies in these responses"
MAX_NAMED = 5  # accepted differences in a sentence
COLUMNS = ["kind", "unit", "outcome", "name", "why", "signed", "styles"]


def read_accepted(path: Path, styles: Sequence[str], clusters: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Return a row for each accepted difference: kind, unit, outcome, name, why, signed, and its styles.

    Raises:
        InputError: the file is no such list, an entry lacks a part or has an unknown one, or a style or cluster is
            unknown.
    """
    entries = read_yaml(path, "generation_bias.accepted") or []
    if not isinstance(entries, list):
        raise InputError("generation_bias.accepted", f"{path} is no list; begin each accepted difference with “- ”.")
    rows = []
    for entry in entries:
        entry = entry if isinstance(entry, dict) else {}
        who = [key for key in WHO if entry.get(key) is not None]
        what = [key for key in WHAT if key in entry]
        if len(who) != 1 or len(what) != 1 or set(entry) != {*who, *what, "why", "signed"}:
            raise InputError(
                "generation_bias.accepted",
                f"{path}: {entry}; each entry has one of {', '.join(WHO)}, one of {', '.join(WHAT)}, why, and signed.",
            )
        kind = who[0]
        outcome = what[0]
        name = str(entry[outcome])
        known = styles if outcome == columns.STYLE else clusters
        if name not in known:
            raise unknown_name(f"generation_bias.accepted: {outcome}", name, known)
        chosen = [name] if outcome == columns.STYLE else [styles[column] for column in clusters[name]]
        rows.append((kind, str(entry[kind]), outcome, name, str(entry["why"]), str(entry["signed"]), chosen))
    return pd.DataFrame(rows, columns=COLUMNS)


def accepted_scores(accepted: pd.DataFrame, table: pd.DataFrame, kind: Kind) -> list[BiasScore]:
    """Return the measured effect of each accepted difference, or its change; there is no ideal.

    A bucket that several axes have gets a score for each. Of people without an effect, the score is undefined.

    Args:
        table: the result of `effects`, or of `effect_changes` for the kind DIFFERENCE, of the responses as they are.
    """
    column = "change" if kind == Kind.DIFFERENCE else "effect"
    scores = []
    for row in table_rows(accepted):
        unit = row["unit"]
        if row["kind"] == columns.BUCKET:
            unit = table[columns.AXIS] + ": " + unit  # as effects name it
        is_row = (table["kind"] == row["kind"]) & (table["unit"] == unit)
        is_row &= (table["outcome"] == row["outcome"]) & (table["name"] == row["name"])
        score = BiasScore(
            ACCEPTED_EFFECT,
            math.nan,
            ideal=None,
            bounds=(-2.0, 2.0),
            n=0,
            group={row["kind"]: row["unit"], row["outcome"]: row["name"]},
            reason=NO_EFFECT,
            kind=kind,
        )
        found = table_rows(table[is_row])
        scores += [score] if not found else []
        for effect in found:
            group = {**score.group, row["kind"]: effect["unit"] if len(found) > 1 else row["unit"]}
            has_interval = math.isfinite(effect["low"])
            scores.append(
                replace(
                    score,
                    value=effect[column],
                    n=int(effect["n"]),
                    interval=(effect["low"], effect["high"]) if has_interval else None,
                    group=group,
                    reason=None if has_interval else NEVER_VARIES,
                )
            )
    return scores


def of_known_effects(level: Level) -> Level:
    """Return how much the intervals of effects may err that are named before they are measured.

    Without tests (`permutations=0`), the table of effects has the two bounds of each effect alone. Here they are those
    of the two-sided 95 % interval: nothing selects an accepted difference, and its direction is not known in advance.
    """
    return replace(level, one_sided_tail=level.tail)


def configured_accepted(config: FamilyConfig) -> pd.DataFrame:
    """Return the accepted differences of the settings; they name styles of the first style classifier."""
    styles = classifier_labels(config.settings.style_classifier)
    clusters = load_style_clusters(config.settings.style_clusters, styles)
    return read_accepted(config.settings.accepted, styles, clusters)


def accepted_in_run(run: FamilyRun) -> list[dict[str, Json]]:
    """Return the accepted differences that numbers of style leave out: entries on whom the run asks about.

    An entry on nobody in the run, such as with a misprint, leaves nothing out.
    """
    if not run.has(ACCEPTED):
        return []
    prompts = run.table(PROMPTS)
    found = []
    for row in table_rows(run.table(ACCEPTED).drop(columns="styles")):
        if row["kind"] in prompts and row["unit"] in set(prompts[row["kind"]].astype(str)):
            found.append(row)
    return found


def accepted_left_out(run: FamilyRun) -> list[Finding]:
    """Return [which accepted differences all numbers of style leave out], or [] if there are none."""
    accepted = accepted_in_run(run)
    return [Finding("accepted_left_out", {"first": accepted[:MAX_NAMED], "n": len(accepted)})] if accepted else []


class AcceptedDifferences(Part):
    """What became of the accepted differences, which `read_answers` takes out for all parts."""

    FORMATS = (
        Format(
            ACCEPTED_EFFECT,
            "accepted effect",
            "A difference that somebody signed as right.",
            unit="points",
            factor=100,
            decimals=1,
            signed=True,
        ),
    )

    def inputs(self, config: FamilyConfig, model: Model) -> dict[str, Json]:
        if config.settings.accepted is None:
            return {}
        return {ACCEPTED: json_sha256(table_rows(configured_accepted(config)))}

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        settings = run.config.settings
        if settings.accepted is None:
            return []
        level = of_known_effects(run.responses.level)
        responses = read_answers(run.store.folder, with_accepted=True, level=level)
        if is_language_shown(tests.people, tests.test_sets, tests.found):
            responses = without_vectors(responses, in_another_language(run.outcomes[OTHER_LANGUAGE]))
        table = effects(
            responses,
            run.clusters,
            groups=responses.groups(),
            permutations=0,
        )
        return accepted_scores(run.store.read(ACCEPTED), table, Kind.LEVEL)

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        before = comparison.before
        after = comparison.after
        if not before.has(ACCEPTED):
            return []
        level = of_known_effects(comparison.old.level)
        sides = [read_answers(run.folder, with_accepted=True, only=run.only, level=level) for run in (before, after)]
        accepted = before.table(ACCEPTED)
        scores = []
        if comparison.in_language is not None:
            has_style = comparison.in_language[0].has_value() & comparison.in_language[1].has_value()
            sides = [without_vectors(responses, ~has_style) for responses in sides]
            for name, responses in zip(("before", "after"), sides, strict=True):
                table = effects(responses, comparison.clusters, groups=responses.groups(), permutations=0)
                scores += levels_of_run(accepted_scores(accepted, table, Kind.LEVEL), name)
        table = effect_changes(sides[0], sides[1], comparison.clusters, groups=comparison.old.groups(), permutations=0)
        return [*accepted_scores(accepted, table, Kind.DIFFERENCE), *scores]

    def common_levels(self, comparison: Comparison, side: ComparedSide) -> list[BiasScore]:
        run = side.run
        if not run.has(ACCEPTED) or comparison.in_language is not None:
            return []
        level = of_known_effects(side.responses.level)
        answers = read_answers(run.folder, with_accepted=True, only=run.only, level=level)
        responses = answers.rows(side.is_compared)
        table = effects(
            responses,
            comparison.clusters,
            groups=responses.groups(),
            permutations=0,
        )
        return accepted_scores(run.table(ACCEPTED), table, Kind.LEVEL)

    def change_sections(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[Section]:
        accepted = {}
        for score in before.scores:
            if score.metric == ACCEPTED_EFFECT:
                accepted[group_label(score)] = (score.metric, score.form, score.group)
        if not accepted:
            return []
        old = comparable_levels(before.scores, changes.scores, "before")
        new = comparable_levels(after.scores, changes.scores, "after")
        found = score_changes(accepted, (old, new, changes.scores))
        table = change_table("Difference, points", "who and what", found)
        return [Section("Accepted differences", [note("accepted")], tables=[table], first_screen=True)]
