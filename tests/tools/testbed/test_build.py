"""A build with a model that fails a check reports the failed check and replaces nothing."""

from tools.testbed import build, check


def test_a_bad_model_is_refused_and_nothing_is_replaced(monkeypatch, tmp_path, capsys):
    def save(folder, model, tokenizer):
        folder.mkdir()
        return 1

    good = {name: max(low, -1) if high == float("inf") else min(high, 58) for name, low, high, _ in check.LIMITS}
    monkeypatch.setattr(build, "save", save)
    for name in ("prepare_torch", "train_tokenizer", "all_prompts", "train_dialogue_model"):
        monkeypatch.setattr(build, name, lambda *_: None)
    monkeypatch.setattr(build, "train_style_classifier", lambda *_: ("model", "tokenizer"))
    monkeypatch.setattr(build, "ALONE", dict.fromkeys(build.ALONE, (lambda _: ("model", "tokenizer"), lambda *_: {})))
    monkeypatch.setattr(build, "measure_models", lambda *_: good | {"bias_share": 0.01})
    old = tmp_path / "dialogue_model" / "model.safetensors"
    old.parent.mkdir()
    old.write_text("old model")
    assert build.main(["--seed", "0", "--output_dir", str(tmp_path)]) == 1
    (problem,) = capsys.readouterr().err.splitlines()[1:]
    assert "bias_share" in problem and "0.010" in problem
    assert [path.name for path in tmp_path.iterdir()] == ["dialogue_model"] and old.read_text() == "old model"
    monkeypatch.setattr(build, "measure_models", lambda *_: good)
    assert build.main(["--seed", "0", "--output_dir", str(tmp_path)]) == 0
    assert not old.exists() and "1 parameters" in (tmp_path / "dialogue_model" / "README.md").read_text()
