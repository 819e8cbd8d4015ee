"""The shipped small talk: its size, no repeated line, no word for a group."""

import re

from evenhand.evaluation.datasets.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.datasets.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.families.generation_bias.settings import SMALL_TALK_FILE

PEOPLE = {"he", "she", "him", "his", "her", "hers", "mr", "mrs", "ms", "lady", "gentleman"}


def test_small_talk_has_no_repeated_line_and_no_word_for_a_group():
    pairs = load_neutral_dialogue(SMALL_TALK_FILE)
    assert len(pairs) == 233 and pairs["text"].is_unique and pairs["response"].is_unique
    taxonomy = generate_prompts(load_taxonomy()).select_columns(["descriptor", "noun", "plural_noun"]).to_pandas()
    names = PEOPLE | {name.lower() for column in taxonomy for name in taxonomy[column].unique()}
    dialogue = " ".join([*pairs["text"], *pairs["response"]]).lower()
    assert not set(re.findall(rf"\b(?:{'|'.join(map(re.escape, names))})\b", dialogue))
