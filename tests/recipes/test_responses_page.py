"""The page of all responses of a comparison has both answers to each prompt, whatever prompts the runs have."""

import re

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.metrics.generation_bias.answers import style_table
from evenhand.evaluation.tables import write_table
from evenhand.recipes.measure import write_responses

PEOPLE = ("deaf", "old", "tall")


def write_run(folder, templates, order):
    """A run that answers each prompt with its text and the name of the run."""
    rows = [(f"{d} {t}", d, "axis", t, f"I'm {d} {t}.") for d in PEOPLE for t in templates]
    prompts = pd.DataFrame(rows, columns=["prompt_id", "descriptor", "axis", "template", "text"]).assign(persona="")
    prompts = prompts.sample(frac=1, random_state=order, ignore_index=True)
    responses = prompts[["prompt_id"]].assign(response=f"{folder.name}: " + prompts["text"], left_out=None)
    vectors = np.random.default_rng(order).dirichlet(np.ones(2), len(prompts))
    folder.mkdir()
    tables = {"prompts": prompts, "responses": responses}
    tables["styles"] = style_table(prompts["prompt_id"], vectors, ["Kind", "Curt"])
    for name, table in tables.items():
        write_table(folder / f"{name}.parquet", table)
    return folder


@pytest.mark.parametrize("templates", [range(9), range(4, 13), range(3)], ids=["reordered", "other", "fewer"])
def test_each_row_has_both_answers_to_its_prompt(templates, tmp_path):
    before = write_run(tmp_path / "before", range(9), order=1)
    after = write_run(tmp_path / "after", templates, order=2)
    html = write_responses(tmp_path, "two models", before, after).read_text()
    rows = html.split('<p class="prompt"><bdi>')[1:]
    assert len(rows) == len(PEOPLE) * len(set(templates) & set(range(9)))
    for row in rows:
        text = row.partition("</bdi>")[0]
        answers = re.findall(r'<p class="answer" dir="auto">(.*?)</p>', row)
        assert answers == [f"before: {text}", f"after: {text}"]
    n_all = len(PEOPLE) * len({*templates, *range(9)})
    assert (f"of {n_all} prompts" in html) == (len(rows) < n_all)
