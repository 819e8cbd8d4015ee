"""Settings on their way to the trainer: defaults of methods, other fields of TRL and PEFT, held-out rows."""

import pytest
import torch
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.mitigation.checks import default_methods
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainer_configs import lora_config, trainer_config
from evenhand.mitigation.training_rows import hold_out
from tests import tiny_checkpoints
from tests.tiny_models import tiny


def test_what_is_given_stays_and_what_is_null_is_the_methods_own():
    assert TuningSettings(learning_rate=2e-4).with_method_defaults(trained_method("distill")).learning_rate == 2e-4
    settings = TuningSettings().with_method_defaults(trained_method("distill"))
    defaults = trained_method("distill").defaults
    assert {name: getattr(settings, name) for name in defaults} == defaults
    assert settings.epochs == 1


@pytest.mark.parametrize(
    ("name", "lora", "rate"),
    [
        ("exchange", True, 2e-4),
        ("distill", True, 3e-4),
        ("exchange", False, 2e-5),
    ],
)
def test_a_large_model_is_not_tuned_at_the_testbeds_rate_and_in_its_batches(name, lora, rate):
    method, settings = trained_method(name), TuningSettings(lora=lora)
    assert settings.with_method_defaults(method, 134_515_008).learning_rate == pytest.approx(rate)
    assert settings.with_method_defaults(method, 5_300_000).learning_rate == method.defaults["learning_rate"]
    assert settings.with_method_defaults(method, 134_515_008).batch_size == min(
        16, method.defaults.get("batch_size", 64)
    )
    assert settings.with_method_defaults(method, 5_300_000).batch_size == method.defaults.get("batch_size", 64)
    unknown = settings.with_method_defaults(method, None)
    assert unknown.learning_rate is None and unknown.batch_size is None and unknown.epochs == 1
    assert TuningSettings(learning_rate=0.1).with_method_defaults(method, 134_515_008).learning_rate == 0.1


@pytest.mark.parametrize(
    ("checkpoint", "methods"),
    [
        ("llama", ["distill", "borrowed_opening"]),
        ("blenderbot", ["exchange", "borrowed_opening"]),
        ("dialogpt", ["exchange", "borrowed_opening"]),
    ],
)
def test_default_methods_by_chat_template_and_architecture(tmp_path, checkpoint, methods):
    folder = getattr(tiny_checkpoints, checkpoint)(tmp_path / "model")
    assert default_methods(ModelSettings(name=str(folder))) == methods


def trainer(folder, **changes):
    settings = TuningSettings(**{"learning_rate": 1e-3, "epochs": 1, "batch_size": 8, **changes})
    return trainer_config(trained_method("exchange"), settings, 64, torch.device("cpu"), output_dir=folder)


def adapter(**fields):
    return lora_config(tiny("gpt2").model, TuningSettings(peft=fields))


def test_other_fields_reach_trainer_and_adapter(tmp_path):
    config = trainer(tmp_path, trainer={"max_grad_norm": 0.5, "neftune_noise_alpha": 5})
    assert (config.max_grad_norm, config.neftune_noise_alpha) == (0.5, 5.0)
    assert trainer(tmp_path).report_to == []
    assert trainer(tmp_path, trainer={"report_to": "wandb"}).report_to == ["wandb"]
    with pytest.raises(InputError, match=r"^training\.trainer\.report_to: .*'absent'"):
        trainer(tmp_path, trainer={"report_to": "absent"})
    config = trainer(
        tmp_path, trainer={"optim": "adafactor"}, gradient_accumulation_steps=3, gradient_checkpointing=True
    )
    assert (config.optim, config.lr_scheduler_type, config.weight_decay) == ("adafactor", "linear", 0.0)
    assert (config.gradient_accumulation_steps, config.gradient_checkpointing) == (3, True)
    assert trainer(tmp_path).warmup_steps == TuningSettings().warmup_ratio  # transformers: below 1, a share
    assert trainer(tmp_path, trainer={"warmup_steps": 100}).warmup_steps == 100  # as in Smith et al. 2022, C.1
    assert adapter().target_modules == "all-linear"
    config = adapter(target_modules=["q_proj", "v_proj"], use_dora=True, lora_dropout=0.1)
    assert (config.target_modules, config.use_dora, config.lora_dropout) == ({"q_proj", "v_proj"}, True, 0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_grad_nrm": 1.0}, r"trainer\.max_grad_nrm: .*did you mean 'max_grad_norm'"),
        ({"max_grad_norm": "much"}, r"training\.trainer\.max_grad_norm: 'much' cannot be used"),
        (
            {"per_device_train_batch_size": 2},
            r"^training\.trainer\.per_device_train_batch_size: Evenhand sets it ",
        ),
    ],
)
def test_a_field_that_the_trainer_has_not_or_that_is_ours_is_refused(tmp_path, fields, message):
    with pytest.raises(InputError, match=message):
        trainer(tmp_path, trainer=fields)


@pytest.mark.parametrize(
    ("batch_size", "warmup_ratio", "delay"),
    [(8, 0.1, 2), (8, 0.0, 0), (64, 0.1, 0)],  # of 64 rows, the last is a training of one step
)
def test_the_weights_after_a_step_of_rate_0_are_no_candidates_for_the_best(tmp_path, batch_size, warmup_ratio, delay):
    config = trainer(tmp_path, batch_size=batch_size, warmup_ratio=warmup_ratio, evaluations_per_epoch=8)
    assert (config.eval_steps, config.eval_delay) == (1, delay)
    assert trainer(tmp_path, trainer={"eval_delay": 5}).eval_delay == 5


def test_contexts_are_held_out_whole():
    contexts = [f"c{index % 40}" for index in range(200)]
    rows = Dataset.from_dict({"context": contexts, "row": range(200)})
    train, validation = hold_out(rows, 0.1, seed=3)
    assert not set(train["context"]) & set(validation["context"])
    assert sorted([*train["row"], *validation["row"]]) == list(range(200))
    assert len(validation) == 20  # four contexts of five rows each
    assert hold_out(rows, 0.1, seed=3)[1]["row"] == validation["row"]
    assert hold_out(rows, 0.1, seed=4)[1]["row"] != validation["row"]
    rows = Dataset.from_dict({"context": ["a", "b"]})
    assert [len(side) for side in hold_out(rows, 0.99, 0)] == [1, 1]
    assert [len(side) for side in hold_out(rows, 0.01, 0)] == [1, 1]
    with pytest.raises(InputError, match="^rows: 1 "):
        hold_out(Dataset.from_dict({"context": ["a", "a"]}), 0.5, 0)
