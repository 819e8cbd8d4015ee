"""The command line: strict settings from flags and files, and one-line errors."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from evenhand.evaluation import metrics as families
from evenhand.evaluation.doors import SHORT_NAMES
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.settings import as_settings, checked
from evenhand.recipes import user_commands
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import parse, positional, read_settings, settings_in
from evenhand.recipes.command_settings import COMMANDS
from evenhand.recipes.commands import COMMANDS as COMMAND_PURPOSES
from evenhand.recipes.commands import USER_COMMANDS
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.tuning_settings import LabelSettings


def error_line(capsys, *arguments):
    """Run a command that fails; return its one-line error."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    out = out.replace("[INFO] Running in WANDB offline mode\n", "")  # W&B prints it when it is first imported
    assert out == "" and err.count("\n") == 1 and err.startswith("evenhand")
    return err


def test_flags_override_files_which_override_defaults(written):
    file = written("prompts: {answers_per_cell: 7}\nseed: 3\n")
    settings = read_settings("measure", file, {"seed": "5"})
    assert (settings.prompts.answers_per_cell, settings.seed, settings.decoding) == (7, 5, MeasureSettings().decoding)
    assert (
        read_settings("measure", written('prompts: {answers_per_cell: "7"}')).prompts.answers_per_cell == 7
    )  # quoted, as pydantic
    file = written("measure: {prompts: {answers_per_cell: 7, split_by: template}}\n")
    settings = read_settings("loop", file, {"measure.prompts.answers_per_cell": "5", "tune.training.epochs": "2"})
    assert (settings.measure.prompts.answers_per_cell, settings.measure.prompts.split_by) == (5, "template")
    assert settings.tune.training.epochs == 2
    settings = read_settings("measure", written("prompts: {filters: {a: [1]}}"), {"prompts.filters": "{b: [2]}"})
    assert settings.prompts.filters == {"b": [2]}


def test_flags_are_lists_mappings_null_numbers_or_text(written):
    flags = {"metrics": "sentence_pairs, generation_bias", "prompts.filters": "{axis: [age]}"}
    settings = read_settings("measure", None, {**flags, "prompts.descriptors": "null"})
    assert settings.metrics == ["sentence_pairs", "generation_bias"]
    assert (settings.prompts.filters, settings.prompts.descriptors) == ({"axis": ["age"]}, None)
    for text, expected in (("0,1,2", [0, 1, 2]), ("[3]", [3]), ("4", [4])):
        assert read_settings("ablate", None, {"seeds": text}).seeds == expected
    for text in ("1e-3", "0.001", "1.0e-3"):
        file = written(f"training: {{learning_rate: {text}}}")
        assert read_settings("tune", file) == read_settings("tune", None, {"training.learning_rate": text})
        assert read_settings("tune", file).training.learning_rate == 0.001
    for text in ("1234567", "1e5", "no", "null_model", "2020-01-01"):
        assert read_settings("measure", None, {"model.revision": text}).model.revision == text


@pytest.mark.parametrize("flag", ["model", "model.name"])
def test_a_plain_value_is_the_name_of_a_model(written, flag):
    assert read_settings("measure", None, {flag: "gpt2"}).model == ModelSettings(name="gpt2")
    assert read_settings("measure", written("model: gpt2"), {"model.dtype": "bfloat16"}).model == ModelSettings(
        name="gpt2", dtype="bfloat16"
    )


def test_a_model_must_be_given(capsys):
    message = "model: none is given; give --model NAME, a Hugging Face id or a folder, or begin with --config testbed"
    assert message in error_line(capsys, "measure", "-q")
    assert message in error_line(capsys, "loop", "--methods", "rejection", "--report_to", "none", "-q")


def test_a_loop_needs_a_model(capsys):
    assert "model: none is given" in error_line(capsys, "loop", "-q", "--report_to", "none")


@pytest.mark.parametrize("words", [("measure", "testbed"), ("loop", "--model", "testbed"), ("screen", "testbed")])
def test_a_config_in_place_of_a_model_is_answered_with_its_command(capsys, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = "model: 'testbed' is no model but a shipped config; run `evenhand measure --config testbed`."
    assert message in error_line(capsys, *words, "-q")
    (tmp_path / "testbed").mkdir()
    assert parse(["measure", "testbed"]).model.name == "testbed"


def test_a_folder_of_a_loop_is_no_model_and_names_what_is_in_it(capsys, tmp_path):
    (tmp_path / "sweep.json").write_text("{}")
    assert f"model: {tmp_path} is the folder of a loop" in error_line(capsys, "loop", str(tmp_path), "-q")
    adapter = tmp_path / "distill" / "tune" / "adapter"
    adapter.mkdir(parents=True)
    (adapter / "adapter_model.safetensors").touch()
    assert str(adapter) in error_line(capsys, "measure", str(tmp_path), "--report_to", "none", "-q")


def test_a_model_needs_no_flag_and_common_settings_have_short_names():
    short = [name.rpartition(".")[2] for name in SHORT_NAMES]
    assert short == [  # documented: what one means is never changed
        "model",
        "server",
        "dtype",
        "device",
        "metrics",
        "capabilities",
        "descriptors",
        "answers_per_cell",
        "cues",
        "language",
        "style_classifier",
        "second_style_classifier",
        "style_clusters",
        "outcomes",
        "accepted",
        "until",
        "max_difference",
        "max_rise",
        "against",
    ]
    assert {setting.name for setting in settings_in(MeasureSettings)} >= set(SHORT_NAMES)
    flags = ["--dtype", "bfloat16", "--descriptors", "24", "--style_classifier", "c", "--max_new_tokens", "8"]
    measured = parse(["measure", "gpt2", *flags])
    looped = parse(["loop", "gpt2", *flags]).measure
    for settings in (measured, looped):
        assert settings.model == ModelSettings(name="gpt2", dtype="bfloat16")
        assert settings.prompts.descriptors == 24 and settings.generation_bias.style_classifier.name == "c"
        assert settings.decoding.arguments == {"max_new_tokens": 8}
    assert parse(["measure", "--model", "gpt2"]).model == parse(["measure", "gpt2"]).model
    with pytest.raises(InputError, match="^model: "):
        parse(["measure", "gpt2", "--model", "other"])


@pytest.mark.parametrize(("text", "expected"), [("decided", "decided"), ("3", 3.0), ("null", None)])
def test_until_is_a_word_or_a_number(text, expected):
    assert parse(["measure", "gpt2", "--until", text]).generation_bias.until == expected


def test_choices_are_of_settings_with_no_other_values():
    choices = {setting.name: setting.choices for setting in settings_in(MeasureSettings)}
    assert choices["split"] == ["measure", "train", "all"]
    assert choices["prompts.untuned_by"] == ["descriptor", "axis", "template", "cue", "null"]
    for name in ("generation_bias.until", "prompts.cues", "sentence_pairs.columns", "output_dir"):
        assert choices[name] == []


@pytest.mark.parametrize("command", ["measure", "loop"])
def test_a_size_is_short_for_two_settings_which_override_it(command, written):
    def prompts(*flags):
        settings = parse([command, "gpt2", *flags])
        return getattr(settings, "measure", settings).prompts

    assert prompts("--size", "full") == PromptSettings(descriptors=200, answers_per_cell=4)
    assert prompts("--size", "quick") == prompts() == PromptSettings(descriptors=60, answers_per_cell=2)
    assert prompts("--size", "full", "--descriptors", "24") == PromptSettings(descriptors=24, answers_per_cell=4)
    with pytest.raises(InputError, match="size"):
        prompts("--size", "huge")


def test_only_measured_families_have_settings():
    settings = read_settings("measure", None, {"metrics": "sentence_pairs", "sentence_pairs.pairs": "crows_pairs"})
    assert settings.sentence_pairs.pairs == "crows_pairs" and settings.generation_bias is None
    assert {name for name in as_settings(settings) if name in families.names()} == {"sentence_pairs"}
    flags = {"loop.measure.metrics": "sentence_pairs", "loop.measure.generation_bias.permutations": "3"}
    with pytest.raises(InputError, match=r"loop\.measure\.generation_bias: .*sentence_pairs"):
        read_settings("ablate", None, flags)


@pytest.mark.parametrize(
    ("command", "text", "message"),
    [
        ("measure", "prompts: {answer_per_cell: 4}", "did you mean 'answers_per_cell'?"),
        ("loop", "tune: {training: {learning_rate: -1}}", "tune.training.learning_rate: -1 "),
        ("measure", "model: !!python/object:os.system {}", "is not YAML"),
        ("label", "seed: 1\nmethod: {}\nseed: 2", "the key 'seed' stands twice"),
        ("label", "[" * 5000, "is not YAML"),
        ("label", "- a", "holds list"),
    ],
)
def test_an_error_in_a_file_names_file_and_field(written, command, text, message):
    with pytest.raises(InputError) as error:
        read_settings(command, file := written(text))
    assert message in str(error.value) and str(file) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["label", "--quantile", "2"], "quantile: '2' cannot be used: Input should be less than 1"),
        (["label", "--quantil", "0.5"], "did you mean --quantile?"),
        (
            ["measure", "m", "--style_classifier.judge.samples", "3"],
            "it has no flag; set generation_bias.style_classifier.judge.samples in a YAML file, and give --config",
        ),
        (["measure", "m", "--judge.cache", "c"], "has no flag; set generation_bias.style_classifier.judge.cache or "),
        (["measure", "m", "--generation_bias.until", "x"], "command line: generation_bias.until: 'x' cannot be used"),
        (["measur"], "did you mean 'measure'?"),
    ],
)
def test_an_error_on_the_command_line_is_one_line_and_status_2(capsys, calls, arguments, message):
    assert message in error_line(capsys, *arguments)
    assert calls == []


def test_groups_can_be_null_and_values_need_no_flag(calls):
    flags = {"generation_bias.second_style_classifier": "null"}
    assert read_settings("measure", None, flags).generation_bias.second_style_classifier is None
    assert parse(["report", "a", "b"]).runs == [Path("a"), Path("b")]
    assert parse(["check", "a", "--max_pooled_fgb", "1"]).run == Path("a")
    compared = parse(["compare", "a", "b", "--labels", "c"])
    assert (compared.before, compared.after, compared.labels) == (Path("a"), Path("b"), Path("c"))
    for command, cls in COMMANDS.items():  # a run that a command is about has one spelling
        for name in positional(cls):
            with pytest.raises(InputError, match="no such flag|no such argument"):
                parse([command, f"--{name}", "a"])
    assert parse(["rate", "--summary"]).summary


@pytest.mark.parametrize("command", COMMANDS)
def test_settings_survive_yaml_and_pickle(command):
    settings = COMMANDS[command]()
    assert checked(COMMANDS[command], yaml.safe_load(yaml.safe_dump(as_settings(settings))), "file") == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.fixture
def finished_run(tmp_path):
    """Settings of a finished run of `label`, whose config names another run by a path relative to its folder."""
    folders = {"run": tmp_path / "train", "output_dir": tmp_path / "runs" / "label"}
    settings = LabelSettings(**folders, quantile=0.8, report_to="none")
    with stage("label", settings) as run:
        run.record["n"] = 1
    return settings


def test_configs_of_runs_repeat_them_wherever_they_are(finished_run, monkeypatch, tmp_path):
    folder = finished_run.output_dir
    for file in (folder, folder / "run.json"):
        assert read_settings("label", file) == finished_run
        assert read_settings("label", file, {"quantile": "0.7"}).quantile == 0.7
    with pytest.raises(InputError, match="^--config: .*`label`.*`tune`"):
        read_settings("tune", folder)
    (tmp_path / "moved").mkdir()
    (tmp_path / "runs").rename(tmp_path / "moved" / "runs")
    moved = tmp_path / "moved" / "runs" / "label"
    assert read_settings("label", moved).run == tmp_path / "moved" / "train"


def test_a_path_that_cannot_be_used_is_one_line(capsys, tmp_path):
    for arguments in (
        ("measure", "--output_dir", str(tmp_path / ("a" * 300))),
        ("label", "a" * 300),
        ("measure", "--model", "a" * 300),
        ("report", str(tmp_path / ("a" * 300))),
        ("check", "a\0b"),
        ("measure", "--config", "a\0b"),
    ):
        assert main(arguments) == 2
        assert capsys.readouterr().err.splitlines()[-1].startswith(f"evenhand {arguments[0]}: ")


def test_without_docstrings_configs_are_listed_and_other_commands_say_why_not():
    environment = {**os.environ, "PYTHONOPTIMIZE": "2"}
    for arguments, status, text in (
        (["configs"], 0, "testbed "),
        (["measure", "--config", "testbed"], 2, "PYTHONOPTIMIZE"),
    ):
        command = [sys.executable, "-m", "evenhand", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == status and text in done.stdout + done.stderr and "Traceback" not in done.stderr


def test_a_command_of_the_user_needs_a_function_and_a_name_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(user_commands, "__path__", [str(tmp_path)])
    monkeypatch.setitem(COMMAND_PURPOSES, "nameless", "It has a function of another name.")
    settings = "from evenhand.evaluation.settings import StrictSettings\nclass Settings(StrictSettings): pass\n"
    (tmp_path / "nameless.py").write_text(f"{settings}def other(settings): pass\n")
    assert "nameless.py must define the function nameless(settings)" in error_line(capsys, "nameless", "--quiet")
    monkeypatch.setitem(USER_COMMANDS, "plan", "It hides a command of Evenhand.")
    assert "'plan' is the name of two commands" in error_line(capsys, "plan", "runs/one")
