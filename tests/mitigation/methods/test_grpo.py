"""The rows and rewards of GRPO on four responses whose directions can be worked out by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import optimize

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.mitigation.methods import balance_grpo, grpo
from evenhand.mitigation.methods.grpo import rewards, rows
from tests.mitigation.training.trainers.test_preference import tiny_base

ROOT = math.sqrt(2)
STYLES = {"warm": [1.0, 0.0], "cold": [0.0, 1.0], "": [math.nan, math.nan]}


def render(prompts, personas, tag):
    return [f"{persona}/{prompt}{tag}" for prompt, persona in zip(prompts, personas, strict=True)]


def labelled(styles=("warm", "warm", "cold", "warm"), descriptors=("deaf", "deaf", "tall", "tall")):
    return pd.DataFrame(
        {
            "prompt_id": list("abcd"),
            "text": ["I'm deaf.", "Deaf I am.", "I'm tall.", "Tall I am."],
            "persona": "",
            "template": ["I'm x.", "X I am."] * 2,
            "descriptor": descriptors,
            "axis": "body",
            "response": styles,
            "label": ["bias", "no_bias"] * 2,
            "style_vector": [STYLES[style] for style in styles],
        },
        index=[7, 3, 5, 1],
    )


def test_rows_hold_the_direction_of_their_descriptor_in_standard_deviations_of_b():
    """Means: deaf [1, 0], tall [½, ½], all [¾, ¼]; u = ± [¼, −¼]; b = 1/8, 1/8, 3/8, −1/8, whose σ is √2/8."""
    assert rows(labelled(), render).to_dict() == {
        "prompt": (texts := ["/I'm deaf.", "/Deaf I am.", "/I'm tall.", "/Tall I am."]),
        "completion": ["warm", "warm", "cold", "warm"],
        "context": texts,
        "other_context": ["/Deaf I am.", "/I'm deaf.", "/Tall I am.", "/I'm tall."],
        "descriptor": ["deaf", "deaf", "tall", "tall"],
        "direction": [pytest.approx([sign * ROOT, -sign * ROOT]) for sign in (1, 1, -1, -1)],
        "offset": pytest.approx([sign * ROOT / 2 for sign in (1, 1, -1, -1)]),
    }


def test_evenness_is_worth_less_where_a_response_is_what_its_descriptor_gets(monkeypatch):
    """−b/σ by hand: 1/8 / (√2/8) = √2/2 for what deaf people get, −3/8 / (√2/8) for what they do not."""
    monkeypatch.setattr(
        grpo, "classify_responses", lambda classifier, texts, of: np.array([STYLES[text] for text in texts])
    )
    columns = rows(labelled(), render).select([0, 0, 2, 0]).to_dict()
    evenness, _ = rewards(tiny_base(), None, 1.0)
    found = evenness(completions=[" warm", "cold ", "cold", " "], **columns)
    assert found[:3] == pytest.approx([-ROOT / 2, 3 * ROOT / 2, -3 * ROOT / 2]) and math.isnan(found[3])


def test_relevance_takes_from_a_response_that_fits_another_context_better_than_its_own():
    base, one, other = tiny_base(), "a b<eos>", "c d<eos>"
    _, relevance = rewards(base, None, 0.5)
    own, elsewhere = (response_perplexity(base, [context], ["red sun"])[0][0] for context in (one, other))
    columns = {"context": [one, other, one], "other_context": [other, one, ""], "descriptor": ["x"] * 3}
    found = relevance(completions=["red sun "] * 3, **columns)
    assert sorted(found[:2]) == pytest.approx([-0.5 * abs(own - elsewhere), 0.0], abs=1e-6) and own != elsewhere
    assert (found[0] < found[1]) == (own < elsewhere)
    assert math.isnan(found[2])


def test_where_nobody_is_answered_otherwise_there_is_no_direction():
    with pytest.raises(InputError, match="^labelled responses: "):
        rows(labelled(descriptors=["deaf"] * 4), render)


def test_the_optimum_of_the_balance_reward_under_kl_is_the_even_target(monkeypatch):
    """A model of two tokens: the maximum of E[reward] − β KL over all models is p · exp(λ · φ) / Z."""
    styles = {"warm": [0.9, 0.1], "cold": [0.2, 0.8]}
    monkeypatch.setattr(
        grpo, "classify_responses", lambda classifier, texts, of: np.array([styles[it] for it in texts])
    )
    frame = pd.concat([labelled()] * 20, ignore_index=True)
    rng = np.random.default_rng(0)
    is_warm = rng.random(80) < np.where(frame["descriptor"] == "deaf", 0.8, 0.3)
    frame["style_vector"] = [styles["warm" if warm else "cold"] for warm in is_warm]
    table = balance_grpo.rows(frame, render).to_dict()
    (reward,) = balance_grpo.rewards(tiny_base(), None, balance_grpo.DEFAULTS["relevance_weight"])
    columns = {name: [table[name][0]] * 2 for name in ("descriptor", "direction", "offset")}
    r = np.array(reward(completions=["warm", "cold"], **columns))
    p, beta = np.array([0.8, 0.2]), balance_grpo.DEFAULTS["preference_beta"]

    def loss(warm):
        pi = np.array([warm, 1 - warm])
        return beta * (pi * np.log(pi / p)).sum() - pi @ r

    best = optimize.minimize_scalar(loss, bounds=(1e-6, 1 - 1e-6), method="bounded", options={"xatol": 1e-10}).x
    weight = np.exp(np.array([styles["warm"], styles["cold"]]) @ -np.array(table["direction"][0]))
    q = p * weight / (p @ weight)
    assert [best, 1 - best] == pytest.approx(q, abs=1e-6)
    assert 0.4 < q[0] < 0.75  # deaf people get warm responses less often, nearer to the average of 0.55
