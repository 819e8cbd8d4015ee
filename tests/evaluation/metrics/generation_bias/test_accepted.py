"""Accepted differences: the file, what is taken out of the vectors, and what stays in the effects."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.accepted import (
    AcceptedDifferences,
    accepted_left_out,
    accepted_scores,
    of_known_effects,
    read_accepted,
)
from evenhand.evaluation.metrics.generation_bias.answers import Answers, without_accepted
from evenhand.evaluation.metrics.generation_bias.engine.effects import effect_changes, effects
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline, generation_bias
from evenhand.evaluation.metrics.generation_bias.parts.spread import person_scores
from evenhand.evaluation.statistics.level import ONE_LOOK
from evenhand.mitigation.labels import label_responses
from tests.named_scores import named_score

STYLES, CLUSTERS = ["sad", "sorry", "glad"], {"SYMPATHY": [0, 1]}
FILE = """
- {axis: ability, cluster: SYMPATHY, why: People asked for it., signed: "A. Person, 2026-11-24"}
- {descriptor: old, style: glad, why: Birthdays., signed: A. Person}
"""


@pytest.fixture
def accepted(tmp_path):
    (tmp_path / "accepted.yaml").write_text(FILE)
    return read_accepted(tmp_path / "accepted.yaml", STYLES, CLUSTERS)


def planted(n=50):
    """Return responses: disabled people get "sorry" in place of "glad" with ½; tall people get "sad" with ½."""
    rng, rows, vectors = np.random.default_rng(0), [], []
    shares = {"deaf": [0, 0.5, 0.5], "blind": [0, 0.5, 0.5], "old": [0, 0, 1], "tall": [0.5, 0, 0.5], "rich": [0, 0, 1]}
    axes = {"deaf": "ability", "blind": "ability", "old": "age", "tall": "body", "rich": "money"}
    for template in ("s", "t"):
        for person, share in shares.items():
            rows += [{"template": template, "descriptor": person, "axis": axes[person]}] * n
            vectors.append(rng.multinomial(1, share, n))
    table = pd.DataFrame(rows).assign(prompt_id=lambda it: it.index.astype(str), persona="", text="x", response="y")
    return Answers(table, np.concatenate(vectors).astype(float), STYLES)


def test_the_file_names_who_what_why_and_who_signed(accepted, tmp_path):
    assert accepted[["kind", "unit", "outcome", "name"]].values.tolist() == [
        ["axis", "ability", "cluster", "SYMPATHY"],
        ["descriptor", "old", "style", "glad"],
    ]
    assert accepted["styles"].tolist() == [["sad", "sorry"], ["glad"]]
    for wrong in ("- {axis: age, style: glad, why: x}", "- {style: glad, why: x, signed: y}", "- text"):
        (tmp_path / "wrong.yaml").write_text(wrong)
        with pytest.raises(InputError, match=r"^generation_bias\.accepted: .*signed"):
            read_accepted(tmp_path / "wrong.yaml", STYLES, CLUSTERS)
    (tmp_path / "wrong.yaml").write_text("- {axis: age, style: gald, why: x, signed: y}")
    with pytest.raises(InputError, match="gald"):
        read_accepted(tmp_path / "wrong.yaml", STYLES, CLUSTERS)
    for wrong in ("5", "axis: age", "- {axis: age, style: 3, why: x, signed: y}",
                  "- {axis: age, cluster: [SYMPATHY], why: x, signed: y}",
                  "- {axis: , style: glad, why: x, signed: y}"):  # fmt: skip
        (tmp_path / "wrong.yaml").write_text(wrong)
        with pytest.raises(InputError, match=r"^generation_bias\.accepted"):
            read_accepted(tmp_path / "wrong.yaml", STYLES, CLUSTERS)


def test_accepted_styles_have_the_mean_of_others_on_the_same_template(accepted):
    before = planted()
    after = without_accepted(before, accepted.head(1))
    others = before.table["axis"] != "ability"
    for template in ("s", "t"):
        rows = (before.table["template"] == template).to_numpy()
        mean = before.values[rows & others][:, :2].mean(axis=0)
        assert after.values[rows & ~others][:, :2] == pytest.approx(np.tile(mean, (100, 1)))
    assert after.values.sum(axis=1) == pytest.approx(1)
    assert (after.values[others] == before.values[others]).all()


def test_the_rest_of_the_bias_stays_and_what_is_accepted_is_measured(accepted):
    before = planted()
    sympathy = accepted.head(1)
    rest = without_accepted(before, sympathy)
    whole, left = (find_headline(generation_bias(it, {}, permutations=0)).value for it in (before, rest))
    assert 0 < left < 0.75 * whole
    found = {
        (row.unit, row.name_): row
        for row in effects(rest, {}, permutations=99).rename(columns={"name": "name_"}).itertuples()
    }
    assert abs(found["deaf", "sorry"].effect) < 0.01 and found["deaf", "sorry"].certainty != "shown"
    assert found["tall", "sad"].certainty == "shown"
    raw = effects(before, CLUSTERS, permutations=0)
    (score,) = accepted_scores(sympathy, raw, "level")
    assert score.group == {"axis": "ability", "cluster": "SYMPATHY"} and score.value == pytest.approx(0.2, abs=0.05)


def accept(**who):
    """Return an accepted difference of the style glad."""
    ((kind, unit),) = who.items()
    row = {"kind": kind, "unit": unit, "outcome": "style", "name": "glad", "styles": ["glad"]}
    return pd.DataFrame([{**row, "why": "x", "signed": "y"}])


def test_accepted_effects_are_of_whoever_is_named_and_undefined_of_others():
    """Of a: b, every answer is glad, of others none: the effects are 1 − 1/4 and 0 − 1/4."""
    people = {"a: b": ("age", "young"), "b": ("age", "old"), "c": ("money", "young"), "d": ("money", "old")}
    rows = [(template, person, *people[person]) for template in "stuvwxyz" for person in people]
    table = pd.DataFrame(rows, columns=["template", "descriptor", "axis", "bucket"])
    is_glad = (table["descriptor"] == "a: b").to_numpy()
    run = Answers(table, np.stack([~is_glad, 0 * is_glad, is_glad], axis=1).astype(float), STYLES)
    raw = effects(run, CLUSTERS, groups=run.groups(), permutations=0)

    def values(**who):
        return [(score.value, score.n) for score in accepted_scores(accept(**who), raw, "level")]

    assert values(descriptor="a: b") == [(0.75, 8)]
    assert values(descriptor="b") == [(-0.25, 8)]
    assert values(axis="age") == [(0.25, 16)]
    for nobody in ({"bucket": "young"}, {"descriptor": "e"}, {"axis": "body"}):  # each bucket is one person
        (score,) = accepted_scores(accept(**nobody), raw, "level")
        assert np.isnan(score.value) and score.reason and score.group == {**nobody, "style": "glad"}
    never = accept(descriptor="b").assign(name="sorry")
    (score,) = accepted_scores(never, raw, "level")
    assert (score.value, score.interval) == (0.0, None) and "varies" in score.reason


def test_a_bucket_of_two_axes_has_an_effect_in_each():
    people = {"a": ("age", "x"), "b": ("age", "x"), "c": ("money", "x"), "d": ("money", "x"), "e": ("age", "y")}
    rows = [(template, person, *people[person]) for template in "stuvwxyz" for person in people]
    table = pd.DataFrame(rows, columns=["template", "descriptor", "axis", "bucket"])
    is_glad = table["descriptor"].isin(["a", "b"]).to_numpy()  # the average is 2/5
    run = Answers(table, np.stack([~is_glad, 0 * is_glad, is_glad], axis=1).astype(float), STYLES)
    groups = {"bucket": run.groups()["bucket"]}
    found = accepted_scores(accept(bucket="x"), effects(run, {}, groups=groups, permutations=0), "level")
    assert {score.group["bucket"]: score.value for score in found} == pytest.approx({"age: x": 0.6, "money: x": -0.4})


def test_a_person_of_two_axes_is_in_both_groups():
    """All answers to "a", half of them of each axis, are glad, no others: effects are 4/5 and −1/5.

    Each group has a and one person or two more: (4/5 − 1/5) / 2 and (4/5 − 2/5) / 3.
    """
    people = {"b": "age", "c": "money", "d": "money", "e": "body"}
    rows = []
    for number, template in enumerate("stuvwxyz"):
        rows.append((template, "a", ["age", "money"][number % 2]))
        rows += [(template, person, axis) for person, axis in people.items()]
    table = pd.DataFrame(rows, columns=["template", "descriptor", "axis"]).assign(bucket=lambda it: it["axis"] + "s")
    is_glad = (table["descriptor"] == "a").to_numpy()
    run = Answers(table, np.stack([~is_glad, 0 * is_glad, is_glad], axis=1).astype(float), STYLES)
    found = effects(run, {}, groups=run.groups(), permutations=0)
    groups = found[(found["kind"] == "axis") & (found["name"] == "glad")].set_index("unit")
    assert groups["effect"].to_dict() == pytest.approx({"age": 0.3, "money": 0.4 / 3})
    assert groups["n"].to_dict() == {"age": 16, "money": 24} and groups["axis"].tolist() == groups.index.tolist()
    assert set(found.loc[found["unit"] == "a", "axis"]) == {"age, money"}  # both stand in the row of the person, too
    found = accepted_scores(accept(axis="money"), effects(run, {}, permutations=0), "level")
    assert [score.value for score in found] == pytest.approx([0.4 / 3])


def test_people_without_a_bucket_are_in_none():
    rows = [(template, person, "age") for template in "stuvwxyz" for person in "abcd"]
    table = pd.DataFrame(rows, columns=["template", "descriptor", "axis"]).assign(bucket=None)
    is_glad = (table["descriptor"] == "a").to_numpy()
    values = np.stack([~is_glad, 0 * is_glad, is_glad], axis=1).astype(float)
    for buckets, units in (({}, set()), ({"a": "x", "b": "x"}, {"age: x"})):
        run = Answers(table.assign(bucket=table["descriptor"].map(buckets)), values, STYLES)
        found = effects(run, {}, groups=run.groups(), permutations=0)
        assert set(found.loc[found["kind"] == "bucket", "unit"]) == units
        assert all(np.isnan(score.value) for score in person_scores(run))


def test_accepting_changes_nothing_for_people_without_buckets_and_leaves_vectors_that_sum_to_1():
    """Where everybody else gets the accepted style only, the accepted person does, too."""
    table = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"], "axis": "x"})
    run = Answers(table, np.array([[1, 0, 0], [0.5, 0, 0.5], [0, 0, 1], [0, 0, 1]]), STYLES)
    assert (without_accepted(run, accept(bucket="x")).values == run.values).all()
    assert without_accepted(run, accept(descriptor="a")).values.tolist() == [[0, 0, 1]] * 4


def test_no_bias_direction_contains_an_accepted_style(accepted):
    """Bias values of deaf people no longer depend on whether the response is sorry."""
    rest = without_accepted(planted(), accepted.head(1))
    labelled, _ = label_responses(rest.table, rest.table["response"], rest.values, alpha=0, beta=0.0)
    deaf = (rest.table["descriptor"] == "deaf").to_numpy()
    assert np.abs(labelled["bias_value"].to_numpy()[deaf]).max() < 0.05


def test_a_comparison_shows_what_became_of_each_accepted_difference():
    def score(metric, value):
        return named_score(metric, value, None, (-2.0, 2.0), 9, group={"axis": "ability", "cluster": "SYMPATHY"})

    before = [score("accepted_effect", 0.2), score("effect", 0.3)]
    after = [score("accepted_effect", 0.05)]
    changes = [score("accepted_effect_difference", -0.15)]
    runs = [SimpleNamespace(scores=scores) for scores in (before, after, changes)]
    (section,) = AcceptedDifferences().change_sections(*runs)
    (row,) = section.tables[0].rows
    assert section.first_screen
    assert row.label == "ability, SYMPATHY"
    assert [float(cell.text.replace("−", "-")) for cell in row.cells] == [20.0, 5.0, -15.0]
    runs[0].scores = before[1:]
    assert not AcceptedDifferences().change_sections(*runs)


def test_the_interval_of_an_accepted_difference_is_two_sided():
    """In 2.5 % of comparisons of a model with itself the interval ends below 0, in 2.5 % it begins above."""
    table = pd.DataFrame(np.indices((12, 10, 2)).reshape(3, -1)[:2].T, columns=["template", "descriptor"])
    missed = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = np.where(table["descriptor"] == 0, 0.6, 0.4)
        sides = []
        for _ in range(2):
            hit = rng.random(len(table)) < p
            values = np.stack([hit, ~hit], axis=1).astype(float)
            sides.append(Answers(table.astype(str), values, ["s", "o"], level=of_known_effects(ONE_LOOK)))
        changes = effect_changes(*sides, {}, permutations=0)
        of_people = changes[(changes["kind"] == "descriptor") & (changes["name"] == "s")]
        missed.append((of_people["low"] > 0) | (of_people["high"] < 0))
    assert 0.02 < np.mean(missed) < 0.07


def test_entries_on_nobody_in_the_run_are_not_said_to_be_left_out(accepted):
    accepted = accepted.assign(unit=["ability", "older"])  # a misprint
    tables = {"accepted": accepted, "prompts": planted(n=1).table}
    run = SimpleNamespace(has=tables.__contains__, table=tables.__getitem__)
    (found,) = accepted_left_out(run)
    assert [row["unit"] for row in found.values["first"]] == ["ability"] and found.values["n"] == 1
    tables["accepted"] = accepted.iloc[1:]
    assert accepted_left_out(run) == []
