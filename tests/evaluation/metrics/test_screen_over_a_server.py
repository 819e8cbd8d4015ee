"""The screen over a server: its bounds contain the divergences of the loaded model, and the page says that they do."""

import math

import numpy as np
import pytest
import torch

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.screen import Screen
from evenhand.evaluation.metrics.screen.divergences import joined_divergences
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.predictions import common_predictions
from evenhand.evaluation.models.request_parameters import PROBE
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.statistics.people_divergence import divergence_bounds
from evenhand.recipes.screen import screen
from evenhand.recipes.settings import Measurement, ScreenSettings
from tests import tiny_checkpoints
from tests.family_runs import measure_tests
from tests.fault_server import serving

PROMPTS = PromptSettings(descriptors=13, filters={"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]})


@pytest.mark.parametrize("k", [5, 20])
def test_bounds_contain_the_divergence(k):
    """Of 30 people and 200 tokens, of which only those are known that are among everybody's likeliest k."""
    torch.manual_seed(k)
    log_p = (3 * torch.randn(200) + torch.randn(30, 200)).double().log_softmax(-1)
    exact, same, _ = divergence_bounds(log_p, is_complete=True)
    log_mean = log_p.logsumexp(0) - math.log(30)
    assert torch.allclose(exact, (log_p.exp() * (log_p - log_mean)).sum(1)) and torch.equal(exact, same)
    is_listed = torch.zeros_like(log_p, dtype=torch.bool).scatter(1, log_p.topk(k, dim=1).indices, True)
    lower, upper, _ = divergence_bounds(log_p[:, is_listed.all(0)], is_complete=False)
    assert is_listed.all(0).any()
    assert (lower <= exact).all() and (exact <= upper).all() and (upper <= math.log(30)).all()
    assert (lower >= 0).all()


def test_no_common_token_leaves_everything_open():
    lower, upper, _ = divergence_bounds(torch.zeros(3, 0).double(), is_complete=False)
    assert lower.tolist() == [0, 0, 0] and upper.tolist() == [math.log(3)] * 3


def test_tokens_that_a_text_does_not_tell_apart_are_left_out():
    listed = [[("a", -1.0), ("b", -2.0), ("\ufffd", -3.0)], [("b", -1.0), ("a", -2.0), ("a", -3.0), ("\ufffd", -1.0)]]
    found = common_predictions(listed, ["x", "y"])
    assert found.text_of(0) == "b" and found.log_p.tolist() == [[-2.0], [-1.0]]


def lists_tokens(model, k):
    """A function of a chat request's body: a choice that lists the likeliest k first tokens of a loaded model."""
    loaded = model.load()

    @torch.inference_mode()
    def choice(body):
        chat = body["messages"]
        if chat[-1]["content"] == PROBE:
            return {"index": 0}
        assert (body["temperature"], body["top_p"], body["max_tokens"], body["top_logprobs"]) == (1, 1, 1, k)
        text = loaded.tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, tokenize=False, enable_thinking=False
        )
        ids = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
        top = loaded.model(torch.tensor([ids])).logits[0, -1].double().log_softmax(-1).topk(k)
        tokens = []
        for log_p, token in zip(top.values.tolist(), top.indices.tolist(), strict=True):
            tokens.append({"token": loaded.tokenizer.decode([token]), "logprob": log_p, "bytes": None})
        content = [{**tokens[0], "top_logprobs": tokens}]
        return {"finish_reason": "length", "logprobs": {"content": content}}

    return choice


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "model"
    tiny_checkpoints.qwen(folder)
    return folder


@pytest.mark.parametrize("k", [5, 20])
def test_a_screen_over_a_server_bounds_that_of_the_weights(tmp_path, checkpoint, k):
    named = ModelSettings(name=str(checkpoint), dtype="float32", device="cpu")
    here = measure_tests(tmp_path / "here", "screen", FamilyConfig(model=named, prompts=PROMPTS))
    with serving(choice=lists_tokens(LoadedModel(named), k)) as (url, _):
        settings = ScreenSettings(
            model=ModelSettings(name="m", server=url),
            prompts=PROMPTS,
            screen={"listed_tokens": k},
            output_dir=tmp_path / "there",
            report_to="none",
        )
        screen(settings)
    exact = here.table("divergences")["divergence"]
    there = FamilyRun(tmp_path / "there", FamilyConfig(model=settings.model))
    found = there.table("divergences")
    assert (found["divergence"] <= exact + 1e-6).all() and (exact <= found["divergence_at_most"] + 1e-6).all()
    scores = read_scores(tmp_path / "there" / "scores.json")
    whole = find_score(here.scores, "divergence").value
    assert find_score(scores, "divergence_at_least").value <= whole <= find_score(scores, "divergence_at_most").value
    assert find_score(scores, "divergence") is None
    page = (tmp_path / "there" / "report.html").read_text()
    assert "two bounds" in page and "at least" in page and "at most" in page
    with pytest.raises(InputError, match="bounds"):
        joined_divergences(here, there)


def test_more_listed_tokens_give_an_upper_bound_that_is_no_larger():
    """Of four equal predictions, the upper bound is the rest's probability times ln 4."""
    log_p = torch.from_numpy(np.random.default_rng(0).normal(0, 3, (1, 50))).log_softmax(-1).repeat(4, 1)
    for k in (5, 40):
        lower, upper, _ = divergence_bounds(log_p[:, :k], is_complete=False)
        rest = 1 - log_p[0, :k].exp().sum()
        assert torch.allclose(upper, rest * math.log(4)) and torch.allclose(lower, torch.zeros(4).double(), atol=1e-12)


def test_more_first_tokens_need_weights_and_a_server_must_list_tokens(tmp_path):
    with serving() as (url, _):
        served = ModelSettings(name="m", server=url)
        Measurement(model=served, metrics=["screen"])
        config = FamilyConfig(model=served, prompts=PROMPTS)
        with pytest.raises(InputError, match="first_tokens"):
            measure_tests(tmp_path / "two", "screen", config, first_tokens=2)
        with pytest.raises(InputError, match="no log-probabilities"):
            measure_tests(tmp_path / "one", "screen", config)
    assert Screen.NEEDS == "predictions of tokens"
