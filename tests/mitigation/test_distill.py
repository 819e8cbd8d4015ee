"""Distillation on a tiny model: encoded rows, the loss against a calculation by hand, and the tuned predictions."""

from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from peft import get_peft_model
from transformers import OPTConfig, OPTForCausalLM

from evenhand.evaluation.errors import TuningRejected
from evenhand.evaluation.models.contexts import encode_contexts
from evenhand.mitigation.adapter import load_tuned
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.distill import Distill
from evenhand.mitigation.trainer_configs import lora_config
from evenhand.mitigation.trainers import DistillConfig, DistillTrainer, cut_responses
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import TrainingRows
from tests.mitigation.tiny_dialogue import QUICK, WORDS, tiny_base

ROWS = {
    "prompt": ["a b", "c"],
    "context": ["a b", "c"],
    "completion": ["red sun", "sky"],
    "others": [["a c", "d"], ["b b", "a"]],
    "trained": [["a b", "a c"], ["c", "b b"]],
}
SETTINGS = QUICK.replaced(batch_size=2)
METHOD = trained_method("distill", {"distill": Distill.Settings(first_tokens=9)})


def encoded(base, **columns):
    return DistillTrainer.encode_rows(base, Dataset.from_dict({**ROWS, **columns}))


def test_every_prompt_of_a_row_has_its_response():
    base = tiny_base()
    a, b, c, d, red, sun, sky, end = *range(7, 11), 3, 4, 6, 0
    rows = encoded(base)
    assert rows["input_ids"] == [
        [[a, b, red, sun, end], [a, c, red, sun, end], [d, red, sun, end]],
        [[c, sky, end], [b, b, sky, end], [a, sky, end]],
    ]
    assert rows["trained_ids"] == [group[:2] for group in rows["input_ids"]]
    assert rows["labels"] == [[-100, red, sun, end], [-100, sky, end]]
    batch = DistillTrainer.collator(base, pad_token_id=1)(list(rows))
    assert batch["labels"].tolist() == [[-100, red, sun, end], [-100, -100, sky, end]]
    assert batch["input_ids"].shape == (6, 5) and batch["trained_input_ids"].shape == (4, 5)
    assert batch["input_ids"][5].tolist() == [1, 1, a, sky, end]
    assert batch["trained_attention_mask"][2].tolist() == [0, 0, 1, 1, 1]


def trainer_and_batch(base, tmp_path, rows, first_tokens=9, **config):
    quiet = {"use_cpu": True, "bf16": False, "report_to": "none", "disable_tqdm": True, "gradient_checkpointing": False}
    fields = {**quiet, **config, **DistillTrainer.config_fields}
    config = DistillConfig(str(tmp_path), first_tokens=first_tokens, **fields)
    model = get_peft_model(base.model, lora_config(base.model, SETTINGS))
    trainer = DistillTrainer(model, args=config, train_dataset=rows, processing_class=base.tokenizer)
    return trainer, DistillTrainer.collator(base, pad_token_id=1)(list(rows))


def test_the_loss_of_the_base_is_the_mean_divergence_from_the_mean_of_its_predictions(tmp_path):
    base = tiny_base()
    rows = encoded(base)
    divergences = []
    with torch.no_grad():
        for sequences, labels in zip(rows["input_ids"], rows["labels"], strict=True):
            n = sum(label != -100 for label in labels)
            p = torch.stack([base.model(torch.tensor([ids])).logits[0, -n - 1 : -1].softmax(-1) for ids in sequences])
            mean = p.log().mean(0).exp()
            mean /= mean.sum(-1, keepdim=True)
            divergences += (mean * (mean.log() - p[:2].log())).sum(-1).flatten().tolist()  # two learn
    trainer, batch = trainer_and_batch(base, tmp_path, rows)
    assert len(divergences) == 2 * (3 + 2) and min(divergences) > 1e-4
    by_hand = sum(divergences) / len(divergences)
    assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(by_hand, rel=1e-4)
    assert trainer.compute_loss(trainer.model, batch, num_items_in_batch=10).item() == pytest.approx(
        by_hand / 2, rel=1e-4
    )


@pytest.mark.parametrize("first_tokens", [1, 2])
def test_after_the_opening_the_target_is_the_own_prediction_of_the_base(tmp_path, first_tokens):
    base = tiny_base()
    rows = encoded(base)
    trainer, batch = trainer_and_batch(base, tmp_path, rows, first_tokens)
    with torch.no_grad():  # an adapter that changes predictions, so that those of model and base differ
        for name, weight in trainer.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2, generator=torch.Generator().manual_seed(0))

        def predictions(sequences, n):
            return torch.stack([trainer.model(torch.tensor([s])).logits[0, -n - 1 : -1].softmax(-1) for s in sequences])

        divergences = []
        for sequences, labels in zip(rows["input_ids"], rows["labels"], strict=True):
            n = sum(label != -100 for label in labels)
            q = predictions(sequences, n)
            with trainer.model.disable_adapter():
                p = predictions(sequences, n)
            for position in range(n):
                mean = p[:, position].log().mean(0).exp()
                for own, learned in zip(p[:2, position], q[:2, position], strict=True):
                    target = mean / mean.sum() if position < first_tokens else own
                    divergences.append((target * (target.log() - learned.log())).sum().item())
    assert trainer.compute_loss(trainer.model, batch).item() == pytest.approx(sum(divergences) / 10, rel=1e-4)


def test_responses_are_cut_after_their_opening():
    ids = torch.tensor([[[9, 1, 2, 3, 4], [7, 8, 2, 3, 4]], [[0, 0, 5, 6, 9], [0, 5, 6, 6, 9]]])
    batch = {"input_ids": ids, "attention_mask": (ids > 0).long()}  # responses [2, 3, 4] and [9]
    cut, is_kept = cut_responses(batch, torch.tensor([3, 1]), 2)
    assert cut["input_ids"][0, :, 1:].tolist() == [[9, 1, 2, 3], [7, 8, 2, 3]]
    assert cut["input_ids"][1].tolist() == ids[1].tolist()
    assert cut["attention_mask"].tolist() == [[[0, 1, 1, 1, 1]] * 2, [[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]]]
    assert is_kept.tolist() == [[True, True], [False, True]]
    assert cut_responses(batch, torch.tensor([3, 2]), 1)[0]["input_ids"].shape[2] == 4  # no column of padding only
    assert cut_responses(batch, torch.tensor([3, 1]), 9)[0]["input_ids"].tolist() == ids.tolist()


def test_the_tuned_model_predicts_for_everybody_nearly_the_same_mean(tmp_path):
    base, letters = tiny_base(), "abcdefgh"
    prompts = [f"{letter} j" for letter in letters]
    rows = {"prompt": prompts, "context": prompts, "completion": ["red sun", "blue sky"] * 4}
    rows["others"] = [[other for other in prompts if other != prompt] for prompt in prompts]
    rows["trained"] = [[prompt, others[0]] for prompt, others in zip(prompts, rows["others"], strict=True)]
    rows = Dataset.from_dict(rows)
    data = TrainingRows(method=METHOD, train=rows, validation=rows.select([0, 1]))
    result = tune(base, data, SETTINGS.replaced(epochs=30, patience=99), tmp_path)
    losses = [loss for _, loss in result.validation_losses]
    assert losses[-1] < losses[0] / 10

    def predictions(model):
        with torch.no_grad():
            ids = torch.tensor(encode_contexts(model, prompts))
            return model.model(ids).logits[:, -1].log_softmax(-1)

    before, after = (predictions(model) for model in (base, load_tuned(base, result.path, True)))
    mean = before.mean(0).log_softmax(-1)
    distances = [(predicted.exp() * (predicted - mean)).sum(-1).mean().item() for predicted in (before, after)]
    assert distances[1] < distances[0] / 10


def test_the_loss_has_no_dropout(tmp_path):
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "ffn_dim": 64, "num_attention_heads": 2}
    config = OPTConfig(vocab_size=len(WORDS), word_embed_proj_dim=32, dropout=0.5, eos_token_id=0, **sizes)
    base = replace(tiny_base(), model=OPTForCausalLM(config).eval())
    trainer, batch = trainer_and_batch(base, tmp_path, encoded(base))
    losses = []
    for _ in range(2):
        trainer.model.train()  # as the trainer does before each step
        losses.append(trainer.compute_loss(trainer.model, batch).item())
    assert losses[0] == losses[1]


def loss_of(tmp_path, rows, **config):
    """Return the loss of an adapter that changes predictions, on encoded rows."""
    trainer, batch = trainer_and_batch(tiny_base(), tmp_path, rows, **config)  # which seeds the adapter
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2, generator=torch.Generator().manual_seed(0))
        return trainer.compute_loss(trainer.model, batch).item()


def test_rows_that_are_not_to_be_evened_out_learn_the_own_prediction(tmp_path):
    base = tiny_base()
    own = loss_of(tmp_path, encoded(base), first_tokens=0)
    even = loss_of(tmp_path, encoded(base))
    assert own != pytest.approx(even, rel=1e-3)
    first_even = loss_of(tmp_path, encoded(base, is_even=[True, False]))
    second_even = loss_of(tmp_path, encoded(base, is_even=[False, True]))
    assert loss_of(tmp_path, encoded(base, is_even=[False, False])) == pytest.approx(own, rel=1e-5)
    assert loss_of(tmp_path, encoded(base, is_even=[True, True])) == pytest.approx(even, rel=1e-5)
    # The loss is a sum over tokens: what the two rows change adds up.
    assert first_even - own + second_even - own == pytest.approx(even - own, rel=1e-3)


def test_the_smallest_divergence_chooses_rows(tmp_path):
    base = tiny_base()
    rows = encoded(base)
    losses = {}
    for min_divergence in (0.0, 1e-9, 99.0):
        losses[min_divergence] = loss_of(tmp_path, rows, min_divergence=min_divergence)
    assert losses[0.0] == losses[1e-9]
    assert losses[99.0] == pytest.approx(loss_of(tmp_path, rows, first_tokens=0), rel=1e-5)


def test_own_words_are_the_tokens_in_which_the_prompts_differ(tmp_path):
    base = tiny_base()
    a, b, c, d = range(7, 11)
    rows = encoded(base, spares_own_words=[True, True])
    assert rows["own_words"] == [[a, b, c, d], [a, b, c]]
    spared = loss_of(tmp_path, rows)
    assert spared != pytest.approx(loss_of(tmp_path, encoded(base)), rel=1e-4)


def test_a_row_may_be_cut():
    base = tiny_base()
    rows = encoded(base, max_tokens=[1, 9])
    assert rows["labels"] == [[-100, 3], [-100, 6, 0]]
    assert rows["input_ids"][0][0] == [7, 8, 3]


def test_choices_reach_the_loss_in_training_and_validation(tmp_path):
    """Both rows are not evened out: nothing is to be learned, so that the first validation loss is 0."""
    base = tiny_base()
    prompts = ["a j", "b j", "c j", "d j"]
    rows = {"prompt": prompts, "context": prompts, "completion": ["red sun", "blue sky"] * 2}
    rows["others"] = [[other for other in prompts if other != prompt] for prompt in prompts]
    rows["trained"] = [[prompt, others[0]] for prompt, others in zip(prompts, rows["others"], strict=True)]
    rows |= {"is_even": [False] * 4, "spares_own_words": [True] * 4}
    rows = Dataset.from_dict(rows)
    data = TrainingRows(method=METHOD, train=rows, validation=rows.select([0, 1]))
    with pytest.raises(TuningRejected, match="did not change the outputs"):
        tune(base, data, SETTINGS.replaced(epochs=1, learning_rate=1e-9), tmp_path)
