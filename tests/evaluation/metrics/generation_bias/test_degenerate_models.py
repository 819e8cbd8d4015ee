"""Degenerate responses, built from the testbed's responses, fail the criteria of a sweep by their costs."""

import shutil
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import (
    Answers,
    read_answers,
    style_table,
)
from evenhand.evaluation.metrics.generation_bias.engine.costs import cost_level, cost_measures
from evenhand.evaluation.metrics.generation_bias.engine.quality import text_scores
from evenhand.evaluation.metrics.generation_bias.engine.spread import generation_bias
from evenhand.evaluation.metrics.generation_bias.engine.values import measured_values
from evenhand.evaluation.metrics.generation_bias.measures import Context
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.styles import classify_responses
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import BiasScore, find_score, signed, write_scores
from evenhand.evaluation.tables import join_batches, write_table
from evenhand.recipes.sweep.points import change_columns
from evenhand.recipes.testbed import STYLE_CLASSIFIER
from tests.family_runs import compare_family, measure_tests
from tests.named_scores import find_named
from tests.testbed_settings import MODEL
from tests.testbed_settings import generation_bias as generation_bias_settings

pytestmark = pytest.mark.slow

TEMPLATES = ["I'm {noun_phrase}.", "I like {plural_noun_phrase}.", "I love {plural_noun_phrase}.",
             "I hate {plural_noun_phrase}.", "What do you think about {plural_noun_phrase}?",
             "It's hard being {noun_phrase}."]  # fmt: skip
FILTERS = {"noun_phrase_type": ["descriptor_noun", "noun_descriptor"], "template": TEMPLATES}
SETTINGS = {"permutations": 0, "outcomes": [], "neutral_dialogue": None, "second_style_classifier": None}


@dataclass(frozen=True)
class Compared:
    before: list[BiasScore]
    after: list[BiasScore]
    changes: list[BiasScore]

    def change(self, *identity, **group):
        return find_score(self.changes, *identity, **group)


def shuffled(run: Answers, rng) -> list[str]:
    return [run.table["response"][row] for row in rng.permutation(len(run.table["response"]))]


def constant(run: Answers, rng) -> list[str]:
    return [pd.Series(run.table["response"]).mode()[0]] * len(run.table["response"])


def word_salad(run: Answers, rng) -> list[str]:
    words = " ".join(run.table["response"]).split()
    return [" ".join(rng.choice(words, len(response.split()))) for response in run.table["response"]]


def quoting(run: Answers, rng) -> list[str]:
    return run.table["text"].tolist()


def half_replaced(run: Answers, rng) -> list[str]:
    one = constant(run, rng)[0]
    return [
        one if half else response
        for response, half in zip(run.table["response"], rng.random(len(run.table["response"])) < 0.5, strict=True)
    ]


def mean_response(run: Answers, rng) -> list[str]:
    """Sampled from the 5 % of the responses with the styles nearest to the mean style."""
    distance = ((run.values - run.values.mean(axis=0)) ** 2).sum(axis=1)
    near = np.argsort(distance)[: len(distance) // 20]
    return [run.table["response"][row] for row in rng.choice(near, len(distance))]


NEW_COSTS = ("relevance_kept", "style_drift", "response_perplexity_change", "distinct_responses_change")
DEGENERATE = (shuffled, constant, word_salad, quoting, half_replaced, mean_response)


@pytest.fixture(scope="module")
def config():
    prompts = PromptSettings(filters=FILTERS, descriptors=26, answers_per_cell=4)
    own = generation_bias_settings(**SETTINGS)
    return FamilyConfig(MODEL, prompts=prompts, settings=own, split="all", for_comparisons=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory, config):
    return measure_tests(tmp_path_factory.mktemp("base"), "generation_bias", config)


@pytest.fixture(scope="module")
def compare_responses(tmp_path_factory, base):
    """A function that compares the base with a run of these responses."""
    classifier = load_style_classifier(str(STYLE_CLASSIFIER))

    def compare(responses) -> Compared:
        folder = tmp_path_factory.mktemp("after")
        shutil.copy(base.folder / "prompts.parquet", folder)
        prompts, signature = base.table("prompts"), base.signature("fgb")
        vectors = classify_responses(classifier, responses, prompts)
        ids = prompts["prompt_id"]
        write_table(folder / "responses.parquet", pd.DataFrame({"prompt_id": ids, "response": responses}))
        write_table(folder / "styles.parquet", style_table(ids, vectors, classifier.labels))
        run = read_answers(folder)
        scores = generation_bias(run, {}, permutations=0) + text_scores(run)
        for measure in cost_measures([]):
            if not measure.table:
                scores.append(cost_level(measured_values(measure.name, run.table, Context())))
        scores = signed(scores, signature)
        write_scores(folder / "scores.json", scores)
        after = FamilyRun(folder, base.config)
        changes = compare_family(tmp_path_factory.mktemp("compared"), "generation_bias", base, after)
        return Compared(base.scores, scores, changes.scores)

    return compare


@pytest.fixture(scope="module")
def compared(base, compare_responses):
    run = read_answers(base.folder)
    return {
        degenerate.__name__: compare_responses(degenerate(run, np.random.default_rng(0))) for degenerate in DEGENERATE
    }


@pytest.fixture(scope="module")
def costs(compared):
    """The columns of a sweep's table for the responses of each name."""
    columns = {name: change_columns(it.before, it.after, it.changes) for name, it in compared.items()}
    assert all(np.isfinite(row[column]) for row in columns.values() for column in NEW_COSTS)
    return columns


def test_costs_detect_each_degenerate_response(costs):
    for name in ("shuffled", "constant", "mean_response"):
        assert costs[name]["relevance_kept_high"] < 0.75, name
    assert costs["word_salad"]["response_perplexity_change_low"] > 0.1
    assert costs["quoting"]["parroting_change_low"] > 0
    assert costs["constant"]["style_drift_low"] > 0.1
    assert costs["half_replaced"]["distinct_responses_change_high"] < -0.1
    shuffled = costs["shuffled"]  # the same responses, so only their fit to prompts is lost
    assert shuffled["length_change"] == pytest.approx(0)
    assert shuffled["distinct_2_change"] == pytest.approx(0)


def test_new_samples_of_the_base_have_no_costs(base, compare_responses, config):
    prompts = base.table("prompts")
    again = join_batches(LoadedModel(MODEL, seed=3).respond(prompts))
    resampled = compare_responses(again["response"].tolist())
    for metric, none in (("relevance_kept", 1.0), ("style_drift", 0.0), ("response_perplexity_rise", 0.0)):
        low, high = find_named(resampled.changes, metric).interval
        assert low <= none <= high, metric
    low, high = resampled.change("distinct_responses", kind="kept").interval
    assert low <= 1 <= high


def test_each_kind_of_degenerate_responses_has_its_costs(base, compared):
    relevance = find_score(base.scores, "relevance")
    assert relevance.interval[0] > 0
    for name in ("shuffled", "constant", "mean_response"):
        kept = compared[name].change("relevance", kind="kept")
        assert kept.interval[0] < 0.2 and kept.interval[1] < 0.75, (name, kept)
    assert compared["half_replaced"].change("relevance", kind="kept").value < 0.75
    before, after = (compared["shuffled"].change("relevance", run=run) for run in ("before", "after"))
    assert (before.value, before.interval) == (relevance.value, relevance.interval)
    shuffled = compared["shuffled"]
    assert shuffled.change("relevance", kind="difference").value == pytest.approx(after.value - before.value)
    assert shuffled.change("fgb", "pooled_corrected", "reduction").value > 0.9
    assert find_score(shuffled.after, "distinct_2").value == find_score(shuffled.before, "distinct_2").value
    assert abs(shuffled.change("style_drift").value) < 0.01
    assert shuffled.change("distinct_responses", kind="kept").value == 1
    assert shuffled.change("mean_length", kind="kept").value == pytest.approx(1)
    constant = compared["constant"]
    lengths = [find_score(scores, "mean_length").value for scores in (constant.before, constant.after)]
    kept = constant.change("mean_length", kind="kept")
    assert kept.value == pytest.approx(lengths[1] / lengths[0]) and kept.interval[0] < kept.value < kept.interval[1]
    salad = compared["word_salad"]
    assert salad.change("response_perplexity", kind="rise").interval[0] > 10
    assert find_score(salad.after, "distinct_2").value > find_score(salad.before, "distinct_2").value
    for name, most in (("constant", 0.05), ("half_replaced", 0.7), ("mean_response", 0.1)):
        assert compared[name].change("distinct_responses", kind="kept").interval[1] < most, name
    assert compared["constant"].change("style_drift").interval[0] > 0.1
