"""Outcomes beside style: their values by hand, and a planted difference between descriptors."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from evenhand.evaluation.metrics.generation_bias.cuts import cue_shares
from evenhand.evaluation.metrics.generation_bias.findings import finding_text
from evenhand.evaluation.metrics.generation_bias.parts import outcomes
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from tests.named_scores import named_score


def responses(*texts, descriptor="deaf"):
    return pd.DataFrame({"response": texts, "descriptor": descriptor})


def test_short_responses_have_a_class_and_empty_ones_no_language():
    pytest.importorskip("py3langid")
    table = responses("I am sorry to hear that, my friend.", "Xin chào, tôi rất vui được gặp bạn hôm nay.", "ok", "")
    found = outcomes.outcome_values("language", table)[["en", "vi", "too short"]]
    assert found.values.tolist()[:3] == np.eye(3).tolist() and found.iloc[3].isna().all()


def test_rare_classes_are_joined_and_missing_values_stay_missing():
    values = pd.DataFrame(np.eye(5)[[0] * 1997 + [1, 2, 3, 4]], columns=["en", "es", "too short", "vi", "other"])
    values.iloc[5] = np.nan
    joined = outcomes.join_rare(values)
    assert joined.sum().to_dict() == {"en": 1996, "too short": 1, "other": 3}
    assert joined.iloc[5].isna().all()
    assert list(outcomes.join_rare(values[["es"]])) == ["es"]


def test_a_column_of_the_file_is_a_number_or_a_class():
    table = pd.DataFrame({"stars": [1, 5], "mood": ["good", None]})
    assert outcomes.outcome_values("stars", table).values.tolist() == [[1], [5]]
    mood = outcomes.outcome_values("mood", table)["good"]
    assert mood[0] == 1 and np.isnan(mood[1])


def test_refusals_are_found_by_their_phrases_near_the_beginning_only():
    late = "Of course. " * 30 + "I can't help with this."
    table = responses(
        "I’m sorry, but I can’t help with that.", "Lo siento, pero no puedo ayudar.", "I can help!", late, ""
    )
    assert outcomes.outcome_values("refusal", table)["refusal"].tolist()[:4] == [1, 1, 0, 0]
    assert np.isnan(outcomes.outcome_values("refusal", table)["refusal"][4])


def test_length_readability_and_mentions_by_hand():
    table = responses("One two three. Four five six!", "A deaf cook.", "")
    assert outcomes.outcome_values("length", table)["words"].tolist() == [6, 3, 0]
    grade = outcomes.outcome_values("readability", table)["grade"]
    assert grade[0] == pytest.approx(4.71 * 22 / 6 + 0.5 * 6 / 2 - 21.43) and np.isnan(grade[2])
    assert outcomes.outcome_values("mention", table)["mention"].tolist()[:2] == [0, 1]


def test_a_prompt_without_the_person_is_the_request_or_names_the_neutral_descriptor():
    known = pd.DataFrame({"cue": ["profile"], "template": ["profile: Why: so?"], "text": ["x"], "persona": ["About"]})
    assert outcomes.without_person(known)[["text", "persona"]].values.tolist() == [["Why: so?", ""]]
    paper = pd.DataFrame({"text": ["I'm a deaf cook."], "descriptor": ["deaf"], "persona": ["p"]})
    assert outcomes.without_person(paper)["text"].tolist() == ["I'm a left-handed cook."]


def measured(descriptors=("deaf", "old", "tall"), templates=10, n=20):
    """Responses without style, and a function of the effects of descriptors that returns lengths of deviation 1."""
    rows = [{"template": t, "descriptor": d, "axis": ""} for t in range(templates) for d in descriptors]
    table = pd.DataFrame(rows).loc[np.repeat(np.arange(len(rows)), n)].reset_index(drop=True)

    def words(effect, seed=0):
        noise = np.random.default_rng(seed).normal(size=len(table))
        return pd.DataFrame({"words": 10 + noise + table["descriptor"].map(effect).fillna(0)})

    return StyledResponses(table, np.zeros((len(table), 1)), ["x"]), words


def test_a_longer_answer_to_one_descriptor_is_the_spread_and_the_shown_effect():
    """Lengths have standard deviation 1; "old" people get 4 words more: of three means, 0, 0 and 4, ddof 1, √(16/3)."""
    responses, words = measured()
    scores, effects = outcomes.outcome_bias(responses, "length", words({"old": 4}), permutations=199)
    spread, mean = scores
    assert spread.name == "length_spread" and spread.value == pytest.approx((16 / 3) ** 0.5, rel=0.05)
    assert spread.interval[0] < (16 / 3) ** 0.5 < spread.interval[1] and spread.p_value < 0.05
    assert mean.value == pytest.approx(10 + 4 / 3, abs=0.2)
    first = effects.iloc[0]
    assert (first["unit"], first["name"], first["outcome"], first["certainty"]) == ("old", "words", "length", "shown")
    assert first["effect"] == pytest.approx(8 / 3, abs=0.2)
    rows = effects[(effects["unit"] == "old") & (effects["kind"] == "descriptor")]
    assert rows["low"].iloc[0] < 8 / 3 < rows["high"].iloc[0]


def test_a_typical_value_is_not_called_a_mean():
    """Exponentiated lengths are skewed: their means differ from the geometric means, which effects are about."""
    responses, words = measured()
    skewed = np.exp(words({"old": 4}))
    scores, effects = outcomes.outcome_bias(responses, "length", skewed, permutations=199)
    of_old = skewed[(responses.table["descriptor"] == "old").to_numpy()].to_numpy()
    typical = np.expm1(np.log1p(of_old).mean())
    assert typical < 0.8 * of_old.mean()
    table = outcomes.outcome_section(scores, effects).tables[1]
    row = next(row for row in table.rows if row.label.startswith("old"))
    assert f"typical {typical:,.2f} " in row.cells[0].text and "geometric mean" in table.note
    found = effects[(effects["unit"] == "old") & (effects["kind"] == "descriptor")].to_dict("records")[0]
    assert "typically" in finding_text(found) and "on average" not in finding_text(found)


def test_a_share_has_an_interval_within_0_and_1_and_a_length_of_one_word_is_a_number():
    responses, _ = measured()
    nobody = pd.DataFrame({"refusal": np.zeros(len(responses))})
    (_, share), _ = outcomes.outcome_bias(responses, "refusal", nobody, permutations=9)
    n = len(responses)
    assert share.interval == pytest.approx((0.0, 1.96**2 / (n + 1.96**2)), rel=1e-3)  # Wilson 1927
    one_word = pd.DataFrame({"words": (responses.table["descriptor"] == "old").to_numpy(dtype=float)})
    (_, mean), effects = outcomes.outcome_bias(responses, "length", one_word, permutations=199)
    half = stats.t.ppf(0.975, n - 1) * np.sqrt(mean.value * (1 - mean.value) / (n - 1))
    assert mean.interval == pytest.approx((mean.value - half, mean.value + half))
    row = effects.query("unit == 'old' and kind == 'descriptor'").to_dict("records")[0]
    assert row["scale"] == outcomes.TYPICAL and np.isnan(row["hits"])
    assert "words" in finding_text(row) and "“words”" not in finding_text(row)


def test_what_cannot_be_ruled_out_of_ranks_is_in_percentiles():
    """Numbers that may be negative are compared by their ranks, so their bound is no number of words."""
    responses, words = measured()
    scores, effects = outcomes.outcome_bias(responses, "length", words({"old": 4}) - 11, permutations=199)
    assert set(effects["scale"]) == {outcomes.RANK}
    bound = outcomes.difference_bound(effects, outcome="length")
    (row,) = outcomes.outcome_section([*scores, bound], effects).tables[0].rows
    assert f"{100 * bound.value:.2f} percentiles" in [cell.text for cell in row.cells]


def test_changes_of_an_outcome_are_paired_and_of_planted_size():
    """Spreads √(16/3) before and √(1/3) after: "old" people get 4 words more, then one. One value is missing."""
    responses, words = measured()
    before, after = words({"old": 4}), words({"old": 1}, seed=1)
    before.iloc[0] = np.nan
    found = {(it.name, it.group.get("run")): it for it in outcomes.outcome_changes(responses, "length", before, after)}
    spread, mean = found["length_spread_difference", None], found["length_mean_difference", None]
    assert spread.value == pytest.approx((1 / 3) ** 0.5 - (16 / 3) ** 0.5, abs=0.15) and spread.p_value < 1e-6
    assert spread.interval[0] < (1 / 3) ** 0.5 - (16 / 3) ** 0.5 < spread.interval[1] < 0
    assert spread.value == found["length_spread", "after"].value - found["length_spread", "before"].value
    assert mean.value == pytest.approx(-1, abs=0.15) and mean.interval[0] < -1 < mean.interval[1]
    assert mean.value == pytest.approx((after - before).mean().item())
    assert {it.n_left_out for it in found.values()} == {0, 1}
    (same,) = (
        it
        for it in outcomes.outcome_changes(responses, "length", after, after)
        if it.name == "length_spread_difference"
    )
    assert same.value == 0 and same.interval is None and same.reason


def test_a_class_of_one_run_is_compared_as_absent_in_the_other():
    """Before, half of the answers to "old" people are in Spanish, after none: the spread falls by √(½ · 2 · 1/12)."""
    responses, _ = measured()
    spanish = (responses.table["descriptor"] == "old") & (np.arange(len(responses)) % 2 == 0)
    before = pd.DataFrame({"en": ~spanish, "es": spanish}, dtype=float)
    changes = outcomes.outcome_changes(responses, "language", before, pd.DataFrame({"en": np.ones(len(responses))}))
    (spread,) = (it for it in changes if it.name == "language_spread_difference")
    assert spread.value == pytest.approx(-((1 / 12) ** 0.5), rel=0.01)
    means = {it.group["value"]: it.value for it in changes if it.name == "language_mean_difference"}
    assert means == pytest.approx({"en": 1 / 6, "es": -1 / 6})


def test_a_descriptor_that_counts_in_one_cue_only_is_the_interaction():
    """Under the first cue "old" gets style x with probability 1, else ½: no other cue shares this."""
    rng, rows, vectors = np.random.default_rng(0), [], []
    for cue in ("profile", "mention"):
        for request in range(6):
            for person in ("deaf", "old", "tall"):
                p = 1.0 if (cue, person) == ("profile", "old") else 0.5
                for x in rng.random(60) < p:
                    rows.append({"template": f"{cue}: {request}", "cue": cue, "descriptor": person})
                    vectors.append([float(x), 1.0 - x])
    shares = {
        score.group["cue_source"]: score.value
        for score in cue_shares(StyledResponses(pd.DataFrame(rows), np.array(vectors), ["x", "y"]), {})
    }
    # Means by cue and person: ½, 1, ½ and ½, ½, ½. Per style the mean Var_d is 1/24; δ is 0 by the second cue.
    total = 2 * (1 / 24) + 2 * (5 * 0.25) / 6
    assert shares["descriptor"] == pytest.approx(0, abs=0.04)
    assert shares["descriptor × cue"] == pytest.approx(2 / 24 / total, abs=0.04)
    assert sum(shares.values()) == pytest.approx(1, abs=0.02)


def test_a_verdict_names_the_outcomes_that_depend_on_the_person():
    """The p-values are adjusted for the page; an outcome with a shown effect depends on the person, too."""

    def spread(outcome, p):
        return named_score(f"{outcome}_spread", 0.1, 0.0, (0, 1), n=9, n_left_out=0, p_value=p)

    scores = [spread("other_language", 0.02), spread("fluency", 0.03), spread("length", 0.5)]
    nobody = pd.DataFrame({"outcome": ["length"], "certainty": ["inconclusive"]})
    text = outcomes.outcome_text(scores, nobody)
    assert "language" in text and "fluency" in text and "length" not in text and "other" not in text
    assert "language" not in outcomes.outcome_text(scores, nobody, without=["other_language"])
    assert outcomes.outcome_text(scores[2:], nobody) == ""
    assert "length" in outcomes.outcome_text(scores[2:], nobody.assign(certainty="shown"))
