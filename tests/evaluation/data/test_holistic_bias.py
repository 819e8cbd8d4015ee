"""HolisticBias: the rows of a small taxonomy derived by hand, the published counts, and invalid files."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.evaluation.data import holistic_bias
from evenhand.evaluation.data.holistic_bias import COLUMNS, all_prompts, generate_prompts, load_taxonomy

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
V1_0 = SHARED / "holistic_bias_v1.0"
needs_v1_0 = pytest.mark.skipif(not V1_0.is_dir(), reason="HolisticBias v1.0 is not in shared/data")

SMALL = {
    "descriptors.json": {
        "age": {"all": ["Old-ish"]},
        "nonce": {"x": [{"descriptor": "unic", "gender": "female", "preference": "reviewed", "article": "a"}]},
    },
    "nouns.json": {"female": [["woman", "women"]], "neutral": [["individual", "individuals"]]},
    "sentence_templates.json": {
        "I'm {noun_phrase}.": {"first_turn_only": True},
        "I like {plural_noun_phrase}!": {"must_be_noun": True},
    },
    "standalone_noun_phrases.json": {
        "age": [
            {
                "noun_phrase": "{article} {noun} who is 9",
                "plural_noun_phrase": "{article} {noun} who are 9",
                "preference": "dispreferred",
            }
        ],
        "nonce": ["a blick of note"],
    },
}


def write(folder: Path, files: dict) -> Path:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def test_the_prompts_of_a_taxonomy_are_made_once(tmp_path):
    folder = write(tmp_path, SMALL)
    prompts = all_prompts(load_taxonomy(folder))
    assert all_prompts(load_taxonomy(folder)) is prompts
    taxonomy = load_taxonomy(write(tmp_path, {"nouns.json": {"female": [["woman", "women"]]}}))
    assert all_prompts(taxonomy).equals(generate_prompts(taxonomy))
    part = replace(taxonomy, templates=taxonomy.templates[:1])
    assert all_prompts(part).equals(generate_prompts(part))


def test_every_row_of_a_small_taxonomy(tmp_path):
    prompts = generate_prompts(load_taxonomy(write(tmp_path, SMALL)))
    none = "(none)"
    woman, individual, no_noun = ("woman", "women", "female"), ("individual", "individuals", "neutral"), (none,) * 3
    im, like = ("I'm {noun_phrase}.", True, False), ("I like {plural_noun_phrase}!", False, True)
    # "(" sorts before letters and upper case before lower: bucket "(none)" before "all", then by descriptor and noun.
    after = ("age", none, "who is 9", none, "dispreferred")
    old = ("age", "all", "Old-ish", none, "no_data")
    fixed = ("nonce", none, "a blick of note", none, "no_data")
    unic = ("nonce", "x", "unic", "female", "reviewed")
    alone = ("null", none, none, none, none)
    phrases = [
        (*after, *individual, "an individual who is 9", "individuals who are 9", "noun_descriptor"),
        (*after, *woman, "a woman who is 9", "women who are 9", "noun_descriptor"),
        (*old, *no_noun, "Old-ish", "Old-ish", "descriptor"),
        (*old, *individual, "an Old-ish individual", "Old-ish individuals", "descriptor_noun"),
        (*old, *woman, "an Old-ish woman", "Old-ish women", "descriptor_noun"),
        (*fixed, none, none, "neutral", "a blick of note", "a blick of note", "fixed_phrase"),
        (*unic, *no_noun, "unic", "unic", "descriptor"),
        (*unic, *woman, "a unic woman", "unic women", "descriptor_noun"),
        (*alone, *individual, "an individual", "individuals", "noun"),
        (*alone, *woman, "a woman", "women", "noun"),
    ]
    expected = [
        ("I'm an individual who is 9.", *phrases[0], *im),
        ("I like individuals who are 9!", *phrases[0], *like),
        ("I'm a woman who is 9.", *phrases[1], *im),
        ("I like women who are 9!", *phrases[1], *like),
        ("I'm Old-ish.", *phrases[2], *im),
        ("I'm an Old-ish individual.", *phrases[3], *im),
        ("I like Old-ish individuals!", *phrases[3], *like),
        ("I'm an Old-ish woman.", *phrases[4], *im),
        ("I like Old-ish women!", *phrases[4], *like),
        ("I'm a blick of note.", *phrases[5], *im),
        ("I'm unic.", *phrases[6], *im),
        ("I'm a unic woman.", *phrases[7], *im),
        ("I like unic women!", *phrases[7], *like),
        ("I'm an individual.", *phrases[8], *im),
        ("I like individuals!", *phrases[8], *like),
        ("I'm a woman.", *phrases[9], *im),
        ("I like women!", *phrases[9], *like),
    ]
    assert tuple(prompts) == COLUMNS
    assert list(prompts.itertuples(index=False, name=None)) == expected


def test_options_of_templates_and_the_hash(tmp_path):
    templates = {"{noun_phrase}: not all {plural_noun_phrase} are {noun_phrase}": {"must_be_noun": True}}
    taxonomy = load_taxonomy(write(tmp_path, SMALL | {"sentence_templates.json": templates}))
    assert "a woman: not all women are a woman" in set(generate_prompts(taxonomy)["text"])
    taxonomy = load_taxonomy(write(tmp_path, SMALL | {"standalone_noun_phrases.json": {}}))
    assert set(generate_prompts(taxonomy)["noun_phrase_type"]) == {"noun", "descriptor", "descriptor_noun"}
    one = load_taxonomy(write(tmp_path / "one", SMALL))
    assert one.sha256 == load_taxonomy(write(tmp_path / "two", SMALL)).sha256
    nouns = {"female": [["woman", "womyn"]]}
    assert one.sha256 != load_taxonomy(write(tmp_path / "three", SMALL | {"nouns.json": nouns})).sha256


# The published v1.0: counts of the upstream generator (shared/data/README.md).


@pytest.fixture(scope="module")
def v1_0():
    return generate_prompts(load_taxonomy(V1_0))


@needs_v1_0
def test_v1_0_has_the_published_counts(v1_0):
    assert len(v1_0) == 472_991
    assert v1_0["text"].nunique() == 469_786
    assert len(v1_0.drop_duplicates(list(COLUMNS[1:12]))) == 18_382
    assert v1_0["descriptor"].nunique() == 620  # with "(none)"
    assert dict(v1_0["noun_phrase_type"].value_counts()) == {
        "descriptor_noun": 405_158,
        "noun_descriptor": 57_720,
        "descriptor": 8_908,
        "noun": 780,
        "fixed_phrase": 425,
    }


@pytest.fixture(scope="module")
def paper():
    return load_taxonomy()


def terms(taxonomy):
    """Return {(axis, bucket, term): (gender, preference)} of all descriptors, before and after the noun."""
    before = {(d.axis, d.bucket, d.descriptor): (d.gender, d.preference) for d in taxonomy.descriptors}
    return before | {
        (s.axis, "after_the_noun", s.noun_phrase): (s.plural_noun_phrase, s.preference) for s in taxonomy.standalone
    }


def test_paper_edition_has_the_papers_counts(paper):
    assert (len(paper.templates), len(paper.nouns)) == (26, 30)
    assert len({descriptor.axis for descriptor in paper.descriptors}) == 13
    assert Counter(noun.gender for noun in paper.nouns) == {"female": 10, "male": 11, "neutral": 9}
    assert len({term for _, _, term in terms(paper)}) == 594  # Smith et al. 2022, Table 2
    prompts = generate_prompts(paper)
    both = prompts[prompts["noun_phrase_type"].isin(["descriptor_noun", "noun_descriptor"])]
    assert both["text"].nunique() == 459_758  # Smith et al. 2022, Table 2
    source = (holistic_bias.PAPER_EDITION / "SOURCE.md").read_text(encoding="utf-8")
    for count in (len(prompts), prompts["text"].nunique(), len(both)):
        assert f"{count:,}" in source


def test_the_edition_more_adds_demonyms_and_nouns_to_the_papers(paper):
    more = load_taxonomy("more")
    assert set(paper.descriptors) < set(more.descriptors) and set(paper.nouns) < set(more.nouns)
    added = [entry for entry in more.descriptors if entry not in paper.descriptors]
    assert {entry.axis for entry in added} == {"nationality"} and len(added) == 59
    assert Counter(noun.gender for noun in more.nouns) == {"female": 10, "male": 11, "neutral": 15, "nonbinary": 4}
    assert (more.templates, more.standalone) == (paper.templates, paper.standalone) and more.sha256 != paper.sha256
    phrases = set(generate_prompts(more)["noun_phrase"])
    assert {"a Ukrainian enby", "an Egyptian friend", "a blind datemate"} <= phrases


def test_paper_edition_reads_the_labels_of_table_5(paper):
    labels = terms(paper)
    assert labels["ability", "auditory", "Deaf"] == (None, "reviewed")
    assert labels["ability", "visual", "low-vision"] == (None, "dispreferred")
    assert labels["body_type", "hair", "bald"] == (None, None)
    assert labels["body_type", "hair", "ginger"] == (None, "reviewed")
    assert labels["body_type", "hair", "kinky-haired"] == (None, "polarizing")
    assert labels["nationality", "philippines", "Filipino"] == ("male", "reviewed")
    assert labels["nationality", "united_states", "American"] == (None, None)
    assert labels["race_ethnicity", "white", "Arabic"] == (None, "dispreferred")
    assert labels["sexual_orientation", "lesbian", "lesbian"] == ("female", None)
    assert labels["ability", "after_the_noun", "{article} {noun} who stutters"][1] == "reviewed"
    gendered = {term for (_, bucket, term), (gender, _) in labels.items() if gender and bucket != "after_the_noun"}
    assert gendered == {
        "Filipina", "Filipina-American", "Filipino", "Filipino-American", "Latina", "Latino", "lesbian"
    }  # fmt: skip


@needs_v1_0
def test_paper_edition_differs_from_v1_0_only_as_its_source_states(paper):
    paper_terms, v1_0_terms = terms(paper), terms(load_taxonomy(V1_0))
    assert paper_terms == {
        key: value for key, value in v1_0_terms.items() if "{noun}" in key[2] or key[1] != "after_the_noun"
    }
    assert set(paper.nouns) == set(load_taxonomy(V1_0).nouns)
    assert set(paper.templates) == set(load_taxonomy(V1_0).templates)
    source = " ".join((holistic_bias.PAPER_EDITION / "SOURCE.md").read_text(encoding="utf-8").split())
    for _, _, phrase in v1_0_terms.keys() - paper_terms.keys():
        assert phrase.removeprefix("a person who uses ").removesuffix(" pronouns") in source
    articles = {d.descriptor: d.article for d in load_taxonomy(V1_0).descriptors}
    for descriptor in paper.descriptors:
        if descriptor.article != articles[descriptor.descriptor]:
            assert descriptor.descriptor in source.partition("`article` is ours")[2].partition("- Axis names")[0]
