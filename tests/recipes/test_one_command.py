"""`evenhand measure MODEL` and nothing else: every kind of model, the folder of its run, and its precision."""

import csv
import json
import math
import shutil
from pathlib import Path

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.runs.record import read_run
from evenhand.evaluation.score import Form, find_score, read_scores
from evenhand.recipes import testbed
from evenhand.recipes.automatic import folder_name, resolve, with_precision
from evenhand.recipes.check import check_findings
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import parse
from evenhand.recipes.command_settings import CheckSettings, CompareSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.tuning_settings import LoopSettings
from tests import tiny_checkpoints
from tests.fault_server import serving
from tests.testbed_settings import generation_bias

PAIRS = "more,less\nMany bakers are generous.,Many pilots are generous.\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# 60 descriptors and all templates would take minutes.
TEMPLATES = ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]
SHORT = ("--generation_bias.permutations", "39", "--report_to", "none")
FEW = ("--descriptors", "13", "--prompts.filters", json.dumps({"template": TEMPLATES}), *SHORT)


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    """An empty folder in which commands run, with a hub's cache of its own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path / "hub"), raising=False)
    folder = tmp_path / "workplace"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def gguf(workplace):
    # Random weights answer in no language, which the shipped classifier cannot read.
    return [str(tiny_checkpoints.gguf(workplace / "gguf")), "--style_classifier", str(testbed.STYLE_CLASSIFIER)]


def folder(workplace):
    shutil.copytree(testbed.DIALOGUE_MODEL, workplace / "a_model")
    return ["a_model"]


def hub_id(workplace):
    repository = workplace.parent / "hub" / "models--some-org--some-model"
    shutil.copytree(testbed.DIALOGUE_MODEL, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return ["some-org/some-model"]


def responses(workplace):
    rows = [(f"I'm {who}.", who, "ability", f"t{n}", "I am sorry.") for who in ("deaf", "tall") for n in range(3)]
    with (workplace / "logs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "descriptor", "axis", "template", "response"), *rows])
    return ["support-bot", "--responses", "logs.csv"]


@pytest.mark.parametrize(
    ("given", "name"),
    [(gguf, "tiny"), (folder, "a_model"), (hub_id, "some-model"), (responses, "support-bot")],
)
def test_a_model_and_nothing_else_is_measured(workplace, given, name):
    assert main(["measure", *given(workplace), *FEW]) == 0
    settings, record = read_run(workplace / "runs" / name, "measure", "run")
    assert record["state"] == "finished"
    assert settings["generation_bias"]["outcomes"] == ["language", "refusal", "length"]


def test_outcomes_are_measured_of_answers_that_the_shipped_classifier_cannot_read(workplace, capsys):
    """Half of the answers to two of six people are refusals, all in Spanish; styles are an error, refusals are not."""
    answers = (
        "Me gusta mucho cocinar con mi familia los domingos.",
        "Eso es muy interesante, cuéntame más de tu vida.",
    )
    refused = "I'm sorry, but I can't help with that."
    rows = []
    for who in ("deaf", "tall", "blind", "old", "young", "short"):
        for number in range(8):
            given = [answers[number % 2], refused if who in ("deaf", "blind") else answers[0]]
            rows += [(f"I'm {who} {number}.", who, "ability", f"t{number}", answer) for answer in given]
    with (workplace / "logs.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("text", "descriptor", "axis", "template", "response"), *rows])
    for _ in range(2):  # the second time the run is finished
        assert main(["measure", "bot", "--responses", "logs.csv", *SHORT]) == 2
        error = capsys.readouterr().err.splitlines()[-1]
        assert "generation_bias.style_classifier: go_emotions reads English" in error
        assert "--style_classifier" in error
    scores = read_scores(workplace / "runs" / "bot" / "scores.json")
    assert find_score(scores, "refusal", Form.MEAN).value == pytest.approx(16 / 96)
    assert find_score(scores, "refusal", Form.SPREAD).value == pytest.approx(0.25 * math.sqrt(16 / 15))
    assert math.isnan(find_score(scores, "fgb", Form.POOLED_CORRECTED).value)
    assert "go_emotions reads English" in (workplace / "runs" / "bot" / "report.html").read_text(encoding="utf-8")


def test_a_served_model_and_nothing_else_is_measured(workplace):
    with serving() as (url, _):
        assert main(["measure", "some-model:7b", "--server", url, *FEW]) == 0
    settings, _ = read_run(workplace / "runs" / "some-model-7b", "measure", "run")
    assert settings["model"]["server"] == url


def test_runs_of_two_models_of_one_name_have_two_folders(workplace):
    pairs = ["--metrics", "sentence_pairs", "--sentence_pairs.pairs", "pairs.csv", "--report_to", "none"]
    (workplace / "pairs.csv").write_text(PAIRS)
    for parent in ("a", "b"):
        shutil.copytree(testbed.MASKED_MODEL, workplace / parent / "checkpoint-500")
    config = json.loads((workplace / "b" / "checkpoint-500" / "config.json").read_text())
    (workplace / "b" / "checkpoint-500" / "config.json").write_text(json.dumps({**config, "note": "another"}))
    for parent in ("a", "b", "a", "b"):
        assert main(["measure", f"{parent}/checkpoint-500", *pairs]) == 0
    first, second = sorted(path.name for path in (workplace / "runs").iterdir())
    assert first == "checkpoint-500" and len(second) == len("checkpoint-500-") + 6
    assert read_run(workplace / "runs" / second, "measure", "run")[0]["model"]["name"].endswith("b/checkpoint-500")


@pytest.mark.parametrize(
    ("name", "expected"), [("org/model", "model"), ("a/b.gguf", "b"), ("x:7b", "x-7b"), ("..", "work"), ("", "measure")]
)
def test_the_folder_has_the_models_name(name, expected, tmp_path, monkeypatch):
    (tmp_path / "work" / "inside").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work" / "inside")
    assert folder_name(name) == expected


def test_a_loop_has_another_folder_than_a_measurement():
    measured, looped = (resolve(parse([command, "org/model"])).output_dir for command in ("measure", "loop"))
    assert (str(measured), str(looped)) == ("runs/model", "runs/model-loop")


@pytest.mark.parametrize(
    ("settings", "variable", "expected"),
    [
        ({"model": {"name": "m"}}, "bfloat16", "bfloat16"),
        ({"model": {"name": "m"}}, "float32", "float32"),
        ({"model": {"name": "m", "dtype": "float16"}}, "bfloat16", "float16"),
        ({"model": {"name": "m"}, "metrics": ["sentence_pairs"]}, "bfloat16", "float32"),  # rounding changes its scores
        ({"model": {"name": "m", "server": "http://localhost/v1"}}, "bfloat16", "auto"),
        ({"model": {"name": "m"}, "responses": "logs.csv"}, "bfloat16", "auto"),
    ],
)
def test_the_precision_is_chosen_once(settings, variable, expected, monkeypatch):
    monkeypatch.setenv("EVENHAND_DTYPE", variable)
    assert with_precision(MeasureSettings(**settings), None).model.dtype == expected


def test_a_precision_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setenv("EVENHAND_DTYPE", "int3")
    with pytest.raises(InputError, match="EVENHAND_DTYPE: 'int3'"):
        with_precision(MeasureSettings(model="m"), None)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs of one model: in float32, in bfloat16, and one that went on as bfloat16 became the default."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("float32", "bfloat16"):
            patch.setenv("EVENHAND_DTYPE", name)
            measure(measurement(folder / name))
        measure(measurement(folder / "float32"))  # nothing to do, and no error
    return folder


def measurement(folder):
    return MeasureSettings(
        model=ModelSettings(name=str(testbed.DIALOGUE_MODEL)),
        prompts={"descriptors": 13, "filters": {"template": TEMPLATES}},
        generation_bias=generation_bias(permutations=40, relevance=False, neutral_dialogue=None, outcomes=[]),
        decoding={"arguments": {"max_new_tokens": 8}},
        output_dir=folder,
        report_to="none",
    )


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_a_run_has_the_precision_of_its_weights(runs, name):
    settings, record = read_run(runs / name, "measure", "run")
    assert settings["model"]["dtype"] == record["identity"]["model.dtype"] == name
    assert json.loads((runs / name / "model_facts.json").read_text())["model"]["dtype"] == name


def test_runs_of_different_precisions_are_not_compared(runs, tmp_path):
    both = {"before": runs / "float32", "after": runs / "bfloat16"}
    with pytest.raises(InputError, match=r"after: .*in bfloat16.*in float32.*--dtype float32"):
        compare(CompareSettings(**both, output_dir=tmp_path / "compare", report_to="none"))
    with pytest.raises(InputError, match=r"run: .*--dtype float32"):
        check_findings(CheckSettings(run=runs / "bfloat16", against=runs / "float32"))


def test_a_loop_goes_on_from_a_finished_measurement(runs, workplace):
    """It measures the base model no more, and the method's model as the base model was measured."""
    run = runs / "float32"
    before = {path: path.read_bytes() for path in run.iterdir() if path.is_file()}
    flags = ["--methods", "borrowed_opening", "--allow_no_bias", "--report_to", "none"]
    assert main(["loop", str(run), *flags]) == 0
    folder = workplace / "runs" / f"{testbed.DIALOGUE_MODEL.name}-loop"
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["borrowed_opening"]
    base, _ = read_run(run, "measure", "run")
    after, _ = read_run(folder / "borrowed_opening" / "after", "measure", "run")
    assert after["method"] == "borrowed_opening"
    assert all(after[name] == base[name] for name in ("prompts", "decoding", "seed"))
    compared, _ = read_run(folder / "borrowed_opening" / "compare", "compare", "run")
    assert Path(compared["before"]).resolve() == run.resolve()
    links = json.loads((folder / "sweep.json").read_text())["links"]
    assert (folder / links[-1]["path"]).resolve() == (run / "report.html").resolve()
    assert {path: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


@pytest.mark.parametrize(
    "flags", [["--descriptors", "14"], ["--dtype", "bfloat16"], ["--seed", "3"], ["--model", "another"]]
)
def test_a_loop_measures_as_the_run_did(runs, flags):
    with pytest.raises(InputError, match=f"{flags[0].strip('-')}.*leave it out"):
        resolve(parse(["loop", str(runs / "float32"), *flags]))


def test_a_loop_needs_a_measurement_of_a_model(runs, tmp_path):
    with pytest.raises(InputError, match="^base_run: "):
        resolve(LoopSettings(base_run=tmp_path))


def test_a_loop_needs_a_run_of_generation_bias(tmp_path):
    run = str(tmp_path / "run")
    (tmp_path / "pairs.csv").write_text(PAIRS)
    flags = ["--metrics", "sentence_pairs", "--sentence_pairs.pairs", str(tmp_path / "pairs.csv")]
    assert main(["measure", str(testbed.MASKED_MODEL), *flags, "--report_to", "none", "--output_dir", run]) == 0
    with pytest.raises(InputError, match=r"^base_run: .*sentence_pairs"):
        resolve(parse(["loop", run]))
