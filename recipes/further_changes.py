"""The change of FGB* seen in other ways: on descriptors that tuning saw and did not see, and by a second classifier."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.errors import InputError
from evaluation.metrics.generation_bias import compare_generation_bias
from evaluation.results import UNSEEN, BiasScore
from recipes.runs import read_run
from recipes.tables import SECOND_STYLES, StyledRun, read_styled_run


def further_changes(
    before_folder: Path, after_folder: Path, before: StyledRun, after: StyledRun, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the differences and reductions of FGB* and pooled FGB*, where there is something to cut by.

    Groups: `seen` "yes" for the prompts of descriptors and templates that the labelled responses had, "no" for the
    others (measuring runs with `unseen_by`); `classifier` "second" for the style vectors of the second classifier.
    """
    found = []
    if UNSEEN in before.prompts:
        unseen = before.prompts[UNSEEN].to_numpy(dtype=bool)
        for group, rows in (({"seen": "yes"}, ~unseen), ({"seen": "no"}, unseen)):
            found += _overall(before.rows(rows), after.rows(rows), group, signature)
    if all((folder / SECOND_STYLES).exists() for folder in (before_folder, after_folder)):
        _check_second(before_folder, after_folder)
        sides = (read_styled_run(folder, second=True) for folder in (before_folder, after_folder))
        found += _overall(*sides, {"classifier": "second"}, signature)
    return found


def _check_second(before_folder: Path, after_folder: Path) -> None:
    one, other = (
        read_run(folder, "measure", name)[1]["classifiers"]["second_style_classifier"]
        for folder, name in ((before_folder, "before"), (after_folder, "after"))
    )
    if one != other:
        raise InputError(
            f"after: its second_style_classifier is {other}, that of before {one}; measure it again with the same."
        )


def _overall(
    before: StyledRun, after: StyledRun, group: Mapping[str, str], signature: Mapping[str, Any]
) -> list[BiasScore]:
    changes = compare_generation_bias(before.styled(), after.styled(), {}, by_axis=False, signature=signature)
    return [replace(score, group=group) for score in changes]
