"""Accepted differences: effects that somebody has signed as right, which are measured and left alone.

A file of accepted differences is a YAML list. Each entry names who (`descriptor`, `bucket` or `axis`), what (`style` or
`cluster`), `why`, and who `signed` it. For bias and labels, the accepted styles of these responses have the values that
other people get on the same template, so that no bias and no direction contains them. Methods that use no labels even
out accepted differences, too: a comparison shows what became of each.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import read_yaml
from evenhand.evaluation.metrics.generation_bias.styled_responses import BUCKET
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.report.tables import change_table, group_label, score_changes
from evenhand.evaluation.score import AXIS, DESCRIPTOR, BiasScore, Kind

ACCEPTED_EFFECT = "accepted_effect"
WHO, WHAT = (DESCRIPTOR, BUCKET, AXIS), ("style", "cluster")


def read_accepted(path: Path, styles: Sequence[str], clusters: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Return a row for each accepted difference: kind, unit, outcome, name, why, signed, and its styles.

    Raises:
        InputError: the file is no such list, an entry lacks a part or has an unknown one, or a style or cluster is
            unknown.
    """
    rows = []
    for entry in read_yaml(path, "generation_bias.accepted") or ():
        entry = entry if isinstance(entry, dict) else {}
        who, what = ([key for key in keys if key in entry] for keys in (WHO, WHAT))
        if len(who) != 1 or len(what) != 1 or set(entry) != {*who, *what, "why", "signed"}:
            raise InputError(
                "generation_bias.accepted",
                f"{path}: {entry}; each entry has one of {', '.join(WHO)}, one of {', '.join(WHAT)}, why, and signed.",
            )
        name, known = entry[what[0]], styles if what[0] == "style" else clusters
        if name not in known:
            raise unknown_name(f"generation_bias.accepted: {what[0]}", name, known)
        chosen = [name] if what[0] == "style" else [styles[column] for column in clusters[name]]
        signed = {"why": str(entry["why"]), "signed": str(entry["signed"]), "styles": chosen}
        rows.append({"kind": who[0], "unit": str(entry[who[0]]), "outcome": what[0], "name": name, **signed})
    return pd.DataFrame(rows, columns=["kind", "unit", "outcome", "name", "why", "signed", "styles"])


def accepted_scores(
    accepted: pd.DataFrame, table: pd.DataFrame, kind: Kind, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the measured effect of each accepted difference, or its change; there is no ideal.

    Args:
        table: the result of `effects`, or of `effect_changes` for the kind DIFFERENCE, of the responses as they are.
    """
    column = "change" if kind == Kind.DIFFERENCE else "effect"
    scores = []
    for row in accepted.to_dict("records"):
        is_unit = table["unit"].str.split(": ").str[-1] == row["unit"]  # the name of a bucket begins with its axis
        chosen = (table["kind"] == row["kind"]) & is_unit
        for found in table[chosen & (table["name"] == row["name"])].head(1).to_dict("records"):
            group = {row["kind"]: row["unit"], row["outcome"]: row["name"]}
            scores.append(
                BiasScore(
                    ACCEPTED_EFFECT,
                    found[column],
                    ideal=None,
                    bounds=(-2.0, 2.0),
                    n=int(found["n"]),
                    interval=(found["low"], found["high"]),
                    group=group,
                    signature=signature,
                    kind=kind,
                )
            )
    return scores


def accepted_change_section(
    before: Sequence[BiasScore], after: Sequence[BiasScore], changes: Sequence[BiasScore]
) -> Section:
    """Return the table of what became of each accepted difference; empty if none was accepted."""
    title = "Accepted differences"
    accepted = {}
    for score in before:
        if score.metric == ACCEPTED_EFFECT:
            accepted[group_label(score)] = (score.metric, score.form, score.group)
    if not accepted:
        return Section(title)
    note = (
        "Somebody signed these differences as right. They count neither in the bias nor in its reduction. Methods that "
        "use no labels remove them, too."
    )
    table = change_table("Difference, points", "who and what", score_changes(accepted, (before, after, changes)))
    return Section(title, [note], tables=[table], first_screen=True)
