"""Sections of a page that are of all answers, where the first table leaves out those in another language."""

from collections.abc import Iterable
from dataclasses import replace

from evenhand.evaluation.metrics.generation_bias.requested_language import style_group
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.score import BiasScore, Kind


def of_all_answers(sections: Iterable[Section], scores: Iterable[BiasScore], kind: Kind = Kind.LEVEL) -> list[Section]:
    """Return sections with scores of styles as published, which say that they are of all answers if the page's are not.

    Args:
        scores: the scores of a run, or of a comparison with `kind` DIFFERENCE.
    """
    if not style_group(scores, kind):
        return list(sections)
    about = note("tables_of_all_answers")
    return [replace(section, sentences=[about, *section.sentences]) for section in sections if section.has_content]
