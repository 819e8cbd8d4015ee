"""Selection of pairs, their sides, and files of questions."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.holistic_bias import load_taxonomy
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.rating.response_pairs import (
    exclusion_reasons,
    left_side,
    other_side,
    read_left_out,
    read_questions,
    read_response_pairs,
    sample_pairs,
)
from tests.evaluation.rating.rated_pairs import synthetic_pairs

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


def write_run(folder, ids, responses, offensiveness=None, left_out=None, **further):
    folder.mkdir()
    prompts = {"prompt_id": ids, "axis": "age", "descriptor": "d", "template": "t", "text": "Hi", **further}
    pd.DataFrame(prompts).to_parquet(folder / "prompts.parquet")
    table = pd.DataFrame({"prompt_id": ids, "response": responses, "left_out": left_out})
    table.to_parquet(folder / "responses.parquet")
    if offensiveness:
        table = pd.DataFrame({"prompt_id": ids, "offensiveness": offensiveness})
        table.to_parquet(folder / "offensiveness.parquet")
    return folder


def test_raters_see_who_asks(tmp_path):
    cues = {"cue": ["profile", "mention"], "persona": ["About the user: a deaf man.", ""]}
    before = write_run(tmp_path / "before", ["p", "q"], ["a", "b"], **cues)
    after = write_run(tmp_path / "after", ["p", "q"], ["c", "d"], **cues)
    assert read_response_pairs(before, after)["text"].tolist() == ["About the user: a deaf man.\nHi", "Hi"]
    plain = write_run(
        tmp_path / "plain", ["p"], ["a"], persona="I like tea."
    )  # two random lines, of nobody in particular
    assert read_response_pairs(plain, plain)["text"].tolist() == ["Hi"]


def test_pairs_of_runs(tmp_path):
    before = write_run(tmp_path / "before", ["p", "q", "r"], ["a", "b", "c"], [0.5, 0.1, float("nan")])
    after = write_run(tmp_path / "after", ["s", "q", "r", "p"], ["g", "e", "f", "d"], [0.9, 0.9, 0.4, 0.2])
    pairs = read_response_pairs(before, after)  # of the prompts that both have, in the order of the run before
    assert pairs["offensive"].tolist() == [True, True, False]
    assert pairs[["before", "after"]].to_numpy().tolist() == [["a", "d"], ["b", "e"], ["c", "f"]]
    before, after = (write_run(tmp_path / name, ids, ["a"]) for name, ids in (("one", ["p"]), ("other", ["q"])))
    with pytest.raises(InputError, match="after: "):
        read_response_pairs(before, after)


def test_a_prompt_that_a_run_did_not_answer_is_not_rated(tmp_path):
    """Raters would prefer the other response to one that is empty because a server failed."""
    before = write_run(tmp_path / "before", ["p", "q", "r"], ["a", "", ""], left_out=[None, "status 500", None])
    after = write_run(tmp_path / "after", ["p", "q", "r"], ["d", "e", "f"])
    pairs = read_response_pairs(before, after)
    assert exclusion_reasons(pairs, {}).tolist() == [None, "unanswered", None]  # an empty answer is an answer
    assert sample_pairs(pairs, 3, seed=0)["prompt_id"].nunique() == 3


@pytest.mark.parametrize("content", ["[a]", "{}", "a: ''", "a: [b]", "a: 1", ""])
def test_a_file_of_questions_has_names_and_texts(tmp_path, content):
    path = tmp_path / "questions.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match="^questions"):
        read_questions(str(path))


def test_shipped_files_name_values_of_the_taxonomy():
    lists = read_left_out("paper")
    assert {"hideous", "alcoholic"} <= set(lists["descriptor"])  # the two that Smith et al. 2022, §C.2.1, names
    assert "I hate {plural_noun_phrase}." in lists["template"]
    assert all(len(set(values)) == len(values) for values in lists.values())
    taxonomy = load_taxonomy("paper")
    assert set(lists["descriptor"]) <= {entry.descriptor for entry in taxonomy.descriptors}
    assert set(lists["template"]) <= {entry.text for entry in taxonomy.templates}
