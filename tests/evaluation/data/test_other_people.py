"""Prompts of other people: several different ones, and few in equal shares."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.other_people import partner_prompts, partner_rows, several_people, with_partners


def prompts(n_descriptors, per_descriptor=3, **columns):
    names = np.repeat([f"d{number}" for number in range(n_descriptors)], per_descriptor)
    return pd.DataFrame({"template": "t", "noun": "man", "descriptor": names, **columns})


def test_enough_people_are_all_different():
    table = prompts(12)
    others = several_people(table, 7, seed=1)
    names = table["descriptor"].to_numpy()
    assert others.shape == (36, 7)
    assert all(len({name, *names[row]}) == 8 for name, row in zip(names, others, strict=True))
    assert len({*names[others].ravel()}) == 12
    assert (several_people(table, 7, seed=1) == others).all() and (several_people(table, 7, seed=2) != others).any()


@pytest.mark.parametrize(("n", "counts"), [(2, {4}), (3, {2, 3}), (4, {2}), (8, {1})])
def test_few_people_have_about_equal_shares_with_the_prompt_itself(n, counts):
    names = (table := prompts(n))["descriptor"].to_numpy()
    for row, others in enumerate(several_people(table, 7)):
        shares = Counter([names[row], *names[others]])
        assert len(shares) == n and {*shares.values()} == counts


def test_the_same_noun_comes_before_the_same_template():
    table = prompts(4, per_descriptor=1, noun=["man", "man", "woman", "child"])
    others = several_people(table, 2)
    assert others[:2].tolist() == [[1, 0], [0, 1]]  # two have the noun
    assert {*others[2]} < {0, 1, 3} and len({*others[2]}) == 2  # nobody else: anybody of the template
    alone = several_people(prompts(1), 2)
    assert (alone == -1).all()
    assert several_people(table.drop(columns="noun"), 3).min() >= 0


def test_a_partner_has_the_same_template_and_another_descriptor():
    table = pd.DataFrame(
        {
            "prompt_id": ["p", "q", "r"],
            "template": ["cook", "cook", "alone"],
            "descriptor": ["deaf", "old", "deaf"],
            "text": ["a deaf cook", "an old cook", "deaf and alone"],
            "persona": ["", "x", ""],
        },
        index=[5, 3, 8],
    )
    asked = with_partners(table, seed=0)
    assert asked[list(table)].equals(table)
    assert partner_rows(asked)["prompt_id"].tolist() == ["q", "p", "r"]  # nobody else is asked "alone"
    others = partner_prompts(asked)
    assert others["text"].tolist() == ["an old cook", "a deaf cook", "deaf and alone"]
    assert others["prompt_id"].tolist() == ["p", "q", "r"]
    assert others["persona"].tolist() == ["", "x", ""]  # of the prompt: without a cue it says nothing of the person
    assert partner_rows(others)["text"].tolist() == table["text"].tolist()
