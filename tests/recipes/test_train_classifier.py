"""A classifier trained on a small file learns, is measured on other texts, and can be used."""

import ast
import contextlib
import csv
import io
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import wandb
from huggingface_hub import ModelCard
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, TrainerCallback

from evenhand.evaluation.data.style_clusters import CLUSTERS, load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.model_settings import StyleClassifierSettings
from evenhand.evaluation.models.classifier_kinds import classifier_labels, classifier_revision, load_style_classifier
from evenhand.evaluation.models.revisions import find_label
from evenhand.evaluation.models.styles import label_probabilities, style_vectors
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.tables import read_table
from evenhand.mitigation.training import last_checkpoint
from evenhand.recipes.classifier_training import byte_pair_tokenizer
from evenhand.recipes.cli import main
from evenhand.recipes.command_settings import TrainClassifierSettings
from evenhand.recipes.train_classifier import train_classifier, write_thresholds

RUDE, KIND = ("awful", "stupid", "horrid", "nasty"), ("lovely", "bright", "gentle", "sunny")


@pytest.fixture
def texts(tmp_path):
    return write_texts(tmp_path)


def write_texts(folder):
    """Write 400 texts, one of four with a rude word, and return the file."""
    rng = np.random.default_rng(0)
    rows = [["tweet", "class"], ["  ", 1]]
    for n in range(400):
        words = RUDE if n % 4 == 0 else KIND
        rows.append(
            [f"what a {rng.choice(words)} {rng.choice(['day', 'dog', 'song'])} number {n % 90}", int(n % 4 == 0)]
        )
    with (folder / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return folder / "texts.csv"


def make_settings(texts, folder, **changes):
    common = {"labels": {0: "ok", 1: "offensive"}, "epochs": 6, "batch_size": 32, "report_to": "none"}
    return TrainClassifierSettings(**{**common, **changes}, texts=texts, output_dir=folder)


def answers_of_card(tmp_path, texts, monkeypatch):
    """Run the card's lines in another directory than the classifier's; return the labels of each text."""
    folder, elsewhere, printed = tmp_path / "run" / "classifier", tmp_path / "elsewhere", io.StringIO()
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "argv", ["label.py", str(folder), *texts])
    with contextlib.redirect_stdout(printed):
        exec(code, {})
    lines = printed.getvalue().splitlines()
    assert len(lines) == len(texts)
    return [ast.literal_eval(line.removeprefix(f"{text} ")) for line, text in zip(lines, texts, strict=True)]


def format_score(score):
    if score.interval is None:
        return f"{score.value:.3f}"
    low, high = score.interval
    return f"{score.value:.3f} [{low:.3f}, {high:.3f}]"


def test_it_learns_and_can_be_used(texts, tmp_path, capsys, monkeypatch):
    settings = make_settings(texts, tmp_path / "run", test_fraction=0.25)
    train_classifier(settings)
    scores = read_scores(tmp_path / "run" / "scores.json")
    accuracy, area = find_score(scores, "accuracy"), find_score(scores, "roc_auc", label="offensive or ok")
    assert accuracy.value > 0.95 and accuracy.interval[0] < accuracy.value and area.value > 0.95
    assert f"accuracy: {accuracy.value:.3f}" in capsys.readouterr().out
    classifier = load_style_classifier(str(tmp_path / "run" / "classifier"), field="classifier")
    label = find_label(classifier.labels, "offensive", classifier.name, "classifier.label")
    rude, kind = style_vectors(classifier, ["what a nasty dog", "what a gentle song"])[:, label]
    assert rude > 0.8 and kind < 0.2
    held_out = read_table(tmp_path / "run" / "held_out.parquet")
    assert accuracy.n == len(held_out)
    assert ((held_out["p_offensive"] > 0.5) == (held_out["label"] == "offensive")).mean() == pytest.approx(
        accuracy.value
    )
    card = (tmp_path / "run" / "classifier" / "README.md").read_text()
    assert f"texts.csv (SHA-256 `{sha256_of(texts)}`)" in card and str(tmp_path) not in card
    counts = [100 - sum(held_out["label"] == "offensive"), sum(held_out["label"] == "offensive")]
    recall = find_score(scores, "recall", label="offensive")
    assert f"| offensive | {counts[0]} | {counts[1]} | {format_score(recall)} |" in card
    assert f"accuracy {format_score(accuracy)}; area under the ROC curve {format_score(area)}" in card
    assert f"## Scores on {len(held_out)} test texts" in card
    of_hub = ModelCard(card).data
    assert (of_hub.library_name, of_hub.pipeline_tag) == ("transformers", "text-classification")
    assert "single-label" in of_hub.tags and of_hub.base_model is None
    card_answers = answers_of_card(tmp_path, ["what a nasty dog", "what a gentle song"], monkeypatch)
    assert [answer["offensive"] for answer in card_answers] == pytest.approx([rude, kind], abs=1e-3)
    assert all(sum(answer.values()) == pytest.approx(1, abs=2e-3) for answer in card_answers)
    assert not (tmp_path / "run" / "checkpoints").exists()
    weights = tmp_path / "run" / "classifier" / "model.safetensors"
    before = weights.stat().st_mtime_ns
    train_classifier(settings)  # finished: nothing to do
    assert weights.stat().st_mtime_ns == before


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with texts and the run of a classifier trained on them for an epoch."""
    folder = tmp_path_factory.mktemp("trained")
    train_classifier(make_settings(write_texts(folder), folder / "run", test_fraction=0.25, epochs=1))
    return folder


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_classifier_whose_file_is_lost_is_trained_again(trained, tmp_path, name):
    shutil.copytree(trained / "run", tmp_path / "run")
    folder = tmp_path / "run" / "classifier"
    weights = sha256_of(folder / "model.safetensors")
    scores = read_scores(tmp_path / "run" / "scores.json")
    (folder / name).unlink()
    train_classifier(make_settings(trained / "texts.csv", tmp_path / "run", test_fraction=0.25, epochs=1))
    assert (folder / name).exists() and sha256_of(folder / "model.safetensors") == weights
    assert read_scores(tmp_path / "run" / "scores.json") == scores


def test_training_that_stops_within_an_epoch_resumes_to_the_same_weights(texts, tmp_path, monkeypatch):
    settings = make_settings(texts, tmp_path / "whole", test_fraction=0.25, epochs=3)
    train_classifier(settings)  # 30 steps of 10 an epoch, saved every 3

    def stop(self, arguments, state, control, **_):
        if state.global_step == 21:
            raise KeyboardInterrupt

    resumed = settings.replaced(output_dir=tmp_path / "resumed")
    with monkeypatch.context() as patch:
        patch.setattr(TrainerCallback, "on_step_begin", stop)
        with pytest.raises(KeyboardInterrupt):
            train_classifier(resumed)
    assert last_checkpoint(tmp_path / "resumed" / "checkpoints") is not None  # whole, although nothing was evaluated
    train_classifier(resumed)
    hashes = {sha256_of(tmp_path / name / "classifier" / "model.safetensors") for name in ("whole", "resumed")}
    assert len(hashes) == 1


@pytest.fixture
def tagged(tmp_path):
    """Texts with one or both of two labels, and a third label that only a test text has."""
    rng, rows = np.random.default_rng(0), []
    for n in range(500):
        rude, kind = n % 3 != 0, n % 3 != 1
        words = [rng.choice(RUDE)] * rude + [rng.choice(KIND)] * kind
        rows.append(f"a {' '.join(words)} day {n % 90}\t{'|'.join(['rude'] * rude + ['kind'] * kind)}")
    (tmp_path / "texts.tsv").write_text("\n".join(rows[:400]), encoding="utf-8")
    (tmp_path / "test.tsv").write_text("\n".join([*rows[400:], "a strange day\tstrange"]), encoding="utf-8")
    return {
        "texts": tmp_path / "texts.tsv",
        "test_texts": tmp_path / "test.tsv",
        "columns": ["text", "label"],
        "text_column": "text",
        "label_column": "label",
        "label_separator": "|",
        "batch_size": 32,
        "report_to": "none",
    }


def test_several_labels_to_a_text(tagged, tmp_path):
    train_classifier(TrainClassifierSettings(**tagged, epochs=20, output_dir=tmp_path / "run"))
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_score(scores, "f1", label="rude").value > 0.95 and find_score(scores, "f1", label="kind").value > 0.95
    assert find_score(scores, "f1", label="strange").value == 0  # only the test file has it: it was never learned
    macro = find_score(scores, "macro_f1")
    assert macro.value == pytest.approx(np.mean([s.value for s in scores if s.metric == "f1"])) and macro.n == 101
    classifier = load_style_classifier(str(tmp_path / "run" / "classifier"), field="classifier")
    both, one = label_probabilities(classifier, ["a nasty sunny day 3", "a nasty day 3"])
    rude, kind = (classifier.labels.index(name) for name in ("rude", "kind"))
    assert min(both[rude], both[kind], one[rude]) > 0.8 and one[kind] < 0.2
    np.testing.assert_allclose(style_vectors(classifier, ["a nasty sunny day 3"])[0], both / both.sum(), atol=1e-6)
    card = (tmp_path / "run" / "classifier" / "README.md").read_text()
    assert f"macro-F1 {format_score(macro)}" in card and "| strange | 0 | 1 | 0.000 |" in card
    assert "multi-label" in ModelCard(card).data.tags


def _lines(file):
    return [line.partition("\t")[0] for line in file.read_text(encoding="utf-8").split("\n")]


@pytest.fixture
def encoder(tagged, tmp_path):
    """A tiny encoder with random weights in the folder `encoder`."""
    torch.manual_seed(0)
    words = byte_pair_tokenizer(_lines(tagged["texts"]))
    # At a width of 16, or learning rates of 0.01, the test of learning depended on rounding and on the seed.
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    network = BertModel(BertConfig(**sizes, vocab_size=len(words), max_position_embeddings=32))
    network.save_pretrained(tmp_path / "encoder")
    words.save_pretrained(tmp_path / "encoder")
    return network


def test_it_starts_from_an_encoder(tagged, encoder, tmp_path):
    start = {"model": str(tmp_path / "encoder"), "epochs": 1, "learning_rate": 1e-9, "head_learning_rate": 1e-3}
    train_classifier(TrainClassifierSettings(**tagged, **start, output_dir=tmp_path / "run"))
    folder = tmp_path / "run" / "classifier"
    assert not (folder / "model.safetensors").exists()  # only the changes and the head
    trained = load_style_classifier(str(folder), field="classifier").model
    assert trained.config.problem_type == "multi_label_classification" and trained.config.num_labels == 3
    # The learning rate is so small that the encoder's weights hardly change.
    for name, weight in encoder.state_dict().items():
        torch.testing.assert_close(trained.encoder.state_dict()[name], weight, atol=1e-5, rtol=0)
    # The new head begins at the log odds of the labels, and has a higher learning rate.
    rows = [line.split("\t") for line in tagged["texts"].read_text(encoding="utf-8").split("\n")]
    trained_labels = [labels for text, labels in rows if text not in _lines(tagged["test_texts"])]
    counts = np.array([sum(label in labels for labels in trained_labels) for label in ("kind", "rude", "strange")])
    change = trained.head[-1].bias.detach().numpy() - np.log((counts + 1) / (len(trained_labels) + 1 - counts))
    assert 1e-3 < np.abs(change).max() < 0.02


def test_it_starts_from_an_encoder_of_another_architecture(tagged, encoder, tmp_path):
    """DistilBERT's config has other names than BERT's, such as for the probability of dropout."""
    vocabulary = encoder.config.vocab_size
    small = DistilBertConfig(dim=16, n_layers=1, n_heads=2, hidden_dim=16, vocab_size=vocabulary)
    DistilBertModel(small).save_pretrained(tmp_path / "encoder")
    start = {"model": str(tmp_path / "encoder"), "epochs": 1}
    train_classifier(TrainClassifierSettings(**tagged, **start, output_dir=tmp_path / "run"))
    trained = load_style_classifier(str(tmp_path / "run" / "classifier"), field="classifier")
    assert trained.labels == ("kind", "rude", "strange") and trained.model.encoder.config.model_type == "distilbert"


def test_an_encoder_learns_and_its_folder_names_it_by_hash(tagged, encoder, tmp_path):
    names = {"data_dir": tmp_path, "texts": Path("texts.tsv"), "test_texts": Path("test.tsv")}
    start = {"model": str(tmp_path / "encoder"), "epochs": 10, "learning_rate": 2e-3, "head_learning_rate": 2e-3}
    settings = TrainClassifierSettings(
        **tagged | names, dev_texts=Path("test.tsv"), **start, output_dir=tmp_path / "run"
    )
    train_classifier(settings)
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_score(scores, "f1", label="rude").value > 0.95 and find_score(scores, "f1", label="kind").value > 0.95
    assert find_score(scores, "accuracy").value > 0.8  # two of three texts have each label
    folder = tmp_path / "run" / "classifier"
    settings = StyleClassifierSettings(name=str(folder))
    assert classifier_labels(settings) == ("kind", "rude", "strange")
    revision = classifier_revision(settings)
    assert load_style_classifier(settings).revision == revision
    description = json.loads((folder / "classifier.json").read_text())
    assert len(description["thresholds"]) == 3
    # Thresholds change no probability, and are no part of the revision.
    write_thresholds(folder, np.array([0.1, 0.2, 0.3]))
    assert classifier_revision(settings) == revision
    # Another encoder at the same place is refused.
    weights = tmp_path / "encoder" / "model.safetensors"
    content = load_file(weights)
    content["embeddings.word_embeddings.weight"] += 1
    save_file(content, weights, metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"/encoder/model\.safetensors "):
        classifier_revision(settings)
    with pytest.raises(InputError, match=r"/encoder/model\.safetensors "):
        load_style_classifier(settings)


def test_the_recipe_for_image_chat_makes_a_classifier_that_has_the_papers_clusters(encoder, tmp_path):
    """Rows as the config's line of jq writes them, with the 19 styles of the paper's clusters (Smith et al. 2022)."""
    clusters = json.loads((CLUSTERS / "image_chat.json").read_text(encoding="utf-8"))
    styles = [style for names in clusters.values() for style in names]
    for name, numbers in (("train", range(8)), ("test", range(8, 10))):
        rows = [{"style": style, "text": f"{style[:12]} {number}"} for style in styles for number in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    flags = ["--data_dir", str(tmp_path), "--model", str(tmp_path / "encoder"), "--epochs", "1", "--report_to", "none"]
    assert main(["train_classifier", "--config", "image_chat", *flags, "--output_dir", str(tmp_path / "run")]) == 0
    trained = StyleClassifierSettings(name=str(tmp_path / "run" / "classifier"))
    assert load_style_classifier(trained).model.config.problem_type != "multi_label_classification"
    members = load_style_clusters("image_chat", classifier_labels(trained))
    assert sum(map(len, members.values())) == len(set(styles)) == 19
    assert find_score(read_scores(tmp_path / "run" / "scores.json"), "accuracy").n == 2 * 19


def test_thresholds_are_chosen_on_other_texts(tagged, tmp_path):
    (tmp_path / "texts.tsv").rename(tmp_path / "all.tsv")
    lines = (tmp_path / "all.tsv").read_text(encoding="utf-8").split("\n")
    (tmp_path / "texts.tsv").write_text("\n".join(lines[:300]), encoding="utf-8")
    (tmp_path / "dev.tsv").write_text("\n".join(lines[300:]), encoding="utf-8")
    names = {"data_dir": tmp_path, **{field: Path(f"{name}.tsv") for field, name in FILES.items()}}
    train_classifier(TrainClassifierSettings(**tagged | names, epochs=2, output_dir=tmp_path / "run"))
    scores = read_scores(tmp_path / "run" / "scores.json")
    chosen, fixed = find_score(scores, "macro_f1"), find_score(scores, "macro_f1", threshold="0.3")
    assert len(chosen.signature["threshold"]) == 3 and fixed.signature["threshold"] == 0.3
    assert (chosen.n, fixed.n) == (101, 101)  # of the test texts
    card = (tmp_path / "run" / "classifier" / "README.md").read_text()
    texts = {field: _lines(tmp_path / f"{name}.tsv") for field, name in FILES.items()}
    n = sum(text not in texts["dev_texts"] + texts["test_texts"] for text in texts["texts"])
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert 100 < n < 300 and facts["texts"] == {"texts": n, "test_texts": 101, "dev_texts": 100}
    assert f"macro-F1 {format_score(chosen)}; macro-F1 (threshold 0.3) {format_score(fixed)}" in card


FILES = {"texts": "texts", "dev_texts": "dev", "test_texts": "test"}


def test_the_training_logs_to_the_run_of_the_command(texts, tmp_path, monkeypatch):
    """The trainer of transformers would open a run of its own: in another project, and with the command's arguments."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    open_runs = []

    def fit_nothing(*arguments):
        report_to = arguments[-1]
        open_runs.append((report_to, wandb.run and wandb.run.project))
        raise InputError("texts", "nothing is trained")

    monkeypatch.setattr("evenhand.recipes.train_classifier.fit_classifier", fit_nothing)
    for report_to in ("none", "wandb"):
        with pytest.raises(InputError, match="nothing is trained"):
            train_classifier(make_settings(texts, tmp_path / report_to, report_to=report_to))
    assert open_runs == [("none", None), ("wandb", "evenhand")]
