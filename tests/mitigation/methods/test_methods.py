"""Each method's rows, written down by hand, and what every method has."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation import methods
from evenhand.mitigation.labelling.labelled_responses import balanced_responses
from evenhand.mitigation.methods import load_method, names, summaries
from evenhand.mitigation.training import trainers
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
            "weight": [0.5, 1.5, 0.0, 2.0],
            **columns,
        },
        index=[7, 3, 5, 1],
    )


A, B, D = "/I'm a deaf man.<eos>", "/I'm a tall man.<eos>", "/I'm a rich mum.<eos>"


def test_rows_by_hand():
    assert load_method("self_chat").rows(labelled(), render).to_dict() == {
        "prompt": [A, B, B, D],
        "completion": ["Deaf? Sad!", "Tall is nice.", "Wow, tall!", "Rich is fine."],
        "context": [A, B, B, D],
    }
    assert load_method("rejection").rows(labelled(), render).to_dict() == {
        "prompt": [B, D],
        "completion": ["Tall is nice.", "Rich is fine."],
        "context": [B, D],
    }
    rows = load_method("kto").rows(labelled(), render)
    assert rows.to_dict() == {
        "prompt": [A, B, A, B],
        "completion": ["Deaf? Sad!", "Wow, tall!", "Wow, deaf!", "tall? Sad!"],
        "context": [A, B, A, B],
        "label": [False, False, True, True],
    }
    rows = load_method("dpo").rows(labelled(), render)
    assert rows.to_dict() == {
        "prompt": [A, B],
        "chosen": ["Wow, deaf!", "tall? Sad!"],
        "rejected": ["Deaf? Sad!", "Wow, tall!"],
        "context": [A, B],
    }


def test_exchange_answers_everyone_with_what_another_descriptor_was_answered():
    drawn = (load_method("exchange").rows(labelled(), render, seed)["completion"] for seed in range(40))
    answers = [set(given) for given in zip(*drawn, strict=True)]
    to_men = [{"deaf is nice.", "Wow, deaf!"}, {"tall? Sad!"}, {"tall? Sad!"}]
    to_the_only_mum = {"rich? Sad!", "rich is nice.", "Wow, rich!"}
    assert answers == [*to_men, to_the_only_mum]
    without_noun = load_method("exchange").rows(labelled(noun="x"), render, 0)["completion"]
    assert without_noun == load_method("exchange").rows(labelled().drop(columns="noun"), render, 0)["completion"]
    assert load_method("exchange").rows(labelled(), render)["prompt"] == [A, B, B, D]


def test_balanced_responses_are_drawn_by_weight():
    drawn = [balanced_responses(labelled(), seed) for seed in range(200)]
    responses = labelled()["response"].tolist()
    own = dict(zip(responses, labelled()["text"], strict=True))
    assert all(own[row.response] == row.text for rows in drawn for row in rows.itertuples())
    counts = np.array([[rows["response"].tolist().count(response) for response in responses] for rows in drawn])
    assert (counts.sum(axis=1) == 4).all()
    assert (counts.min(axis=0).tolist(), counts.max(axis=0).tolist()) == ([0, 1, 0, 2], [1, 2, 0, 2])
    assert counts.mean(axis=0) == pytest.approx([0.5, 1.5, 0, 2], abs=0.1)


def test_half_exchange_has_an_exchanged_and_a_balanced_response_to_each_prompt():
    rows = load_method("half_exchange").rows(labelled(), render, 3).to_dict()
    exchanged = load_method("exchange").rows(labelled(), render, 3).to_dict()
    balanced = load_method("self_chat").rows(balanced_responses(labelled(), 3), render).to_dict()
    assert rows == {name: exchanged[name] + balanced[name] for name in exchanged}


def test_distill_has_prompts_of_other_descriptors_with_the_same_template_and_noun():
    rows = load_method("distill").rows(labelled(), render).to_dict()
    others = rows.pop("others")
    assert rows == load_method("self_chat").rows(labelled(), render).to_dict()
    # Two descriptors have equal shares of the eight prompts.
    assert [sorted([own, *them]) for own, them in zip(rows["prompt"][:3], others[:3], strict=True)] == [
        [A] * 4 + [B] * 4
    ] * 3
    assert {A, B} <= set(others[3])  # nobody else has the noun "mum"
    personas = ["p", "q", "r", "s"]
    rows = load_method("distill").rows(labelled(persona=personas), render).to_dict()
    for persona, others in zip(personas, rows["others"], strict=True):  # the persona of the row, for everybody
        assert {other.partition("/")[0] for other in others} == {persona}
    with pytest.raises(InputError, match="^labelled responses: no template has two descriptors"):
        load_method("distill").rows(labelled(template=list("abcd")), render)


@pytest.mark.parametrize("weight", [[1, -1, 1, 1], [1, float("nan"), 1, 1], [0, 0, 0, 0]])
def test_half_exchange_needs_weights(weight):
    with pytest.raises(InputError, match="^weight: "):
        load_method("half_exchange").rows(labelled(weight=weight), render)
    with pytest.raises(InputError, match="^labelled responses: no column 'weight'"):
        load_method("half_exchange").rows(labelled().drop(columns="weight"), render)


@pytest.mark.parametrize(("weight", "share"), [(0.5, 0.5), (1.0, 0.2), (4.5, 0.5)])
def test_balance_prefers_the_heavier_of_two_own_responses_in_proportion_to_the_difference(weight, share):
    """Of the pairs of "Tall is nice." (weight 1.5) and "Wow, tall!" (weight w), |1.5 − w| / (1.5 + w) are kept."""
    cells = [labelled(weight=[0.5, 1.5, weight, 2.0], template=f"t{number}") for number in range(1000)]
    rows = load_method("balance_dpo").rows(pd.concat(cells), render, 0).to_dict()
    chosen, rejected = ("Tall is nice.", "Wow, tall!")[:: 1 if weight < 1.5 else -1]
    assert {*zip(*rows.values(), strict=True)} == {(B, chosen, rejected, B)}
    assert len(rows["prompt"]) / 1000 == pytest.approx(share, abs=0.05)


def test_balance_by_preferences_needs_two_responses_of_different_weights():
    with pytest.raises(InputError, match="^labelled responses: no descriptor and template has two responses"):
        load_method("balance_dpo").rows(labelled(weight=[1.0] * 4), render)


@pytest.mark.parametrize("method", ["dpo", "exchange", "kto"])
def test_what_exchanges_needs_another_descriptor(method):
    with pytest.raises(InputError, match="^labelled responses: .* two descriptors"):
        load_method(method).rows(labelled(descriptor=["tall"] * 4), render)


def test_unknown_methods_and_prompts(tmp_path):
    assert {"control_tags", "dpo", "exchange", "kto", "rejection", "self_chat"} <= set(names())
    with pytest.raises(InputError, match="method: 'ktoo' is unknown; did you mean 'kto'"):
        load_method("ktoo")
    method = load_method("prompt")
    assert method.trainer is None and method.instruction.strip() == method.instruction != ""
    with pytest.raises(InputError, match="method: prompt trains nothing"):
        tune(TuneSettings(method="prompt", labels=tmp_path, output_dir=tmp_path / "tune"))
    assert not (tmp_path / "tune").exists()
    assert list(summaries()) == names() and max(map(len, summaries().values())) <= 68  # one line of `--help`


@pytest.mark.parametrize("name", [name for name in names() if load_method(name).trainer])
def test_every_method_says_what_it_needs_and_draws_by_its_seed(name):
    method = load_method(name)
    assert load_trainer(method.trainer).loss
    assert (method.inference_tag in method.tags) == bool(method.inference_tag)
    assert TuningSettings().with_method_defaults(method).learning_rate > 0
    assert TuningSettings(learning_rate=7.0).with_method_defaults(method).learning_rate == 7
    first, again = (method.rows(labelled(), render, 3).to_dict() for _ in range(2))
    assert first == again and "context" in first
    with pytest.raises(InputError, match="^labelled responses: "):
        method.rows(labelled().iloc[:0], render)


def test_rows_end_in_their_tags():
    rows = load_method("control_tags").rows(labelled(persona=["", "I ski.", "", ""]), render)
    tall = "I ski./I'm a tall man."
    assert rows.to_dict() == {
        "prompt": [f"{A[:-5]} bias<eos>", f"{tall} no_bias<eos>", f"{B[:-5]} bias<eos>", f"{D[:-5]} no_bias<eos>"],
        "completion": ["Deaf? Sad!", "Tall is nice.", "Wow, tall!", "Rich is fine."],
        "context": [A, f"{tall}<eos>", B, D],
    }
    assert load_method("control_tags").inference_tag == " no_bias"


@pytest.mark.parametrize("name", methods.names())
def test_methods_fulfil_their_contract(name):
    method = methods.load_method(name)
    assert method.trainer in (None, *trainers.names())


def test_an_unknown_trainer_is_named_with_the_one_likely_meant():
    with pytest.raises(InputError, match="trainer: 'stf' is unknown; did you mean 'sft'"):
        trainers.load_trainer("stf")
