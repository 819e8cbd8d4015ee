"""Labels of artificial responses, and exchanges of labelled responses."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation.label_agreement import agreement_of_parts
from evenhand.mitigation.labelled_responses import exchange_responses
from evenhand.mitigation.labels import bias_values, cross_fitted_bias_values, label_responses, shrinkage_factors

# Descriptor a leans to style x, b to y; the third response to each repeats its prompt, the fourth is in cluster z.
VECTORS = np.array(
    [
        *([0.9, 0.1, 0], [0.5, 0.5, 0], [0.4, 0.6, 0], [0.2, 0.2, 0.6]),
        *([0.1, 0.9, 0], [0.5, 0.5, 0], [0.6, 0.4, 0], [0.2, 0.2, 0.6]),
    ],
    dtype=np.float32,
)
PROMPTS = pd.DataFrame(
    {
        "prompt_id": [f"p{i}" for i in range(8)],
        "text": "I'm.",
        "persona": "",
        "template": "t",
        "descriptor": list("aaaabbbb"),
    }
)
RESPONSES = ["yes", "no", "i'm", "hm"] * 2
BIASED = ["p0", "p4"]


def labelled(**settings):
    return label_responses(PROMPTS, RESPONSES, VECTORS, **{"quantile": 0.7, **settings})


def test_labels_follow_the_threshold():
    table, threshold = labelled()
    assert table.columns.tolist() == [
        "prompt_id", "descriptor", "persona", "text", "response", "bias_value", "label",
    ]  # fmt: skip
    assert table["prompt_id"][table["label"] == "bias"].tolist() == BIASED
    b = bias_values(VECTORS, np.zeros(8, dtype=int), np.repeat([0, 1], 4))
    assert table["bias_value"].tolist() == b.tolist()
    assert (threshold.beta, threshold.quantile, threshold.share_labelled_bias) == (np.quantile(b, 0.7), 0.7, 0.25)
    _, threshold = labelled(beta=0.01)
    assert (threshold.beta, threshold.quantile) == (0.01, 1 - threshold.share_labelled_bias)


@pytest.mark.parametrize(("beta", "share"), [(-1.0, "100%"), (1.0, "0%")])
def test_a_threshold_that_labels_all_or_none_is_refused(beta, share):
    with pytest.raises(InputError, match=f"^beta: {beta} .*{share}"):
        labelled(beta=beta)


def test_bias_values_that_no_threshold_separates_are_refused_with_what_helps():
    apart = np.eye(3, dtype=np.float32)[np.repeat([0, 1], 4)]  # all bias values are 1/2
    for given, field in (({}, "quantile"), ({"beta": 0.5}, "beta")):
        with pytest.raises(InputError, match=r"all 8 values are 0\.5; ") as refused:
            label_responses(PROMPTS, RESPONSES, apart, **given)
        assert refused.value.field == field
    # Three of eight responses have the largest value, so the 0.9 quantile is this value.
    tied = np.eye(3)[[0, 0, 0, 1, 1, 1, 1, 1]]
    with pytest.raises(InputError, match="a lower quantile") as refused:
        label_responses(PROMPTS, RESPONSES, tied, quantile=0.9)
    assert refused.value.field == "quantile"
    with pytest.raises(InputError, match="0.25") as refused:  # the share that was given, and not the quantile
        label_responses(PROMPTS, RESPONSES, tied, share=0.25)
    assert refused.value.field == "share"
    with pytest.raises(InputError, match="none"):
        label_responses(PROMPTS[:0], [], VECTORS[:0])


@pytest.mark.parametrize("alpha", [0, 1, 2])
def test_a_descriptor_with_the_mean_style_of_all_has_bias_value_0(alpha):
    # a has style x, b has style y, and c each in half of its responses, which is the mean of all.
    vectors = np.eye(3)[[0, 0, 0, 1, 1, 1, 0, 1, 0, 1]]
    table = PROMPTS.iloc[[0] * 10].assign(prompt_id=list("0123456789"), descriptor=list("aaabbbcccc"))
    labels, _ = label_responses(table, ["hm"] * 10, vectors, alpha=alpha, beta=0.1)
    assert labels["bias_value"].tolist() == pytest.approx([0.5 / 0.5 ** (alpha / 2)] * 6 + [0.0] * 4)
    assert labels["label"].tolist() == ["bias"] * 6 + ["no_bias"] * 4


def test_without_any_style_vector_bias_values_are_undefined():
    prompts = PROMPTS.assign(axis="age")
    assert np.isnan(cross_fitted_bias_values(prompts, np.full((8, 3), np.nan))).all()


def test_a_response_is_exchanged_for_one_to_the_same_template_and_another_descriptor():
    table = pd.DataFrame(
        {
            "template": ["x", "x", "y", "y", "y", "z", "z"],
            "descriptor": ["deaf", "tall", "deaf", "tall", "rich", "deaf", "deaf"],
            "response": ["deaf 1", "tall 2", "deaf 3", "tall 4", "rich 5", "deaf 6", "deaf 7"],
        },
        index=[5, 5, 3, 2, 1, 0, 9],
    ).assign(prompt_id="p", text="hi", persona="", label=["bias"] * 5 + ["no_bias"] * 2)
    found = [exchange_responses(table, seed) for seed in range(40)]
    kept = table.iloc[:5].drop(columns="response")  # z has one descriptor alone
    assert all(exchanged.drop(columns="response").equals(kept) for exchanged in found)
    given = [set(answers) for answers in zip(*(exchanged["response"] for exchanged in found), strict=True)]
    expected = [{"deaf 2"}, {"tall 1"}, {"deaf 4", "deaf 5"}, {"tall 3", "tall 5"}, {"rich 3", "rich 4"}]
    assert given == expected


def test_what_is_exchanged_is_of_the_styles_that_were_there():
    n = 4000
    table = pd.DataFrame({"template": ["x", "y"] * (n // 2), "descriptor": list("abcdeabcde" * (n // 10))})
    table["response"] = [f"{template}{place % 7}" for place, template in enumerate(table["template"])]
    table = table.assign(prompt_id="p", text="hi", persona="", label=["bias", "no_bias"] * (n // 2))
    table["cut"] = table["response"].str.endswith("3")
    exchanged = exchange_responses(table, 0)
    assert len(exchanged) == n
    assert (exchanged["cut"] == exchanged["response"].str.endswith("3")).all()  # of the donor
    shares = exchanged["response"].value_counts(normalize=True) - table["response"].value_counts(normalize=True)
    assert shares.abs().max() < 4 * np.sqrt(1 / 14 / n)  # 4 standard errors of a share of 1/14


def test_a_share_is_labelled_whatever_the_values():
    table, threshold = labelled(share=0.25)
    assert table["prompt_id"][table["label"] == "bias"].tolist() == BIASED
    assert threshold.share_labelled_bias == 0.25 and threshold.quantile == 0.75
    for share in (0.0, 1.0):  # all or none, where that is what is asked for
        table, threshold = labelled(share=share)
        assert threshold.share_labelled_bias == share
        assert set(table["label"]) == {"bias" if share else "no_bias"}


def test_responses_are_labelled_by_a_divergence():
    divergence = np.arange(8) / 10
    table, threshold = labelled(divergence=divergence, share=0.5)
    assert table["label"].tolist() == ["no_bias"] * 4 + ["bias"] * 4
    assert table["divergence"].tolist() == divergence.tolist() and threshold.beta == 0.3
    assert table["bias_value"].tolist() == labelled()[0]["bias_value"].tolist()


def people_with(differences, n_each, rng, noise=1.0):
    """Return style vectors in two dimensions with codes of four templates and of people, who differ by so much."""
    n_people = len(differences)
    descriptor = np.repeat(np.arange(n_people), n_each)
    template = np.tile(np.arange(4), n_people * n_each // 4)
    vectors = noise * rng.standard_normal((len(descriptor), 2)) + template[:, None]
    vectors[:, 0] += np.asarray(differences)[descriptor]
    return vectors, template, descriptor


def test_directions_are_shrunk_by_the_noise_in_them():
    # Around means of 1 and −1, the eight residuals are ±1. Their variance is 8/6 (8 − 2 − 1 + 1 degrees of freedom),
    # that of a mean of four 1/3, and that of the difference from the mean of both 1/6; the squared difference is 1.
    vectors = np.array([[2.0], [0.0], [2.0], [0.0], [0.0], [-2.0], [0.0], [-2.0]])
    by_hand = shrinkage_factors(vectors, np.zeros(8, dtype=int), np.repeat([0, 1], 4))
    assert by_hand.tolist() == pytest.approx([5 / 6, 5 / 6])
    differences = np.array([1.0, -1.0] + [0.0] * 18)
    without_noise = people_with(differences, 8, np.random.default_rng(0), noise=0.0)
    assert shrinkage_factors(*without_noise)[:2].tolist() == [1.0, 1.0]
    raw = bias_values(*people_with(differences, 8, np.random.default_rng(1)))
    shrunk = bias_values(*people_with(differences, 8, np.random.default_rng(1)), shrunk=True)
    expected = raw * np.repeat(shrinkage_factors(*people_with(differences, 8, np.random.default_rng(1))), 8)
    assert shrunk == pytest.approx(expected)
    with pytest.raises(InputError, match="^directions: "):
        shrinkage_factors(VECTORS[:2], np.array([0, 1]), np.array([0, 1]))


def test_labels_repeat_where_people_differ_and_do_not_where_nobody_does():
    rng = np.random.default_rng(0)
    nobody = agreement_of_parts(*people_with(np.zeros(40), 24, rng), 0.5)
    assert abs(nobody.kappa) < 0.2 and nobody.share == pytest.approx((1 + nobody.kappa) / 2, abs=0.01)
    everybody = agreement_of_parts(*people_with(np.tile([4.0, -4.0], 20), 24, rng), 0.5)
    assert everybody.kappa > 0.6
    alone = agreement_of_parts(*people_with([1.0, 2.0], 4, rng)[:2], np.arange(8), 0.5)
    assert np.isnan(alone.kappa)
