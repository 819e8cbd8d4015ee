"""Draws from candidates by the weights of their styles, and the exponents of prompts."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.collect import resampling
from evenhand.evaluation.metrics.generation_bias.collect.resampling import (
    draw_candidates,
    prompt_exponents,
    resample,
)
from evenhand.evaluation.metrics.generation_bias.settings import ResamplingSettings, Settings
from evenhand.evaluation.store import Store


def test_a_candidate_is_drawn_by_its_weight_and_the_first_is_kept_where_possible():
    """With candidates in random order, as sampled, each is drawn with the probability of its weight."""
    rng = np.random.default_rng(0)
    n, weights = 40_000, np.array([1.0, 2.0, 5.0])
    order = np.argsort(rng.random((n, 3)), axis=1)
    drawn = draw_candidates(np.log(weights)[order], rng.random((n, 2)))
    shares = np.bincount(order[np.arange(n), drawn]) / n
    assert shares == pytest.approx(weights / 8, abs=0.01)
    distance = 0.5 * np.abs(weights / 8 - 1 / 3).sum()  # in total variation: the least share of changed responses
    assert (drawn > 0).mean() == pytest.approx(distance, abs=0.01)


def test_equal_weights_keep_the_first_candidate_and_undefined_weights_are_not_drawn():
    scores = np.array([[0.0, 0.0], [np.nan, -5.0], [np.nan, np.nan], [0.0, np.nan]])
    draws = np.random.default_rng(0).random((4, 2))
    assert draw_candidates(scores, draws).tolist() == [0, 1, 0, 0]


EXPONENTS = pd.DataFrame(
    {"kind": ["descriptor", "descriptor", "axis"], "unit": ["old", "deaf", "age"], "x": [1.0, 2.0, 3.0], "y": 0.0}
)


def test_a_prompt_has_the_exponent_of_its_descriptor_else_of_its_axis_else_none():
    prompts = pd.DataFrame({"descriptor": ["deaf", "young", "tall"], "axis": ["ability", "age", "body"]})
    assert prompt_exponents(EXPONENTS, prompts, ("x", "y")).tolist() == [[2, 0], [3, 0], [0, 0]]
    with pytest.raises(InputError, match=r"^resampling\.exponents: .*other styles"):
        prompt_exponents(EXPONENTS, prompts, ("x", "z"))


def test_a_prompt_without_an_exponent_has_one_candidate(tmp_path, monkeypatch):
    """λ = (50, 0) for deaf people: of their candidates, the one with the larger first style is drawn."""
    EXPONENTS.assign(x=50.0).to_parquet(tmp_path / "exponents.parquet")
    asked = []

    def respond(model, prompts, *_, **__):
        asked.extend(prompts["prompt_id"])
        return pd.DataFrame(
            {"prompt_id": prompts["prompt_id"], "response": [f"to {it}" for it in prompts["prompt_id"]]}
        )

    def classify(run, name, classifier, texts):
        return [np.array([[0.9, 0.1] if text.endswith("/1") else [0.1, 0.9] for text in texts])]

    classifier = SimpleNamespace(labels=("x", "y"))
    monkeypatch.setattr(resampling, "respond", respond)
    monkeypatch.setattr(resampling, "classifiers", lambda config: {"style_classifier": classifier})
    monkeypatch.setattr(resampling, "load_style_classifier", lambda it: it)
    monkeypatch.setattr(resampling, "classify_in_parts", classify)
    monkeypatch.setattr(resampling, "to_style_vectors", lambda classifier, vectors: vectors)
    prompts = pd.DataFrame({"prompt_id": ["p", "q", "r"], "descriptor": ["tall", "deaf", "rich"], "axis": "body"})
    settings = Settings(resampling=ResamplingSettings(exponents=tmp_path / "exponents.parquet", candidates=2))
    config = SimpleNamespace(settings=settings, seed=0, decoding=SimpleNamespace(batch_size=2))
    drawn = resample(Store(tmp_path / "run", "", None), config, None, prompts, "", {})
    assert asked == ["p", "q", "q/1", "r"]
    assert drawn["response"].tolist() == ["to p", "to q/1", "to r"]
