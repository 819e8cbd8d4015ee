"""Openings that the model writes while it is trained: where they stand, from which distribution, and the training."""

import pytest
import torch
from datasets import Dataset

from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.distill import Distill
from evenhand.mitigation.sampled_openings import sampled_openings, with_openings
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import TrainingRows
from tests.mitigation.test_distill import ROWS, SETTINGS, encoded, trainer_and_batch
from tests.mitigation.tiny_dialogue import tiny_base


def test_an_opening_stands_at_the_beginning_of_each_response():
    ids = torch.tensor([[[9, 1, 2, 3, 4], [7, 8, 2, 3, 4]], [[0, 0, 5, 6, 9], [0, 5, 6, 6, 9]]])
    opening = torch.tensor([[11, 12], [13, 14]])
    replaced = with_openings(ids, opening, torch.tensor([3, 1]))  # responses [2, 3, 4] and [9]
    assert replaced.tolist() == [[[9, 1, 11, 12, 4], [7, 8, 11, 12, 4]], [[0, 0, 5, 6, 13], [0, 5, 6, 6, 13]]]


def test_openings_are_drawn_from_the_predictions_of_the_model():
    base = tiny_base()
    n = 4000
    context = torch.tensor([[7, 8]]).expand(n, -1)
    placeholder = torch.full((n, 2), 3)
    ids = torch.cat([context, placeholder], dim=1)
    torch.manual_seed(0)
    opening = sampled_openings(base.model, {"input_ids": ids, "attention_mask": ids * 0 + 1}, torch.full((n,), 2), 2)
    for position in range(2):
        prefix = torch.cat([context, opening[:, :position]], dim=1)
        with torch.no_grad():
            logits = base.model(prefix).logits[:, -1]
        logits[:, 0] = -torch.inf  # the end of a response
        expected = logits.softmax(-1).mean(0)
        found = torch.bincount(opening[:, position], minlength=logits.shape[1]) / n
        assert (found - expected).abs().max() < 5 * (0.25 / n) ** 0.5
        assert found[0] == 0


@pytest.mark.parametrize("own_openings", [True, False])
def test_while_it_is_trained_a_batch_has_openings_of_the_model(tmp_path, own_openings):
    base = tiny_base()
    trainer, batch = trainer_and_batch(base, tmp_path, encoded(base), first_tokens=2, own_openings=own_openings)
    seen = []
    plain = trainer._base_predictions
    trainer._base_predictions = lambda model, sequences, *rest: seen.append(sequences) or plain(model, sequences, *rest)
    for _ in range(5):
        trainer.model.train()
        trainer.compute_loss(trainer.model, batch)
    trainer.model.eval()
    trainer.compute_loss(trainer.model, batch)
    found = torch.stack([sequences["input_ids"] for sequences in seen])  # (batches, rows, people, t)
    rows = batch["input_ids"].unflatten(0, (2, -1))
    assert torch.equal(found[-1], rows)  # of a validation
    assert torch.equal(found[..., :2], rows[..., :2].expand_as(found[..., :2]))
    openings = found[:5, 0, :, 2:4]  # of the response of three tokens, after its context of two
    assert (openings == openings[:, :1]).all()  # all people of a row read the same
    assert (len(openings[:, 0].unique(dim=0)) > 1) == own_openings
    assert (found[:5, 0, :, 4] == rows[0, :, 4]).all()  # later tokens stay


def test_distill_learns_on_openings_of_its_own(tmp_path):
    base = tiny_base()
    rows = Dataset.from_dict(ROWS)
    losses = {}
    for own_openings in (True, False):
        method = trained_method("distill", {"distill": Distill.Settings(own_openings=own_openings)})
        data = TrainingRows(method=method, train=rows, validation=rows)
        result = tune(base, data, SETTINGS.replaced(epochs=20, patience=99), tmp_path / str(own_openings))
        losses[own_openings] = [loss for _, loss in result.validation_losses]
    assert losses[True][0] == losses[False][0] and losses[True][-1] != losses[False][-1]
    assert min(losses[True]) < losses[True][0] * 2 / 3
