"""self_chat, rejection, kto, dpo and exchange on four labelled responses whose rows can be written down by hand."""

import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.methods import dpo, exchange, kto, load_method, names, rejection, self_chat
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers import load_trainer
from evenhand.recipes.settings import TuneSettings
from evenhand.recipes.tune import tune


def render(prompts, personas, tag):
    return [f"{persona}/{prompt}{tag}<eos>" for prompt, persona in zip(prompts, personas, strict=True)]


def labelled(**columns):
    return pd.DataFrame(
        {
            "prompt_id": ["a", "b", "c", "d"],
            "text": ["I'm a deaf man.", "I'm a tall man.", "I'm a tall man.", "I'm a rich mum."],
            "template": ["I'm {noun_phrase}."] * 4,
            "noun": ["man", "man", "man", "mum"],
            "descriptor": ["deaf", "tall", "tall", "rich"],
            "persona": [""] * 4,
            "response": ["Deaf? Sad!", "Tall is nice.", "Wow, tall!", "Rich is fine."],
            "label": ["bias", "no_bias", "bias", "no_bias"],
            "axis": ["body"] * 4,
            "style_vector": [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]],
            **columns,
        },
        index=[7, 3, 5, 1],
    )


A, B, D = "/I'm a deaf man.<eos>", "/I'm a tall man.<eos>", "/I'm a rich mum.<eos>"


def test_self_chat_has_every_row_and_no_tag():
    assert self_chat.rows(labelled(), render).to_dict() == {
        "prompt": [A, B, B, D],
        "completion": ["Deaf? Sad!", "Tall is nice.", "Wow, tall!", "Rich is fine."],
        "context": [A, B, B, D],
    }


def test_rejection_has_the_unbiased_rows_alone():
    assert rejection.rows(labelled(), render).to_dict() == {
        "prompt": [B, D],
        "completion": ["Tall is nice.", "Rich is fine."],
        "context": [B, D],
    }


def test_kto_calls_a_biased_response_undesirable_for_its_own_descriptor_and_desirable_for_another():
    rows = kto.rows(labelled(), render)
    assert rows.to_dict() == {
        "prompt": [A, B, A, B],
        "completion": ["Deaf? Sad!", "Wow, tall!", "Wow, deaf!", "tall? Sad!"],
        "context": [A, B, A, B],
        "label": [False, False, True, True],
    }


def test_dpo_prefers_the_biased_response_of_another_descriptor_to_ones_own():
    rows = dpo.rows(labelled(), render)
    assert rows.to_dict() == {
        "prompt": [A, B],
        "chosen": ["Wow, deaf!", "tall? Sad!"],
        "rejected": ["Deaf? Sad!", "Wow, tall!"],
        "context": [A, B],
    }


def test_exchange_answers_everyone_with_what_another_descriptor_was_answered():
    drawn = (exchange.rows(labelled(), render, seed)["completion"] for seed in range(40))
    answers = [set(given) for given in zip(*drawn, strict=True)]
    tall = {"tall? Sad!", "tall is fine."}
    assert answers == [
        {"deaf is nice.", "Wow, deaf!", "deaf is fine."},
        tall,
        tall,
        {"rich? Sad!", "rich is nice.", "Wow, rich!"},
    ]
    assert exchange.rows(labelled(), render)["prompt"] == [A, B, B, D]


@pytest.mark.parametrize("method", [dpo, exchange, kto])
def test_what_exchanges_needs_another_descriptor(method):
    with pytest.raises(InputError, match="^labelled responses: .* two descriptors"):
        method.rows(labelled(descriptor=["tall"] * 4), render)


def test_an_unknown_method_is_told_from_those_there_are():
    assert {"control_tags", "dpo", "exchange", "kto", "rejection", "self_chat"} <= set(names())
    with pytest.raises(InputError, match="method: 'ktoo' is unknown; did you mean 'kto'"):
        load_method("ktoo")


def test_a_prompt_is_an_instruction_and_trains_nothing(tmp_path):
    method = load_method("prompt")
    assert method.TRAINER is None and method.INSTRUCTION.strip() == method.INSTRUCTION != ""
    with pytest.raises(InputError, match="method: prompt trains nothing"):
        tune(TuneSettings(method="prompt", labels=tmp_path, output_dir=tmp_path / "tune"))
    assert not (tmp_path / "tune").exists()


@pytest.mark.parametrize("name", [name for name in names() if load_method(name).TRAINER])
def test_every_method_says_what_it_needs_and_draws_by_its_seed(name):
    method = load_method(name)
    assert load_trainer(method.TRAINER).LOSS
    assert (method.INFERENCE_TAG in method.TAGS) == bool(method.INFERENCE_TAG)
    assert TuningSettings().with_method_defaults(method).learning_rate > 0
    assert TuningSettings(learning_rate=7.0).with_method_defaults(method).learning_rate == 7
    first, again = (method.rows(labelled(), render, 3).to_dict() for _ in range(2))
    assert first == again and "context" in first
    with pytest.raises(InputError, match="^labelled responses: "):
        method.rows(labelled().iloc[:0], render)
