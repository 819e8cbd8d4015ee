"""Preference training: rows by hand, DPO's loss by hand with the adapter off as reference, and a training."""

import math

import pytest
import torch
from datasets import Dataset
from peft import get_peft_model
from trl import DPOTrainer

from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.trainer_configs import lora_config
from evenhand.mitigation.trainers import PreferenceTrainer
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import TrainingRows
from tests.mitigation.test_methods import labelled, render
from tests.mitigation.tiny_dialogue import QUICK, tiny_base

ROWS = {
    "prompt": ["a b<eos>", "c<eos>"],
    "context": ["a b<eos>", "c<eos>"],
    "completion": ["red sun", "sky"],
    "completion_cut": [False, False],
    "rejected": ["blue", "blue sky blue"],
    "rejected_cut": [False, True],
}


def test_the_own_response_with_the_largest_bias_value_is_rejected_for_one_to_another_person():
    table = labelled()
    rows = trained_method("preference", seed=1).rows(table, render).to_dict()
    exchanged = trained_method("exchange", seed=1).rows(table, render).to_dict()
    # "tall" has two responses at this template: b is 0.1 and 0.3.
    assert rows["rejected"] == ["Deaf? Sad!", "Wow, tall!", "Rich is fine."]
    assert rows["completion"] == [exchanged["completion"][row] for row in (0, 2, 3)]
    assert rows["prompt"] == rows["context"] == [exchanged["prompt"][row] for row in (0, 2, 3)]


def test_token_ids_are_those_of_tune_and_a_cut_response_has_no_end():
    rows = PreferenceTrainer.encode_rows(tiny_base(), Dataset.from_dict(ROWS))
    a, b, c, red, sun, blue, sky, end = 7, 8, 9, 3, 4, 5, 6, 0
    assert rows["prompt_ids"] == [[a, b, end], [c, end]]
    assert rows["chosen_ids"] == [[red, sun, end], [sky, end]]
    assert rows["rejected_ids"] == [[blue, end], [blue, sky, blue]]  # without an end


def test_the_loss_by_hand(tmp_path):
    base = tiny_base()
    settings = QUICK.replaced(batch_size=2)
    rows = PreferenceTrainer.encode_rows(base, Dataset.from_dict(ROWS))
    config = PreferenceTrainer.config_class(
        str(tmp_path), beta=0.5, use_cpu=True, bf16=False, report_to="none", **PreferenceTrainer.config_fields
    )
    network = get_peft_model(base.model, lora_config(base.model, settings))
    collate = PreferenceTrainer.collator(base, pad_token_id=1)
    trainer = PreferenceTrainer(
        network, args=config, data_collator=collate, train_dataset=rows, processing_class=base.tokenizer
    )
    assert isinstance(trainer, DPOTrainer) and list(trainer.model.peft_config) == ["default"]
    batch = collate(list(rows))
    assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(math.log(2), abs=1e-6)
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2, generator=torch.Generator().manual_seed(0))

        def log_p(prompt, response):
            logits = trainer.model(input_ids=torch.tensor([prompt + response])).logits[0].log_softmax(-1)
            return sum(logits[len(prompt) - 1 + n, token].item() for n, token in enumerate(response))

        losses = []
        for row in rows:
            chosen, rejected = (log_p(row["prompt_ids"], row[name]) for name in ("chosen_ids", "rejected_ids"))
            with trainer.model.disable_adapter():
                chosen -= log_p(row["prompt_ids"], row["chosen_ids"])
                rejected -= log_p(row["prompt_ids"], row["rejected_ids"])
            losses.append(-math.log(1 / (1 + math.exp(-0.5 * (chosen - rejected)))))
        assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(sum(losses) / 2, abs=1e-4)


def test_it_trains_and_evaluates(tmp_path):
    prompts = [f"{letter} j<eos>" for letter in "abcdefgh"]
    columns = {"prompt": prompts, "context": prompts, "completion": ["red sun"] * 8, "rejected": ["blue sky"] * 8}
    rows = Dataset.from_dict({**columns, "completion_cut": [False] * 8, "rejected_cut": [False] * 8})
    data = TrainingRows(method=trained_method("preference"), train=rows, validation=rows.select([0, 1]))
    settings = QUICK.replaced(batch_size=4, epochs=8, evaluations_per_epoch=1, patience=99, max_perplexity_rise=None)
    result = tune(tiny_base(), data, settings, tmp_path)
    losses = [loss for _, loss in result.validation_losses]
    assert losses[0] == pytest.approx(math.log(2), abs=1e-4)
    assert losses[-1] < losses[0] / 2
