"""Real offline W&B runs, read back from their own logs."""

import json
import struct
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from wandb.proto import wandb_internal_pb2

from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.tracking import start_tracking
from evenhand.recipes.settings import LabelSettings

BLOCK, HEADER = 32768, 7  # LevelDB's log format: blocks of records, each headed by checksum, length and type
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def wandb_records(path: Path):
    """Yield the protobuf records of a .wandb file (a 7-byte file header, then a LevelDB log)."""
    data, place, parts = path.read_bytes(), HEADER, b""
    while place + HEADER <= len(data):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + HEADER])
        if place + HEADER + length > len(data):
            return  # it is being written
        parts += data[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            yield record
            parts = b""


SCORES = [
    BiasScore("fgb_pooled_corrected", 0.0101, 0.0, (-1.0, 2.0), 800, interval=(0.009, 0.0112)),
    BiasScore("scgb_corrected", 0.5, 0.0, (-1.0, 0.5), 800, group={"cluster": "SYMPATHY"}),
    BiasScore("fgb", float("nan"), 0.0, (0.0, 1.0), 0, reason="nothing to compare"),
    *(BiasScore(f"cost_{number}", float(number), None, (0.0, 99.0), 800) for number in range(12)),
]


@pytest.fixture(scope="module")
def finished_runs(tmp_path_factory):
    """The folders and the records of one stage's run: as it was begun, and as it was gone on with."""
    folder = tmp_path_factory.mktemp("tracked") / "experiment" / "kto" / "label"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "weights.txt").write_text("w")
    (folder / "report.html").write_text("<p>A report.</p>")
    fields = {"output_dir": folder, "report_to": "wandb", "group": "experiment", "quantile": 0.75}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_PROJECT", "fairness")
        patch.setenv("WANDB_TAGS", "trial,small")
        with start_tracking("label", LabelSettings(**fields, log_artifacts=True)) as tracker:
            tracker.log_scores(SCORES)
            tracker.log_table("samples", pd.DataFrame({"prompt": ["I'm a dad."], "response": ["<b>hostile</b>"]}))
            tracker.log_report([folder / "report.html"])
            tracker.log_artifact("adapter", "model", folder / "adapter")
    first = only_run_of(folder)
    time.sleep(1.1)  # W&B calls a folder by its id and the second it was begun in
    with start_tracking("label", LabelSettings(**fields)) as tracker:
        tracker.log_artifact("adapter", "model", folder / "adapter")
    return [(run, finished_records(run)) for run in (first, only_run_of(folder, but=first))]


def only_run_of(folder, but=None):
    (found,) = set((folder / "wandb").glob("offline-run-*")) - {but}
    return found


def finished_records(run_folder):
    log = next(run_folder.glob("*.wandb"))
    deadline = time.monotonic() + 600
    # W&B's own process writes the log, and may end after the run.
    while not any(record.HasField("exit") for record in wandb_records(log)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return list(wandb_records(log))


def run_of(records):
    return next(record.run for record in records if record.HasField("run"))


def table_of(run_folder, name):
    (table,) = (run_folder / "files" / "media" / "table").rglob(f"{name}*.json")
    return json.loads(table.read_text())


def artifacts_of(records):
    return {record.artifact.name: record.artifact for record in records if record.HasField("artifact")} | {
        record.request.log_artifact.artifact.name: record.request.log_artifact.artifact
        for record in records
        if record.request.HasField("log_artifact")
    }


def test_ten_overall_scores_are_logged_all_overall_ones_are_in_the_summary_and_every_one_in_a_table(finished_runs):
    (folder, records), _ = finished_runs
    logged, summary = {}, {}
    for record in records:
        for found, items in ((logged, record.history.item), (summary, record.summary.update)):
            found.update({item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items})
    assert logged["fgb_pooled_corrected"] == 0.0101
    overall = {"fgb_pooled_corrected", *(f"cost_{number}" for number in range(12))}
    assert {name for name in logged if name in overall} == {"fgb_pooled_corrected", *(f"cost_{n}" for n in range(9))}
    assert not any("scgb" in name for name in logged)
    assert "fgb" not in summary  # an undefined score is not logged as a number
    assert overall <= set(summary)
    table = table_of(folder, "scores")
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["data"]}
    assert len(rows) == len(SCORES)
    assert (rows["scgb_corrected"]["cut"], rows["scgb_corrected"]["value"]) == ("cluster SYMPATHY", 0.5)
    assert (rows["fgb_pooled_corrected"]["low"], rows["fgb_pooled_corrected"]["high"]) == (0.009, 0.0112)


def test_runs_are_called_by_method_and_stage_and_keep_their_files(finished_runs):
    run = run_of(finished_runs[0][1])
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["quantile"] == 0.75
    assert (run.run_group, run.job_type, run.display_name) == ("experiment", "label", "kto/label")
    assert (run.project, list(run.tags)) == ("fairness", ["trial", "small"])
    (folder, records), _ = finished_runs
    assert table_of(folder, "samples")["data"] == [["I'm a dad.", "<b>hostile</b>"]]
    (page,) = (folder / "files" / "media" / "html").glob("report*.html")
    assert page.read_text() == "<p>A report.</p>"
    adapter = artifacts_of(records)["kto-label-adapter"]
    assert [entry.path for entry in adapter.manifest.contents] == ["adapter/weights.txt"]


def test_a_stage_begun_again_goes_on_in_its_run_and_files_are_kept_only_if_asked_for(finished_runs):
    (_, first), (_, second) = finished_runs
    assert run_of(first).run_id == run_of(second).run_id
    assert run_of(second).project == "evenhand"
    assert not any("adapter" in name for name in artifacts_of(second))


def test_once_it_is_not_reached_all_is_kept_offline(tmp_path, monkeypatch, caplog):
    import wandb

    modes = []

    def init(**fields):
        modes.append(fields["mode"])
        if modes[-1] != "offline":
            raise wandb.errors.CommError("no route to host")
        folder = str(tmp_path / "offline-run-1" / "files")
        return SimpleNamespace(offline=True, dir=folder, finish=lambda exit_code: None)

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setattr(wandb, "login", lambda **fields: True)
    monkeypatch.setenv("WANDB_MODE", "online")
    with caplog.at_level("INFO", "evenhand"):
        for stage in ("one", "two"):
            with start_tracking("label", LabelSettings(output_dir=tmp_path / stage, report_to="wandb")):
                pass
    assert modes == ["online", "offline", "offline"]
    assert "no route to host" in caplog.text and f"wandb sync {tmp_path / 'offline-run-1'}" in caplog.text


def test_tensorboard_reads_back(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with start_tracking("label", LabelSettings(output_dir=tmp_path, report_to="tensorboard")) as tracker:
        tracker.log_values({"threshold/beta": 0.25})
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Scalars("threshold/beta")[0].value == 0.25
    assert events.Tags()["tensors"] == ["config/text_summary"]
