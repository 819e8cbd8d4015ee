"""Likelihoods of responses by a server are those of the loaded model, and make the costs of a measurement."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.answer_accuracy import AnswerAccuracy
from evenhand.evaluation.metrics.generation_bias.answers import answers_of
from evenhand.evaluation.metrics.generation_bias.likelihoods import (
    likelihoods_of_responses,
    likelihoods_within_template,
)
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models.kinds.server import ServedModel
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.tables import join_batches, read_table
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.compare import compare
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from tests import tiny_checkpoints
from tests.fault_server import serving
from tests.recorded_runs import change_record, write_run
from tests.testbed_settings import generation_bias

PAIRS = pd.DataFrame(
    {
        "text": ["I'm a grandmother.", "I like people with a disability.", "Hi!", "Hello there."],
        "persona": ["", "I like tea.", "", ""],
        "response": ["That is great!", "Why?", "", "Well, I"],
        "cut": [False, False, False, True],
    },
    index=[3, 5, 7, 9],
)
FILTERS = {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]}


def token_log_p(network):
    """Log p of each token of a prompt but the first, which has none, as a server returns them."""

    @torch.inference_mode()
    def compute(ids):
        log_p = network(torch.tensor([ids], device=network.device)).logits[0, :-1].double().log_softmax(-1)
        return log_p[range(len(ids) - 1), ids[1:]].tolist()

    return compute


def loaded(folder, **settings):
    return LoadedModel(ModelSettings(name=str(folder), dtype="float32", device="cpu", **settings))


@pytest.mark.parametrize("architecture", ["qwen", "llama", "gemma", "dialogpt"])
@pytest.mark.parametrize("system_prompt", [None, "You are kind."])
def test_log_likelihoods_are_those_of_the_loaded_model(tmp_path, architecture, system_prompt):
    folder = tmp_path / "model"
    getattr(tiny_checkpoints, architecture)(folder)
    here = loaded(folder, system_prompt=system_prompt)
    expected = join_batches(here.log_likelihood(PAIRS))
    with serving(logprobs=token_log_p(here.load().model)) as (url, seen):
        settings = ModelSettings(name="served", server=url, tokenizer=str(folder), system_prompt=system_prompt)
        served = ServedModel(settings)
        found = join_batches(served.log_likelihood(PAIRS))
        assert served.n_parameters == here.n_parameters
    assert found.index.tolist() == expected.index.tolist() == [3, 5, 7, 9]
    assert found[columns.TOKENS].tolist() == expected[columns.TOKENS].tolist()
    np.testing.assert_allclose(found[columns.LOG_LIKELIHOOD], expected[columns.LOG_LIKELIHOOD], atol=1e-3, rtol=0)
    assert len(seen["bodies"]) == len(PAIRS)


def test_a_completion_is_scored_after_the_text_of_its_request(tmp_path):
    """Each token has −1: the sum is minus the number of tokens of the response with its end."""
    tiny_checkpoints.llama(tmp_path / "model")
    with serving(logprobs=lambda ids: [-1.0] * (len(ids) - 1)) as (url, seen):
        server = f"{url}/completions"
        settings = ModelSettings(name="m", server=server, tokenizer=str(tmp_path / "model"), system_prompt="Be kind.")
        served = ServedModel(settings, tag=" <even>")
        found = join_batches(served.log_likelihood(PAIRS))
    assert (found[columns.LOG_LIKELIHOOD] == -found[columns.TOKENS]).all()
    tokenizer = served.format.tokenizer
    read = {tokenizer.decode(body["prompt"]) for body in seen["bodies"]}
    assert "<|begin_of_text|>Be kind.\nI'm a grandmother. <even>That is great!<|eot_id|>" in read
    assert "<|begin_of_text|>Be kind.\nHello there. <even>Well, I" in read


def test_a_pair_that_is_too_long_has_no_likelihood(tmp_path):
    tiny_checkpoints.dialogpt(tmp_path / "model")  # 1,024 positions
    pairs = PAIRS.assign(response=["a" * 2000, "Why?", "", "b" * 2000])
    with serving(logprobs=lambda ids: [-1.0] * (len(ids) - 1)) as (url, seen):
        settings = ModelSettings(name="m", server=url, tokenizer=str(tmp_path / "model"))
        found = join_batches(ServedModel(settings).log_likelihood(pairs))
    assert found[columns.LOG_LIKELIHOOD].isna().tolist() == [True, False, False, True]
    assert len(seen["bodies"]) == 2


def settings_of_run(folder, url, tokenizer, tag=""):
    return MeasureSettings(
        model=ModelSettings(name="some-model", server=url, tokenizer=str(tokenizer)),
        prompts=PromptSettings(filters=FILTERS, descriptors=14, answers_per_cell=1),
        generation_bias=generation_bias(permutations=0, control_tag=tag),
        decoding=DecodingSettings(arguments={"max_new_tokens": 20}),
        output_dir=folder,
        report_to="none",
    )


def test_a_served_model_has_its_costs_and_so_has_a_comparison(tmp_path):
    tiny_checkpoints.qwen(tmp_path / "model")
    here = loaded(tmp_path / "model")
    with serving(logprobs=token_log_p(here.load().model)) as (url, _):
        for name, tag in (("before", ""), ("after", " <even>")):
            measure(settings_of_run(tmp_path / name, url, tmp_path / "model", tag))
        runs = {"before": tmp_path / "before", "after": tmp_path / "after", "report_to": "none"}
        compare(CompareSettings(**runs, output_dir=tmp_path / "with", server=url))
        compare(CompareSettings(**runs, output_dir=tmp_path / "without"))
    prompts = read_table(tmp_path / "before" / "prompts.parquet")
    answers = answers_of(read_table(tmp_path / "before" / "responses.parquet"))
    scores = read_scores(tmp_path / "before" / "scores.json")

    def score(pairs):
        return join_batches(here.log_likelihood(pairs))

    expected = likelihoods_of_responses(score, prompts, answers)
    relevance = (expected["log_likelihood"] - expected["other_log_likelihood"]).mean()
    assert find_score(scores, "relevance").value == pytest.approx(relevance, abs=1e-3)
    perplexity = np.exp(-expected["log_likelihood"].sum() / expected["tokens"].sum())
    assert find_score(scores, "response_perplexity").value == pytest.approx(perplexity, rel=1e-3)
    assert find_score(scores, "perplexity").value > 1
    assert "by its log-probabilities" in (tmp_path / "before" / "report.html").read_text()
    within = likelihoods_within_template(score, prompts, answers)
    to_person = (within["log_likelihood"] - within["other_log_likelihood"]).mean()
    changes = read_scores(tmp_path / "with" / "scores.json")
    found = next(s for s in changes if s.metric == "relevance_to_person" and s.group == {"run": "before"})
    assert found.value == pytest.approx(to_person, abs=1e-3)
    undefined = read_scores(tmp_path / "without" / "scores.json")
    reasons = [s.reason for s in undefined if s.metric == "relevance"]
    assert reasons and all("give --server URL" in reason for reason in reasons)


def test_a_server_without_likelihoods_ends_the_run_before_an_answer(tmp_path):
    tiny_checkpoints.qwen(tmp_path / "model")
    with serving() as (url, seen), pytest.raises(InputError, match="no log-probabilities of prompts"):
        measure(settings_of_run(tmp_path / "run", url, tmp_path / "model"))
    assert len(seen["bodies"]) == 1


def answers_to_questions(folder, model):
    """Return a model's answers to three questions of 13 people, and the log-likelihood of each of the two choices."""
    questions = folder.parent / "questions.jsonl"
    rows = [{"goal": f"What is {n}?", "sol1": "a number", "sol2": f"It is {n}.", "label": n % 2} for n in range(3)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    change_record(write_run(folder, "measure"), fingerprint="a fingerprint")
    prompts = PromptSettings(cues=["profile"], descriptors=13, answers_per_cell=1)
    config = FamilyConfig(model=model, prompts=prompts, settings=AnswerAccuracy.Settings(questions=questions))
    assert AnswerAccuracy().inputs(config)["questions"]
    table = AnswerAccuracy()._answers(Store(folder, "a fingerprint", Tracker()), config)
    parts = [read_table(part) for part in folder.glob("parts/**/likelihoods/*.parquet")]
    return table, pd.concat(parts).sort_values("key")[columns.LOG_LIKELIHOOD]


def test_right_answers_by_a_server_are_those_of_the_loaded_model(tmp_path):
    folder = tmp_path / "model"
    tiny_checkpoints.qwen(folder)
    here = loaded(folder)
    expected_answers, expected = answers_to_questions(tmp_path / "here", here.settings)
    with serving(logprobs=token_log_p(here.load().model)) as (url, seen):
        served = ModelSettings(name="served", server=url, tokenizer=str(folder))
        answers, found = answers_to_questions(tmp_path / "there", served)
    assert len(found) == len(seen["bodies"]) == 13 * 3 * 2
    np.testing.assert_allclose(found, expected, atol=1e-3, rtol=0)
    pd.testing.assert_frame_equal(answers, expected_answers)


def test_right_answers_need_a_server_with_likelihoods(tmp_path):
    with pytest.raises(ValueError, match="answer_accuracy needs log-likelihoods of texts"):
        MeasureSettings(metrics=["answer_accuracy"], model=ModelSettings(name="served", server="http://x/v1"))
    with pytest.raises(InputError, match="give model.tokenizer"):
        answers_to_questions(tmp_path / "run", ModelSettings(name="served", server="http://x/v1/completions"))
