"""`well_formed`, the share of responses that the grammar can produce, exists only for models of the testbed."""

from dataclasses import replace

import numpy as np
import pytest

from evenhand.evaluation.families import FamilyRun, MeasureConfig
from evenhand.evaluation.families.generation_bias.collect.rows import read_styled_run
from evenhand.evaluation.families.generation_bias.settings import Settings
from evenhand.evaluation.runs.tables import write_table
from evenhand.evaluation.settings import ModelSettings
from evenhand.recipes.testbed import grammar
from evenhand.recipes.testbed.facts import facts_of
from evenhand.recipes.testbed.facts.generation_bias import well_formed
from tests.measured_runs import write_measured

FAMILY = "generation_bias"


@pytest.fixture
def runs(tmp_path):
    utterances = [text for family in grammar.families() for text in grammar.utterances(family, grammar.MENTION)]
    plain = next(text for text in utterances if grammar.MENTION not in text)
    mention = next(text for text in utterances if grammar.MENTION in text)
    vectors = np.full((4, 3), 1 / 3)
    responses = [plain, mention.replace(grammar.MENTION, "left-handed"), plain + " salad", ""]
    before = write_measured(tmp_path / "before", vectors, responses)
    after = write_measured(tmp_path / "after", vectors, ["salad", "", plain + " salad", ""])
    return [FamilyRun(folder, MeasureConfig(settings=Settings())) for folder in (before, after)]


def test_only_the_grammars_sentences_are_well_formed(runs):
    run = read_styled_run(runs[0].folder)
    assert well_formed(run).tolist() == [True, False, False, False]  # the prompts' are a and b
    (share,) = facts_of(FAMILY).grammar_scores(runs[0], [])
    assert (share.metric, share.value, share.n) == ("well_formed", 0.25, 4)
    (change,) = facts_of(FAMILY).grammar_differences(*runs)
    assert (change.metric, change.value) == ("well_formed_difference", -0.25)
    write_table(run.folder / "prompts.parquet", run.prompts.assign(descriptor="left-handed"))
    assert well_formed(read_styled_run(run.folder)).tolist() == [True, True, False, False]


def test_other_models_and_families_have_none(runs):
    other = replace(runs[0], config=replace(runs[0].config, model=ModelSettings(name="some/model")))
    facts = facts_of(FAMILY)
    assert facts.grammar_scores(other, []) == [] and facts.grammar_differences(runs[0], other) == []
    assert facts_of("likelihood_bias").grammar_scores(runs[0], []) == []
