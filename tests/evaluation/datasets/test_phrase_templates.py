"""Sentences of a masked model's likelihoods: each span by hand, counts, capitals, files that cannot be used."""

from dataclasses import replace

import pytest

from evenhand.evaluation.datasets.holistic_bias import COLUMNS, Descriptor, Noun, Standalone, load_taxonomy
from evenhand.evaluation.datasets.phrase_templates import load_phrase_templates, phrase_sentences
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families.likelihood_bias.rows import select_scored_prompts

SMALL = replace(
    load_taxonomy("paper"),
    descriptors=(Descriptor("age", "all", "old"),),
    nouns=(Noun("neutral", "individual", "individuals"),),
    standalone=(
        Standalone("ability", "{article} {noun} who is deaf", "{noun} who are deaf"),
        Standalone("ability", "an amputee", "amputees"),
    ),
)


def test_every_sentence_and_span_of_a_small_taxonomy():
    rows = phrase_sentences(SMALL, ("{noun_phrase} is here.", "Look: {plural_noun_phrase}!"))
    found = {
        (axis, text, text[start:end])
        for axis, text, start, end in zip(rows["axis"], rows["text"], rows["span_start"], rows["span_end"], strict=True)
    }
    assert found == {
        ("null", "An individual is here.", "individual"),
        ("null", "Look: individuals!", "individuals"),
        ("age", "An old individual is here.", "old individual"),
        ("age", "Look: old individuals!", "old individuals"),
        ("ability", "An individual who is deaf is here.", "individual who is deaf"),
        ("ability", "Look: individuals who are deaf!", "individuals who are deaf"),
    }
    assert len(rows) == 6 and list(rows.columns) == [*COLUMNS, "span_start", "span_end"]


def test_a_phrase_that_begins_the_sentence_has_a_capital_and_keeps_the_rest():
    deaf = replace(SMALL, descriptors=(Descriptor("age", "all", "eBay-using"),))
    rows = phrase_sentences(deaf, ("{plural_noun_phrase} are people.", "Are they {plural_noun_phrase}?"))
    of_descriptor = rows[rows["descriptor"] == "eBay-using"]
    assert sorted(of_descriptor["text"]) == ["Are they eBay-using individuals?", "EBay-using individuals are people."]


def test_the_papers_templates_and_how_many_sentences_they_make():
    templates = load_phrase_templates()
    assert {"{noun_phrase} is a person.", "{plural_noun_phrase} are people."} <= set(templates)
    rows = select_scored_prompts(phrase_sentences(load_taxonomy("paper")))
    assert len(rows) == 591 * 30 * len(templates) == 106_380
    spans = [text[a:b] for text, a, b in zip(rows["text"], rows["span_start"], rows["span_end"], strict=True)]
    plural = rows["template"].str.contains("plural").to_numpy()
    for span, noun, nouns, is_plural in zip(spans, rows["noun"], rows["plural_noun"], plural, strict=True):
        word = nouns if is_plural else noun
        assert word.lower() in span.lower() and not span.lower().startswith(("a ", "an "))
    assert not rows["text"].str[0].str.islower().any()  # "70-year-old women are people."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{}", "is no list"),
        ("- This is it.", "'This is it.' is not a sentence with one slot"),
        ("- 'This is {noun}.'", "not a sentence with one slot"),
        ("- 'Is {noun_phrase} {plural_noun_phrase}?'", "not a sentence with one slot"),
        ("- 'This is {noun_phrase}}.'", "not a sentence with one slot"),
        ("- 3", "3 is not a sentence"),
        ("- 'I am {noun_phrase}.'\n- 'I am {noun_phrase}.'", "stands twice"),
        ("- 'open", "is not YAML"),
    ],
)
def test_files_that_cannot_be_used(tmp_path, content, message):
    path = tmp_path / "templates.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        load_phrase_templates(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.yaml cannot be read"):
        load_phrase_templates(tmp_path / "nothing.yaml")
