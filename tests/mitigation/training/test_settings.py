"""Settings on their way from the config to the trainer."""

import math

import pytest
from pydantic import ValidationError

from evenhand.mitigation.methods import load_method
from evenhand.mitigation.training.settings import TuningSettings


@pytest.mark.parametrize(("name", "rate"), [("control_tags", 2e-4), ("kto", 2e-5), ("dpo", 2e-5)])
def test_kto_and_dpo_may_have_a_learning_rate_of_their_own(name, rate):
    both = TuningSettings(learning_rate=2e-4, preference_learning_rate=2e-5)
    once = both.with_method_defaults(load_method(name))
    assert once.learning_rate == rate
    assert once.with_method_defaults(load_method(name)) == once


def test_what_is_given_stays_and_what_is_null_is_the_methods_own():
    assert TuningSettings(learning_rate=2e-4).with_method_defaults(load_method("kto")).learning_rate == 2e-4
    settings = TuningSettings().with_method_defaults(load_method("kto"))
    assert {name: getattr(settings, name) for name in load_method("kto").DEFAULTS} == load_method("kto").DEFAULTS
    assert settings.epochs == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"lora_rank": 0},
        {"learning_rate": 0.0},
        {"learning_rate": math.inf},
        {"preference_beta": math.nan},
        {"weight_decay": math.inf},
        {"relevance_weight": math.inf},
        {"validation_fraction": 1.0},
        {"epoch": 3},
        {"dtype": "int8"},
    ],
)
def test_settings_out_of_range_or_misspelt_are_refused(changes):
    with pytest.raises(ValidationError, match=next(iter(changes))):
        TuningSettings(**changes)
