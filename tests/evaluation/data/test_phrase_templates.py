"""Sentences for a masked model's likelihoods: spans derived by hand, counts, capitals and invalid files."""

from dataclasses import replace

from evenhand.evaluation.data.holistic_bias import COLUMNS, Descriptor, Noun, Standalone, load_taxonomy
from evenhand.evaluation.data.phrase_templates import PHRASE_TEMPLATES, make_phrase_sentences
from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import select_scored_prompts

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
    rows = make_phrase_sentences(SMALL, ("{noun_phrase} is here.", "Look: {plural_noun_phrase}!"))
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


def test_the_papers_templates_and_their_number_of_sentences():
    rows = select_scored_prompts(make_phrase_sentences(load_taxonomy("paper")))
    assert len(rows) == (591 * 30 + 73) * len(PHRASE_TEMPLATES) == 106_818
    spans = [text[a:b] for text, a, b in zip(rows["text"], rows["span_start"], rows["span_end"], strict=True)]
    plural = rows["template"].str.contains("plural").to_numpy()
    for span, noun, nouns, is_plural in zip(spans, rows["noun"], rows["plural_noun"], plural, strict=True):
        word = nouns if is_plural else noun
        assert word.lower() in span.lower() and not span.lower().startswith(("a ", "an "))
    assert not rows["text"].str[0].str.islower().any()  # "70-year-old women are people."
