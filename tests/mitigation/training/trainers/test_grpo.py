"""GRPO on a tiny model: what it says of the base, what rewards teach, a kill, positions of padded rows, refusals."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from peft import PeftModel

from evenhand.evaluation.errors import InputError, TuningRejected
from evenhand.evaluation.models.contexts import encode_contexts
from evenhand.mitigation.training.data import TuningData
from evenhand.mitigation.training.fit import last_checkpoint
from evenhand.mitigation.training.guards import weights_sha256
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import grpo
from evenhand.mitigation.training.tune import tune
from tests.mitigation.training.trainers.test_preference import Interrupt, contexts
from tests.mitigation.training.trainers.test_preference import tiny_base as shorter_base

QUICK = TuningSettings(
    epochs=1,
    batch_size=8,
    num_generations=4,
    learning_rate=2e-2,
    preference_beta=0.01,
    evaluations_per_epoch=2,
    patience=9,
    max_perplexity_increase=99,
)
RED = 3  # the token


def red(completion_ids, weight, **further):
    """Return the weight of the row times the share of a response's tokens that are red."""
    return [scale * ids.count(RED) / len(ids) for ids, scale in zip(completion_ids, weight, strict=True)]


def tiny_base(n_positions=64):
    return shorter_base(n_positions)


def rows_of(n, seed=0, weight=2.0):
    texts = contexts(n, seed)
    return Dataset.from_dict({"prompt": texts, "context": texts, "completion": ["sun"] * n, "weight": [weight] * n})


def tuned(folder, settings=QUICK, base=None, reward=red, **arguments):
    data = TuningData(
        method="grpo", trainer="grpo", train=rows_of(64), validation=rows_of(16, seed=1), rewards=[reward]
    )
    return tune(base or tiny_base(), data, settings, folder, **arguments)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return tuned(tmp_path_factory.mktemp("grpo"))


def share_of_red(model):
    """How likely the first token of a response is red, on average over contexts."""
    with torch.inference_mode():
        logits = [model(torch.tensor([ids])).logits[0, -1] for ids in encode_contexts(tiny_base(), contexts(20, 2))]
    return float(torch.stack(logits).softmax(-1)[:, RED].mean())


def test_what_is_rewarded_becomes_likelier_and_the_base_stays_as_it_was(undisturbed):
    base = tiny_base()
    untouched = weights_sha256(base.model)
    after = PeftModel.from_pretrained(tiny_base().model, str(undisturbed.path)).eval()
    assert share_of_red(after) > share_of_red(base.model) + 0.2
    assert weights_sha256(base.model) == untouched
    assert dict(undisturbed.validation_losses)[undisturbed.best_step] < undisturbed.validation_losses[0][1]


def test_the_loss_of_the_base_is_its_reward_as_it_is_its_own_reference(tmp_path):
    """β × KL − reward, of which the first is 0: minus one half, if each response has a reward of one half."""
    settings = replace(QUICK, preference_beta=5.0, learning_rate=1e-9)
    data = {"train": rows_of(8), "validation": rows_of(8, seed=1)}
    rewards = [lambda prompts, **further: [0.5] * len(prompts)]
    worth_a_half = TuningData(method="grpo", trainer="grpo", rewards=rewards, **data)
    with pytest.raises(TuningRejected, match="tiny"):
        tune(tiny_base(), worth_a_half, settings, tmp_path)
    log = json.loads((last_checkpoint(tmp_path / "checkpoints") / "trainer_state.json").read_text())["log_history"]
    losses = [entry[name] for entry in log for name in ("loss", "eval_loss") if name in entry]
    assert len(losses) >= 3 and losses == pytest.approx([-0.5] * len(losses), abs=1e-5)


def test_a_killed_tuning_goes_on_to_the_same_bytes(undisturbed, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tuned(tmp_path, callbacks=[Interrupt()])
    resumed = tuned(tmp_path)
    weights = "adapter_model.safetensors"
    assert (resumed.path / weights).read_bytes() == (undisturbed.path / weights).read_bytes()
    assert resumed.validation_losses == undisturbed.validation_losses
    assert resumed.train_losses == undisturbed.train_losses


def test_rows_batches_and_positions():
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    _, arguments = grpo.add_position_ids(None, (), {"fused_lm_head": True, "attention_mask": mask})
    assert arguments["position_ids"].tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    assert "position_ids" not in grpo.add_position_ids(None, (), {"attention_mask": mask})[1]  # generation has its own
    rows = rows_of(5)
    encoded = grpo.encode_rows(tiny_base(), rows, QUICK, seed=3)
    order = np.random.default_rng(3).permutation(5)
    assert encoded["prompt"] == [encode_contexts(tiny_base(), [rows["prompt"][row]])[0] for row in order]
    assert encoded["context"] == [rows["context"][row] for row in order]
    common = {"output_dir": "x", "use_cpu": True, "bf16": False, "per_device_train_batch_size": 8}
    arguments = grpo.build_config(common, QUICK, rows_of(64))
    assert (arguments.per_device_train_batch_size, arguments.num_generations) == (32, 4)
    assert grpo.build_config(common, QUICK, rows_of(3)).per_device_train_batch_size == 12  # there are no more


def test_responses_that_may_be_too_long_are_refused(tmp_path):
    with pytest.raises(InputError, match="40 tokens has 45, .* tiny has 32"):
        tuned(tmp_path, QUICK, shorter_base())
