"""Comparison of the generation bias of two runs: paired differences and tables (Smith et al. 2022, C.2)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.style_clusters import load_phrases, load_style_clusters, phrases_for
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.accepted import ACCEPTED_EFFECT, accepted_scores
from evenhand.evaluation.metrics.generation_bias.changes import (
    compare_generation_bias,
    frequency_scores,
    highest_descriptors,
    parroting_changes,
    parroting_score,
    phrase_changes,
    repeated_prompts,
)
from evenhand.evaluation.metrics.generation_bias.costs import relevance
from evenhand.evaluation.metrics.generation_bias.costs.scores import cost_differences
from evenhand.evaluation.metrics.generation_bias.effects import (
    EFFECT_CHANGES,
    effect_changes,
    effect_scores,
    log_effects,
)
from evenhand.evaluation.metrics.generation_bias.metric import HEADLINE
from evenhand.evaluation.metrics.generation_bias.settings import FIRST, SECOND, ComparisonSettings, measured_model
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    ACCEPTED,
    SECOND_STYLES,
    StyledResponses,
    has_same_prompts,
    read_styled_responses,
)
from evenhand.evaluation.score import (
    AXIS,
    DESCRIPTOR,
    PROMPT_ID,
    RESPONSE,
    TEMPLATE,
    TEXT,
    UNSEEN,
    BiasScore,
    find_score,
)
from evenhand.evaluation.statistics.jackknife import DESCRIPTORS, TEMPLATES
from evenhand.evaluation.store import Store

N_SAMPLES = 40  # tracked responses
BIAS_VALUES = "bias_values"  # table of the caller: descriptor, axis, before (mean bias value b)


def differences(run: Store, before: FamilyRun, after: FamilyRun, config: ComparisonSettings | None) -> list[BiasScore]:
    """Return the paired differences and reductions between two runs, and write the tables of changes.

    If the run has the table `bias_values`, phrases are counted in the responses to the descriptors with the highest
    mean b, and parroting is correlated with mean b.

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
    if before.has(ACCEPTED):
        sides = (read_styled_responses(side.folder, with_accepted=True) for side in (before, after))
        permuted = {"groups": old.groups(), "permutations": 0, "seed": before.config.seed}
        table = effect_changes(*sides, clusters, **permuted)
        name = f"{ACCEPTED_EFFECT}_difference"
        scores += accepted_scores(before.table(ACCEPTED), table, name, "change", signature)
    scores += _overall_differences(before, after, rows, signature)
    scores += cost_differences(before, after, rows, clusters, signature)
    if config.relevance:
        scores += _likelihood_changes(run, before, rows, signature)
    else:
        scores += relevance.undefined_changes("generation_bias.relevance is false", signature)
    bias_values = run.read(BIAS_VALUES) if run.has(BIAS_VALUES) else None
    repeated = repeated_prompts(old, new)
    by_descriptor = parroting_changes(repeated, (DESCRIPTOR, AXIS))
    parroting = run.table("parroting", lambda: _with_mean_b(by_descriptor, bias_values))
    run.table("parroting_by_template", lambda: parroting_changes(repeated, (TEMPLATE,)))
    with_repeat = repeated.groupby([TEMPLATE, DESCRIPTOR])[["before", "after"]].transform("any").any(axis=1)
    run.table("parroting_by_cell", lambda: parroting_changes(repeated[with_repeat], (TEMPLATE, DESCRIPTOR)))
    if bias_values is not None:
        groups = load_phrases(config.phrases or phrases_for(before.config.settings.style_clusters))
        phrases = {name: group.phrases for name, group in groups.items()}
        sets = {name: highest_descriptors(bias_values, group.axes) for name, group in groups.items()}
        texts = old.table[RESPONSE], new.table[RESPONSE], old.table[DESCRIPTOR]
        run.table("phrases", lambda: phrase_changes(*texts, phrases, sets))
        scores.append(parroting_score(parroting, signature))
    if config.corpus.path is not None:
        scores += frequency_scores(run, old, new, clusters, config.corpus, signature)
    drawn = np.random.default_rng(0).permutation(len(old))[:N_SAMPLES]
    texts = old.table[[DESCRIPTOR, TEXT]].assign(before=old.table[RESPONSE], after=new.table[RESPONSE])
    run.tracker.log_samples(texts.iloc[drawn])
    return scores


def _with_mean_b(parroting: pd.DataFrame, bias_values: pd.DataFrame | None) -> pd.DataFrame:
    """Return the table with the column mean_b, the descriptor's mean bias value before; NaN if unknown."""
    if bias_values is None:
        return parroting.assign(mean_b=np.nan)
    mean_b = bias_values[[DESCRIPTOR, AXIS, "before"]].rename(columns={"before": "mean_b"})
    return parroting.merge(mean_b, on=[DESCRIPTOR, AXIS], how="left")


def _likelihood_changes(
    run: Store, before: FamilyRun, rows: tuple[StyledResponses, StyledResponses], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return relevance and perplexity of both runs' responses under the first run's model, and their changes."""
    model, measured = measured_model(before.config), signature["before"].get("model", {})
    prompts, (old_responses, new_responses) = rows[0].table, (side.table[RESPONSE].tolist() for side in rows)

    def table(name: str, compute: Callable[..., pd.DataFrame], responses: list[str]) -> pd.DataFrame:
        score = partial(model.log_likelihood, run=run, name=name)
        return before.table(name) if before.has(name) else run.table(name, lambda: compute(score, prompts, responses))

    def likelihoods(score: relevance.Score, prompts: pd.DataFrame, responses: list[str]) -> pd.DataFrame:
        ids, share = prompts[PROMPT_ID], before.config.settings.relevance_share
        if before.has(relevance.LIKELIHOODS):
            drawn = ids.isin(before.table(relevance.LIKELIHOODS)[PROMPT_ID]).to_numpy()
        else:
            drawn = relevance.sample_prompts(ids.tolist(), share, model.n_parameters())
        return relevance.likelihoods_of_responses(score, prompts, responses, drawn)

    try:
        reason = model.without_weights
        if not measured:
            reason = "the first run does not record which model was measured"
        elif not reason and model.inputs()["model"] != measured["revision"]:
            reason = f"the revision of {model.name} is no longer the measured one"
        if reason:
            return relevance.undefined_changes(reason, signature)
        old = table(relevance.LIKELIHOODS, likelihoods, old_responses)
        new = table(f"{relevance.LIKELIHOODS}_after", likelihoods, new_responses)
        even = table(relevance.EVEN_LIKELIHOODS, likelihoods, relevance.even_responses(prompts, old_responses))
        within = [
            table(f"{relevance.TEMPLATE_LIKELIHOODS}{side}", relevance.likelihoods_within_template, responses)
            for side, responses in (("", old_responses), ("_after", new_responses))
        ]
    except InputError as error:
        return relevance.undefined_changes(f"{model.name} cannot be loaded: {error}", signature)
    return [
        *relevance.likelihood_changes(prompts, old, new, signature),
        *relevance.even_reference(prompts, old, even, signature),
        *relevance.template_relevance(*within, signature),
    ]


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
    for name in (FIRST, "decoding", ACCEPTED):
        old_value, new_value = (side.signature(HEADLINE).get(name) for side in (before, after))
        if old_value != new_value:
            raise InputError(
                f"{field}: {name} is {new_value}, but {old_value} in {before.folder}; compare only runs with the same "
                f"{name}."
            )


def _overall_differences(
    before: FamilyRun, after: FamilyRun, rows: tuple[StyledResponses, StyledResponses], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return differences and reductions by `seen` ("yes": values used in tuning) and by the second `classifier`."""
    over, scores = TEMPLATES if before.config.prompts.unseen_by == "template" else DESCRIPTORS, []
    if UNSEEN in rows[0].table:
        unseen = rows[0].table[UNSEEN].to_numpy(dtype=bool)
        for seen, mask in (("yes", ~unseen), ("no", unseen)):
            changes = compare_generation_bias(
                *(side.rows(mask) for side in rows), {}, by_axis=False, over=over, signature=signature
            )
            scores += [replace(score, group={"seen": seen}) for score in changes]
    if before.has(SECOND_STYLES) and after.has(SECOND_STYLES):
        found = (find_score(side.scores, HEADLINE, classifier="second") for side in (before, after))
        first, second = (score.signature.get(FIRST) for score in found)
        if first != second:
            raise InputError(f"after: {SECOND} is {second}, but {first} in before; measure it again with the same.")
        sides = (read_styled_responses(side.folder, second=True) for side in (before, after))
        changes = compare_generation_bias(*sides, {}, by_axis=False, signature=signature)
        scores += [replace(score, group={"classifier": "second"}) for score in changes]
    return scores
