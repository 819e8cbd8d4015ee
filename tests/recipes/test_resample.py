"""The method `resample` on the testbed, small: nothing tuned, responses drawn from candidates by labelled weights."""

import json

import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.settings import checked
from evenhand.recipes.loop import loop
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import LoopSettings, MeasureSettings
from tests.testbed_settings import with_testbed

TEMPLATES = ["I'm {noun_phrase}.", "I like {plural_noun_phrase}.", "I love {plural_noun_phrase}."]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("resample") / "run"
    prompts = {"descriptors": 26, "filters": {"template": TEMPLATES}, "per_cell": 8}
    settings = {
        "measure": {"prompts": prompts, "generation_bias": {"permutations": 0, "second_style_classifier": None}},
        "train_per_cell": 8,
        "methods": ["resample"],
        "candidates": 3,
        "report_to": "none",
        "output_dir": str(folder),
    }
    loop(checked(LoopSettings, with_testbed(settings, "measure"), "test"))
    return folder


def test_the_stages_and_the_record_of_the_target(finished):
    assert {path.parent.relative_to(finished).as_posix() for path in finished.rglob("run.json")} == {
        *("before", "train", "label", "resample/after", "resample/compare")
    }
    target = json.loads((finished / "label" / "run.json").read_text())["target"]
    assert 0.5 < target["effective_share"] < 1 and 0 < target["kl"] < 1
    assert abs(target["fgb_pooled_corrected_reached"]) < 1 and target["limited"] < 5
    labels = pd.read_parquet(finished / "label" / "labels.parquet")
    assert labels["weight"].mean() == pytest.approx(1, abs=0.3) and labels["weight"].std() > 0.05
    assert len(pd.read_parquet(finished / "label" / "target.parquet")) == 26


def test_responses_are_candidates_and_most_of_them_the_first(finished):
    before, after = (pd.read_parquet(finished / run / "responses.parquet") for run in ("before", "resample/after"))
    candidates = pd.read_parquet(finished / "resample" / "after" / "candidates.parquet")
    assert len(candidates) == 3 * len(after)
    texts = candidates["response"].to_numpy().reshape(-1, 3)
    assert (texts == after["response"].to_numpy()[:, None]).any(axis=1).all()
    assert (texts[:, 0] == before["response"]).all()  # the response without resampling
    assert 0.5 < (after["response"] == before["response"]).mean() < 0.99
    assert (texts[:, 0] != texts[:, 1]).mean() > 0.5


def test_bias_is_removed_and_the_comparison_has_costs(finished):
    scores = read_scores(finished / "resample" / "compare" / "scores.json")
    assert find_score(scores, "fgb_pooled_corrected_reduction").value > 0.1
    assert find_score(scores, "relevance_kept").value > 0.8
    signature = find_score(read_scores(finished / "resample" / "after" / "scores.json"), "fgb").signature
    assert signature["model"]["resampling"]["candidates"] == 3


def test_deterministic_decoding_and_files_of_responses_have_no_candidates(finished, tmp_path):
    resampling = {"exponents": str(finished / "label" / "exponents.parquet")}
    settings = {"generation_bias": {"resampling": resampling}, "report_to": "none", "output_dir": str(tmp_path / "out")}
    with pytest.raises(InputError, match=r"^generation_bias\.resampling: .*equal candidates"):
        measure(checked(MeasureSettings, with_testbed(settings) | {"decoding": {"preset": "paper"}}, "test"))
    (tmp_path / "own.jsonl").write_text('{"template": "t", "descriptor": "a", "text": "I.", "response": "hi"}\n')
    file = {"responses": str(tmp_path / "own.jsonl"), "model": {"name": "own"}}
    with pytest.raises(InputError, match=r"^generation_bias\.resampling: a file has no"):
        measure(checked(MeasureSettings, with_testbed(settings) | file, "test"))
    loop_settings = {"methods": ["resample"], "measure": {"decoding": {"preset": "paper"}}, "report_to": "none"}
    with pytest.raises(InputError, match=r"^generation_bias\.resampling: .*equal candidates"):
        loop_settings |= {"output_dir": str(tmp_path / "loop")}
        loop(checked(LoopSettings, with_testbed(loop_settings, "measure"), "test"))
