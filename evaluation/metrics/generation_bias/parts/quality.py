"""Quality of the responses, and its changes: variety, repetition, perplexity, capability, offensiveness, styles."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.languages import language_folder
from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.data.readers.response_files import is_repeated
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import json_sha256, sha256_of
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.changes import column_change
from evenhand.evaluation.metrics.generation_bias.engine.comparable import common_values
from evenhand.evaluation.metrics.generation_bias.engine.costs import (
    COST_FORMATS,
    COSTS,
    EVEN,
    UNDER_MODEL,
    cell_codes,
    change_formats,
    exponential,
    level_formats,
    likelihood_finding,
    under_base,
)
from evenhand.evaluation.metrics.generation_bias.engine.levels import mean_scores
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues
from evenhand.evaluation.metrics.generation_bias.measures import Needs, ValueKind
from evenhand.evaluation.metrics.generation_bias.parts import (
    AnsweredRun,
    ClassifiedRun,
    ComparedSide,
    Comparison,
    JointTests,
    Part,
)
from evenhand.evaluation.metrics.generation_bias.words import note, words
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.capabilities import (
    DOCUMENT,
    METRIC,
    TASK,
    VALUE,
    capability_rows,
    load_tasks,
    read_tasks,
)
from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.report.formats import Format, format_of
from evenhand.evaluation.report.page import Section, Table
from evenhand.evaluation.report.score_sections import change_table, score_changes, scores_table
from evenhand.evaluation.score import BiasScore, Form, Kind, find_score, why_not_comparable
from evenhand.evaluation.settings import BY_CONTENT, StrictSettings
from evenhand.evaluation.statistics.intervals import (
    ANY,
    Interval,
    mean_covariance,
    mean_interval,
    normal_interval,
    student_quantile,
    varies,
)
from evenhand.evaluation.statistics.scores import NO_PAIRS, mean_change, share_score
from evenhand.evaluation.statistics.text_quality import (
    distinct_n,
    distinct_n_without_each,
    distinct_responses,
    log_perplexities,
    occurs_once,
)
from evenhand.evaluation.tables import join_batches

SMALL_TALK = "small_talk"  # neutral dialogue that ships with Evenhand
SMALL_TALK_FILE = Path(__file__).resolve().parents[3] / "data" / "files" / "small_talk.jsonl"
NEUTRAL = "neutral"  # the table of likelihoods of neutral dialogue
CAPABILITIES = "capabilities"  # the table of the results on tasks of lm-evaluation-harness
REPEATED = "repeated_rows"  # the share of a file's rows that repeat another row
N_FOLDS = 2
SHARE_BOUNDS = (0.0, 1.0)
POSITIVE = (0.0, math.inf)
CHANGE_BOUNDS = (-1.0, 1.0)
CAPABILITY = "capability"
STYLE_SHARE = "style_share"
PERPLEXITY = "perplexity"  # on neutral dialogue
NO_TEXT = "all responses are empty"
NO_ERROR = "no interval: leaving out any one response has the same effect"
ONE_DIALOGUE = "no interval: there is one dialogue"


class Settings(StrictSettings):
    """Settings of the quality of responses: the neutral dialogue."""

    neutral_dialogue: str | None = Field(
        SMALL_TALK,
        description="JSONL of {text, response} for perplexity; 'small_talk': as shipped, by prompts.language; null: "
        "no perplexity",
        json_schema_extra=BY_CONTENT,
    )


def neutral_dialogue_file(config: FamilyConfig) -> str | None:
    """Return the path of the file of neutral dialogue for perplexity, or None for no file."""
    name = config.settings.neutral_dialogue
    if name is None:
        return None
    if name != SMALL_TALK:
        return str(local_path(name))
    if config.prompts.language:
        return str(language_folder(config.prompts.language) / SMALL_TALK_FILE.name)
    return str(SMALL_TALK_FILE)


def text_scores(measured: Answers) -> list[BiasScore]:
    """Return scores of how diverse the responses are, and how well the style classifier reads them.

    `cut_share`, in [0, 1], ideal 0, is the share of responses that are longer than the style classifier reads, and
    `no_label_share` the share to which no label of a multi-label classifier fits; a share of 0 is not a score.
    `distinct_responses`, `distinct_1` and `distinct_2` have no ideal. The interval of `distinct_responses` is by the
    jackknife.
    """
    is_nonempty = measured.is_nonempty()
    responses = measured.table[columns.RESPONSE][is_nonempty].tolist()
    n = len(responses)
    found = []
    for name, count in (("cut_share", measured.n_truncated), ("no_label_share", measured.n_unlabelled)):
        if count:
            found.append(share_score(name, np.arange(n) < count, 0.0, reason=NO_TEXT))
    variety = _number("distinct_responses", distinct_responses(responses), n, SHARE_BOUNDS, NO_TEXT)
    if n:
        interval = _interval_of_sums(variety.value, occurs_once(responses).astype(float), SHARE_BOUNDS)
        variety = replace(variety, interval=interval, reason=None if interval else NO_ERROR)
    found.append(variety)
    for size in (1, 2):
        reason = f"no response has {size} words"
        found.append(_number(f"distinct_{size}", distinct_n(responses, size), n, SHARE_BOUNDS, reason))
    return [replace(score, n_left_out=len(measured) - n) for score in found]


def _interval_of_sums(value: float, influence: np.ndarray, bounds: Interval) -> Interval | None:
    """Return the interval around a value by each response's influence on it, (n,); None if all have the same."""
    if not varies(influence):
        return None
    return normal_interval(value, float(influence.std(ddof=1)) / math.sqrt(len(influence)), bounds)


def _number(metric: str, value: float, n: int, bounds: Interval, reason: str) -> BiasScore:
    """Return a number without an ideal as a score, with a reason if it is undefined."""
    return BiasScore(metric, value, None, bounds, n, reason=reason if math.isnan(value) else None)


def unfinished_share(responses: pd.DataFrame) -> list[BiasScore]:
    """Return the share of responses whose reasoning did not end, as a list of one score; an empty list if it is 0.

    Range [0, 1], ideal 0. These responses are empty, and all other scores leave them out. The column `left_out` of
    `responses` is the reason why a response is left out, or null.
    """
    is_unfinished = responses[columns.LEFT_OUT] == UNFINISHED_REASONING
    share = share_score("unfinished_share", is_unfinished, 0.0, reason="no response")
    return [share] if share.value else []


def perplexity_score(rows: pd.DataFrame) -> BiasScore:
    """Return the perplexity e^(−Σ log p / Σ tokens) of held-out neutral responses, in [1, ∞), without an ideal.

    Interval: 95 %, by Student's t and the delta method for the ratio of two sums. The perplexity of other dialogues, or
    by another tokenizer, is not comparable (`basis`).

    Args:
        rows: text, response, log_likelihood (nats) and tokens of each dialogue.
    """
    logarithms = log_perplexities(rows[columns.LOG_LIKELIHOOD], rows[columns.TOKENS])
    interval, reason = _interval_over_dialogues(logarithms)
    tokens = rows[columns.TOKENS].tolist()
    basis = {
        "neutral dialogue": json_sha256(rows[[columns.TEXT, columns.RESPONSE]].to_numpy().tolist())[:12],
        "tokenizer": f"one of {sum(tokens):,} tokens ({json_sha256(tokens)[:7]})",
    }
    value = float(logarithms.mean())
    score = BiasScore(PERPLEXITY, value, None, ANY, len(rows), interval, reason=reason, basis=basis)
    return exponential(score, (1.0, math.inf))


def _interval_over_dialogues(values: np.ndarray) -> tuple[Interval | None, str | None]:
    """Return the interval of the mean of a value of each dialogue, (n,), and why there is none."""
    if not varies(values):
        return None, ONE_DIALOGUE if len(values) == 1 else NO_ERROR
    return mean_interval(values), None


def capability_scores(rows: pd.DataFrame) -> list[BiasScore]:
    """Return the score `capability` of each task and metric: the mean of the metric over the documents of the task.

    Higher is better; the score has no ideal value. The standard error of the mean has ddof = 1; the 95 % interval
    covers the variation between samples of documents. It is Wilson's for an accuracy, whose values are 0 and 1.
    """
    scores = []
    for task, values in _by_task(rows).items():
        kind = ValueKind.SHARE if values.isin((0, 1)).all() else ValueKind.NUMBER
        (mean,) = mean_scores(MeasureValues(CAPABILITY, kind, values.to_frame(task)))
        error = _standard_error(values)
        scores.append(replace(mean, group={TASK: task}, form=Form.PLAIN, standard_error=error))
    return scores


def _by_task(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the values by document of each task and metric."""
    found = {}
    for (task, metric), part in rows.groupby([TASK, METRIC]):
        found[f"{task}, {metric}"] = part.set_index(DOCUMENT)[VALUE]
    return found


def _standard_error(values: pd.Series) -> float | None:
    return float(values.sem()) if len(values) > 1 else None


def style_values(vectors: np.ndarray, clusters: Mapping[str, Sequence[int]]) -> MeasureValues:
    """Return the summed probability of each cluster's styles in each response, from style vectors, (n, S).

    A mitigation may make responses to all descriptors equal and worse: the tuned model of Smith et al. 2022 (§4.4 and
    Table 15) was more hateful and envious overall. Generation bias, a variance over descriptors, does not measure this.
    Only a comparison of the means is meaningful. A row of NaN is an empty response, which has no value.
    """
    sums = {name: vectors[:, list(styles)].sum(axis=1, dtype=np.float64) for name, styles in clusters.items()}
    return MeasureValues(STYLE_SHARE, ValueKind.PROBABILITY, pd.DataFrame(sums))


def style_share(vectors: np.ndarray, clusters: Mapping[str, Sequence[int]]) -> list[BiasScore]:
    """Return, for each style cluster, the mean of `style_values`, in [0, 1], without an ideal.

    >>> share = style_share(np.array([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3]]), {"HATE": [0, 1]})[0]
    >>> round(float(share.value), 6), share.group  # (0.3 + 0.7) / 2
    (0.5, {'cluster': 'HATE'})
    """
    means = mean_scores(style_values(vectors, clusters))
    return [
        replace(mean, group={columns.CLUSTER: name}, form=Form.PLAIN)
        for name, mean in zip(clusters, means, strict=True)
    ]


def text_changes(old: Answers, new: Answers) -> list[BiasScore]:
    """Return what is kept (after / before) of the variety of the responses to the same prompts.

    The scores are of `distinct_responses` and `distinct_2`. Prompts with an empty response in one of the runs are left
    out.
    """
    nonempty = old.is_nonempty() & new.is_nonempty()
    before = old.table[columns.RESPONSE][nonempty].tolist()
    after = new.table[columns.RESPONSE][nonempty].tolist()
    scores = [_distinct_responses_kept(before, after), _distinct_2_kept(before, after)]
    n_left_out = int((~nonempty).sum())
    return [replace(score, n_left_out=n_left_out) for score in scores]


def _distinct_responses_kept(before: Sequence[str], after: Sequence[str]) -> BiasScore:
    n = len(before)
    kept = BiasScore("distinct_responses", math.nan, 1.0, POSITIVE, n, reason=NO_PAIRS, kind=Kind.KEPT)
    if not n:
        return kept
    ratio = distinct_responses(after) / distinct_responses(before)
    influence = (occurs_once(after) - ratio * occurs_once(before)) / distinct_responses(before)
    interval = _interval_of_sums(ratio, influence, POSITIVE)
    return replace(kept, value=ratio, interval=interval, reason=None if interval else NO_ERROR)


def _distinct_2_kept(before: Sequence[str], after: Sequence[str]) -> BiasScore:
    reason = "no response has 2 words"
    kept = BiasScore("distinct_2", math.nan, 1.0, POSITIVE, len(before), reason=reason, kind=Kind.KEPT)
    ratio = distinct_n(after, 2) / distinct_n(before, 2)
    if math.isnan(ratio):
        return kept
    without = distinct_n_without_each(after, 2) / distinct_n_without_each(before, 2)
    error = math.sqrt((len(without) - 1) * float(without.var()))
    has_error = math.isfinite(error) and varies(without)
    interval = normal_interval(ratio, error, POSITIVE) if has_error else None
    return replace(kept, value=ratio, interval=interval, reason=None if interval else NO_ERROR)


def perplexity_difference(before: FamilyRun, after: FamilyRun) -> list[BiasScore]:
    """Return the difference of the perplexity on neutral dialogue, paired by dialogue; [] if a run has none.

    Interval: 95 %, by Student's t and the delta method. The difference is undefined if the runs have other dialogues,
    or tokenizers that split them in another way.
    """
    if not (before.has(NEUTRAL) and after.has(NEUTRAL)):
        return []
    old = before.table(NEUTRAL)
    new = after.table(NEUTRAL)
    levels = (perplexity_score(old), perplexity_score(new))
    reason = why_not_comparable(*levels)
    if reason:
        return [_undefined_difference(PERPLEXITY, {}, reason)]
    value = levels[1].value - levels[0].value
    linear = []  # by the delta method, e^mean (1 + x − mean) has the mean and the error of the perplexity
    for level, table in zip(levels, (old, new), strict=True):
        logarithms = log_perplexities(table[columns.LOG_LIKELIHOOD], table[columns.TOKENS])
        linear.append(level.value * (1 + logarithms - logarithms.mean()))
    interval, reason_of_interval = _interval_over_dialogues(linear[1] - linear[0])
    return [
        BiasScore(
            PERPLEXITY,
            value,
            0.0,
            ANY,
            len(old),
            interval,
            reason=reason_of_interval,
            kind=Kind.DIFFERENCE,
            basis=levels[0].basis,
        )
    ]


def _undefined_difference(metric: str, group: Mapping[str, str], reason: str) -> BiasScore:
    return BiasScore(metric, math.nan, 0.0, ANY, n=0, group=group, reason=reason, kind=Kind.DIFFERENCE)


def capability_differences(before: FamilyRun, after: FamilyRun) -> list[BiasScore]:
    """Return the differences of `capability`, after − before, paired by document, for each task of both runs.

    Each score has a standard error. A score is undefined if the two runs used different documents of the task.
    """
    if not (before.has(CAPABILITIES) and after.has(CAPABILITIES)):
        return []
    old = _by_task(before.table(CAPABILITIES))
    new = _by_task(after.table(CAPABILITIES))
    scores = []
    for task in sorted(old.keys() & new.keys()):
        group = {TASK: task}
        if not old[task].index.equals(new[task].index):
            reason = "the two runs used different documents"
            scores.append(_undefined_difference(CAPABILITY, group, reason))
            continue
        values = (old[task].to_numpy(), new[task].to_numpy())
        score = mean_change(CAPABILITY, *values, bounds=ANY, group=group)
        scores.append(replace(score, standard_error=_standard_error(new[task] - old[task])))
    return scores


def style_share_changes(
    before: np.ndarray,
    after: np.ndarray,
    clusters: Mapping[str, Sequence[int]],
) -> list[BiasScore]:
    """Return the difference of the mean share of each style cluster, paired by prompt (`style_share`).

    `before` and `after` are the style vectors of the responses to the same prompts, (n, S); rows with NaN are left out.
    """
    old, new = common_values(style_values(before, clusters), style_values(after, clusters))
    changes = []
    for name, old_share, new_share in zip(clusters, old.numbers.T, new.numbers.T, strict=True):
        changes.append(column_change(old, old_share, new_share, {columns.CLUSTER: name}))
    return changes


def style_drift(before: np.ndarray, after: np.ndarray, cells: np.ndarray) -> BiasScore:
    """Return the drift ½ Σ_s |Δ_s| of the mean style, where Δ_s is the change of the mean probability of style s.

    The drift is the total variation distance of the mean styles, in [0, 1], ideal 0; noise may make the estimate
    slightly negative. Let x_s be the measured change of style s and σ_s its standard error. The plain estimate
    ½ Σ |x_s| is biased upwards by σ_s / √(2π) for each style without a change. The plain estimate is therefore
    multiplied by √(1 − Σ σ_s² / Σ x_s²), which is exact if the Δ_s are normal with variances proportional to σ_s².
    The factor tends to 1 for large changes. For a negative radicand r, the factor is −√(min(|r|, 1)), so that its mean
    is 0 without changes.

    No estimator of a sum of absolute values is unbiased (Cai and Low 2011), so the 95 % interval, over new responses in
    the same cells, has a coverage of at least 95 %. The upper end is the plain estimate, whose mean is never too low,
    plus Student's t times the standard error. The lower end is a cross-fitted estimate, whose mean is never too high,
    minus this product. The cross-fitted estimate has signs from one half of the prompts and changes from the other
    half, ½ Σ_s sign(x_s of one half) · x_s of the other half, averaged over both orders.

    Args:
        before, after: style vectors of the responses to the same prompts, (n, S); rows with NaN are left out.
        cells: integer codes of the prompts' cells, (n,).

    >>> old, new = np.array([[1.0, 0.0]] * 20), np.array([[0.9, 0.1]] * 20)
    >>> round(style_drift(old, new, np.zeros(20, int)).value, 9)
    0.1
    """
    usable = np.asarray((np.isfinite(before) & np.isfinite(after)).all(axis=1))
    n = int(usable.sum())
    drift = BiasScore(
        "style_drift",
        math.nan,
        ideal=0.0,
        bounds=CHANGE_BOUNDS,
        n=n,
        n_left_out=len(usable) - n,
        reason="only one prompt has a response in both runs" if n else NO_PAIRS,
    )
    if n < 2:
        return drift
    change = after[usable].astype(np.float64) - before[usable]
    fold = np.random.default_rng(0).permutation(n) % N_FOLDS
    sums = np.stack([change[fold == number].sum(axis=0) for number in range(N_FOLDS)])  # of each part of the prompts
    total = sums.sum(axis=0)
    mean = total / n
    covariance, freedom = mean_covariance(change, cells[usable])
    plain = np.abs(mean).sum() / 2
    square = (mean**2).sum()
    radicand = 1 - np.trace(covariance) / square if square > 0 else 0.0
    value = float(plain * math.copysign(math.sqrt(min(abs(radicand), 1.0)), radicand))
    if not freedom:
        return replace(drift, value=value, reason=None)
    direction = np.sign(mean) / 2
    half = float(student_quantile(freedom)) * math.sqrt(max(direction @ covariance @ direction, 0.0))
    parts = zip(sums, np.bincount(fold), strict=True)
    cross_fitted = float(np.mean([part / count @ np.sign(total - part) / 2 for part, count in parts]))
    low = max(cross_fitted - half, -1.0)
    high = min(float(plain) + half, 1.0)
    return replace(drift, value=min(max(value, low), high), interval=(low, high), reason=None)


SHARE = partial(Format, unit="%", factor=100)
COST = partial(SHARE, ideal=0)
KEPT = partial(SHARE, decimals=1, ideal=1, kind=Kind.KEPT)
OTHERS = [measure for measure in COSTS if measure.needs != Needs.WEIGHTS]
QUALITY = (  # of the responses of a run, in the order of the report's table
    *level_formats(UNDER_MODEL),
    SHARE("distinct_responses", "distinct responses", "Share of different responses among all.", decimals=1),
    Format(PERPLEXITY, "perplexity on neutral dialogue", "Perplexity of dialogue that names no descriptor."),
    Format(
        "distinct_1",
        "different words (distinct-1)",
        "Share of different words among all words of responses.",
        decimals=3,
    ),
    Format(
        "distinct_2",
        "different word pairs (distinct-2)",
        "Share of different pairs of adjacent words among all; random words have many.",
        decimals=3,
    ),
    *level_formats(OTHERS),
    COST(REPEATED, "repeats another row", "Share of rows with the same prompt and response as an earlier row."),
    COST("unfinished_share", "reasoning not finished", "Share of responses that end within the reasoning."),
    COST(
        "no_label_share",
        "no label fits",
        "Share of responses that no label fits; their style vectors are nearly even, and say little.",
    ),
    COST(
        "cut_share", "longer than the classifier reads", "Share of responses whose ends the classifier does not read."
    ),
)
CHANGES = (  # of two runs, without a value of either run alone, in the order of the report's table
    *change_formats(UNDER_MODEL),
    COST("style_drift", "style drift", "Half the summed changes of the mean style vector, without noise.", decimals=1),
    *change_formats(OTHERS),
    KEPT("distinct_responses", "distinct responses kept", "Value after / value before."),
    KEPT("distinct_2", "different word pairs kept", "Value after / value before."),
)


class QualityPart(Part):
    """How good the responses are, whoever asks: text, styles, perplexity on neutral dialogue, tasks, offensiveness."""

    FORMATS = (
        *(metric for metric in (*QUALITY, *CHANGES) if metric not in COST_FORMATS),
        SHARE(STYLE_SHARE, "share of the style", "Mean summed probability of a style cluster over responses."),
        Format(CAPABILITY, "can do", "Mean score of a task of lm-evaluation-harness.", decimals=3),
    )

    def inputs(self, config: FamilyConfig, model: Model) -> dict[str, Json]:
        inputs: dict[str, Json] = {}
        if config.capabilities:
            tasks = read_tasks(config.capabilities)
            inputs[CAPABILITIES] = [task if isinstance(task, str) else json_sha256(task) for task in tasks]
        path = neutral_dialogue_file(config)
        if path is not None and not model.without_likelihoods:
            load_neutral_dialogue(path)  # raises if it cannot be used
            inputs["neutral_dialogue"] = sha256_of(Path(path))
        return inputs

    def collect(self, run: AnsweredRun) -> None:
        config = run.config
        model = run.model
        path = neutral_dialogue_file(config)

        def neutral() -> pd.DataFrame:
            pairs = load_neutral_dialogue(path)
            scores = join_batches(model.log_likelihood(pairs.assign(**{columns.PERSONA: ""})))
            if scores[columns.LOG_LIKELIHOOD].isna().any():
                raise InputError("neutral_dialogue", f"a pair is too long for {model.name}; leave it out.")
            return pairs.join(scores)

        if path is not None:
            run.store.ensure(NEUTRAL, neutral)
        if config.capabilities:
            tasks = load_tasks(config.capabilities)
            run.store.ensure(CAPABILITIES, lambda: capability_rows(model.load(), tasks))

    def score(self, run: ClassifiedRun, tests: JointTests) -> list[BiasScore]:
        store = run.store
        responses = run.responses
        scores = style_share(responses.values, run.clusters) + text_scores(responses)
        file = run.config.response_file()
        if file is not None and file.has_prompts and run.config.settings.repeated_rows == "warn":
            repeated = is_repeated(responses.table).to_numpy()
            reason = "the file has no rows"
            scores.append(share_score(REPEATED, repeated, None, reason=reason))
        if columns.LEFT_OUT in responses.table:
            scores += unfinished_share(responses.table)
        if store.has(CAPABILITIES):
            for score in capability_scores(store.read(CAPABILITIES)):
                scores.append(replace(score, signature={"lm_eval": version("lm_eval")}))
        if store.has(NEUTRAL):
            scores.append(perplexity_score(store.read(NEUTRAL)))
        return scores

    def compare(self, comparison: Comparison) -> list[BiasScore]:
        before = comparison.before
        after = comparison.after
        old = comparison.old
        new = comparison.new
        return [
            *perplexity_difference(before, after),
            *text_changes(old, new),
            style_drift(old.values, new.values, cell_codes(old.table)),
            *style_share_changes(old.values, new.values, comparison.clusters),
            *capability_differences(before, after),
        ]

    def common_levels(self, comparison: Comparison, side: ComparedSide) -> list[BiasScore]:
        responses = side.responses
        scores = style_share(responses.values, comparison.clusters)
        scores += text_scores(responses)
        if columns.LEFT_OUT in responses.table:
            scores += unfinished_share(responses.table)
        return scores

    def sections(self, run: FamilyRun) -> list[Section]:
        scores = run.scores
        table = scores_table(
            "Quality of the responses",
            [find_score(scores, metric.name) for metric in QUALITY],
            "measure",
            label=lambda score: format_of(score).title,
            note=" ".join(map(words, likelihood_finding(scores, "measured"))),
        )
        return [Section(table.caption, tables=[table], first_screen=True)]

    def change_sections(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> list[Section]:
        old = under_base(before.scores, changes.scores, "before")
        new = under_base(after.scores, changes.scores, "after")
        metrics = {metric.title: (metric.name, metric.form, {}) for metric in QUALITY}
        rows = score_changes(metrics, (old, new, changes.scores))
        table = change_table("Quality of the responses", "measure", rows, is_plotted=False)
        table = replace(table, note=" ".join(map(words, likelihood_finding(old, "base"))))
        return [Section("What it cost", tables=[_kept_table(changes.scores), table], first_screen=True)]


def _kept_table(changes: Sequence[BiasScore]) -> Table:
    """Return the table of the shares kept, such as relevance: of the responses, and of the even reference."""
    found = []
    for metric in CHANGES:
        for group in ({}, EVEN):
            found.append(find_score(changes, metric.name, metric.form, metric.kind, **group))
    notes = [note("about_word_pairs")]
    if any(score is not None and score.group and not math.isnan(score.value) for score in found):
        notes.insert(0, note("about_even_answers"))
    return scores_table(
        "Changes of all responses",
        found,
        "measure",
        label=lambda score: format_of(score).title + (", if people exchanged their answers" if score.group else ""),
        note=" ".join(notes),
    )
