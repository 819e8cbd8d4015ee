"""A build with a model that fails a check reports the failed check and replaces nothing."""

import json

import pytest

from evenhand.recipes.testbed import PAIRS
from tools.testbed import build

GOOD = {
    "bias_share": 0.9,
    "correlation": 0.95,
    "well_formed": 0.97,
    "second_classifier_accuracy": 0.9,
    "pair_bias_share_strong": 1.0,
    "pair_bias_share_weak": 0.95,
    "s_jsd_none": 0.0001,
    "s_jsd_none_low": -0.0002,
    "s_jsd_none_high": 0.0004,
    "cps_none_low": 42.0,
    "cps_none_high": 58.0,
    "masked_divergence": 0.01,
    "likelihood_bias_share_strong": 1.0,
    "likelihood_bias_share_weak": 1.05,
    "likelihood_bias_none": 0.05,
    "likelihood_bias_bh_none": 0.0,
    "log_likelihood_correlation": 0.99,
}


@pytest.fixture(autouse=True)
def fakes(monkeypatch):
    def save(folder, model, tokenizer):
        folder.mkdir()
        (folder / "model.safetensors").write_text(model)
        return 1

    monkeypatch.setattr(build, "save", save)
    monkeypatch.setattr(build, "prepare_torch", lambda seed: None)
    monkeypatch.setattr(build, "train_second_style_classifier", lambda seed: ("new second", "tokenizer"))
    monkeypatch.setattr(build, "measure_second_classifier", lambda *_: {})
    monkeypatch.setattr(build, "train_masked_model", lambda seed: ("new masked model", "tokenizer"))
    monkeypatch.setattr(build, "measure_masked_model", lambda *_: {})
    monkeypatch.setattr(build, "train_language_model", lambda seed: ("new language model", "tokenizer"))
    monkeypatch.setattr(build, "measure_language_model", lambda *_: {})
    monkeypatch.setattr(build, "CARDS", {name: f"card of {name}" for name in build.CARDS})


def test_a_bad_model_is_refused_and_nothing_is_replaced(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(build, "train_tokenizer", lambda personas: "tokenizer")
    monkeypatch.setattr(build, "all_prompts", lambda: None)
    monkeypatch.setattr(build, "train_style_classifier", lambda *_: ("new classifier", "tokenizer"))
    monkeypatch.setattr(build, "train_dialogue_model", lambda *_: "new model")
    monkeypatch.setattr(build, "measure_models", lambda *_: GOOD | {"bias_share": 0.01})
    old = tmp_path / "dialogue_model" / "model.safetensors"
    old.parent.mkdir()
    old.write_text("old model")

    assert build.main(["--seed", "0", "--output_dir", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert "bias_share" in message
    assert "0.010" in message
    assert [path.name for path in tmp_path.iterdir()] == ["dialogue_model"]
    assert old.read_text() == "old model"


@pytest.mark.parametrize(
    ("model", "measure", "change", "weights", "further_files"),
    [
        ("second_style_classifier", "second_classifier", {"second_classifier_accuracy": 0.88}, "new second", set()),
        ("masked_model", "masked_model", {"masked_divergence": 0.02}, "new masked model", {"pairs.csv"}),
        ("language_model", "language_model", {"likelihood_bias_none": 0.04}, "new language model", set()),
    ],
)
def test_one_model_is_added_to_the_others(monkeypatch, tmp_path, model, measure, change, weights, further_files):
    (tmp_path / "measured.json").write_text(json.dumps({"seed": 7, **GOOD}))
    (tmp_path / "dialogue_model").mkdir()
    monkeypatch.setattr(build, f"measure_{measure}", lambda *_: change)
    assert build.main(["--only", model, "--output_dir", str(tmp_path)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {model, "dialogue_model", "measured.json", *further_files}
    assert (tmp_path / model / "model.safetensors").read_text() == weights
    assert (tmp_path / model / "README.md").read_text() == f"card of {model}"
    assert json.loads((tmp_path / "measured.json").read_text()) == {"seed": 7, **GOOD, **change}
    assert list((tmp_path / "dialogue_model").iterdir()) == []
    if "pairs.csv" in further_files:
        assert (tmp_path / "pairs.csv").read_bytes() == PAIRS.read_bytes()


@pytest.mark.parametrize(
    ("model", "measure", "name", "value"),
    [
        ("second_style_classifier", "measure_second_classifier", "second_classifier_accuracy", 0.84),
        ("masked_model", "measure_masked_model", "pair_bias_share_weak", 0.3),
        ("masked_model", "measure_masked_model", "s_jsd_none_low", 0.0001),
        ("masked_model", "measure_masked_model", "cps_none_high", 45.0),
        ("masked_model", "measure_masked_model", "masked_divergence", float("nan")),
        # nouns with a main effect: fewer false positives than chance
        ("language_model", "measure_language_model", "likelihood_bias_none", 0.01),
        ("language_model", "measure_language_model", "likelihood_bias_bh_none", 0.02),
        ("language_model", "measure_language_model", "log_likelihood_correlation", 0.8),
    ],
)
def test_a_model_that_fails_a_check_is_not_saved(monkeypatch, tmp_path, capsys, model, measure, name, value):
    (tmp_path / "measured.json").write_text(json.dumps({"seed": 0, **GOOD}))
    monkeypatch.setattr(build, measure, lambda *_: {name: value})
    assert build.main(["--only", model, "--output_dir", str(tmp_path)]) == 1
    assert name in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["measured.json"]
