"""Relevance within the template: the other person's prompt, and the scores of two runs."""

from functools import partial

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.costs import template_relevance as within
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.loaded import LoadedModel
from evenhand.evaluation.settings import ModelSettings
from evenhand.evaluation.store import Store
from tests.mitigation.trainers.test_preference import tiny_base


def prompts(n=40):
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


def test_the_other_prompt_is_another_person_with_the_same_template():
    table = prompts()
    others = within.other_people(table)
    assert (table["template"].to_numpy()[others] == table["template"]).all()
    assert (table["descriptor"].to_numpy()[others] != table["descriptor"]).all()
    assert (within.other_people(table) == others).all() and len(set(others)) > 15
    assert (within.other_people(table.assign(descriptor="same")) == -1).all()


def test_a_sample_of_the_responses_is_scored_after_both_prompts(tmp_path, monkeypatch):
    monkeypatch.setattr(within, "MAX_RESPONSES", 10)
    table, base = prompts(), tiny_base()
    responses = ["red sun" if code % 3 else "sun" for code in range(len(table))]
    run = Store(tmp_path, "", None)
    model = LoadedModel(ModelSettings(), tag="")
    model.engine = base
    scored = within.likelihoods_within_template(partial(model.log_likelihood, run=run), table, responses)
    assert len(scored) == 10 and scored["prompt_id"].is_unique
    place = {prompt_id: row for row, prompt_id in enumerate(table["prompt_id"])}
    for column, ids in (("log_likelihood", "prompt_id"), ("other_log_likelihood", "other_prompt_id")):
        contexts = render_contexts(base, [table["text"][place[it]] for it in scored[ids]], [""] * 10, "")
        expected = response_perplexity(base, contexts, [responses[place[it]] for it in scored["prompt_id"]])[0]
        assert scored[column].tolist() == pytest.approx(expected.tolist(), abs=1e-5)
    alone = partial(model.log_likelihood, run=Store(tmp_path / "alone", "", None))
    nobody = within.likelihoods_within_template(alone, table.assign(descriptor="same"), responses)
    assert nobody.empty
    assert {it.reason for it in within.template_relevance(nobody, nobody, {})} == {within.NO_OTHER_PERSON}


def test_the_share_kept_by_hand():
    def likelihoods(gain):
        noise = np.tile([-0.1, 0.1], 20)
        return pd.DataFrame({"log_likelihood": -5.0, "other_log_likelihood": -5.0 - gain + noise, "tokens": 2})

    scores = within.template_relevance(likelihoods(2.0), likelihoods(1.5), {})
    named = {(it.metric, it.group.get("run")): it for it in scores}
    assert set(named) == {
        *(("relevance_within_template", run) for run in ("before", "after")),
        ("relevance_within_template_kept", None),
    }
    assert named["relevance_within_template", "before"].value == pytest.approx(2.0)
    kept = named["relevance_within_template_kept", None]
    assert kept.value == pytest.approx(0.75) and kept.interval[0] < 0.75 < kept.interval[1]
