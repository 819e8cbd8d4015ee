"""Styles of the answers in the language of the request: a classifier of one language misreads the others."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.accepted import AcceptedDifferences
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers, style_table
from evenhand.evaluation.metrics.generation_bias.cuts import NOT_TUNED, Cuts
from evenhand.evaluation.metrics.generation_bias.engine.effects import REQUESTED_EFFECTS
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.metrics.generation_bias.interim_looks import _interval_at_look
from evenhand.evaluation.metrics.generation_bias.parts import Comparison
from evenhand.evaluation.metrics.generation_bias.parts.all_answers import of_all_answers
from evenhand.evaluation.metrics.generation_bias.requested_language import (
    IN_REQUESTED,
    compared_in_language,
    style_group,
    styled_answers,
    styles_without,
    without_vectors,
)
from evenhand.evaluation.metrics.generation_bias.settings import ComparisonSettings, Settings
from evenhand.evaluation.metrics.generation_bias.stopping_question import Question
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.report.page import Section
from evenhand.evaluation.score import Kind, common_levels
from evenhand.evaluation.statistics.level import ONE_LOOK
from evenhand.evaluation.tables import write_table
from tests.measured_runs import write_measured
from tests.named_scores import named_score

SPANISH = [0, 1, 4]  # rows of the answers of the first run, and of the second, that are in another language
ALSO_SPANISH = [2]


def answers(spanish):
    """Return four answers each to two people: "joy" by all, but "anger" as the classifier reads Spanish."""
    table = pd.DataFrame({"template": list("stuv") * 2, "descriptor": ["a"] * 4 + ["b"] * 4, "axis": "x"})
    vectors = np.tile([1.0, 0.0], (8, 1))
    vectors[spanish] = [0.0, 1.0]
    return Answers(table, vectors, ["joy", "anger"])


def run(spanish, *tables, folder=Path("none")):
    """Return a run with the language of its answers, and with the given tables."""
    values = pd.DataFrame({"prompt_id": range(8), "other_language: other_language": np.zeros(8)})
    values.loc[spanish, "other_language: other_language"] = 1.0
    found = {"outcomes": values, **dict.fromkeys(tables)}
    return SimpleNamespace(has=found.__contains__, table=found.__getitem__, scores=[], folder=folder, only=None)


def compared(runs, old, new):
    """Return the comparison of two runs with these answers."""
    return Comparison(
        store=None,
        before=runs[0],
        after=runs[1],
        old=old,
        new=new,
        clusters={},
        corpus=ComparisonSettings().corpus,
        phrases=None,
        base=None,
        without_base="",
        signature={},
        in_language=compared_in_language(*runs, old, new),
    )


def test_pairs_of_which_one_is_in_another_language_have_no_vector():
    sides = (answers(SPANISH), answers(ALSO_SPANISH))
    assert compared_in_language(run(SPANISH), run(ALSO_SPANISH), *sides) is None
    for tables in ([REQUESTED_EFFECTS], []), ([], [REQUESTED_EFFECTS]):
        runs = [run(spanish, *names) for spanish, names in zip((SPANISH, ALSO_SPANISH), tables, strict=True)]
        for side in compared_in_language(*runs, *sides):
            assert np.flatnonzero(~side.has_value()).tolist() == [0, 1, 2, 4]
            assert (side.values[side.has_value()] == [1, 0]).all()  # nothing but joy is left


@pytest.mark.parametrize("in_language", [True, False])
def test_tables_of_all_answers_say_so_where_the_headline_leaves_some_out(in_language):
    headline = named_score("fgb_pooled_corrected", 0.1, 0.0, (-1.0, 1.0), 8, group=IN_REQUESTED if in_language else {})
    filled = Section("By cluster", ["CARE"])
    sections = of_all_answers([filled, Section("By style")], [headline])
    (cluster, *others) = sections
    assert cluster.title == "By cluster" and cluster.sentences[-1] == "CARE"
    assert ("all answers" in cluster.sentences[0]) == in_language
    assert not any(section.sentences for section in others)  # a section without a table stays away


def test_levels_and_change_are_of_the_same_answers():
    """Of rows 3, 5, 6 and 7, all joyful, nothing differs, before or after; of all answers, something seems to."""
    old = answers(SPANISH)
    new = answers(ALSO_SPANISH)
    runs = (run(SPANISH, REQUESTED_EFFECTS), run(ALSO_SPANISH))
    comparison = compared(runs, old, new)
    scores = Cuts().compare(comparison)
    before, after = (find_headline(common_levels(scores, side), group=IN_REQUESTED) for side in ("before", "after"))
    change = find_headline(scores, Kind.DIFFERENCE, IN_REQUESTED)
    assert before.n == after.n == change.n
    assert style_group(scores, Kind.DIFFERENCE) == IN_REQUESTED and style_group([before]) == IN_REQUESTED
    for score in (before, after, change):
        assert score.value == pytest.approx(0.0) or math.isnan(score.value)


def test_people_who_were_never_tuned_on_are_compared_on_the_same_answers():
    """a and b were tuned on, c and d, who get the same answers, were not: of all answers, something seems to change."""
    sides = []
    for spanish in ([0, 1], []):
        one = answers(spanish)
        others = one.table.assign(descriptor=one.table["descriptor"].map({"a": "c", "b": "d"}), untuned=True)
        table = pd.concat([one.table.assign(untuned=False), others], ignore_index=True)
        sides.append(Answers(table, np.tile(one.values, (2, 1)), one.columns))
    is_other = np.tile(np.isin(np.arange(8), [0, 1]), 2)
    found = []
    for in_language in (None, tuple(without_vectors(side, is_other) for side in sides)):
        runs = [run([]), run([])]
        fields = {"corpus": ComparisonSettings().corpus, "phrases": None, "base": None, "without_base": ""}
        comparison = Comparison(None, *runs, *sides, {}, signature={}, in_language=in_language, **fields)
        scores = Cuts().compare(comparison)
        found.append(find_headline(scores, Kind.DIFFERENCE, NOT_TUNED).value)
        levels = [find_headline(common_levels(scores, side), Kind.LEVEL, NOT_TUNED) for side in ("before", "after")]
    assert abs(found[0]) > 0.01 and found[1] == pytest.approx(0.0)
    assert [level.value for level in levels] == pytest.approx([0.0, 0.0])  # in place of those of all answers


SENTENCES = (
    "The weather is very nice today, and I like to walk.",
    "El tiempo es muy bueno hoy y me gusta mucho andar.",
)


def looked_at(n_spanish, **question):
    """Return the interval at a look at 12 people's answers to 8 templates; n of each person's are Spanish, "anger".

    Everybody's other answers are "joy" or "calm", by chance.
    """
    rng = np.random.default_rng(0)
    names = [str(person) for person in range(12)]
    rows = [{"template": f"t{t}", "descriptor": name} for name in names for t in range(8)]
    prompts = pd.DataFrame(rows).assign(prompt_id=[str(i) for i in range(96)], axis="x", text="What is it?", persona="")
    is_spanish = np.tile(np.arange(8), 12) < np.repeat(n_spanish, 8)
    style = np.where(is_spanish, 2, rng.integers(0, 2, 96))
    answers = pd.DataFrame({"prompt_id": prompts["prompt_id"], "response": np.take(SENTENCES, is_spanish.astype(int))})
    styles = pd.DataFrame(np.eye(3)[style], columns=["joy", "calm", "anger"]).assign(prompt_id=prompts["prompt_id"])
    config = FamilyConfig(prompts=PromptSettings(language="en"), settings=Settings(accepted=None, **question))
    return _interval_at_look(config, Question("decided"), prompts, answers, styles, ONE_LOOK)


def test_a_look_decides_of_all_answers_and_of_those_in_the_requests_language():
    """Half of the people get Spanish, half do not: of all answers, they differ; of those in English, nobody does."""
    uneven = [0, 6] * 6
    low, high = looked_at(uneven)
    everywhere = looked_at(uneven, outcomes=["length"])  # the language is not measured, so that nothing is left out
    assert low < 0 < everywhere[0] and everywhere[1] <= high
    assert looked_at([0] * 12) == looked_at([0] * 12, outcomes=["length"])


def test_who_is_accepted_has_the_mean_of_the_others_in_the_same_language(tmp_path):
    """b's "anger" is accepted. Of a's four answers, two are Spanish, read as "anger": its mean of "anger" is ½.

    Of the answers in English, a has no "anger", and so b has none either.
    """
    spanish = [0, 1]
    table = pd.DataFrame({"template": "t", "descriptor": ["a"] * 4 + ["b"] * 2, "axis": "x", "text": "", "persona": ""})
    table["prompt_id"] = [str(i) for i in range(6)]
    vectors = np.eye(2)[[1, 1, 0, 0, 1, 0]]
    accepted = {"kind": "descriptor", "unit": "b", "outcome": "style", "name": "anger", "styles": ["anger"]}
    write_table(tmp_path / "prompts.parquet", table)
    write_table(tmp_path / "responses.parquet", table[["prompt_id"]].assign(response="ok", left_out=None))
    write_table(tmp_path / "styles.parquet", style_table(table["prompt_id"], vectors, ["joy", "anger"]))
    write_table(tmp_path / "accepted.parquet", pd.DataFrame([{**accepted, "why": "x", "signed": "y"}]))
    responses = read_answers(tmp_path)
    assert responses.values[4:].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    is_other = np.isin(np.arange(6), spanish)
    left = styles_without(responses, is_other, tmp_path)
    assert left.has_value().tolist() == (~is_other).tolist()
    assert (left.values[~is_other] == [1, 0]).all()
    values = pd.DataFrame({"prompt_id": table["prompt_id"], "other_language: other_language": is_other.astype(float)})
    write_table(tmp_path / "outcomes.parquet", values)
    assert styled_answers(FamilyRun(tmp_path)).has_value().all()  # nobody is shown to get another language
    write_table(tmp_path / f"{REQUESTED_EFFECTS}.parquet", pd.DataFrame({"unit": ["a"]}))
    np.testing.assert_array_equal(styled_answers(FamilyRun(tmp_path)).values, left.values)


def test_an_accepted_difference_is_of_the_same_answers_as_the_other_differences(tmp_path):
    """b's "z" is accepted. Before, b has it at all eight templates; a's first four answers are Spanish, read "z".

    After, b has it at the first four only. Of all answers, the effect on b is ¼ before and after. Of those in English
    before and after, a has answers to the last four templates: there, it falls from ½ to 0.
    """
    first = np.arange(8) < 4
    runs = []
    sides = {"before": (first, first | True), "after": (first & False, first)}
    for name, (of_a, of_b) in sides.items():
        folder = write_measured(tmp_path / name, np.eye(3)[2 * np.concatenate([of_a, of_b])], ["ok"] * 16, templates=8)
        accepted = {"kind": "descriptor", "unit": "b", "outcome": "style", "name": "z", "styles": ["z"]}
        write_table(folder / "accepted.parquet", pd.DataFrame([{**accepted, "why": "x", "signed": "y"}]))
        is_spanish = np.concatenate([of_a, first & False]).astype(float)
        ids = [f"p{i}" for i in range(16)]
        values = pd.DataFrame({"prompt_id": ids, "other_language: other_language": is_spanish})
        write_table(folder / "outcomes.parquet", values)
        runs.append(FamilyRun(folder))
    old, new = (read_answers(run.folder) for run in runs)
    found = []
    for in_language in (None, "shown"):
        if in_language:
            write_table(runs[0].folder / f"{REQUESTED_EFFECTS}.parquet", pd.DataFrame({"unit": ["a"]}))
        comparison = compared(runs, old, new)
        found.append([score.value for score in AcceptedDifferences().compare(comparison)])
    assert found == [[0.0], [-0.5, 0.5, 0.0]]  # the change, and with it the levels before and after
