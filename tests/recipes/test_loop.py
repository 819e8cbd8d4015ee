"""The whole loop on the testbed, small: what it leaves, and that neither a kill in any stage nor a move changes it."""

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import psutil
import pytest

from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.metrics.generation_bias.answers import read_answers
from evenhand.evaluation.metrics.generation_bias.likelihoods import EVEN_LIKELIHOODS
from evenhand.evaluation.metrics.generation_bias.measures import LIKELIHOODS, TEMPLATE_LIKELIHOODS
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.likelihood.tokens import response_perplexity
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.runs.record import run_state
from evenhand.evaluation.score import find_score, read_scores
from evenhand.recipes.cli import main
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tests.forked_commands import wait_until
from tests.parsed_page import ParsedPage
from tests.testbed_settings import CLASSIFIERS, NEUTRAL_DIALOGUE

pytestmark = pytest.mark.slow

SETTINGS = """
measure:
  prompts:
    descriptors: 26
    answers_per_cell: 2
    filters:
      noun_phrase_type: [descriptor_noun, noun_descriptor]
      template:
        - I'm {noun_phrase}.
        - I like {plural_noun_phrase}.
        - I hate {plural_noun_phrase}.
        - It's hard being {noun_phrase}.
  decoding: {batch_size: 104}
  model: package:evenhand/recipes/testbed/dialogue_model
  generation_bias: {CLASSIFIERS, permutations: 9, outcomes: [length], neutral_dialogue: NEUTRAL}
train_answers_per_cell: 2
methods: [control_tags, exchange, nearest_style, prompt]
control_tags: {targets: labels}
nearest_style: {candidates: 2}
prompt: {instruction: I like music.}
label: {quantile: 0.7}
tune:
  training: {epochs: 2, batch_size: 16, evaluations_per_epoch: 2, max_rows: 100, max_perplexity_rise: 900}
  measure_every: 12
  measure_descriptors: 4
"""
SHARED = ("before", "train", "label")
TAGGED, UNTAGGED, INSTRUCTION = "control_tags", "exchange", "I like music."
STAGES = (
    *SHARED,
    *(f"{TAGGED}/{name}" for name in ("tune", "after", "untagged", "compare")),
    *(f"{UNTAGGED}/{name}" for name in ("tune", "after", "compare")),
    *(f"{method}/{name}" for method in ("nearest_style", "prompt") for name in ("after", "compare")),
)

# What is on disk in the middle of a stage.
MIDDLE = {
    "before": "parts/generation_bias/responses/*.parquet",
    "control_tags/tune": "checkpoints/checkpoint-*/trainer_state.json",
}
SCORED = ("before", "control_tags/after", "control_tags/compare")


def arguments(file: Path, folder: Path | str, *further: str) -> list[str]:
    return ["loop", "--config", str(file), "--output_dir", str(folder), "--report_to", "none", *further]


@pytest.fixture(scope="module")
def settings():
    """The text of the loop's settings."""
    return SETTINGS.replace("NEUTRAL", NEUTRAL_DIALOGUE).replace("CLASSIFIERS", CLASSIFIERS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, commands, settings):
    folder = tmp_path_factory.mktemp("loop")
    (folder / "loop.yaml").write_text(settings)
    done = commands.run(*arguments(folder / "loop.yaml", folder / "run"))
    assert "stage 1 of 14: measure → " in done.stderr
    return folder / "run", done.stdout


def numbers(folder: Path) -> dict[str, list]:
    """Every score of the stages that are compared."""
    scores_of = {stage: read_scores(folder / stage / "scores.json") for stage in SCORED}
    return {stage: [(s.name, s.group, s.value, s.interval) for s in scores] for stage, scores in scores_of.items()}


def manifests(folder: Path) -> dict[Path, int]:
    """When each stage was finished."""
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("run.json")}


def test_pages_and_points_of_the_loop(finished):
    folder, printed = finished
    assert "pooled FGB*" in printed
    assert printed.strip().splitlines()[-1] == f"Report: {folder / 'report.html'}"
    for page in (folder, folder / TAGGED / "compare", folder / UNTAGGED / "compare"):
        assert "<html" in (page / "report.html").read_text()
    for method in (TAGGED, UNTAGGED):
        assert f"{method}/compare/report.html" in (folder / "report.html").read_text()
    points = pd.read_parquet(finished[0] / "points.parquet").set_index("method")
    assert list(points.index) == [TAGGED, UNTAGGED, "nearest_style", "prompt"]
    assert {path.parent.relative_to(folder).as_posix() for path in folder.rglob("run.json")} == {*STAGES}
    for method in points.index:
        assert points["folder"][method] == f"{method}/compare"
        scores = read_scores(finished[0] / method / "compare" / "scores.json")
        assert points["reduction"][method] == find_score(scores, "fgb", "pooled_corrected", "reduction").value
    assert points["ratio_without_tag"].notna().tolist() == [True, False, False, False]
    assert (points["minutes"] > 0).tolist() == [True, True, False, False]
    assert points["reduction_confirmed"].notna().all()


def test_every_stage_leaves_its_config_manifest_and_tables(finished):
    for stage in STAGES:
        manifest = json.loads((finished[0] / stage / "run.json").read_text())
        assert manifest["seconds"]["total"] > 0
        text = json.dumps({name: value for name, value in manifest["settings"].items() if name != "output_dir"})
        assert str(finished[0].parent) not in text
    measured = finished[0] / TAGGED / "after"
    scores = read_scores(measured / "scores.json")
    signature = find_score(scores, "fgb", "pooled_corrected").signature
    assert signature["model"]["control_tag"] == " no_bias"
    assert {"dataset", "decoding", "style_classifier", "seed", "packages"} <= set(signature)
    assert len((measured / "scores.csv").read_text().splitlines()) == len(scores) + 1


def test_the_base_scores_responses_and_training_prompts_are_others(finished):
    scored = {path.parent.name for path in finished[0].rglob("likelihoods_of_responses.parquet")}
    assert scored == {"before"}
    relevance = find_score(read_scores(finished[0] / TAGGED / "compare" / "scores.json"), "relevance", run="after")
    assert relevance.n > 0
    texts = [set(pd.read_parquet(finished[0] / side / "prompts.parquet")["text"]) for side in ("train", "before")]
    assert texts[0]
    assert not texts[0] & texts[1]


def test_the_adapter_changed_the_model_and_training_was_measured(finished):
    manifest = json.loads((finished[0] / TAGGED / "tune" / "run.json").read_text())
    assert manifest["outputs_changed"]["greedy_share"] > 0
    curves = json.loads((finished[0] / TAGGED / "tune" / "curves.json").read_text())
    assert len(curves["bias"]) >= 2
    assert len(curves["validation_loss"]) > 2


def test_rows_written_for_other_trainers_are_the_rows_of_the_tuning(finished, commands, tmp_path):
    tuned = finished[0] / TAGGED / "tune"
    commands.run("tune", "--config", str(tuned), "--write_rows", str(tmp_path / "rows"))
    recorded = json.loads((tuned / "checkpoints" / "inputs.json").read_text())["rows"]
    card = (tmp_path / "rows" / "README.md").read_text()
    assert recorded in card and "embeddings of the tags" in card  # which TRL does not train in this model


def test_a_comparison_has_the_training_and_what_the_model_does_without_its_tag(finished):
    texts = [ParsedPage((finished[0] / it / "compare" / "report.html").read_text()).text for it in (TAGGED, UNTAGGED)]
    assert all("Training" in text for text in texts)
    assert '" no_bias"' in texts[0]
    table = pd.read_parquet(finished[0] / TAGGED / "compare" / "bias_values.parquet")
    assert {"descriptor", "axis", "before", "after", "n"} <= {*table} and len(table) > 10


def test_killed_and_moved_in_the_middle_of_stages_of_each_kind_it_ends_the_same(finished, tmp_path, commands, settings):
    """And by another name and way each time: absolute in one place, relative to another."""
    (tmp_path / "loop.yaml").write_text(settings)
    folder, method = tmp_path / "run", ("--methods", TAGGED)
    for stage, middle in MIDDLE.items():
        running = commands.start(*arguments(tmp_path / "loop.yaml", folder, *method))
        wait_until(lambda: list((folder / stage).glob(middle)) or running.status() is not None)  # noqa: B023
        assert running.status() is None, f"the loop ended before the middle of {stage}: {running.stderr}"
        running.kill()
        assert run_state(folder / stage) == "running"
        folder = folder.rename(tmp_path / f"killed_in_{stage.replace('/', '_')}")
    done = commands.run(*arguments(Path("loop.yaml"), folder.name, *method), cwd=tmp_path)
    assert done.stderr.count("is finished; nothing to do") == STAGES.index(stage)
    assert numbers(folder) == numbers(finished[0])
    adapters = [run / TAGGED / "tune" / "adapter" / "adapter_model.safetensors" for run in (folder, finished[0])]
    assert sha256_of(adapters[0]) == sha256_of(adapters[1])


@pytest.fixture(scope="module")
def moved(finished, tmp_path_factory, settings):
    """A copy of the finished loop, in another place and by another name."""
    folder = tmp_path_factory.mktemp("another") / "deeper" / "place"
    shutil.copytree(finished[0], folder)
    (folder.parent / "loop.yaml").write_text(settings)
    return folder


def test_a_loop_that_was_moved_goes_on_where_it_was(finished, moved, commands):
    """Tuning reads the labels and the responses where they are now; measurements of the same adapter stay."""
    adapter = moved / TAGGED / "tune" / "adapter" / "adapter_model.safetensors"
    weights, kept = sha256_of(adapter), manifests(moved)
    for stage in (f"{TAGGED}/tune", f"{TAGGED}/compare", f"{UNTAGGED}/compare"):
        shutil.rmtree(moved / stage)
    done = commands.run(*arguments(Path("loop.yaml"), "place"), cwd=moved.parent)
    assert done.stderr.count("is finished; nothing to do") == len(STAGES) - 3
    assert sha256_of(adapter) == weights
    assert numbers(moved) == numbers(finished[0])
    again = {path.parent.as_posix() for path, when in manifests(moved).items() if when != kept[path]}
    assert again == {f"{TAGGED}/tune", f"{TAGGED}/compare", f"{UNTAGGED}/compare"}


# Methods that tune nothing.


def test_responses_that_exchange_their_style_are_candidates(finished):
    folder, _ = finished
    before = pd.read_parquet(folder / "before" / "responses.parquet")["response"]
    after = pd.read_parquet(folder / "nearest_style" / "after" / "responses.parquet")["response"]
    candidates = pd.read_parquet(folder / "nearest_style" / "after" / "candidates.parquet")
    texts = candidates["response"].to_numpy().reshape(-1, 2)
    assert (texts == after.to_numpy()[:, None]).any(axis=1).all()
    assert (texts[:, 0] == before).all()  # the response without the exchange
    assert (after != before).mean() > 0.25  # the first of two equally good candidates in half of the rows
    scores = read_scores(folder / "nearest_style" / "compare" / "scores.json")
    assert find_score(scores, "fgb", "pooled_corrected", "reduction").interval
    assert find_score(scores, "relevance", kind="kept").interval
    signature = find_score(read_scores(folder / "nearest_style" / "after" / "scores.json"), "fgb").signature
    assert signature["model"]["nearest_style"] == 2


def test_the_same_model_is_measured_with_and_without_the_instruction(finished):
    folder, _ = finished
    signatures = [
        find_score(read_scores(folder / run / "scores.json"), "fgb", "pooled_corrected").signature["model"]
        for run in ("before", "prompt/after")
    ]
    assert [signature.get("system_prompt") for signature in signatures] == [None, INSTRUCTION]
    assert signatures[0]["revision"] == signatures[1]["revision"]
    before, after = (pd.read_parquet(folder / run / "responses.parquet") for run in ("before", "prompt/after"))
    assert (before["response"] != after["response"]).any()
    for page in ("prompt/after", "prompt/compare"):
        assert f"“{INSTRUCTION}”" in (folder / page / "report.html").read_text()
    assert INSTRUCTION not in (folder / "before" / "report.html").read_text()


def test_costs_are_scored_by_the_model_without_the_instruction(finished):
    folder, _ = finished
    likelihoods = pd.read_parquet(folder / "prompt" / "compare" / f"{LIKELIHOODS}_after.parquet")["log_likelihood"][:20]
    after = read_answers(folder / "prompt" / "after")
    texts, responses = after.table["text"].tolist()[:20], after.table["response"].tolist()[:20]
    for instruction, alike in ((None, True), (INSTRUCTION, False)):
        model = load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), system_prompt=instruction))
        expected, _ = response_perplexity(model, render_contexts(model, texts, [""] * 20), responses)
        assert (likelihoods.tolist() == pytest.approx(expected.tolist(), abs=1e-3)) == alike


def test_comparisons_read_the_likelihoods_of_the_base_or_compute_the_same(finished, tmp_path):
    of_base, of_loop = (EVEN_LIKELIHOODS, TEMPLATE_LIKELIHOODS), finished[0] / "prompt" / "compare"
    before, after = tmp_path / "before", finished[0] / "prompt" / "after"
    assert not any((of_loop / f"{name}.parquet").exists() for name in of_base)
    assert main(["measure", "--config", str(finished[0] / "before"), "--output_dir", str(before)]) == 0
    compare(CompareSettings(before=before, after=after, report_to="none", output_dir=tmp_path / "compare"))
    assert all((tmp_path / "compare" / f"{name}.parquet").exists() for name in of_base)
    computed, expected = (read_scores(folder / "scores.json") for folder in (tmp_path / "compare", of_loop))
    assert [(it.name, it.group, it.value, it.interval) for it in computed] == [
        (it.name, it.group, pytest.approx(it.value, nan_ok=True), it.interval and pytest.approx(it.interval))
        for it in expected
    ]


# `accelerate launch`, whose processes are forks of one that has imported everything, as all commands of the tests are.
LAUNCH = """
import sys
from dataclasses import replace

from accelerate.commands.launch import launch_command, launch_command_parser
from torch.distributed import run

from tests.forked_commands import run_rank

start = run.elastic_launch
run.elastic_launch = lambda config, entrypoint: lambda *_: start(replace(config, start_method="fork"), run_rank)()
sys.argv = {command!r}
config = ["--config_file", "recipes/configs/accelerate/ddp.yaml", "--num_processes", "2"]
launch_command(launch_command_parser().parse_args([*config, "-m", *sys.argv]))
"""


def test_two_processes_make_the_same_tables_and_one_lost_ends_both(finished, tmp_path, commands, settings):
    (tmp_path / "loop.yaml").write_text(settings)
    folder = tmp_path / "run"
    flags = arguments(tmp_path / "loop.yaml", folder, "--methods", UNTAGGED)
    launched = commands.start("-c", LAUNCH.replace("{command!r}", repr(["evenhand", *flags])))
    after = folder / UNTAGGED / "after"
    wait_until(lambda: launched.status() is not None or list(after.glob("parts/*/*/*.parquet")))
    assert launched.status() is None, launched.stderr
    ranks = sorted(psutil.Process(launched.pid).children(), key=lambda one: one.create_time())
    assert len(ranks) == 2
    ranks[1].kill()
    assert launched.wait() == 1
    assert re.search(r"rank +: 1 .*\n +exitcode +: -9", launched.stderr), launched.stderr
    assert not any(one.is_running() for one in ranks)
    commands.run(*flags)  # one process goes on
    for stage in (*SHARED, f"{UNTAGGED}/tune"):
        assert json.loads((folder / stage / "run.json").read_text())["processes"] == 2
    is_equal = [responses_are_equal(finished[0] / stage, folder / stage) for stage in ("before", "train")]
    for stage in ("before", "train"):
        one, two = (read_scores(run / stage / "scores.json") for run in (finished[0], folder))
        assert [(it.name, it.group, it.n) for it in one] == [(it.name, it.group, it.n) for it in two]
        rel = 1e-3 if all(is_equal) else 0.5  # a response in a hundred has moved the scores by far less
        pooled = [find_score(scores, "fgb", "pooled_corrected").value for scores in (one, two)]
        assert pooled[1] == pytest.approx(pooled[0], rel=rel)
    one, two = (json.loads((run / UNTAGGED / "tune" / "curves.json").read_text()) for run in (finished[0], folder))
    assert [step for step, _ in two["train_loss"]] == [step for step, _ in one["train_loss"]]
    whole = slice(5)  # steps before the epoch's last, whose short batch is filled up to be dealt out evenly
    rel = 0.02 if all(is_equal) else 0.2
    assert dict(two["train_loss"][whole]) == pytest.approx(dict(one["train_loss"][whole]), rel=rel)
    tables = [path for stage in SHARED for path in (finished[0] / stage).glob("*.parquet")]
    for path in tables if all(is_equal) else ():
        other = pd.read_parquet(folder / path.relative_to(finished[0]))
        pd.testing.assert_frame_equal(other, pd.read_parquet(path), rtol=1e-4, atol=1e-5)


def responses_are_equal(one: Path, two: Path) -> bool:
    """Whether two runs have equal responses; at most one in a hundred may differ, the others have equal styles.

    Other batches round differently, and few of them to another token.
    """
    is_equal = pd.read_parquet(one / "responses.parquet")["response"].eq(
        pd.read_parquet(two / "responses.parquet")["response"]
    )
    assert is_equal.mean() >= 0.99
    first, second = (pd.read_parquet(run / "styles.parquet")[is_equal] for run in (one, two))
    pd.testing.assert_frame_equal(first, second, rtol=1e-4, atol=1e-5)
    return bool(is_equal.all())
