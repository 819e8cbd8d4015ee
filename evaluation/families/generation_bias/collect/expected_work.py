"""The steps of a measurement with their expected costs, which predict the time left of the whole measurement."""

from collections.abc import Iterator

from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.collect.classification import OFFENSIVENESS
from evenhand.evaluation.families.generation_bias.collect.rows import SECOND_STYLES, STYLES
from evenhand.evaluation.families.generation_bias.costs.relevance import SMALL_MODEL, sample_size
from evenhand.evaluation.families.generation_bias.costs.template_relevance import MAX_RESPONSES
from evenhand.evaluation.families.generation_bias.settings import (
    FIRST,
    OFFENSIVE,
    SECOND,
    classifiers,
    neutral_dialogue,
)

# The time of one text as a share of the time of one response, measured with SmolLM2-135M-Instruct and MiniLM. The rate
# of the current step replaces the unit, so that only the ratios matter.
LIKELIHOOD_COST, CLASSIFICATION_COST = 0.5, 0.05
TRAINING_COST = 3.0  # of a row of training: forward and backward passes over its context and response, and evaluations


def expected_steps(config: MeasureConfig, n: int) -> Iterator[tuple[str, int, float]]:
    """Yield the description, the number of texts and the cost of each step for n responses, in order of execution.

    The cost is the time of the step as a multiple of the time of one response.
    """
    resampling = config.settings.resampling
    n_generated = n if resampling.exponents is None else n * resampling.candidates
    yield "responses", n_generated, n_generated
    if config.loads_model:
        if config.settings.relevance:
            n_likelihoods = 2 * sample_size(n, config.settings.relevance_share, SMALL_MODEL)
            yield "relevance", n_likelihoods, n_likelihoods * LIKELIHOOD_COST
            if config.settings.for_comparisons:
                yield "relevance, even", n_likelihoods, n_likelihoods * LIKELIHOOD_COST
                n_within = 2 * min(n, MAX_RESPONSES)
                yield "relevance within templates", n_within, n_within * LIKELIHOOD_COST
        if (path := neutral_dialogue(config)) is not None:
            n_pairs = len(load_neutral_dialogue(path))
            yield "perplexity", n_pairs, n_pairs * LIKELIHOOD_COST
    checkpoints = classifiers(config)
    for name, table in ((FIRST, STYLES), (SECOND, SECOND_STYLES), (OFFENSIVE, OFFENSIVENESS)):
        if name in checkpoints:
            yield table.replace("_", " "), n, n * CLASSIFICATION_COST
