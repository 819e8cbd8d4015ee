"""Answers to read beside a finding: what a person got, and what others got, or the same person after a change."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.classifiers import OFFENSIVENESS
from evenhand.evaluation.metrics.generation_bias.compare import on_common_prompts
from evenhand.evaluation.metrics.generation_bias.effect_sections import ExampleOf, change_example, effect_example
from evenhand.evaluation.metrics.generation_bias.parts.effects import EFFECT_KINDS
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OTHER_LANGUAGE, VALUES, stored_values
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses, read_styled_responses
from evenhand.evaluation.metrics.offensiveness import THRESHOLD
from evenhand.evaluation.report.page import Example

NO_EXAMPLE = Example("", ())


@dataclass(frozen=True)
class AnswerValues:
    """The responses of a run, and their values of the styles, style clusters and outcomes of the page.

    Attributes:
        run: the run.
        styled: its responses, with their style vectors.
        clusters: style cluster → columns of its styles.
        is_offensive: whether each response is offensive, (n,); None if it is not known.
    """

    run: FamilyRun
    styled: StyledResponses
    clusters: dict[str, Sequence[int]] = field(default_factory=dict)
    is_offensive: np.ndarray | None = None

    def of_outcome(self, outcome: str, name: str) -> tuple[StyledResponses, Sequence[int]] | None:
        """Return the responses with the values of an outcome, and the columns of `name`; None if it is unknown."""
        if outcome == "cluster":
            return (self.styled, self.clusters[name]) if name in self.clusters else None
        if outcome == "style":
            return (self.styled, [self.styled.styles.index(name)]) if name in self.styled.styles else None
        if not self.run.has(VALUES):
            return None
        values = stored_values(self.run.table(VALUES), outcome)
        names = list(values)
        if name not in names:  # rare classes are joined in effects
            return None
        responses = replace(self.styled, vectors=values.to_numpy(dtype=float), styles=names)
        return responses, [names.index(name)]


def read_answers(run: FamilyRun, styled: StyledResponses) -> AnswerValues:
    """Return the responses of a run with what their values are read from."""
    clusters = {}
    with suppress(InputError):  # a file of the user that has moved since the measurement: no examples of clusters
        clusters = load_style_clusters(run.config.settings.style_clusters, styled.styles)
    is_offensive = None
    if run.has(OFFENSIVENESS):
        is_offensive = (run.table(OFFENSIVENESS)[OFFENSIVENESS] >= THRESHOLD).to_numpy()
    return AnswerValues(run, styled, dict(clusters), is_offensive)


def answers_of(run: FamilyRun, styled: StyledResponses, *, is_in_request_language: bool) -> ExampleOf:
    """Return a function of an effect that returns a response that carries it, and another person's.

    If `is_in_request_language` is true, examples of styles are among the answers in the request's language.
    """
    answers = read_answers(run, styled)
    in_language = answers
    if is_in_request_language:
        is_other = stored_values(run.table(VALUES), OTHER_LANGUAGE).to_numpy()[:, 0] == 1
        vectors = np.where(is_other[:, None], np.nan, styled.vectors)
        in_language = replace(answers, styled=replace(styled, vectors=vectors))

    def example(effect: Mapping[str, Any]) -> Example:
        source = in_language if effect["outcome"] in EFFECT_KINDS else answers
        found = source.of_outcome(effect["outcome"], effect["name"])
        if found is None:
            return NO_EXAMPLE
        responses, columns = found
        return effect_example(responses, effect, columns, answers.is_offensive)

    return example


def changed_answers_of(before: FamilyRun, after: FamilyRun) -> ExampleOf:
    """Return a function of a changed effect that returns both runs' responses to one prompt."""
    before, after, _ = on_common_prompts(before, after)
    sides = [read_answers(run, read_styled_responses(run.folder, only=run.only)) for run in (before, after)]
    offensive = None
    if all(side.is_offensive is not None for side in sides):
        offensive = [side.is_offensive for side in sides]

    def example(effect: Mapping[str, Any]) -> Example:
        old, new = (side.of_outcome(effect["outcome"], effect["name"]) for side in sides)
        if old is None or new is None:
            return NO_EXAMPLE
        responses, columns = old
        return change_example(responses, new[0], effect, (columns, new[1]), offensive)

    return example
