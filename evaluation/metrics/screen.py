"""Whom a model treats differently before it answers: the divergence of the predictions of its first tokens.

All people send the same message. The divergence of person d at a template is KL(p_d ‖ M), where p_d is the prediction
of the first token of the response, and M is the arithmetic mean of the predictions over people. It is 0 if the
prediction does not depend on the person, and at most ln D for D people. Its mean over people is the mutual information
of person and token (Lin 1991, §IV). Predictions are exact: no noise of sampling, no classifier, and any language.

For more first tokens, openings are drawn from M, equally many from each person, and weighted (`people_divergence`): no
bias, but a noise of sampling, which the intervals over templates contain. Random numbers belong to prompts, so that two
versions of a model draw the same openings where they predict alike.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import Family, FamilyConfig, FamilyRun, check_scored_alike
from evenhand.evaluation.model_settings import Access
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import number as number_text
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Cell, Mark, Row, Section, Table
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore, Kind, Signature, find_score, levels_of_run
from evenhand.evaluation.settings import WITHOUT_FLAG, StrictSettings
from evenhand.evaluation.tables import table_rows

if TYPE_CHECKING:
    from evenhand.evaluation.joins import JoinedRows
    from evenhand.evaluation.models.base import Model

log = logging.getLogger("evenhand")

DIVERGENCE = "divergence"  # in tables, if only some tokens are known, the lower bound
AT_LEAST = "divergence_at_least"
AT_MOST = "divergence_at_most"
OWN_WORDS = "own_words"
RANKS = "ranks"
SCREENED = "screened_prompts"  # the table of prompts
N_TEMPLATES = "n_templates"  # of all prompts, of which those about the same people are screened
N_TEXTS = "n_texts"  # of the user's prompts of a person at a template, of which the first is screened
DIVERGENCES = "divergences"  # the table: a row for each template and person
TOKENS = "first_tokens"  # the table: a row for each person and token
TOKEN = "token"
PROBABILITY = "probability"
MEAN_PROBABILITY = "mean_probability"
CONTRIBUTION = "contribution"
MIN_TEMPLATES = 2
TOP_TOKENS = 20  # tokens that are kept of each prediction
SHOWN_TOKENS = 3
SHOWN_PEOPLE = 60
MAX_FIRST_TOKENS = 8
LISTED_TOKENS = 20  # the most that OpenAI's API and, by default, vLLM list
MIN_OPENINGS = 16  # at each template; with more people, one of each, up to the next number
MAX_DRAWN_PEOPLE = 32  # from whose predictions openings are drawn at a template, by chance
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
    WORDS = ("screen.j2",)

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
            _screen_templates,
            model,
            prompts,
            first_tokens=config.settings.first_tokens,
            listed_tokens=config.settings.listed_tokens or LISTED_TOKENS,
            seed=config.seed,
        )
        found = store.rows("screen", templates, compute, unit="templates")
        store.ensure(DIVERGENCES, lambda: found.drop(columns=TOKENS).explode(_LISTS, ignore_index=True))
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


def prompts_left_out(prompts: pd.DataFrame) -> list[Finding]:
    """Return how many texts and how many templates of a screen's prompts were not screened; [] if all were."""
    found = []
    n_texts = int(prompts[N_TEXTS].sum()) if N_TEXTS in prompts else len(prompts)
    if n_texts > len(prompts):
        found.append(Finding("texts_left_out", {"n": n_texts, "n_screened": len(prompts)}))
    n_screened = int(prompts[columns.TEMPLATE].nunique())
    n_templates = int(prompts[N_TEMPLATES].iloc[0]) if N_TEMPLATES in prompts else n_screened
    if n_templates > n_screened:
        found.append(Finding("templates_left_out", {"n": n_templates, "n_screened": n_screened}))
    return found


def screened_prompts(config: FamilyConfig) -> pd.DataFrame:
    """Return one prompt for each template and person; all people have the same noun, and no persona.

    Raises:
        InputError: fewer than two templates have two people.
    """
    from evenhand.evaluation.data.holistic_bias import NONE
    from evenhand.evaluation.data.prompts import sample_descriptors
    from evenhand.evaluation.metrics.generation_bias.measurement_prompts import candidate_prompts

    prompts = candidate_prompts(config)
    if not config.prompts.is_own:
        prompts = sample_descriptors(prompts, config.prompts.descriptors)
    prompts = prompts[prompts[columns.DESCRIPTOR] != NONE]
    prompts = prompts.assign(**{columns.PERSONA: prompts.get(columns.PERSONA, "")})
    if columns.NOUN in prompts:
        prompts = prompts[prompts[columns.NOUN] == _common_nouns(prompts, config.seed)]
    prompts = _first_texts(prompts, warns=config.prompts.is_own)
    prompts = prompts.sort_values([columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR])
    prompts = _of_same_people(prompts).reset_index(drop=True)
    if columns.PROMPT_ID not in prompts:
        prompts.insert(0, columns.PROMPT_ID, prompts.index.astype(str))
    names = [columns.PROMPT_ID, columns.TEMPLATE, columns.AXIS, columns.DESCRIPTOR, columns.TEXT, columns.PERSONA]
    return prompts[[*names, N_TEXTS, N_TEMPLATES]]


def _first_texts(prompts: pd.DataFrame, *, warns: bool) -> pd.DataFrame:
    """Return the first prompt of each template and person, with their number of texts, and warn of the others."""
    person = [columns.TEMPLATE, columns.DESCRIPTOR]
    texts = prompts.drop_duplicates([*person, columns.TEXT, columns.PERSONA])
    kept = prompts.drop_duplicates(person).assign(**{N_TEXTS: 1})
    if warns:
        kept[N_TEXTS] = texts.groupby(person, sort=False).size().to_numpy()
    if warns and len(kept) < len(texts):
        log.warning(
            "screen: %d of %d texts have the template and the person of a text before them; left out. Give each "
            "wording a template of its own",
            len(texts) - len(kept),
            len(texts),
        )
    return kept


def _of_same_people(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts of the templates that ask about the same people, as many as possible, with N_TEMPLATES.

    Raises:
        InputError: fewer than two templates ask about the same two people.
    """
    people = {
        template: frozenset(rows[columns.DESCRIPTOR].astype(str))
        for template, rows in prompts.groupby(columns.TEMPLATE)
    }
    n_templates = Counter(people.values())
    usable = [each for each, n in n_templates.items() if len(each) > 1 and n >= MIN_TEMPLATES]
    if not usable:
        raise InputError("prompts", "two templates that ask about the same two people are needed; select more prompts.")
    largest = max(usable, key=lambda each: (len(each) * n_templates[each], len(each), sorted(each)))
    kept = [template for template, names in people.items() if names == largest]
    if len(kept) < len(people):
        log.warning("screen: %d of %d templates ask about other people; left out", len(people) - len(kept), len(people))
    return prompts[prompts[columns.TEMPLATE].isin(kept)].assign(**{N_TEMPLATES: len(people)})


def _common_nouns(prompts: pd.DataFrame, seed: int) -> pd.Series:
    """Return, for each prompt, the noun of its template: one of those that go with the most descriptors."""
    counts = prompts.groupby([columns.TEMPLATE, columns.NOUN])[columns.DESCRIPTOR].nunique()
    rng = np.random.default_rng(seed)
    nouns = {}
    for template, of_nouns in counts.groupby(level=columns.TEMPLATE):
        best = of_nouns[of_nouns == of_nouns.max()].index.get_level_values(columns.NOUN)
        nouns[template] = rng.choice(sorted(best))
    return prompts[columns.TEMPLATE].map(nouns)


_LISTS = [columns.AXIS, columns.DESCRIPTOR, DIVERGENCE, AT_MOST, OWN_WORDS]


def _screen_templates(
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
        yield pd.DataFrame({name: pd.Series(dtype=object) for name in (columns.TEMPLATE, *_LISTS, TOKENS)})
    for index, template in templates[columns.TEMPLATE].items():
        of_template = prompts[prompts[columns.TEMPLATE] == template]
        found = screen_template(model, of_template, listed_tokens)
        if first_tokens > 1:
            found |= screen_openings(model, of_template, first_tokens, seed)
        row = {name: [of_template[name].tolist() if name in of_template else found[name]] for name in (*_LISTS, TOKENS)}
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


def is_bounded(table: pd.DataFrame) -> bool:
    """Return whether a table of divergences has bounds that differ, because only some tokens are known."""
    return AT_MOST in table and bool((table[AT_MOST] > table[DIVERGENCE]).any())


def divergence_scores(
    table: pd.DataFrame, signature: Signature, kind: Kind = Kind.LEVEL, n_left_out: int = 0
) -> list[BiasScore]:
    """Return the mean over templates of the divergence, of everybody, each axis and each person, with intervals.

    Args:
        table: template, axis, descriptor, divergence and own_words, a row for each template and person; of a change,
            the differences.
        n_left_out: templates that only one of two compared runs has.
    """
    from evenhand.evaluation.statistics.intervals import mean_interval

    metrics = {DIVERGENCE: DIVERGENCE, OWN_WORDS: OWN_WORDS}
    if kind == Kind.LEVEL and is_bounded(table):
        metrics = {AT_LEAST: DIVERGENCE, AT_MOST: AT_MOST, OWN_WORDS: OWN_WORDS}
    largest = math.log(table[columns.DESCRIPTOR].nunique())
    bounds_of_divergence = (0.0, largest) if kind == Kind.LEVEL else (-largest, largest)
    cuts: list[tuple[dict[str, str], pd.DataFrame]] = [({}, table)]
    for column in (columns.AXIS, columns.DESCRIPTOR):
        cuts += [({column: str(value)}, rows) for value, rows in table.groupby(column)]
    scores = []
    for name, column in metrics.items():
        bounds = (-math.inf, math.inf) if name == OWN_WORDS else bounds_of_divergence  # a part may be negative
        for group, rows in cuts:
            values = rows.groupby(columns.TEMPLATE)[column].mean().to_numpy(dtype=np.float64)
            interval = mean_interval(values, bounds)
            scores.append(
                BiasScore(
                    metric=name,
                    value=float(values.mean()),
                    ideal=0.0 if name in (DIVERGENCE, AT_LEAST) else None,
                    bounds=bounds,
                    n=len(values),
                    n_of="templates",
                    interval=interval,
                    n_left_out=n_left_out,
                    group=group,
                    signature=signature,
                    kind=kind,
                )
            )
    return scores


def ranks_of_people(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return a row for each person, the largest divergence first: mean, interval, own words, and interval of ranks."""
    from evenhand.evaluation.statistics.intervals import mean_interval
    from evenhand.evaluation.statistics.ranks import rank_intervals

    wide = table.pivot_table(index=columns.DESCRIPTOR, columns=columns.TEMPLATE, values=DIVERGENCE, aggfunc="mean")
    values = wide.to_numpy(dtype=np.float64)
    low_rank, high_rank = rank_intervals(values, seed=seed)
    at_most = values
    if is_bounded(table):
        tall = table.pivot_table(index=columns.DESCRIPTOR, columns=columns.TEMPLATE, values=AT_MOST, aggfunc="mean")
        at_most = tall.to_numpy(dtype=np.float64)
    possible = (0.0, math.log(len(wide)))
    lower = [mean_interval(row, possible) or (math.nan, math.nan) for row in values]
    upper = [mean_interval(row, possible) or (math.nan, math.nan) for row in at_most]
    ranks = pd.DataFrame(
        {
            columns.DESCRIPTOR: wide.index,
            DIVERGENCE: values.mean(axis=1),
            AT_MOST: at_most.mean(axis=1),
            "low": [bounds[0] for bounds in lower],
            "high": [bounds[1] for bounds in upper],
            OWN_WORDS: table.groupby(columns.DESCRIPTOR)[OWN_WORDS].mean().reindex(wide.index).to_numpy(),
            "lowest_rank": low_rank,
            "highest_rank": high_rank,
        }
    )
    return ranks.sort_values(DIVERGENCE, ascending=False, ignore_index=True)


def _rank_text(row: Mapping[str, Any]) -> str:
    low = int(row["lowest_rank"])
    high = int(row["highest_rank"])
    return str(low) if low == high else f"{low} to {high}"


def _nats_text(row: Mapping[str, Any], has_bounds: bool) -> str:
    text = number_text(row[DIVERGENCE], 3)
    return f"{text} to {number_text(row[AT_MOST], 3)}" if has_bounds else text


def _bounds_text(bounds: tuple[float, float]) -> str:
    return f"[{number_text(bounds[0], 3)}, {number_text(bounds[1], 3)}]"


def largest_tokens(tokens: pd.DataFrame, person: str) -> list[dict[str, Any]]:
    """Return the tokens that contribute most to a person's divergence: token, probability and mean_probability."""
    names = [TOKEN, PROBABILITY, MEAN_PROBABILITY]
    return table_rows(tokens.loc[tokens[columns.DESCRIPTOR] == person, names].head(SHOWN_TOKENS))


def _token_texts(tokens: pd.DataFrame, person: str) -> str:
    texts = []
    for row in largest_tokens(tokens, person):
        token = sanitize(row[TOKEN].strip() or repr(row[TOKEN]))
        texts.append(f"“{token}” {number_text(row[PROBABILITY], 2)} ({number_text(row[MEAN_PROBABILITY], 2)})")
    return ", ".join(texts)


def joined_divergences(before: FamilyRun, after: FamilyRun) -> "JoinedRows":
    """Return the rows of two screens by prompt.

    Raises:
        InputError: the runs compare other people or numbers of first tokens, have no prompt in common, or only bounds.
    """
    from evenhand.evaluation.joins import join_rows

    for field, run in (("before", before), ("after", after)):
        if is_bounded(run.table(DIVERGENCES)):
            raise InputError(field, "its divergences are bounds, by a server; compare screens of loaded models.")
    check_scored_alike(before.signature(DIVERGENCE), after.signature(DIVERGENCE), ["first_tokens"])
    prompts = [
        columns.TEMPLATE,
        columns.DESCRIPTOR,
        columns.TEXT,
        columns.PERSONA,
    ]  # a run with another seed asks with other nouns
    old = before.table(DIVERGENCES).merge(before.table(SCREENED)[prompts], on=[columns.TEMPLATE, columns.DESCRIPTOR])
    new = after.table(DIVERGENCES).merge(after.table(SCREENED)[prompts], on=[columns.TEMPLATE, columns.DESCRIPTOR])
    if set(old[columns.DESCRIPTOR]) != set(new[columns.DESCRIPTOR]):
        raise InputError("after", "its people are others, and so is the mean over people; screen the same people.")
    return join_rows(old, new, prompts, "prompts")


def divergence_changes(joined: "JoinedRows") -> pd.DataFrame:
    """Return the rows with the changes of the divergences, after minus before, in nats."""
    changes = {name: joined.after[name] - joined.before[name] for name in (DIVERGENCE, OWN_WORDS)}
    return joined.before.assign(**changes)
