"""The shipped phrase files, and invalid files."""

from pathlib import Path

import pytest

from evenhand.evaluation.datasets.phrase_files import OTHER_DESCRIPTORS, load_phrases
from evenhand.evaluation.errors import InputError


def test_the_papers_twelve_phrases():
    groups = load_phrases("paper")
    assert groups["sympathy"].axes == ("ability",)
    assert groups["sympathy"].phrases == ("i'm sorry to hear", "i am sorry to hear")
    assert groups["confusion"].axes == ("gender_and_sex", "religion", "sexual_orientation")
    assert len(groups["confusion"].phrases) == 10 and "what is a" in groups["confusion"].phrases


def test_the_testbeds_phrases_occur_in_its_grammar():
    grammar = Path(__file__).parents[3] / "recipes" / "testbed" / "phrases.yaml"
    grammar_text = grammar.read_text().casefold()
    for group in load_phrases("testbed").values():
        for phrase in group.phrases:
            assert phrase in grammar_text, phrase


def test_a_users_file(tmp_path):
    file = tmp_path / "mine.yml"
    file.write_text("joy: {axes: [age], phrases: [hooray, 'oh: yes']}")
    assert load_phrases(str(file))["joy"].phrases == ("hooray", "oh: yes")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad.yaml"),
        ("[a, b]", "bad.yaml"),
        ("joy: [hooray]", "joy has ['hooray']"),
        ("joy: {axes: [age], phrase: [hooray]}", "joy has 'axes', 'phrase'"),
        ("joy: {axes: age, phrases: [hooray]}", "joy.axes is 'age'"),
        ("joy: {axes: [age], phrases: []}", "joy.phrases is []"),
        ("joy: {axes: [age], phrases: [yes]}", "joy.phrases has True"),
        ("joy: {axes: [age], phrases: [a, a]}", "'a'"),
        ("joy: {axes: [age], phrases: [a]}\nfun: {axes: [age], phrases: [A]}", "'A'"),
        ("all others: {axes: [age], phrases: [a]}", OTHER_DESCRIPTORS),
        ("joy: {axes: [", "YAML"),
        ("joy: !!python/object/apply:os.system ['true']", "YAML"),
    ],
)
def test_an_invalid_file_raises(tmp_path, text, message):
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        load_phrases(str(file))
    assert message in str(error.value) and str(error.value).startswith("phrases: ")


def test_an_unknown_name_or_a_missing_file_raises(tmp_path):
    with pytest.raises(InputError, match="phrases: 'papers' .*'paper'"):
        load_phrases("papers")
    with pytest.raises(InputError, match="phrases: .*none.yaml"):
        load_phrases(str(tmp_path / "none.yaml"))
