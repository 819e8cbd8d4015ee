"""Embedding gaps: hand-derived values, and what they must not depend on."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from evenhand.evaluation.metrics.embedding_bias import add_cosines, embedding_scores, pair_with_references
from evenhand.evaluation.score import find_score
from evenhand.evaluation.statistics.hypothesis_tests import holm

SWAP = {"masculine": "feminine", "feminine": "masculine"}


def references(*rows):
    """(sentence_id, lang, english, gender, reference) of each."""
    return pd.DataFrame(rows, columns=["sentence_id", "lang", "english", "gender", "reference"])


def table(*rows, lang="spa_Latn"):
    """(sentence_id, gender, cosine) of each, with ambiguous English."""
    named = [(name, lang, f"english {name}", gender, str(row)) for row, (name, gender, _) in enumerate(rows)]
    compared = pair_with_references(references(*named))
    return compared.assign(cosine=[rows[int(text)][2] for text in compared["reference"]])


def random_vectors(texts, seed=0):
    return np.random.default_rng(seed).normal(size=(len(texts), 5)) + 1


def score_all(compared, vectors=None):
    texts = sorted(set(compared["english"]) | set(compared["reference"]))
    return embedding_scores(add_cosines(compared, texts, random_vectors(texts) if vectors is None else vectors))


PAIRS = [("1", 0.9, 0.8), ("2", 0.7, 0.5), ("3", 0.6, 0.6)]
GAPS = table(*((name, "masculine", m) for name, m, _ in PAIRS), *((name, "feminine", f) for name, _, f in PAIRS))


def test_the_gap_and_its_tests_by_hand():
    """Differences 0.1, 0.2, 0: mean 0.1, sd 0.1, t = 0.1 / (0.1 / √3) = √3 on 2 degrees of freedom.

    Student's distribution with 2 degrees of freedom has F(t) = ½ + t / (2 √(2 + t²)), so p = ½ − √3 / (2 √5) one-sided.
    """
    scores = embedding_scores(GAPS)
    gap, one_sided = (
        find_score(scores, name, lang="spa_Latn") for name in ("embedding_gap", "embedding_gap_one_sided")
    )
    assert gap.value == one_sided.value == pytest.approx(0.1)
    p = 0.5 - math.sqrt(3) / (2 * math.sqrt(5))
    assert one_sided.p_value == pytest.approx(p) and gap.p_value == pytest.approx(2 * p)
    assert (gap.n, gap.n_left_out, gap.ideal, gap.bounds) == (3, 0, 0.0, (-2.0, 2.0))
    # F(t) = 0.975 at t = 0.95 √2 / √(1 − 0.95²), F(t) = 0.95 at t = 0.9 √2 / √(1 − 0.9²).
    error = 0.1 / math.sqrt(3)
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) * error
    assert gap.interval == pytest.approx((0.1 - half, 0.1 + half))
    assert one_sided.interval == pytest.approx((0.1 - 0.9 * math.sqrt(2 / (1 - 0.9**2)) * error, 2.0))
    assert one_sided.signature["alternative"] == "greater"


def test_mean_cosine_by_gender():
    scores = embedding_scores(pd.concat([GAPS, table(("4", "neutral", 0.4), ("5", "generic", 0.2))]))
    found = {gender: find_score(scores, "embedding_similarity", lang="spa_Latn", gender=gender) for gender in
             ("masculine", "feminine", "neutral", "generic")}  # fmt: skip
    assert {name: score.value for name, score in found.items()} == pytest.approx(
        {"masculine": 2.2 / 3, "feminine": 1.9 / 3, "neutral": 0.4, "generic": 0.2}
    )
    low, high = stats.t.interval(0.95, 2, 1.9 / 3, stats.sem([0.8, 0.5, 0.6]))
    assert high > 1 and found["feminine"].interval == pytest.approx((low, 1.0))  # no cosine is larger
    assert (found["neutral"].n, found["neutral"].n_left_out, found["neutral"].interval) == (1, 4, None)
    gap = find_score(scores, "embedding_gap", lang="spa_Latn")
    assert (gap.n, gap.n_left_out) == (3, 2)


def test_several_references_are_averaged_and_a_missing_cosine_leaves_its_sentence_out():
    rows = table(("1", "masculine", 0.9), ("1", "masculine", 0.5), ("1", "feminine", 0.6), ("2", "masculine", 0.3),
                 ("2", "feminine", 0.2))  # fmt: skip
    gap = find_score(embedding_scores(rows), "embedding_gap", lang="spa_Latn")
    assert gap.value == pytest.approx(0.1) and gap.n == 2  # 0.7 − 0.6 and 0.3 − 0.2
    rows = pd.concat([GAPS, table(("4", "masculine", 0.4), ("4", "feminine", math.nan))])
    scores = embedding_scores(rows)
    gap = find_score(scores, "embedding_gap", lang="spa_Latn")
    assert gap.value == pytest.approx(0.1) and (gap.n, gap.n_left_out) == (3, 1)
    assert find_score(scores, "embedding_similarity", lang="spa_Latn", gender="masculine").n == 3


@pytest.mark.parametrize(
    ("rows", "reason", "n"),
    [
        ([("1", "masculine", 0.5), ("2", "masculine", 0.4)], "no sentence has a feminine reference", 0),
        ([("1", "neutral", 0.5)], "no sentence has a masculine or a feminine reference", 0),
        ([("1", "masculine", 0.5), ("1", "feminine", 0.4), ("2", "masculine", 0.4)], "fewer than two sentences", 1),
        ([("1", "masculine", 0.5), ("2", "feminine", 0.4)], "fewer than two sentences", 0),
    ],
)
def test_no_gap_without_two_pairs(rows, reason, n):
    scores = [score for score in embedding_scores(table(*rows)) if score.metric.startswith("embedding_gap")]
    assert [score.metric for score in scores] == ["embedding_gap", "embedding_gap_one_sided", "embedding_gap_holm"]
    for score in scores:
        assert math.isnan(score.value) and score.reason.startswith(reason)
        assert score.p_value is score.interval is None
        assert (score.n, score.n_left_out) == (n, len({name for name, *_ in rows}) - n)


def test_a_language_with_too_few_masculine_references_has_no_gap():
    kept = find_score(embedding_scores(GAPS, min_masculine_references=3), "embedding_gap", lang="spa_Latn")
    assert kept.value == pytest.approx(0.1)
    for name in ("embedding_gap", "embedding_gap_one_sided", "embedding_gap_holm"):
        score = find_score(embedding_scores(GAPS, min_masculine_references=4), name, lang="spa_Latn")
        assert math.isnan(score.value) and score.p_value is None and score.n == 0 and score.n_left_out == 3
        assert "4" in score.reason


def ambiguous(n=6):
    return references(
        *((str(i), "fra_Latn", f"e{i}", gender, f"{gender} {i}") for i in range(n) for gender in SWAP),
        *((str(i), "fra_Latn", f"e{i}", "neutral", f"neutral {i}") for i in range(2)),
    )


def gendered(n=6):
    return references(
        *((str(i), "deu_Latn", f"{gender} e{i}", gender, f"{gender} {i}") for i in range(n) for gender in SWAP)
    )


@pytest.mark.parametrize("rows", [ambiguous(), gendered()])
def test_identical_references_have_no_gap_and_swapped_genders_flip_the_sign(rows):
    same = rows.assign(reference=["reference " + name for name in rows["sentence_id"]])
    gaps = [score for score in score_all(pair_with_references(same)) if score.metric.startswith("embedding_gap")]
    for gap in gaps:
        assert gap.value == 0.0 and gap.reason is None
        assert gap.interval is gap.p_value is None  # no difference varies
    swapped = rows.assign(gender=rows["gender"].replace(SWAP))
    before, after = score_all(pair_with_references(rows)), score_all(pair_with_references(swapped))
    gaps = [score for score in before if score.metric == "embedding_gap"]
    assert gaps and all(gap.value for gap in gaps)
    for gap in gaps:
        group = {name: SWAP.get(value, value) for name, value in gap.group.items()}
        other = find_score(after, "embedding_gap", **group)
        assert other.value == -gap.value and other.p_value == pytest.approx(gap.p_value)
        assert other.interval == pytest.approx((-gap.interval[1], -gap.interval[0]))
        sides = [find_score(scores, "embedding_gap_one_sided", **each).p_value
                 for scores, each in ((before, gap.group), (after, group))]  # fmt: skip
        assert sum(sides) == pytest.approx(1.0)


def test_p_values_are_corrected_over_languages():
    scores = score_all(pair_with_references(pd.concat([ambiguous(), gendered()])))
    raw, adjusted = (
        [find_score(scores, name, lang=lang).p_value for lang in ("deu_Latn", "fra_Latn")]
        for name in ("embedding_gap", "embedding_gap_holm")
    )
    assert adjusted == pytest.approx(holm(raw))


def test_gendered_english_is_compared_with_both_references_and_cut_by_its_gender():
    rows = pd.concat([gendered(2), ambiguous(2)])
    compared = pair_with_references(rows)
    german = compared[compared["lang"] == "deu_Latn"]
    assert len(german) == 8 and set(german["english_gender"]) == {"masculine", "feminine"}
    first = german[german["english"] == "masculine e0"]
    assert first["reference"].tolist() == ["masculine 0", "feminine 0"]
    french = compared[compared["lang"] == "fra_Latn"]
    assert len(french) == 6 and set(french["english_gender"]) == {"ambiguous"}
    rows = pd.concat([gendered(2), ambiguous(3).assign(lang="deu_Latn", sentence_id=lambda r: "a" + r["sentence_id"])])
    scores = score_all(pair_with_references(rows))
    counts = {score.group.get("english_gender"): score.n for score in scores if score.metric == "embedding_gap"}
    assert counts == {None: 5, "masculine": 2, "feminine": 2, "ambiguous": 3}


def test_with_gendered_english_agreement_of_gender_is_no_gap():
    """Vectors (meaning, gender): each version of the English is nearest to its own reference, and as much in both."""
    rows = gendered(3)
    texts = sorted(set(rows["english"]) | set(rows["reference"]))
    vectors = np.array([[1.0 + 0.1 * int(text[-1]), 0.3 if "feminine" in text else -0.3] for text in texts])
    scores = score_all(pair_with_references(rows), vectors)
    apart = find_score(scores, "embedding_gap", lang="deu_Latn", english_gender="masculine").value
    assert apart > 0.1
    assert find_score(scores, "embedding_gap", lang="deu_Latn", english_gender="feminine").value == pytest.approx(
        -apart
    )
    assert find_score(scores, "embedding_gap", lang="deu_Latn").value == pytest.approx(0.0, abs=1e-12)
    # Drawn towards masculine references, the mean of both says so.
    vectors[[text.startswith("feminine") and " e" not in text for text in texts], 1] += 0.5
    assert find_score(score_all(pair_with_references(rows), vectors), "embedding_gap", lang="deu_Latn").value > 0.05


def test_cosines_by_hand():
    rows = references(("1", "spa_Latn", "e", "masculine", "m"), ("1", "spa_Latn", "e", "feminine", "f"),
                      ("1", "spa_Latn", "e", "neutral", "n"), ("1", "spa_Latn", "e", "generic", "e"))  # fmt: skip
    vectors = np.array([[3, 4], [0, 2], [-6, -8], [0, 0]], dtype=np.float32)
    cosines = add_cosines(pair_with_references(rows), ["e", "m", "f", "n"], vectors)["cosine"].tolist()
    assert cosines[0] == pytest.approx(0.8) and cosines[1] == pytest.approx(-1.0) and cosines[3] == pytest.approx(1.0)
    assert math.isnan(cosines[2])
