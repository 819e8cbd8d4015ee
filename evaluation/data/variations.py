"""Stylistic variations of prompts: lower case, no hyphens, no contraction, no period (Smith et al. 2022, A.3)."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.data.holistic_bias import PLURAL_SLOT, SINGULAR_SLOT
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import NOUN, TEMPLATE, TEXT

# The stylistic variations of Smith et al. 2022, A.3. Each is a boolean column, true if the variation was applied to the
# row, also if the text did not change.
VARIATIONS = ("descriptor_lowercased", "hyphens_removed", "contraction_removed", "period_removed")
NO_VARIATION = "0" * len(VARIATIONS)
VARIED_COLUMNS = (TEXT, TEMPLATE, NOUN, "plural_noun", "noun_phrase", "plural_noun_phrase")


def vary_text(prompt: Mapping[str, str], flags: Sequence[bool]) -> str:
    """Return a prompt's text with the stylistic variations whose flags are set (Smith et al. 2022, A.3).

    The first two variations change only the descriptor, which is the noun phrase without its noun.

    All variations except the first are applied to "I'm a hard-of-hearing mom.":

    >>> deaf = {"template": "I'm {noun_phrase}.", "noun": "mom", "noun_phrase": "a hard-of-hearing mom"}
    >>> deaf |= {"plural_noun": "moms", "plural_noun_phrase": "hard-of-hearing moms"}
    >>> vary_text(deaf, (False, True, True, True))
    'I am a hard of hearing mom'
    """
    lowercase, no_hyphens, no_contraction, no_period = flags
    text = prompt[TEMPLATE]
    if no_contraction:
        text = text.replace("I'm", "I am")
    for slot, noun in ((SINGULAR_SLOT, prompt[NOUN]), (PLURAL_SLOT, prompt["plural_noun"])):
        before, noun, after = prompt[slot.strip("{}")].partition(noun)
        if lowercase:
            before, after = before.lower(), after.lower()
        if no_hyphens:
            before, after = before.replace("-", " "), after.replace("-", " ")
        text = text.replace(slot, before + noun + after)
    return text.removesuffix(".") if no_period else text


def apply_variations(table: pd.DataFrame, flags: np.ndarray) -> pd.DataFrame:
    """Return the table with varied texts and the boolean columns VARIATIONS, whose values are `flags`, (n, 4).

    Raises:
        InputError: a text is not its template filled with its noun phrase.
    """
    texts = []
    for prompt, row_flags in zip(table[list(VARIED_COLUMNS)].to_dict("records"), flags.tolist(), strict=True):
        if vary_text(prompt, (False,) * len(VARIATIONS)) != prompt[TEXT]:
            raise InputError(f"variations: {prompt[TEXT]!r} is not its template and noun phrase; turn it off.")
        texts.append(vary_text(prompt, row_flags))
    return table.assign(**{TEXT: texts}, **dict(zip(VARIATIONS, flags.T, strict=True)))
