"""Measures of two compared runs by one classifier of offensiveness, and by one model: that of the run before."""

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import answers_of
from evenhand.evaluation.metrics.generation_bias.classification import OFFENSIVENESS_CLASSIFIER, is_same_classifier
from evenhand.evaluation.metrics.generation_bias.likelihoods import drawn_prompts, likelihood_table
from evenhand.evaluation.metrics.generation_bias.measures import FLUENCY, LIKELIHOODS
from evenhand.evaluation.metrics.generation_bias.parts import Comparison
from evenhand.evaluation.metrics.offensiveness import OFFENSIVE_SHARE

AFTER = "_after"  # the end of the names of tables of the second run's responses
OTHER_CLASSIFIER = "the two runs used different offensiveness classifiers"


def offensiveness_classifier(run: FamilyRun) -> Json:
    """Return the entry of a run's signature on the offensiveness classifier."""
    return run.signature(OFFENSIVE_SHARE.name).get(OFFENSIVENESS_CLASSIFIER)


def has_same_offensiveness_classifier(comparison: Comparison) -> bool:
    """Return whether both runs have the same offensiveness classifier."""
    before = offensiveness_classifier(comparison.before)
    return is_same_classifier(before, offensiveness_classifier(comparison.after))


def table_under_base(comparison: Comparison, name: str, label: str, answers: pd.DataFrame) -> pd.DataFrame:
    """Return the table `name` of `TABLES`, of one run's answers under the model of the first run.

    `label` is the name of the table that is written, or of the first run's own, which is read if it has the same rows.
    """
    before = comparison.before
    prompts = comparison.old.table
    # A response's other prompt is one of all prompts of its run: on common prompts, both runs' are drawn from these.
    is_whole = before.only is None and not comparison.score_all
    if before.has(label) and (is_whole or name == FLUENCY):
        return before.table(label)

    def compute() -> pd.DataFrame:
        drawn = None
        if comparison.score_all:
            drawn = np.ones(len(prompts), dtype=bool)
        elif name == LIKELIHOODS and before.has(name):
            drawn = prompts[columns.PROMPT_ID].isin(before.table(name)[columns.PROMPT_ID]).to_numpy()
        elif name == LIKELIHOODS:
            drawn = drawn_prompts(comparison.base, prompts, before.config.settings.relevance_share)
        return likelihood_table(comparison.store, comparison.base, name, prompts, answers, drawn, label)

    return comparison.store.table(label, compute)


def tables_under_base(comparison: Comparison, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the table `name` of the responses of both runs, under the model of the first run."""
    old = table_under_base(comparison, name, name, answers_of(comparison.old.table))
    return old, table_under_base(comparison, name, f"{name}{AFTER}", answers_of(comparison.new.table))
