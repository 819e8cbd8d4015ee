"""A comparison's warning about prompts that were tuned on."""

import json
from pathlib import Path

import pandas as pd
import pytest

from evenhand.evaluation.models.revisions import TUNING_FILE
from evenhand.mitigation.page import tuned_on_warnings
from tests.recorded_runs import write_run


@pytest.fixture
def runs(tmp_path):
    """A measuring run on prompts a, b and c, labels of c and d, and a tuning with its adapter."""
    for name, settings in (("label", {}), ("tune", {"labels": "../label"})):
        write_run(tmp_path / name, name, **settings)
    (tmp_path / "tune" / "adapter").mkdir()
    (tmp_path / "tune" / "adapter" / TUNING_FILE).write_text(json.dumps({"method": "exchange"}))
    (tmp_path / "measured").mkdir()
    table("abc").to_parquet(tmp_path / "measured" / "prompts.parquet")
    table("cd").to_parquet(tmp_path / "label" / "labels.parquet")
    return tmp_path


def table(texts):
    """Prompts whose ids are the numbers of their rows."""
    ids = [str(row) for row in range(len(texts))]
    return pd.DataFrame({"prompt_id": ids, "text": list(texts), "persona": "I like music."})


def warned(runs: Path, **settings) -> list[str]:
    return tuned_on_warnings(runs / "measured", **settings)


def test_prompts_that_were_tuned_on_are_counted(runs):
    by_adapter = warned(runs, model=str(runs / "tune" / "adapter"))
    assert by_adapter == warned(runs, model="elsewhere", labels=runs / "label") and len(by_adapter) == 1
    assert by_adapter[0].startswith("1 of the 3 ")
    assert warned(runs, model="microsoft/DialoGPT-medium") == []
    for others in (table("d"), table("abc").assign(persona="I like art.")):
        others.to_parquet(runs / "label" / "labels.parquet")
        assert warned(runs, model=str(runs / "tune" / "adapter")) == []
