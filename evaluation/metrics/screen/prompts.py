"""The prompts of a screen: all people send the same message, and each template asks about the same people."""

import logging
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyConfig

if TYPE_CHECKING:
    pass
N_TEMPLATES = "n_templates"  # of all prompts, of which those about the same people are screened
N_TEXTS = "n_texts"  # of the user's prompts of a person at a template, of which the first is screened
log = logging.getLogger("evenhand")
MIN_TEMPLATES = 2


def prompts_left_out(prompts: pd.DataFrame) -> list[Finding]:
    """Return how many texts and how many templates of a screen's prompts were not screened; [] if all were."""
    found = []
    n_texts = int(prompts[N_TEXTS].sum()) if N_TEXTS in prompts else len(prompts)
    if n_texts > len(prompts):
        found.append(Finding("texts_left_out", {"n": n_texts, "n_screened": len(prompts)}))
    n_screened = int(prompts[columns.TEMPLATE].nunique())
    n_templates = int(prompts[N_TEMPLATES].iloc[0]) if N_TEMPLATES in prompts else n_screened
    if n_templates > n_screened:
        found.append(Finding("templates_left_out", {"n": n_templates, "n_screened": n_screened}))
    return found


def screened_prompts(config: FamilyConfig) -> pd.DataFrame:
    """Return one prompt for each template and person; all people have the same noun, and no persona.

    Raises:
        InputError: fewer than two templates have two people.
    """
    from evenhand.evaluation.data.holistic_bias import NONE
    from evenhand.evaluation.data.prompts import sample_descriptors
    from evenhand.evaluation.metrics.generation_bias.measurement_prompts import candidate_prompts

    prompts = candidate_prompts(config)
    if not config.prompts.is_own:
        prompts = sample_descriptors(prompts, config.prompts.descriptors)
    prompts = prompts[prompts[columns.DESCRIPTOR] != NONE]
    prompts = prompts.assign(**{columns.PERSONA: prompts.get(columns.PERSONA, "")})
    if columns.NOUN in prompts:
        prompts = prompts[prompts[columns.NOUN] == _common_nouns(prompts, config.seed)]
    prompts = _first_texts(prompts, warns=config.prompts.is_own)
    prompts = prompts.sort_values([columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR])
    prompts = _of_same_people(prompts).reset_index(drop=True)
    if columns.PROMPT_ID not in prompts:
        prompts.insert(0, columns.PROMPT_ID, prompts.index.astype(str))
    names = [columns.PROMPT_ID, columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR, columns.TEXT, columns.PERSONA]
    return prompts[[*names, N_TEXTS, N_TEMPLATES]]


def _first_texts(prompts: pd.DataFrame, *, warns: bool) -> pd.DataFrame:
    """Keep the first prompt of each template and person, note how many texts they had, and warn of those left out."""
    person = [columns.TEMPLATE, columns.DESCRIPTOR]
    texts = prompts.drop_duplicates([*person, columns.TEXT, columns.PERSONA])
    kept = prompts.drop_duplicates(person).assign(**{N_TEXTS: 1})
    if warns:
        kept[N_TEXTS] = texts.groupby(person, sort=False).size().to_numpy()
    if warns and len(kept) < len(texts):
        log.warning(
            "screen: %d of %d texts have the template and the person of a text before them; left out. Give each "
            "wording a template of its own",
            len(texts) - len(kept),
            len(texts),
        )
    return kept


def _of_same_people(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts of the templates that ask about the same people, as many as possible, with N_TEMPLATES.

    Raises:
        InputError: fewer than two templates ask about the same two people.
    """
    people = {
        template: frozenset(rows[columns.DESCRIPTOR].astype(str))
        for template, rows in prompts.groupby(columns.TEMPLATE)
    }
    n_templates = Counter(people.values())
    usable = [each for each, n in n_templates.items() if len(each) > 1 and n >= MIN_TEMPLATES]
    if not usable:
        raise InputError("prompts", "two templates that ask about the same two people are needed; select more prompts.")
    largest = max(usable, key=lambda each: (len(each) * n_templates[each], len(each), sorted(each)))
    kept = [template for template, names in people.items() if names == largest]
    if len(kept) < len(people):
        log.warning("screen: %d of %d templates ask about other people; left out", len(people) - len(kept), len(people))
    return prompts[prompts[columns.TEMPLATE].isin(kept)].assign(**{N_TEMPLATES: len(people)})


def _common_nouns(prompts: pd.DataFrame, seed: int) -> pd.Series:
    """Return, for each prompt, the noun of its template: one of those that go with the most descriptors."""
    counts = prompts.groupby([columns.TEMPLATE, columns.NOUN])[columns.DESCRIPTOR].nunique()
    rng = np.random.default_rng(seed)
    nouns = {}
    for template, of_nouns in counts.groupby(level=columns.TEMPLATE):
        best = of_nouns[of_nouns == of_nouns.max()].index.get_level_values(columns.NOUN)
        nouns[template] = rng.choice(sorted(best))
    return prompts[columns.TEMPLATE].map(nouns)
