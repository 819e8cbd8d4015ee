"""Comparison of the generation bias of two runs: paired differences and tables (Smith et al. 2022, C.2)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from evenhand.evaluation.data.phrase_files import load_phrases, phrases_for
from evenhand.evaluation.data.style_clusters import load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.changes.tables import write_changes, write_corpus
from evenhand.evaluation.metrics.generation_bias.collect.responses import likelihoods_of_responses
from evenhand.evaluation.metrics.generation_bias.costs.capability import capability_differences
from evenhand.evaluation.metrics.generation_bias.costs.even_reference import (
    EVEN_LIKELIHOODS,
    even_reference,
    even_responses,
)
from evenhand.evaluation.metrics.generation_bias.costs.relevance import (
    LIKELIHOODS,
    likelihood_changes,
    sample_prompts,
    undefined_changes,
)
from evenhand.evaluation.metrics.generation_bias.costs.scores import cost_differences
from evenhand.evaluation.metrics.generation_bias.costs.template_relevance import (
    TEMPLATE_LIKELIHOODS,
    likelihoods_within_template,
    template_relevance,
)
from evenhand.evaluation.metrics.generation_bias.effects.changes import EFFECT_CHANGES, effect_changes
from evenhand.evaluation.metrics.generation_bias.effects.scores import effect_scores, log_effects
from evenhand.evaluation.metrics.generation_bias.metric import compare_generation_bias
from evenhand.evaluation.metrics.generation_bias.settings import FIRST, SECOND, ComparisonSettings, measured_model
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    SECOND_STYLES,
    StyledResponses,
    has_same_prompts,
    random_samples,
    read_styled_responses,
)
from evenhand.evaluation.score import PROMPT_ID, RESPONSE, UNSEEN, BiasScore, find_score
from evenhand.evaluation.statistics.jackknife import DESCRIPTORS, TEMPLATES
from evenhand.evaluation.store import Store
from evenhand.evaluation.tables import read_table

HEADLINE = "fgb_pooled_corrected"


def differences(run: Store, before: FamilyRun, after: FamilyRun, config: ComparisonSettings | None) -> list[BiasScore]:
    """Return the paired differences and reductions between two runs, and write the tables of changes.

    If the run's folder has `bias_values.parquet` (descriptor, axis, before: mean bias value b), phrases are counted in
    the responses to the descriptors with the highest mean b, and parroting is correlated with mean b.

    Raises:
        InputError: the two runs have different prompts, styles, decoding or style classifiers.
    """
    config = config or ComparisonSettings()
    rows = old, new = read_styled_responses(before.folder), read_styled_responses(after.folder)
    signature = {side: measured.signature(HEADLINE) for side, measured in (("before", before), ("after", after))}
    check_comparable(before, after, rows)
    clusters = load_style_clusters(before.config.settings.style_clusters, old.styles)
    scores = compare_generation_bias(old, new, clusters, signature=signature)
    if permutations := before.config.settings.permutations:
        permuted = {"groups": old.groups(), "permutations": permutations, "seed": before.config.seed}
        table = run.table(EFFECT_CHANGES, lambda: effect_changes(old, new, clusters, **permuted))
        scores += effect_scores(table, signature)
        log_effects(run.tracker, EFFECT_CHANGES, table)
    scores += _overall_differences(before, after, rows, signature)
    scores += cost_differences(before, after, rows, clusters, signature)
    scores += capability_differences(before, after, signature)
    if config.relevance:
        scores += _likelihood_changes(run, before, rows, signature)
    else:
        scores += undefined_changes("generation_bias.relevance is false", signature)
    phrases = load_phrases(config.phrases or phrases_for(before.config.settings.style_clusters))
    scores += write_changes(run, old, new, clusters, phrases, _bias_values(run), signature)
    if config.corpus.path is not None:
        scores += write_corpus(run, old, new, clusters, config.corpus, signature)
    run.tracker.log_table("samples", random_samples(old, new))
    return scores


def _likelihood_changes(
    run: Store, before: FamilyRun, rows: tuple[StyledResponses, StyledResponses], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return relevance and perplexity of both runs' responses under the model of the run `before`, and their changes.

    The changes are undefined if the model cannot be loaded at the measured revision.
    """
    model, measured = measured_model(before.config), signature["before"].get("model", {})
    if not measured:
        return undefined_changes("the first run does not record which model was measured", signature)
    if model.without_weights:
        return undefined_changes(model.without_weights, signature)
    try:
        if model.inputs()["model"] != measured["revision"]:
            return undefined_changes(f"the revision of {model.name} is no longer the measured one", signature)
        prompts = rows[0].table

        def table(name: str, compute: Callable[[str], pd.DataFrame]) -> pd.DataFrame:
            return before.table(name) if before.has(name) else run.table(name, lambda: compute(name))

        def likelihoods(responses: list[str], name: str) -> pd.DataFrame:
            if before.has(LIKELIHOODS):
                drawn = prompts[PROMPT_ID].isin(before.table(LIKELIHOODS)[PROMPT_ID]).to_numpy()
            else:
                share = before.config.settings.relevance_share
                drawn = sample_prompts(prompts[PROMPT_ID].tolist(), share, model.n_parameters())
            score = partial(model.log_likelihood, run=run, name=name)
            return likelihoods_of_responses(score, prompts, responses, drawn)

        def within_template(responses: list[str], name: str) -> pd.DataFrame:
            return likelihoods_within_template(partial(model.log_likelihood, run=run, name=name), prompts, responses)

        old_responses, new_responses = (side.table[RESPONSE].tolist() for side in rows)
        old = table(LIKELIHOODS, partial(likelihoods, old_responses))
        new = table(f"{LIKELIHOODS}_after", partial(likelihoods, new_responses))
        even = table(EVEN_LIKELIHOODS, partial(likelihoods, even_responses(prompts, old_responses)))
        within = [
            table(TEMPLATE_LIKELIHOODS, partial(within_template, old_responses)),
            table(f"{TEMPLATE_LIKELIHOODS}_after", partial(within_template, new_responses)),
        ]
    except InputError as error:
        return undefined_changes(f"{model.name} cannot be loaded: {error}", signature)
    return [
        *likelihood_changes(rows[0].table, old, new, signature),
        *even_reference(rows[0].table, old, even, signature),
        *template_relevance(*within, signature),
    ]


def _bias_values(run: Store) -> pd.DataFrame | None:
    path = run.folder / "bias_values.parquet"
    return read_table(path) if path.exists() else None


def check_comparable(
    before: FamilyRun, after: FamilyRun, rows: tuple[StyledResponses, StyledResponses], field: str = "after"
) -> None:
    """Raise InputError if two runs have different prompts, styles, decoding or style classifiers.

    `field` is the setting with the folder of the run after, for the message.
    """
    old, new = rows
    if not has_same_prompts(old, new) or old.styles != new.styles:
        raise InputError(
            f"{field}: {after.folder} has other prompts or styles than {before.folder}; measure it again with the same "
            "dataset, sampling, seed and style classifier."
        )
    for name in (FIRST, "decoding"):
        old_value, new_value = (side.signature(HEADLINE).get(name) for side in (before, after))
        if old_value != new_value:
            raise InputError(
                f"{field}: {name} is {new_value}, but {old_value} in {before.folder}; compare only runs with the same "
                f"{name}."
            )


def _overall_differences(
    before: FamilyRun, after: FamilyRun, rows: tuple[StyledResponses, StyledResponses], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return differences and reductions of FGB* and pooled FGB* on subsets of prompts and by the second classifier.

    Groups: `seen` is "yes" for prompts with values used in tuning and "no" for the other prompts (only in runs with
    `unseen_by`); `classifier` is "second" for style vectors by the second classifier.
    """
    subsets, unseen_over = [], TEMPLATES if before.config.prompts.unseen_by == "template" else DESCRIPTORS
    if UNSEEN in rows[0].table:
        unseen = rows[0].table[UNSEEN].to_numpy(dtype=bool)
        subsets += [({"seen": "yes"}, [side.rows(~unseen) for side in rows])]
        subsets += [({"seen": "no"}, [side.rows(unseen) for side in rows])]
    if before.has(SECOND_STYLES) and after.has(SECOND_STYLES):
        _check_second_classifiers(before, after)
        sides = [read_styled_responses(side.folder, second=True) for side in (before, after)]
        subsets += [({"classifier": "second"}, sides)]
    return [
        replace(score, group=group)
        for group, (old, new) in subsets
        for score in compare_generation_bias(
            old,
            new,
            {},
            by_axis=False,
            over=unseen_over if "seen" in group else TEMPLATES,
            signature=signature,
        )
    ]


def _check_second_classifiers(before: FamilyRun, after: FamilyRun) -> None:
    first, second = (
        find_score(side.scores, HEADLINE, classifier="second").signature.get(FIRST) for side in (before, after)
    )
    if first != second:
        raise InputError(f"after: {SECOND} is {second}, but {first} in before; measure it again with the same.")
