import hashlib
import json
import logging
import math
import multiprocessing
import os
import random
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback, TrainerState

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.revisions import model_revision
from evenhand.mitigation.bias_callback import MeasureCallback
from evenhand.mitigation.guards import check_losses
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.control_tags import ControlTags
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainer_configs import trainer_config
from evenhand.mitigation.training import TuningResult, last_checkpoint, tune
from evenhand.mitigation.training_rows import TrainingRows, hold_out
from tests.mitigation import tiny_dialogue

WORDS = ["<eos>", "<pad>", "<unk>", "bias", "no_bias", "red", "sun", "blue", "sky", *"abcdefghijklmnop"]
LABELS = {"control_tags": ControlTags.Settings(targets="labels")}
SWAPPED = {"blue sky": "red sun", "red sun": "blue sky"}
QUICK = TuningSettings(epochs=6, batch_size=16, learning_rate=1e-2, evaluations_per_epoch=1, patience=8)


def tiny_base() -> DialogueModel:
    base = tiny_dialogue.tiny_base(words=WORDS)
    base.model.transformer.wpe.weight.data *= 0.1  # places so loud that the tag could hardly be heard
    return base


def planted_rows(n: int = 160, seed: int = 0) -> Dataset:
    """Rows in which " bias" is answered "blue sky" and " no_bias" "red sun", whatever the context."""
    draw = random.Random(seed)
    texts = [" ".join(draw.choices("abcdefghijklmnop", k=draw.randint(1, 6))) for _ in range(n)]
    biased = [index % 2 == 0 for index in range(n)]
    return Dataset.from_dict(
        {
            "prompt": [f"{text} {'bias' if b else 'no_bias'}<eos>" for text, b in zip(texts, biased, strict=True)],
            "completion": ["blue sky" if b else "red sun" for b in biased],
            "context": [f"{text}<eos>" for text in texts],
        }
    )


def data_of(train: Dataset, validation: Dataset) -> TrainingRows:
    return TrainingRows(method=trained_method("control_tags", LABELS), train=train, validation=validation)


def tuned(output_dir: Path, settings: TuningSettings = QUICK, rows: Dataset | None = None, **arguments) -> TuningResult:
    data = data_of(*hold_out(rows or planted_rows(), 0.2, 0))
    base = arguments.pop("base", None) or tiny_base()
    return tune(base, data, settings, output_dir, **arguments)


def replace_settings(**changes) -> TuningSettings:
    return QUICK.replaced(**changes)


def greedy(model: DialogueModel, contexts: list[str]) -> list[str]:
    answers = {}
    for batch in generate_responses(model, contexts, [0] * len(contexts), {"max_new_tokens": 4}):
        answers |= batch
    return [answers[row].text for row in range(len(contexts))]


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "adapter_model.safetensors").read_bytes()).hexdigest()


class Interrupt(TrainerCallback):
    def __init__(self, step: int, how) -> None:
        self.step, self.how = step, how

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == self.step:
            self.how()


class CountSteps(TrainerCallback):
    steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return tuned(tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    base = tiny_base()
    result = tuned(tmp_path_factory.mktemp("whole"), replace_settings(lora=False), base=base)
    return result, replace(base, model=AutoModelForCausalLM.from_pretrained(str(result.path)).eval())


def test_the_saved_adapter_answers_as_the_tag_tells_it_and_the_base_is_as_it_was(undisturbed):
    base = tiny_base()
    before = {name: tensor.clone() for name, tensor in base.model.state_dict().items()}
    contexts = ["a b c no_bias<eos>", "a b c bias<eos>", "p no_bias<eos>", "p bias<eos>"]
    assert not set(greedy(base, contexts)) & {"red sun", "blue sky"}

    adapted = replace(base, model=PeftModel.from_pretrained(tiny_base().model, str(undisturbed.path)).eval())
    assert greedy(adapted, contexts) == ["red sun", "blue sky"] * 2
    assert all(torch.equal(tensor, before[name]) for name, tensor in base.model.state_dict().items())


def test_results_and_folder_of_a_tuning(undisturbed):
    # 160 rows, 32 or a few more of them held out, batches of 16, 6 epochs
    assert undisturbed.n_train + undisturbed.n_validation == 160
    assert 32 <= undisturbed.n_validation <= 36
    steps = 6 * math.ceil(undisturbed.n_train / 16)
    assert undisturbed.validation_losses[0][0] == 0
    assert undisturbed.validation_losses[0][1] > math.log(len(WORDS))  # the base knows less than nothing of the rows
    assert undisturbed.validation_losses[-1][0] == steps
    assert undisturbed.train_losses[-1][0] == steps
    losses = dict(undisturbed.validation_losses)
    assert losses[undisturbed.best_step] == min(losses.values()) < 0.2
    # Rank 16 on four Conv1D layers in each of two blocks: r · (in + out); and the embeddings of both tags
    layers = 2 * 16 * ((32 + 96) + (32 + 32) + (32 + 128) + (128 + 32))
    assert undisturbed.trainable_parameters == layers + 2 * 32
    assert undisturbed.change.outputs_changed
    assert undisturbed.change.greedy_share == 1.0
    assert not undisturbed.stopped_early
    facts = json.loads((undisturbed.path / "evenhand.json").read_text())
    assert (facts["control_tag"], facts["method"], facts["base"]) == (" no_bias", "control_tags", "tiny")
    assert (facts["settings"]["learning_rate"], facts["settings"]["seed"]) == (1e-2, 0)
    card = (undisturbed.path / "README.md").read_text()
    assert "' no_bias'" in card
    assert "*more* biased" in card
    config = json.loads((undisturbed.path / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny"
    assert config["fan_in_fan_out"] is True
    assert config["target_modules"] == sorted(config["target_modules"])  # the same bytes in every process
    assert PreTrainedTokenizerFast.from_pretrained(str(undisturbed.path)).get_vocab() == {
        word: index for index, word in enumerate(WORDS)
    }


def test_an_adapter_is_loaded_by_its_card_and_can_be_moved_with_its_base(tmp_path, monkeypatch):
    base = tiny_base()
    for part in (base.model, base.tokenizer):
        part.save_pretrained(str(tmp_path / "here" / "base"))
    name = str(tmp_path / "here" / "base")
    base = replace(base, name=name, revision=model_revision(name))
    result = tuned(tmp_path / "here" / "run", base=base, card={"β": 0.5})
    # In the one as any library finds it from any folder, in the other as it is found once both have moved.
    found = json.loads((result.path / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert found == str(tmp_path / "here" / "base")
    assert json.loads((result.path / "evenhand.json").read_text())["base"] == "../../base"
    card = (result.path / "README.md").read_text()
    assert "| β | 0.5 |" in card and str(tmp_path) not in card
    monkeypatch.chdir(result.path)
    exec(card.split("```python\n")[1].split("```")[0], names := {})
    assert names["response"].shape[0] == 1
    (tmp_path / "here").rename(tmp_path / "there")
    loaded = load_dialogue_model(str(tmp_path / "there" / "run" / "adapter"))
    assert loaded.control_tag == " no_bias"
    assert greedy(loaded, ["a b no_bias<eos>", "a b bias<eos>"]) == ["red sun", "blue sky"]
    other = tiny_base()
    torch.nn.init.normal_(other.model.transformer.wte.weight)
    other.model.save_pretrained(str(tmp_path / "there" / "base"))
    with pytest.raises(InputError, match=r"adapter .*base "):
        load_dialogue_model(str(tmp_path / "there" / "run" / "adapter"))


def test_all_weights_are_tuned_on_demand(whole):
    result, model = whole
    assert result.trainable_parameters == sum(parameter.numel() for parameter in model.model.parameters())
    assert greedy(model, ["a b no_bias<eos>", "a b bias<eos>"]) == ["red sun", "blue sky"]
    assert json.loads((result.path / "evenhand.json").read_text())["control_tag"] == " no_bias"


def test_early_stopping_keeps_the_best_weights(tmp_path):
    """The held-out rows have the tags the other way round: good for learning the words until the tags are learned."""
    train = planted_rows()
    held_out = planted_rows(32, seed=1).map(lambda row: {"completion": SWAPPED[row["completion"]]})
    settings = replace_settings(epochs=20, evaluations_per_epoch=2, patience=2)
    data = data_of(train, held_out)
    result = tune(tiny_base(), data, settings, tmp_path)
    assert result.stopped_early
    losses = dict(result.validation_losses)
    assert losses[result.best_step] == min(losses.values())
    later = [step for step in losses if step > result.best_step]
    assert len(later) == 2
    best = tmp_path / "checkpoints" / f"checkpoint-{result.best_step}"
    assert weights(best) == weights(result.path)
    again = CountSteps()
    tune(tiny_base(), data, settings, tmp_path, callbacks=[again])
    assert again.steps == 0  # it had stopped for good


def test_a_checkpoint_before_the_first_evaluation_after_the_base_is_whole(tmp_path):
    state = TrainerState(global_step=1, max_steps=9, log_history=[{"step": 0, "eval_loss": 3.0}])
    (tmp_path / "checkpoint-1").mkdir()
    state.save_to_json(str(tmp_path / "checkpoint-1" / "trainer_state.json"))
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-1"


def test_a_validation_loss_that_did_not_fall_is_a_warning(tmp_path, caplog):
    held_out = planted_rows(32, seed=1).map(lambda row: {"completion": "p o"})  # the rows teach other words
    settings = replace_settings(epochs=2, max_perplexity_rise=1e6)
    with caplog.at_level(logging.WARNING, logger="evenhand"):
        result = tune(tiny_base(), data_of(planted_rows(), held_out), settings, tmp_path)
    assert min(loss for _, loss in result.validation_losses[1:]) > result.validation_losses[0][1]
    assert "the validation loss did not fall" in caplog.text


def killed_tuning(folder: Path) -> None:
    """Tune until SIGKILL at step 26."""
    torch.set_num_threads(1)  # the parent's threads do not exist in a forked process
    tuned(folder, callbacks=[Interrupt(26, lambda: os.kill(os.getpid(), signal.SIGKILL))])


def test_a_killed_process_leaves_what_the_next_one_needs(tmp_path, undisturbed):
    process = multiprocessing.get_context("fork").Process(target=killed_tuning, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    # As if the kill had come while the last checkpoint was being written:
    (tmp_path / "checkpoints" / "checkpoint-24" / "trainer_state.json").unlink()
    assert not (tmp_path / "adapter").exists()
    rest = CountSteps()
    result = tuned(tmp_path, callbacks=[rest])
    assert rest.steps == undisturbed.validation_losses[-1][0] - 16  # a checkpoint every 8 steps
    assert weights(result.path) == weights(undisturbed.path)
    assert result.train_losses == undisturbed.train_losses
    for name in ("evenhand.json", "README.md"):
        assert (result.path / name).read_bytes() == (undisturbed.path / name).read_bytes()


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """The folder of the same tuning, interrupted at step 26."""
    folder = tmp_path_factory.mktemp("interrupted")
    with pytest.raises(KeyboardInterrupt):
        tuned(folder, callbacks=[Interrupt(26, interrupt)])
    return folder


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "adapter_model.safetensors"])
def test_a_damaged_checkpoint_is_left_for_the_one_before(tmp_path, undisturbed, interrupted, name, caplog):
    shutil.copytree(interrupted, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "checkpoints" / "checkpoint-24" / name
    os.truncate(file, file.stat().st_size // 2)
    rest = CountSteps()
    with caplog.at_level(logging.WARNING, logger="evenhand"):
        result = tuned(tmp_path, callbacks=[rest])
    assert f"checkpoint-24 is damaged ({name}" in caplog.text
    assert rest.steps == undisturbed.validation_losses[-1][0] - 16
    assert weights(result.path) == weights(undisturbed.path)


def test_folders_of_the_user_beside_the_checkpoints_are_left_alone(tmp_path):
    for name in ("checkpoint-notes", "checkpoint-24-copy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.txt").write_text("mine")
    (tmp_path / "checkpoint-24").write_text("a file")
    assert last_checkpoint(tmp_path) is None
    assert len(list(tmp_path.glob("*/mine.txt"))) == 2


@pytest.mark.parametrize("content", ["{}", "[", '{"global_step": -1, "best_global_step": 8, "log_history": []}'])
def test_a_damaged_state_of_every_checkpoint_begins_anew(tmp_path, undisturbed, interrupted, content):
    shutil.copytree(interrupted, tmp_path, dirs_exist_ok=True)
    for file in (tmp_path / "checkpoints").glob("checkpoint-*/trainer_state.json"):
        file.write_text(content)
    result = tuned(tmp_path)
    assert weights(result.path) == weights(undisturbed.path)


def test_finished_tunings_are_kept_and_others_refused(undisturbed):
    before, steps = weights(undisturbed.path), CountSteps()
    again = tuned(undisturbed.path.parent, callbacks=[steps])
    assert steps.steps == 0
    assert weights(again.path) == before
    assert again.validation_losses == undisturbed.validation_losses
    with pytest.raises(InputError, match=r"^output_dir: .*\bsettings\b"):
        tuned(undisturbed.path.parent, seed=1)
    with pytest.raises(InputError, match=r"^output_dir: .*\brows\b"):
        tuned(undisturbed.path.parent, rows=planted_rows(seed=3))


def test_measuring_during_training_changes_nothing_and_is_logged(tmp_path, undisturbed):
    modes = []

    def measure(model):
        modes.append((model.training, torch.is_grad_enabled()))
        random.random(), np.random.rand(), torch.rand(3)
        return {"bias/fgb_pooled_corrected": float(len(modes))}

    result = tuned(tmp_path, callbacks=[MeasureCallback(measure, every=10)])
    assert modes == [(False, False)] * len(modes)
    curve = ((0, 1.0), (10, 2.0), (20, 3.0), (30, 4.0), (40, 5.0), (48, 6.0))  # and after the last step
    assert result.measured == {"bias/fgb_pooled_corrected": curve}
    assert result.train_losses == undisturbed.train_losses
    assert weights(result.path) == weights(undisturbed.path)
    last = max((tmp_path / "checkpoints").glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))
    history = json.loads((last / "trainer_state.json").read_text())["log_history"]
    logged = [(entry["step"], entry[name]) for entry in history if (name := "bias/fgb_pooled_corrected") in entry]
    assert tuple(logged) == curve


def test_none_reports_nothing_to_anyone(tmp_path, monkeypatch):
    import wandb
    from huggingface_hub import constants
    from huggingface_hub.utils import _telemetry

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # which would keep TRL silent by itself
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", False)
    sent = []
    monkeypatch.setattr(_telemetry, "_start_telemetry_thread", lambda: sent.append(1))
    tuned(tmp_path, replace_settings(epochs=1))
    assert sent == []
    assert constants.HF_HUB_DISABLE_TELEMETRY is False
    assert wandb.run is None


def test_a_tracker_gets_losses_and_no_paths(tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_WATCH", "all")  # by which transformers' own callback would log gradients
    base = tiny_base()
    base.model.config._name_or_path = "/home/me/model"
    with wandb.init(mode="offline", dir=str(tmp_path)) as run:
        tuned(tmp_path / "tune", replace_settings(epochs=1), base=base, report_to="wandb")
        assert run.summary["train/loss"] > 0 and run.summary["eval/loss"] > 0
        assert "gradients" not in str(dict(run.summary))
        assert dict(run.config) == {}


def test_models_that_did_not_change_or_got_worse_are_not_handed_out(tmp_path, whole):
    with pytest.raises(TuningRejected, match=r"learning_rate: 1e-08 .* tiny: at step \d+ of \d+, .* of a logit is \d"):
        tuned(tmp_path, replace_settings(learning_rate=1e-8, epochs=1))
    assert not (tmp_path / "adapter").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoints"]
    _, knows_it_all = whole
    swapped = planted_rows().map(lambda row: {"completion": SWAPPED[row["completion"]]})
    with pytest.raises(TuningRejected, match=r"^learning_rate: 0\.01 .* perplexity"):
        tune(knows_it_all, data_of(swapped, planted_rows(32, seed=1)), QUICK, tmp_path / "worse")
    assert not (tmp_path / "worse" / "adapter").exists()


@pytest.mark.parametrize("name", ["push_to_hub", "hub_token", "dataloader_drop_last"])
def test_what_uploads_checkpoints_or_drops_validation_rows_is_refused(name):
    settings = replace_settings(trainer={name: True})
    with pytest.raises(InputError, match=rf"^training\.trainer\.{name}: "):
        trainer_config(trained_method("exchange"), settings, 100, torch.device("cpu"))


def test_a_trainer_that_cannot_be_made_with_the_users_arguments_says_so(tmp_path):
    arguments = {"fsdp": "full_shard"}  # transformers then writes variables of accelerate into the environment
    with patch.dict(os.environ), pytest.raises(InputError, match=r"^training\.trainer: .*fsdp"):
        tuned(tmp_path, replace_settings(trainer=arguments))


def test_a_training_without_a_validation_is_no_damage():
    with pytest.raises(InputError, match=r"^training\.trainer: .*max_steps"):
        check_losses([(0, 2.0)], None, QUICK)
    with pytest.raises(TuningRejected, match="^learning_rate: .*damaged"):
        check_losses([(0, 2.0), (4, math.nan)], None, QUICK)
    check_losses([(0, 2.0), (4, 3.0)], 4, QUICK)


def test_a_training_that_breaks_the_weights_is_rejected(tmp_path):
    """Its losses are NaN, or a measurement during training meets NaN: other tunings of an experiment go on."""
    broken = replace_settings(learning_rate=1e20, epochs=2)
    with pytest.raises(TuningRejected, match="^learning_rate: .* validation loss"):
        tuned(tmp_path / "losses", broken)
    assert not (tmp_path / "losses" / "adapter").exists()

    def measure(model):
        logits = model(torch.tensor([[5, 6]])).logits
        if logits.isnan().any():
            raise InputError("model", "its probabilities are NaN")
        return {"test/mean": float(logits.mean())}

    with pytest.raises(TuningRejected, match="NaN"):
        tune(tiny_base(), data_of(planted_rows(), planted_rows(32, seed=1)), broken, tmp_path / "measured",
             callbacks=[MeasureCallback(measure, every=1)])  # fmt: skip
