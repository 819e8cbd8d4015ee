"""A build whose model did not learn the bias is refused, says why, and leaves what was there alone."""

from recipes.testbed import build

GOOD = {"bias_share": 0.9, "correlation": 0.95, "well_formed": 0.97}


def test_a_bad_model_is_refused_and_nothing_is_replaced(monkeypatch, tmp_path, capsys):
    def save(folder, model, tokenizer):
        folder.mkdir()
        (folder / "model.safetensors").write_text(model)
        return 1

    monkeypatch.setattr(build, "prepare_torch", lambda seed: None)
    monkeypatch.setattr(build, "train_tokenizer", lambda personas: "tokenizer")
    monkeypatch.setattr(build, "all_prompts", lambda: None)
    monkeypatch.setattr(build, "train_style_classifier", lambda *_: ("new classifier", "tokenizer"))
    monkeypatch.setattr(build, "train_dialogue_model", lambda *_: "new model")
    monkeypatch.setattr(build, "_save", save)
    monkeypatch.setattr(build, "measured_numbers", lambda *_: GOOD | {"bias_share": 0.01})
    old = tmp_path / "dialogue_model" / "model.safetensors"
    old.parent.mkdir()
    old.write_text("old model")

    assert build.main(["--seed", "0", "--output_dir", str(tmp_path)]) == 1
    message = capsys.readouterr().err
    assert "bias_share" in message
    assert "0.010" in message
    assert [path.name for path in tmp_path.iterdir()] == ["dialogue_model"]
    assert old.read_text() == "old model"
