"""Selection of pairs, their sides, and files of crowdsourcing platforms."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.holistic_bias import load_taxonomy
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.crowd import crowd_pairs, read_crowd_votes
from evenhand.evaluation.rating.pairs import exclusion_reasons, left_side, other_side, read_pairs, sample_pairs
from evenhand.evaluation.rating.questions import leave_out_file, load_leave_out, load_questions, questions_file
from tests.evaluation.rating.rated_pairs import QUESTIONS, synthetic_pairs

NO_LISTS = {"template": [], "descriptor": []}


def test_reasons_exclude_pairs():
    pairs = synthetic_pairs(
        6,
        template=["hate", "t", "t", "t", "hate", "t"],
        descriptor=["x", "ugly", "x", "x", "ugly", "x"],
        offensive=[False, False, True, False, True, False],
        after=["new", "new", "new", " old 3 ", "new", "new"],
    )
    reasons = exclusion_reasons(pairs, {"template": ["hate"], "descriptor": ["ugly"]})
    assert reasons.tolist() == ["template", "descriptor", "offensive", "alike", "template", None]
    assert exclusion_reasons(synthetic_pairs(3), NO_LISTS).isna().all()


def test_pairs_are_sampled_without_replacement_and_reproducibly():
    pairs = synthetic_pairs(50)
    sample = sample_pairs(pairs, 20, seed=1)
    assert sample["prompt_id"].nunique() == 20
    assert sample.equals(sample_pairs(pairs, 20, seed=1))
    assert not sample.equals(sample_pairs(pairs, 20, seed=2))
    assert sample_pairs(pairs, 10, seed=1)["prompt_id"].tolist() == sample["prompt_id"].tolist()[:10]
    assert sorted(sample_pairs(pairs, 1000, seed=1)["prompt_id"]) == sorted(pairs["prompt_id"])


def test_sides_are_fair_coins_of_rater_and_pair():
    sides = np.array([[left_side(f"r{i}", f"p{j}", 0) == "before" for j in range(60)] for i in range(60)])
    assert abs(sides.mean() - 0.5) < 4 * 0.5 / 60  # four standard deviations of 3600 coins
    assert np.abs(sides.mean(axis=0) - 0.5).max() < 0.35
    assert np.abs(sides.mean(axis=1) - 0.5).max() < 0.35
    assert left_side("r1", "p1", 0) == left_side("r1", "p1", 0)
    assert {other_side("before"), other_side("after")} == {"after", "before"}


def write_run(folder, ids, responses, offensiveness=None):
    folder.mkdir()
    n = len(ids)
    prompts = {
        "prompt_id": ids,
        "axis": ["age"] * n,
        "descriptor": ["d"] * n,
        "template": ["t"] * n,
        "text": ["Hi"] * n,
    }
    pd.DataFrame(prompts).to_parquet(folder / "prompts.parquet")
    pd.DataFrame({"prompt_id": ids, "response": responses}).to_parquet(folder / "responses.parquet")
    if offensiveness:
        table = pd.DataFrame({"prompt_id": ids, "offensiveness": offensiveness})
        table.to_parquet(folder / "offensiveness.parquet")
    return folder


def test_pairs_of_runs(tmp_path):
    before = write_run(tmp_path / "before", ["p", "q", "r"], ["a", "b", "c"], [0.5, 0.1, float("nan")])
    after = write_run(tmp_path / "after", ["p", "q", "r"], ["d", "e", "f"], [0.2, 0.9, 0.4])
    pairs = read_pairs(before, after)
    assert pairs["offensive"].tolist() == [True, True, False]
    assert pairs[["before", "after"]].to_numpy().tolist() == [["a", "d"], ["b", "e"], ["c", "f"]]
    before, after = (write_run(tmp_path / name, ids, ["a"]) for name, ids in (("one", ["p"]), ("other", ["q"])))
    with pytest.raises(InputError, match="after: "):
        read_pairs(before, after)


def test_shipped_files_name_values_of_the_taxonomy():
    assert list(load_questions(questions_file("paper"))) == ["preference", "humanness", "interestingness"]
    lists = load_leave_out(leave_out_file("paper"))
    assert {"hideous", "alcoholic"} <= set(lists["descriptor"])  # the two that 002 §C.2.1 names
    assert "I hate {plural_noun_phrase}." in lists["template"]
    assert all(len(set(values)) == len(values) for values in lists.values())
    taxonomy, lists = load_taxonomy("paper"), load_leave_out(leave_out_file("paper"))
    assert set(lists["descriptor"]) <= {entry.text for entry in taxonomy.descriptors}
    assert set(lists["template"]) <= {entry.text for entry in taxonomy.templates}


@pytest.mark.parametrize(
    ("load", "text", "message"),
    [
        (load_questions, "preference: 3", "'preference': 3 is not a name and a question"),
        (load_leave_out, "template: []", "has template; write two lists"),
        (load_leave_out, "descriptors: []\ntemplate: []", "has descriptors, template; write two lists"),
        (load_leave_out, "descriptor: ugly\ntemplate: []", "descriptor is 'ugly'; write a list"),
    ],
)
def test_an_invalid_file_is_an_error(tmp_path, load, text, message):
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(InputError, match=message):
        load(tmp_path / "file.yaml")


CROWD = "rater,prompt_id,question,choice\n"


def test_votes_of_a_file_are_for_the_response_at_that_position(tmp_path):
    pairs = sample_pairs(synthetic_pairs(6), 6, seed=0)
    shown = crowd_pairs(pairs).set_index("prompt_id")
    rows = [f" w1 ,{pair},preference,1\nw2,{pair},preference,2\nw3,{pair},preference,skip\n" for pair in shown.index]
    (tmp_path / "votes.csv").write_text(CROWD + "".join(rows))
    votes = read_crowd_votes(tmp_path / "votes.csv", pairs, QUESTIONS)
    of_side = {"old": "before", "new": "after"}
    for vote in votes:
        column = {"w1": "response_1", "w2": "response_2"}.get(vote.rater)
        assert vote.choice == (column and of_side[shown.loc[vote.prompt_id, column].split()[0]])
        assert vote.left == of_side[shown.loc[vote.prompt_id, "response_1"].split()[0]]
    assert len({vote.left for vote in votes}) == 2  # each model is first in some pair
    assert not {"before", "after"} & set(crowd_pairs(pairs).columns)  # models are anonymous


def test_a_spreadsheet_reads_no_formula_and_its_votes_are_read_back(tmp_path):
    pairs = sample_pairs(synthetic_pairs(3), 3, seed=0)
    pairs["prompt_id"], pairs["before"] = ["=1+1", "'=1+1", "-0.5"], "\x1b[31m\u202e@SUM(A1)"
    shown = crowd_pairs(pairs)
    assert shown["prompt_id"].tolist() == ["'=1+1", "''=1+1", "-0.5"]
    assert not shown.map(lambda text: text[0] in "=+@" or not text.isprintable()).any(axis=None)
    rows = shown["prompt_id"].map(lambda prompt_id: f"w,{prompt_id},preference,1\n")
    (tmp_path / "votes.csv").write_text(CROWD + "".join(rows))
    votes = read_crowd_votes(tmp_path / "votes.csv", pairs, QUESTIONS)
    assert [vote.prompt_id for vote in votes] == pairs["prompt_id"].tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows; .* rater, prompt_id"),
        ("rater,choice\nx,1\n", "rater, choice; it needs"),
        (CROWD + "x,p0,preference,1\nx,p9,preference,1\n", "row 3: prompt_id is 'p9'; allowed: one of pairs.csv"),
        (CROWD + "x,p0,preference,left\n", "row 2: choice is 'left'; allowed: 1, 2, skip"),
        (CROWD + " ,p0,preference,1\n", "row 2: rater is empty"),
    ],
)
def test_an_invalid_file_of_votes_is_an_error(tmp_path, text, message):
    (tmp_path / "votes.csv").write_text(text)
    with pytest.raises(InputError, match=f"import_votes: .*{message}"):
        read_crowd_votes(tmp_path / "votes.csv", sample_pairs(synthetic_pairs(2), 2, 0), QUESTIONS)
