"""A measurement with --until: it stops at a look, and goes on to its end without asking anything twice.

The same after a kill between two looks, and in several processes.
"""

import json
import math
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias import interim_looks
from evenhand.evaluation.metrics.generation_bias.answers import read_answers, sorted_by_prompt
from evenhand.evaluation.metrics.generation_bias.early_stop import Stop
from evenhand.evaluation.metrics.generation_bias.engine.estimates import (
    all_cells,
    pooled_estimate,
)
from evenhand.evaluation.metrics.generation_bias.engine.spread import excess_over_baseline
from evenhand.evaluation.metrics.generation_bias.limits import BROKEN, HOLDS
from evenhand.evaluation.metrics.generation_bias.stopping_question import Question, spread_limits
from evenhand.evaluation.model_settings import DecodingSettings, JudgeSettings, ModelSettings, StyleClassifierSettings
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import Form, find_score, read_scores
from evenhand.evaluation.statistics import level
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.sequential import plan_looks
from evenhand.evaluation.tables import read_table
from evenhand.recipes.check import check_findings
from evenhand.recipes.command_settings import CheckSettings
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from tests.fault_server import serving
from tests.testbed_settings import MODEL, generation_bias

PEOPLE = 14
TEMPLATES = 26
FIRST_LOOK = 7  # rounds: an eighth of 26 are fewer than six


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    """A look at few answers has a small share of the error: with ten draws at its level, it would take thousands."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(level, "DRAWS_AT_LEVEL", 2)
        yield


def settings(folder, url, until=None, **changed):
    values = {
        "model": ModelSettings(name="some-model", server=url),
        "prompts": PromptSettings(descriptors=PEOPLE, answers_per_cell=1),
        "generation_bias": generation_bias(
            permutations=19, outcomes=["length"], second_style_classifier=None, until=until
        ),
        "decoding": DecodingSettings(arguments={"max_new_tokens": 20}),
        "output_dir": folder,
        "report_to": "none",
    }
    return MeasureSettings(**{**values, **changed})


def pooled(folder):
    return find_score(read_scores(folder / "scores.json"), "fgb", Form.POOLED_CORRECTED)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that stopped, what was asked for it, the same run after it went on, and a run without looks."""
    folder = tmp_path_factory.mktemp("until")
    run = folder / "run"
    found = {"stopped": run, "whole": folder / "whole"}
    with serving() as (url, seen):
        before = len(seen["bodies"])
        measure(settings(run, url, until=90.0))
        found["n_stopped"] = len(seen["bodies"]) - before
        found["prompts_stopped"] = read_table(run / "prompts.parquet")
        found["score_stopped"] = pooled(run)
        found["report_stopped"] = (run / "report.html").read_text(encoding="utf-8")
        found["record_stopped"] = json.loads((run / "run.json").read_text())
        before = len(seen["bodies"])
        measure(settings(run, url, until=90.0))
        found["n_again"] = len(seen["bodies"]) - before
        measure(settings(run, url))
        found["n_going_on"] = len(seen["bodies"]) - before
        before = len(seen["bodies"])
        measure(settings(run, url))
        found["n_finished"] = len(seen["bodies"]) - before
        measure(settings(found["whole"], url))
    return found


def test_it_stops_at_the_first_look_that_decides(runs):
    prompts = runs["prompts_stopped"]
    assert len(prompts) == FIRST_LOOK * PEOPLE
    counts = prompts.groupby(["template", "descriptor"]).size().unstack()
    assert counts.shape == (FIRST_LOOK, PEOPLE)  # everybody has the same templates
    stopped = runs["record_stopped"]["stopped"]
    assert (stopped["asked"], stopped["planned"]) == (FIRST_LOOK * PEOPLE, TEMPLATES * PEOPLE)
    assert stopped["decided"] == 0
    assert stopped["requests_saved"] == {"some-model": (TEMPLATES - FIRST_LOOK) * PEOPLE}
    assert runs["n_stopped"] < 1.2 * len(prompts)  # some requests find out what the server can do
    assert "98 of 364 planned answers" in runs["report_stopped"]


def test_it_goes_on_without_asking_anything_twice(runs):
    assert runs["n_again"] == runs["n_finished"] == 0
    assert runs["n_going_on"] <= (TEMPLATES - FIRST_LOOK) * PEOPLE + runs["n_stopped"] - FIRST_LOOK * PEOPLE
    for name in ("prompts", "styles"):
        mine = read_table(runs["stopped"] / f"{name}.parquet")
        theirs = read_table(runs["whole"] / f"{name}.parquet")
        assert mine["prompt_id"].equals(theirs["prompt_id"])
    responses = read_table(runs["stopped"] / "responses.parquet")
    assert responses["response"].equals(read_table(runs["whole"] / "responses.parquet")["response"])


def cautions(folder):
    """Return the kinds of the cautions about a run."""
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))["families"]["generation_bias"]
    return [caution["kind"] for caution in facts["cautions"]]


def test_a_run_that_was_looked_at_has_wider_intervals_at_its_end(runs):
    mine = pooled(runs["stopped"])
    theirs = pooled(runs["whole"])
    assert mine.value == pytest.approx(theirs.value)
    assert mine.interval[0] < theirs.interval[0] < theirs.interval[1] < mine.interval[1]
    assert mine.n == TEMPLATES * PEOPLE
    assert runs["score_stopped"].n == FIRST_LOOK * PEOPLE
    assert {"looked_at", "intervals_after_looks"} <= set(cautions(runs["stopped"]))
    assert "looked_at" not in cautions(runs["whole"])


def test_which_intervals_account_for_the_looks(runs):
    """The scores that the report names: the same responses without looks have narrower intervals of them only."""
    wider = set()
    same = set()
    for mine, theirs in zip(*(read_scores(runs[run] / "scores.json") for run in ("stopped", "whole")), strict=True):
        assert (mine.metric, mine.form, mine.group) == (theirs.metric, theirs.form, theirs.group)
        if theirs.interval is not None:
            is_same = mine.interval == pytest.approx(theirs.interval)
            assert is_same or (mine.interval[0] <= theirs.interval[0] and theirs.interval[1] <= mine.interval[1])
            (same if is_same else wider).add((theirs.metric, theirs.form))
    of_spread = {(metric, Form.POOLED_CORRECTED) for metric in ("fgb", "pgb", "scgb")} | {("length", Form.SPREAD)}
    assert wider == of_spread | {
        (metric, Form.PLAIN) for metric in ("style_shift", "moved_answers", "difference_bound")
    }
    of_quality = {"empty_share", "mean_length", "parroting", "style_share"}
    assert same == {("length", Form.MEAN)} | {(metric, Form.PLAIN) for metric in of_quality}


def test_the_interval_after_a_decision_is_that_of_its_stop(runs):
    stop = runs["record_stopped"]["stopped"]
    high = runs["score_stopped"].interval[1]
    assert stop["rounds"] == list(plan_looks(TEMPLATES).rounds)
    assert high < spread_limits(90.0)[0]
    made = Stop(Question(90.0), rounds=(7, 26), look=0, decided=0, asked=98, planned=364)
    estimate = Estimate(0.0, 1e-4, noise=1e-4, slope=0.0)
    np.testing.assert_allclose(made.interval(estimate), estimate.interval, rtol=0.1)


def test_requests_to_a_model_and_a_judge_are_saved(tmp_path):
    """The judge's answers are log-probabilities, which differ by text; nearly all texts are different."""

    def answer(body):
        if body["model"] == "some-model":
            return {"finish_reason": "stop"}
        share = 0.5 + 0.4 * math.sin(len(body["messages"][0]["content"]))
        top = [{"token": "A", "logprob": math.log(share), "bytes": None}]
        top.append({"token": "B", "logprob": math.log(1 - share), "bytes": None})
        return {"logprobs": {"content": [{**top[0], "top_logprobs": top}], "refusal": None}}

    (tmp_path / "judge.yaml").write_text("labels: [kind, curt]\n")

    def counted(url, until, seen):
        file = {"name": str(tmp_path / "judge.yaml"), "server": url, "cache": str(tmp_path / "judged.sqlite")}
        judge = StyleClassifierSettings(name="some-judge", judge=JudgeSettings(**file))
        only = {"second_style_classifier": None, "style_clusters": None, "outcomes": [], "permutations": 0}
        before = len(seen["bodies"])
        bias = generation_bias(style_classifier=judge, until=until, **only)
        measure(settings(tmp_path / "run", url, generation_bias=bias))
        return Counter(body["model"] for body in seen["bodies"][before:])

    with serving(choice=answer) as (url, seen):
        first = counted(url, 90.0, seen)
        saved = stop_of(tmp_path / "run")["requests_saved"]
        page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
        rest = counted(url, None, seen)
    n_saved = (TEMPLATES - FIRST_LOOK) * PEOPLE
    assert saved == {"some-model": n_saved, "some-judge": n_saved}
    assert "98 of 364" in page
    assert f"{n_saved} to some-judge" in page
    for name in saved:  # some requests find out what the server can do
        assert FIRST_LOOK * PEOPLE <= first[name] < 1.2 * FIRST_LOOK * PEOPLE
        assert n_saved <= rest[name] < n_saved + 0.2 * FIRST_LOOK * PEOPLE
    assert stop_of(tmp_path / "run")["requests_saved"] == {}  # by a whole run


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"until": None, "max_difference": 5.0}, "max_difference"),
        ({"until": 3.0, "max_difference": 5.0}, "max_difference"),
        ({"until": "decided", "max_difference": 5.0, "permutations": 0}, "permutations"),
        ({"until": "decided", "max_difference": 5.0, "max_rise": 10.0}, "max_difference"),
        ({"until": "decided", "max_rise": 10.0}, "max_rise"),
        ({"until": "decided", "against": Path("nothing")}, "against"),
        ({"until": "decided", "max_rise": 10.0, "against": Path("nothing")}, "against"),
    ],
)
def test_a_question_that_cannot_be_decided_is_refused_before_anything_starts(tmp_path, changed, field):
    with pytest.raises(InputError) as error:
        measure(settings(tmp_path / "run", "http://127.0.0.1:9/v1", generation_bias=generation_bias(**changed)))
    assert error.value.field == f"generation_bias.{field}"
    assert not (tmp_path / "run").exists()


def test_a_file_of_responses_has_nothing_to_ask(tmp_path):
    file = tmp_path / "logs.csv"
    rows = [f"{who},t{template},yes {template}" for who in "ab" for template in range(4)]
    file.write_text("\n".join(["descriptor,template,response", *rows]))
    with pytest.raises(InputError, match=r"until"):
        measure(settings(tmp_path / "run", None, until="decided", model=ModelSettings(name="mine"), responses=file))


LIMIT = 5.0  # of 100 answers; the built-in model is above it, and fourteen people show it at the fifth look
LOOKS_UNTIL_KILL = 2
TABLES = ("prompts", "responses", "styles")


def built_in(folder, until=None, **changed):
    few = {"permutations": 0, "outcomes": [], "relevance": False}
    few |= {"neutral_dialogue": None, "second_style_classifier": None}
    bias = generation_bias(**{**few, "until": until, **changed})
    decoding = DecodingSettings(arguments={"max_new_tokens": 8})
    return settings(folder, None, model=MODEL, generation_bias=bias, decoding=decoding)


def answer_files(folder):
    """Return when each file of answers of a run was written, in nanoseconds."""
    files = (folder / "parts" / "generation_bias" / "responses").iterdir()
    return {file: file.stat().st_mtime_ns for file in files}


def answered(folder):
    """Return the ids of the prompts in the files of answers of a run, as often as they were answered."""
    return [key for file in answer_files(folder) for key in read_table(file)["key"]]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A finished run of the built-in model that stopped when it was decided."""
    folder = tmp_path_factory.mktemp("uninterrupted") / "run"
    measure(built_in(folder, LIMIT), show=False)
    return folder


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory):
    """The folder of the same run, killed between two looks."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    looks = []
    decided_range = interim_looks.decided_range

    def killing(*arguments):
        if len(looks) == LOOKS_UNTIL_KILL:
            raise KeyboardInterrupt
        looks.append(decided_range(*arguments))
        return looks[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interim_looks, "decided_range", killing)
        with pytest.raises(KeyboardInterrupt):
            measure(built_in(folder, LIMIT), show=False)
    assert looks == [None] * LOOKS_UNTIL_KILL
    assert len(answered(folder)) == plan_looks(TEMPLATES).rounds[LOOKS_UNTIL_KILL] * PEOPLE
    return folder


@pytest.fixture
def killed(killed_once, tmp_path):
    """A copy of it."""
    return shutil.copytree(killed_once, tmp_path / "run")


def stop_of(folder):
    return json.loads((folder / "run.json").read_text())["stopped"]


@pytest.mark.slow
def test_a_run_that_was_killed_between_looks_decides_as_an_uninterrupted_one(killed, uninterrupted):
    before = answer_files(killed)
    measure(built_in(killed, LIMIT), show=False)
    assert before.items() < answer_files(killed).items()
    stop = stop_of(killed)
    assert stop == stop_of(uninterrupted)
    assert stop["decided"] == 1
    assert LOOKS_UNTIL_KILL < stop["look"] < len(stop["rounds"]) - 1
    rows = answered(killed)
    assert len(rows) == len(set(rows)) == stop["asked"]
    for name in TABLES:
        assert read_table(killed / f"{name}.parquet").equals(read_table(uninterrupted / f"{name}.parquet"))
    for mine, theirs in zip(*(read_scores(folder / "scores.json") for folder in (killed, uninterrupted)), strict=True):
        assert (mine.name, mine.group, mine.interval) == (theirs.name, theirs.group, theirs.interval)

    before = answer_files(killed)
    measure(built_in(killed), show=False)
    assert before.items() < answer_files(killed).items()
    assert sorted(answered(killed)) == sorted(read_table(killed / "prompts.parquet")["prompt_id"])
    assert stop_of(killed)["asked"] == TEMPLATES * PEOPLE


@pytest.mark.slow
def test_a_run_that_was_killed_between_looks_accounts_for_them_at_its_end(killed, whole):
    before = answer_files(killed)
    measure(built_in(killed), show=False)  # without `until`
    assert before.items() < answer_files(killed).items()
    assert sorted(answered(killed)) == sorted(read_table(killed / "prompts.parquet")["prompt_id"])
    assert stop_of(killed)["look"] == len(plan_looks(TEMPLATES).rounds) - 1
    assert "stopped" not in json.loads((whole / "run.json").read_text())
    mine = pooled(killed)
    theirs = pooled(whole)
    assert mine.value == pytest.approx(theirs.value)
    assert mine.interval[0] < theirs.interval[0] < theirs.interval[1] < mine.interval[1]


@pytest.mark.slow
def test_two_processes_stop_at_the_same_look_as_one(uninterrupted, commands, tmp_path):
    folder = tmp_path / "run"
    command = ["measure", "--config", str(uninterrupted), "--until", str(LIMIT), "--output_dir", str(folder)]
    commands.run(*command, processes=2)  # both come to their ends
    assert json.loads((folder / "run.json").read_text())["processes"] == 2
    assert stop_of(folder) == stop_of(uninterrupted)
    mine, theirs = (read_table(run / "responses.parquet") for run in (folder, uninterrupted))
    assert mine[columns.PROMPT_ID].equals(theirs[columns.PROMPT_ID])
    assert mine["response"].eq(theirs["response"]).mean() >= 0.99  # other batches round differently
    assert len(list((folder / "parts" / "generation_bias" / "responses").iterdir())) >= 2 * (
        stop_of(folder)["look"] + 1
    )


@pytest.mark.slow
def test_it_stops_when_somebody_is_shown_to_differ_by_more_than_a_limit(tmp_path):
    limit = 5.0
    measure(built_in(tmp_path / "run", "decided", permutations=199, max_difference=limit), show=False)
    stop = stop_of(tmp_path / "run")
    assert (stop["decided"], stop["question"]["max_difference"]) == (1, limit)
    assert stop["asked"] < stop["planned"]
    bound = find_score(read_scores(tmp_path / "run" / "scores.json"), "difference_bound")
    assert list(bound.interval) == stop["bounds"]
    assert limit / 100 < bound.interval[0] < bound.interval[1] == bound.value
    (found,) = check_findings(CheckSettings(run=tmp_path / "run", max_difference=limit))
    assert found.status == BROKEN
    # Pooled FGB* was not the reason to stop, so it has the interval of the look.
    score = pooled(tmp_path / "run")
    looks = plan_looks(TEMPLATES)
    measured = read_answers(tmp_path / "run")
    assert score.interval == pooled_estimate(all_cells(measured), level=looks.level(stop["look"])).estimate.interval


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run of the built-in model without looks."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    measure(built_in(folder), show=False)
    return folder


@pytest.fixture(scope="module")
def even(tmp_path_factory):
    """The same of a model on a server, whose answers do not depend on the person."""
    folder = tmp_path_factory.mktemp("even") / "run"
    with serving() as (url, _):
        measure(built_in(folder).replaced(model=ModelSettings(name="some-model", server=url)), show=False)
    return folder


RISE = 50.0  # %


@pytest.mark.slow
@pytest.mark.parametrize(
    ("baseline", "rise", "decided", "status"), [("whole", RISE, 0, HOLDS), ("even", 0.0, 1, BROKEN)]
)
def test_it_stops_when_a_gate_is_decided_and_check_says_the_same(tmp_path, request, baseline, rise, decided, status):
    against = request.getfixturevalue(baseline)
    measure(built_in(tmp_path / "new", "decided", max_rise=rise, against=against), show=False)
    stop = stop_of(tmp_path / "new")
    assert stop["decided"] == decided
    assert stop["asked"] < stop["planned"]
    found, *_ = check_findings(CheckSettings(run=tmp_path / "new", against=against, max_rise=rise))
    assert found.status == status
    # The interval is of pooled FGB* − (1 + rise) × that of the baseline, on the prompts that were asked.
    new = read_answers(tmp_path / "new")
    old = read_answers(against, only=frozenset(new.table[columns.PROMPT_ID]))
    excess = excess_over_baseline(old, sorted_by_prompt(new), 1 + rise / 100)
    of_look = plan_looks(TEMPLATES).level(stop["look"])
    assert stop["bounds"] == pytest.approx(replace(excess, level=of_look).interval)
    assert (stop["bounds"][0] > 0) == (decided == 1)
    measure(built_in(tmp_path / "new", "decided", max_rise=rise, against=against), show=False)  # is finished
    assert stop_of(tmp_path / "new") == stop


@pytest.mark.slow
def test_a_baseline_that_was_not_asked_everything_is_refused_before_anything_starts(tmp_path, uninterrupted):
    with pytest.raises(InputError) as error:
        measure(built_in(tmp_path / "run", "decided", max_rise=RISE, against=uninterrupted))
    assert error.value.field == "generation_bias.against"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_baseline_with_other_decoding_is_refused_before_anything_starts(tmp_path, whole):
    longer = DecodingSettings(arguments={"max_new_tokens": 9})
    with pytest.raises(InputError) as error:
        measure(built_in(tmp_path / "run", "decided", max_rise=RISE, against=whole).replaced(decoding=longer))
    assert error.value.field == "generation_bias.against"
    assert not (tmp_path / "run").exists()
