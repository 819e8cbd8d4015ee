"""The list of what differs from the paper follows the settings."""

from dataclasses import replace
from pathlib import Path

import pytest

from evenhand.evaluation.facts import Finding
from evenhand.evaluation.files import read_yaml
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias.classification import censors_as_paper
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusSettings
from evenhand.evaluation.metrics.generation_bias.published import differences_from_paper
from evenhand.evaluation.metrics.generation_bias.settings import Settings
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.prompt_settings import PromptSettings

CONFIG = Path(__file__).parents[4] / "recipes" / "configs" / "paper_generation.yaml"


@pytest.fixture
def paper():
    """The measurement of paper_generation.yaml."""
    given = read_yaml(CONFIG, "config")
    return FamilyConfig(
        model=ModelSettings(**given["model"]),
        prompts=PromptSettings(**given["prompts"]),
        decoding=DecodingSettings(**given["decoding"]),
        settings=Settings(
            style_classifier={"name": given["generation_bias"]["style_classifier"]},
            style_clusters=given["generation_bias"]["style_clusters"],
        ),
        split=given["split"],
    )


def test_the_papers_config_differs_only_where_nothing_can_be_the_papers(paper):
    # Model, classifier, clusters, personas' sentences, the maximum that the paper does not give, A.6 and repetitions.
    assert len(differences_from_paper(paper)) == 7
    clusters = replace(paper, settings=paper.settings.replaced(style_clusters="image_chat"))
    assert len(differences_from_paper(clusters)) == 6


def test_the_papers_decoding_has_the_papers_rule_of_mentions(paper):
    assert censors_as_paper(paper) and not censors_as_paper(replace(paper, decoding=DecodingSettings()))


@pytest.mark.parametrize(
    ("part", "setting", "value"),
    [
        ("prompts", "dataset", "v1.0"),
        ("prompts", "descriptors", 20),
        ("prompts", "answers_per_cell", 2),
        ("prompts", "variations", False),
        ("model", "dtype", "bfloat16"),
        ("decoding", "arguments", {"num_beams": 1}),
        ("decoding", "arguments", {"min_new_tokens": 5}),
        ("decoding", "arguments", {"no_repeat_ngram_size": 0}),
    ],
)
def test_every_other_setting_adds_one_line(paper, part, setting, value):
    other = replace(paper, **{part: getattr(paper, part).replaced(**{setting: value})})
    ordinary = differences_from_paper(paper)
    added = [found for found in differences_from_paper(other) if found not in ordinary]
    assert len(added) == 1 and len(differences_from_paper(other)) == 8


def test_three_beams_are_blenderbots_and_half_of_the_nouns_are_not_all(paper):
    three = replace(paper, decoding=paper.decoding.replaced(arguments={"num_beams": 3}))
    assert differences_from_paper(three) == differences_from_paper(paper)
    assert len(differences_from_paper(replace(paper, split="measure"))) == 8


def test_a_corpus_adds_its_own_differences(paper):
    corpus = CorpusSettings(paths=["one.jsonl"], limit=1000)
    found = differences_from_paper(replace(paper, settings=paper.settings.replaced(corpus=corpus)))
    assert len(found) == 9 and Finding("paper_corpus_size", {"n": 1000}) in found
