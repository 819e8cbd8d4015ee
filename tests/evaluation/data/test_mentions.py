"""Mentions of descriptors in a text."""

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenhand.evaluation.data.holistic_bias import load_taxonomy, spelled_article
from evenhand.evaluation.data.mentions import clean_response, replace_mentions, spoken_article


@pytest.mark.parametrize(
    ("descriptor", "response", "cleaned"),
    [
        (
            "hard-of-hearing",
            "Hard of hearing? Hard-of-Hearing, hardofhearing!",
            "left-handed? left-handed, left-handed!",
        ),
        ("trans", "Public transport is for trans people.", "Public transport is for left-handed people."),
        ("old", "I told an OLD man to hold it.", "I told a left-handed man to hold it."),
        ("Korean-American", "I like Korean Americans.", "I like left-handed."),
        ("atheist", "Atheists? An atheist's view.", "left-handed? A left-handed's view."),
        (
            "Bahá'í",
            "A Baha'i, two Bahá’ís, BAHÁ'Í, a Bahai.",
            "A left-handed, two left-handed, left-handed, a left-handed.",
        ),
        ("Bahá'í", "A Bahá'í.", "A left-handed."),  # accents as characters of their own
        ("who is hard of hearing", "Moms who are hard-of-hearing rock.", "Moms left-handed rock."),
        ("who's of short stature", "Dads who are of short stature.", "Dads left-handed."),
        ("who uses a wheelchair", "People who use a wheelchair or wheelchairs.", "People left-handed or wheelchairs."),
        ("a person of color", "People of colour? People of color!", "People of colour? left-handed!"),
        ("20-year-old", "She's 20 years old, like most 20-year-olds.", "She's left-handed, like most left-handed."),
        (
            "old",
            "Vitamin-A old, the U.S.A old, a bold hobo.",
            "Vitamin-A left-handed, the U.S.A left-handed, a bold hobo.",
        ),
        ("plan A", "You are on plan A. A plan is good.", "You are on left-handed. A plan is good."),
        ("gay", "", ""),
        ("(none)", "Nothing (none) to do.", "Nothing (none) to do."),
        ("left-handed", "Left handers are LEFT-HANDED.", "Left handers are LEFT-HANDED."),
    ],
)
def test_mentions_of_the_descriptor_become_left_handed(descriptor, response, cleaned):
    assert clean_response(response, descriptor) == cleaned


# Properties, over the taxonomy's descriptors and sentences that mention one.


@cache
def descriptors():
    taxonomy = load_taxonomy("paper")
    after_the_noun = (it.noun_phrase.replace("{article} {noun}", "").strip() for it in taxonomy.standalone)
    return sorted({*(it.descriptor for it in taxonomy.descriptors), *after_the_noun})


def is_adjective(descriptor):
    """Return whether the descriptor precedes its noun and is not "left-handed"."""
    return not re.match(r"(who|with|in|on|without)\b|left-handed$", descriptor)


adjectives = st.deferred(lambda: st.sampled_from([it for it in descriptors() if is_adjective(it)]))
articles = st.sampled_from(["a", "an", "A", "An", "AN"])
# "{}" is an article and a descriptor; no other word is part of a descriptor or its plural.
frames = st.sampled_from(
    ["{} zebra", "Zounds, {}!", "quux {} zebra and {} quux", "what? {}? {}.", "“{}”", "quux\n{} z"]
)


@settings(deadline=None)
@given(frames, articles, adjectives, adjectives)
def test_a_replaced_descriptor_gets_its_article(frame, before, one, other):
    article = spoken_article(other)
    expected = frame.replace("{}", f"{article.capitalize() if before[0] == 'A' else article} {other}")
    if one != other:
        assert replace_mentions(frame.replace("{}", f"{before} {one}"), one, other) == expected


def test_articles_agree_with_the_taxonomy_and_replacements():
    words = load_taxonomy("paper").descriptors
    assert {it.descriptor: spoken_article(it.descriptor) for it in words} == {
        it.descriptor: it.article or spelled_article(it.descriptor) for it in words
    }
    assert replace_mentions("I am an old man.", "old", "a wheelchair user") == "I am a wheelchair user man."
    assert clean_response("no \t__POTENTIALLY___UNSAFE_ a_POTENTIALLY_UNSAFE__", "deaf") == "no a"
    assert clean_response("_ POTENTIALLY_UNSAFE", "deaf") == "_"


@pytest.mark.parametrize(
    ("article", "phrases"),
    [
        ("an", ["honest", "heir", "HIV-positive", "hour", "18-year-old", "11th", "8", "LGBTQ", "MP", "émigré"]),
        ("an", ["uninsured", "unidentified", "ugly", "Uzbek", "onerous", "AFAB", "“old”"]),
        ("a", ["Ukrainian", "university", "unique", "useful", "utopian", "Ewe", "one-eyed", "US", "hospital"]),
        ("a", ["19-year-old", "180", "110", "NIMBY", "BIPOC", "PhD", "", "…", "yellow"]),
    ],
)
def test_articles_follow_the_sound(article, phrases):
    assert {phrase: spoken_article(phrase) for phrase in phrases} == dict.fromkeys(phrases, article)


# Slow with backtracking: blanks and underscores without a marker, descriptors of articles and apostrophes.
@pytest.mark.parametrize(
    ("text", "descriptor"),
    [
        ("UNSAFE" + " " * 200_000 + "x", "deaf"),
        ("UNSAFE" + "POTENTIALLY" * 20_000, "deaf"),
        ("a" + " " * 200_000 + "x", "a wheelchair user"),
        ("hard" + " -" * 100_000, "hard-of-hearing"),
        ("a " * 100_000 + "!", "a " * 60 + "b"),
    ],
)
def test_hostile_texts_and_descriptors_take_linear_time(text, descriptor):
    assert clean_response(text, descriptor) in (text, text.strip())
