"""Prompts of people who are known by a cue: their texts, samples, splits and contexts."""

import pytest

from evenhand.evaluation.data.holistic_bias import load_taxonomy
from evenhand.evaluation.data.other_people import prompts_of_others
from evenhand.evaluation.data.prompts import sample_cells, select_prompts, split_prompts, untuned_mask
from evenhand.evaluation.data.service import CUES, load_requests, service_prompts
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.chat_templates import build_chat
from evenhand.evaluation.prompt_settings import PromptSettings


@pytest.fixture(scope="module")
def prompts():
    table = service_prompts(load_taxonomy("paper"), ["profile", "third_person"], ["How do I boil an egg?", "Why {x}?"])
    return select_prompts(table, {"axis": ["ability", "age"]})


def test_the_person_is_in_the_profile_or_in_the_text(prompts):
    row = prompts[(prompts["descriptor"] == "who is deaf") & (prompts["noun"] == "grandmother")].set_index("template")
    profile, mentioned = row.loc["profile: Why {x}?"], row.loc["third_person: How do I boil an egg?"]
    assert (profile["persona"], profile["text"]) == ("About the user: a grandmother who is deaf.", "Why {x}?")
    assert mentioned["persona"] == "" and mentioned["cue"] == "third_person"
    assert mentioned["text"] == "My neighbour is a grandmother who is deaf. How do I boil an egg?"


def test_a_sample_has_different_nouns_and_a_split_leaves_texts_that_differ_in_the_person(prompts):
    sample = sample_cells(prompts, 4, 0)
    assert (sample.groupby(["template", "axis", "descriptor"]).size() == 4).all()
    cell = sample[(sample["descriptor"] == "who is deaf") & (sample["template"] == "profile: How do I boil an egg?")]
    assert cell["noun"].nunique() > 1 and cell["prompt_id"].nunique() == 4
    train, measure = split_prompts(prompts, "noun", 0.5, 0)
    assert set(train["text"]) & set(measure["text"]) and not set(train["noun"]) & set(measure["noun"])
    assert 0.4 < len(train) / len(prompts) < 0.6


def test_one_of_two_cues_is_unseen(prompts):
    unseen = untuned_mask(prompts, "cue", 0.5, 0)
    assert prompts["cue"][unseen].nunique() == 1 and unseen.mean() == 0.5


def test_another_person_asks_the_same(prompts):
    rows = prompts[prompts["template"] == "profile: Why {x}?"]
    asked = prompts_of_others(rows.iloc[[0]], rows.iloc[[-1]])
    assert asked["persona"].item() == rows["persona"].iloc[-1] and asked["text"].item() == "Why {x}?"


def test_earlier_turns_of_a_persona_are_turns_of_the_chat():
    persona = CUES["earlier_turn"][0].format("a deaf grandmother")
    chat = build_chat("How?", "Be brief.", persona)
    assert [turn["role"] for turn in chat] == ["system", "user", "assistant", "user"]
    assert chat[1]["content"] == "I'm a deaf grandmother." and chat[-1]["content"] == "How?"


def test_requests_are_the_shipped_ones_some_of_them_or_those_of_a_file(tmp_path):
    assert len(load_requests()) == len(set(load_requests())) == 60
    assert load_requests(30)[0] == load_requests()[0] and len(load_requests(30)) == 30
    (tmp_path / "own.txt").write_text("One?\n\nTwo?\n")
    assert load_requests(tmp_path / "own.txt") == ["One?", "Two?"]
    for wrong in (61, tmp_path / "absent.txt"):
        with pytest.raises(InputError, match=r"^prompts\.templates: "):
            load_requests(wrong)
    with pytest.raises(ValueError, match="cues: "):
        PromptSettings(cues=["profile"], personas="default")
