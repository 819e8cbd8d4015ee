"""What a stage logs, to a run that notes it; and a real offline W&B run."""

import json
import os
import re
import subprocess
import sys
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import matplotlib
import pandas as pd
import pytest
import wandb
from matplotlib.figure import Figure

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import likelihood_bias, offensiveness
from evenhand.evaluation.metrics.likelihood_bias.distributions import distribution_section
from evenhand.evaluation.report.page import Cell, Example, Page, Row, Section, Table
from evenhand.evaluation.runs import tracking
from evenhand.evaluation.runs.private_texts import is_private
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker, destinations, log_offline_runs, metric_names, start_tracking
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import checked
from evenhand.recipes import report
from evenhand.recipes.cli import run_command
from evenhand.recipes.command_line import settings_in
from evenhand.recipes.command_settings import COMMANDS
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.tuning_settings import LabelSettings
from tests.likelihood_tables import make_table
from tests.named_scores import named_score

SCORES = [
    named_score("fgb_pooled_corrected", 0.0101, 0.0, (-1.0, 2.0), 800, interval=(0.009, 0.0112)),
    named_score("scgb_corrected", 0.5, 0.0, (-1.0, 0.5), 800, group={"cluster": "SYMPATHY"}),
    BiasScore("fgb", float("nan"), 0.0, (0.0, 1.0), 0, reason="nothing to compare"),
    *(BiasScore(f"cost_{number}", float(number), None, (0.0, 99.0), 800) for number in range(12)),
]


def test_ten_overall_scores_are_logged_all_overall_ones_are_in_the_summary_and_every_one_in_a_table():
    logged, summary = {}, {}
    Tracker(lambda: SimpleNamespace(log=logged.update, summary=summary)).log_scores(SCORES)
    table = logged.pop("scores")
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.data}
    assert list(logged) == ["fgb_pooled_corrected", *(f"cost_{number}" for number in range(9))]
    assert set(summary) == {"fgb_pooled_corrected", *(f"cost_{number}" for number in range(12))}
    assert len(rows) == len(SCORES)
    assert (rows["scgb_corrected"]["cut"], rows["scgb_corrected"]["value"]) == ("cluster SYMPATHY", 0.5)
    assert (rows["fgb_pooled_corrected"]["low"], rows["fgb_pooled_corrected"]["high"]) == (0.009, 0.0112)


def test_a_stage_is_an_offline_run_with_its_files_and_goes_on_in_it(tmp_path, monkeypatch):
    folder, started, kept = tmp_path / "experiment" / "kto" / "label", [], []
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "weights.txt").write_text("w")
    example = Example("", [("I'm a mum.", "A reply")], prompt="A prompt", claim="A claim")
    signature = {"model": {"name": "m", "system_prompt": "Be kind"}}
    sections = [Section("Who", parts=[Section("Part", examples=[example])])]
    page = Page("A report", "m", sections=sections, private_notes=["Be kind"], signature=signature)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_PROJECT", "fairness")
    monkeypatch.setenv("WANDB_LOG_MODEL", "checkpoint")  # by which transformers' trainer would upload checkpoints
    monkeypatch.delitem(sys.modules, "matplotlib.pyplot", raising=False)  # no command imports it
    monkeypatch.delattr(matplotlib, "pyplot", raising=False)
    init = wandb.init
    monkeypatch.setattr(wandb, "init", lambda **fields: started.append(init(**fields)) or started[-1])
    monkeypatch.setattr(wandb.Run, "log_artifact", lambda run, artifact: kept.append(artifact))
    fields = {"output_dir": folder, "report_to": "wandb", "group": "experiment", "quantile": 0.75}
    for upload, with_texts in (("all", True), ("adapters", False), ("responses", True)):
        settings = {"model": {"system_prompt": "Be kind"}, "quantile": 0.75, "run": "/home/me/run"}
        with start_tracking("label", LabelSettings(**fields, upload=upload), settings=settings) as tracker:
            tracker.log_samples(pd.DataFrame({"prompt": ["I'm a dad."], "response": ["<b>hostile</b>"]}))
            tracker.log_report({folder / f"{'with' if with_texts else 'without'}.html": page})
            tracker.log_artifact("labels", "dataset", folder / "adapter")
            tracker.log_figure("map", lambda: Figure(figsize=(1, 1)))
            tracker.log_artifact("adapter", "model", folder / "adapter")
    assert os.environ["WANDB_LOG_MODEL"] == "false"
    first, second, third = started
    assert first.offline and first.id == second.id == third.id
    assert (first.project, first.group, first.job_type, first.name) == ("fairness", "experiment", "label", "kto/label")
    assert first.config["quantile"] == 0.75 and first.config["run"] == second.config["run"] == "…/run"
    kept = [artifact for artifact in kept if artifact.type != "run_table"]
    assert [artifact.type for artifact in kept] == ["dataset", "model", "model"]  # a data set has responses
    adapter = kept[1]
    assert adapter.name == "kto-label-adapter" and list(adapter.manifest.entries) == ["adapter/weights.txt"]
    table = next((folder / "wandb").rglob("samples*.json"))
    assert json.loads(table.read_text())["data"] == [["I'm a dad.", "<b>hostile</b>"]]
    assert next((folder / "wandb").rglob("map*.png")).stat().st_size > 100
    assert len(list((folder / "wandb").rglob("samples*.json"))) == 2
    texts = {"A prompt", "A reply", "I&#39;m a mum.", "Be kind"}
    for name, included in (("with_", texts), ("without_", set())):
        html = next((folder / "wandb").rglob(f"{name}*.html")).read_text()
        assert "A claim" in html and {text for text in texts if text in html} == included
    assert (first.config["model"], second.config["model"]) == ({"system_prompt": "Be kind"}, {})


def test_styles_whose_names_are_alike_have_their_own_metrics():
    names = [
        "scgb: 喜び",
        "scgb: 怒り",
        "scgb: JOY+",
        "scgb: JOY-",
        "scgb: JOY",
        "scgb: A b",
        "scgb: A_b",
        "scgb: Ä",
        "",
    ]
    logged = []
    run = SimpleNamespace(define_metric=lambda *names, **axis: None, log=logged.append)
    row = {name: float(number) for number, name in enumerate(names)}
    Tracker(lambda: run).log_curves("thresholds", "beta", [{"beta": 0.1, **row}])
    assert len(logged[0]) == 1 + len(names) and sorted(logged[0].values()) == sorted([0.1, *row.values()])
    assert all(re.fullmatch(r"thresholds/[A-Za-z0-9_]+", metric) for metric in logged[0])
    assert {"thresholds/beta", "thresholds/scgb_JOY"} <= set(metric_names("thresholds", ["beta", "scgb: JOY"]).values())


def test_an_adapter_is_uploaded_without_private_texts(tmp_path):
    secret = "You are the bot of ACME Bank."
    facts = {"control_tag": " x", "system_prompt": secret, "settings": {"lora": True, "instruction": secret}}
    contents = {"evenhand.json": json.dumps(facts), "README.md": secret, "a/adapter_model.safetensors": "w"}
    for name, content in {**contents, "chat_template.jinja": secret}.items():
        (tmp_path / "adapter" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "adapter" / name).write_text(content)

    def uploaded(logs_responses, private=()):
        kept = []
        run = SimpleNamespace(name="モデル tune", log_artifact=kept.append)
        tracker = Tracker(lambda: run, keeps_files=True, logs_responses=logs_responses)
        tracker.log_artifact("adapter", "model", tmp_path / "adapter", private=private)
        entries = kept[0].manifest.entries.values()
        return {entry.path.removeprefix("adapter/"): Path(entry.local_path).read_text() for entry in entries}

    files = uploaded(False, ["*.jinja"])
    assert files.keys() == {"evenhand.json", "a/adapter_model.safetensors"}
    assert json.loads(files["evenhand.json"]) == {"control_tag": " x", "system_prompt": "", "settings": {"lora": True}}
    assert uploaded(True).keys() == {*contents, "chat_template.jinja"}
    (tmp_path / "adapter" / "evenhand.json").write_text(json.dumps({"control_tag": " x", "system_prompt": ""}))
    assert "README.md" in uploaded(False)
    (tmp_path / "adapter" / "evenhand.json").write_text("damaged")
    with pytest.raises(InputError):
        uploaded(False)


def test_settings_that_contain_texts_are_private():
    for command in ("measure", "tune", "ablate"):
        for setting in settings_in(COMMANDS[command]):
            if (
                re.search(r"\b(system message|instruction in|text that a|fields to add)\b", setting.text)
                and setting.group is None
            ):
                assert is_private(setting.name), setting.name


@pytest.mark.parametrize(
    ("settings", "mode", "expected"),
    [
        ({}, "online", "W&B online; prompts and responses stay on this machine"),
        ({"upload": "adapters"}, "online", "W&B online; prompts and responses stay on this machine"),
        ({"upload": "responses"}, "offline", "W&B offline; prompts and responses stay on this machine"),
        ({"upload": "all"}, "online", "W&B online; prompts and responses go to W&B"),
        (
            {"report_to": "none", "model": {"name": "m", "server": "http://host:8000/v1"}},
            "online",
            "no tracker; prompts and responses go to http://host:8000/v1",
        ),
        (
            {"report_to": "none", "model": {"name": "anthropic/m", "source": "litellm"}},
            "online",
            "no tracker; prompts and responses go to the provider of anthropic/m",
        ),
    ],
)
def test_the_first_line_of_a_run_says_where_things_go(settings, mode, expected, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", mode)
    assert destinations(MeasureSettings(output_dir="runs/a", **settings)) == f"results in runs/a; {expected}"


def test_the_first_line_names_the_file_if_only_that_is_written():
    expected = "writes asked.csv; prompts and responses stay on this machine"
    assert destinations(MeasureSettings(write_prompts="asked.csv")) == expected


def test_once_it_is_not_reached_all_is_kept_offline(tmp_path, monkeypatch, caplog):
    modes, ids = [], []

    def init(**fields):
        modes.append(fields["mode"])
        ids.append(fields["id"])
        if modes[-1] != "offline":
            raise wandb.errors.CommError("no route to host")
        folder = str(tmp_path / "offline-run-1" / "files")
        return SimpleNamespace(offline=True, disabled=False, dir=folder, finish=lambda exit_code: None)

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb, "login", lambda **fields: True)
    monkeypatch.setenv("WANDB_MODE", "online")
    log_offline_runs()  # of other tests
    with caplog.at_level("INFO", "evenhand"):
        for stage in ("one", "two"):
            with start_tracking("label", LabelSettings(output_dir=tmp_path / stage, report_to="wandb")) as tracker:
                tracker.start()
        log_offline_runs()
    assert modes == ["online", "offline", "offline"]
    assert len(set(ids)) == 3  # W&B's process still holds the id of the run that it could not start
    assert "no route to host" in caplog.text and f"find {tmp_path / 'offline-run-1'} " in caplog.text


def test_no_run_is_opened_for_settings_that_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    model = {"name": "package:evenhand/recipes/testbed/dialogue_model"}
    values = {"model": model, "prompts": {"descriptors": 4}, "output_dir": str(tmp_path / "few"), "report_to": "wandb"}
    with pytest.raises(InputError, match="descriptors"):
        measure(checked(MeasureSettings, values, "test"))
    assert not list(tmp_path.rglob("wandb"))


def test_the_run_is_open_when_rows_are_computed(tmp_path):
    opened = []
    store = Store(tmp_path, "run", Tracker(lambda: opened.append("run")))
    items = pd.DataFrame({"text": ["a"]})
    store.rows("answers", items, lambda some: iter([some.assign(n=len(opened))]))
    assert store.rows("answers", items, lambda some: iter([]))["n"].tolist() == [1]


def test_how_runs_are_uploaded_is_also_said_where_a_command_fails(monkeypatch, caplog):
    def fail(settings):
        tracking._offline_runs.append(Path("runs/a/wandb/offline-run-1"))
        raise InputError("runs", "a stage failed.")

    monkeypatch.setattr(report, "report", fail)
    log_offline_runs()  # of other tests
    with caplog.at_level("INFO", "evenhand"), pytest.raises(InputError):
        run_command("report", None)
    assert caplog.text.count("wandb sync") == 1


@pytest.mark.parametrize("names", [("my run",), ("my run", "it's")])
def test_the_command_that_uploads_finds_folders_with_spaces(names, tmp_path, monkeypatch, caplog):
    runs = [tmp_path / name / "offline-run-1" for name in names]
    for run in runs:
        run.mkdir(parents=True)
    monkeypatch.setattr(tracking, "_offline_runs", [*runs])
    with caplog.at_level("INFO", "evenhand"):
        log_offline_runs()
    command = caplog.text.split("`")[1].replace("wandb sync", "ls -d")
    listed = subprocess.run(command, shell=True, capture_output=True, text=True, check=True).stdout
    assert sorted(listed.splitlines()) == sorted(map(str, runs))


def test_a_key_or_a_mode_that_cannot_be_used_is_one_error(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "sideways")
    with pytest.raises(InputError, match="WANDB_MODE"):
        destinations(MeasureSettings(output_dir=tmp_path))
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr(wandb, "login", Mock(side_effect=ValueError("API key must have 40+ characters, has 3.")))
    with pytest.raises(InputError, match="the key in WANDB_API_KEY"):
        destinations(MeasureSettings(output_dir=tmp_path))


@pytest.mark.parametrize("logs_responses", [False, True])
@pytest.mark.parametrize(("key", "secret"), [("template", "profile: Where is my invoice?"), ("rater", "Jane Roe")])
def test_templates_and_raters_are_private(key, secret, logs_responses):
    """Such as a request of the user's own, in the group of a score, or in a table of what repeats its prompt."""
    logged = []
    run = SimpleNamespace(log=logged.append, summary={})
    scores = [BiasScore("share", 0.5, 0.0, (0.0, 1.0), n=8, group=group) for group in ({}, {key: secret})]
    tracker = Tracker(lambda: run, logs_responses=logs_responses)
    tracker.log_scores(scores)
    rows = (Row(secret, (Cell("1"),)),)
    table = Table("Repeats", (key, "after"), rows)
    tracker.log_report({Path("report"): Page("t", "s", sections=[Section("Repeats", tables=[table])])})
    tables = [row["scores"].data for row in logged if "scores" in row]
    html = [Path(row["report"]._path).read_text() for row in logged if "report" in row]
    assert (secret in str(tables)) == (secret in html[0]) == logs_responses


@pytest.mark.parametrize("logs_responses", [False, True])
def test_sections_of_other_families_with_templates_of_the_user_are_left_out(logs_responses):
    """Templates are in sentences, captions and the titles of charts, which are images in base64."""
    secret = "Our ACME bot"
    likelihoods = make_table({("age", f"{secret} {t}", f"d{d}"): [1.0, 2.0 + d] for t in range(2) for d in range(3)})
    template = [f"{secret} {t}" for t in range(2) for _ in range(3)]
    people = {"axis": "age", "template": template, "descriptor": ["a", "b", "c"] * 2}
    rated = pd.DataFrame({**people, "probability": [0.1, 0.5, 0.9] * 2})
    sections = [
        likelihood_bias._extremes_section(likelihoods, []),
        distribution_section(likelihoods),
        offensiveness._template_section(rated),
        offensiveness._band_section(rated),
    ]
    for section in sections:
        logged = []
        run = SimpleNamespace(log=logged.append, summary={})
        tracker = Tracker(lambda run=run: run, logs_responses=logs_responses)
        tracker.log_report({Path("report"): Page("t", "s", sections=[section])})
        html = Path(logged[0]["report"]._path).read_text()
        charts = [b64decode(chart).decode() for chart in re.findall(r"base64,([^\"]+)", html)]
        assert (secret in "".join([html, *charts])) == logs_responses


def test_scores_of_a_point_by_template_are_left_out():
    logged = []
    tracker = Tracker(lambda: SimpleNamespace(log=logged.append, summary={}))
    tracker.log_score_table([replace(SCORES[0], group={"template": "Our ACME bot"}), SCORES[0]])
    assert [row[:2] for row in logged[0]["scores"].data] == [["fgb_pooled_corrected", ""]]
