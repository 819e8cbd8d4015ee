"""A real offline W&B run, read back from its own log."""

import json
import struct
import time
from pathlib import Path

import pandas as pd
import pytest
from wandb.proto import wandb_internal_pb2

from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.runs.tracking import tracked
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


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tracked")
    (folder / "adapter").mkdir()
    (folder / "adapter" / "weights.txt").write_text("w")
    scores = [
        BiasScore("fgb_pooled_corrected", 0.0101, 0.0, (-1.0, 2.0), 800, interval=(0.009, 0.0112)),
        BiasScore("scgb_corrected", 0.5, 0.0, (-1.0, 0.5), 800, group={"cluster": "SYMPATHY"}),
        BiasScore("fgb", float("nan"), 0.0, (0.0, 1.0), 0, reason="nothing to compare"),
    ]
    with tracked(
        "label", LabelSettings(output_dir=folder, report_to="wandb", group="experiment", quantile=0.75)
    ) as tracker:
        tracker.scores(scores)
        tracker.table("samples", pd.DataFrame({"prompt": ["I'm a dad."], "response": ["<b>hostile</b>"]}))
        tracker.artifact("adapter", "model", folder / "adapter")
    (run_folder,) = (folder / "wandb").glob("offline-run-*")
    log = next(run_folder.glob("*.wandb"))
    deadline = time.monotonic() + 600
    # W&B's own process writes the log, and may end after the run.
    while not any(record.HasField("exit") for record in wandb_records(log)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return run_folder, list(wandb_records(log))


def test_scores_with_their_intervals_are_in_the_log(finished_run):
    logged = {}
    for record in finished_run[1]:
        for item in record.history.item:
            logged[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    assert logged["fgb_pooled_corrected"] == 0.0101
    assert logged["fgb_pooled_corrected/low"] == 0.009
    assert logged["scgb_corrected/SYMPATHY"] == 0.5
    assert "fgb" not in logged  # an undefined score is not logged as a number


def test_config_group_and_job_are_in_the_log(finished_run):
    (run,) = [record.run for record in finished_run[1] if record.HasField("run")][:1]
    config = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert config["quantile"] == 0.75
    assert (run.run_group, run.job_type, run.project) == ("experiment", "label", "evenhand")


def test_the_sample_table_and_the_adapter_are_kept(finished_run):
    (table,) = (finished_run[0] / "files" / "media" / "table").rglob("samples*.json")
    assert json.loads(table.read_text())["data"] == [["I'm a dad.", "<b>hostile</b>"]]
    artifacts = [r.request.log_artifact.artifact for r in finished_run[1] if r.request.HasField("log_artifact")]
    artifacts += [record.artifact for record in finished_run[1] if record.HasField("artifact")]
    (adapter,) = [artifact for artifact in artifacts if artifact.name == "adapter"]
    assert [entry.path for entry in adapter.manifest.contents] == ["adapter/weights.txt"]


def test_none_writes_nothing(tmp_path):
    with tracked("label", LabelSettings(output_dir=tmp_path, report_to="none")) as tracker:
        tracker.values({"a": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_tensorboard_reads_back(tmp_path):
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with tracked("label", LabelSettings(output_dir=tmp_path, report_to="tensorboard")) as tracker:
        tracker.values({"threshold/beta": 0.25})
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert events.Scalars("threshold/beta")[0].value == 0.25
