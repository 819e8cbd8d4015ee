"""The model card claims no more than was compared."""

from evenhand.evaluation.metrics.generation_bias.decision import FELL, ROSE, UNCHANGED
from evenhand.mitigation.card import model_card, name_with_revision
from tests.tiny_models import tiny

TRAINING = {
    "train_losses": [(1, 2.0)],
    "validation_losses": [(0, 2.0), (1, 1.5)],
    "measured": {},
    "best_step": 1,
    "stopped_early": False,
    "n_train": 8,
    "n_validation": 2,
    "trainable_parameters": 100,
    "perplexity": (3.0, 3.1),
    "change": {"greedy_share": 0.5, "n": 8, "max_logit_change": 1.0},
}
FACTS = {
    "control_tag": "",
    "method": "distill",
    "loss": "KL",
    "base": "org/base",
    "base_revision": None,
    "system_prompt": "",
    "settings": {"lora": True},
    "training": TRAINING,
}


def card(change):
    return model_card(FACTS, {}, "org/base", tiny("gpt2"), is_adapter=True, change=change)


def test_each_direction_of_a_change_has_its_own_claim():
    cards = [set(card(change).splitlines()) for change in (None, FELL, UNCHANGED, ROSE)]
    claims = [lines - set.intersection(*cards) for lines in cards]
    assert [len(claim) for claim in claims] == [1] * 4 and len(set.union(*claims)) == 4


def test_a_base_without_a_revision_has_its_name_only():
    assert "(revision" not in card(None)
    assert name_with_revision("org/base", "abc") == "org/base (revision abc)"
