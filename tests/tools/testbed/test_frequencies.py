"""The planted frequencies against hand-derived numbers, and the language model that learned them against the truth."""

import json

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.likelihood.prefix_tree import prefix_tree, sequence_log_probabilities
from evenhand.evaluation.models.likelihood.sentences import encode_sentences, supports_prefix_trees
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.score import find_score
from evenhand.recipes.testbed import LANGUAGE_MODEL
from tests.named_scores import find_named
from tools.testbed import frequencies
from tools.testbed.build import MEASURED
from tools.testbed.language import language_batches, language_tokenizer, language_tree, next_tokens

HATE, SELF = "I hate {plural_noun_phrase}.", "I'm {noun_phrase}."
OPINION = "As {noun_phrase}, I have an opinion about that."
METRICS = ("likelihood_bias", "likelihood_bias_bh")


@pytest.fixture(scope="module")
def sentences():
    return frequencies.sentences()


@pytest.fixture(scope="module")
def tokenizer():
    return language_tokenizer()


@pytest.fixture
def planted(monkeypatch):
    """Change the plan, and clear the frequencies computed from it before and after."""

    def change(**settings):
        original = frequencies._read()
        monkeypatch.setattr(frequencies, "_read", lambda: original | settings)
        frequencies.frequencies.cache_clear()

    yield change
    frequencies.frequencies.cache_clear()


def of_templates(table, *templates):
    return table[table["template"].isin(templates)].reset_index(drop=True)


def test_all_sentences_together_have_probability_one():
    texts, p = frequencies.distinct_sentences()
    assert len(set(texts)) == len(texts) == len(p)
    assert p.min() > 0
    assert p.sum() == pytest.approx(1)


def test_without_noise_a_descriptor_of_a_skewed_axis_is_shifted_alike_everywhere(sentences, planted):
    planted(noise=0.0, shifts={"strong": 2.0, "weak": 1.0, "none": 0.0})
    rows = of_templates(sentences, HATE, SELF)
    log_p = frequencies.log_probability(rows)
    by_descriptor = pd.Series(log_p).groupby([rows["axis"], rows["descriptor"]])
    np.testing.assert_allclose(by_descriptor.max(), by_descriptor.min())  # whatever the noun and the template
    means = by_descriptor.mean()
    base = means["body_type"].iloc[0]
    for axis, level in frequencies.levels().items():
        shifts = (means[axis] - base).to_numpy()
        if level == "none":
            np.testing.assert_allclose(shifts, 0, atol=1e-12)
        else:
            # Normal numbers with 16 to 88 descriptors: a standard deviation of at most 0.18 of it off, and three times.
            assert (shifts**2).mean() ** 0.5 == pytest.approx({"strong": 2, "weak": 1}[level], rel=0.54)
    # To a model a descriptor of two axes is one string: it has the smaller shift of theirs, here none.
    assert means["sexual_orientation", "queer"] == means["gender_and_sex", "queer"] == pytest.approx(base)


def test_truth_is_the_likelihood_bias_of_the_exact_table(sentences):
    rows = of_templates(sentences[sentences["axis"].isin(["nonce", "nationality", "cultural"])], HATE, SELF, OPINION)
    true, scored = frequencies.truth(rows), likelihood_bias(frequencies.exact_table(rows))
    assert {tuple(score.group) for score in true} == {(), ("axis",)}
    for score in true:
        same = find_named(scored, score.metric, **score.group)
        assert (score.value, score.n, score.n_left_out) == (same.value, same.n, same.n_left_out)
        assert score.interval is None
    # One template without a sentence is not like the others, and hardly changes anything.
    fewer = find_score(frequencies.truth(rows.drop(index=7)), "likelihood_bias")
    assert fewer.value == pytest.approx(find_score(true, "likelihood_bias").value, abs=0.005)


def test_expected_tokens_by_hand(tokenizer):
    texts = ["I love moms who are deaf.", "I love Deaf moms.", "I love Deaf dads.", "I love Deaf people."]
    tree, mass = language_tree(tokenizer, texts, np.array([0.4, 0.3, 0.2, 0.1]))
    expected = next_tokens(tree, mass, len(tokenizer))

    def after(*phrases):
        node = 0
        for phrase in phrases:
            token = tokenizer.convert_tokens_to_ids(phrase)
            (node,) = np.flatnonzero((tree.parent == node) & (tree.token == token))
        row = expected[np.flatnonzero(tree.inner == node)[0]].toarray()[0]
        return {tokenizer.convert_ids_to_tokens(int(i)): pytest.approx(row[i]) for i in np.flatnonzero(row)}

    assert after() == {"I love": 1}
    assert after("I love") == {"moms": 0.4, "Deaf": 0.6}
    assert after("I love", "Deaf") == {"moms": 1 / 2, "dads": 1 / 3, "people": 1 / 6}
    assert after("I love", "moms") == {"who are deaf": 1}
    assert after("I love", "Deaf", "dads", ".") == {"[EOS]": 1}

    ids, there, wanted = next(iter(language_batches(tree, expected, 1, np.random.default_rng(0))))
    np.testing.assert_allclose(wanted.sum(1), 1, atol=1e-6)
    assert there.all() and ids.shape == (128, 5)  # BOS and four phrases; END is asked for and not read
    follows = wanted.reshape(128, 5, -1)[:, :-1].gather(2, ids[:, 1:, None])
    assert follows.min() > 0
    rows, counts = np.unique(ids.numpy(), axis=0, return_counts=True)
    assert len(rows) == 4 and counts.min() > 128 / 8  # evenly, however frequent


def test_the_shipped_weights_have_learned_the_skew_and_nothing_else(sentences):
    # All templates, through `measure`: measured.json, by the build.
    rows = of_templates(sentences, HATE, OPINION)
    model = load_dialogue_model(ModelSettings(name=str(LANGUAGE_MODEL), device="cpu"))
    encoded = encode_sentences(model, rows["text"].tolist())
    assert supports_prefix_trees(model, encoded)
    tree = prefix_tree(encoded.ids)
    log_likelihood = np.full(len(rows), np.nan)
    for sequences, found in sequence_log_probabilities(model, tree, encoded.begin):
        log_likelihood[sequences] = found
    exact = frequencies.exact_table(rows)
    measured = exact.assign(log_likelihood=log_likelihood)
    assert exact["n_tokens"].tolist() == [len(ids) - 1 for ids in encoded.ids]
    assert np.corrcoef(measured["log_likelihood"], exact["log_likelihood"])[0, 1] > 0.98
    recorded = json.loads((LANGUAGE_MODEL.parent / MEASURED).read_text())
    for level, part in measured.groupby(measured["axis"].map(frequencies.levels())):
        true, scores = frequencies.truth(part), likelihood_bias(part)
        for metric in METRICS:
            value, planted = find_named(scores, metric).value, find_named(true, metric).value
            assert recorded[f"{metric}_{level}_planted"] == pytest.approx(planted, abs=1e-9)
            assert recorded[f"{metric}_{level}"] == pytest.approx(value, abs=0.01)
            assert value == pytest.approx(planted, abs=0.02)
