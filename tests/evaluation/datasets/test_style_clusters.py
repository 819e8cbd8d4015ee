"""Style cluster files."""

import json

import pytest

from evenhand.evaluation.datasets.style_clusters import CLUSTERS, load_style_clusters
from evenhand.evaluation.errors import InputError

LABELS = ("Warm", "Compassionate (Sympathetic, Warm)", "Odd (Strange)", "Odd (Uneven)", "Curious")


def load(tmp_path, content):
    path = tmp_path / "clusters.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_style_clusters(str(path), LABELS)


def test_a_style_matches_a_label_or_its_name_before_a_gloss(tmp_path):
    content = {"CARE": ["Warm", "Compassionate"], "ODD": ["Odd (Uneven)"]}
    assert load(tmp_path, content) == {"CARE": (0, 1), "ODD": (3,)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"CARE": ["Warn"]}, "'Warn' in CARE .*'Warm'"),
        ({"ODD": ["Odd"]}, r"'Odd' in ODD .*'Odd \(Strange\)', 'Odd \(Uneven\)'"),
        ({"CARE": "Warm"}, "lists of styles"),
        ({"CARE": []}, "lists of styles"),
        ("{", "JSON"),
    ],
)
def test_an_invalid_file_raises(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        load(tmp_path, content)


@pytest.mark.parametrize(("name", "message"), [("testbet", "'testbed'"), ("absent.json", "absent.json")])
def test_an_unknown_name_or_a_missing_file_raises(name, message):
    with pytest.raises(InputError, match=f"style_clusters: .*{message}"):
        load_style_clusters(name, LABELS)


def test_the_papers_clusters_have_19_styles():
    names = json.loads((CLUSTERS / "image_chat.json").read_text(encoding="utf-8"))
    labels = [style for styles in names.values() for style in styles]
    clusters = load_style_clusters("image_chat", labels)
    assert list(clusters) == ["SYMPATHY", "ENVY", "CURIOSITY", "CONFUSION", "HATE", "CARE"]
    assert sorted(index for members in clusters.values() for index in members) == list(range(19))
