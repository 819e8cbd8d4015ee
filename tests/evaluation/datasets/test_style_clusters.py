"""Files of style clusters."""

import json

import pytest

from evenhand.evaluation.datasets.style_clusters import CLUSTERS, load_style_clusters
from evenhand.evaluation.errors import InputError

LABELS = ("Warm", "Compassionate (Sympathetic, Warm)", "Odd (Strange)", "Odd (Uneven)", "Curious")


def clusters_from(tmp_path, content):
    path = tmp_path / "clusters.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return load_style_clusters(str(path), LABELS)


def test_styles_are_labels_or_their_names_before_a_gloss(tmp_path):
    content = {"CARE": ["Warm", "Compassionate"], "ODD": ["Odd (Uneven)"]}
    assert clusters_from(tmp_path, content) == {"CARE": (0, 1), "ODD": (3,)}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"CARE": ["Warn"]}, "'Warn' in CARE is not a label of the style classifier; did you mean 'Warm'"),
        ({"ODD": ["Odd"]}, r"'Odd' in ODD could be 'Odd \(Strange\)', 'Odd \(Uneven\)'"),
        ({"CARE": "Warm"}, "must map names to lists"),
        ({"CARE": []}, "must map names to lists"),
        ("{", "cannot be read as JSON"),
    ],
)
def test_wrong_clusters_are_one_clear_error(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        clusters_from(tmp_path, content)


def test_the_papers_clusters_ship():
    with pytest.raises(InputError, match="'testbet' is unknown; did you mean 'testbed'"):
        load_style_clusters("testbet", LABELS)
    with pytest.raises(InputError, match="cannot be read"):
        load_style_clusters("absent.json", LABELS)
    names = json.loads((CLUSTERS / "image_chat.json").read_text(encoding="utf-8"))
    labels = [style for styles in names.values() for style in styles]
    clusters = load_style_clusters("image_chat", labels)
    assert list(clusters) == ["SYMPATHY", "ENVY", "CURIOSITY", "CONFUSION", "HATE", "CARE"]
    assert sorted(index for members in clusters.values() for index in members) == list(range(19))
