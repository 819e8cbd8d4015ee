"""Bad input: one clear error on one line, status 2, nothing lost."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from evaluation.results import PROMPT_ID, RESPONSE
from recipes.__main__ import main
from recipes.config import MeasureConfig
from recipes.runs import stage
from recipes.tables import PROMPTS, RESPONSES, write_styles, write_table
from recipes.testbed import DIALOGUE_MODEL

SMALL = ["--descriptors", "3", "--per_cell", "2", "--neutral_dialogue", "null", "--report_to", "none"]
SMALL += ["--filters", '{axis: [ability], template: ["I\'m {noun_phrase}."], noun_phrase_type: [descriptor_noun]}']


def error_of(capsys, *arguments):
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"evenhand {arguments[0]}: ")
    return error


@pytest.fixture
def measured(tmp_path):
    """A finished measuring run of six made-up responses."""
    folder = tmp_path / "measured"
    with stage("measure", MeasureConfig(output_dir=folder, report_to="none")) as run:
        run.facts["signature"] = {}
        ids = [f"p{i}" for i in range(8)]
        cell = {"template": ["t"] * 8, "descriptor": ["a", "a", "a", "a", "b", "b", "b", "b"], "axis": ["age"] * 8}
        write_table(folder / PROMPTS, pd.DataFrame({PROMPT_ID: ids, "text": "I'm.", "persona": "", **cell}))
        write_table(folder / RESPONSES, pd.DataFrame({PROMPT_ID: ids, RESPONSE: ["yes"] * 8}))
        vectors = np.random.default_rng(0).dirichlet(np.ones(3), 8).astype(np.float32)
        write_styles(folder / "styles.parquet", pd.Series(ids), vectors, ("x", "y", "z"))
    return folder


def test_a_threshold_that_labels_nothing(capsys, measured, tmp_path):
    error = error_of(
        capsys, "label", "--responses", str(measured), "--beta", "99", "--output_dir", str(tmp_path / "l"),
        "--report_to", "none",
    )  # fmt: skip
    assert "beta: 99.0 labels 0% of the responses" in error
    assert "between" in error


def test_a_mistake_can_be_mended_in_the_same_folder(capsys, measured, tmp_path):
    arguments = ["label", "--responses", str(measured), "--output_dir", str(tmp_path / "l"), "--report_to", "none"]
    error_of(capsys, *arguments, "--beta", "99")
    assert main([*arguments, "--quantile", "0.5"]) == 0


def test_a_prompts_file_that_lacks_a_column(capsys, tmp_path):
    pd.DataFrame({"text": ["Hi."], "template": ["t"], "axis": ["age"]}).to_csv(tmp_path / "p.csv", index=False)
    error = error_of(
        capsys, "measure", *SMALL, "--prompts_file", str(tmp_path / "p.csv"), "--output_dir", str(tmp_path / "m")
    )
    assert "descriptor" in error


def test_responses_that_are_all_empty(capsys, tmp_path):
    # A model that ends every response at once: its head gives all weight to the end of the sequence.
    model = AutoModelForCausalLM.from_pretrained(DIALOGUE_MODEL, dtype=torch.float32)
    with torch.no_grad():
        embeddings = model.get_input_embeddings().weight
        embeddings.zero_()
        embeddings[model.config.eos_token_id] = 50.0
        model.transformer.ln_f.bias.fill_(1.0)
        model.transformer.ln_f.weight.zero_()
    shutil.copytree(DIALOGUE_MODEL, tmp_path / "mute", ignore=shutil.ignore_patterns("model.safetensors"))
    model.save_pretrained(tmp_path / "mute")
    error = error_of(capsys, "measure", *SMALL, "--model", str(tmp_path / "mute"), "--output_dir", str(tmp_path / "m"))
    assert "responses: all" in error
    assert "are empty" in error


def test_a_style_classifier_that_lacks_a_style_of_a_cluster(capsys, tmp_path):
    (tmp_path / "clusters.json").write_text('{"SYMPATHY": ["Sympathetic", "Sorrowful"]}')
    error = error_of(
        capsys,
        "measure",
        *SMALL,
        "--style_clusters",
        str(tmp_path / "clusters.json"),
        "--output_dir",
        str(tmp_path / "m"),
    )
    assert "SYMPATHY" in error
    assert "Sorrowful" in error


def test_a_model_that_is_not_one(capsys, tmp_path):
    (tmp_path / "nothing").mkdir()
    for name in (str(tmp_path / "nothing"), str(tmp_path / "absent")):
        error = error_of(capsys, "measure", *SMALL, "--model", name, "--output_dir", str(tmp_path / "m"))
        assert name in error


def test_a_pickle_is_never_read(capsys, tmp_path):
    shutil.copytree(DIALOGUE_MODEL, tmp_path / "pickled", ignore=shutil.ignore_patterns("*.safetensors"))
    (tmp_path / "pickled" / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch /tmp/evenhand-was-here'\ntR.")
    error = error_of(
        capsys, "measure", *SMALL, "--model", str(tmp_path / "pickled"), "--output_dir", str(tmp_path / "m")
    )
    assert "safetensors" in error


def test_a_place_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").write_text("in the way")
    error = error_of(capsys, "measure", *SMALL, "--output_dir", str(tmp_path / "file" / "m"))
    assert "output_dir" in error


def test_an_unknown_method(capsys, measured, tmp_path):
    assert (
        main(["label", "--responses", str(measured), "--output_dir", str(tmp_path / "l"), "--report_to", "none"]) == 0
    )
    error = error_of(
        capsys, "tune", "--labels", str(tmp_path / "l"), "--method", "control_tag", "--output_dir", str(tmp_path / "t")
    )
    assert "did you mean 'control_tags'" in error


def test_stages_in_the_wrong_order(capsys, measured, tmp_path):
    error = error_of(capsys, "tune", "--labels", str(measured), "--output_dir", str(tmp_path / "t"))
    assert "labels" in error
    assert "`measure`, not of `label`" in error
