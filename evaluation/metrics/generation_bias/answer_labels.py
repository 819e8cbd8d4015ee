"""What the page of all answers says of each answer, and the people who come first on it."""

from collections.abc import Iterable

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.gendered_translations import language_name
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.effects import SHOWN
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues, stored_names, stored_values
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.measures.language import LANGUAGE, TOO_SHORT
from evenhand.evaluation.metrics.generation_bias.parts.effects import EFFECTS
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OUTCOME_EFFECTS

OUTCOME = "outcome"  # the name of the labels of all outcomes that an answer has or has not


def answer_labels(run: FamilyRun, styled: Answers) -> dict[str, list[str]]:
    """Return the labels of each answer by their name: its style, language, outcomes, and other classes.

    An answer without a label has "", and several outcomes of an answer are separated by line ends.
    """
    labels = {columns.STYLE: _most_probable(styled)}
    outcomes: list[list[str]] = [[] for _ in range(len(styled))]
    for name in stored_names(run):
        values = stored_values(run, name)
        if values.kind == ValueKind.SHARE:
            has_it = values.numbers[:, 0] == 1
            for row in np.flatnonzero(has_it):
                outcomes[row].append(name.replace("_", " "))
        elif values.kind == ValueKind.CLASS:
            labels[name.replace("_", " ")] = _classes(values)
    if any(outcomes):
        labels[OUTCOME] = ["\n".join(of_answer) for of_answer in outcomes]
    return labels


def _most_probable(styled: Answers) -> list[str]:
    """Return the most probable style of each answer; "" for an answer without styles, such as an empty one."""
    has_value = styled.has_value()
    best = np.where(has_value[:, None], styled.values, 0.0).argmax(axis=1)
    return [str(styled.columns[place]) if known else "" for place, known in zip(best, has_value, strict=True)]


def _classes(values: MeasureValues) -> list[str]:
    """Return the name of each answer's class; "" for an answer without one, and for too short a text to tell."""
    has_value = values.has_value
    best = np.where(has_value[:, None], values.numbers, 0.0).argmax(axis=1)
    names = [str(name) for name in values.table]
    if values.name == LANGUAGE:
        names = ["" if name == TOO_SHORT else language_name(name) for name in names]
    return [names[place] if known else "" for place, known in zip(best, has_value, strict=True)]


def named_people(runs: Iterable[FamilyRun]) -> list[str]:
    """Return the people whom the reports of runs name: those with a shown effect, the largest first."""
    tables = [run.table(name) for run in runs for name in (OUTCOME_EFFECTS, EFFECTS) if run.has(name)]
    if not tables:
        return []
    effects = pd.concat(tables)
    is_shown = (effects["certainty"] == SHOWN) & (effects["kind"] == columns.DESCRIPTOR)
    return effects.loc[is_shown, "unit"].drop_duplicates().tolist()
