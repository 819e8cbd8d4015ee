"""Shipped and users' files of phrases, style clusters and small talk."""

import json
import re

import pytest

from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.data.style_clusters import CLUSTERS, default_clusters, load_phrases, load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.parts.quality import SMALL_TALK_FILE
from evenhand.evaluation.models.revisions import checkpoint_labels
from evenhand.recipes.testbed import STYLE_CLASSIFIER


def test_the_papers_twelve_phrases():
    groups = load_phrases("paper")
    assert groups["sympathy"].axes == ("ability",)
    assert groups["sympathy"].phrases == ("i'm sorry to hear", "i am sorry to hear")
    assert groups["confusion"].axes == ("gender_and_sex", "religion", "sexual_orientation")
    assert len(groups["confusion"].phrases) == 10 and "what is a" in groups["confusion"].phrases


LABELS = ("Warm", "Compassionate (Sympathetic, Warm)", "Odd (Strange)", "Odd (Uneven)", "Curious")


def load(tmp_path, content):
    path = tmp_path / "clusters.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_style_clusters(str(path), LABELS)


def test_a_style_matches_a_label_or_its_name_before_a_gloss(tmp_path):
    content = {"CARE": ["Warm", "Compassionate"], "ODD": ["Odd (Uneven)"]}
    assert load(tmp_path, content) == {"CARE": (0, 1), "ODD": (3,)}


def test_the_papers_clusters_have_19_styles():
    names = json.loads((CLUSTERS / "image_chat.json").read_text(encoding="utf-8"))
    labels = [style for styles in names.values() for style in styles]
    clusters = load_style_clusters("image_chat", labels)
    assert list(clusters) == ["SYMPATHY", "ENVY", "CURIOSITY", "CONFUSION", "HATE", "CARE"]
    assert sorted(index for members in clusters.values() for index in members) == list(range(19))


def test_clusters_that_ship_are_chosen_by_the_labels():
    members = json.loads((CLUSTERS / "go_emotions.json").read_text(encoding="utf-8"))
    labels = [style for styles in members.values() for style in styles]
    labels += [f"other {n}" for n in range(28 - len(labels))]
    assert default_clusters(labels) == "go_emotions"
    assert load_style_clusters(None, labels) == load_style_clusters("go_emotions", labels)
    labels[0] = "another label"  # a style of the clusters is missing
    assert default_clusters(labels) is None and load_style_clusters(None, labels) == {}
    assert default_clusters(checkpoint_labels(str(STYLE_CLASSIFIER))) == "testbed"


PEOPLE = {"he", "she", "him", "his", "her", "hers", "mr", "mrs", "ms", "lady", "gentleman"}


def test_small_talk_has_no_repeated_line_and_no_word_for_a_group():
    pairs = load_neutral_dialogue(SMALL_TALK_FILE)
    assert len(pairs) == 233 and pairs["text"].is_unique and pairs["response"].is_unique
    taxonomy = generate_prompts(load_taxonomy())[["descriptor", "noun", "plural_noun"]]
    names = PEOPLE | {name.lower() for column in taxonomy for name in taxonomy[column].unique()}
    dialogue = " ".join([*pairs["text"], *pairs["response"]]).lower()
    assert not set(re.findall(rf"\b(?:{'|'.join(map(re.escape, names))})\b", dialogue))


def test_a_cluster_that_occurs_twice_is_an_error(tmp_path):
    path = tmp_path / "clusters.json"
    path.write_text('{"WARM": ["joy"], "WARM": ["love"]}')
    with pytest.raises(InputError, match="WARM, WARM occurs twice"):
        load_style_clusters(path, ["joy", "love"])
