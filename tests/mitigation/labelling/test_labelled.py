import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.labelling.labelled import answers_as_if_to, check_labelled, drawn_from_groups


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
        (labelled().iloc[:0], "there are none"),
        (labelled().drop(columns="response"), "no column 'response'"),
        (labelled(response=["hello", " ", "and ?"]), "response: 1 missing or blank, first in 'b'"),
        (labelled(response=["hello", "wow", None]), "response: 1 missing or blank, first in 'c'"),
        (labelled(text=[float("nan"), "I am tall", ""]), "text: 2 missing or blank, first in 'a'"),
        (labelled(persona=["", None, ""]), "persona: missing in 'b'"),
        (labelled(label=["no_bias", "biased", "bias"]), "label: 'biased' is unknown"),
        (labelled(label=["bias"] * 3), "all 3 are 'bias'"),
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
    assert answers_as_if_to(donors, ["tall", "tall", "rich"]) == [
        "Being tall must be hard!",
        "I know a deafening noise.",
        "Two rich people.",
    ]


def test_a_replacement_is_taken_literally():
    donors = pd.DataFrame({"response": ["so deaf"], "descriptor": ["deaf"]})
    assert answers_as_if_to(donors, [r"\1 tall"]) == [r"so \1 tall"]


def test_partners_are_drawn_from_their_own_group_alone():
    wanted = pd.Series(["x", "y", "z"] * 50, index=range(7, 157))
    offered = pd.Series(["y", "x", "x"], index=[4, 4, 4])
    drawn = drawn_from_groups(wanted, offered, np.random.default_rng(0))
    assert set(drawn[0::3]) == {1, 2} and set(drawn[1::3]) == {0} and set(drawn[2::3]) == {-1}
