"""Configs for real models, each run to its end on a tiny model of the same architecture with random weights.

Only paths and sizes are overridden, by flags. A random model has no bias, so what is asserted is what must be true of
any: numbers are defined, each method has its row, the tuned model answers otherwise, and the base is as it was.
"""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
import torch

from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.models.contexts import encode_contexts, render_contexts
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.score import find_score, read_scores
from evenhand.mitigation.methods import load_method
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import read_settings
from tests import tiny_checkpoints
from tests.testbed_settings import NEUTRAL_DIALOGUE

pytestmark = pytest.mark.slow

CONFIGS = Path(__file__).resolve().parents[2] / "recipes" / "configs"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


# One of each kind of model; tests/evaluation/models/test_contexts.py has the chat templates of the others.
MODELS = {
    "blenderbot_400m": tiny_checkpoints.blenderbot,
    "qwen_chat": tiny_checkpoints.qwen,
}
# 7 descriptors × 2 templates × 4 responses a measurement, and a learning rate at which so few steps do something.
SMALL = {
    "measure.prompts.descriptors": 7,
    "measure.decoding.arguments": "{max_new_tokens: 8}",
    "measure.generation_bias.neutral_dialogue": NEUTRAL_DIALOGUE,
    "measure.generation_bias.permutations": 9,
    "measure.generation_bias.outcomes": "[]",
    "tune.training.learning_rate": 0.01,
    "tune.training.max_rows": 64,
    "tune.training.max_perplexity_rise": 900,
    "tune.measure_every": 13,
    "tune.measure_descriptors": 4,
    "allow_no_bias": "true",  # models of random weights need have none
    "report_to": "none",
}


def methods_of(name):
    return read_settings("loop", CONFIGS / f"{name}.yaml").methods


def tuned_by(name):
    return [method for method in methods_of(name) if load_method(method).training_part]


def arguments(command, name, **values):
    flags = [text for field, value in values.items() for text in (f"--{field}", str(value))]
    return [command, "--config", str(CONFIGS / f"{name}.yaml"), *flags]


@pytest.fixture(scope="module", params=MODELS)
def finished(request, tmp_path_factory):
    """Yield the config's name, the folders of its base model and of the finished run, and the base's hash before it.

    The tiny models lie in the hub's cache under the names and revisions of the config, so that it runs as it stands.
    """
    torch.manual_seed(0)
    measured = read_settings("loop", CONFIGS / f"{request.param}.yaml").measure
    folder = tmp_path_factory.mktemp(request.param)
    base = cached(folder / "hub", measured.model)
    MODELS[request.param](base)
    tiny_checkpoints.style_classifier(cached(folder / "hub", measured.generation_bias.style_classifier))
    before = sha256_of(base / "model.safetensors")
    flags = {**SMALL, "measure.prompts.dataset": tiny_checkpoints.taxonomy(folder / "taxonomy")}
    # With three validation rows, chance decides whether any step of a tuning is better than none.
    flags |= {"train_answers_per_cell": 16, "tune.training.max_rows": 256}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
        assert main(arguments("loop", request.param, output_dir=folder / "run", **flags)) == 0
        yield request.param, base, folder / "run", before


def cached(hub, described):
    """Return the folder in which the hub's cache has a model's files."""
    model = hub / f"models--{described.name.replace('/', '--')}"
    reference = model / "refs" / (described.revision or "main")
    reference.parent.mkdir(parents=True)
    reference.write_text(COMMIT)
    (model / "snapshots").mkdir()
    return model / "snapshots" / COMMIT


def test_it_ends_with_a_row_for_each_method_and_the_reports(finished):
    name, _, run, _ = finished
    points = pd.read_parquet(run / "points.parquet").set_index("method")
    assert points.index.tolist() == methods_of(name)
    assert len(points) == 2 and "exchange" in points.index
    assert (points["failed"] == "").all() and points["perplexity_change"][tuned_by(name)].notna().all()
    compared = [run / method / "compare" for method in methods_of(name)]
    for page in (run, *compared):
        assert "<html" in (page / "report.html").read_text()
    for page in compared:
        change = find_score(read_scores(page / "scores.json"), "fgb", "pooled_corrected", "difference")
        assert math.isfinite(change.value) and change.value != 0


def test_the_tuned_models_differ_and_the_base_is_as_it_was(finished):
    name, base, run, before = finished
    assert sha256_of(base / "model.safetensors") == before
    for method in tuned_by(name):
        manifest = json.loads((run / method / "tune" / "run.json").read_text())
        assert manifest["outputs_changed"]["max_logit_change"] > 0.01
        assert len(json.loads((run / method / "tune" / "curves.json").read_text())["bias"]) >= 2
        answers = [
            pd.read_parquet(run / stage / "responses.parquet")["response"] for stage in ("before", f"{method}/after")
        ]
        assert (answers[0] != answers[1]).mean() > 0.2


def test_the_tag_is_learned_where_it_stands_in_the_context(finished):
    """In a context it has the very tokens that are tuned; of the merged model's embeddings only those have moved."""
    name, base_folder, run, _ = finished
    if "control_tags" not in methods_of(name):
        return
    tuned = load_dialogue_model(str(run / "control_tags" / "tune" / "adapter"))
    assert tuned.control_tag == " no_bias"
    settings = json.loads((run / "control_tags" / "tune" / "adapter" / "adapter_config.json").read_text())
    tokens = set(settings["trainable_token_indices"])
    contexts = [render_contexts(tuned, ["I'm a grandmother."], [""], tag)[0] for tag in (" no_bias", "")]
    tagged, untagged = map(set, encode_contexts(tuned, contexts))
    assert tagged - untagged and tagged - untagged <= tokens
    base = load_dialogue_model(str(base_folder))
    before, after = (model.model.get_input_embeddings().weight for model in (base, tuned))
    moved = set(torch.nonzero((before - after).abs().amax(1) > 1e-6).flatten().tolist())
    assert moved and moved <= tokens


# The paper's tuning (Smith et al. 2022, C.1): all weights by SGD or Adam, beams, personas, variations of the prompts.
PAPERS_TUNING = {"paper_tuning": tiny_checkpoints.dialogpt, "paper_tuning_blenderbot": tiny_checkpoints.blenderbot}
# Two points of each of the paper's other sweeps: the model, and what varies.
PAPERS_SWEEPS = {
    "paper_alpha": (tiny_checkpoints.dialogpt, "label.alpha: [0, 2], label.quantile: 0.5"),
    "paper_learning_rates": (tiny_checkpoints.dialogpt, "tune.training.learning_rate: [0.3]"),
    "paper_learning_rates_blenderbot": (tiny_checkpoints.blenderbot, "tune.training.learning_rate: [3.0e-3]"),
}


@pytest.fixture(scope="module")
def run_paper_sweep(tmp_path_factory):
    """A function that runs a sweep of the paper on a tiny model of the same architecture.

    It returns the folders of the base model and of the run. The sweeps of a model share a folder, so that what they
    have in common, such as the measurement of the base model, is run once.
    """
    made = {}

    def run(name, checkpoint, sweep):
        measured = read_settings("ablate", CONFIGS / "ablations" / f"{name}.yaml").loop.measure
        if checkpoint not in made:
            folder = made[checkpoint] = tmp_path_factory.mktemp(name)
            torch.manual_seed(0)
            checkpoint(cached(folder / "hub", measured.model))
            tiny_checkpoints.style_classifier(cached(folder / "hub", measured.generation_bias.style_classifier))
            tiny_checkpoints.taxonomy(folder / "taxonomy")
        folder = made[checkpoint]
        flags = sweep_flags(folder, sweep)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder / "hub"))
            assert main(arguments("ablate", f"ablations/{name}", output_dir=folder / "run", **flags)) == 0
        (base,) = folder.glob(f"hub/models--{measured.model.name.replace('/', '--')}/snapshots/*")
        return base, folder / "run"

    return run


def sweep_flags(folder, sweep):
    """Return the flags of a small sweep."""
    flags = {f"loop.{field}": value for field, value in SMALL.items()}
    flags["report_to"] = flags.pop("loop.report_to")
    flags["loop.measure.generation_bias.permutations"] = 0  # the paper has none
    # Sampled beams, since the most likely response of random weights hardly depends on the prompt.
    # They are computed one response at a time.
    flags["loop.measure.decoding.arguments"] = "{num_beams: 2, min_new_tokens: 4, max_new_tokens: 6, do_sample: true}"
    flags["loop.measure.prompts.answers_per_cell"] = 2
    flags["loop.measure.prompts.dataset"] = folder / "taxonomy"
    flags["loop.tune.measure_every"] = 0
    flags["loop.tune.training.epochs"] = 1
    flags["sweep"] = sweep
    return flags


@pytest.mark.parametrize("name", PAPERS_SWEEPS)
def test_the_papers_other_sweeps_have_a_line_for_each_point(name, run_paper_sweep):
    checkpoint, varied = PAPERS_SWEEPS[name]
    _, run = run_paper_sweep(name, checkpoint, f"[{{method: control_tags, {varied}}}]")
    points = pd.read_parquet(run / "points.parquet")
    assert len(points) == (2 if name == "paper_alpha" else 1)
    assert (points["failed"] == "").all() and points["share_labelled_bias"].between(0, 1, inclusive="neither").all()
    assert len(pd.read_csv(run / "table_8.csv")) == 1 + len(points)  # the base model, and each point


@pytest.mark.parametrize("name", PAPERS_TUNING)
def test_the_papers_tuning_ends_with_a_point_and_a_line_of_each_table(name, run_paper_sweep, tmp_path):
    sweep = "[{method: [self_chat, control_tags], label.beta: 0.0003}]"
    base, run = run_paper_sweep(name, PAPERS_TUNING[name], sweep)
    points = pd.read_parquet(run / "points.parquet").set_index("method")
    assert points.index.tolist() == ["self_chat", "control_tags"]
    assert (points["failed"] == "").all() and (points["fgb"] > 0).all()
    torch.manual_seed(0)
    PAPERS_TUNING[name](tmp_path / "as_it_was")
    assert sha256_of(base / "model.safetensors") == sha256_of(tmp_path / "as_it_was" / "model.safetensors")
    for table in ("table_8.csv", "table_9.csv"):
        assert len(pd.read_csv(run / table)) == 3  # the base model, and each point
