"""`check` of screens: a divergence that grew for one person breaks it, and equal models pass."""

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.screen.divergences import DIVERGENCES, SCREENED, divergence_scores
from evenhand.evaluation.score import write_scores
from evenhand.evaluation.statistics.ranks import mean_intervals
from evenhand.recipes.check import check
from evenhand.recipes.check_screen import grown_divergences
from evenhand.recipes.command_settings import CheckSettings
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import ScreenSettings
from tests.testbed_settings import MODEL

TEMPLATES = 26


def screened(folder, rises):
    """A run of a screen, in which each of ten people has its divergence, and a rise."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    base = rng.uniform(0.1, 0.3, (10, TEMPLATES))
    noise = np.random.default_rng(len(str(folder))).normal(0, 0.01, base.shape) if any(rises) else 0
    values = base + np.array(rises)[:, None] + noise
    people = [f"person {n}" for n in range(10)]
    table = pd.DataFrame(values, index=people, columns=[f"t{n}" for n in range(TEMPLATES)])
    rows = (
        table.rename_axis("descriptor").reset_index().melt("descriptor", var_name="template", value_name="divergence")
    )
    rows = rows.assign(axis="x", own_words=0.0)
    rows.to_parquet(folder / f"{DIVERGENCES}.parquet")
    texts = rows["template"] + " " + rows["descriptor"]
    texts = texts.mask((rows["template"] == "t0") & (rows["descriptor"] == "person 0"), other=f"of {folder.name}")
    prompts = rows[["template", "descriptor"]].assign(text=texts, persona="")  # one prompt is of this run only
    prompts.to_parquet(folder / f"{SCREENED}.parquet")
    write_scores(folder / "scores.json", divergence_scores(rows, {"first_tokens": 1}))
    return FamilyRun(folder, FamilyConfig())


def test_the_person_whose_divergence_grew_is_named(tmp_path):
    before = screened(tmp_path / "before", [0.0] * 10)
    after = screened(tmp_path / "after", [0.0] * 4 + [0.1] + [0.0] * 5)
    found = grown_divergences(before, after)
    assert found.status == "broken"
    assert [detail.values["person"] for detail in found.details] == ["person 4"]
    assert found.measured.values["n"] == 1
    levels = []  # of the templates that are compared, which "t0" is not
    for run in (before, after):
        table = run.table(DIVERGENCES)
        levels.append(table.loc[table["template"] != "t0", "divergence"].mean())
    assert [found.measured.values[side].value for side in ("before", "after")] == pytest.approx(levels)
    assert found.measured.values["before"].n == TEMPLATES - 1
    assert grown_divergences(before, before).status == "holds"


def test_intervals_of_means_hold_together():
    """Of 200 data sets with ten true means of 0, at most 10 % have a mean outside its interval (aim: 5 %)."""
    rng = np.random.default_rng(1)
    wrong = 0
    for number in range(200):
        bounds = mean_intervals(rng.normal(size=(10, TEMPLATES)), seed=number)
        wrong += bool((bounds[:, 0] > 0).any() or (bounds[:, 1] < 0).any())
    assert 1 <= wrong <= 20


def test_check_reads_screens_and_refuses_limits_of_other_numbers(tmp_path):
    prompts = {"descriptors": 13, "filters": {"template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]}}
    for name in ("one", "two"):
        measure(ScreenSettings(model=MODEL, prompts=prompts, output_dir=tmp_path / name))
    settings = CheckSettings(run=tmp_path / "two", against=tmp_path / "one", output_dir=tmp_path / "check")
    assert check(settings) == 0
    assert (tmp_path / "check/junit.xml").exists()
    with pytest.raises(InputError, match="screen"):
        check(settings.replaced(max_rise=10.0))
    with pytest.raises(InputError, match="against"):
        check(settings.replaced(against=None))
