"""The table on the first screen of a comparison: who is treated how, style over all people, and costs."""

from evenhand.evaluation.facts import Cost, Facts, Finding
from evenhand.evaluation.metrics.generation_bias.findings import Level
from evenhand.evaluation.metrics.generation_bias.headline import Size
from evenhand.evaluation.metrics.generation_bias.measures import misread_in_cut_answers
from evenhand.evaluation.metrics.generation_bias.words import note, words
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.report.page import Cell, Row, Table

MAX_PEOPLE = 3
IN_TABLE = ("limits_before_after",)  # kinds of explanations that are rows of the table
EMPTY = Cell("")


def change_table(facts: Facts, *, are_cut: bool = False) -> Table:
    """Return the table of the facts of a comparison: before, after, and what is shown of the change.

    Args:
        facts: the facts.
        are_cut: whether most answers were cut: nothing is said of measures of whole answers, such as the length.
    """
    people = list(facts.people)
    if are_cut:
        people = [found for found in people if not misread_in_cut_answers(found.values["outcome"].name)]
    assert facts.size and facts.decision  # a comparison has both
    rows = [*map(_person_row, people[:MAX_PEOPLE]), _style_row(facts.size)]
    rows += [_limit_row(found) for found in facts.explanations if found.kind in IN_TABLE]
    rows += map(_cost_row, facts.costs)
    about = note("about_first_table", **facts.decision.values)
    return Table("Before and after", ("", "before", "after", "change"), tuple(rows), about)


def _person_row(found: Finding) -> Row:
    sides = [_level_cell(found, found.values[side]) for side in ("before", "after")]
    became = Cell(words(Finding("became_briefly", found.values)), prose=True)
    return Row(words(Finding("answers_of_person", found.values)), (*sides, became))


def _level_cell(found: Finding, level: Level) -> Cell:
    values = {**found.values, "level": level}
    return Cell(words(Finding("measured", values)), words(Finding("beside_average", values)))


def _style_row(size: Finding) -> Row:
    sides = [_size_cell(size.values[side]) for side in ("before", "after")]
    change = Cell(note("style_changed", **size.values), prose=True)
    return Row(note("style_of_everybody"), (*sides, change))


def _size_cell(size: Size) -> Cell:
    if size.word is None:
        return Cell("", reason=size.reason)
    return Cell(note("moved_answers", size=size), note("size_in_words", size=size))


def _limit_row(found: Finding) -> Row:
    sides = [Cell(note("at_most_answers", bound=found.values[side])) for side in ("before", "after")]
    return Row(note("style_of_one_person"), (*sides, EMPTY))


def _cost_row(cost: Cost) -> Row:
    if cost.score is None:
        return Row(cost.label, (EMPTY, Cell(note("cost_unknown")), EMPTY))
    form = format_of(cost.score)
    value = Cell(form.full_text(cost.score.value), form.interval_text(cost.score.interval))
    return Row(cost.label, (EMPTY, value, Cell(note("cost_in_words", cost=cost), prose=True)))
