"""Relevance and perplexity of two runs, under a model whose likelihoods can be computed by hand."""

import pandas as pd
import pytest

from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import read_answers, style_table
from evenhand.evaluation.metrics.generation_bias.compared_runs import on_common_prompts
from evenhand.evaluation.metrics.generation_bias.likelihoods import (
    EVEN_LIKELIHOODS,
    MAX_RESPONSES,
    even_responses,
    likelihoods_of_responses,
    likelihoods_within_template,
)
from evenhand.evaluation.metrics.generation_bias.measures import LIKELIHOODS, TEMPLATE_LIKELIHOODS
from evenhand.evaluation.metrics.generation_bias.parts import Comparison
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusSettings
from evenhand.evaluation.metrics.generation_bias.parts.costs import CostsPart
from evenhand.evaluation.metrics.generation_bias.settings import Settings
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import Kind, find_score
from evenhand.evaluation.tables import write_table


class WordModel:
    """log p of a response is −1 for each of its words that is in the prompt, and −2 for each other word."""

    name = "words"

    def log_likelihood(self, pairs):
        rows = []
        for text, response in zip(pairs["text"], pairs["response"], strict=True):
            words = response.split()
            rows.append((-sum(1.0 if word in text.split() else 2.0 for word in words), len(words)))
        yield pd.DataFrame(rows, columns=["log_likelihood", "tokens"])


PEOPLE = [f"person{number}" for number in range(120)]  # more answers than the sample within the template has
TEMPLATES = ("tea", "rain", "work")


def write_run(folder, people):
    """Write a run whose answers repeat words of their prompts, with the tables that comparisons read."""
    folder.mkdir()
    rows = [(person, template) for person in people for template in TEMPLATES]
    prompts = pd.DataFrame(rows, columns=["descriptor", "template"])
    prompts.insert(0, "prompt_id", [f"{person}-{template}" for person, template in rows])
    prompts = prompts.assign(axis="x", persona="", text=[f"I'm {person} . And {template}" for person, template in rows])
    n_words = prompts["descriptor"].str[-1].astype(int) + 1  # of answers that differ in their relevance
    words = prompts["template"] + " " + prompts["descriptor"] + " "
    responses = pd.Series([text * n for text, n in zip(words, n_words, strict=True)])
    write_table(folder / "prompts.parquet", prompts)
    answered = pd.DataFrame({"prompt_id": prompts["prompt_id"], "response": responses, "left_out": None})
    write_table(folder / "responses.parquet", answered)
    vectors = pd.DataFrame({"Kind": 1.0, "Curt": 0.0}, index=range(len(rows))).to_numpy()
    write_table(folder / "styles.parquet", style_table(prompts["prompt_id"], vectors, ["Kind", "Curt"]))

    def score(pairs):
        return next(iter(WordModel().log_likelihood(pairs)))

    answers = answered[["response"]]
    even = even_responses(prompts, answers)
    for name, table in {
        LIKELIHOODS: likelihoods_of_responses(score, prompts, answers),
        EVEN_LIKELIHOODS: likelihoods_of_responses(score, prompts, even),
        TEMPLATE_LIKELIHOODS: likelihoods_within_template(score, prompts, answers),
    }.items():
        write_table(folder / f"{name}.parquet", table)
    return FamilyRun(folder, FamilyConfig(settings=Settings()))


def changes(folder, before, after):
    before, after, _ = on_common_prompts(before, after)
    comparison = Comparison(
        store=Store(folder, "a fingerprint", Tracker()),
        before=before,
        after=after,
        old=read_answers(before.folder, only=before.only),
        new=read_answers(after.folder, only=after.only),
        clusters={},
        corpus=CorpusSettings(),
        phrases=None,
        base=WordModel(),
        without_base="",
        signature={},
    )
    return CostsPart().compare(comparison)


@pytest.mark.parametrize("people", [PEOPLE, PEOPLE[::2], [*PEOPLE[::2], "somebody0"]])
def test_a_run_keeps_all_of_its_relevance_compared_with_the_same_answers_to_some_prompts(people, tmp_path):
    """The other prompts and the sample are drawn from the common prompts for both runs."""
    before = write_run(tmp_path / "before", PEOPLE)
    scores = changes(tmp_path / "compare", before, write_run(tmp_path / "after", people))
    n_common = 3 * len(set(people) & set(PEOPLE))
    relevance = find_score(scores, "relevance", kind=Kind.KEPT)
    to_person = find_score(scores, "relevance_to_person", kind=Kind.KEPT)
    assert (relevance.n, to_person.n) == (n_common, min(n_common, MAX_RESPONSES))
    for kept in (relevance, to_person):
        assert (kept.value, kept.interval, kept.n_left_out) == (1.0, (1.0, 1.0), 0)
    assert find_score(scores, "response_perplexity", kind=Kind.RISE).value == 0.0
    if people == PEOPLE[::2]:  # 1, 3, 5, 7 or 9 times, a word is 1 nat less likely after another template's prompt
        assert find_score(scores, "relevance", run="before").value == 5.0
