"""A comparison's warning about prompts that were tuned on."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias import compared_runs
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.compared_runs import compared_responses
from evenhand.evaluation.metrics.generation_bias.cuts import groups_by_tuning
from evenhand.evaluation.models.revisions import TUNING_FILE
from evenhand.mitigation.page import tuned_although_marked, tuned_on_warnings
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


@pytest.mark.parametrize(
    ("by", "tuned", "expected"), [("axis", "ab", ["b"]), ("template", "s", []), ("cue", "pq", ["q"])]
)
def test_people_who_are_marked_as_never_tuned_on_and_were_are_named(runs, by, tuned, expected):
    column = {"axis": "descriptor"}.get(by, by)
    measured = table("xyz").assign(untuned=[False, True, True], **{column: list({"cue": "pqq"}.get(by, "abc"))})
    measured.to_parquet(runs / "measured" / "prompts.parquet")
    write_run(runs / "label", "label", run="../train")
    (runs / "train").mkdir()
    trained = table("vw"[: len(tuned)]).assign(descriptor="a").assign(**{column: list(tuned)})
    trained.to_parquet(runs / "train" / "prompts.parquet")
    trained[["prompt_id", "text", "persona", "descriptor"]].to_parquet(runs / "label" / "labels.parquet")
    assert tuned_although_marked(runs / "measured", runs / "label", by) == expected
    warnings = warned(runs, model="elsewhere", labels=runs / "label", untuned_by=by)
    assert len(warnings) == bool(expected) and all(f"such as {expected[0]}." in warning for warning in warnings)
    assert warned(runs, model="elsewhere", labels=runs / "label") == []


def test_a_comparison_has_no_people_never_tuned_on_where_they_were(tmp_path, monkeypatch):
    table = pd.DataFrame({"prompt_id": ["1"], "template": "t", "descriptor": "d", "untuned": [True]})
    monkeypatch.setattr(compared_runs, "read_answers", lambda folder, **options: Answers(table, np.eye(1), ("a",)))
    assert groups_by_tuning(compared_responses(FamilyRun(tmp_path))) != []
    assert groups_by_tuning(compared_responses(FamilyRun(tmp_path, marks_untuned=False))) == []
