"""Outcomes beside style: their values by hand, and a planted difference between descriptors."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias import outcomes
from evenhand.evaluation.metrics.generation_bias.metric import cue_shares
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses


def responses(*texts, descriptor="deaf"):
    return pd.DataFrame({"response": texts, "descriptor": descriptor})


def test_the_language_of_short_responses_is_unknown():
    pytest.importorskip("py3langid")
    table = responses("I am sorry to hear that, my friend.", "Xin chào, tôi rất vui được gặp bạn hôm nay.", "ok", "")
    found = outcomes.language(table)
    assert sorted(found) == ["en", "vi"]
    assert found["en"].tolist()[:2] == [1, 0] and found["vi"].tolist()[:2] == [0, 1]
    assert found.iloc[2:].isna().all(axis=None)


def test_refusals_are_found_by_their_phrases_near_the_beginning_only():
    late = "Of course. " * 30 + "I can't help with this."
    table = responses(
        "I’m sorry, but I can’t help with that.", "Lo siento, pero no puedo ayudar.", "I can help!", late, ""
    )
    assert outcomes.refusal(table)["refusal"].tolist()[:4] == [1, 1, 0, 0]
    assert np.isnan(outcomes.refusal(table)["refusal"][4])


def test_length_readability_and_mentions_by_hand():
    table = responses("One two three. Four five six!", "A deaf cook.", "")
    assert outcomes.length(table)["words"].tolist() == [6, 3, 0]
    grade = outcomes.readability(table)["grade"]
    assert grade[0] == pytest.approx(4.71 * 22 / 6 + 0.5 * 6 / 2 - 21.43) and np.isnan(grade[2])
    assert outcomes.mention(table)["mention"].tolist()[:2] == [0, 1]


def test_a_prompt_without_the_person_is_the_request_or_names_the_neutral_descriptor():
    known = pd.DataFrame({"cue": ["profile"], "template": ["profile: Why: so?"], "text": ["x"], "persona": ["About"]})
    assert outcomes.without_person(known)[["text", "persona"]].values.tolist() == [["Why: so?", ""]]
    paper = pd.DataFrame({"text": ["I'm a deaf cook."], "descriptor": ["deaf"], "persona": ["p"]})
    assert outcomes.without_person(paper)["text"].tolist() == ["I'm a left-handed cook."]


def test_a_longer_answer_to_one_descriptor_is_the_spread_and_the_shown_effect():
    """Lengths have standard deviation 1; "old" people get 4 words more: of three means, 0, 0 and 4, ddof 1, √(16/3)."""
    rng, n = np.random.default_rng(0), 20
    names = ["deaf", "old", "tall"]
    table = pd.DataFrame(
        [{"template": t, "descriptor": d, "axis": ""} for t in range(10) for d in names for _ in range(n)]
    )
    words = pd.DataFrame({"words": 10 + rng.normal(size=len(table)) + 4 * (table["descriptor"] == "old")})
    scores, effects = outcomes.outcome_bias(
        StyledResponses(table, np.zeros((len(table), 1)), ["x"]), "length", words, permutations=199
    )
    spread, mean = scores
    assert spread.metric == "length_spread" and spread.value == pytest.approx((16 / 3) ** 0.5, rel=0.05)
    assert spread.interval[0] < (16 / 3) ** 0.5 < spread.interval[1] and spread.p_value < 0.05
    assert mean.value == pytest.approx(10 + 4 / 3, abs=0.2)
    first = effects.iloc[0]
    assert (first["unit"], first["name"], first["outcome"], first["certainty"]) == ("old", "words", "length", "shown")
    assert first["effect"] == pytest.approx(8 / 3, abs=0.2)
    rows = effects[(effects["unit"] == "old") & (effects["kind"] == "descriptor")]
    assert rows["low"].iloc[0] < 8 / 3 < rows["high"].iloc[0]


def test_a_descriptor_that_counts_in_one_cue_only_is_the_interaction():
    """Under the first cue "old" gets style x with probability 1, else ½: half of the spread is by cue."""
    rng, rows, vectors = np.random.default_rng(0), [], []
    for cue in ("profile", "mention"):
        for request in range(6):
            for person in ("deaf", "old", "tall"):
                p = 1.0 if (cue, person) == ("profile", "old") else 0.5
                for x in rng.random(10) < p:
                    rows.append({"template": f"{cue}: {request}", "cue": cue, "descriptor": person})
                    vectors.append([float(x), 1.0 - x])
    shares = {
        score.group["cue_source"]: score.value
        for score in cue_shares(StyledResponses(pd.DataFrame(rows), np.array(vectors), ["x", "y"]), {})
    }
    # Means by cue and person: ½, 1, ½ and ½, ½, ½. Per style Var_d of the means is 1/48, and the mean Var_d 1/24.
    total = 2 * (1 / 24) + 2 * (5 * 0.25) / 6
    assert shares["descriptor"] == pytest.approx(2 / 48 / total, abs=0.04)
    assert shares["descriptor × cue"] == pytest.approx(2 / 48 / total, abs=0.04)
    assert sum(shares.values()) == pytest.approx(1, abs=0.02)
