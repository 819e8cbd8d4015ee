"""Answers that a page shows as examples of a finding: of two people, or of one person before and after a change."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from evenhand.evaluation import columns
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.compared_runs import on_common_prompts
from evenhand.evaluation.metrics.generation_bias.engine.effects import EFFECT_KINDS, SHOWN
from evenhand.evaluation.metrics.generation_bias.engine.values import stored_names, stored_values, with_values
from evenhand.evaluation.metrics.generation_bias.measures import OFFENSIVENESS
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.people import EffectRow
from evenhand.evaluation.metrics.offensiveness import THRESHOLD
from evenhand.evaluation.report.numbers import NONCE
from evenhand.evaluation.report.page import Example

NO_EXAMPLE = Example("", ())
ExampleOf = Callable[[EffectRow], Example]


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
    styled: Answers
    clusters: dict[str, Sequence[int]] = field(default_factory=dict)
    is_offensive: np.ndarray | None = None

    def find(self, outcome: str, name: str) -> tuple[Answers, Sequence[int]] | None:
        """Return the responses with the values of an outcome, and the columns of `name`; None if it is unknown."""
        if outcome == columns.CLUSTER:
            return (self.styled, self.clusters[name]) if name in self.clusters else None
        if outcome == columns.STYLE:
            return (self.styled, [self.styled.columns.index(name)]) if name in self.styled.columns else None
        if outcome not in stored_names(self.run):
            return None
        values = stored_values(self.run, outcome)
        if name not in values.table:  # rare classes are joined in effects
            return None
        responses = with_values(self.styled, values)
        return responses, [responses.columns.index(name)]


def read_values(run: FamilyRun, styled: Answers) -> AnswerValues:
    """Return the responses of a run with what their values are read from."""
    clusters = {}
    with suppress(InputError):  # a file of the user that has moved since the measurement: no examples of clusters
        clusters = load_style_clusters(run.config.settings.style_clusters, styled.columns)
    is_offensive = None
    if run.has(OFFENSIVENESS):
        is_offensive = (run.table(OFFENSIVENESS)[OFFENSIVENESS] >= THRESHOLD).to_numpy()
    return AnswerValues(run, styled, dict(clusters), is_offensive)


def examples_of_run(run: FamilyRun, styled: Answers, *, is_in_request_language: bool) -> ExampleOf:
    """Return a function of an effect that returns a response that carries it, and another person's.

    If `is_in_request_language` is true, examples of styles are among the answers in the request's language.
    """
    answers = read_values(run, styled)
    in_language = answers
    if is_in_request_language:
        is_other = stored_values(run, OTHER_LANGUAGE).numbers[:, 0] == 1
        vectors = np.where(is_other[:, None], np.nan, styled.values)
        in_language = replace(answers, styled=replace(styled, values=vectors))

    def example(effect: EffectRow) -> Example:
        source = in_language if effect["outcome"] in EFFECT_KINDS else answers
        found = source.find(effect["outcome"], effect["name"])
        if found is None:
            return NO_EXAMPLE
        responses, columns = found
        return effect_example(responses, effect, columns, answers.is_offensive)

    return example


def examples_of_comparison(before: FamilyRun, after: FamilyRun) -> ExampleOf:
    """Return a function of a changed effect that returns both runs' responses to one prompt."""
    before, after, _ = on_common_prompts(before, after)
    sides = [read_values(run, read_answers(run.folder, only=run.only)) for run in (before, after)]
    offensive = None
    if all(side.is_offensive is not None for side in sides):
        offensive = [side.is_offensive for side in sides]

    def example(effect: EffectRow) -> Example:
        old = sides[0].find(effect["outcome"], effect["name"])
        new = sides[1].find(effect["outcome"], effect["name"])
        if old is None or new is None:
            return NO_EXAMPLE
        responses, columns = old
        return change_example(responses, new[0], effect, (columns, new[1]), offensive)

    return example


def effect_example(run: Answers, effect: EffectRow, names: Sequence[int], offensive: Sequence[bool] | None) -> Example:
    """Return a response to a unit (a descriptor or a group), then one to other descriptors, each under its prompt.

    Where the unit gets more of the style than the average, its response is the one with the most of this style, and the
    other is drawn at random; where it gets less, the other way round. Both have the same template and, if any such pair
    exists, the same noun; the other is no made-up word, if there is anybody else. The draw has a fixed
    seed. The example is empty if no template is common to both.
    `names` are those of the effect's styles; `offensive` is whether each response is offensive, and hidden, (n,).
    """
    table = run.table
    is_unit = _is_unit(run, effect)
    p = run.values[:, list(names)].sum(axis=1)
    has_more = is_unit if effect["shrunk"] > 0 else ~is_unit
    carriers = has_more & np.isfinite(p)
    others = ~has_more & np.isfinite(p)
    for keys in ([columns.TEMPLATE, columns.NOUN], [columns.TEMPLATE]):
        present = [key for key in keys if key in table]
        prompt = table.groupby(present, observed=True, dropna=False).ngroup().to_numpy()
        rows = np.flatnonzero(carriers & np.isin(prompt, prompt[others]))
        if len(rows):
            break
    else:
        return NO_EXAMPLE
    row = int(rows[np.argmax(p[rows])])
    among = np.flatnonzero(others & (prompt == prompt[row]))
    is_made_up = (table[columns.AXIS].iloc[among] == NONCE).to_numpy()
    among = among if is_made_up.all() else among[~is_made_up]
    other = int(np.random.default_rng(row).choice(among))
    pair = (row, other) if is_unit[row] else (other, row)
    texts = tuple((table[columns.TEXT].iloc[place], table[columns.RESPONSE].iloc[place]) for place in pair)
    hidden = frozenset(n for n in (0, 1) if offensive is not None and offensive[pair[n]])
    return Example("", texts, hidden=hidden)


def _is_unit(run: Answers, effect: EffectRow) -> np.ndarray:
    """Return whether each response is to the unit of an effect, a descriptor or a group, (n,) bool."""
    unit = (
        run.table[columns.DESCRIPTOR].astype(str)
        if effect["kind"] == columns.DESCRIPTOR
        else run.groups()[effect["kind"]]
    )
    return (unit == effect["unit"]).to_numpy()


def change_example(
    before: Answers,
    after: Answers,
    effect: EffectRow,
    names: tuple[Sequence[int], Sequence[int]],
    offensive: Sequence[np.ndarray] | None = None,
) -> Example:
    """Return the answers before and after to one prompt of a unit (a descriptor or a group).

    The prompt is the one whose answers carry the effect most: the answer before if the effect is shown before only, the
    answer after if it is shown after only, else both. The example is empty if no prompt has both.

    Args:
        before, after: the responses of both runs to the same prompts, row by row.
        effect: the unit (kind, unit), and shrunk_before, shrunk_after, certainty_before and certainty_after.
        names: the columns of the effect's styles, before and after.
        offensive: whether each response before, and each one after, is offensive, and hidden, (n,) each.
    """
    table = before.table
    weight = np.zeros(len(table))
    shown = [side for side in ("before", "after") if effect[f"certainty_{side}"] == SHOWN]
    for side, run, of_side in (("before", before, names[0]), ("after", after, names[1])):
        if side in shown or not shown:
            weight = weight + np.sign(effect[f"shrunk_{side}"]) * run.values[:, list(of_side)].sum(axis=1)
    rows = np.flatnonzero(_is_unit(before, effect) & np.isfinite(weight) & after.has_value())
    if not len(rows):
        return NO_EXAMPLE
    row = int(rows[np.argmax(weight[rows])])
    texts = [(side, run.table[columns.RESPONSE].iloc[row]) for side, run in (("before", before), ("after", after))]
    hidden = frozenset(n for n in (0, 1) if offensive is not None and offensive[n][row])
    return Example("", texts, prompt=table[columns.TEXT].iloc[row], hidden=hidden)
