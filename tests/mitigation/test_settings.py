"""Settings on their way from the config to the trainer."""

from importlib import import_module

import pytest

from mitigation.settings import TuningSettings


def method(name):
    return import_module(f"mitigation.methods.{name}")


@pytest.mark.parametrize(("name", "rate"), [("control_tags", 2e-4), ("kto", 2e-5), ("dpo", 2e-5)])
def test_kto_and_dpo_may_have_a_learning_rate_of_their_own(name, rate):
    both = TuningSettings(learning_rate=2e-4, preference_learning_rate=2e-5)
    once = both.filled_in(method(name))
    assert once.learning_rate == rate
    assert once.filled_in(method(name)) == once


def test_what_is_given_stays_and_what_is_null_is_the_methods_own():
    assert TuningSettings(learning_rate=2e-4).filled_in(method("kto")).learning_rate == 2e-4
    settings = TuningSettings().filled_in(method("kto"))
    assert {name: getattr(settings, name) for name in method("kto").DEFAULTS} == method("kto").DEFAULTS
    assert settings.epochs == 1
