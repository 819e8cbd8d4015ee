"""Whom a model treats differently before it answers: the divergence of the predictions of its first tokens.

All people send the same message. The divergence of person d at a template is KL(p_d ‖ M), where p_d is the prediction
of the first token of the response, and M is the arithmetic mean of the predictions over people. It is 0 if the
prediction does not depend on the person, and at most ln D for D people. Its mean over people is the mutual information
of person and token (Lin 1991, §IV). Predictions are exact: no noise of sampling, no classifier, and any language.

For more first tokens, openings are drawn from M, equally many from each person, and weighted (`people_divergence`): no
bias, but a noise of sampling, which the intervals over templates contain. Random numbers belong to prompts, so that two
versions of a model draw the same openings where they predict alike.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import Family, FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.screen.divergences import (
    AT_LEAST,
    AT_MOST,
    DIVERGENCE,
    DIVERGENCES,
    MEAN_PROBABILITY,
    OWN_WORDS,
    PROBABILITY,
    SCREENED,
    TOKEN,
    TOKENS,
    divergence_changes,
    divergence_scores,
    is_bounded,
    joined_divergences,
    largest_tokens,
    ranks_of_people,
)
from evenhand.evaluation.metrics.screen.predictions import LISTED_TOKENS, LISTS, merge_tokens, screen_templates
from evenhand.evaluation.metrics.screen.prompts import prompts_left_out, screened_prompts
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import number as number_text
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Cell, Mark, Row, Section, Table
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore, Kind, find_score, levels_of_run
from evenhand.evaluation.settings import WITHOUT_FLAG, Access, StrictSettings
from evenhand.evaluation.tables import table_rows

RANKS = "ranks"
SHOWN_PEOPLE = 60
MAX_FIRST_TOKENS = 8
nats_format = partial(Format, unit="nats", decimals=3)


class Settings(StrictSettings):
    """Screen: how much does the prediction of an answer's first tokens depend on who asks?"""

    first_tokens: Annotated[int, Field(ge=1, le=MAX_FIRST_TOKENS)] = Field(
        1, description="number of first tokens; 1: exact, and the fastest; more: along openings that are drawn"
    )
    listed_tokens: Annotated[int, Field(ge=2, le=100_000)] | None = Field(
        None,
        description="number of likeliest tokens that a server is asked for, which gives bounds; null: 20; other models "
        "give all",
        json_schema_extra=WITHOUT_FLAG,
    )


class Screen(Family):
    """Divergences of the predictions of first tokens between people, in nats, and ranks with intervals."""

    Settings = Settings
    NEEDS = Access.PREDICTIONS
    USES_SYSTEM_PROMPT = True
    FORMATS = (
        nats_format(
            DIVERGENCE,
            "divergence of the first tokens",
            "KL divergence of the prediction of the first tokens from its mean over people.",
            ideal=0,
        ),
        nats_format(
            AT_LEAST,
            "divergence of the first token, at least",
            "KL divergence of the prediction of the tokens that a server lists for everybody, and of the rest.",
            ideal=0,
        ),
        nats_format(
            AT_MOST,
            "divergence of the first token, at most",
            "The largest KL divergence that fits the tokens that a server lists for everybody.",
        ),
        nats_format(
            OWN_WORDS,
            "divergence on the own words",
            "The part of the divergence that lies on tokens of the words by which people differ.",
        ),
    )
    TITLE = "Screen"
    WORDS = ("words.j2",)

    def inputs(self, config: FamilyConfig) -> dict[str, Json]:
        """Return fingerprints of the model and of the prompts."""
        from evenhand.evaluation.metrics.generation_bias.measurement_prompts import prompt_inputs

        model = config.open_model()
        if model.without_predictions:
            raise InputError("screen", model.without_predictions)
        if model.without_weights and config.settings.first_tokens > 1:
            raise InputError("screen.first_tokens", f"more than one token needs weights: {model.without_weights}.")
        return {**model.identity(), **prompt_inputs(config, model)}

    def collect(self, store: Store, config: FamilyConfig) -> dict[str, Any]:
        """Write the divergences of all people at each template, and their first tokens."""
        model = config.open_model()
        prompts = store.table(SCREENED, lambda: screened_prompts(config))
        templates = prompts[[columns.TEMPLATE]].drop_duplicates(ignore_index=True)
        compute = partial(
            screen_templates,
            model,
            prompts,
            first_tokens=config.settings.first_tokens,
            listed_tokens=config.settings.listed_tokens or LISTED_TOKENS,
            seed=config.seed,
        )
        found = store.rows("screen", templates, compute, unit="templates")
        store.ensure(DIVERGENCES, lambda: found.drop(columns=TOKENS).explode(LISTS, ignore_index=True))
        store.ensure(TOKENS, lambda: merge_tokens(found))
        facts = model.facts()
        model.close()
        return facts

    def score(self, store: Store, config: FamilyConfig, collected: Mapping[str, Any]) -> list[BiasScore]:
        """Return the divergence of everybody, of each axis and of each person, and write the ranks of people."""
        from evenhand.evaluation.metrics.generation_bias.measurement_prompts import dataset_signature

        signature = {
            **collected,
            "dataset": dataset_signature(config.prompts),
            "inputs": dict(store.inputs),
            "first_tokens": config.settings.first_tokens,
            "listed_tokens": config.settings.listed_tokens or LISTED_TOKENS,
            "seed": config.seed,
            "packages": package_versions(),
        }
        table = store.read(DIVERGENCES)
        store.write(RANKS, ranks_of_people(table, config.seed))
        return divergence_scores(table, signature)

    def compare(self, store: Store, before: FamilyRun, after: FamilyRun, settings: Any) -> list[BiasScore]:
        """Return the changes of the divergences of everybody and of each person at the same templates.

        Raises:
            InputError: the runs have no template and person in common.
        """
        joined = joined_divergences(before, after)
        change = divergence_changes(joined)
        n_left_out = joined.alone[columns.TEMPLATE].nunique()
        signature = {"before": before.signature(DIVERGENCE), "after": after.signature(DIVERGENCE)}
        scores = divergence_scores(change, signature, Kind.DIFFERENCE, n_left_out)
        if n_left_out:
            for side, rows in {"before": joined.before, "after": joined.after}.items():
                levels = divergence_scores(rows, signature[side], n_left_out=n_left_out)
                scores += levels_of_run(levels, side)
        return scores

    def headline(self, scores: Sequence[BiasScore]) -> BiasScore | None:
        levels = (find_score(scores, DIVERGENCE), find_score(scores, AT_LEAST))
        return next(filter(None, levels), None) or find_score(scores, DIVERGENCE, kind=Kind.DIFFERENCE)

    def find_verdict(self, run: FamilyRun) -> Finding:
        """Return the person with the largest divergence, how many people may be above, and the tokens that differ."""
        ranks = run.table(RANKS)
        first = table_rows(ranks)[0]
        person = first[columns.DESCRIPTOR]
        level = AT_LEAST if is_bounded(ranks) else DIVERGENCE
        values = {
            "person": person,
            DIVERGENCE: find_score(run.scores, level, descriptor=person),
            AT_MOST: find_score(run.scores, AT_MOST, descriptor=person),
            "tokens": largest_tokens(run.table(TOKENS), person),
            "lowest_rank": int(first["lowest_rank"]),
            "highest_rank": int(first["highest_rank"]),
            "n_people": len(ranks),
            "everybody": find_score(run.scores, level),
        }
        return Finding("ranked", values)

    def sections(self, run: FamilyRun) -> list[Section]:
        """Return the table of people: rank, divergence, own words and tokens."""
        ranks = run.table(RANKS)
        tokens = run.table(TOKENS)
        has_bounds = is_bounded(ranks)
        rows = []
        for row in table_rows(ranks.head(SHOWN_PEOPLE)):
            bounds = (row["low"], row["high"]) if math.isfinite(row["low"]) else None
            cells = (
                Cell(_rank_text(row)),
                Cell(_nats_text(row, has_bounds), interval="" if bounds is None else _bounds_text(bounds)),
                Cell(number_text(row[OWN_WORDS], 3)),
                Cell(_token_texts(tokens, row[columns.DESCRIPTOR]), prose=True),
            )
            mark = Mark("before", row[DIVERGENCE], bounds)
            rows.append(Row(sanitize(row[columns.DESCRIPTOR]), cells, (mark,)))
        names = ("person", "rank", "nats", "of it own words", "first token (in brackets: mean over people)")
        about = self.sentence(Finding("about_people", {"has_bounds": has_bounds, "left_out": len(ranks) - len(rows)}))
        table = Table("Whose answers begin most differently", names, tuple(rows), note=about)
        left_out = [self.sentence(found) for found in prompts_left_out(run.table(SCREENED))]
        return [Section("People", left_out, tables=[table], first_screen=True)]


def _rank_text(row: Mapping[str, Any]) -> str:
    low = int(row["lowest_rank"])
    high = int(row["highest_rank"])
    return str(low) if low == high else f"{low} to {high}"


def _nats_text(row: Mapping[str, Any], has_bounds: bool) -> str:
    text = number_text(row[DIVERGENCE], 3)
    return f"{text} to {number_text(row[AT_MOST], 3)}" if has_bounds else text


def _bounds_text(bounds: tuple[float, float]) -> str:
    return f"[{number_text(bounds[0], 3)}, {number_text(bounds[1], 3)}]"


def _token_texts(tokens: pd.DataFrame, person: str) -> str:
    texts = []
    for row in largest_tokens(tokens, person):
        token = sanitize(row[TOKEN].strip() or repr(row[TOKEN]))
        texts.append(f"“{token}” {number_text(row[PROBABILITY], 2)} ({number_text(row[MEAN_PROBABILITY], 2)})")
    return ", ".join(texts)
