import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.labelling.labelled_responses import check_labelled, exchange_responses, rewrite_mentions


def labelled(**columns):
    return pd.DataFrame(
        {
            "prompt_id": ["a", "b", "c"],
            "text": ["hi", "I am tall", "I am short"],
            "persona": ["", "I ski.", ""],
            "response": ["hello", "wow", "and ?"],
            "label": ["no_bias", "bias", "no_bias"],
            **columns,
        },
        index=[7, 3, 5],  # a table joined from others has any index
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (labelled().iloc[:0], "^labelled responses: .* empty"),
        (labelled().drop(columns="response"), "no column 'response'"),
        (labelled(response=["hello", " ", "and ?"]), "response: 1 missing or blank, first in 'b'"),
        (labelled(response=["hello", "wow", None]), "response: 1 missing or blank, first in 'c'"),
        (labelled(text=[float("nan"), "I am tall", ""]), "text: 2 missing or blank, first in 'a'"),
        (labelled(persona=["", None, ""]), "persona: missing in 'b'"),
        (labelled(label=["no_bias", "biased", "bias"]), "label: 'biased' is unknown"),
        (labelled(label=["bias"] * 3), "label: all 3 .*'bias'"),
    ],
)
def test_rows_that_cannot_be_used_are_one_error(table, message):
    with pytest.raises(InputError, match=message):
        check_labelled(table)


def test_a_column_that_one_method_needs_is_named():
    with pytest.raises(InputError, match="no column 'template'"):
        check_labelled(labelled(), "template")


def test_mentions_of_the_donors_descriptor_are_rewritten_and_no_others():
    donors = pd.DataFrame(
        {
            "response": ["Being Deaf must be hard!", "I know a deafening noise.", "Two non-binary people."],
            "descriptor": ["deaf", "deaf", "nonbinary"],
        }
    )
    assert rewrite_mentions(donors, ["tall", "tall", "rich"]) == [
        "Being tall must be hard!",
        "I know a deafening noise.",
        "Two rich people.",
    ]


def test_a_replacement_is_taken_literally():
    donors = pd.DataFrame({"response": ["so deaf"], "descriptor": ["deaf"]})
    assert rewrite_mentions(donors, [r"\1 tall"]) == [r"so \1 tall"]


def test_a_response_is_exchanged_for_one_to_the_same_template_and_another_descriptor():
    table = pd.DataFrame(
        {
            "template": ["x", "x", "y", "y", "y", "z", "z"],
            "descriptor": ["deaf", "tall", "deaf", "tall", "rich", "deaf", "deaf"],
            "response": ["deaf 1", "tall 2", "deaf 3", "tall 4", "rich 5", "deaf 6", "deaf 7"],
        },
        index=[5, 5, 3, 2, 1, 0, 9],
    ).assign(prompt_id="p", text="hi", persona="", label=["bias"] * 5 + ["no_bias"] * 2)
    found = [exchange_responses(table, seed) for seed in range(40)]
    assert all(kept.equals(table.iloc[:5]) for kept, _ in found)  # z has one descriptor alone
    given = [set(answers) for answers in zip(*(answers for _, answers in found), strict=True)]
    expected = [{"deaf 2"}, {"tall 1"}, {"deaf 4", "deaf 5"}, {"tall 3", "tall 5"}, {"rich 3", "rich 4"}]
    assert given == expected
    assert all(kept.equals(table.iloc[:5]) for kept, _ in [exchange_responses(table, 0, biased_only=True)])


def test_what_is_exchanged_is_of_the_styles_that_were_there():
    n = 4000
    table = pd.DataFrame({"template": ["x", "y"] * (n // 2), "descriptor": list("abcdeabcde" * (n // 10))})
    table["response"] = [f"{template}{place % 7}" for place, template in enumerate(table["template"])]
    table = table.assign(prompt_id="p", text="hi", persona="", label=["bias", "no_bias"] * (n // 2))
    kept, answers = exchange_responses(table, 0)
    shares = pd.Series(answers).value_counts(normalize=True) - kept["response"].value_counts(normalize=True)
    assert shares.abs().max() < 4 * np.sqrt(1 / 14 / n)  # 4 standard errors of a share of 1/14
