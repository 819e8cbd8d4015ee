"""The engine: means, spreads, effects and paired changes of measures, with planted differences between people."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.cuts import cue_shares
from evenhand.evaluation.metrics.generation_bias.engine.changes import measure_changes
from evenhand.evaluation.metrics.generation_bias.engine.effects import difference_bound
from evenhand.evaluation.metrics.generation_bias.engine.measure_effects import measure_bias
from evenhand.evaluation.metrics.generation_bias.engine.values import MeasureValues, value_columns
from evenhand.evaluation.metrics.generation_bias.findings import person_finding
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.parts import outcomes
from evenhand.evaluation.score import Form, Kind, find_score
from tests.named_scores import named_score


def ratio(table, name="length"):
    return MeasureValues(name, ValueKind.RATIO, pd.DataFrame(table))


def share(table, name="refusal"):
    return MeasureValues(name, ValueKind.SHARE, pd.DataFrame(table))


def classes(table, name="language"):
    return MeasureValues(name, ValueKind.CLASS, pd.DataFrame(table))


def measured(descriptors=("deaf", "old", "tall"), templates=10, n=20):
    """Responses without style, and a function of the effects of descriptors that returns lengths of deviation 1."""
    rows = [{"template": t, "descriptor": d, "axis": ""} for t in range(templates) for d in descriptors]
    table = pd.DataFrame(rows).loc[np.repeat(np.arange(len(rows)), n)].reset_index(drop=True)

    def words(effect, seed=0):
        noise = np.random.default_rng(seed).normal(size=len(table))
        return pd.DataFrame({"words": 10 + noise + table["descriptor"].map(effect).fillna(0)})

    return Answers(table, np.zeros((len(table), 1)), ["x"]), words


def test_a_longer_answer_to_one_descriptor_is_the_spread_and_the_shown_effect():
    """Lengths have standard deviation 1; "old" people get 4 words more: of three means, 0, 0 and 4, ddof 1, √(16/3)."""
    responses, words = measured()
    scores, effects = measure_bias(responses, ratio(words({"old": 4})), permutations=199)
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
    scores, effects = measure_bias(responses, ratio(skewed), permutations=199)
    of_old = skewed[(responses.table["descriptor"] == "old").to_numpy()].to_numpy()
    typical = np.expm1(np.log1p(of_old).mean())
    assert typical < 0.8 * of_old.mean()
    table = outcomes.outcome_section(scores, effects).tables[1]
    row = next(row for row in table.rows if row.label.startswith("old"))
    assert f"typical {typical:,.2f} " in row.cells[0].text and "geometric mean" in table.note
    found = effects[(effects["unit"] == "old") & (effects["kind"] == "descriptor")].to_dict("records")[0]
    found = person_finding(found).values
    assert (found["outcome"].scale, found["level"].mean) == ("ratio", pytest.approx(typical))


def test_a_share_has_an_interval_within_0_and_1_and_a_length_of_one_word_is_a_number():
    responses, _ = measured()
    nobody = pd.DataFrame({"refusal": np.zeros(len(responses))})
    (_, mean), _ = measure_bias(responses, share(nobody), permutations=9)
    n = len(responses)
    assert mean.interval == pytest.approx((0.0, 1.96**2 / (n + 1.96**2)), rel=1e-3)  # Wilson 1927
    one_word = pd.DataFrame({"words": (responses.table["descriptor"] == "old").to_numpy(dtype=float)})
    (_, mean), effects = measure_bias(responses, ratio(one_word), permutations=199)
    half = 1.964 * np.sqrt(mean.value * (1 - mean.value) / (n - 1))  # Student's t with 599 degrees of freedom
    assert mean.interval == pytest.approx((mean.value - half, mean.value + half), rel=1e-4)
    row = effects.query("unit == 'old' and kind == 'descriptor'").to_dict("records")[0]
    assert row["scale"] == "ratio" and np.isnan(row["hits"])
    assert person_finding(row).values["outcome"].unit == "words"


def test_a_number_that_is_0_in_every_answer_is_no_count_of_answers():
    responses, _ = measured()
    _, effects = measure_bias(responses, ratio(pd.DataFrame({"words": np.zeros(len(responses))})), permutations=9)
    assert effects["hits"].isna().all()


def test_the_change_of_a_spread_has_the_unit_of_its_values():
    """In half words, the interval is twice the one in words; it was cut where the squares differ by 3, as of shares."""
    responses, words = measured()
    found = {}
    for factor in (1, 2):
        sides = (ratio(factor * words({"old": 4})), ratio(factor * words({"old": 4.2}, seed=1)))
        found[factor] = find_score(measure_changes(responses, *sides), "length", Form.SPREAD, Kind.DIFFERENCE)
    low, high = found[1].interval
    assert found[2].interval == pytest.approx((2 * low, 2 * high))
    assert low < 0.2 / 3**0.5 < high  # √(4.2² / 3) − √(4² / 3), as planted


def test_what_cannot_be_ruled_out_of_ranks_is_in_percentiles():
    """Numbers that may be negative are compared by their ranks, so their bound is no number of words."""
    responses, words = measured()
    values = MeasureValues("length", ValueKind.NUMBER, words({"old": 4}) - 11)
    scores, effects = measure_bias(responses, values, permutations=199)
    assert set(effects["scale"]) == {"number"}
    bound = difference_bound(effects, outcome="length")
    (row,) = outcomes.outcome_section([*scores, bound], effects).tables[0].rows
    assert f"{100 * bound.value:.2f} percentiles" in [cell.text for cell in row.cells]


def test_changes_of_an_outcome_are_paired_and_of_planted_size():
    """Spreads √(16/3) before and √(1/3) after: "old" people get 4 words more, then one. One value is missing."""
    responses, words = measured()
    before, after = words({"old": 4}), words({"old": 1}, seed=1)
    before.iloc[0] = np.nan
    found = {(it.name, it.group.get("run")): it for it in measure_changes(responses, ratio(before), ratio(after))}
    spread, mean = found["length_spread_difference", None], found["length_mean_difference", None]
    assert spread.value == pytest.approx((1 / 3) ** 0.5 - (16 / 3) ** 0.5, abs=0.15) and spread.p_value < 1e-6
    assert spread.interval[0] < (1 / 3) ** 0.5 - (16 / 3) ** 0.5 < spread.interval[1] < 0
    assert spread.value == found["length_spread", "after"].value - found["length_spread", "before"].value
    assert mean.value == pytest.approx(-1, abs=0.15) and mean.interval[0] < -1 < mean.interval[1]
    assert mean.value == pytest.approx((after - before).mean().item())
    assert {it.n_left_out for it in found.values()} == {1}
    (same,) = (
        it for it in measure_changes(responses, ratio(after), ratio(after)) if it.name == "length_spread_difference"
    )
    assert same.value == 0 and same.interval is None and same.reason


def test_a_class_of_one_run_is_compared_as_absent_in_the_other():
    """Before, half of the answers to "old" people are in Spanish, after none: the spread falls by √(½ · 2 · 1/12)."""
    responses, _ = measured()
    spanish = (responses.table["descriptor"] == "old") & (np.arange(len(responses)) % 2 == 0)
    before = pd.DataFrame({"en": ~spanish, "es": spanish}, dtype=float)
    after = pd.DataFrame({"en": np.ones(len(responses))})
    changes = measure_changes(responses, classes(before), classes(after))
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
        for score in cue_shares(Answers(pd.DataFrame(rows), np.array(vectors), ["x", "y"]))
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
    nobody = pd.DataFrame({"outcome": ["length"], "name": ["words"], "certainty": ["inconclusive"]})
    assert outcomes.person_dependent(scores, nobody) == ["language", "fluency"]
    assert outcomes.person_dependent(scores, nobody, without=["other_language"]) == ["fluency"]
    assert outcomes.person_dependent(scores[2:], nobody) == []
    assert outcomes.person_dependent(scores[2:], nobody.assign(certainty="shown")) == ["length"]


def test_answers_that_are_too_short_to_tell_their_language_are_in_no_other_language():
    scores = [named_score("language_spread", 0.1, 0.0, (0, 1), n=9, n_left_out=0, p_value=0.02)]
    effects = pd.DataFrame(
        {
            "outcome": "language",
            "name": ["too short", "en", "es"],
            "certainty": ["shown", "shown", "inconclusive"],
            "average": [0.1, 0.8, 0.1],
        }
    )
    assert outcomes.person_dependent(scores, effects) == []
    assert outcomes.person_dependent(scores, effects.assign(certainty="shown")) == ["language"]
    assert outcomes.person_dependent(scores, effects.assign(certainty="inconclusive")) == ["language"]


@pytest.mark.parametrize("seed", range(3))
def test_after_is_before_plus_change_for_every_kind_and_missing_values(seed):
    """Each level beside a change is of the same answers."""
    responses, _ = measured(n=2)
    rng = np.random.default_rng(seed)
    n = len(responses)
    kinds = {
        ValueKind.SHARE: lambda: pd.DataFrame({"x": rng.integers(0, 2, n).astype(float)}),
        ValueKind.RATIO: lambda: pd.DataFrame({"x": rng.lognormal(size=n)}),
        ValueKind.NUMBER: lambda: pd.DataFrame({"x": rng.normal(size=n)}),
        ValueKind.CLASS: lambda: pd.get_dummies(pd.Series(rng.choice(list("abc"), n)), dtype=float),
    }
    for kind, draw in kinds.items():
        sides = []
        for _ in range(2):
            table = draw()
            table[rng.random(n) < 0.1] = np.nan
            sides.append(MeasureValues("x", kind, table))
        scores = measure_changes(responses, *sides)
        differences = [score for score in scores if score.kind == Kind.DIFFERENCE]
        assert len(differences) == (4 if kind == ValueKind.CLASS else 2)
        for change in differences:
            old, new = (find_score(scores, "x", change.form, **change.group, run=run) for run in ("before", "after"))
            assert old.value + change.value == pytest.approx(new.value, abs=1e-12)
            assert (old.n, old.n_left_out) == (new.n, new.n_left_out) == (change.n, change.n_left_out)
            assert change.interval[0] <= change.value <= change.interval[1]


def test_all_answers_that_change_alike_are_a_shown_change():
    """Nobody was refused, and everybody is: nothing varies, and McNemar's test has p = 2 / 2ⁿ.

    Tango's score is √(n (1 − δ) / (1 + δ)), which is z at δ = (n − z²) / (n + z²).
    """
    responses, _ = measured(n=1)
    none, every = (share({"refusal": np.full(len(responses), value)}) for value in (0.0, 1.0))
    mean = find_score(measure_changes(responses, none, every), "refusal", Form.MEAN, Kind.DIFFERENCE)
    n = len(responses)
    assert (mean.value, mean.p_value) == (1, pytest.approx(2.0 ** (1 - n)))
    assert mean.interval == pytest.approx(((n - 3.8414588) / (n + 3.8414588), 1.0))


@pytest.mark.parametrize("kind", [ValueKind.SHARE, ValueKind.CLASS])
def test_answers_of_people_that_never_vary_have_an_exact_interval_of_their_spread(kind):
    """Nobody is refused, or deaf people always: each of three people has ten templates.

    The standard deviation of 1, 0, 0 is √⅓. Of 10 templates, −ln 0.05 / 10 may be otherwise for one person of three.
    """
    responses, _ = measured(n=2)
    is_deaf = (responses.table["descriptor"] == "deaf").astype(float)
    reach = -np.log(0.05) / 10 / np.sqrt(3)

    def refused(column):
        table = {"yes": column, "no": 1 - column} if kind == ValueKind.CLASS else {"yes": column}
        return MeasureValues("refusal", kind, pd.DataFrame(table))

    scores = measure_changes(responses, refused(0 * is_deaf), refused(is_deaf))
    old, new = (find_score(scores, "refusal", Form.SPREAD, run=run) for run in ("before", "after"))
    change = find_score(scores, "refusal", Form.SPREAD, Kind.DIFFERENCE)
    spread = 3**-0.5
    assert (old.value, old.interval, old.reason) == (0, pytest.approx((0, reach)), None)
    assert (new.value, new.interval) == (pytest.approx(spread), pytest.approx((spread - reach, spread + reach)))
    assert (change.value, change.interval) == (pytest.approx(spread), pytest.approx((spread - reach, spread + reach)))
    some = is_deaf * (np.arange(len(is_deaf)) % 4 == 0)
    scores = measure_changes(responses, refused(0 * is_deaf), refused(some))
    assert find_score(scores, "refusal", Form.SPREAD, Kind.DIFFERENCE).interval  # 0 before has an interval, too


def test_the_change_of_a_spread_is_not_beyond_what_the_spreads_can_be():
    """Nobody is treated differently, before and after: the interval has no end beyond either spread's."""
    rng = np.random.default_rng(0)
    rows = [(f"t{t}", f"d{d}") for d in range(20) for t in range(13) for _ in range(2)]
    table = pd.DataFrame(rows, columns=["template", "descriptor"])
    responses = Answers(table, np.zeros((len(table), 1)), ["x"])
    n_intervals = 0
    for _ in range(40):
        sides = [share({"refusal": (rng.random(len(table)) < 0.05).astype(float)}) for _ in range(2)]
        scores = measure_changes(responses, *sides)
        old, new = (find_score(scores, "refusal", Form.SPREAD, run=run) for run in ("before", "after"))
        change = find_score(scores, "refusal", Form.SPREAD, Kind.DIFFERENCE)
        low, high = change.interval
        n_intervals += 1
        assert -old.interval[1] <= low <= change.value <= high <= new.interval[1]
    assert n_intervals == 40


def test_numbers_and_classes_have_no_difference_and_the_reason():
    responses, words = measured(n=1)
    numbers = ratio(words({}), "rating")
    names = classes({"a": np.ones(len(responses)), "b": np.zeros(len(responses))}, "rating")
    changes = measure_changes(responses, numbers, names)
    assert [(score.form, score.kind) for score in changes] == [("mean", "difference"), ("spread", "difference")]
    assert all(np.isnan(score.value) and "class" in score.reason for score in changes)


def test_numbers_of_one_run_that_are_negative_are_compared_as_numbers():
    responses, words = measured(n=1)
    before = words({})
    after = before.copy()
    after.iloc[0] = -1.0
    changes = measure_changes(responses, ratio(before), MeasureValues("length", ValueKind.NUMBER, after))
    mean = find_score(changes, "length", Form.MEAN, Kind.DIFFERENCE)
    assert mean.value == pytest.approx((-1 - before.iloc[0, 0]) / len(before))
    assert mean.basis == {"kind of values": "number"}


@pytest.mark.parametrize("kind", [ValueKind.RATIO, ValueKind.NUMBER])
def test_a_small_unit_changes_nothing(kind):
    """As a price per token: "old" people get six times as much, in each unit."""
    rng = np.random.default_rng(0)
    rows = [(f"t{t}", f"d{d}", "a") for d in range(8) for t in range(10) for _ in range(2)]
    table = pd.DataFrame(rows, columns=["template", "descriptor", "axis"])
    responses = Answers(table, np.zeros((len(table), 1)), ["s"])
    price = 1 + 5 * (table["descriptor"] == "d0") + rng.random(len(table))
    found = []
    for unit in (1e-5, 1e-9):
        values = MeasureValues("price", kind, pd.DataFrame({"price": price * unit}))
        scores, effects = measure_bias(responses, values, permutations=199)
        shown = effects[effects["certainty"] == "shown"]["unit"].tolist()
        bound = difference_bound(effects, outcome="price")
        scale = unit if kind == ValueKind.RATIO else 1.0
        found.append((scores[0].p_value, shown, bound.value / scale, scores[0].value / unit))
    (p, shown, bound, spread), small = found
    assert p < 0.05 and "d0" in shown
    assert small[:2] == (p, shown) and small[2:] == pytest.approx((bound, spread), rel=1e-3)


def test_a_small_unit_does_not_read_as_zero():
    """Six billionths for old people, one for others: the average of three people is 2.7e−9."""
    responses, words = measured()
    price = (words({"old": 50}) / 10) * 1e-9
    scores, effects = measure_bias(responses, ratio(price, "price"), permutations=199)
    tables = outcomes.outcome_section(scores, effects).tables
    (row,) = [row for row in tables[1].rows if row.label.startswith("old")]
    texts = [cell.text for cell in row.cells]
    assert "6.0e−9" in texts[0] and texts[1:3] == ["2.7e−9", "+3.3e−9"]
    assert row.cells[2].interval.startswith("[+3.")
    found = effects[(effects["unit"] == "old") & (effects["kind"] == "descriptor")].to_dict("records")[0]
    assert person_finding(found).values["outcome"].decimals == 10


def test_infinite_values_are_left_out_everywhere():
    rng = np.random.default_rng(0)
    rows = [(f"t{t}", f"d{d}", "a") for d in range(6) for t in range(8) for _ in range(2)]
    table = pd.DataFrame(rows, columns=["template", "descriptor", "axis"])
    x = rng.normal(size=len(table))
    is_infinite = (table["descriptor"] == "d0").to_numpy() & (np.arange(len(table)) % 2 == 0)
    x[is_infinite] = np.inf
    responses = Answers(table, np.zeros((len(table), 1)), ["s"])
    values = MeasureValues("x", ValueKind.NUMBER, pd.DataFrame({"x": x}))
    scores, effects = measure_bias(responses, values, permutations=19)
    assert {score.n_left_out for score in scores} == {8} and {score.n for score in scores} == {len(table) - 8}
    assert effects.query("unit == 'd0'")["n"].tolist() == [8] and effects["mean"].between(0, 1).all()


def test_classes_without_any_value_have_no_mean_and_no_spread_with_reasons():
    """As of a column that is empty in the selected rows: there is not even the name of a class."""
    responses, _ = measured(n=2)
    unknown = pd.Series([None] * len(responses), dtype=object)
    values = MeasureValues("language", ValueKind.CLASS, value_columns("language", unknown, ValueKind.CLASS))
    scores, effects = measure_bias(responses, values, permutations=9)
    assert [(np.isnan(score.value), score.reason, score.n) for score in scores] == [(True, values.no_value, 0)] * 2
    assert not len(effects)
    classified = classes({"en": np.ones(len(responses)), "es": np.zeros(len(responses))})
    changes = measure_changes(responses, values, classified)
    assert all(np.isnan(change.value) for change in changes)


def test_a_number_that_has_no_square_is_refused():
    column = pd.Series([1.0, -1e160, np.nan, np.inf])
    with pytest.raises(InputError, match="has 1e\\+160, which is too large"):
        value_columns("price", column, ValueKind.NUMBER)
    assert value_columns("price", column.replace(-1e160, -1e100), ValueKind.NUMBER)["price"].tolist()[1] == -1e100
