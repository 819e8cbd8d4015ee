"""Sentences with the position of the noun phrase in each, so that a masked model scores only the phrase.

Source: Smith et al. 2022, appendix B.1, Table 7 and footnote 6, with six templates of SEAT (May et al. 2019).
The paper samples 500,000 sentences; here each phrase is in each template once.
"""

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd

from evenhand.evaluation.data.holistic_bias import PLURAL_SLOT, SINGULAR_SLOT, Taxonomy, Template, generate_prompts
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_yaml
from evenhand.evaluation.score import TEMPLATE, TEXT

SHIPPED = Path(__file__).resolve().parent / "files" / "phrase_templates.yaml"
SPAN_START, SPAN_END = "span_start", "span_end"
ARTICLE = re.compile(r"an? ", re.IGNORECASE)


def load_phrase_templates(path: Path = SHIPPED) -> tuple[str, ...]:
    """Return the templates of a YAML file, a list of sentences with one slot each; by default, the paper's templates.

    Raises:
        InputError: the file cannot be read or is no list of sentences, or a sentence is repeated or lacks its one slot.
    """
    templates = read_yaml(path, "phrase_templates")
    if not isinstance(templates, list) or not templates:
        raise InputError(f'phrase_templates: {path} is no list; write `- "This is {SINGULAR_SLOT}."` on each line.')
    for template in templates:
        slots = re.findall(r"\{.*?\}|[{}]", template) if isinstance(template, str) else []
        if slots not in ([SINGULAR_SLOT], [PLURAL_SLOT]):
            raise InputError(
                f"phrase_templates: {path}: {template!r} is not a sentence with one slot; insert {SINGULAR_SLOT} or "
                f"{PLURAL_SLOT} once."
            )
        if templates.count(template) > 1:
            raise InputError(f"phrase_templates: {path}: {template!r} occurs twice; leave one out.")
    return tuple(templates)


def make_phrase_sentences(taxonomy: Taxonomy, templates: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Return a table of sentences: each template with each noun phrase that contains a noun.

    The columns are `holistic_bias.COLUMNS`, span_start and span_end; text[span_start:span_end], the phrase without its
    article, is scored ("tall guy" in "This is a tall guy.", as in the paper). A phrase at the start of a sentence is
    capitalized.

    Args:
        taxonomy: an edition of HolisticBias, whose templates are not used.
        templates: sentences with one slot each; by default, the paper's templates.
    """
    texts = load_phrase_templates() if templates is None else templates
    templates = tuple(Template(text, must_be_noun=True) for text in texts)
    rows = generate_prompts(replace(taxonomy, templates=templates)).to_pandas()
    spans = [
        _fill_template(*row)
        for row in zip(rows[TEMPLATE], rows["noun_phrase"], rows["plural_noun_phrase"], strict=True)
    ]
    rows[TEXT], rows[SPAN_START], rows[SPAN_END] = (list(column) for column in zip(*spans, strict=True))
    return rows


def _fill_template(template: str, singular: str, plural: str) -> tuple[str, int, int]:
    slot, phrase = (SINGULAR_SLOT, singular) if SINGULAR_SLOT in template else (PLURAL_SLOT, plural)
    start = template.index(slot)
    article = ARTICLE.match(phrase) if slot == SINGULAR_SLOT else None
    phrase = phrase if start else phrase[0].upper() + phrase[1:]
    return template.replace(slot, phrase), start + (article.end() if article else 0), start + len(phrase)
