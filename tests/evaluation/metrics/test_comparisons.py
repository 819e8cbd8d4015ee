"""Every family that compares two runs: after = before + change, whatever rows the runs have and in whatever order."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.joins import join_rows
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun, load_family, names, with_common_levels
from evenhand.evaluation.metrics.answer_accuracy import accuracy_scores, question_codes
from evenhand.evaluation.metrics.bbq import bbq_scores
from evenhand.evaluation.metrics.likelihood_bias import PREFERENCE
from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import compute_surprisals
from evenhand.evaluation.metrics.likelihood_bias.metric import likelihood_bias
from evenhand.evaluation.metrics.screen.divergences import divergence_scores, ranks_of_people
from evenhand.evaluation.metrics.sentence_pairs.metric import (
    make_causal_pair_table,
    make_masked_pair_table,
    pair_scores,
)
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.prompt_settings import SentenceSettings
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.score import Kind, find_score, write_scores
from evenhand.evaluation.statistics.gender import gender_differences, gender_scores
from evenhand.evaluation.tables import write_table
from tests.family_runs import compare_family


def pairs(rng, numbers):
    """Pairs of the given numbers, of two bias types."""
    types = ["age" if number % 3 else "gender" for number in numbers]
    ids = [f"p{number:03}" for number in numbers]
    return pd.DataFrame({"pair_id": ids, "bias_type": types, "direction": "stereo", "more": "m", "less": "l"})


def causal_pairs(rng, numbers):
    """Pairs of a causal model, of which a tenth has no likelihood."""
    n = len(numbers)
    likelihood = rng.normal(-10, 2, 2 * n)
    likelihood[rng.random(2 * n) < 0.05] = -np.inf
    table = make_causal_pair_table(pairs(rng, numbers), likelihood, np.full(2 * n, 5)).assign(variant="v")
    return {"pairs": table}, pair_scores(table, seed=0)


def masked_pairs(rng, numbers):
    """Pairs of a masked model with three shared tokens each, of which a few have no probability."""
    n = len(numbers)
    log_p = np.log(rng.uniform(0.01, 0.9, 6 * n))
    log_p[rng.random(6 * n) < 0.02] = np.nan
    correct = rng.random(6 * n) < 0.5
    aul = rng.normal(size=(2, 2 * n))
    table = make_masked_pair_table(pairs(rng, numbers), [["a", "b", "c"]] * n, log_p, correct, aul[0], aul[1])
    return {"pairs": table.assign(variant="v")}, pair_scores(table, seed=0)


def likelihoods(rng, numbers):
    """Sentences with feminine and masculine nouns about seven descriptors, of which a few have no likelihood."""
    rows = []
    for number in numbers:
        gender = "female" if number % 2 else "male"
        rows += [("age", f"t{number % 3}", f"d{d}", f"n{number}", gender, rng.normal(-30 - d, 2), 10) for d in range(7)]
    columns = ["axis", "template", "descriptor", "noun", "noun_gender", "log_likelihood", "n_tokens"]
    table = pd.DataFrame(rows, columns=columns).assign(variant="v")
    table.loc[rng.random(len(table)) < 0.05, "log_likelihood"] = np.nan
    differences = gender_differences(table, compute_surprisals(table)["surprisal"])
    genders = gender_scores(PREFERENCE, differences, 0, (-np.inf, np.inf))
    return {"likelihoods": table}, [*likelihood_bias(table), *genders]


def answers(rng, numbers):
    """Answers to questions by five people, of which a few are unknown."""
    rows = [(f"{d}-{q}", f"cue: q{q}", d, "a", f"q{q}", "x", "y", 0) for d in "abcde" for q in numbers]
    columns = ["prompt_id", "template", "descriptor", "axis", "goal", "sol1", "sol2", "label"]
    correct = np.where(rng.random(len(rows)) < 0.1, np.nan, rng.random(len(rows)) < 0.6)
    table = pd.DataFrame(rows, columns=columns).assign(correct=correct)
    return {"answers": table}, accuracy_scores(table, question_codes(table), 0, 0, {})[0]


def divergences(rng, numbers):
    """Divergences of five people at a template of each number, of which a few were not screened."""
    numbers = [number for number in numbers if rng.random() < 0.9]
    rows = [(f"t{number}", "ab"[d % 2], f"d{d}", *rng.uniform(0, 0.5, 2)) for number in numbers for d in range(5)]
    table = pd.DataFrame(rows, columns=["template", "axis", "descriptor", "divergence", "own_words"])
    tokens = pd.DataFrame(columns=["descriptor", "token", "probability", "mean_probability", "contribution"])
    prompts = table[["template", "descriptor"]].assign(text=table["template"] + table["descriptor"], persona="")
    tables = {"divergences": table, "screened_prompts": prompts, "ranks": ranks_of_people(table, 0)}
    tables["first_tokens"] = tokens
    return tables, divergence_scores(table, {})


def questions(rng, numbers):
    """Answers to BBQ's questions of six templates in two categories; each run lacks a few."""
    rows = []
    for number in numbers:
        if rng.random() < 0.9:
            condition = ("ambig", "disambig")[number % 2]
            named = float(rng.random() < 0.7)
            category = ("Age", "SES")[number % 3 == 0]
            correct = float(rng.random() < 0.5)
            rows.append((str(number), category, str(number % 6), "neg", condition, correct, named * correct, named))
    columns = ["example_id", "category", "question_index", "question_polarity", "context_condition"]
    table = pd.DataFrame(rows, columns=[*columns, "correct", "biased", "named"])
    table = table.assign(context=table["example_id"] + " met.", question="Who?")
    return {"questions": table}, bbq_scores(table, {})


FAMILIES = {
    "sentence_pairs": (causal_pairs, masked_pairs),
    "likelihood_bias": (likelihoods,),
    "answer_accuracy": (answers,),
    "screen": (divergences,),
    "bbq": (questions,),
}
CASES = [(name, make) for name, makes in FAMILIES.items() for make in makes]


def finished_run(folder, name, make, seed, numbers):
    """A run of a family with the rows of these numbers, in random order."""
    rng = np.random.default_rng(seed)
    tables, scores = make(rng, list(numbers))
    folder.mkdir()
    for table, rows in tables.items():
        write_table(folder / f"{table}.parquet", rows.sample(frac=1, random_state=seed))
    write_scores(folder / "scores.json", scores)
    settings = load_family(name).Settings()
    config = FamilyConfig(model=ModelSettings(name=folder.name), settings=settings, sentences=SentenceSettings())
    return FamilyRun(folder, config)


def test_every_family_that_compares_is_tested():
    comparable = {name for name in names() if load_family(name).compare is not None}
    assert comparable == {*FAMILIES, "generation_bias"}  # which tests/…/generation_bias/test_comparison.py tests


@pytest.mark.parametrize("rows_after", [range(45), range(15, 60)], ids=["reordered", "other rows"])
@pytest.mark.parametrize("name, make", CASES, ids=[make.__name__ for _, make in CASES])
def test_after_is_before_plus_the_change(name, make, rows_after, tmp_path):
    before = finished_run(tmp_path / "old", name, make, 1, range(45))
    after = finished_run(tmp_path / "new", name, make, 2, rows_after)
    changes = compare_family(tmp_path / "compared", name, before, after)
    sides = {"before": before, "after": after}
    levels = {side: with_common_levels(run, changes.scores, side).scores for side, run in sides.items()}
    differences = [score for score in changes.scores if score.kind == Kind.DIFFERENCE]
    assert differences
    for change in differences:
        old, new = (find_score(levels[side], change.metric, change.form, **change.group) for side in sides)
        if np.isnan(change.value):
            assert np.isnan(old.value) or np.isnan(new.value)
            continue
        assert new.value == pytest.approx(old.value + change.value, abs=1e-9)
        assert old.n == new.n == change.n
        assert old.n_left_out == new.n_left_out == change.n_left_out
    page = load_family(name)().comparison_page(before, after, changes)
    assert page.explanations and page_html(page)


@pytest.mark.parametrize("name, make", CASES, ids=[make.__name__ for _, make in CASES])
def test_runs_without_a_common_row_are_not_compared(name, make, tmp_path):
    before = finished_run(tmp_path / "old", name, make, 1, range(0, 9))
    after = finished_run(tmp_path / "new", name, make, 2, range(9, 18))
    with pytest.raises(InputError, match="^after: "):
        compare_family(tmp_path / "compared", name, before, after)


def test_nats_per_token_of_another_tokenizer_have_no_difference(tmp_path):
    def of(n_tokens):
        def make(rng, numbers):
            tables, scores = likelihoods(rng, numbers)
            return {"likelihoods": tables["likelihoods"].assign(n_tokens=n_tokens)}, scores

        return make

    before = finished_run(tmp_path / "old", "likelihood_bias", of(10), 1, range(9))
    after = finished_run(tmp_path / "new", "likelihood_bias", of(11), 2, range(9))
    changes = compare_family(tmp_path / "compared", "likelihood_bias", before, after).scores
    change = find_score(changes, PREFERENCE, kind=Kind.DIFFERENCE)
    assert np.isnan(change.value) and change.interval is None and "tokenization" in change.reason
    assert np.isfinite(find_score(changes, "likelihood_bias", kind=Kind.DIFFERENCE).value)  # ranks of one model


def test_a_repeated_key_is_joined_by_its_repetition():
    """The second answer to p of one run belongs to the second of the other; the third has no partner."""
    old = pd.DataFrame({"prompt_id": ["q", "p", "p", "p"], "answer": ["q1", "p1", "p2", "p3"]})
    new = pd.DataFrame({"prompt_id": ["p", "p", "q"], "answer": ["P1", "P2", "Q1"]})
    joined = join_rows(old, new, ["prompt_id"], "prompts")
    assert joined.before["answer"].tolist() == ["q1", "p1", "p2"]
    assert joined.after["answer"].tolist() == ["Q1", "P1", "P2"]
    assert joined.alone["answer"].tolist() == ["p3"]
    assert joined.is_common().tolist() == [True, True, True, False]


def test_pairs_of_one_id_with_other_sentences_have_a_caution(tmp_path):
    """Files without ids number their pairs, so that two files have the same ids for other pairs."""

    def of(sentence):
        def make(rng, numbers):
            tables, scores = causal_pairs(rng, numbers)
            return {"pairs": tables["pairs"].assign(more=sentence)}, scores

        return make

    before = finished_run(tmp_path / "old", "sentence_pairs", of("m"), 1, range(9))
    facts = []
    for name in ("m", "another"):
        after = finished_run(tmp_path / name, "sentence_pairs", of(name), 2, range(9))
        changes = compare_family(tmp_path / f"compared {name}", "sentence_pairs", before, after)
        facts.append(load_family("sentence_pairs")().comparison_facts(before, after, changes))
    assert [caution.kind for caution in facts[0].cautions] == []
    assert facts[1].cautions[0].kind == "other_sentences" and facts[1].cautions[0].values == {"n_other": 9, "n": 9}


def test_a_page_shows_levels_of_the_pairs_of_the_change(tmp_path):
    """Pairs 0 to 9 are stereotyped, 10 to 14 not; each model has the same likelihoods, of other pairs."""

    def of(rng, numbers):
        more = [-1.0 if number < 10 else -3.0 for number in numbers]
        likelihood = np.concatenate([more, np.full(len(numbers), -2.0)])
        table = make_causal_pair_table(pairs(rng, numbers), likelihood, np.full(2 * len(numbers), 5))
        return {"pairs": table.assign(variant="v")}, pair_scores(table, seed=0)

    before = finished_run(tmp_path / "old", "sentence_pairs", of, 1, range(10))
    after = finished_run(tmp_path / "new", "sentence_pairs", of, 2, range(5, 15))
    changes = compare_family(tmp_path / "compared", "sentence_pairs", before, after)
    page = load_family("sentence_pairs")().comparison_page(before, after, changes)
    cells = page.sections[0].tables[0].rows[0].cells
    assert [cell.text for cell in cells[:3]] == ["100.0", "100.0", "0.0"]
    assert "5 " in page.explanations[0] and "10 " in page.explanations[0]
