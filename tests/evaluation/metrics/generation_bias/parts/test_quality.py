"""Costs by hand and by simulation: text quality, shares of clusters, relevance, even reference, style drift."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.data.language.reasoning import UNFINISHED_REASONING
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias import likelihoods as likelihood_tables
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.costs import (
    EVEN,
    cell_codes,
    retention_ratio,
)
from evenhand.evaluation.metrics.generation_bias.engine.quality import (
    perplexity_difference,
    perplexity_score,
    text_changes,
    text_scores,
)
from evenhand.evaluation.metrics.generation_bias.engine.style_means import style_drift, style_share
from evenhand.evaluation.metrics.generation_bias.likelihoods import (
    even_responses,
    likelihoods_within_template,
    other_prompts,
    sample_prompts,
)
from evenhand.evaluation.metrics.generation_bias.measures import LIKELIHOODS, TEMPLATE_LIKELIHOODS
from evenhand.evaluation.metrics.generation_bias.parts.costs import (
    even_reference,
    likelihood_changes,
    likelihood_levels,
)
from evenhand.evaluation.metrics.generation_bias.parts.quality import QualityPart
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.likelihood.tokens import response_perplexity
from evenhand.evaluation.score import find_score
from evenhand.evaluation.statistics.text_quality import (
    distinct_n,
    distinct_responses,
    occurs_once,
    repeat_prompts,
    repeats_prompt,
    word_counts,
)
from evenhand.evaluation.tables import join_batches, write_table
from tests.mitigation.tiny_dialogue import tiny_base
from tests.named_scores import find_named


def test_distinct_n_and_lengths_by_hand():
    responses = ["I see. I see!", "i SEE it"]
    # Words: i see i see · i see it. Distinct words: i, see, it of 7. Pairs: i see, see i, i see · i see, see it.
    assert distinct_n(responses, 1) == pytest.approx(3 / 7)
    assert distinct_n(responses, 2) == pytest.approx(3 / 5)
    # Threes: i see i, see i see · i see it.
    assert distinct_n(responses, 3) == 1
    assert distinct_n(responses * 2, 1) == pytest.approx(3 / 14)
    assert word_counts(["It's a well-known café, is it not?", "…", "один два"]).tolist() == [7, 0, 2]
    # Vowel signs, accents and joiners are parts of words: Hindi, Arabic, a decomposed é, Persian.
    assert word_counts(["हिन्दी में लिखो", "مُحَمَّد", "cafe\u0301 noir", "می\u200cخواهم"]).tolist() == [3, 1, 2, 1]
    assert math.isnan(distinct_n([], 1)) and math.isnan(distinct_n(["one", ""], 2))
    assert repeat_prompts([], []).shape == (0,)


@pytest.mark.parametrize(
    ("response", "repeats"),
    [
        ("I love deaf moms.", True),
        ("I love deaf moms!!", True),
        ("I love deaf moms. I really do.", False),
        ("love deaf moms.", False),
        ("", False),
        ("You said: I love deaf moms.", True),
        ("“I love deaf moms.”", True),
        ("So you are saying that I love deaf moms?", True),
        ("Dijiste: «I love deaf moms».", True),
        ("Yes, I love deaf moms.", False),  # it agrees
        ("I love deaf moms too!", False),
        ("You said: I love deaf moms. I am glad that you do, for I have one myself.", False),
        ("You said: my, I love deaf", False),
    ],
)
def test_repeating_or_quoting_the_prompt_is_parroting(response, repeats):
    assert repeats_prompt(response, "I love deaf moms.") is repeats


def test_a_prompt_without_words_or_an_empty_response_is_no_parroting():
    assert not repeats_prompt("You said: ...", "...") and not repeats_prompt("You said: x", "")
    assert not repeats_prompt("", "") and not repeats_prompt("!", "?")
    assert repeat_prompts(["a", "b.", "c"], ["A!", "b", "d"]).tolist() == [True, True, False]
    with pytest.raises(ValueError):
        repeat_prompts(["a"], [])


def test_distinct_responses_and_their_jackknife():
    responses = ["I see.", "i  see", "Oh?", "Me too.", "oh!", "Why"]
    assert distinct_responses(responses) == 4 / 6
    assert occurs_once(responses).tolist() == [False, False, False, True, False, True]
    assert math.isnan(distinct_responses([])) and occurs_once([]).tolist() == []
    rng = np.random.default_rng(0)
    draws = [rng.zipf(1.6, 400).astype(str).tolist() for _ in range(300)]
    error = np.sqrt(np.mean([occurs_once(each).var(ddof=1) / 400 for each in draws]))
    true = np.std([distinct_responses(each) for each in draws])
    assert true < error < 1.5 * true


def test_variety_has_no_interval_where_no_response_occurs_once():
    """The jackknife finds no error, but the variety of so few canned answers is not certain."""

    def styled(responses):
        table = pd.DataFrame({"response": responses, "text": "Hi.", "template": "t", "descriptor": list("ab") * 3})
        return Answers(table, np.full((6, 2), 0.5), ["x", "y"])

    canned = styled(["I see.", "Oh dear."] * 3)
    varied = styled(["I see.", "Oh dear.", "I see.", "Oh my.", "Why?", "I see."])
    variety = find_score(text_scores(canned), "distinct_responses")
    assert variety.value == 1 / 3 and variety.interval is None and variety.reason
    variety = find_score(text_scores(varied), "distinct_responses")
    assert variety.interval[0] < 4 / 6 < variety.interval[1] and variety.reason is None
    kept = {score.name: score for score in text_changes(canned, canned)}
    for name in ("distinct_responses_kept", "distinct_2_kept"):
        assert kept[name].value == 1 and kept[name].interval is None and kept[name].reason


VECTORS = np.array([[0.1, 0.2, 0.7], [0.3, 0.4, 0.3], [np.nan] * 3, [0.5, 0.1, 0.4]], dtype=np.float32)
CLUSTERS = {"HATE": (0, 1), "CARE": (2,)}


def test_shares_and_their_intervals():
    hate, care = style_share(VECTORS, CLUSTERS)
    # Sums 0.3, 0.7, 0.6: mean 1.6/3; deviations −7/30, 5/30, 2/30: variance (49 + 25 + 4)/900/2, of the mean a third.
    half = 4.302653 * math.sqrt(78 / 900 / 2 / 3)  # Student's t, two degrees of freedom
    assert (hate.metric, hate.group, hate.ideal, hate.bounds) == ("style_share", {"cluster": "HATE"}, None, (0.0, 1.0))
    assert hate.value == pytest.approx(1.6 / 3)
    assert hate.interval == pytest.approx((1.6 / 3 - half, 1.0), abs=1e-6)
    assert (hate.n, hate.n_left_out) == (3, 1)
    assert care.value == pytest.approx(1.4 / 3)
    rng = np.random.default_rng(0)
    vectors = rng.dirichlet(np.ones(5), 50)
    scores = style_share(vectors, {"a": (0, 3), "b": (1, 2, 4)})
    assert sum(score.value for score in scores) == pytest.approx(1)
    again = style_share(vectors[rng.permutation(50)], {"a": (0, 3), "b": (1, 2, 4)})
    assert [score.value for score in again] == pytest.approx([score.value for score in scores])
    low = style_share(np.array([[0.0, 1.0], [0.1, 0.9]]), {"HATE": (0,)})[0]
    assert low.interval[0] == 0
    one = style_share(VECTORS[:1], CLUSTERS)[0]
    assert one.interval is None and "interval" in one.reason
    none = style_share(VECTORS[2:3], CLUSTERS)[0]
    assert math.isnan(none.value) and none.reason and (none.n, none.n_left_out) == (0, 1)


def test_unfinished_reasoning_is_counted_without_a_reason_to_stop():
    table = grid(descriptors=2, templates=1, answers_per_cell=1).assign(
        response=["", "Hello."], left_out=[UNFINISHED_REASONING, None]
    )
    side = SimpleNamespace(responses=Answers(table, np.ones((2, 1)), ["kind"]))
    scores = QualityPart().common_levels(SimpleNamespace(clusters={}), side)
    assert find_score(scores, "unfinished_share").value == 0.5


def grid(descriptors=5, templates=4, answers_per_cell=3) -> pd.DataFrame:
    rows = [
        (f"d{d}", f"a{d % 2}", f"t{t}")
        for d in range(descriptors)
        for t in range(templates)
        for _ in range(answers_per_cell)
    ]
    prompts = pd.DataFrame(rows, columns=["descriptor", "axis", "template"])
    return prompts.assign(prompt_id=[f"p{row}" for row in range(len(rows))])


def likelihoods(own, other, tokens=1) -> pd.DataFrame:
    table = pd.DataFrame({"log_likelihood": own, "other_log_likelihood": other, "tokens": tokens}).astype(float)
    return table.assign(prompt_id=[f"p{row}" for row in range(len(table))])


def changes_of(prompts, before, after):
    return likelihood_changes(prompts, {LIKELIHOODS: before}, {LIKELIHOODS: after})


def test_the_other_prompt_has_the_descriptor_and_another_template():
    prompts = grid()
    other = other_prompts(prompts)
    for column, same in (("descriptor", True), ("axis", True), ("template", False)):
        values = prompts[column].to_numpy()
        assert ((values[other] == values) == same).all(), column
    again = prompts.sample(frac=1, random_state=0)
    pairs = pd.crosstab(prompts["template"], prompts["template"].to_numpy()[other])
    assert (np.diag(pairs) == 0).all() and (pairs.to_numpy().sum(axis=1) == 15).all()
    assert (pairs.to_numpy() + 15 * np.eye(4) > 0).all()  # all the others are drawn
    assert (other_prompts(again) >= 0).all()
    np.testing.assert_array_equal(other_prompts(prompts), other)
    prompts = pd.DataFrame({"descriptor": list("aaaab"), "axis": "x", "template": ["s", "s", "s", "t", "s"]})
    other = other_prompts(prompts)
    assert other[:3].tolist() == [3, 3, 3] and other[3] in (0, 1, 2) and other[4] == -1


def test_scores_by_hand():
    prompts = pd.DataFrame({"descriptor": "d", "axis": "a", "template": ["s", "s", "t", "t"]})
    prompts = prompts.assign(prompt_id=["p0", "p1", "p2", "p3"])
    table = likelihoods([-1.0, -2.0, -3.0, -4.0], [-2.0, -2.0, -3.0, math.nan], [2, 2, 1, 5])
    fit, perplexity = likelihood_levels(prompts, {LIKELIHOODS: table})
    assert (fit.metric, fit.value, fit.n, fit.n_left_out) == ("relevance", 1 / 3, 3, 1)
    assert perplexity.value == pytest.approx(math.exp(10 / 10)) and (perplexity.n, perplexity.n_left_out) == (4, 0)
    assert fit.signature == {} and fit.interval[0] < 1 / 3 < fit.interval[1]
    alone = likelihood_levels(prompts[:1], {LIKELIHOODS: table[:1].assign(other_log_likelihood=math.nan)})
    assert math.isnan(alone[0].value) and "template" in alone[0].reason and alone[1].interval is None


def test_changes_by_hand():
    prompts = grid(2, 2, 2)
    before = likelihoods([-1.0] * 8, [-3.0, -1.5] * 4, 2)
    after = likelihoods([-1.5] * 8, [-2.0, -2.0] * 4, 2)
    changes = changes_of(prompts, before, after)
    assert find_score(changes, "relevance", run="before").value == pytest.approx(1.25)
    assert find_score(changes, "relevance", kind="difference").value == pytest.approx(0.5 - 1.25)
    kept = find_score(changes, "relevance", kind="kept")
    assert kept.value == pytest.approx(0.4) and kept.interval[0] < 0.4 < kept.interval[1]
    assert find_score(changes, "response_perplexity", kind="rise").value == pytest.approx(math.exp(0.25) - 1)
    nothing = changes_of(prompts, before.assign(other_log_likelihood=-1.0), after)
    kept = find_score(nothing, "relevance", kind="kept")
    assert math.isnan(kept.value) and "relevance" in kept.reason


def test_intervals_cover_the_truth_over_new_responses_in_the_same_cells():
    rng, prompts = np.random.default_rng(0), grid(10, 5, 4)
    cells, n = cell_codes(prompts), len(prompts)
    effect = rng.normal(0.5, 0.5, 50)[cells]
    tokens = rng.integers(3, 9, n)
    held = {"relevance_kept": 0, "relevance_difference": 0, "response_perplexity_rise": 0}
    kept, rise = 0.8, math.exp(0.1 * n / tokens.sum()) - 1
    for _ in range(400):
        own = -2.0 * tokens + rng.normal(0, 1, n)
        other = own - effect - rng.normal(0, 1, n)
        new = own - 0.1 + rng.normal(0, 1, n)
        tables = likelihoods(own, other, tokens), likelihoods(new, new - kept * effect - rng.normal(0, 1, n), tokens)
        changes = changes_of(prompts, *tables)
        truth = {"relevance_kept": kept, "relevance_difference": (kept - 1) * effect.mean()}
        for metric, true in (truth | {"response_perplexity_rise": rise}).items():
            low, high = find_named(changes, metric).interval
            held[metric] += low <= true <= high
    assert all(0.92 <= count / 400 <= 0.98 for count in held.values()), held


def test_the_same_prompts_are_drawn_in_every_run():
    ids = [f"p{row}" for row in range(5000)]
    drawn = sample_prompts(ids, None, 10**8)
    assert drawn.sum() == 500 and sample_prompts(ids[:1000], None, 10**8).sum() == 300
    assert sample_prompts(ids[:300], None, 10**8).all() and sample_prompts(ids, None, 10**6).all()
    assert sample_prompts(ids, 0.5, 10**6).sum() == 2500 and sample_prompts(ids[:3], 0.1, 10**6).sum() == 1
    shuffled = np.random.default_rng(0).permutation(5000)
    again = sample_prompts([ids[row] for row in shuffled], None, 10**8)
    np.testing.assert_array_equal(drawn[shuffled], again)
    assert not (drawn & ~sample_prompts(ids, 0.2, 10**8)).any()  # a larger share keeps the prompts of a smaller one
    assert 2300 < np.flatnonzero(drawn).mean() < 2700  # neither the first prompts nor the last


def test_intervals_of_drawn_responses_cover_the_truth_over_all_prompts():
    rng, held = np.random.default_rng(1), {"relevance": 0, "relevance_kept": 0, "response_perplexity_rise": 0}
    prompts = grid(10, 5, 4)
    cells, n = cell_codes(prompts), len(prompts)
    effect = rng.normal(2.0, 1.0, 50)[cells]
    truth = {"relevance": effect.mean(), "relevance_kept": 0.8, "response_perplexity_rise": math.exp(0.1) - 1}
    for repeat in range(400):
        ids = [f"{repeat}-{row}" for row in range(n)]
        own = rng.normal(-3, 1, n)
        new = own - 0.1 + rng.normal(0, 0.3, n)
        before, after = (
            likelihoods(ll, ll - kept * effect - rng.normal(0, 1, n))[sample_prompts(ids, 0.25, 0)]
            for ll, kept in ((own, 1.0), (new, 0.8))
        )
        changes = changes_of(prompts, before, after)
        for metric, true in truth.items():
            run = {"run": "before"} if metric == "relevance" else {}
            low, high = find_named(changes, metric, **run).interval
            held[metric] += low <= true <= high
    assert all(0.92 <= count / 400 <= 0.99 for count in held.values()), held
    score = find_score(changes, "relevance", kind="kept")
    assert (score.n, score.n_left_out) == (50, 0)
    assert (score.signature["scored"]["responses"], score.signature["scored"]["of"]) == (50, 200)


def test_style_drift_is_unbiased_with_and_without_a_change():
    rng, cells = np.random.default_rng(0), np.arange(800) // 4
    base = rng.dirichlet(np.ones(20))
    moved = base + 0.15 * (np.eye(20)[0] - base)
    truth = np.abs(moved - base).sum() / 2
    for after, true in ((base, 0.0), (moved, truth)):
        found, plain, held = [], [], []
        for _ in range(150):
            old, new = (np.eye(20)[rng.choice(20, 800, p=p)] for p in (base, after))
            score = style_drift(old, new, cells)
            found.append(score.value)
            plain.append(np.abs(new.mean(axis=0) - old.mean(axis=0)).sum() / 2)
            held.append(score.interval[0] <= true <= score.interval[1])
        assert abs(np.mean(found) - true) < 0.02 < np.mean(plain) - true + 0.015, (true, np.mean(found))
        assert np.mean(held) > 0.9
    assert np.mean(plain) > truth


def test_style_drift_of_a_run_with_itself_is_0_and_empty_responses_are_left_out():
    vectors = np.random.default_rng(0).dirichlet(np.ones(3), 12)
    same = style_drift(vectors, vectors, np.arange(12) // 3)
    assert (same.value, same.n) == (0.0, 12) and same.interval == (0.0, 0.0)
    vectors[0] = np.nan
    assert style_drift(vectors, vectors, np.arange(12) // 3).n_left_out == 1
    nothing = style_drift(vectors[:1], vectors[:1], np.zeros(1, int))
    assert math.isnan(nothing.value) and nothing.reason


def people(n=40):
    codes = np.arange(n)
    return pd.DataFrame(
        {
            "prompt_id": [f"p{code}" for code in codes],
            "template": [f"t{code % 4}" for code in codes],
            "descriptor": [f"d{code // 8}" for code in codes],
            "axis": "x",
            "text": [f"{'abcd'[code % 4]} {['red', 'sun'][code // 8 % 2]}" for code in codes],
            "persona": "",
        }
    )


def test_a_sample_of_the_responses_is_scored_after_both_prompts(monkeypatch):
    monkeypatch.setattr(likelihood_tables, "MAX_RESPONSES", 10)
    table, base = people(), tiny_base()
    responses = ["red sun" if code % 3 else "sun" for code in range(len(table))]
    answers = pd.DataFrame({"response": responses})
    model = LoadedModel(ModelSettings(), tag="")
    model.engine = base

    def score(pairs):
        return join_batches(model.log_likelihood(pairs))

    scored = likelihoods_within_template(score, table, answers)
    assert len(scored) == 10 and scored["prompt_id"].is_unique
    place = {prompt_id: row for row, prompt_id in enumerate(table["prompt_id"])}
    for column, ids in (("log_likelihood", "prompt_id"), ("other_log_likelihood", "other_prompt_id")):
        contexts = render_contexts(base, [table["text"][place[it]] for it in scored[ids]], [""] * 10, "")
        expected = response_perplexity(base, contexts, [responses[place[it]] for it in scored["prompt_id"]])[0]
        assert scored[column].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    nobody = likelihoods_within_template(score, table.assign(descriptor="same"), answers)
    assert nobody.empty
    table = table.assign(axis="x")
    changes = likelihood_changes(table, {TEMPLATE_LIKELIHOODS: nobody}, {TEMPLATE_LIKELIHOODS: nobody})
    assert len(changes) == 4 and all("another descriptor" in it.reason for it in changes)


def test_numbers_that_never_vary_say_nothing_about_what_is_kept():
    """Three of five words are kept of every answer: 60 %, of which equal numbers tell no error."""
    kept = retention_ratio("length", np.full(8, 5.0), np.full(8, 3.0), np.arange(8) // 2, "none")
    assert kept.value == pytest.approx(0.6) and kept.interval is None and kept.reason


def test_the_share_kept_by_hand():
    def table(gain):
        return {TEMPLATE_LIKELIHOODS: likelihoods(-5.0, -5.0 - gain + np.tile([-0.1, 0.1], 20), 2)}

    scores = likelihood_changes(people(), table(2.0), table(1.5))
    named = {(it.name, it.group.get("run")): it for it in scores}
    assert set(named) == {
        *(("relevance_to_person", run) for run in ("before", "after")),
        ("relevance_to_person_difference", None),
        ("relevance_to_person_kept", None),
    }
    assert named["relevance_to_person_difference", None].value == pytest.approx(-0.5)
    assert named["relevance_to_person", "before"].value == pytest.approx(2.0)
    kept = named["relevance_to_person_kept", None]
    assert kept.value == pytest.approx(0.75) and kept.interval[0] < 0.75 < kept.interval[1]


DESCRIPTORS, TEMPLATES = ("deaf", "blind", "tall"), ("hi", "bye")


@pytest.fixture
def prompts():
    rows = [(t, d, f"{t} {d} {n}") for d in DESCRIPTORS for t in TEMPLATES for n in range(4)]
    frame = pd.DataFrame(rows, columns=["template", "descriptor", "prompt_id"])
    return frame.assign(axis="body", text=frame["template"], persona="")


def test_a_response_is_of_the_same_template_and_another_descriptor_and_names_its_own(prompts):
    responses = [f"{row.template}: Being {row.descriptor} is hard." for row in prompts.itertuples()]
    answers = pd.DataFrame({"response": responses})
    assert even_responses(prompts, answers).equals(answers)  # the donor's descriptor is rewritten to the receiver's
    numbers = pd.DataFrame({"response": [str(row) for row in range(len(prompts))]})
    donors = prompts.loc[[int(text) for text in even_responses(prompts, numbers)["response"]]]
    assert donors["template"].tolist() == prompts["template"].tolist()
    assert (donors["descriptor"].to_numpy() != prompts["descriptor"].to_numpy()).all()


def test_scores_are_changes_from_the_base_and_a_lone_descriptor_is_left_out(prompts):
    def table(gain, surprise):
        noise = np.random.default_rng(0).normal(0, 0.01, len(prompts))
        columns = {"log_likelihood": -surprise + noise, "other_log_likelihood": -surprise - gain, "tokens": 10}
        return prompts[["prompt_id"]].assign(**columns)

    scores = even_reference(prompts, table(2.0, 20.0), table(1.6, 21.0))
    assert {score.name: round(score.value, 2) for score in scores} == {
        "relevance_kept": 0.8,
        "response_perplexity_rise": round(np.exp(0.1) - 1, 2),
    }
    assert all((score.group, score.n, score.n_left_out) == (EVEN, 24, 0) for score in scores)
    alone = prompts.assign(template=prompts["template"].mask(prompts["descriptor"] == "deaf", "alone"))
    scores = even_reference(alone, table(2.0, 20.0), table(1.6, 21.0))
    assert {(score.n, score.n_left_out) for score in scores} == {(16, 8)}


def dialogues(surprise, tokens=10, text="Hi {}."):
    n = len(surprise)
    texts = [text.format(i) for i in range(n)]
    log_likelihood = -np.asarray(surprise, dtype=float)
    return pd.DataFrame({"text": texts, "response": "Yes.", "log_likelihood": log_likelihood, "tokens": tokens})


def test_perplexity_by_hand_and_without_an_interval_of_one_dialogue():
    """10 and 30 nats of 10 tokens each: e² a token, with standard error 1 of the rate, t = 12.7."""
    score = perplexity_score(dialogues([10, 30]))
    assert score.value == pytest.approx(math.e**2)
    assert score.interval == pytest.approx((1.0, math.exp(2 + 12.7062)), rel=1e-4)
    alone = perplexity_score(dialogues([20]))
    assert alone.value == pytest.approx(math.e**2) and alone.interval is None and "one dialogue" in alone.reason


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (dialogues([30, 31, 29], text="Hard {}."), "neutral dialogue"),
        (dialogues([20, 21, 19], tokens=5), "tokenizer"),
        (dialogues([21, 22, 21]), None),
    ],
)
def test_perplexities_of_other_dialogues_or_tokens_have_no_difference(tmp_path, after, reason):
    runs = []
    for name, table in (("before", dialogues([20, 21, 19])), ("after", after)):
        (tmp_path / name).mkdir()
        write_table(tmp_path / name / "neutral.parquet", table)
        runs.append(FamilyRun(tmp_path / name))
    (change,) = perplexity_difference(*runs)
    if reason is not None:
        assert math.isnan(change.value) and reason in change.reason
        return
    assert change.value == pytest.approx(math.exp(64 / 30) - math.exp(2))
    assert change.interval[0] < change.value < change.interval[1]
