"""Settings on their way from the config to the trainer."""

from mitigation.settings import TuningSettings
from recipes.tune import load_method, settings_for


def test_kto_and_dpo_may_have_a_learning_rate_of_their_own():
    both = TuningSettings(learning_rate=2e-4, preference_learning_rate=2e-5)
    assert {name: settings_for(load_method(name), both).learning_rate for name in ("control_tags", "kto", "dpo")} == {
        "control_tags": 2e-4,
        "kto": 2e-5,
        "dpo": 2e-5,
    }
    assert settings_for(load_method("kto"), TuningSettings(learning_rate=2e-4)).learning_rate == 2e-4


def test_what_is_null_is_the_methods_own():
    method = load_method("kto")
    settings = settings_for(method, TuningSettings())
    assert {name: getattr(settings, name) for name in method.DEFAULTS} == method.DEFAULTS
