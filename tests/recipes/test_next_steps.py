"""The commands that a report prints as next steps can be given to the run that they are printed for."""

import math
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.advice import comparison_steps, fall_step, run_steps
from evenhand.evaluation.metrics.generation_bias.decision import DO_NOT_SHIP, MEASURE_MORE, SHIP
from evenhand.evaluation.metrics.generation_bias.findings import answers_to_show
from evenhand.evaluation.model_settings import NOWHERE, ModelSettings, ResponseFileSettings
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import BiasScore
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import parse
from evenhand.recipes.measure import family_configs, measure, read_inputs
from evenhand.recipes.settings import GENERATION_BIAS, MeasureSettings, family_config
from tests.evaluation.metrics.generation_bias.golden_pages import LANGUAGE, change, level
from tests.fault_server import serving
from tests.measured_runs import write_measured
from tests.testbed_settings import MODEL, generation_bias

TEMPLATES = {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]}


def commands(steps):
    """Return command → arguments of the `evenhand` commands in a text."""
    printed = [shlex.split(step.command) for step in steps if step.command]
    assert all(words[0] == "evenhand" for words in printed)
    return {words[1]: words[1:] for words in printed}


def check_inputs(arguments):
    """Check the settings and the inputs of a measurement, as the command does before anything slow."""
    settings = parse(arguments)
    return settings, read_inputs(family_configs(settings))


def steps_of(folder, model, template="chatml", cues=()):
    """Return the next steps of a run in which people are shown to differ."""
    prompts = PromptSettings(cues=cues)
    settings = MeasureSettings(
        model=model, prompts=prompts, generation_bias=generation_bias(), output_dir=folder, report_to="none"
    )
    signature = {"format": {"template": template}}
    scores = [BiasScore("fgb", 0.1, 0.0, (0, 2), 9, signature=signature)]
    run = FamilyRun(folder, family_config(settings, GENERATION_BIAS), common_scores=scores)
    return run_steps(run, [], is_shown=True)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_loaded_model_is_tuned_and_a_dialogue_model_gets_no_conversations(here):
    measured = write_measured(here / "runs" / "m", [[1, 0, 0]] * 8, ["a"] * 8, has_scores=True)
    found = commands(steps_of(measured, MODEL, template="none"))
    assert found.keys() == {"loop", "check"}
    assert parse(found["loop"]).base_run == Path("runs/m")
    chat = commands(steps_of(measured, ModelSettings(name=MODEL.name, system_prompt="Be kind; it's late.")))
    assert chat.keys() == {"loop", "measure", "check"}
    everyday = commands(steps_of(measured, MODEL, cues=["profile"]))
    assert everyday.keys() == {"loop", "check"}  # it has measured everyday requests already
    settings, _ = check_inputs(chat["measure"])
    assert settings.model.name == MODEL.name and settings.model.system_prompt == "Be kind; it's late."


def test_a_served_model_is_measured_again_with_its_server_and_its_system_prompt(here, capsys):
    with serving() as (url, _):
        settings = MeasureSettings(
            model=ModelSettings(name="some-model", server=url, system_prompt="Be kind.", request={"top_k": 5}),
            prompts=PromptSettings(filters=TEMPLATES, descriptors=14, answers_per_cell=2),
            generation_bias=generation_bias(permutations=9),
            output_dir=Path("runs/served"),
            report_to="none",
        )
        measure(settings, show=False)
        steps = run_steps(FamilyRun(settings.output_dir, family_config(settings, GENERATION_BIAS)), [], is_shown=True)
        found = commands(steps)
        assert found.keys() == {"plan", "measure", "check"}
        again, inputs = check_inputs(found["measure"])
        assert (again.model.server, again.model.system_prompt) == (url, "Be kind.")
        assert again.model.request == {"top_k": 5} and inputs[GENERATION_BIAS]
        assert [step.is_private for step in steps if "Be kind" in step.command] == [True]
        assert main(found["plan"]) == 0
        main(["report", str(settings.output_dir)])  # by the record, whose address is never asked
        page = (settings.output_dir / "report.html").read_text(encoding="utf-8")
        assert NOWHERE not in capsys.readouterr().out + page and "--model.server</span> <span>URL<" in page
        assert main(["loop", str(settings.output_dir)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_run_that_plan_refuses_is_not_planned(here, capsys):
    """Of one template, pooled FGB* has an interval, but not over templates."""
    write_measured(here / "runs" / "one", [[1, 0, 0], [0, 1, 0]] * 8, ["a"] * 16, has_scores=True)
    config = FamilyConfig(model=MODEL, responses=ResponseFileSettings(name=Path("answers.csv")))
    assert commands(run_steps(FamilyRun(Path("runs/one"), config), [], is_shown=True)).keys() == {"check"}
    assert main(["plan", "runs/one"]) == 2 and "one template" in capsys.readouterr().err


def test_recorded_answers_are_planned_and_checked(here, capsys):
    vectors = [[1, 0, 0], [0, 1, 0]] * 8 + [[0, 1, 0], [0, 0, 1]] * 8
    for name in ("old", "new"):
        write_measured(here / "runs" / name, vectors, ["a"] * 32, has_scores=True, templates=4)
    config = FamilyConfig(model=MODEL, responses=ResponseFileSettings(name=Path("answers.csv")))
    found = commands(run_steps(FamilyRun(Path("runs/old"), config), [], is_shown=True))
    assert found.keys() == {"plan", "check"}
    assert main(found["plan"]) == 0
    check = [{"NEW_RUN": "runs/new"}.get(word, word) for word in found["check"]]
    assert main(check) in (0, 3)

    def steps_if(advice, *still_open, **values):
        decided = Finding("decision", {"advice": advice, "open": list(map(Finding, still_open))})
        return commands(comparison_steps(Path("runs/old"), Path("runs/new"), decided, **values))

    compared = steps_if(SHIP)
    assert compared.keys() == {"audit", "check"}
    assert steps_if(DO_NOT_SHIP)["compare"] == ["compare", "runs/old", "OTHER_RUN"]
    assert steps_if(MEASURE_MORE, "costs_unknown", has_costs=False) == {"compare": ["compare", "runs/old", "runs/new"]}
    unsure = ("costs_perhaps_too_large", "no_fall_shown")
    compared |= steps_if(MEASURE_MORE, *unsure, can_score_more=True)
    assert "--generation_bias.score_all" in compared["compare"] and "plan" in compared
    assert steps_if(MEASURE_MORE, unsure[0], can_score_more=True).keys() == {"compare"}
    assert steps_if(MEASURE_MORE, unsure[0]).keys() == {"plan"}
    assert "plan" not in steps_if(MEASURE_MORE, "no_fall_shown", is_pilot=False)
    assert all(parse([{"NEW_RUN": "runs/old"}.get(word, word) for word in words]) for words in compared.values())
    assert capsys.readouterr().err == ""


def test_a_fall_that_is_not_shown_leads_to_as_many_answers_as_show_it(here):
    """From 12 to 4 of 52: the step has the number of answers to each template and person; none if the fall is shown."""
    write_measured(here / "runs" / "old", [[1, 0, 0], [0, 1, 0]] * 8, ["a"] * 16, has_scores=True, templates=4)
    sides = (level(mean=12 / 52, average=0.03, hits=12), level(mean=4 / 52, average=0.03, hits=4))
    fell = change(
        "Cuban-American", LANGUAGE, sides[0], replace(sides[1], interval=(-0.05, 0.2), certainty="inconclusive")
    )
    run = FamilyRun(Path("runs/old"), FamilyConfig(model=MODEL, prompts=PromptSettings(answers_per_cell=2)))
    step = fall_step(run, [fell])
    assert "“Cuban-American”" in step.text and "minutes a run" in step.text
    words = step.words
    n = int(words[words.index("--prompts.answers_per_cell") + 1])
    assert n == math.ceil(answers_to_show(fell) / 52 * 2) >= 4
    shown = replace(fell.values["after"], interval=(-0.05, 0.01))
    assert fall_step(run, [Finding(fell.kind, {**fell.values, "after": shown})]) is None
    of_a_file = FamilyConfig(model=MODEL, responses=ResponseFileSettings(name=Path("answers.csv")))
    assert fall_step(FamilyRun(Path("runs/old"), of_a_file), [fell]) is None
