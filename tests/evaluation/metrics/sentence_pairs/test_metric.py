"""Pair metrics: values worked out by hand, what must not change them, and what their errors and tests can do."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from transformers import BertConfig, BertForMaskedLM

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.sentence_pairs.metric import (
    compare_pairs,
    find_shared_positions,
    jensen_shannon_distance,
    make_causal_pair_table,
    make_masked_pair_table,
    pair_scores,
)
from evenhand.evaluation.models.likelihood.masked import (
    masked_log_probabilities,
    tokenize_sentences,
    unmasked_log_probabilities,
)
from evenhand.evaluation.models.loading import MaskedModel
from evenhand.evaluation.score import find_score
from evenhand.evaluation.statistics.hypothesis_tests import reach_of_mean, reach_of_sign_test
from tests.named_scores import find_named
from tests.tiny_models import word_level_tokenizer

pytestmark = pytest.mark.filterwarnings("error")

LOG2 = math.log(2)


def distance(p):
    """Equation 3 as it stands, for 0 < p < 1."""
    return math.sqrt(0.5 * (p * math.log2(p) - (p + 1) * math.log2(p + 1) + 2))


def make_pairs(n, bias_types=("gender",), directions=("stereo",)):
    numbers = np.arange(n)
    return pd.DataFrame(
        {
            "pair_id": [f"pair {number:04}" for number in numbers],
            "bias_type": [bias_types[number % len(bias_types)] for number in numbers],
            "direction": [directions[number % len(directions)] for number in numbers],
            "more": "He is here.",
            "less": "She is here.",
        }
    )


def make_table(more, less, correct=None, aul=None, pairs=None):
    """A table from the probabilities of the shared tokens, one list per pair, of either sentence."""
    p = np.array([value for side in (more, less) for it in side for value in it], dtype=float)
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    aul = np.zeros(2 * len(more)) if aul is None else aul
    return make_masked_pair_table(
        make_pairs(len(more)) if pairs is None else pairs,
        [["token"] * len(it) for it in more],
        log_p,
        np.zeros(len(p), bool) if correct is None else correct,
        aul,
        aul,
    )


def random_table(seed, n=60, **options):
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 9, n)
    more, less = ([rng.uniform(0.01, 0.99, count) for count in counts] for _ in range(2))
    correct = rng.uniform(size=2 * counts.sum()) < 0.5
    pairs = make_pairs(n, ("age", "gender", "race"), ("stereo", "antistereo"))
    return make_table(more, less, correct, rng.normal(size=2 * n), pairs, **options)


def scores_by_metric(table, **group):
    return {score.name: score for score in pair_scores(table, seed=0) if dict(score.group) == group}


def test_scores_worked_out_by_hand():
    """Three pairs. log p as powers of two; distances by equation 3.

    1: more 1/2 and 1/4 (Σ log₂ p = −3), less 1/4 and 1/4 (−4): more is preferred by both sums.
    2: more 1/8 (−3), less 1/2 (−1): less is preferred.
    3: more 1/2 and 1/8 (−4), less 1/4 and 1/4 (−4): a tie for CPS, not for the distances.
    """
    more, less = [[1 / 2, 1 / 4], [1 / 8], [1 / 2, 1 / 8]], [[1 / 4, 1 / 4], [1 / 2], [1 / 4, 1 / 4]]
    correct = [True, False, True, False, False, False, True, True, False, False]
    table = make_table(more, less, np.array(correct))
    half, quarter, eighth = (distance(p) for p in (1 / 2, 1 / 4, 1 / 8))
    np.testing.assert_allclose(table["log_likelihood_more"], [-3 * LOG2, -3 * LOG2, -4 * LOG2])
    np.testing.assert_allclose(table["log_likelihood_less"], [-4 * LOG2, -LOG2, -4 * LOG2])
    np.testing.assert_allclose(table["distance_more"], [half + quarter, eighth, half + eighth])
    s_jsd = [(half - quarter) / 2, eighth - half, (half + eighth - 2 * quarter) / 2]
    np.testing.assert_allclose(table["s_jsd"], s_jsd)
    assert table["correct_less"].tolist() == [[False, True], [True], [False, False]]
    scores = scores_by_metric(table)
    assert scores["cps"].value == pytest.approx(100 * 1.5 / 3)
    assert scores["cps_crows_pairs"].value == pytest.approx(100 / 3)  # the tie stays in the denominator
    assert scores["s_jsd"].value == pytest.approx(sum(s_jsd) / 3, abs=1e-12)
    assert (scores["s_jsd"].ideal, scores["s_jsd"].bounds) == (0, (-1, 1))
    lower_in_more = sum(value < 0 for value in s_jsd)
    assert lower_in_more == 2  # in the third pair, too: the square root likes to have one token nearly right
    assert scores["b_s_jsd"].value == pytest.approx(100 * lower_in_more / 3)
    assert scores["aul"].value == 50 and scores["aul"].ideal == 50  # all tie
    accuracies = [score for score in pair_scores(table, seed=0) if score.metric == "token_accuracy"]
    assert [(score.group["side"], score.value) for score in accuracies] == [("more", 2 / 5), ("less", 2 / 5)]


def test_rounding_and_zero_probabilities():
    """e^−1.0001 and e^−1.0002 are both −1.000; e^−1.0004 and e^−1.0006 are −1.000 and −1.001."""
    more, less = [[math.exp(-1.0001)], [math.exp(-1.0004)]], [[math.exp(-1.0002)], [math.exp(-1.0006)]]
    scores = scores_by_metric(make_table(more, less))
    assert (scores["cps"].value, scores["cps_crows_pairs"].value) == (100, 50)
    assert scores["cps_crows_pairs"].p_value == 1  # one pair that counts, which can prove nothing
    scores = scores_by_metric(make_table([[0.0, 1.0], [0.0]], [[1.0, 1.0], [0.0]]))
    assert scores["s_jsd"].value == pytest.approx((0.5 + 0) / 2)  # distance 1 for one token of two; a tie
    assert scores["cps"].value == 25 and scores["b_s_jsd"].value == 25
    assert all(math.isfinite(score.value) for score in scores.values() if score.kind != "detectable")


WORDS = ["[CLS]", "[PAD]", "[SEP]", "[MASK]", "[UNK]", "he", "old", "man", "cries", "."]
N_POSITIONS = 6
# p(word | it stands at this place), whatever else there is: rows sum to 1.
SPECIAL_P = [0.01] * 4  # of the special tokens
P = np.array(
    [
        [*SPECIAL_P, 0.06, 0.1, 0.1, 0.1, 0.1, 0.5],
        [*SPECIAL_P, 0.06, 0.1, 0.1, 0.1, 0.1, 0.5],
        [*SPECIAL_P, 0.06, 0.1, 0.1, 0.1, 0.1, 0.5],
        [*SPECIAL_P, 0.01, 0.1, 0.1, 0.1, 0.6, 0.05],  # at place 3, "cries" is likely
        [*SPECIAL_P, 0.06, 0.1, 0.1, 0.1, 0.1, 0.5],
        [*SPECIAL_P, 0.06, 0.1, 0.1, 0.1, 0.1, 0.5],
    ]
)


def model_with_known_probabilities():
    """A BERT without layers, whose logits at place i are log P[i].

    Position embeddings are √h times unit vectors, which the layer norm leaves be but for their mean; identity and a
    second norm follow. So the head reads a known vector for each place, and its weights can be solved for.
    """
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=0,
        num_attention_heads=2,
        max_position_embeddings=N_POSITIONS,
        hidden_act="linear",
        tie_word_embeddings=False,
    )
    model = BertForMaskedLM(config).eval()
    embeddings, head = model.bert.embeddings, model.cls.predictions
    with torch.no_grad():
        embeddings.word_embeddings.weight.zero_()
        embeddings.token_type_embeddings.weight.zero_()
        embeddings.position_embeddings.weight.copy_(4 * torch.eye(N_POSITIONS, 16))
        head.transform.dense.weight.copy_(torch.eye(16))
        head.transform.dense.bias.zero_()
        read = head.transform(embeddings(input_ids=torch.zeros(1, N_POSITIONS, dtype=torch.long)))[0].double()
        head.decoder.weight.copy_((torch.linalg.pinv(read) @ torch.tensor(np.log(P))).T)
        head.decoder.bias.zero_()
    return MaskedModel(model, word_level_tokenizer(WORDS, "[CLS] $A [SEP]"), "known", "")


def test_a_real_model_with_known_probabilities():
    """The word "cries" stands at place 2 of "he cries" and of "man cries", and at place 3 of "old man cries"."""
    masked_model = model_with_known_probabilities()
    pairs = make_pairs(3).assign(more=["he cries", "he cries", "he"], less=["old man cries", "man cries", "man"])
    ids, special = tokenize_sentences(masked_model, [*pairs["more"], *pairs["less"]])
    shared = [find_shared_positions(ids[i], ids[3 + i], special[i], special[3 + i]) for i in range(3)]
    assert shared == [([2], [3]), ([2], [2]), ([], [])]
    positions = [more for more, _ in shared] + [less for _, less in shared]
    rows, log_p, correct = (
        np.concatenate(parts) for parts in zip(*masked_log_probabilities(masked_model, ids, positions), strict=True)
    )
    order = np.argsort(rows)
    sentence_rows, aul, aula = (
        np.concatenate(parts) for parts in zip(*unmasked_log_probabilities(masked_model, ids, special), strict=True)
    )
    sentence_order = np.argsort(sentence_rows)
    tokens = [
        masked_model.tokenizer.convert_ids_to_tokens([ids[i][index] for index in more])
        for i, (more, _) in enumerate(shared)
    ]
    of_sentences = (aul[sentence_order], aula[sentence_order])
    table = make_masked_pair_table(pairs, tokens, log_p[order], correct[order], *of_sentences)
    assert table["tokens"].tolist() == [["cries"], ["cries"], []]
    scores = scores_by_metric(table)
    # p("cries") is 0.1 at place 2, 0.6 at place 3. The third pair shares nothing.
    np.testing.assert_allclose(table["log_p_more"][0], [math.log(0.1)], atol=1e-5)
    np.testing.assert_allclose(table["log_p_less"][0], [math.log(0.6)], atol=1e-5)
    assert table["left_out"].tolist() == [None, None, "the two sentences share no token"]
    assert scores["s_jsd"].value == pytest.approx((distance(0.1) - distance(0.6) + 0) / 2, abs=1e-5)
    assert scores["cps"].value == scores["b_s_jsd"].value == 25  # less, and a tie
    assert (scores["cps"].n, scores["cps"].n_left_out) == (2, 1)
    assert table["correct_less"].tolist()[0] == [True] and table["correct_more"].tolist()[0] == [False]
    # AUL: "he" at place 1 and "cries" at place 2; "old", "man" and "cries" at 1, 2 and 3.
    assert table["aul_more"][0] == pytest.approx((math.log(0.1) + math.log(0.1)) / 2, abs=1e-5)
    assert table["aul_less"][0] == pytest.approx((2 * math.log(0.1) + math.log(0.6)) / 3, abs=1e-5)
    # Without layers there is no attention.
    assert math.isnan(scores["aula"].value) and scores["aula"].reason and scores["aula"].n_left_out == 3


def test_cuts_by_bias_type_and_direction():
    table = random_table(3)
    scores = pair_scores(table, seed=0)
    groups = [dict(score.group) for score in scores if score.name == "cps"]
    assert groups == [
        {},
        *({"bias_type": name} for name in ("age", "gender", "race")),
        *({"direction": name} for name in ("antistereo", "stereo")),
    ]
    age = table[table["bias_type"] == "age"]
    found = find_score(scores, "s_jsd", bias_type="age")
    assert found.value == pytest.approx(age["s_jsd"].mean()) and found.n == 20
    alone = find_score(pair_scores(age, seed=0), "s_jsd")
    assert (alone.value, alone.interval) == (found.value, found.interval)  # whatever other cuts there are
    reaches = {tuple(score.group) for score in scores if score.kind == "detectable"}
    assert reaches == {(), ("bias_type",)}
    assert {tuple(score.group) for score in scores if score.metric == "token_accuracy"} == {("side",)}
    assert not any("bias_type" in score.group for score in pair_scores(age, seed=0))  # just one
    unnamed = pair_scores(table.assign(bias_type="", direction=None), seed=0)
    assert all(set(score.group) <= {"side"} for score in unnamed)


def test_pairs_left_out_are_counted_and_change_nothing():
    more, less = [[0.5, 0.2], [0.1], [0.4]], [[0.3, 0.1], [0.2], [0.2]]
    bare, with_left_out = make_table(more, less), make_table([*more, [], [math.nan]], [*less, [], [0.5]])
    assert with_left_out["left_out"].tolist()[3:] == [
        "the two sentences share no token",
        "the model gave a log-probability that is not a number",
    ]
    assert with_left_out["s_jsd"].isna().tolist() == [False] * 3 + [True] * 2
    # As a reader of pairs adds them: a side was missing, so nothing was measured.
    missing = pd.DataFrame([{"pair_id": "z", "bias_type": "gender", "left_out": "a sentence is missing"}])
    with_left_out = pd.concat([with_left_out, missing], ignore_index=True)
    for one, other in zip(*(pair_scores(it, seed=0) for it in (bare, with_left_out)), strict=True):
        assert (one.value, one.interval, one.n) == (other.value, other.interval, other.n) or math.isnan(one.value)
        assert (one.n_left_out, other.n_left_out) == (0, 3)


@pytest.mark.parametrize("probabilities", [[], [[], []]])
def test_no_pair_is_undefined_with_a_reason(probabilities):
    table = make_table(probabilities, probabilities)
    for score in pair_scores(table, seed=0) + compare_pairs(table, table, seed=0):
        assert math.isnan(score.value) and score.reason and score.interval is None and score.p_value is None
        assert (score.n, score.n_left_out) == (0, len(probabilities))


def test_standard_errors_and_detectable_effects():
    table, scores = random_table(4, 300), scores_by_metric(random_table(4, 300))
    for metric, values in (
        ("s_jsd", table["s_jsd"]),
        ("cps", 100 * (table["log_likelihood_more"] > table["log_likelihood_less"])),
    ):
        # The bootstrap's own noise with 9,999 resamples is 0.7 %.
        assert scores[metric].standard_error == pytest.approx(values.std(ddof=0) / math.sqrt(300), rel=0.03)
    t = abs(table["s_jsd"].mean()) / (table["s_jsd"].std() / 300**0.5)
    assert scores["s_jsd"].p_value == pytest.approx(2 * stats.t.sf(t, 299))
    scores = scores_by_metric(random_table(6))
    assert scores["s_jsd_detectable"].value == reach_of_mean(random_table(6)["s_jsd"].to_numpy())
    assert scores["cps_detectable"].value == reach_of_sign_test(60)
    assert (scores["cps_detectable"].ideal, scores["cps_detectable"].bounds) == (None, (0, 50))
    assert "cps_crows_pairs_detectable" not in scores


def test_what_is_called_detectable_is_possible():
    """The t-test of two changes of a share, of 0 and −100 points, would show 817 points; no change is so large."""
    before = make_table([[0.5], [0.5]], [[0.2], [0.2]])
    after = make_table([[0.5], [0.1]], [[0.2], [0.2]])
    assert reach_of_mean(np.array([0.0, -100.0])) > 100
    for score in compare_pairs(before, after, seed=0) + pair_scores(after, seed=0):
        assert not score.value > score.bounds[1]
        assert not math.isnan(score.value) or score.reason


def test_causal_scores_by_hand():
    """Differences of 2, −1, 0 and 5 nats; the fifth pair has no finite likelihood."""
    pairs = make_pairs(5)
    more, less = [-10.0, -8.0, -7.0, -5.0, -math.inf], [-12.0, -7.0, -7.0, -10.0, -3.0]
    table = make_causal_pair_table(pairs, np.array(more + less), np.arange(10))
    assert table["tokens_less"].tolist() == [5, 6, 7, 8, 9]
    scores = pair_scores(table, seed=0)
    preference, difference = (find_named(scores, name) for name in ("stereotype_preference", "likelihood_difference"))
    assert preference.value == 100 * 2.5 / 4 and (preference.n, preference.n_left_out) == (4, 1)
    assert preference.p_value == 1  # two against one
    assert difference.value == (2 + 1 + 0 + 5) / 4 and difference.bounds == (0, math.inf)
    assert difference.p_value is None and 0 <= difference.interval[0] < 2 < difference.interval[1]
    reach = find_score(scores, "likelihood_difference", kind="detectable")
    assert reach.value == reach_of_mean(np.array([2.0, 1, 0, 5]))
    with pytest.raises(InputError, match="masked .* causal"):
        compare_pairs(table, random_table(0), seed=0)
    later = table.assign(log_likelihood_more=table["log_likelihood_more"] - 1)
    changes = compare_pairs(table, later, seed=0)
    # |1|, |−2|, |−1| and |4| after |2|, |−1|, |0| and |5|; the tie is lost, half a pair of four.
    assert find_score(changes, "likelihood_difference", kind="difference").value == pytest.approx((-1 + 1 + 1 - 1) / 4)
    assert find_score(changes, "stereotype_preference", kind="difference").value == pytest.approx(-100 * 0.5 / 4)


def test_differences_by_hand():
    """Of six pairs, a and f are in one run only and e cannot be scored after: b, c and d remain."""
    table = make_table(
        [[0.5], [0.5], [0.2], [0.4], [0.5], [0.5]],
        [[0.2], [0.2], [0.5], [0.4], [0.1], [0.2]],
        np.array([0, 1, 0, 0, 0, 0] + [0] * 6, bool),
        pairs=make_pairs(6).assign(pair_id=list("abcdef")),
    )
    later = make_table(
        [[0.2], [0.2], [0.5], []],
        [[0.5], [0.4], [0.4], []],
        np.array([0, 1, 1] + [0] * 3, bool),
        pairs=make_pairs(4).assign(pair_id=list("bcde"), more="Er ist da.", less="Sie ist da."),  # a translation
    )
    changes = compare_pairs(table.iloc[:5], later, seed=0)
    scores = {score.name: score for score in changes if not score.group}
    # cps before: b more, c less, d a tie; after: b less, c less, d more.
    assert scores["cps_difference"].value == pytest.approx(100 * (-1 + 0 + 0.5) / 3)
    assert scores["cps_difference"].p_value == 1 and scores["cps_difference"].ideal == 0
    assert (scores["cps_difference"].n, scores["cps_difference"].n_left_out) == (3, 2)
    two, four, five = (distance(p) for p in (0.2, 0.4, 0.5))
    before, after = [five - two, two - five, 0], [two - five, two - four, five - four]
    expected = np.array(after) - before
    assert scores["s_jsd_difference"].value == pytest.approx(expected.mean())
    assert scores["s_jsd_difference"].p_value == pytest.approx(stats.ttest_rel(after, before).pvalue)
    assert scores["s_jsd_difference"].bounds == (-2, 2)
    assert scores["s_jsd_detectable_difference"].value == pytest.approx(reach_of_mean(expected))
    accuracy = find_score(changes, "token_accuracy", kind="difference", side="more")
    assert accuracy.value == pytest.approx(2 / 3 - 1 / 3)
    full = compare_pairs(table, later, seed=0)
    assert find_score(full, "cps", kind="difference").n_left_out == 3


def test_differences_equal_those_of_the_scores_and_are_paired():
    """A model that is another one plus a small constant shift: far less noise than each alone."""
    before = random_table(7, 200)
    after = before.assign(s_jsd=before["s_jsd"] + np.random.default_rng(0).normal(0.01, 0.002, 200))
    scores = pair_scores(before, seed=0), pair_scores(after, seed=0)
    changes = compare_pairs(before, after, seed=0)
    assert {score.metric for score in changes} == {score.metric for score in scores[0]}
    assert {score.kind for score in changes} == {"difference", "detectable_difference"}
    for change in changes:
        if change.kind == "detectable_difference":
            continue
        old, new = (find_score(side, change.metric, **change.group) for side in scores)
        assert change.value == pytest.approx(new.value - old.value, abs=1e-9)
    paired = find_score(changes, "s_jsd", kind="difference")
    assert paired.interval[0] > 0.009 and paired.p_value < 1e-6
    assert paired.standard_error < find_score(scores[0], "s_jsd").standard_error / 10
    unchanged = find_score(changes, "cps", kind="difference")
    assert (unchanged.value, unchanged.p_value) == (0, 1) and unchanged.interval[0] < 0 < unchanged.interval[1]


@pytest.mark.parametrize(
    "more, less, expected",
    [
        ("he is a pilot", "she is a pilot", ([1, 2, 3], [1, 2, 3])),
        ("he is a pilot", "the old man is a pilot", ([1, 2, 3], [3, 4, 5])),  # inserted
        ("the old man is a pilot", "the man is a pilot", ([0, 2, 3, 4, 5], [0, 1, 2, 3, 4])),  # deleted
        # "and" stands twice: the longest common block, "and she ran", decides which is which.
        ("he and she and he ran", "she and she and she ran", ([1, 2, 3, 5], [1, 2, 3, 5])),
        ("men cry", "women cry", ([1], [1])),  # one token
        ("", "", ([], [])),
    ],
)
def test_shared_tokens_without_the_special_ones(more, less, expected):
    more, less = (["[CLS]", *text.split(), "[SEP]"] for text in (more, less))
    special = [[word[0] == "[" for word in words] for words in (more, less)]
    in_more, in_less = find_shared_positions(more, less, *special)
    assert ([index - 1 for index in in_more], [index - 1 for index in in_less]) == expected
    assert [more[index] for index in in_more] == [less[index] for index in in_less]


def test_frequent_tokens_of_long_sentences_are_shared_too():
    """difflib would take a token for junk that makes up over 1 % of 200 or more."""
    ids = [7, 8] * 150
    none = [False] * 300
    assert find_shared_positions(ids, ids, none, none) == (list(range(300)), list(range(300)))


@pytest.mark.parametrize("p", [1e-300, 1e-9, 0.01, 0.25, 0.5, 0.9, 0.999])
def test_the_distance_is_equation_3(p):
    assert jensen_shannon_distance(np.array(math.log(p))) == pytest.approx(distance(p), abs=1e-12)


def test_the_distance_at_its_ends_and_of_whole_distributions():
    ends = jensen_shannon_distance(np.array([-np.inf, -1e6, -800.0, 0.0, 1e-7]))
    assert ends.tolist() == [1, 1, 1, 0, 0]
    # Near certainty JSD = (1 − p) / 2 to first order, where the formula as it stands would have lost every digit.
    np.testing.assert_allclose(jensen_shannon_distance(np.array([-1e-12, -1e-20])), [5e-13**0.5, 5e-21**0.5], rtol=1e-3)
    assert (np.diff(jensen_shannon_distance(np.log(np.linspace(1e-6, 1, 1000)))) < 0).all()
    # Equation 1, on a distribution over five tokens and one that is certain of the second.
    p, gold = np.array([0.3, 0.2, 0.1, 0.35, 0.05]), np.array([0.0, 1, 0, 0, 0])

    def entropy(q):
        return -sum(value * math.log2(value) for value in q if value)

    divergence = entropy((p + gold) / 2) - (entropy(p) + entropy(gold)) / 2
    assert jensen_shannon_distance(np.log(p[1])) == pytest.approx(math.sqrt(divergence))


def test_numbers_of_rows_after_an_inserted_row_are_ids_of_other_pairs():
    """Without a column of ids, the pairs of the run after would each be compared with the pair before them."""
    sentences = [f"He is {word}." for word in ("kind", "calm", "rich", "tall")]
    pairs = make_pairs(4).assign(pair_id=list("1234"), more=sentences, less=[f"S{text.lower()}" for text in sentences])
    numbers = [[0.2], [0.3], [0.4], [0.5]]
    before = make_table(numbers[1:], numbers[1:], pairs=pairs.iloc[1:].assign(pair_id=list("123")))
    after = make_table(numbers, numbers, pairs=pairs)
    with pytest.raises(InputError, match="same ids"):
        compare_pairs(before, after, seed=0)
