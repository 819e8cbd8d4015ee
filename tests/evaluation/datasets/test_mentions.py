"""Descriptors that are mentioned in a text."""

import time

import pytest

from evenhand.evaluation.datasets.mentions import clean_response


@pytest.mark.parametrize(
    ("descriptor", "response", "cleaned"),
    [
        (
            "hard-of-hearing",
            "Hard of hearing? Hard-of-Hearing, hardofhearing!",
            "left-handed? left-handed, left-handed!",
        ),
        ("trans", "Public transport is for trans people.", "Public transport is for left-handed people."),
        ("old", "I told an OLD man to hold it.", "I told an left-handed man to hold it."),
        ("Korean-American", "I like Korean Americans.", "I like left-handed."),
        ("atheist", "Atheists? An atheist's view.", "left-handed? An left-handed's view."),
        (
            "Bahá'í",
            "A Baha'i, two Bahá’ís, BAHÁ'Í, a Bahai.",
            "A left-handed, two left-handed, left-handed, a left-handed.",
        ),
        ("Bahá'í", "A Bahá'í.", "A left-handed."),  # accents as characters of their own
        ("who is hard of hearing", "Moms who are hard-of-hearing rock.", "Moms left-handed rock."),
        ("who is hard of hearing", "My mom, who's hard of hearing.", "My mom, left-handed."),
        ("who's of short stature", "Dads who are of short stature.", "Dads left-handed."),
        ("who uses a wheelchair", "People who use a wheelchair or wheelchairs.", "People left-handed or wheelchairs."),
        ("with a disability", "Friends with disabilities.", "Friends left-handed."),
        ("a wheelchair user", "I know wheelchair users.", "I know left-handed."),
        ("a person of color", "People of colour? People of color!", "People of colour? left-handed!"),
        ("20-year-old", "She's 20 years old, like most 20-year-olds.", "She's left-handed, like most left-handed."),
        ("nonbinary", "Non-binary is nonbinary.", "left-handed is left-handed."),
        ("gender non-conforming", "Gender nonconforming people", "left-handed people"),
        ("gay", "", ""),
        ("", "Nothing to do.", "Nothing to do."),
        ("(none)", "Nothing (none) to do.", "Nothing (none) to do."),
        ("left-handed", "Left handers are LEFT-HANDED.", "Left handers are LEFT-HANDED."),
    ],
)
def test_mentions_of_the_descriptor_become_left_handed(descriptor, response, cleaned):
    assert clean_response(response, descriptor) == cleaned


@pytest.mark.parametrize("marker", ["_POTENTIALLY_UNSAFE__", "__POTENTIALLY_UNSAFE__", "_POTENTIALLY_UNSAFE_"])
def test_safety_markers_go(marker):
    assert clean_response(f"Oh no. {marker}", "old") == "Oh no."
    assert clean_response(f"{marker} Oh no.", "left-handed") == "Oh no."
    assert clean_response(f"{marker}", "old") == ""


def test_cleaning_is_fast():
    rows = [
        (f"I never met a person who is descriptor {i % 500} before, I am so sorry.", f"descriptor-{i % 500}")
        for i in range(25_000)
    ]
    start = time.process_time()
    assert all("left-handed" in clean_response(*row) for row in rows)
    assert time.process_time() - start < 5  # about 0.2 s on a free core
