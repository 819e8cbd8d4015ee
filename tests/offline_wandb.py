"""A reader of W&B's offline files: a log of records in blocks, whose payloads are protobuf messages."""

import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wandb.proto import wandb_internal_pb2

FILE_HEADER = 7  # bytes
BLOCK = 32768
RECORD_HEADER = struct.Struct("<IHB")  # checksum, length, kind
WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class OfflineRun:
    """What W&B would show of a run: its name, config, summary, logged rows, and axes of metrics."""

    name: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    axes: dict[str, str] = field(default_factory=dict)
    exit_code: int | None = None  # of a failed run, not 0
    is_complete: bool = False  # W&B's process writes the end of the file after the run has ended


def offline_runs(folder: Path) -> dict[str, OfflineRun]:
    """Return the complete runs in a folder with W&B's offline files, by name."""
    runs = [read_offline_run(file) for file in folder.rglob("*.wandb")]
    return {run.name: run for run in runs if run.is_complete}


def read_offline_run(file: Path) -> OfflineRun:
    run = OfflineRun()
    for message in messages(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(message)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.name = record.run.display_name
            run.config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
        elif kind == "config":
            run.config |= {item.key: json.loads(item.value_json) for item in record.config.update}
        elif kind == "summary":
            run.summary |= values(record.summary.update)
        elif kind == "history":
            run.history.append(values(record.history.item))
        elif kind == "metric" and record.metric.step_metric:
            run.axes[record.metric.name] = record.metric.step_metric
        elif kind == "exit":
            run.exit_code = record.exit.exit_code
            run.is_complete = True
    return run


def values(items) -> dict[str, Any]:
    """Return the values of W&B's items; a nested key is joined by dots."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def messages(data: bytes) -> list[bytes]:
    """Return the payloads of the records; a long one is split into a first, middle and last part."""
    found = []
    position = FILE_HEADER
    parts = b""
    while position + RECORD_HEADER.size <= len(data):
        left_in_block = BLOCK - position % BLOCK
        if left_in_block < RECORD_HEADER.size:
            position += left_in_block
            continue
        _, length, kind = RECORD_HEADER.unpack_from(data, position)
        position += RECORD_HEADER.size
        payload = data[position : position + length]
        position += length
        parts = payload if kind in (WHOLE, FIRST) else parts + payload
        if kind in (WHOLE, LAST):
            found.append(parts)
    return found
