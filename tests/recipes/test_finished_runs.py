"""Settings of finished runs, also of those that earlier versions made."""

from evenhand.evaluation.settings import as_settings, checked
from evenhand.recipes.finished_runs import settings_of_run
from evenhand.recipes.settings import MeasureSettings


def test_deleted_settings_of_an_earlier_version_are_left_out():
    config = {
        "model": {"name": "a-model"},
        "generation_bias": {
            "permutations": 19,
            "for_comparisons": True,
            "resampling": {"exponents": None, "candidates": 4},
        },
        "sweep": [],
        "show": False,
        "log_responses": True,
        "report_to": "tensorboard",
    }
    settings = checked(MeasureSettings, settings_of_run(config), "a run")
    assert settings.generation_bias.permutations == 19
    assert settings.report_to == "none"
    assert settings.upload == "scores"
    assert config["generation_bias"]["for_comparisons"]  # the config itself is as it was
    assert settings_of_run(as_settings(settings)) == as_settings(settings)


def test_openings_and_styles_of_an_earlier_version_are_methods():
    family = {"permutations": 19, "borrowed_opening": 2, "nearest_style": 3}
    config = {"model": {"name": "a-model"}, "generation_bias": family}
    settings = checked(MeasureSettings, settings_of_run(config), "a run")
    assert settings.method == "borrowed_opening+nearest_style"
    assert (settings.borrowed_opening.first_tokens, settings.nearest_style.candidates) == (2, 3)
    plain = {**config, "generation_bias": {**family, "borrowed_opening": None, "nearest_style": None}}
    assert checked(MeasureSettings, settings_of_run(plain), "a run").method is None
