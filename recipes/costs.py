"""What responses are like whoever is answered, and what tuning did to that: its costs."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from evaluation.errors import InputError
from evaluation.generation import render_contexts
from evaluation.likelihood.perplexity import response_perplexity
from evaluation.metrics.offensiveness import offensiveness_changes
from evaluation.metrics.paired_change import mean_change, share_change, share_interval
from evaluation.metrics.parroting import repeated
from evaluation.metrics.text_quality import distinct_n, mean_length, parroting
from evaluation.models import DialogueModel
from evaluation.progress import progress
from evaluation.results import PROMPT_ID, RESPONSE, TEXT, BiasScore, find_score, read_scores
from recipes.changes import both_answered
from recipes.config import TESTBED, MeasureConfig
from recipes.tables import NEUTRAL, OFFENSIVENESS, SCORES, StyledRun, read_table, write_table
from recipes.testbed import grammar

NEUTRAL_PAIRS = 1000  # of the testbed's held-out small talk
BOOTSTRAP = 2000


def text_scores(measured: StyledRun, signature: dict[str, Any]) -> list[BiasScore]:
    """Return what the responses are like whoever is answered: empty, repeating the prompt, diverse, long."""
    written = [bool(response.strip()) for response in measured.responses]
    rows = measured.rows(np.array(written))
    n, empty = len(written), written.count(False)
    common = {"n": n - empty, "n_left_out": empty, "signature": signature}
    repeats = parroting(rows.responses, rows.prompts[TEXT].tolist())
    return [
        BiasScore("empty_share", empty / n, 0.0, (0.0, 1.0), n, share_interval(empty, n), signature=signature),
        BiasScore(
            "parroting",
            repeats,
            0.0,
            (0.0, 1.0),
            interval=share_interval(round(repeats * (n - empty)), n - empty),
            **common,
        ),
        *(
            BiasScore(
                f"distinct_{size}",
                distinct := distinct_n(rows.responses, size),
                None,
                (0.0, 1.0),
                reason=f"no response has {size} words" if math.isnan(distinct) else None,
                **common,
            )
            for size in (1, 2)
        ),
        BiasScore("mean_length", mean_length(rows.responses), None, (0.0, math.inf), **common),
    ]


def perplexity_score(
    model: DialogueModel, tag: str, config: MeasureConfig, path: Path, signature: dict[str, Any]
) -> BiasScore:
    """Return the perplexity of held-out neutral responses, e^(−Σ log p / Σ tokens), with a bootstrap interval.

    The rows behind it (log-likelihood and tokens of each response) are written to `path`.
    """
    pairs = neutral_pairs(config.neutral_dialogue)
    contexts = render_contexts(model, pairs[TEXT].tolist(), [""] * len(pairs), tag)
    with progress(len(pairs), "perplexity", "dialogues") as advance:
        log_likelihood, tokens = response_perplexity(model, contexts, pairs[RESPONSE].tolist(), on_progress=advance)
    rows = pairs.assign(log_likelihood=log_likelihood, tokens=tokens)
    write_table(path, rows)
    return BiasScore(
        "perplexity",
        float(_perplexity(log_likelihood, tokens)),
        None,
        (1.0, math.inf),
        len(rows),
        _bootstrap(_perplexity, log_likelihood, tokens),
        signature=signature,
    )


def _perplexity(log_likelihood: np.ndarray, tokens: np.ndarray, axis: int = -1) -> Any:
    return np.exp(-log_likelihood.sum(axis=axis) / tokens.sum(axis=axis))


def _bootstrap(statistic: Callable[..., Any], *columns: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of a statistic of rows, over dialogues."""
    interval = stats.bootstrap(
        columns,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=BOOTSTRAP,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return (float(interval.low), float(interval.high))


def neutral_pairs(source: str) -> pd.DataFrame:
    """Return dialogue pairs (text, response) without descriptors: the testbed's, or a JSONL file's.

    Raises:
        InputError: the file cannot be read, lacks a column, or holds an empty text.
    """
    if source == TESTBED:
        return grammar.neutral_dialogue("held_out", NEUTRAL_PAIRS, seed=0)
    try:
        pairs = pd.read_json(source, lines=True, dtype=False)
    except (OSError, ValueError) as error:
        raise InputError(f"neutral_dialogue: {source} cannot be read as JSONL ({error}).") from None
    for column in (TEXT, RESPONSE):
        if column not in pairs or not pairs[column].map(lambda text: isinstance(text, str) and text.strip()).all():
            raise InputError(f"neutral_dialogue: {source} needs a {column!r} that is a text in every line.")
    if len(pairs) < 2:
        raise InputError(f"neutral_dialogue: {source} has {len(pairs)} lines; an interval needs 2, better 500.")
    return pairs[[TEXT, RESPONSE]]


def cost_differences(
    before_folder: Path,
    after_folder: Path,
    before: StyledRun,
    after: StyledRun,
    signature: Mapping[str, Any],
    clusters: Mapping[str, Sequence[int]],
) -> list[BiasScore]:
    """Return after − before of what tuning may cost, each paired by prompt, as far as both runs measured it.

    `perplexity_difference` (bootstrap over dialogues), `parroting_difference`, `offensive_share_difference`, and
    `style_share_difference` for each style cluster.
    """
    answered = both_answered(before, after)
    of_all = {"n_left_out": int((~answered).sum()), "signature": signature}
    prompts = before.rows(answered).prompts[TEXT].tolist()
    repeats = (repeated(run.rows(answered).responses, prompts) for run in (before, after))
    return [
        *perplexity_difference(before_folder, after_folder, signature),
        share_change("parroting_difference", *repeats, **of_all),
        *offensiveness_differences(before_folder, after_folder, signature),
        *style_share_differences(before, after, clusters, signature),
    ]


def perplexity_difference(before_folder: Path, after_folder: Path, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the change of perplexity, if both runs measured it on the same dialogues."""
    if not all((folder / NEUTRAL).exists() for folder in (before_folder, after_folder)):
        return []
    old, new = read_table(before_folder / NEUTRAL), read_table(after_folder / NEUTRAL)
    if not old[[TEXT, RESPONSE]].equals(new[[TEXT, RESPONSE]]):
        return []
    columns = (side[name].to_numpy() for name in ("log_likelihood", "tokens") for side in (old, new))

    def change(ll_old: Any, ll_new: Any, n_old: Any, n_new: Any, axis: int = -1) -> Any:
        return _perplexity(ll_new, n_new, axis) - _perplexity(ll_old, n_old, axis)

    data = tuple(columns)
    bounds, span = (-math.inf, math.inf), _bootstrap(change, *data)
    return [BiasScore("perplexity_difference", float(change(*data)), 0.0, bounds, len(old), span, signature=signature)]


def offensiveness_differences(before_folder: Path, after_folder: Path, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return the change of the offensiveness of responses, if both runs have it (paper 002, Table 11).

    Undefined where they were judged by different classifiers.
    """
    folders = (before_folder, after_folder)
    if not all((folder / OFFENSIVENESS).exists() for folder in folders):
        return []
    judges = [find_score(read_scores(folder / SCORES), "offensive_share").signature for folder in folders]
    judge, other = (judge.get("offensiveness_classifier") for judge in judges)
    if judge != other:
        reason = "the two runs were judged by different offensiveness classifiers"
        undefined = {"ideal": 0.0, "bounds": (-1.0, 1.0), "n": 0, "reason": reason, "signature": signature}
        return [BiasScore("offensive_share_difference", math.nan, **undefined)]
    old, new = (read_table(folder / OFFENSIVENESS).set_index(PROMPT_ID)["offensiveness"] for folder in folders)
    described = {**signature, "offensiveness_classifier": judge}
    return offensiveness_changes(old.to_numpy(), new.reindex(old.index).to_numpy(), described)


def style_share_differences(
    before: StyledRun, after: StyledRun, clusters: Mapping[str, Sequence[int]], signature: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the change of the mean summed probability of each cluster's styles, over all responses; in [−1, 1]."""
    usable = np.isfinite(before.vectors).all(axis=1) & np.isfinite(after.vectors).all(axis=1)
    found = []
    for name, styles in clusters.items():
        old, new = (run.vectors[usable][:, list(styles)].sum(axis=1, dtype=np.float64) for run in (before, after))
        common = {"group": {"cluster": name}, "n_left_out": int((~usable).sum()), "signature": signature}
        found.append(mean_change("style_share_difference", old, new, **common))
    return found
