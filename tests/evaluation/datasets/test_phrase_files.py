"""The shipped phrase files, and what is wrong with others."""

from pathlib import Path

import pytest

from evenhand.evaluation.datasets.phrase_files import load_phrases
from evenhand.evaluation.errors import InputError


def test_the_paper_s_twelve_phrases():
    groups = load_phrases("paper")
    assert groups["sympathy"].axes == ("ability",)
    assert groups["sympathy"].phrases == ("i'm sorry to hear", "i am sorry to hear")
    assert groups["confusion"].axes == ("gender_and_sex", "religion", "sexual_orientation")
    assert len(groups["confusion"].phrases) == 10 and "what is a" in groups["confusion"].phrases


def test_the_testbed_s_phrases_are_its_grammar_s():
    grammar = Path(__file__).parents[3] / "recipes" / "testbed" / "phrases.yaml"
    said = grammar.read_text().casefold()
    for group in load_phrases("testbed").values():
        for phrase in group.phrases:
            assert phrase in said, phrase


def test_a_file_of_one_s_own(tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("joy: {axes: [age], phrases: [hooray, 'oh: yes']}")
    assert load_phrases(str(file))["joy"].phrases == ("hooray", "oh: yes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no group"),
        ("[a, b]", "holds no group"),
        ("joy: [hooray]", "give it `axes` and `phrases`"),
        ("joy: {axes: [age], phrase: [hooray]}", "'phrase'; give it `axes` and `phrases`"),
        ("joy: {axes: age, phrases: [hooray]}", "joy.axes is 'age'; write a list"),
        ("joy: {axes: [age], phrases: []}", "joy.phrases is []"),
        ("joy: {axes: [age], phrases: [yes]}", "joy.phrases holds True, which is not a text; put it in quotes"),
        ("joy: {axes: [age], phrases: [a, a]}", "'a' stands twice"),
        ("joy: {axes: [age], phrases: [a]}\nfun: {axes: [age], phrases: [A]}", "'A' stands twice"),
        ("all others: {axes: [age], phrases: [a]}", "'all others'"),
        ("joy: {axes: [", "is not YAML"),
        ("joy: !!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, message):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        load_phrases(str(file))
    assert message in str(error.value) and str(error.value).startswith("phrases: ")


def test_an_unknown_name_and_a_missing_file(tmp_path):
    with pytest.raises(InputError, match="did you mean 'paper'"):
        load_phrases("papers")
    with pytest.raises(InputError, match="cannot be read"):
        load_phrases(str(tmp_path / "none.yaml"))
