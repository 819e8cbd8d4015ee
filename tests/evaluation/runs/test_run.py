"""A run computes each of its tables once, and keeps parts by family."""

from pathlib import Path

import pandas as pd

from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.runs.tracking import Tracker


def test_a_table_is_computed_once(tmp_path):
    run, calls = Run(tmp_path, "a fingerprint", Tracker()), []
    for _ in range(2):
        rows = run.table("some_rows", lambda: calls.append(1) or pd.DataFrame({"n": [1, 2]}))
        assert rows["n"].tolist() == [1, 2]
    assert calls == [1] and list(run.seconds) == ["some rows"]
    assert [path.name for path in tmp_path.iterdir()] == ["some_rows.parquet"]


def test_a_table_is_missing_until_it_is_written(tmp_path):
    run = Run(tmp_path, "a fingerprint", Tracker())
    assert not run.has("rows")
    run.write("rows", iter([pd.DataFrame({"n": [1]}), pd.DataFrame({"n": [2]})]))
    assert run.has("rows") and run.read("rows")["n"].tolist() == [1, 2]


def test_each_family_has_a_folder_of_parts(tmp_path):
    for family, factor in (("one", 1), ("other", 2)):
        parts = Run(tmp_path, "a fingerprint", Tracker(), family=family).parts("squares", ["square"], 2)
        for shard in parts.unfinished_shards():
            parts.save(shard, [([1, 0], [factor, 0])], "squares", "numbers")
        assert parts.read()["square"].tolist() == [0, factor]
    folders = {path.parent.relative_to(tmp_path) for path in tmp_path.rglob("*.parquet")}
    assert folders == {Path("parts/one/squares"), Path("parts/other/squares")}
