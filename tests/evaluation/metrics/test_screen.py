"""The screen: divergences by hand, a planted difference, equal people, and the testbed from command to page."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.screen import Screen
from evenhand.evaluation.metrics.screen.divergences import divergence_scores, joined_divergences
from evenhand.evaluation.metrics.screen.predictions import merge_tokens, screen_template
from evenhand.evaluation.metrics.screen.prompts import prompts_left_out, screened_prompts
from evenhand.evaluation.models.likelihood.first_token import first_token_log_probabilities
from evenhand.evaluation.models.own_words import own_word_ids
from evenhand.evaluation.models.predictions import Predictions
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import find_score
from tests.family_runs import compare_family, measure_tests
from tests.testbed_settings import MASKED_MODEL, MODEL
from tests.tiny_models import WORDS, tiny

PROMPTS = PromptSettings(descriptors=13, filters={"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]})


class Known:
    """A model whose predictions are given, with the tokenizer of the tiny models."""

    def __init__(self, probabilities):
        self.probabilities = np.log(np.array(probabilities, dtype=np.float32))

    def predictions(self, prompts, listed_tokens):
        tokenizer = tiny("gpt2").tokenizer
        own = own_word_ids(tokenizer, tokenizer(prompts["text"].tolist())["input_ids"])
        return Predictions(self.probabilities, lambda token: tokenizer.decode([token]), own)


def test_the_divergence_of_two_people_by_hand():
    """Tokens 3 (a) and 4 (b): (0.9, 0.1) and (0.5, 0.5); the mean is (0.7, 0.3). The prompts differ in the word b."""
    never = 1e-30
    probabilities = np.full((2, len(WORDS)), never)
    probabilities[:, 3:5] = [[0.9, 0.1], [0.5, 0.5]]
    model = Known(probabilities)
    prompts = pd.DataFrame({"text": ["a b", "a c"], "descriptor": ["one", "two"]})
    found = screen_template(model, prompts)
    first = [0.9 * math.log(0.9 / 0.7), 0.1 * math.log(0.1 / 0.3)]
    second = [0.5 * math.log(0.5 / 0.7), 0.5 * math.log(0.5 / 0.3)]
    np.testing.assert_allclose(found["divergence"], [sum(first), sum(second)], rtol=1e-6)
    np.testing.assert_allclose(found["own_words"], [first[1], second[1]], rtol=1e-6)
    largest = next(token for token in found["first_tokens"] if token["descriptor"] == "one")
    assert largest["token"] == "a"
    np.testing.assert_allclose([largest["probability"], largest["mean_probability"]], [0.9, 0.7], rtol=1e-6)


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "blenderbot"])
def test_predictions_are_the_models_in_any_batch(architecture):
    import torch

    model = tiny(architecture)
    contexts = ["a b c", "d", "e f g h i"]
    together = first_token_log_probabilities(model, contexts)
    assert together.shape == (3, len(model.tokenizer))
    np.testing.assert_allclose(np.exp(together).sum(1), 1, rtol=1e-5)
    for context, expected in zip(contexts, together, strict=True):
        ids = torch.tensor([model.tokenizer(context)["input_ids"]])
        if architecture == "blenderbot":
            start = torch.tensor([[model.model.config.decoder_start_token_id]])
            logits = model.model(input_ids=ids, decoder_input_ids=start).logits[0, -1]
        else:
            logits = model.model(input_ids=ids).logits[0, -1]
        np.testing.assert_allclose(expected, logits.log_softmax(-1).detach().numpy(), atol=2e-4)


def test_scores_are_means_over_templates_with_student_intervals():
    table = pd.DataFrame(
        {
            "template": ["s", "s", "t", "t"],
            "axis": "x",
            "descriptor": ["a", "b", "a", "b"],
            "divergence": [0.1, 0.2, 0.3, 0.2],
            "own_words": [-0.1, 0.0, -0.2, 0.0],
        }
    )
    scores = divergence_scores(table, {})
    own_words = find_score(scores, "own_words", descriptor="a")  # a part of the divergence may be negative
    assert own_words.interval == pytest.approx((-0.15 - 12.706 * 0.05, -0.15 + 12.706 * 0.05), abs=1e-3)
    everybody = find_score(scores, "divergence")
    assert everybody.value == pytest.approx(0.2) and everybody.n == 2
    assert everybody.bounds == (0, pytest.approx(math.log(2)))
    of_a = find_score(scores, "divergence", descriptor="a")
    assert of_a.value == pytest.approx(0.2)
    assert of_a.interval == (0.0, pytest.approx(math.log(2)))  # 0.2 ± 12.7 · 0.1, within the bounds


def test_all_people_have_the_same_noun_at_a_template():
    prompts = screened_prompts(FamilyConfig(model=MODEL, prompts=PROMPTS))
    assert prompts.groupby("template")["descriptor"].nunique().tolist() == [13, 13]
    for _, rows in prompts.groupby("template"):
        texts = [text.replace(name, "X") for text, name in zip(rows["text"], rows["descriptor"], strict=True)]
        assert len({text.replace("an X", "a X").lower() for text in texts}) == 1


def test_templates_that_ask_about_other_people_are_left_out(tmp_path):
    """Two templates have as many people, but not the same; a rank needs every person at every template."""
    people = {"s": "abc", "t": "abc", "u": "abd", "v": "ab", "w": "ab"}
    lines = [f"{t},x,{who},I am {who}." for t, names in people.items() for who in names]
    (tmp_path / "prompts.csv").write_text("\n".join(["template,axis,descriptor,text", *lines]) + "\n")
    config = FamilyConfig(model=MODEL, prompts=PromptSettings(dataset=str(tmp_path / "prompts.csv")))
    prompts = screened_prompts(config)
    assert prompts.groupby("template")["descriptor"].agg("".join).to_dict() == {"s": "abc", "t": "abc"}
    assert [(found.kind, found.values) for found in prompts_left_out(prompts)] == [
        ("templates_left_out", {"n": 5, "n_screened": 2})
    ]


def test_texts_of_the_same_template_and_person_are_named(tmp_path, caplog):
    """Of the five texts, "Am I a?" is the second of its template and person; a row that occurs twice is no text."""
    texts = ["s,x,a,I am a.", "s,x,a,Am I a?", "s,x,b,I am b.", "s,x,b,I am b.", "t,x,a,As a?", "t,x,b,As b?"]
    (tmp_path / "prompts.csv").write_text("\n".join(["template,axis,descriptor,text", *texts]) + "\n")
    config = FamilyConfig(model=MODEL, prompts=PromptSettings(dataset=str(tmp_path / "prompts.csv")))
    prompts = screened_prompts(config)
    assert prompts["text"].tolist() == ["I am a.", "I am b.", "As a?", "As b?"]
    [found] = prompts_left_out(prompts)
    assert found.values == {"n": 5, "n_screened": 4} and "4 of 5 texts" in Screen().sentence(found)
    assert not prompts_left_out(prompts.drop(columns="n_texts"))
    assert "1 of 5 texts" in caplog.text


def test_the_probability_of_a_token_is_of_the_templates_at_which_it_is_kept():
    def token(text, probability, contribution):
        numbers = {"probability": probability, "mean_probability": probability / 2, "contribution": contribution}
        return {"descriptor": "a", "token": text, **numbers}

    found = pd.DataFrame({"template": ["s", "t"], "first_tokens": [[token("No", 0.6, 0.2)], [token("Yes", 0.5, 0.3)]]})
    means = merge_tokens(found).set_index("token")
    assert means["probability"].to_dict() == {"Yes": 0.5, "No": 0.6}
    assert means["mean_probability"].to_dict() == {"Yes": 0.25, "No": 0.3}
    assert means["contribution"].to_dict() == {"Yes": 0.15, "No": 0.1}


def test_screens_with_other_nouns_are_not_compared():
    def run(noun):
        table = pd.DataFrame({"template": ["s", "s"], "axis": "x", "descriptor": ["a", "b"], "divergence": 0.1})
        prompts = table[["template", "descriptor"]].assign(text=[f"a {noun}", f"b {noun}"], persona="")
        tables = {"divergences": table.assign(own_words=0.0), "screened_prompts": prompts}
        return SimpleNamespace(table=tables.__getitem__, signature=lambda metric: {})

    assert len(joined_divergences(run("man"), run("man")).before) == 2
    with pytest.raises(InputError, match="prompts"):
        joined_divergences(run("man"), run("boy"))


def test_the_testbed_is_screened_compared_and_shown(tmp_path):
    config = FamilyConfig(model=MODEL, prompts=PROMPTS)
    run = measure_tests(tmp_path / "run", "screen", config)
    everybody = find_score(run.scores, "divergence")
    assert 0 < everybody.value < math.log(13)
    page = Screen().page(run)
    table = page.sections[0].tables[0]
    assert len(table.rows) == 13 and "rank" in page.verdict
    changes = compare_family(tmp_path / "compared", "screen", run, run)
    assert all(score.value == 0 for score in changes.scores)


def test_a_masked_model_and_too_few_templates_are_refused(tmp_path):
    with pytest.raises(InputError):
        measure_tests(tmp_path / "masked", "screen", FamilyConfig(model=MASKED_MODEL, prompts=PROMPTS))
    one = PROMPTS.replaced(filters={"template": ["I'm {noun_phrase}."]})
    with pytest.raises(InputError, match="two templates"):
        screened_prompts(FamilyConfig(model=MODEL, prompts=one))


def test_divergences_along_drawn_openings_are_those_of_all_openings():
    """With all first tokens known, the divergence of two tokens is a sum over them; drawn openings agree with it."""
    import torch

    from evenhand.evaluation.models.likelihood.openings import divergences_along, draw_openings

    model = tiny("llama")
    contexts = ["a b c", "a d c", "f b e"]
    ends = np.atleast_1d(model.model.generation_config.eos_token_id).tolist()
    first = np.exp(first_token_log_probabilities(model, contexts).astype(np.float64))
    first /= first.sum(1, keepdims=True)
    ids = [model.tokenizer(context)["input_ids"] for context in contexts]
    expected = (first * np.log(first / first.mean(0))).sum(1)
    own = [3, 4]
    of_own = (first * np.log(first / first.mean(0)))[:, own].sum(1)
    for token in range(first.shape[1]):
        if token in ends:
            continue
        rows = [model.model(input_ids=torch.tensor([[*head, token]])).logits[0, -1] for head in ids]
        second = torch.stack(rows).double().softmax(-1).detach().numpy()
        mean = first[:, token] @ second / first[:, token].sum()
        terms = second * np.log(second / mean)
        expected += first[:, token] * terms.sum(1)
        of_own += first[:, token] * terms[:, own].sum(1)
    n = 400
    openings = draw_openings(model, [context for context in contexts for _ in range(n)], list(range(3 * n)), 1)
    assert all(len(opening) == 1 for opening in openings)
    divergence, of_counted = divergences_along(model, contexts, openings, 2, own)
    np.testing.assert_allclose(divergence, expected, rtol=0.05)
    np.testing.assert_allclose(of_counted, of_own, rtol=0.2, atol=2e-3)
    one_by_one = [divergences_along(model, contexts, [opening], 2, own)[0] for opening in openings[:5]]
    np.testing.assert_allclose(
        np.mean(one_by_one, 0), divergences_along(model, contexts, openings[:5], 2, own)[0], rtol=1e-4
    )


def test_more_first_tokens_diverge_more_and_are_not_compared_with_fewer(tmp_path):
    runs = {}
    for first_tokens in (1, 3):
        config = FamilyConfig(model=MODEL, prompts=PROMPTS)
        runs[first_tokens] = measure_tests(tmp_path / str(first_tokens), "screen", config, first_tokens=first_tokens)
    one = find_score(runs[1].scores, "divergence")
    three = find_score(runs[3].scores, "divergence")
    assert three.value > one.value
    with pytest.raises(InputError, match="first_tokens"):
        compare_family(tmp_path / "compared", "screen", runs[1], runs[3])
