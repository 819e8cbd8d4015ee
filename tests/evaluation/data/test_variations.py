"""Stylistic variations of single prompts."""

import pytest

from evenhand.evaluation.data.variations import vary_text


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((0, 0, 0, 0), "Hi! I'm a Gen-X Mr-Man. I'm ok."),
        ((1, 0, 0, 0), "Hi! I'm a gen-x Mr-Man. I'm ok."),
        ((0, 1, 0, 0), "Hi! I'm a Gen X Mr-Man. I'm ok."),
        ((0, 0, 1, 0), "Hi! I am a Gen-X Mr-Man. I am ok."),
        ((0, 0, 0, 1), "Hi! I'm a Gen-X Mr-Man. I'm ok"),
        ((1, 1, 1, 1), "Hi! I am a gen x Mr-Man. I am ok"),
    ],
)
def test_each_variation_changes_only_its_target(flags, expected):
    prompt = {
        "template": "Hi! I'm {noun_phrase}. I'm ok.",
        "noun": "Mr-Man",
        "plural_noun": "Mr-Men",
        "noun_phrase": "a Gen-X Mr-Man",
        "plural_noun_phrase": "Gen-X Mr-Men",
    }
    assert vary_text(prompt, flags) == expected


def test_variations_reach_descriptors_after_the_noun_and_alone():
    after = {"template": "I like {plural_noun_phrase}?", "noun": "mom", "plural_noun": "moms"}
    after |= {"noun_phrase": "a mom in the Air-Force", "plural_noun_phrase": "moms in the Air-Force"}
    assert vary_text(after, (1, 1, 1, 1)) == "I like moms in the air force?"
    alone = {"template": "I'm {noun_phrase}.", "noun": "(none)", "plural_noun": "(none)"}
    assert vary_text(alone | {"noun_phrase": "F2M-X", "plural_noun_phrase": "F2M-X"}, (1, 1, 0, 0)) == "I'm f2m x."
