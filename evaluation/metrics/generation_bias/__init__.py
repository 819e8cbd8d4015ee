"""Generation bias: how a model's style depends on the descriptor in its prompt (Smith et al. 2022, A.7).

The way of a response from prompt to score:

1. `collect` passes the prompts that have no response yet to `Model.respond`, and `Store.rows` saves each batch.
2. `classify` gives each response a style vector; `Store.rows` saves these, too.
3. `score` reads the tables of prompts, responses and styles as `Answers`.
4. Each part scores them: `engine.spread` computes FGB from cells, and pooled FGB* from pairs of people.

At most 5 of 100 reports on even models show anything, since everything that a report calls shown is tested jointly
(`joint_tests`): whether people differ at all, and what each part tests.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.data.other_people import with_partners
from evenhand.evaluation.data.style_clusters import default_clusters, load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Facts
from evenhand.evaluation.files import json_sha256
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import Family, FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias import settings as family_settings
from evenhand.evaluation.metrics.generation_bias.accepted import AcceptedDifferences, configured_accepted
from evenhand.evaluation.metrics.generation_bias.answers import (
    ACCEPTED,
    EXTRA_PROMPTS,
    EXTRA_RESPONSES,
    EXTRA_STYLES,
    PROMPTS,
    RESPONSES,
    answers_of,
    read_answers,
    with_extra,
)
from evenhand.evaluation.metrics.generation_bias.classification import (
    STYLE_CLASSIFIER,
    classifier_inputs,
    classifier_signature,
    classify,
    configured_classifiers,
)
from evenhand.evaluation.metrics.generation_bias.cuts import Cuts
from evenhand.evaluation.metrics.generation_bias.early_stop import read_stop
from evenhand.evaluation.metrics.generation_bias.engine.estimates import EVERYBODY
from evenhand.evaluation.metrics.generation_bias.interim_looks import (
    answer_until_decided,
    record_saved_requests,
    record_that_all_is_asked,
)
from evenhand.evaluation.metrics.generation_bias.likelihoods import TABLES
from evenhand.evaluation.metrics.generation_bias.measurement_prompts import (
    asked_prompts,
    check_repeated_prompts,
    dataset_signature,
    extra_prompts,
    prompt_inputs,
    write_prompts,
)
from evenhand.evaluation.metrics.generation_bias.measures import OFFENSIVENESS, Context
from evenhand.evaluation.metrics.generation_bias.measures.decision import JUDGED
from evenhand.evaluation.metrics.generation_bias.measures.likely_decision import LIKELY_DECISION
from evenhand.evaluation.metrics.generation_bias.parts import AnsweredRun, ClassifiedRun, JointTests, Part
from evenhand.evaluation.metrics.generation_bias.parts.attributes import ERROR_SHARE, AttributesPart, has_attributes
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusPart, corpus_inputs
from evenhand.evaluation.metrics.generation_bias.parts.costs import CostsPart
from evenhand.evaluation.metrics.generation_bias.parts.decisions import DecisionsPart, judge_decisions
from evenhand.evaluation.metrics.generation_bias.parts.effects import EffectsPart
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OutcomesPart, all_values, with_absent_outcomes
from evenhand.evaluation.metrics.generation_bias.parts.phrases import PhrasesPart, phrase_inputs
from evenhand.evaluation.metrics.generation_bias.parts.quality import QualityPart
from evenhand.evaluation.metrics.generation_bias.parts.spread import SpreadPart
from evenhand.evaluation.metrics.generation_bias.parts.style_changes import StyleChangesPart
from evenhand.evaluation.metrics.generation_bias.people import MAX_NAME, compared_people
from evenhand.evaluation.metrics.generation_bias.published import log_differences
from evenhand.evaluation.metrics.generation_bias.so_far import AnswersSoFar
from evenhand.evaluation.metrics.generation_bias.stopping_question import question_of
from evenhand.evaluation.metrics.generation_bias.words import TEMPLATES
from evenhand.evaluation.models.base import CANDIDATES, Model
from evenhand.evaluation.models.capabilities import load_tasks
from evenhand.evaluation.models.remote import ANSWERED_BY
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.page import Page, Section
from evenhand.evaluation.runs.record import package_versions
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import BiasScore, signed
from evenhand.evaluation.settings import Access
from evenhand.evaluation.statistics.cell_table import SetOfTests
from evenhand.evaluation.statistics.level import ONE_LOOK
from evenhand.evaluation.statistics.person_effects import joint_effects
from evenhand.evaluation.tables import table_rows

log = logging.getLogger("evenhand")

MAX_SAMPLES_TRACKED = 200
MODEL_FACTS = "model_facts"  # the file of the signature's entries on model and decoding
# In the order of the reports. Accepted differences change the responses of all other parts; cuts are scores of some.
PARTS = (
    EffectsPart(),
    AcceptedDifferences(),
    OutcomesPart(),
    DecisionsPart(),
    AttributesPart(),
    Cuts(),
    SpreadPart(),
    CostsPart(),
    QualityPart(),
    PhrasesPart(),
    StyleChangesPart(),
    CorpusPart(),
)


class GenerationBias(Family):
    """Scores of the styles of responses, and of what reducing bias costs."""

    Settings = family_settings.Settings
    SHARED = ("offensive_classifier",)
    ComparisonSettings = family_settings.ComparisonSettings
    FORMATS = (
        *(metric for part in PARTS for metric in part.FORMATS),
        Format(
            "common_prompts",
            "prompts of both runs",
            "Share of the prompts that both runs have; the others are left out.",
            "%",
            factor=100,
        ),
    )
    NEEDS = Access.ANSWERS
    USES_SYSTEM_PROMPT = True
    READS_RESPONSES = True
    TITLE = "Generation bias"
    WORDS = TEMPLATES
    parts = PARTS

    def inputs(self, config: FamilyConfig) -> dict[str, Json]:
        """Return fingerprints of all inputs of the measurement, by name.

        Raises:
            InputError: an input cannot be read or does not fit the others, both style classifiers are the same, or
                `until` is given for responses that are known already, or does not fit the other settings.
        """
        model = config.open_model()
        if question_of(config.settings) is not None and not model.can_be_asked:
            raise InputError("generation_bias.until", "the responses are known already; leave this out.")
        if config.prompts.more_answers:
            check_more_answers(config, model)
        inputs = {**prompt_inputs(config, model), **model.identity(), **classifier_inputs(config)}
        for part in self.parts:
            inputs |= part.inputs(config, model)
        if config.for_comparisons:
            inputs["for_comparisons"] = True
        return inputs

    def comparison_inputs(self, settings: family_settings.ComparisonSettings) -> dict[str, Json]:
        """Return fingerprints of the inputs of a comparison, except the two runs, by name.

        Raises:
            InputError: the file of phrases does not exist or has a wrong format; the corpus does not exist.
        """
        return {**corpus_inputs(settings.corpus), **phrase_inputs(settings.phrases)}

    def write_prompts(self, path: Path, config: FamilyConfig) -> int:
        """Write the prompts for another program to answer, and return their number."""
        return write_prompts(path, config)

    def collect(self, store: Store, config: FamilyConfig) -> dict[str, Any]:
        """Write the tables of prompts, responses and style vectors, and the tables of the parts that need the model.

        Returns:
            The signature's entries on model, dataset and decoding.

        Raises:
            InputError: a setting does not fit the model or the prompts, or all responses are empty.
        """
        log_differences(config)
        load_tasks(config.capabilities)  # raises for an unknown task before hours of generation
        model = config.open_model()
        question = question_of(config.settings)
        if question is None:
            record_that_all_is_asked(store)
            prompts = store.table(PROMPTS, lambda: asked_prompts(config))
        else:
            prompts = asked_prompts(config)
        check_repeated_prompts(config, model, prompts)
        if config.prompts.cues and not model.is_chat:
            raise InputError("prompts.cues", f"{model.name} is no chat model; leave cues out, or give a chat model.")
        model.check_likelihoods()  # may start a server, so all else is checked first
        signature = store.keep_facts(MODEL_FACTS, model.facts)
        ask = partial(_ask, store, model, prompts)
        if question is None:
            store.ensure(RESPONSES, lambda: ask(prompts), on_all_ranks=True)
        else:
            answer_until_decided(store, config, question, prompts, ask)
            prompts = store.read(PROMPTS)
        if config.prompts.more_answers:
            more = store.table(EXTRA_PROMPTS, lambda: extra_prompts(config))
            planned = pd.concat([prompts, more], ignore_index=True)
            store.ensure(EXTRA_RESPONSES, lambda: _ask(store, model, planned, more, EXTRA_RESPONSES), on_all_ranks=True)
        answered = store.read(RESPONSES)
        check_nonempty(answered)
        if not model.without_likelihoods:
            run = AnsweredRun(store, config, model, prompts, answers_of(answered))
            for part in self.parts:
                part.collect(run)
        model.close()
        _note_left_out(store, answered)
        names = _names_in_answers(config, model, answered)
        if names:
            signature["model"]["answered_by"] = names
        classify(store, config)
        judge_decisions(store, config)
        if question is not None:
            record_saved_requests(store, config)
        if config.settings.accepted is not None:
            store.ensure(ACCEPTED, lambda: configured_accepted(config))
        return {**signature, "dataset": {**dataset_signature(config.prompts), **signature.get("dataset", {})}}

    def score(self, store: Store, config: FamilyConfig, collected: Mapping[str, Any]) -> list[BiasScore]:
        """Return all scores of the run's tables."""
        run = read_classified_run(store, config, collected)
        tests = joint_tests(run, self.parts)
        scores = []
        for part in self.parts:
            scores += part.score(run, tests)
        store.record["rows"] = len(run.responses)
        sampled = np.random.default_rng(0).permutation(len(run.responses))[:MAX_SAMPLES_TRACKED]
        store.tracker.log_samples(
            run.responses.table.iloc[sampled][[columns.DESCRIPTOR, columns.TEXT, columns.RESPONSE]]
        )
        return _of_responses(signed(scores, run.signature))

    def compare(
        self, store: Store, before: FamilyRun, after: FamilyRun, settings: family_settings.ComparisonSettings | None
    ) -> list[BiasScore]:
        """Return the paired differences and reductions between two runs, and write the tables of changes."""
        from evenhand.evaluation.metrics.generation_bias.comparison import (
            levels_on_common_answers,
            opened_comparison,
            track_samples,
        )

        given = settings or family_settings.ComparisonSettings.model_validate({})
        comparison, common = opened_comparison(store, before, after, given)
        scores = []
        for part in self.parts:
            scores += part.compare(comparison)
        track_samples(comparison)
        levels = levels_on_common_answers(comparison, self.parts)
        return _of_responses([*signed([*scores, common], comparison.signature), *levels])

    def facts(self, run: FamilyRun) -> Facts:
        """Return what was found in one measuring run, as data."""
        from evenhand.evaluation.metrics.generation_bias.page import run_facts

        return run_facts(run)

    def comparison_facts(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Facts:
        """Return what a comparison of two measuring runs found, as data."""
        from evenhand.evaluation.metrics.generation_bias.page import change_facts

        return change_facts(before, after, changes)

    def further_metrics(self, run: FamilyRun) -> Sequence[str]:
        return run.config.settings.outcomes

    def side_by_side(self, runs: Mapping[str, FamilyRun]) -> list[Section]:
        return super().side_by_side(with_absent_outcomes(runs))

    def page(self, run: FamilyRun) -> Page:
        """Return the report on one measuring run."""
        from evenhand.evaluation.metrics.generation_bias.page import page

        return page(run, self.parts)

    def comparison_page(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Page:
        """Return the report that shows two measuring runs side by side with the changes between them."""
        from evenhand.evaluation.metrics.generation_bias.page import comparison_page

        return comparison_page(before, after, changes, self.parts)


def check_more_answers(config: FamilyConfig, model: Model) -> None:
    """Raise InputError if nobody can get more answers, or the numbers of answers are not fixed before the first one."""
    field = "prompts.more_answers"
    if not model.can_be_asked:
        raise InputError(field, "the responses are known already; leave this out.")
    if question_of(config.settings) is not None:
        raise InputError(field, "with until, answers decide how many more are asked; leave one of the two out.")
    if config.settings.accepted is not None:
        raise InputError(field, "differences are accepted on as many answers of everybody; leave one of the two out.")
    extra_prompts(config)  # raises for an unknown person


def _of_responses(scores: Sequence[BiasScore]) -> list[BiasScore]:
    """Return the scores, whose `n` counts responses unless the part that makes a score says otherwise."""
    return [replace(score, n_of=score.n_of or RESPONSES) for score in scores]


def _note_left_out(store: Store, answered: pd.DataFrame) -> None:
    """Note in the record of the run how many answers are left out, by the reason."""
    left_out = answered[columns.LEFT_OUT].dropna()
    if len(left_out):
        counts = left_out.value_counts(sort=False)
        store.record["left_out"] = {str(reason): int(n) for reason, n in counts.items()}


def _names_in_answers(config: FamilyConfig, model: Model, answered: pd.DataFrame) -> list[str]:
    """Return, with a warning, the models that a server's answers name; [] if they name the one that was asked."""
    if ANSWERED_BY not in answered:
        return []
    names = sorted(set(answered[ANSWERED_BY][answered[columns.LEFT_OUT].isna()]))
    if names in ([], [model.name]):
        return []
    log.warning(
        "%s: asked for %r, the answers name %s", config.model.server or config.model.kind, model.name, ", ".join(names)
    )
    return names


def _ask(
    store: Store, model: Model, planned: pd.DataFrame, prompts: pd.DataFrame, name: str = RESPONSES
) -> pd.DataFrame:
    """Return the response to each of some planned prompts, the rows `name`; write candidates, if there are any."""
    asked = with_partners(planned, model.seed) if model.needs_partners else planned
    model.check(asked)
    asked = asked.set_axis(asked[columns.PROMPT_ID].to_numpy())
    asked = asked[asked.index.isin(prompts[columns.PROMPT_ID])]
    so_far = AnswersSoFar(planned, store.tracker)

    def respond(items: pd.DataFrame) -> Iterator[pd.DataFrame]:
        for batch in model.respond(items):
            yield batch
            so_far.add(batch)

    rows = store.rows(name, asked, respond, unit="responses")
    if CANDIDATES not in rows:
        return rows
    if name != RESPONSES:
        return rows.drop(columns=CANDIDATES)
    candidates = (
        rows[[columns.PROMPT_ID, CANDIDATES]].explode(CANDIDATES).rename(columns={CANDIDATES: columns.RESPONSE})
    )
    number = candidates.groupby(level=0).cumcount()
    store.write(CANDIDATES, candidates.assign(candidate=number).reset_index(drop=True))
    return rows.drop(columns=CANDIDATES)


def check_nonempty(answered: pd.DataFrame) -> None:
    """Raise InputError if no response has any text, with the reasons that are known."""
    if (answered[columns.RESPONSE].str.strip() != "").any():
        return
    reasons = answered[columns.LEFT_OUT].value_counts()
    listed = "; ".join(f"{sanitize(str(reason), MAX_NAME)} ({n:,})" for reason, n in reasons.items())
    fix = "see what the source of the answers says"
    if not listed or UNFINISHED_REASONING in reasons:
        fix = (
            "check the model, its tag and decoding.arguments: a model that reasons first needs a larger max_new_tokens"
        )
    raise InputError("responses", f"all {len(answered)} are empty{f': {listed}' if listed else ''}; {fix}.")


def read_classified_run(store: Store, config: FamilyConfig, collected: Mapping[str, Any]) -> ClassifiedRun:
    """Return the responses of a measurement with all that the parts score; `collected` is the result of `collect`."""
    settings = config.settings
    stop = read_stop(store)
    responses = read_answers(store.folder, level=ONE_LOOK if stop is None else stop.level)
    facts = {}
    for name, classifier in configured_classifiers(config).items():
        facts[name] = classifier_signature(classifier, str(store.inputs[name]))
    facts[STYLE_CLASSIFIER]["clusters"] = settings.style_clusters or default_clusters(responses.columns)
    signature = {
        **collected,
        "dataset": {**collected["dataset"], "sha256": prompts_sha256(store)},
        STYLE_CLASSIFIER: facts[STYLE_CLASSIFIER],
        "inputs": dict(store.inputs),
        "seed": config.seed,
        "packages": package_versions(),
    }
    if settings.accepted is not None:
        signature[ACCEPTED] = table_rows(store.read(ACCEPTED).drop(columns="styles"))
    tables = {name: store.read(name) for name in (*TABLES, OFFENSIVENESS, LIKELY_DECISION, JUDGED) if store.has(name)}
    context = Context(config.prompts.language, tables, settings.decision_rule)
    return ClassifiedRun(
        store=store,
        config=config,
        responses=responses,
        clusters=load_style_clusters(settings.style_clusters, responses.columns),
        outcomes=all_values(settings.outcomes, responses.table, context),
        context=context,
        signature=signature,
        classifiers=facts,
        stop=stop,
    )


def prompts_sha256(store: Store) -> str:
    """Return the hash of a run's prompts: of their values, since the file also names its run."""
    return json_sha256(store.read(PROMPTS).to_dict("list"))


def with_extra_answers(run: ClassifiedRun) -> ClassifiedRun:
    """Return the run with the additional answers of some people (`prompts.more_answers`), and all outcomes."""
    store = run.store
    if not store.has(EXTRA_STYLES):
        return run
    extra = (store.read(name) for name in (EXTRA_PROMPTS, EXTRA_RESPONSES, EXTRA_STYLES))
    responses = with_extra(run.responses, *extra)
    outcomes = all_values(run.config.settings.outcomes, responses.table, run.context)
    return replace(run, responses=responses, outcomes=outcomes)


def joint_tests(run: ClassifiedRun, parts: Sequence[Part]) -> JointTests:
    """Return the tests of all parts, adjusted for each other, and the test that people differ in style at all."""
    run = with_extra_answers(run)
    level = run.responses.level
    if has_attributes(run.responses.table):
        level = level.part(1 - ERROR_SHARE)
    permutations = level.draws(run.config.settings.permutations)
    # Whoever has a value of anything is compared: a person without any answer has no style, but is empty or withheld.
    has_value = run.responses.has_value()
    for values in run.outcomes.values():
        has_value |= values.has_value
    people = compared_people(run.responses, run.responses.groups(), has_value)
    if people is None:
        return JointTests(None, {}, {}, has_permutations=permutations > 0)
    test_sets = [SetOfTests(EVERYBODY, people.responses.values, has_effects=False)]
    for part in parts:
        test_sets += part.test_sets(run, people)
    rng = np.random.default_rng(run.config.seed)
    found = joint_effects(people.design, test_sets, permutations, rng, level)
    names = [test_set.name for test_set in test_sets]
    return JointTests(
        people=people,
        test_sets=dict(zip(names, test_sets, strict=True)),
        found=dict(zip(names, found, strict=True)),
        has_permutations=permutations > 0,
    )
