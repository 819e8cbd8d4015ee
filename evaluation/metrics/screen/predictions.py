"""The divergences of a model's predictions at each template, and the tokens that contribute most."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.screen.divergences import (
    AT_MOST,
    CONTRIBUTION,
    DIVERGENCE,
    MEAN_PROBABILITY,
    OWN_WORDS,
    PROBABILITY,
    TOKEN,
    TOKENS,
)

if TYPE_CHECKING:
    from evenhand.evaluation.models.base import Model

TOP_TOKENS = 20  # tokens that are kept of each prediction
LISTED_TOKENS = 20  # the most that OpenAI's API and, by default, vLLM list
MIN_OPENINGS = 16  # at each template; with more people, one of each, up to the next number
MAX_DRAWN_PEOPLE = 32  # from whose predictions openings are drawn at a template, by chance
# Columns of people, which are lists in a row of a template.
LISTS = [columns.AXIS, columns.DESCRIPTOR, DIVERGENCE, AT_MOST, OWN_WORDS]


def screen_templates(
    model: "Model",
    prompts: pd.DataFrame,
    templates: pd.DataFrame,
    *,
    first_tokens: int,
    listed_tokens: int,
    seed: int,
) -> Iterator[pd.DataFrame]:
    """Yield a row for each template, with a list for each column of people, and a list of their tokens."""
    if templates.empty:
        yield pd.DataFrame({name: pd.Series(dtype=object) for name in (columns.TEMPLATE, *LISTS, TOKENS)})
    for index, template in templates[columns.TEMPLATE].items():
        of_template = prompts[prompts[columns.TEMPLATE] == template]
        found = screen_template(model, of_template, listed_tokens)
        if first_tokens > 1:
            found |= screen_openings(model, of_template, first_tokens, seed)
        row = {name: [of_template[name].tolist() if name in of_template else found[name]] for name in (*LISTS, TOKENS)}
        yield pd.DataFrame({columns.TEMPLATE: [template], **row}, index=[index])


def screen_template(model: "Model", prompts: pd.DataFrame, listed_tokens: int = LISTED_TOKENS) -> dict[str, list]:
    """Return the divergence of each person, its part on own words, and the tokens that contribute most.

    If only some tokens are known, the divergence has bounds (`divergence_bounds`).

    Args:
        prompts: the prompts of all people at one template, (people,).
        listed_tokens: the number of tokens that a server lists.
    """
    import torch

    from evenhand.evaluation.statistics.people_divergence import divergence_bounds

    predictions = model.predictions(prompts, listed_tokens)
    log_p = torch.from_numpy(predictions.log_p).double()
    lower, upper, contributions = divergence_bounds(log_p, is_complete=predictions.is_complete)
    log_mean = log_p.logsumexp(0) - math.log(len(log_p))
    tokens = []
    largest = contributions.topk(min(TOP_TOKENS, contributions.shape[1]), dim=1)
    for person, (values, ids) in enumerate(zip(largest.values.tolist(), largest.indices.tolist(), strict=True)):
        for value, token in zip(values, ids, strict=True):
            tokens.append(
                {
                    columns.DESCRIPTOR: prompts[columns.DESCRIPTOR].iloc[person],
                    TOKEN: predictions.text_of(token),
                    PROBABILITY: float(log_p[person, token].exp()),
                    MEAN_PROBABILITY: float(log_mean[token].exp()),
                    CONTRIBUTION: value,
                }
            )
    return {
        DIVERGENCE: lower.tolist(),
        AT_MOST: upper.tolist(),
        OWN_WORDS: contributions[:, list(predictions.own_words)].sum(1).tolist(),
        TOKENS: tokens,
    }


def screen_openings(model: "Model", prompts: pd.DataFrame, first_tokens: int, seed: int) -> dict[str, list]:
    """Return the divergence of each person's first tokens, and its part on own words, along drawn openings.

    Args:
        prompts: the prompts of all people at one template, (people,).
    """
    from evenhand.evaluation.models.base import prompt_seed
    from evenhand.evaluation.models.contexts import encode_contexts
    from evenhand.evaluation.models.likelihood.openings import divergences_along, draw_openings
    from evenhand.evaluation.models.own_words import own_word_ids

    loaded = model.load()
    contexts = model.contexts(prompts)
    drawn = prompts.sample(min(len(prompts), MAX_DRAWN_PEOPLE), random_state=seed)
    places = prompts.index.get_indexer(drawn.index)
    asked = []
    seeds = []
    for place in places:
        for number in range(math.ceil(MIN_OPENINGS / len(drawn))):
            asked.append(contexts[place])
            seeds.append(prompt_seed(f"{prompts[columns.PROMPT_ID].iloc[place]} {number}", seed))
    openings = draw_openings(loaded, asked, seeds, first_tokens - 1)
    own = own_word_ids(loaded.tokenizer, encode_contexts(loaded, contexts))
    divergence, of_own_words = divergences_along(loaded, contexts, openings, first_tokens, own)
    return {DIVERGENCE: divergence.tolist(), AT_MOST: divergence.tolist(), OWN_WORDS: of_own_words.tolist()}


def merge_tokens(found: pd.DataFrame) -> pd.DataFrame:
    """Return each person's tokens, the largest contributions first: means over templates.

    The contribution is the mean over all templates. Probabilities are means over those at which the token is one of
    TOP_TOKENS: elsewhere it contributes little, but its probability is not 0.
    """
    parts = []
    for template, of_template in zip(found[columns.TEMPLATE], found[TOKENS], strict=True):
        parts.append(pd.DataFrame(list(of_template)).assign(**{columns.TEMPLATE: template}))
    numbers = [PROBABILITY, MEAN_PROBABILITY, CONTRIBUTION]
    # Several tokens may have the same text, such as parts of characters.
    texts = pd.concat(parts).groupby([columns.TEMPLATE, columns.DESCRIPTOR, TOKEN], as_index=False)[numbers].sum()
    by_text = texts.groupby([columns.DESCRIPTOR, TOKEN], as_index=False)
    means = by_text[numbers].mean()
    means[CONTRIBUTION] = by_text[CONTRIBUTION].sum()[CONTRIBUTION] / len(found)
    return means.sort_values([columns.DESCRIPTOR, CONTRIBUTION], ascending=[True, False], ignore_index=True)
