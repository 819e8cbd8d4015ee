"""Written rows are the rows that `tune` trains on, and a plain script of TRL trains on them."""

import ast
import json
import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from datasets import Dataset, load_dataset
from trl import SFTConfig, SFTTrainer

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.models.contexts import chat_messages, render_contexts
from evenhand.evaluation.models.revisions import load_control_tag
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.control_tags import ControlTags
from evenhand.mitigation.row_files import write_rows
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainers import SFT
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import TrainingRows, hold_out, rows_sha256
from evenhand.recipes import tune as tune_command
from evenhand.recipes.tuning_settings import TuneSettings
from tests.testbed_settings import MODEL
from tests.tiny_models import tiny

SETTINGS = TuningSettings(
    learning_rate=1e-2, epochs=1, batch_size=8, evaluations_per_epoch=1, max_perplexity_rise=10_000, lora_rank=2
)
TEMPLATE = (
    "{% for m in messages %}{{ 's ' if m.role == 'system' else 'u ' if m.role == 'user' else 'v ' }}{{ m.content }}"
    "{{ ' w' if m.role != 'assistant' else ' <eos>' }} {% endfor %}{% if add_generation_prompt %}v {% endif %}"
)
WORDS = list("abcdefghijklmnop")
LABELS = {"control_tags": ControlTags.Settings(targets="labels")}


def saved_base(folder, template=None):
    base = tiny("gpt2")
    base.tokenizer.chat_template = template
    base.model.save_pretrained(str(folder))
    base.tokenizer.save_pretrained(str(folder))
    return replace(base, name=str(folder), kind="chat" if template else "dialogue")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return saved_base(tmp_path_factory.mktemp("base"))


def tuning_data(base, cut=False, method="exchange"):
    texts = [f"{first} {second}" for first in WORDS for second in WORDS[:2]]
    prompts = render_contexts(base, texts, ["x"] * len(texts))
    columns = {"prompt": prompts, "context": prompts, "completion": ["q r t"] * len(texts)}
    columns["completion_cut"] = [cut and row % 4 == 0 for row in range(len(texts))]
    train, validation = hold_out(Dataset.from_dict(columns), 0.2, 0)
    messages = {}
    if base.kind == "chat":
        messages = dict(zip(prompts, chat_messages(base, texts, ["x"] * len(texts)), strict=True))
    return TrainingRows(method=trained_method(method, LABELS), train=train, validation=validation), messages


def written(base, folder, cut=False, method="exchange"):
    data, messages = tuning_data(base, cut, method)
    write_rows(folder, base, data, SETTINGS, messages)
    return data, [SFT.encode_rows(base, rows) for rows in (data.train, data.validation)]


def trained_rows(folder, monkeypatch):
    """The rows of the trainer of TRL in train.py, after it ran."""
    script = (folder / "train.py").read_text()
    imported = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert {getattr(node, "module", None) or node.names[0].name for node in imported} == {
        "sys", "pathlib", "datasets", "peft", "trl"
    }  # fmt: skip
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.argv", ["train.py"])
    trainer = runpy.run_path("train.py")["trainer"]
    assert trainer.state.global_step == trainer.state.max_steps > 0
    assert (folder / "trained" / "adapter_model.safetensors").exists()
    base = json.loads((folder / "trained" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert Path(base).is_absolute() and Path(base).is_dir()  # it is found from any folder
    return trainer.train_dataset, trainer.eval_dataset


def test_a_plain_script_trains_on_the_rows_of_tune_with_cut_responses(base, tmp_path, monkeypatch):
    data, encoded = written(base, tmp_path / "rows", cut=True)
    theirs = [rows.select_columns(["input_ids", "labels"]) for rows in trained_rows(tmp_path / "rows", monkeypatch)]
    tune(base, data, SETTINGS, tmp_path / "tuned")
    recorded = json.loads((tmp_path / "tuned" / "checkpoints" / "inputs.json").read_text())["rows"]
    assert recorded == rows_sha256(*theirs) == rows_sha256(*encoded)
    assert recorded in (tmp_path / "rows" / "README.md").read_text()
    # "q r t" is trained with its end, and without an end where it was cut.
    assert {tuple(label for label in row if label >= 0)[-1] for row in theirs[0]["labels"]} == {0, 3 + 19}
    rows = load_dataset(str(tmp_path / "rows"), cache_dir=str(tmp_path / "cache"))
    assert [rows[split]["prompt"][:] for split in rows] == [data.train["prompt"][:], data.validation["prompt"][:]]
    pairs = set(zip(rows["train"]["completion"], rows["train"]["completion_cut"], strict=True))
    assert pairs == {("q r t", False), ("q r t", True)}


@pytest.mark.parametrize("method", ["control_tags", "rejection", "self_chat"])
def test_the_script_runs_for_every_method_with_the_loss_of_sft(base, tmp_path, monkeypatch, method):
    _, encoded = written(base, tmp_path / "rows", method=method)
    trained = [rows.select_columns(["input_ids", "labels"]) for rows in trained_rows(tmp_path / "rows", monkeypatch)]
    assert rows_sha256(*trained) == rows_sha256(*encoded)
    # Evenhand measures the adapter with the tag that its rows have.
    assert load_control_tag(str(tmp_path / "rows" / "trained")) == (" no_bias" if method == "control_tags" else "")
    # The output layer of this model shares the embeddings.
    assert ("embeddings of the tags" in (tmp_path / "rows" / "README.md").read_text()) == (method == "control_tags")


def test_rows_of_a_chat_model_are_conversational_and_trl_renders_them_as_tune(tmp_path):
    base = saved_base(tmp_path / "base", TEMPLATE)
    _, encoded = written(base, tmp_path / "rows")
    rows = load_dataset(str(tmp_path / "rows"), cache_dir=str(tmp_path / "cache"))["train"]
    assert [message["role"] for message in rows[0]["prompt"]] == ["system", "user"]
    assert [message["role"] for message in rows[0]["completion"]] == ["assistant"]
    assert rows[0]["chat_template_kwargs"]["enable_thinking"] is False
    arguments = SFTConfig(str(tmp_path), use_cpu=True, bf16=False, report_to="none")
    theirs = SFTTrainer(base.model, arguments, train_dataset=rows, processing_class=base.tokenizer).train_dataset
    columns = ["input_ids", "labels"]
    assert sorted(map(repr, theirs.select_columns(columns))) == sorted(map(repr, encoded[0].select_columns(columns)))


def test_the_script_trains_the_revision_whose_rows_it_has(base, tmp_path):
    written(replace(base, name="somebody/model", revision="f" * 40), tmp_path / "rows")
    calls = [
        node for node in ast.walk(ast.parse((tmp_path / "rows" / "train.py").read_text())) if isinstance(node, ast.Call)
    ]
    given = {
        getattr(call.func, "id", ""): {each.arg: ast.unparse(each.value) for each in call.keywords} for call in calls
    }
    assert given["SFTConfig"]["model_init_kwargs"].startswith(str({"revision": "f" * 40}))
    assert given["LoraConfig"]["revision"].startswith(repr("f" * 40))


def test_other_rows_and_folders_are_refused(base, tmp_path):
    with pytest.raises(InputError, match="^write_rows: .* exists"):
        written(base, tmp_path)
    for method in ("distill", "preference"):
        with pytest.raises(InputError, match=f"^write_rows: .*{method}"):
            written(base, tmp_path / "other", method=method)
    with pytest.raises(InputError, match="^write_rows: .* encoder-decoder"):
        written(replace(base, kind="encoder_decoder"), tmp_path / "other")


def test_rows_that_cannot_be_written_are_refused_before_anything_is_loaded(monkeypatch, tmp_path):
    """The reason is the method's loss, not the kind of model."""
    settings = TuneSettings(labels=tmp_path, method="preference", write_rows=tmp_path / "rows")
    config = FamilyConfig(model=MODEL)
    measured = SimpleNamespace(model=MODEL)
    monkeypatch.setattr(tune_command, "labelled_run", lambda *given: (tmp_path, measured, ""))
    monkeypatch.setattr(tune_command, "warn_of_split", lambda *given: None)
    monkeypatch.setattr(tune_command, "family_config", lambda *given: config)
    monkeypatch.setattr(tune_command, "load_dialogue_model", lambda *given: pytest.fail("loaded"))
    with pytest.raises(InputError, match="^write_rows: preference has a loss of its own"):
        tune_command.tune(settings)
