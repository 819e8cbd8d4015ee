"""Quality of the responses, and its changes: variety, repetition, perplexity, capability, offensiveness, styles."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.languages import language_folder
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.data.readers.response_files import is_repeated
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import json_sha256, sha256_of
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.engine.costs import (
    COST_FORMATS,
    COSTS,
    EVEN,
    UNDER_MODEL,
    cell_codes,
    change_formats,
    level_formats,
    likelihood_finding,
    under_base,
)
from evenhand.evaluation.metrics.generation_bias.engine.quality import (
    CAPABILITIES,
    CAPABILITY,
    NEUTRAL,
    PERPLEXITY,
    capability_differences,
    capability_scores,
    perplexity_difference,
    perplexity_score,
    text_changes,
    text_scores,
    unfinished_share,
)
from evenhand.evaluation.metrics.generation_bias.engine.style_means import (
    STYLE_SHARE,
    style_drift,
    style_share,
    style_share_changes,
)
from evenhand.evaluation.metrics.generation_bias.measures import Needs
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
    capability_rows,
    load_tasks,
    read_tasks,
)
from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.report.formats import Format, format_of
from evenhand.evaluation.report.page import Section, Table
from evenhand.evaluation.report.score_sections import change_table, score_changes, scores_table
from evenhand.evaluation.score import BiasScore, Kind, find_score
from evenhand.evaluation.settings import BY_CONTENT, StrictSettings
from evenhand.evaluation.statistics.scores import share_score
from evenhand.evaluation.tables import join_batches

SMALL_TALK = "small_talk"  # neutral dialogue that ships with Evenhand
SMALL_TALK_FILE = Path(__file__).resolve().parents[3] / "data" / "files" / "small_talk.jsonl"
REPEATED = "repeated_rows"  # the share of a file's rows that repeat another row


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


share_format = partial(Format, unit="%", factor=100)
cost_format = partial(share_format, ideal=0)
kept_format = partial(share_format, decimals=1, ideal=1, kind=Kind.KEPT)
OTHERS = [measure for measure in COSTS if measure.needs != Needs.WEIGHTS]
QUALITY = (  # of the responses of a run, in the order of the report's table
    *level_formats(UNDER_MODEL),
    share_format("distinct_responses", "distinct responses", "Share of different responses among all.", decimals=1),
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
    cost_format(REPEATED, "repeats another row", "Share of rows with the same prompt and response as an earlier row."),
    cost_format("unfinished_share", "reasoning not finished", "Share of responses that end within the reasoning."),
    cost_format(
        "no_label_share",
        "no label fits",
        "Share of responses that no label fits; their style vectors are nearly even, and say little.",
    ),
    cost_format(
        "cut_share", "longer than the classifier reads", "Share of responses whose ends the classifier does not read."
    ),
)
CHANGES = (  # of two runs, without a value of either run alone, in the order of the report's table
    *change_formats(UNDER_MODEL),
    cost_format(
        "style_drift", "style drift", "Half the summed changes of the mean style vector, without noise.", decimals=1
    ),
    *change_formats(OTHERS),
    kept_format("distinct_responses", "distinct responses kept", "Value after / value before."),
    kept_format("distinct_2", "different word pairs kept", "Value after / value before."),
)


def _neutral_likelihoods(model: Model, path: str) -> pd.DataFrame:
    """Return the pairs of a file of neutral dialogue with the likelihood of each response by the model."""
    pairs = load_neutral_dialogue(path)
    scores = join_batches(model.log_likelihood(pairs.assign(**{columns.PERSONA: ""})))
    if scores[columns.LOG_LIKELIHOOD].isna().any():
        raise InputError("neutral_dialogue", f"a pair is too long for {model.name}; leave it out.")
    return pairs.join(scores)


class QualityPart(Part):
    """How good the responses are, whoever asks: text, styles, perplexity on neutral dialogue, tasks, offensiveness."""

    FORMATS = (
        *(metric for metric in (*QUALITY, *CHANGES) if metric not in COST_FORMATS),
        share_format(STYLE_SHARE, "share of the style", "Mean summed probability of a style cluster over responses."),
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
        if path is not None:
            run.store.ensure(NEUTRAL, lambda: _neutral_likelihoods(model, path))
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
