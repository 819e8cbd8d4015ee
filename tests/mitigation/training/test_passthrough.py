"""Fields of TRL's and PEFT's configs on their way through: checked by their dataclasses, ours refused by name."""

import pytest
import torch

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.training.arguments import steps_per_epoch, training_arguments
from evenhand.mitigation.training.passthrough import adapter_config
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import sft

CPU = torch.device("cpu")


def trainer(folder, **changes):
    settings = TuningSettings(**{"learning_rate": 1e-3, "epochs": 1, "batch_size": 8, **changes})
    common = training_arguments(settings, 0, 64, folder, "none", None, CPU)
    return sft.arguments(common, settings, None)


def adapter(**fields):
    ours = {"r": 4, "lora_alpha": 8, "fan_in_fan_out": False, "trainable_token_indices": None, "task_type": None}
    return adapter_config(ours, TuningSettings(peft=fields))


def test_any_other_field_reaches_the_trainer(tmp_path):
    config = trainer(tmp_path, trainer={"max_grad_norm": 0.5, "neftune_noise_alpha": 5})
    assert (config.max_grad_norm, config.neftune_noise_alpha) == (0.5, 5.0)
    config = trainer(
        tmp_path, optimizer="adafactor", scheduler="cosine", gradient_accumulation_steps=3, gradient_checkpointing=True
    )
    assert (config.optim, config.lr_scheduler_type) == ("adafactor", "cosine")
    assert (config.gradient_accumulation_steps, config.gradient_checkpointing) == (3, True)


def test_any_other_field_reaches_the_adapter():
    assert adapter().target_modules == "all-linear"
    config = adapter(target_modules=["q_proj", "v_proj"], use_dora=True, lora_dropout=0.1)
    assert (config.target_modules, config.use_dora, config.lora_dropout) == ({"q_proj", "v_proj"}, True, 0.1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_grad_nrm": 1.0}, r"trainer\.max_grad_nrm: SFTConfig has no such field; did you mean 'max_grad_norm'"),
        ({"max_grad_norm": "much"}, r"training\.trainer\.max_grad_norm: 'much' cannot be used"),
        ({"per_device_train_batch_size": 2}, r"Evenhand sets it by training\.batch_size; leave it out"),
        ({"optim": "sgd"}, r"Evenhand sets it by training\.optimizer; leave it out"),
        ({"activation_checkpointing": True}, r"Evenhand sets it by training\.gradient_checkpointing; leave it out"),
        ({"loss_type": "dft"}, r"training\.trainer\.loss_type: Evenhand sets it by itself; leave it out"),
        ({"packing_strategy": "bdf"}, r"trainer\.packing_strategy: 'bdf' is unknown; did you mean 'bfd'"),
        ({"max_length": 10}, r"training\.trainer\.max_length: Evenhand sets it by itself; leave it out"),
        ({"eval_delay": 1, "torch_empty_cache_steps": 0}, r"training\.trainer: SFTConfig refuses it: "),
    ],
)
def test_a_field_that_the_trainer_has_not_or_that_is_ours_is_refused(tmp_path, fields, message):
    with pytest.raises(InputError, match=message):
        trainer(tmp_path, trainer=fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lora_droput": 0.1}, r"peft\.lora_droput: LoraConfig has no such field; did you mean 'lora_dropout'"),
        ({"r": 8}, r"training\.peft\.r: Evenhand sets it by training\.lora_rank; leave it out"),
        ({"inference_mode": True}, r"training\.peft\.inference_mode: Evenhand sets it by itself"),
        ({"lora_dropout": "none"}, r"training\.peft\.lora_dropout: 'none' cannot be used"),
    ],
)
def test_a_field_that_the_adapter_has_not_or_that_is_ours_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        adapter(**fields)


@pytest.mark.parametrize(
    ("field", "value", "meant"), [("optimizer", "adamw_trch", "adamw_torch"), ("scheduler", "cosin", "cosine")]
)
def test_an_unknown_optimizer_or_scheduler_is_refused(tmp_path, field, value, meant):
    with pytest.raises(InputError, match=rf"training\.{field}: '{value}' is unknown; did you mean '{meant}"):
        trainer(tmp_path, **{field: value})


def test_a_step_is_of_so_many_batches(tmp_path):
    # 64 rows, 8 at once, 3 times to a step: ⌈8 / 3⌉
    settings = TuningSettings(batch_size=8, gradient_accumulation_steps=3)
    assert steps_per_epoch(settings, 64) == 3
    assert steps_per_epoch(TuningSettings(batch_size=8), 65) == 9
