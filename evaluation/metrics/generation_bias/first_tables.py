"""The tables on the first screens: who is treated how, style over all people and, of a comparison, costs."""

from collections.abc import Sequence

from evenhand.evaluation.facts import Cost, Facts, Finding
from evenhand.evaluation.metrics.generation_bias.findings import Level, Outcome
from evenhand.evaluation.metrics.generation_bias.headline import Size
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind, misread_in_cut_answers
from evenhand.evaluation.metrics.generation_bias.parts.effects import effect_interval
from evenhand.evaluation.metrics.generation_bias.words import note, words
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.numbers import interval, number
from evenhand.evaluation.report.page import Cell, Row, Table

MAX_CHANGED = 3  # people in the table of a comparison
IN_TABLE = ("limit_of_style", "limits_before_after")  # kinds of explanations that are rows of a table
EMPTY = Cell("")


def measurement_table(facts: Facts, *, are_cut: bool = False) -> Table:
    """Return the table of the facts of a measurement: measured, the average, and the estimated difference.

    Args:
        facts: the facts.
        are_cut: whether most answers were cut: nothing is said of measures of whole answers, such as the length.
    """
    assert facts.size  # a measurement has one
    people = _told_people(facts, are_cut)
    rows = [*map(_person_row, people), _size_row(facts.size)]
    for found in facts.explanations:
        if found.kind in IN_TABLE:
            label = words(Finding("style_of_one_person", facts.size.values))
            rows.append(Row(label, (EMPTY, EMPTY, _limit_cell(found.values["bound"]))))
    about = note("about_first_table", has_people=bool(people))
    return Table("In numbers", ("", "measured", "average", "estimated difference"), tuple(rows), about)


def _told_people(facts: Facts, are_cut: bool) -> list[Finding]:
    return [found for found in facts.people if not (are_cut and misread_in_cut_answers(found.values["outcome"].name))]


def _person_row(found: Finding) -> Row:
    values = found.values
    cells = (
        Cell(words(Finding("measured", values))),
        Cell(words(Finding("average", values))),
        _difference_cell(found),
    )
    return Row(words(Finding("answers_of_person", values)), cells)


def _difference_cell(found: Finding) -> Cell:
    """Return the estimated difference with its interval, in answers of 100 or in the unit of the outcome."""
    outcome: Outcome = found.values["outcome"]
    level: Level = found.values["level"]
    factor = 100.0
    decimals = 0 if abs(level.estimate) >= 0.01 else 1
    if outcome.scale not in (ValueKind.SHARE, ValueKind.NUMBER):
        factor = outcome.factor
        decimals = outcome.decimals
    low, high = level.interval
    bounds = effect_interval({"low": low, "high": high, "certainty": level.certainty}, factor, decimals, sign=True)
    return Cell(number(factor * level.estimate, decimals, sign=True), bounds)


def _size_row(found: Finding) -> Row:
    size: Size = found.values["size"]
    bounds = size.interval and (100 * size.interval[0], 100 * size.interval[1])
    cells = (EMPTY, EMPTY, _size_cell(size, interval(bounds, 1)))
    return Row(words(Finding("style_of_everybody", found.values)), cells)


def _size_cell(size: Size, beside: str) -> Cell:
    return Cell(note("moved_answers", size=size), beside, reason="" if size.least else size.reason)


def comparison_table(facts: Facts, *, are_cut: bool = False) -> Table:
    """Return the table of the facts of a comparison: before, after, and what is shown of the change.

    Arguments are those of `measurement_table`.
    """
    assert facts.size and facts.decision  # a comparison has both
    people = _told_people(facts, are_cut)
    rows = [*map(_changed_person_row, people[:MAX_CHANGED]), _changed_size_row(facts.size)]
    for found in facts.explanations:
        if found.kind in IN_TABLE:
            limits = [_limit_cell(found.values[side]) for side in ("before", "after")]
            rows.append(Row(words(Finding("style_of_one_person", facts.size.values)), (*limits, EMPTY)))
    rows += _cost_rows(facts.costs)
    about = words(Finding("about_changes_first", facts.decision.values))
    return Table("Before and after", ("", "before", "after", "change"), tuple(rows), about)


def _changed_person_row(found: Finding) -> Row:
    sides = []
    for side in ("before", "after"):
        values = {**found.values, "level": found.values[side]}
        sides.append(Cell(words(Finding("measured", values)), words(Finding("beside_average", values))))
    became = Cell(words(Finding("became_briefly", found.values)), prose=True)
    return Row(words(Finding("answers_of_person", found.values)), (*sides, became))


def _changed_size_row(found: Finding) -> Row:
    sides = []
    for side in ("before", "after"):
        size: Size = found.values[side]
        sides.append(_size_cell(size, note("size_in_words", size=size)))
    change = Cell(words(Finding("style_changed", found.values)), prose=True)
    return Row(words(Finding("style_of_everybody", found.values)), (*sides, change))


def _cost_rows(costs: Sequence[Cost]) -> list[Row]:
    """Return a row for each cost, and one for all that were not measured."""
    rows = []
    for cost in costs:
        if cost.score:
            form = format_of(cost.score)
            value = Cell(form.full_text(cost.score.value), form.interval_text(cost.score.interval))
            rows.append(Row(cost.label, (EMPTY, value, Cell(note("cost_in_words", cost=cost), prose=True))))
    unknown = [cost.label for cost in costs if cost.score is None]
    if unknown:
        rows.append(Row(", ".join(unknown), (EMPTY, Cell(note("cost_unknown")), EMPTY)))
    return rows


def _limit_cell(bound: float) -> Cell:
    return Cell(note("at_most_answers", bound=bound))
