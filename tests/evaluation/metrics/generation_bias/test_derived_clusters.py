"""Style clusters from responses: by hand, from planted groups, and what cannot be clustered."""

import numpy as np
import pytest

import evenhand
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.derived_clusters import derive_style_clusters
from evenhand.recipes import testbed
from tests.measured_runs import styled_columns
from tools.testbed import grammar
from tools.testbed.corpus import all_prompts

STYLES = ("sad (unhappy)", "sad (sorry)", "calm", "never")


def styled(vectors, styles=STYLES):
    descriptor = np.repeat(["a", "b"], len(vectors) // 2)
    return styled_columns(np.array(vectors), ["t"] * len(vectors), descriptor, ["x"] * len(vectors), styles)


def test_clusters_names_and_sizes_by_hand():
    """PGB* = Var(means; ddof 1) − mean(s² / 2).

    sad (unhappy): means 0.4, 0 and s² = 0.02, 0: 0.08 − 0.005. sad (sorry): means 0.3, 0, s² = 0.02, 0: 0.045 − 0.005.
    calm: means 0.3, 1, s² = 0.08, 0: 0.245 − 0.02.
    """
    rows = [[0.5, 0.4, 0.1, 0], [0.3, 0.2, 0.5, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    derived = derive_style_clusters(styled(rows))
    assert derived.clusters == {"CALM": ["calm"], "SAD": ["sad (unhappy)", "sad (sorry)"]}
    assert derived.pgb == pytest.approx({"CALM": 0.225, "SAD": 0.115})
    assert derived.styles == list(STYLES[:3])  # "never" is constant
    apart = derive_style_clusters(styled(rows), max_distance=0)
    assert list(apart.clusters) == ["CALM", "SAD (UNHAPPY)", "SAD (SORRY)"]
    # No cluster takes the name of another one, whichever comes first.
    plain = derive_style_clusters(styled(rows, ("sad (unhappy)", "sad", "calm", "never")), max_distance=0)
    assert list(plain.clusters) == ["CALM", "SAD (UNHAPPY)", "SAD"]
    assert list(derive_style_clusters(styled(rows), max_distance=0, n_clusters=1).clusters) == ["CALM"]
    # Of the one style with the largest PGB*, only its own cluster.
    assert derive_style_clusters(styled(rows), top=1).clusters == {"CALM": ["calm"]}


def test_planted_synonyms_are_found_in_noise_and_the_dendrogram_names_them():
    """Styles 0 to 2 and 3 to 4 share a topic that is rarer for descriptor b; 5 and 6 are independent of it."""
    rng = np.random.default_rng(0)
    n = 400
    topic = rng.random(n) < np.repeat([0.7, 0.3], n // 2)
    logits = rng.normal(size=(n, 7)) + 3 * np.stack([topic] * 3 + [~topic] * 2 + [np.zeros(n)] * 2, axis=1)
    vectors = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    derived = derive_style_clusters(styled(vectors, tuple("abcdefg")), n_clusters=2)
    assert {frozenset(members) for members in derived.clusters.values()} == {frozenset("abc"), frozenset("de")}
    (axes,) = derived.figure().axes
    name = next(name for name, members in derived.clusters.items() if "a" in members)
    assert f"a · {name}" in [label.get_text() for label in axes.get_yticklabels()]


def test_the_testbeds_clusters_are_derived_from_what_its_grammar_says():
    prompts = all_prompts()
    drawn = sorted(prompts["descriptor"].unique())[::10]
    cells = prompts[prompts["descriptor"].isin(drawn)].groupby(["template", "descriptor"]).head(2)
    cells = cells.reset_index(drop=True)
    responses = grammar.sample_responses(cells, seed=0)
    classifier = evenhand.load_style_classifier(str(testbed.STYLE_CLASSIFIER))
    texts = [evenhand.clean_response(*pair) for pair in zip(responses, cells["descriptor"], strict=True)]
    vectors = evenhand.style_vectors(classifier, texts)
    derived = derive_style_clusters(evenhand.Answers(cells, vectors, classifier.labels))
    planted = evenhand.load_style_clusters("testbed", classifier.labels)
    planted = {frozenset(classifier.labels[it] for it in members) for members in planted.values()}
    assert {frozenset(members) for members in list(derived.clusters.values())[:5]} < planted


def test_what_cannot_be_clustered_is_an_error(tmp_path):
    with pytest.raises(InputError, match="^responses: .*style"):
        derive_style_clusters(styled([[1, 0]] * 4, ("x", "y")))
    with pytest.raises(InputError, match="^responses: .*template"):
        derive_style_clusters(styled([[1, 0], [0, 1]], ("x", "y")))
    with pytest.raises(InputError, match=r"^path: .*\.json"):
        derive_style_clusters(styled([[1, 0], [1, 0], [0, 1], [0, 1]], ("x", "y"))).write(tmp_path / "clusters.yaml")
