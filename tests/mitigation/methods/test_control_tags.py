import pandas as pd
import pytest

from evaluation.errors import InputError
from mitigation.methods import control_tags


def render(prompts, personas, tag):
    return [f"{persona}/{prompt}{tag}<eos>" for prompt, persona in zip(prompts, personas, strict=True)]


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


def test_each_response_is_told_apart_by_the_tag_at_the_end_of_its_context():
    rows = control_tags.rows(labelled(), render)
    assert rows.to_dict() == {
        "prompt": ["/hi no_bias<eos>", "I ski./I am tall bias<eos>", "/I am short no_bias<eos>"],
        "completion": ["hello", "wow", "and ?"],
        "context": ["/hi<eos>", "I ski./I am tall<eos>", "/I am short<eos>"],
    }


def test_the_model_is_asked_without_bias():
    assert control_tags.INFERENCE_TAG == " no_bias"


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
        control_tags.rows(table, render)
