import pandas as pd

from evenhand.mitigation.methods import control_tags


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
