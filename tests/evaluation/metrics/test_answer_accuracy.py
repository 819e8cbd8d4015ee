"""Accuracy by who asks: questions from files, answers of a model by hand, and a planted difference."""

import json
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics import answer_accuracy as accuracy
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from tests.recorded_runs import change_record, write_run

QUESTIONS = [{"goal": f"Question {n}?", "sol1": "yes", "sol2": "no, no", "label": n % 2} for n in range(5)]


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    return path


def test_questions_are_evenly_spaced_and_their_labels_may_be_in_a_file(questions, tmp_path):
    read = accuracy.read_questions(accuracy.Settings(questions=questions, n_questions=3))
    assert read["goal"].tolist() == ["Question 0?", "Question 2?", "Question 4?"]
    (tmp_path / "labels").write_text("1\n1\n1\n1\n0\n")
    read = accuracy.read_questions(accuracy.Settings(questions=questions, labels=tmp_path / "labels", n_questions=9))
    assert read["label"].tolist() == [1, 1, 1, 1, 0]
    with pytest.raises(InputError, match=r"^answer_accuracy\.questions: "):
        accuracy.read_questions(accuracy.Settings())
    table = tmp_path / "questions.csv"
    pd.DataFrame(QUESTIONS).to_csv(table, index=False)
    assert accuracy.read_questions(accuracy.Settings(questions=table, n_questions=9))["label"].isin((0, 1)).all()


def test_a_question_with_other_choices_is_another_question(questions):
    """Three rows of one goal: one has other choices, one repeats a row."""
    with questions.open("a") as file:
        file.write(json.dumps({**QUESTIONS[0], "sol1": "perhaps", "label": 1}) + "\n" + json.dumps(QUESTIONS[0]) + "\n")
    read = accuracy.read_questions(accuracy.Settings(questions=questions, n_questions=9))
    assert read["goal"].tolist() == [f"Question {n}?" for n in (0, 1, 2, 3, 4, 0)]
    assert read["sol1"].tolist()[-1] == "perhaps"


@pytest.mark.parametrize("change", [{"sol1": 4}, {"sol2": ""}, {"goal": None}])
def test_choices_that_are_no_texts_are_errors(questions, change):
    questions.write_text(json.dumps({**QUESTIONS[0], **change}) + "\n")
    with pytest.raises(InputError, match=r"^answer_accuracy\.questions: "):
        accuracy.read_questions(accuracy.Settings(questions=questions))


def test_the_choice_with_the_larger_log_likelihood_per_character_is_the_answer(questions, tmp_path, monkeypatch):
    """log p is −1 for "yes" (3 characters) and −1 for "no, no" (6), so the second choice is always the answer."""

    class Certain:
        is_chat = True

        def close(self):
            pass

        def log_likelihood(self, pairs):
            assert set(pairs["persona"].str[:14]) == {"About the user"}
            yield pd.DataFrame({"log_likelihood": -1.0}, index=pairs.index)

    monkeypatch.setattr(FamilyConfig, "open_model", lambda self, tag=None: Certain())
    settings = accuracy.Settings(questions=questions, n_questions=5)
    prompts = PromptSettings(cues=["profile"], descriptors=13, answers_per_cell=2)
    folder = write_run(tmp_path / "run", "measure")
    change_record(folder, fingerprint="a fingerprint")
    run = Store(folder, "a fingerprint", Tracker())
    table = accuracy.AnswerAccuracy()._answers(run, FamilyConfig(prompts=prompts, settings=settings))
    assert len(table) == 13 * 5 * 2
    assert (table["correct"] == table["label"]).all()


def test_a_person_who_gets_fewer_right_answers_is_shown():
    """Answers are right with 0.8, to "old" people with 0.2; differences of questions do not matter."""
    rng, rows = np.random.default_rng(0), []
    for question in range(60):
        for person in ("deaf", "old", "tall", "rich"):
            for _ in range(2):
                correct = rng.random() < (0.2 if person == "old" else 0.8)
                rows.append({"template": question, "descriptor": person, "axis": "", "correct": float(correct)})
    table = pd.DataFrame(rows)
    scores, effects = accuracy.accuracy_scores(table, table["template"].to_numpy(), 199, 0, {})
    spread, mean, *shown = scores
    assert spread.name == "answer_accuracy_spread" and spread.p_value < 0.05
    assert spread.interval[0] < 0.3 < spread.interval[1]  # √(Var(0.8, 0.2, 0.8, 0.8)), ddof 1
    assert mean.value == pytest.approx(0.65, abs=0.06)
    assert {"descriptor": "old"} in [score.group for score in shown]
    assert accuracy.AnswerAccuracy().find_verdict(SimpleNamespace(scores=scores)).kind == "depends"
    old = next(score for score in shown if score.group == {"descriptor": "old"})
    assert old.interval[0] < -0.45 < old.interval[1] and set(effects["unit"]) == {"deaf", "old", "tall", "rich"}


def test_its_effects_are_no_table_of_generation_bias(tmp_path, monkeypatch):
    """Both families may be measured in one run, and each has a table of effects."""
    monkeypatch.setattr(FamilyConfig, "open_model", lambda self: SimpleNamespace(description={}))
    folder = write_run(tmp_path / "run", "measure")
    change_record(folder, fingerprint="a fingerprint")
    run = Store(folder, "a fingerprint", Tracker(), inputs={"dataset": ""})
    run.write("effects", pd.DataFrame({"style": ["joy"]}))
    columns = {"template": [0, 0, 1, 1], "descriptor": ["a", "b"] * 2, "axis": "", "correct": [1.0, 0.0, 1.0, 1.0]}
    columns |= {"goal": columns["template"], "sol1": "a", "sol2": "b"}
    accuracy.AnswerAccuracy().score(run, FamilyConfig(settings=accuracy.Settings()), pd.DataFrame(columns))
    assert run.read("effects")["style"].tolist() == ["joy"]
    assert set(run.read(accuracy.EFFECTS)["unit"]) == {"a", "b"}


def answered(*rows):
    """A run whose answers are (prompt_id, label of the question, whether the answer was correct)."""
    table = pd.DataFrame(rows, columns=["prompt_id", "label", "correct"]).assign(goal="g", sol1="a", sol2="b")
    return SimpleNamespace(table=lambda name: table, signature=lambda metric: {}, folder="run")


def test_runs_are_compared_on_their_common_questions_and_people():
    """Of p and q, one more is right; r is not known, s is in one run, and t has another right choice."""
    before = answered(("p", 0, 0.0), ("q", 0, 1.0), ("r", 0, math.nan), ("s", 0, 1.0), ("t", 0, 1.0))
    after = answered(("t", 1, 0.0), ("r", 0, 1.0), ("q", 0, 1.0), ("p", 0, 1.0))
    change, *levels = accuracy.AnswerAccuracy().compare(None, before, after, None)
    assert [(level.group, level.value, level.n) for level in levels] == [
        ({"run": "before"}, 0.5, 2),
        ({"run": "after"}, 1, 2),
    ]
    assert (change.value, change.n, change.n_left_out) == (0.5, 2, 4)  # r, s, and both of t
    assert accuracy.AnswerAccuracy().headline([change]) == change
    with pytest.raises(InputError, match="^after: "):
        accuracy.AnswerAccuracy().compare(None, before, answered(("u", 0, 1.0)), None)


def test_a_run_without_likelihoods_says_so():
    table = pd.DataFrame({"template": ["q"] * 4, "descriptor": list("abab"), "axis": "", "correct": np.nan})
    spread, mean = accuracy.accuracy_scores(table, np.zeros(4, dtype=int), 9, 0, {})[0]
    assert (mean.reason, mean.n_left_out) == ("no choice has a likelihood", 4) and np.isnan(spread.value)


def test_more_people_who_get_equal_answers_make_no_mean_surer():
    """Of four questions, 2 are right before and 3 after: ½ ± t₃ √(⅓ / 4), and ¼ ± t₃ √(¼ / 4), whoever asks them."""
    right = {"before": [0.0, 0.0, 1.0, 1.0], "after": [1.0, 0.0, 1.0, 1.0]}
    people = [f"p{number}" for number in range(50)]
    tables = {}
    for side, correct in right.items():
        rows = [
            (f"{question} {person}", str(question), value)
            for question, value in enumerate(correct)
            for person in people
        ]
        table = pd.DataFrame(rows, columns=["prompt_id", "goal", "correct"])
        tables[side] = table.assign(sol1="a", sol2="b", label=0, axis="", template=table["goal"], descriptor=people * 4)
    before, after = (
        SimpleNamespace(table=lambda name, table=table: table, signature=lambda metric: {}, folder="run")
        for table in tables.values()
    )
    (change,) = accuracy.AnswerAccuracy().compare(None, before, after, None)
    assert change.interval == pytest.approx((0.25 - 3.182446 * 0.25, 1))  # cut at 1
    assert change.p_value == pytest.approx(0.391, abs=1e-3)  # t = 1 with three degrees of freedom
    table = tables["before"]
    (_, mean), _ = accuracy.accuracy_scores(table, accuracy.question_codes(table), 0, 0, {})
    assert (mean.value, mean.n) == (0.5, 200) and mean.interval == (0, 1)  # ½ ± 0.92, cut
