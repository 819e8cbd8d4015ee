"""Each method's rows, written down by hand."""

import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.methods import load_method, names, trained_method
from evenhand.mitigation.methods.control_tags import ControlTags
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainers import TRAINERS
from evenhand.recipes.tune import tune
from evenhand.recipes.tuning_settings import TuneSettings


def render(prompts, personas, tag):
    return [f"{persona}/{prompt}{tag}<eos>" for prompt, persona in zip(prompts, personas, strict=True)]


def rows(name, table, seed=0, **settings):
    return trained_method(name, settings, seed=seed).rows(table, render)


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
            "bias_value": [0.5, 0.1, 0.3, 0.2],
            "axis": ["body"] * 4,
            "style_vector": [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]],
            **columns,
        },
        index=[7, 3, 5, 1],
    )


A, B, D = "/I'm a deaf man.<eos>", "/I'm a tall man.<eos>", "/I'm a rich mum.<eos>"


def test_rows_by_hand():
    assert rows("self_chat", labelled()).to_dict() == {
        "prompt": [A, B, B, D],
        "completion": ["Deaf? Sad!", "Tall is nice.", "Wow, tall!", "Rich is fine."],
        "context": [A, B, B, D],
    }
    assert rows("rejection", labelled()).to_dict() == {
        "prompt": [B, D],
        "completion": ["Tall is nice.", "Rich is fine."],
        "context": [B, D],
    }


def test_exchange_answers_everyone_with_what_another_descriptor_was_answered():
    drawn = (rows("exchange", labelled(), seed)["completion"] for seed in range(40))
    answers = [set(given) for given in zip(*drawn, strict=True)]
    to_men = [{"deaf is nice.", "Wow, deaf!"}, {"tall? Sad!"}, {"tall? Sad!"}]
    to_the_only_mum = {"rich? Sad!", "rich is nice.", "Wow, rich!"}
    assert answers == [*to_men, to_the_only_mum]
    without_noun = rows("exchange", labelled(noun="x"), 0)["completion"]
    assert without_noun == rows("exchange", labelled().drop(columns="noun"), 0)["completion"]
    assert rows("exchange", labelled())["prompt"] == [A, B, B, D]


def test_distill_has_prompts_of_other_descriptors_with_the_same_template_and_noun():
    found = rows("distill", labelled()).to_dict()
    others = found.pop("others")
    assert found.pop("trained") == [[own, them[0]] for own, them in zip(found["prompt"], others, strict=True)]
    assert found == rows("self_chat", labelled()).to_dict()
    # Two descriptors have equal shares of the eight prompts.
    assert [sorted([own, *them]) for own, them in zip(found["prompt"][:3], others[:3], strict=True)] == [
        [A] * 4 + [B] * 4
    ] * 3
    assert {A, B} <= set(others[3])  # nobody else has the noun "mum"
    personas = ["p", "q", "r", "s"]
    found = rows("distill", labelled(persona=personas)).to_dict()
    for persona, others in zip(personas, found["others"], strict=True):  # the persona of the row, for everybody
        assert {other.partition("/")[0] for other in others} == {persona}
    with pytest.raises(InputError, match="^labelled responses: .*template"):
        rows("distill", labelled(template=list("abcd")))


def test_unknown_methods_and_prompts(tmp_path):
    with pytest.raises(InputError, match="^method: 'distil' .*'distill'"):
        load_method("distil")
    assert load_method("prompt").training_part is None
    with pytest.raises(InputError, match="^method: prompt "):
        tune(TuneSettings(method="prompt", labels=tmp_path, output_dir=tmp_path / "tune"))
    assert not (tmp_path / "tune").exists()


@pytest.mark.parametrize("name", [name for name in names() if load_method(name).training_part])
def test_every_method_says_what_it_needs_and_draws_by_its_seed(name):
    method = trained_method(name)
    assert TRAINERS[method.trainer].loss_name
    assert (method.control_tag in method.tags or method.is_activated) == bool(method.control_tag)
    assert TuningSettings().with_method_defaults(method).learning_rate > 0
    first, again = (rows(name, labelled(), 3).to_dict() for _ in range(2))
    assert first == again and "context" in first


def test_rows_end_in_their_tags():
    by_label = ControlTags.Settings(targets="labels")
    found = rows("control_tags", labelled(persona=["", "I ski.", "", ""]), control_tags=by_label)
    tall = "I ski./I'm a tall man."
    assert found.to_dict() == {
        "prompt": [f"{A[:-5]} bias<eos>", f"{tall} no_bias<eos>", f"{B[:-5]} bias<eos>", f"{D[:-5]} no_bias<eos>"],
        "completion": ["Deaf? Sad!", "Tall is nice.", "Wow, tall!", "Rich is fine."],
        "context": [A, f"{tall}<eos>", B, D],
    }
    assert load_method("control_tags").control_tag == " no_bias"


def test_with_predictions_the_tag_ends_the_trained_contexts_and_the_base_reads_none():
    found = rows("control_tags", labelled()).to_dict()
    of_distill = rows("distill", labelled()).to_dict()
    for column in ("context", "others", "completion"):
        assert found[column] == of_distill[column]
    tagged = [[context.replace("<eos>", " no_bias<eos>") for context in pair] for pair in of_distill["trained"]]
    assert found["trained"] == tagged
    assert found["prompt"] == [first for first, _ in tagged]


def test_control_tags_and_distill_spare_own_words_alike():
    for name in ("control_tags", "distill", "opening"):
        settings = type(trained_method(name)).Settings(spare_own_words=True)
        spared = trained_method(name, {name: settings}).rows(labelled(), render)
        assert spared["spares_own_words"] == [True] * 4
        assert "spares_own_words" not in rows(name, labelled()).column_names
