"""Fields of TRL's and PEFT's configs on their way through: checked by their dataclasses, ours refused by name."""

import pytest
import torch
from datasets import Dataset

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.training.arguments import adapter_config, steps_per_epoch, trainer_arguments
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import load_trainer


def trainer(folder, **changes):
    settings = TuningSettings(**{"learning_rate": 1e-3, "epochs": 1, "batch_size": 8, **changes})
    rows = Dataset.from_dict({"input_ids": [[0]] * 64})
    return trainer_arguments(load_trainer("sft"), settings, rows, torch.device("cpu"), output_dir=folder)


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
        ({"max_grad_nrm": 1.0}, r"trainer\.max_grad_nrm: .*did you mean 'max_grad_norm'"),
        ({"max_grad_norm": "much"}, r"training\.trainer\.max_grad_norm: 'much' cannot be used"),
        (
            {"per_device_train_batch_size": 2},
            r"^training\.trainer\.per_device_train_batch_size: .* training\.batch_size",
        ),
        ({"optim": "sgd"}, r"optim: .* training\.optimizer; leave it out"),
        ({"activation_checkpointing": True}, r"\.activation_checkpointing: .* training\.gradient_checkpointing"),
        ({"loss_type": "dft"}, r"training\.trainer\.loss_type: .*; leave it out"),
        ({"packing_strategy": "bdf"}, r"trainer\.packing_strategy: 'bdf' .*'bfd'"),
        ({"max_length": 10}, r"training\.trainer\.max_length: .*; leave it out"),
        ({"eval_delay": 1, "torch_empty_cache_steps": 0}, r"training: SFTConfig .*torch_empty_cache_steps"),
    ],
)
def test_a_field_that_the_trainer_has_not_or_that_is_ours_is_refused(tmp_path, fields, message):
    with pytest.raises(InputError, match=message):
        trainer(tmp_path, trainer=fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"lora_droput": 0.1}, r"peft\.lora_droput: .*did you mean 'lora_dropout'"),
        ({"r": 8}, r"training\.peft\.r: .* training\.lora_rank; leave it out"),
        ({"inference_mode": True}, r"training\.peft\.inference_mode: .*; leave it out"),
        ({"lora_dropout": "none"}, r"training\.peft\.lora_dropout: 'none' cannot be used"),
    ],
)
def test_a_field_that_the_adapter_has_not_or_that_is_ours_is_refused(fields, message):
    with pytest.raises(InputError, match=message):
        adapter(**fields)


@pytest.mark.parametrize(
    ("field", "value", "known"), [("optimizer", "adamw_trch", "adafactor"), ("scheduler", "cosin", "cosine")]
)
def test_an_unknown_optimizer_or_scheduler_is_rejected_by_transformers(tmp_path, field, value, known):
    with pytest.raises(InputError, match=f"^training: .*{value} .*'{known}'"):
        trainer(tmp_path, **{field: value})


def test_a_step_is_of_so_many_batches(tmp_path):
    # 64 rows, 8 at once, 3 times to a step: ⌈8 / 3⌉
    settings = TuningSettings(batch_size=8, gradient_accumulation_steps=3)
    assert steps_per_epoch(settings, 64) == 3
    assert steps_per_epoch(TuningSettings(batch_size=8), 65) == 9
