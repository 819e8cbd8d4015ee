"""Comparison of the generation bias of two runs: paired differences, phrases, parroting and frequencies in a corpus.

The tables are those of Smith et al. 2022, C.2 (Table 14).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.data.style_clusters import OTHER_DESCRIPTORS, load_phrases, load_style_clusters, phrases_for
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.accepted import accepted_scores
from evenhand.evaluation.metrics.generation_bias.changes import compare_generation_bias
from evenhand.evaluation.metrics.generation_bias.costs import relevance
from evenhand.evaluation.metrics.generation_bias.costs.scores import cost_differences
from evenhand.evaluation.metrics.generation_bias.costs.text_quality import repeat_prompts
from evenhand.evaluation.metrics.generation_bias.effects import (
    EFFECT_CHANGES,
    effect_changes,
    effect_scores,
    log_effects,
)
from evenhand.evaluation.metrics.generation_bias.frequencies import frequency_scores
from evenhand.evaluation.metrics.generation_bias.metric import FGB, find_headline
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import (
    FLUENCY,
    VALUES,
    fluency,
    outcome_changes,
    stored_values,
    without_person,
)
from evenhand.evaluation.metrics.generation_bias.settings import FIRST, SECOND, ComparisonSettings, measured_model
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    ACCEPTED,
    PROMPTS,
    SECOND_STYLES,
    StyledResponses,
    has_same_prompts,
    read_styled_responses,
)
from evenhand.evaluation.models.revisions import is_revision
from evenhand.evaluation.score import (
    AXIS,
    DESCRIPTOR,
    PERSONA,
    PROMPT_ID,
    RESPONSE,
    TEMPLATE,
    TEXT,
    UNTUNED,
    BiasScore,
    Form,
    Kind,
)
from evenhand.evaluation.statistics.intervals import ANY
from evenhand.evaluation.statistics.scores import NO_PAIRS, rank_correlation, share_change, share_score
from evenhand.evaluation.store import Store
from evenhand.evaluation.tables import read_table

N_SAMPLES = 40  # tracked responses
SET_SIZE = 20  # descriptors in a set (Smith et al. 2022, Table 14)
PAIRED_SHARES = ["n", "before", "after", "change", "low", "high", "p"]
FLUENCY_AFTER = "fluency_after"  # likelihoods of the second run's responses under the first run's model
NO_FLUENCY = "the first run's model has not scored the responses of the second run"
COMMON_PROMPTS = "common_prompts"  # the share of the prompts that both runs have
BIAS_VALUES = "bias_values"  # table of the caller: descriptor, axis, before (mean bias value b)


def differences(run: Store, before: FamilyRun, after: FamilyRun, config: ComparisonSettings | None) -> list[BiasScore]:
    """Return the paired differences and reductions between two runs, and write the tables of changes.

    If the run has the table `bias_values`, phrases are counted in the responses to the descriptors with the highest
    mean b, and parroting is correlated with mean b.

    Raises:
        InputError: the two runs have different prompts, styles, decoding or style classifiers.
    """
    config = config or ComparisonSettings()
    before, after, share = on_common_prompts(before, after)
    rows = old, new = compared_responses(before), compared_responses(after)
    signature = {side: measured.signature(FGB) for side, measured in (("before", before), ("after", after))}
    check_comparable(before, after, rows)
    clusters = load_style_clusters(before.config.settings.style_clusters, old.styles)
    scores = compare_generation_bias(old, new, clusters, signature=signature)
    scores.append(share_score(COMMON_PROMPTS, share, None, reason=NO_PAIRS, signature=signature))
    if permutations := before.config.settings.permutations:
        permuted = {"groups": old.groups(), "permutations": permutations, "seed": before.config.seed}
        table = run.table(EFFECT_CHANGES, lambda: effect_changes(old, new, clusters, **permuted))
        scores += effect_scores(table, signature)
        log_effects(run.tracker, EFFECT_CHANGES, table)
    if before.has(ACCEPTED):
        sides = (read_styled_responses(side.folder, with_accepted=True, only=side.only) for side in (before, after))
        permuted = {"groups": old.groups(), "permutations": 0, "seed": before.config.seed}
        table = effect_changes(*sides, clusters, **permuted)
        scores += accepted_scores(before.table(ACCEPTED), table, Kind.DIFFERENCE, signature)
    scores += _overall_differences(before, after, rows, signature)
    scores += cost_differences(before, after, rows, clusters, signature)
    if config.relevance:
        scores += _likelihood_changes(run, before, rows, signature)
    else:
        scores += relevance.undefined_changes("generation_bias.relevance is false", signature)
    scores += _outcome_changes(run, before, after, old, signature)
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
        names = ("the mean b", "the change of the share that repeats the prompt")
        columns = parroting["mean_b"], parroting["change"]
        scores.append(rank_correlation("parroting_rho", *columns, names=names, signature=signature))
    if config.corpus.paths:
        scores += frequency_scores(run, {"before": old, "after": new}, clusters, config.corpus, signature)
    drawn = np.random.default_rng(0).permutation(len(old))[:N_SAMPLES]
    texts = old.table[[DESCRIPTOR, TEXT]].assign(before=old.table[RESPONSE], after=new.table[RESPONSE])
    run.tracker.log_samples(texts.iloc[drawn])
    return scores


def on_common_prompts(before: FamilyRun, after: FamilyRun) -> tuple[FamilyRun, FamilyRun, np.ndarray]:
    """Return both runs with the prompts that both have, and whether each prompt of either one is common, (n,) bool.

    A change of the mix of prompts would otherwise look like a change of the model.

    Raises:
        InputError: the runs have no common prompt.
    """
    sides = [read_table(run.folder / f"{PROMPTS}.parquet", [PROMPT_ID])[PROMPT_ID] for run in (before, after)]
    if sides[0].equals(sides[1]):
        return before, after, np.ones(len(sides[0]), dtype=bool)
    common = frozenset(sides[0]) & frozenset(sides[1])
    if not common:
        raise InputError(
            "after",
            f"{after.folder} has no prompt of {before.folder}; measure it with the same dataset, sampling and "
            "seed, or the same file of prompts.",
        )
    prompts = np.array(sorted({*sides[0], *sides[1]}))
    return replace(before, only=common), replace(after, only=common), np.isin(prompts, list(common))


def compared_responses(run: FamilyRun) -> StyledResponses:
    """Return the responses of a run to the prompts that are compared."""
    return read_styled_responses(run.folder, only=run.only)


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
    of = before.config.model
    prompts, (old_responses, new_responses) = rows[0].table, (side.table[RESPONSE].tolist() for side in rows)

    def table(name: str, compute: Callable[..., pd.DataFrame], responses: list[str]) -> pd.DataFrame:
        score = partial(run.rows, name, compute=model.log_likelihood, unit="likelihoods")
        return before.table(name) if before.has(name) else run.table(name, lambda: compute(score, prompts, responses))

    def likelihoods(score: relevance.Score, prompts: pd.DataFrame, responses: list[str]) -> pd.DataFrame:
        ids, share = prompts[PROMPT_ID], before.config.settings.relevance_share
        if before.has(relevance.LIKELIHOODS):
            drawn = ids.isin(before.table(relevance.LIKELIHOODS)[PROMPT_ID]).to_numpy()
        else:
            drawn = relevance.sample_prompts(ids.tolist(), share, model.load().model.num_parameters())
        return relevance.likelihoods_of_responses(score, prompts, responses, drawn)

    try:
        reason = model.without_weights
        if not measured:
            reason = "the first run does not record which model was measured"
        elif not reason and not is_revision(measured["revision"], of.name, of.revision, of.base):
            reason = f"the revision of {model.name} is no longer the measured one"
        if reason:
            return relevance.undefined_changes(reason, signature)
        old = table(relevance.LIKELIHOODS, likelihoods, old_responses)
        new = table(f"{relevance.LIKELIHOODS}_after", likelihoods, new_responses)
        if before.has(FLUENCY):
            table(
                FLUENCY_AFTER,
                lambda score, prompts, texts: score(
                    without_person(prompts)[[TEXT, PERSONA]].assign(**{RESPONSE: texts})
                ),
                new_responses,
            )
        even = table(relevance.EVEN_LIKELIHOODS, likelihoods, relevance.even_responses(prompts, old_responses))
        within = [
            table(f"{relevance.TEMPLATE_LIKELIHOODS}{side}", relevance.likelihoods_within_template, responses)
            for side, responses in (("", old_responses), ("_after", new_responses))
        ]
    except InputError as error:  # perhaps a disk or a server that is away
        reason = f"{model.name} cannot be loaded: {error}"
        run.failures["relevance"] = reason
        return relevance.undefined_changes(reason, signature)
    return [
        *relevance.likelihood_changes(prompts, old, new, signature),
        *relevance.even_reference(prompts, old, even, signature),
        *relevance.template_relevance(*within, signature),
    ]


def _outcome_changes(
    run: Store, before: FamilyRun, after: FamilyRun, responses: StyledResponses, signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the changes of the outcomes of both runs; fluency is under the first run's model."""
    tables, scores = [side.table(VALUES) for side in (before, after) if side.has(VALUES)], []
    names = [dict.fromkeys(it.partition(": ")[0] for it in table if it != PROMPT_ID) for table in tables]
    for name in [it for it in names[0] if it in names[1]] if len(names) == 2 else ():
        old, new = (stored_values(table, name) for table in tables)
        if name == FLUENCY:
            if not run.has(FLUENCY_AFTER):
                undefined = partial(BiasScore, FLUENCY, math.nan, None, ANY, 0, kind=Kind.DIFFERENCE)
                for form in (Form.MEAN, Form.SPREAD):
                    scores.append(undefined(form=form, reason=NO_FLUENCY, signature=signature))
                continue
            new = fluency(run.read(FLUENCY_AFTER))
        scores += outcome_changes(responses, name, old, new, signature=signature)
    return scores


def _content(entry: Any) -> Any:
    """Return an entry of a signature, without the name if it has a revision.

    The revision is a hash of a model's files. The same files may be in two folders, and then have two names.

    >>> _content({"name": "old/classifier", "revision": "1f"}) == _content({"name": "new/classifier", "revision": "1f"})
    True
    """
    return {**entry, "name": ""} if isinstance(entry, dict) and entry.get("revision") else entry


def _has_older_hash(before: Any, after: Any) -> bool:
    """Return whether an entry before has the revision that earlier versions computed for the one after."""
    if not (isinstance(before, dict) and isinstance(after, dict) and before.get("revision") and after.get("name")):
        return False
    if {**before, "name": "", "revision": ""} != {**after, "name": "", "revision": ""}:
        return False
    try:
        return is_revision(before["revision"], after["name"])
    except InputError:  # the classifier is away
        return False


def check_comparable(
    before: FamilyRun, after: FamilyRun, rows: tuple[StyledResponses, StyledResponses], field: str = "after"
) -> None:
    """Raise InputError if two runs have different prompts, styles, decoding or style classifiers.

    `field` is the setting with the folder of the run after, for the message.
    """
    old, new = rows
    if not has_same_prompts(old, new) or old.styles != new.styles:
        raise InputError(
            field,
            f"{after.folder} has other prompts or styles than {before.folder}; measure it again with the same "
            "dataset, sampling, seed and style classifier.",
        )
    for name in (FIRST, "decoding", ACCEPTED):
        old_value, new_value = (side.signature(FGB).get(name) for side in (before, after))
        if _content(old_value) != _content(new_value) and not _has_older_hash(old_value, new_value):
            raise InputError(
                field,
                f"{name} is {new_value}, but {old_value} in {before.folder}; compare only runs with the same {name}.",
            )


def _overall_differences(
    before: FamilyRun, after: FamilyRun, rows: tuple[StyledResponses, StyledResponses], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the differences and reductions of parts of the run.

    The parts are prompts about people used in tuning (group `tuned`: "yes"), prompts about people never tuned on
    (`tuned`: "no"), and all prompts by the second style classifier (`classifier`: "second").
    """
    scores = []
    if UNTUNED in rows[0].table:
        untuned = rows[0].table[UNTUNED].to_numpy(dtype=bool)
        for tuned, mask in (("yes", ~untuned), ("no", untuned)):
            sides = [side.rows(mask) for side in rows]
            changes = compare_generation_bias(*sides, {}, by_axis=False, signature=signature)
            scores += [replace(score, group={"tuned": tuned}) for score in changes]
    if before.has(SECOND_STYLES) and after.has(SECOND_STYLES):
        found = (find_headline(side.scores, classifier="second") for side in (before, after))
        first, second = (score.signature.get(FIRST) for score in found)
        if _content(first) != _content(second) and not _has_older_hash(first, second):
            raise InputError("after", f"{SECOND} is {second}, but {first} in before; measure it again with the same.")
        sides = (read_styled_responses(side.folder, second=True, only=side.only) for side in (before, after))
        changes = compare_generation_bias(*sides, {}, by_axis=False, signature=signature)
        scores += [replace(score, group={"classifier": "second"}) for score in changes]
    return scores


def highest_descriptors(bias: pd.DataFrame, axes: Sequence[str], n: int = SET_SIZE) -> list[str]:
    """Return the n descriptors in the axes with the highest mean bias value (`before`), highest first."""
    of_axes = bias[bias[AXIS].isin(list(axes)) & np.isfinite(bias["before"])]
    return of_axes.sort_values(["before", DESCRIPTOR], ascending=[False, True])[DESCRIPTOR].head(n).tolist()


def phrase_changes(
    before: Sequence[str],
    after: Sequence[str],
    descriptor: Sequence[str],
    phrases: Mapping[str, Sequence[str]],
    sets: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """Return the share of responses that contain each phrase, by set of descriptors (Smith et al. 2022, Table 14).

    Case, runs of blanks and the form of apostrophes are ignored. As in the paper, a phrase may begin or end inside a
    word: "what is a" is in "what is an egg".

    Args:
        before, after: responses to the same prompts, (n,). A prompt with an empty response before or after is left out.
        descriptor: the descriptor of each prompt, (n,).
        phrases: name of a group of phrases → the phrases.
        sets: name of a set → its descriptors. Descriptors in none of the sets form the set "all others".

    Returns:
        One row for each set and phrase: group, phrase, set, n (prompts), before and after (shares in [0, 1], NaN if n
        is 0), and change with low, high and p (paired: see `share_change`).
    """
    sides = [[_plain(response) for response in responses] for responses in (before, after)]
    nonempty, descriptor = np.array([all(pair) for pair in zip(*sides, strict=True)], dtype=bool), np.array(descriptor)
    rest = sorted(set(descriptor.tolist()) - {name for members in sets.values() for name in members})
    rows = []
    for group, phrase in ((group, phrase) for group, members in phrases.items() for phrase in members):
        contained = [np.array([_plain(phrase) in text for text in texts], dtype=bool) for texts in sides]
        for name, members in {**sets, OTHER_DESCRIPTORS: rest}.items():
            old, new = (side[np.isin(descriptor, list(members)) & nonempty] for side in contained)
            rows.append((group, phrase, name, *_paired_shares(old, new)))
    return pd.DataFrame(rows, columns=["group", "phrase", "set", *PAIRED_SHARES])


def _paired_shares(before: np.ndarray, after: np.ndarray) -> tuple[float, ...]:
    change = share_change("share", before, after)
    shares = (float(side.mean()) if len(side) else np.nan for side in (before, after))
    p = np.nan if change.p_value is None else change.p_value
    return change.n, *shares, change.value, *(change.interval or (np.nan, np.nan)), p


def _plain(text: str) -> str:
    return " ".join(text.casefold().replace("’", "'").split())


def repeated_prompts(before: StyledResponses, after: StyledResponses) -> pd.DataFrame:
    """Return whether the responses to each prompt repeat it: template, descriptor, axis, and bool before and after.

    Prompts with an empty response in one of the runs are left out.
    """
    nonempty = before.is_nonempty() & after.is_nonempty()
    rows, prompts = before.table.loc[nonempty, [TEMPLATE, DESCRIPTOR, AXIS]], before.table[TEXT][nonempty]
    for name, side in (("before", before), ("after", after)):
        rows = rows.assign(**{name: repeat_prompts(side.table[RESPONSE][nonempty].tolist(), prompts.tolist())})
    return rows


def parroting_changes(repeated: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return the shares of responses that repeat the prompt, by template, descriptor or both (Smith et al. 2022, C.2).

    Args:
        repeated: the table of `repeated_prompts`.
        by: columns that the rows are grouped by.

    Returns:
        The columns in `by`, n (prompts), before and after (shares in [0, 1], ideal 0), and change with low, high and p
        (paired: see `share_change`). The largest rise is first.
    """
    rows = [(*keys, *_paired_shares(group["before"], group["after"])) for keys, group in repeated.groupby(list(by))]
    table = pd.DataFrame(rows, columns=[*by, *PAIRED_SHARES])
    return table.sort_values(["change", *by], ascending=[False, *(True for _ in by)], ignore_index=True)
