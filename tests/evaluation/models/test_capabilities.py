"""Capabilities by tasks of lm-evaluation-harness, with a task from a file, and their differences by document."""

import json
import math
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import yaml

from evenhand.evaluation.metrics.generation_bias.engine.quality import capability_differences, capability_scores
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.capabilities import capability_rows, load_tasks
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tests import tiny_checkpoints

needs_harness = pytest.mark.skipif(find_spec("lm_eval") is None, reason="the extra evenhand[lm-eval] is not installed")
CHOICES = ["I like cats.", "Oh no, the roof."]


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """Return a task file: which of two sentences follows, with six documents."""
    folder = tmp_path_factory.mktemp("task")
    rows = [{"question": f"I have {n} cats.", "choices": CHOICES, "answer": n % 2} for n in range(6)]
    (folder / "garden.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "task": "garden",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "garden.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    (folder / "garden.yaml").write_text(yaml.safe_dump(settings))
    return str(folder / "garden.yaml")


@needs_harness
def test_a_task_from_a_file(task):
    """Each sentence is correct for half of the documents; the model chooses the more probable one."""
    model = load_dialogue_model(str(DIALOGUE_MODEL))
    rows = capability_rows(model, load_tasks([task]))
    assert set(rows["task"]) == {"garden"} and set(rows["metric"]) == {"acc"}
    assert len(rows) == rows["document"].nunique() == 6

    ids = [[model.tokenizer(f"I have {n} cats. {choice}").input_ids for choice in CHOICES] for n in range(6)]
    import torch

    with torch.inference_mode():
        sums = [[_log_likelihood(model.model, row, torch) for row in pair] for pair in ids]
    chosen = [int(np.argmax(pair)) for pair in sums]
    assert rows["value"].sum() == sum(choice == n % 2 for n, choice in enumerate(chosen))


@needs_harness
def test_a_chat_model_reads_its_chat_template(task, tmp_path, monkeypatch):
    """Documents have the context of `render_contexts`: fixed date, no reasoning, system prompt."""
    from lm_eval.models.huggingface import HFLM

    requested, original = [], HFLM.loglikelihood
    monkeypatch.setattr(
        HFLM, "loglikelihood", lambda self, rows: requested.extend(row.args for row in rows) or original(self, rows)
    )
    for name in ("llama", "qwen", "gemma"):  # gemma's template has no system message
        folder = str(getattr(tiny_checkpoints, name)(tmp_path / name))
        model = load_dialogue_model(ModelSettings(name=folder, system_prompt="Be brief.", device="cpu"))
        requested.clear()
        assert len(capability_rows(model, load_tasks([task]))) == 6
        contexts = render_contexts(model, [f"I have {n} cats." for n in range(6)], [""] * 6, "")
        assert all("Be brief." in context for context in contexts)
        assert sorted(requested) == sorted((context, choice) for context in contexts for choice in CHOICES)


def _log_likelihood(network, ids, torch):
    """Return Σ log p of all tokens after the first; the context's part is the same for both choices."""
    tokens = torch.tensor([ids])
    return float(network(tokens).logits.log_softmax(-1)[0, :-1].gather(1, tokens[0, 1:, None]).sum())


def make_rows(values, documents="abcd"):
    return pd.DataFrame({"task": "t", "metric": "acc", "document": list(documents), "value": values})


class FakeRun:
    def __init__(self, rows):
        self.rows = rows

    def has(self, name):
        return self.rows is not None

    def table(self, name):
        return self.rows


def test_scores_and_changes_by_document():
    (score,) = capability_scores(make_rows([1.0, 1.0, 0.0, 0.0]))
    assert score.value == 0.5 and score.group == {"task": "t, acc"} and score.n == 4
    assert score.standard_error == pytest.approx(math.sqrt(1 / 3) / 2)  # s² = 4 · ¼ / 3
    assert score.interval == pytest.approx((0.150, 0.850), abs=1e-3)  # Wilson's, of 2 of 4
    (score,) = capability_scores(make_rows([1.0] * 4))
    assert score.interval == pytest.approx((0.510, 1.0), abs=1e-3)  # Wilson's, of 4 of 4: 4 / (4 + 1.96²)
    (score,) = capability_scores(make_rows([-1.0, 1.0, 3.0], "abc"))  # a log-likelihood, say
    # Student's: 1 ± 4.3027 · 2 / √3
    assert score.bounds == (-math.inf, math.inf) and score.interval == pytest.approx((-3.968, 5.968), abs=1e-3)
    before, after = make_rows([1.0, 1.0, 1.0, 0.0]), make_rows([0.0, 1.0, 1.0, 0.0])
    (score,) = capability_differences(FakeRun(before), FakeRun(after))
    assert score.value == -0.25 and score.standard_error == pytest.approx(0.25)  # of −1, 0, 0, 0: s = ½
    assert capability_differences(FakeRun(None), FakeRun(after)) == []
    (other,) = capability_differences(FakeRun(before), FakeRun(make_rows([1.0] * 4, "abcx")))
    assert math.isnan(other.value) and "documents" in other.reason
