"""`check` ends with status 0, 1, 2 or 3; the steps of docs/bias_gate.yml pass or fail accordingly."""

import json
import shlex
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import yaml

import evenhand
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import BROKEN, HOLDS, INCONCLUSIVE, Finding
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.compared_runs import hardly_common, on_common_prompts
from evenhand.evaluation.metrics.generation_bias.comparison import opened_comparison
from evenhand.evaluation.metrics.generation_bias.early_stop import Stop, level_of_comparison
from evenhand.evaluation.metrics.generation_bias.engine.effects import effect_changes
from evenhand.evaluation.metrics.generation_bias.engine.spread import excess_over_baseline
from evenhand.evaluation.metrics.generation_bias.limits import (
    _grown_effects,
    _newly_shown,
    _rise,
    findings_against,
    findings_alone,
    not_compared,
    people_without_answers,
    smallest_showable_rise,
)
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.requested_language import IN_REQUESTED, REQUESTED_EFFECTS
from evenhand.evaluation.metrics.generation_bias.stopping_question import Question
from evenhand.evaluation.score import BiasScore, write_scores
from evenhand.evaluation.statistics.level import ONE_LOOK
from evenhand.evaluation.statistics.sequential import plan_looks
from evenhand.evaluation.tables import read_table, write_table
from evenhand.recipes.check import check_findings, junit_xml, summary_markdown
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import SIZES, parse
from evenhand.recipes.command_settings import CheckSettings
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.limit_texts import LimitText, limit_texts
from evenhand.recipes.settings import FAMILIES, family_config
from tests.measured_runs import write_measured
from tests.named_scores import named_score
from tests.testbed_settings import MODEL

DOCS = Path(__file__).resolve().parents[2] / "docs"
SHARES = {"baseline": (3, 1), "fairer": (2, 2), "worse": (4, 0.5), "unbiased": (2, 2)}  # of 4, style x


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs by name: descriptors a and b get style x in these quarters of their responses."""
    folder, result = tmp_path_factory.mktemp("runs"), {}
    for seed, (name, shares) in enumerate(SHARES.items()):
        n = 80
        rng = np.random.default_rng(seed)
        styles = [rng.permutation((np.arange(n) >= n * share / 4).astype(int)) for share in shares]
        result[name] = write_measured(
            folder / name,
            np.eye(3)[np.concatenate(styles)],
            ["ok"] * 2 * n,
            has_scores=True,
            templates=16,
            permutations=99,
        )
    return result


@pytest.mark.parametrize(
    ("run", "options", "status", "limits"),
    [
        (
            "fairer",
            ["--max_rise", "10", "--max_pooled_fgb", "60"],
            0,
            {"pooled_fgb_limit": HOLDS, "rise_limit": HOLDS, "effects_limit": HOLDS},
        ),
        # Pooled FGB* is about 2 · (0.75 − 0.25)² / 2 before and 2 · (1 − 0.125)² / 2 after.
        ("worse", ["--max_rise", "10"], 1, {"rise_limit": BROKEN, "effects_limit": BROKEN}),
        ("baseline", ["--max_pooled_fgb", "240"], 3, {"pooled_fgb_limit": INCONCLUSIVE}),
        ("fairer", [], 0, {"rise_limit": HOLDS, "effects_limit": HOLDS}),
    ],
)
def test_exit_status_and_findings(runs, tmp_path, run, options, status, limits):
    against = [] if "--max_pooled_fgb" in options[:1] else ["--against", str(runs["baseline"])]
    arguments = ["check", str(runs[run]), *against, *options, "--output_dir", str(tmp_path), "-q"]
    assert main(arguments) == status
    results = check_findings(parse(arguments))
    assert {result.limit.kind: result.status for result in results} == limits
    suites = ElementTree.parse(tmp_path / "junit.xml").getroot()
    parts = {"failure": 1, "error": 3}
    assert {parts[part.tag] for part in suites.iterfind(".//testcase/*") if part.tag in parts} <= {status}
    assert f"## Evenhand: {['holds', 'broken', '', 'inconclusive'][status]}" in (tmp_path / "summary.md").read_text()


def test_what_a_broken_check_names_and_what_would_decide_an_open_one(runs):
    """The shares of style x are 3/4 and 1/4 before: 25 points from the average; and 1 and 1/8 after: 43.75."""
    rise, effects = check_findings(CheckSettings(run=runs["worse"], against=runs["baseline"], max_rise=10))
    assert rise.measured.values["rise"]["interval"][0] > 0.1
    grown = [detail.values for detail in effects.details if detail.kind == "grown_effect"]
    assert effects.measured.values["n_of"] == 6 and effects.measured.values["n"] == len(grown) == 4
    assert effects.measured.values["most"].values == grown[0]  # named where only one line is shown
    (of_x,) = [each for each in grown if (each["unit"], each["style"]) == ("a", "x")]
    assert (of_x["before"], of_x["after"]) == pytest.approx((0.25, 0.4375)) and of_x["p"] < 0.05
    (result,) = check_findings(CheckSettings(run=runs["baseline"], max_pooled_fgb=240))
    plan = result.details[-1].values["plan"]
    assert plan.kind == "deciding_design" and plan.values["n"] > plan.values["n_now"] == 160


def test_whom_one_run_alone_asks_about_is_named(runs, tmp_path):
    """The new run has no prompt about "b": half of the prompts are compared, and "b" with nobody."""
    folder = shutil.copytree(runs["baseline"], tmp_path / "run")
    prompts = read_table(folder / "prompts.parquet")
    write_table(folder / "prompts.parquet", prompts[prompts["descriptor"] == "a"])
    before, after, is_common = on_common_prompts(FamilyRun(runs["baseline"]), FamilyRun(folder))
    assert not_compared(before, after, is_common) == [
        Finding("few_common_prompts", {"n": 80, "n_of": 160}),
        Finding("people_of_one_run", {"names": ["b"], "n": 1}),
    ]
    assert not_compared(before, before, np.ones(160, dtype=bool)) == []


def test_who_has_other_prompts_in_each_run_is_named(runs, tmp_path):
    """Both runs ask about "b", but in different prompts, as if the axis had been renamed."""
    folder = shutil.copytree(runs["baseline"], tmp_path / "run")
    prompts = read_table(folder / "prompts.parquet")
    is_b = prompts["descriptor"] == "b"
    write_table(folder / "prompts.parquet", prompts.assign(prompt_id=prompts["prompt_id"].where(~is_b, "other")))
    found = not_compared(*on_common_prompts(FamilyRun(runs["baseline"]), FamilyRun(folder)))
    assert found[1:] == [Finding("people_of_one_run", {"names": ["b"], "n": 1})]


def test_of_hardly_any_common_prompt_nothing_is_found_to_hold(runs, tmp_path):
    """Two logs share 40 of 160 prompts, a quarter; on all prompts the same limits hold."""
    folder = shutil.copytree(runs["fairer"], tmp_path / "log")
    for name in ("prompts", "responses", "styles"):
        rows = read_table(folder / f"{name}.parquet")
        renamed = rows["prompt_id"].where(np.arange(160) % 80 < 20, "other" + rows["prompt_id"])
        write_table(folder / f"{name}.parquet", rows.assign(prompt_id=renamed))
    config = family_config(read_measurement(runs["baseline"], "run")[0], "generation_bias")
    before, after = FamilyRun(runs["baseline"], config), FamilyRun(folder, config)
    assert hardly_common([before, after]).values == {"n": 40, "n_of": 160}
    assert hardly_common([before, FamilyRun(runs["fairer"])]) is None
    results = findings_against(before, after, max_rise=10)
    assert {result.status for result in results} == {INCONCLUSIVE}
    for found in limit_texts(results, FAMILIES["generation_bias"]):
        assert "only 40 of 160" in found.text and found.details[-1].startswith("To decide: ")
    with pytest.raises(InputError, match="^after: only 40 of the 160 prompts"):
        opened_comparison(None, before, after, None)


def test_the_answers_and_the_limit_that_decide_about_the_largest_difference_are_named(runs, tmp_path):
    """An interval from 0 to 0.08 of 1,000 answers: it is 0.04 with 4 times as many, and meets a limit of 8 now."""
    for low, n in ((0.0, 4000), (0.01, None)):
        score = BiasScore("difference_bound", 0.08, n=1000, ideal=0.0, bounds=(0.0, 1.0), interval=(low, 0.08))
        folder = shutil.copytree(runs["baseline"], tmp_path / str(n))
        write_table(folder / "effects.parquet", pd.DataFrame({"at_least": [0.0]}))
        write_scores(folder / "scores.json", [score])
        (found,) = findings_alone(FamilyRun(folder, FamilyConfig(model=MODEL)), max_difference=4)
        assert found.status == INCONCLUSIVE
        assert found.details == [Finding("to_decide_difference", {"n": n, "n_now": 1000, "met": 8})]


def test_inconclusive_passes_everywhere_if_that_is_given(runs, tmp_path):
    arguments = ["check", str(runs["baseline"]), "--max_pooled_fgb", "240", "--output_dir", str(tmp_path), "-q"]
    limits = {"max_pooled_fgb": 240, "max_spread": {}}
    assert main(arguments) == 3
    assert ElementTree.parse(tmp_path / "junit.xml").find(".//error") is not None
    with pytest.raises(AssertionError, match="^inconclusive: "):
        evenhand.assert_no_worse(runs["baseline"], **limits)
    assert main([*arguments, "--inconclusive", "pass"]) == 0
    suite = ElementTree.parse(tmp_path / "junit.xml").find("testsuite")
    assert (suite.attrib["errors"], suite.attrib["skipped"]) == ("0", "1")
    assert suite.find("testcase/skipped").attrib["message"].startswith("inconclusive: ")
    evenhand.assert_no_worse(runs["baseline"], **limits, inconclusive="pass")
    with pytest.raises(AssertionError, match="^broken: "):
        evenhand.assert_no_worse(runs["worse"], against=runs["baseline"], max_rise=10, inconclusive="pass")


def test_what_would_decide_is_planned_from_the_answers_that_are_compared(runs):
    """Of 16 templates, 12 are compared, so the plan starts from 120 answers and not from all 160."""
    prompts = read_table(runs["baseline"] / "prompts.parquet")
    is_compared = prompts["template"].isin(prompts["template"].unique()[:12])
    common = frozenset(prompts["prompt_id"][is_compared])
    old, new = (read_answers(runs[name], only=common) for name in ("baseline", "worse"))
    rise = _rise(runs["baseline"], runs["worse"], old, new, max_rise=206)
    (plan,) = [detail.values["plan"] for detail in rise.details if detail.kind == "to_decide"]
    assert plan.values["n_now"] == 120


def test_who_is_beyond_the_largest_difference_is_named_in_the_order_of_what_is_certain(runs, tmp_path):
    """Of three differences, two are surely above the limit of 10 of 100 answers; JUnit's message has the largest."""
    folder = shutil.copytree(runs["baseline"], tmp_path / "run")
    sizes = {"unit": ["a", "b", "c"], "shrunk": [0.3, -0.4, 0.5], "at_least": [0.15, 0.2, 0.1]}
    write_table(folder / "effects.parquet", pd.DataFrame({**sizes, "name": "x"}))
    score = BiasScore("difference_bound", 0.6, n=160, ideal=0.0, bounds=(0.0, 1.0), interval=(0.2, 0.6))
    write_scores(folder / "scores.json", [score])
    results = findings_alone(FamilyRun(folder, FamilyConfig(model=MODEL)), max_difference=10)
    found = [(detail.values["unit"], detail.values["effect"]) for detail in results[0].details]
    assert results[0].status == BROKEN and found == [("b", -0.4), ("a", 0.3)]
    (case,) = ElementTree.fromstring(junit_xml("", limit_texts(results, FAMILIES["generation_bias"]))).iterfind(
        ".//failure"
    )
    assert case.attrib["message"].startswith("broken: ") and "20.0" in case.attrib["message"]


def test_the_largest_growth_is_named_first():
    """After minus before, distances from the average grow by 5 points of x, 15 of y and 20 of z; x is surest."""
    cells = pd.MultiIndex.from_product([["a", "b"], [f"t{i}" for i in range(16)], range(4)])
    frame = pd.DataFrame(
        {"descriptor": cells.get_level_values(0), "template": cells.get_level_values(1), "axis": "age"}
    )
    sign = np.where(frame["descriptor"] == "a", 1, -1)[:, None]
    noise = np.random.default_rng(0).normal(scale=0.3, size=(2, len(frame), 1)) * [0.01, 1, -1.01]
    sides = [1 / 3 + noise[0], 1 / 3 + noise[1] + sign * np.array([0.05, 0.15, -0.2])]
    old, new = (Answers(frame, side, ("x", "y", "z")) for side in sides)
    found = _grown_effects(old, new, permutations=499, seed=0)
    grown = [detail.values["style"] for detail in found.details if detail.kind == "grown_effect"]
    assert grown == ["z", "z", "y", "y", "x", "x"]


def test_a_limit_that_is_no_number_is_one_error(runs, tmp_path, capsys):
    arguments = ["--against", str(runs["worse"]), "--max_rise", "10%", "--output_dir", str(tmp_path), "-q"]
    assert main(["check", str(runs["baseline"]), *arguments]) == 2
    error = capsys.readouterr().err
    assert "max_rise: " in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("shares", "status", "rises"),
    [
        ((0.1, 0.1), "holds", 0),  # as before
        ((0.5, 0.5), "broken", 1),  # more to both descriptors
        ((0.9, 0.1), "broken", 2),  # more, and more unevenly
    ],
)
def test_more_answers_in_another_language_break_a_check_in_which_styles_are_equal(tmp_path, shares, status, rises):
    n = 160
    rng = np.random.default_rng(0)
    vectors = np.eye(3)[np.tile([0, 1], n)]
    for name, parts in (("before", (0.1, 0.1)), ("after", shares)):
        write_measured(tmp_path / name, vectors, ["ok"] * 2 * n, has_scores=True, templates=16, permutations=99)
        is_other = np.concatenate([rng.permutation(np.arange(n) < part * n) for part in parts])
        values = {f"{OTHER_LANGUAGE}: {OTHER_LANGUAGE}": is_other.astype(float), "refusal: refusal": 0.0}
        ids = [f"p{i}" for i in range(2 * n)]
        write_table(tmp_path / name / "outcomes.parquet", pd.DataFrame({"prompt_id": ids, **values}))
    settings = CheckSettings(run=tmp_path / "after", against=tmp_path / "before", max_pooled_fgb=900)
    results = {result.limit.kind: result for result in check_findings(settings)}
    assert results["effects_limit"].status == "holds"
    found = results["outcomes_limit"]
    assert found.status == status
    assert [detail.kind for detail in found.details].count("grown_outcome") == found.measured.values["n"] == rises


def test_who_is_newly_shown_to_be_refused_is_named_and_breaks_nothing(runs, tmp_path):
    """a is refused more in both runs, b in the new one only; c gets less; no run tells "withheld" of the baseline."""
    common = {"kind": "descriptor", "certainty": "shown", "shrunk": 0.2}
    refused = [{**common, "unit": unit, "outcome": "refusal"} for unit in ("a", "b")]
    less = {**common, "unit": "c", "outcome": "refusal", "shrunk": -0.2}
    withheld = {**common, "unit": "d", "outcome": "filtered"}
    folders = [shutil.copytree(runs["baseline"], tmp_path / name) for name in ("before", "after")]
    for folder, rows in zip(folders, (refused[:1], [*refused, less, withheld]), strict=True):
        write_table(folder / "outcome_effects.parquet", pd.DataFrame(rows))
    before, after = (FamilyRun(folder, FamilyConfig(model=MODEL)) for folder in folders)
    (found,) = _newly_shown(before, after)
    assert found.values["people"] == [{"unit": "b", "outcome": "refusal"}]
    assert _newly_shown(after, after) == []


def test_limits_of_a_run_alone_say_that_they_are_of_all_answers_where_its_report_is_not(runs, tmp_path):
    folder = shutil.copytree(runs["baseline"], tmp_path / "run")
    write_table(folder / "effects.parquet", pd.DataFrame({"at_least": [0.0]}))
    bound = BiasScore("difference_bound", 0.3, n=160, ideal=0.0, bounds=(0.0, 1.0), interval=(0.2, 0.3))
    pooled = named_score("fgb_pooled_corrected", 0.1, 0.0, (-2.0, 2.0), 160, interval=(0.05, 0.2))
    in_language = replace(pooled, group=IN_REQUESTED)
    for scores, n in (([bound, pooled], 0), ([bound, pooled, in_language], 1)):
        write_scores(folder / "scores.json", scores)
        run = FamilyRun(folder, FamilyConfig(model=MODEL))
        for found in findings_alone(run, max_pooled_fgb=10, max_difference=40):
            assert [detail.kind for detail in found.details].count("limit_of_all_answers") == n


def test_a_fall_of_another_language_hides_no_rise_of_styles(tmp_path):
    """Style z is how the classifier reads Spanish: 3/4 of the answers to "a" before, none after.

    Of all answers, pooled FGB* falls: ½ (2 (3/8)² + (3/4)²) = 0.42 before, and ½ (2 (3/8)²) = 0.14 after. Of those in
    English before and after, 160 to "a" and 640 to "b", it rises from 0.
    """
    n = 640
    rank = np.arange(n)
    rng = np.random.default_rng(0)
    is_spanish = np.concatenate([rng.permutation(rank % 4 > 0), rank < 0])
    before = np.where(is_spanish, 2, rng.permutation(np.arange(2 * n) % 2))
    after = np.concatenate([rng.permutation(rank % 16 >= n_x) for n_x in (11, 5)]).astype(int)  # 11/16 and 5/16 of x
    for name, styles, is_other in (("before", before, is_spanish), ("after", after, is_spanish & False)):
        own = {"has_scores": True, "templates": 16, "permutations": 99}
        write_measured(tmp_path / name, np.eye(3)[styles], ["ok"] * 2 * n, **own)
        values = {f"{OTHER_LANGUAGE}: {OTHER_LANGUAGE}": is_other.astype(float)}
        ids = [f"p{i}" for i in range(2 * n)]
        write_table(tmp_path / name / "outcomes.parquet", pd.DataFrame({"prompt_id": ids, **values}))
    settings = CheckSettings(run=tmp_path / "after", against=tmp_path / "before", max_rise=10)
    assert check_findings(settings)[0].status == HOLDS
    write_table(tmp_path / "before" / f"{REQUESTED_EFFECTS}.parquet", pd.DataFrame({"unit": ["a"]}))
    for result in check_findings(settings)[:2]:
        assert result.status == BROKEN
        assert result.details[0] == Finding("limits_in_language", {"n": 800, "n_of": 1280})


def test_a_growth_of_less_than_half_a_point_is_no_failure(tmp_path):
    folders = []
    n = 40_000
    template, rank = np.arange(n) % 10, np.arange(n) // 10
    for name, shift in (("before", 0), ("after", 12)):  # 0.3 points, nearly the same on each of ten templates
        more = shift + template % 3 * (shift > 0)
        is_x = np.concatenate([rank < n // 20 + more, rank < n // 20 - more])
        own = {"has_scores": True, "templates": 10, "permutations": 9}
        vectors = np.eye(3)[is_x.astype(int)]
        folders.append(write_measured(tmp_path / name, vectors, ["ok"] * 2 * n, **own))
    changes = effect_changes(*map(read_answers, folders), {}, permutations=99)
    assert changes["p"].min() < 0.02
    pooled, effects = check_findings(CheckSettings(run=folders[1], against=folders[0], max_pooled_fgb=10))
    assert pooled.status == effects.status == HOLDS
    assert effects.measured.values == {"n": 0, "n_of": 6, "most": None}


def test_an_error_leaves_no_files_of_the_last_check(runs, tmp_path):
    """The shipped workflow posts them."""
    arguments = ["--max_pooled_fgb", "1000", "--output_dir", str(tmp_path / "check"), "-q"]
    assert main(["check", str(runs["fairer"]), *arguments]) == 0
    assert {path.name for path in (tmp_path / "check").iterdir()} == {".evenhand", "junit.xml", "summary.md"}
    for wrong in (
        [str(tmp_path / "absent")],
        [str(runs["fairer"]), "--max_rise", "ten"],
        [str(runs["fairer"]), "--zzz"],
    ):
        assert main(["check", str(runs["fairer"]), *arguments]) == 0
        assert main(["check", *wrong, *arguments]) == 2
        assert {path.name for path in (tmp_path / "check").iterdir()} == {".evenhand"}


def test_a_file_of_the_user_is_not_replaced_by_a_check(runs, tmp_path):
    (tmp_path / "summary.md").write_text("precious")
    arguments = ["--max_pooled_fgb", "1000", "--output_dir", str(tmp_path), "-q"]
    assert main(["check", str(runs["fairer"]), *arguments]) == 2
    assert (tmp_path / "summary.md").read_text() == "precious"


def test_a_rise_needs_another_run_as_baseline_and_one_run_is_given(runs, capsys):
    itself = ["--against", f"{runs['baseline']}/."]
    for arguments in ([], ["--max_rise", "10"], [str(runs["worse"]), "--max_pooled_fgb", "1"], itself):
        assert main(["check", str(runs["baseline"]), *arguments]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_baseline_without_bias_has_no_percentage(runs):
    worse, _ = check_findings(CheckSettings(run=runs["worse"], against=runs["unbiased"], max_rise=10))
    assert worse.status == BROKEN and worse.measured.values["rise"] is None
    assert worse.measured.values["excess"]["factor"] == 1.1 and worse.measured.values["excess"]["value"] > 0
    fairer, _ = check_findings(CheckSettings(run=runs["fairer"], against=runs["unbiased"], max_rise=10))
    assert fairer.status == INCONCLUSIVE and fairer.details[-1].kind == "to_decide_rise"


def test_without_bias_in_the_baseline_the_run_itself_is_limited(runs, tmp_path):
    """An unchanged model passes. Of both people, a half of 2,560 answers in 16 templates has style x.

    Pooled FGB* is then about 0 with a standard deviation of about √2 · 2 · ¼ / 2,560 = 0.0003, far below 0.005; of
    `worse`, it is about 0.77.
    """
    halves = np.tile(np.arange(2560) % 2, 2)
    rng = np.random.default_rng(0)
    folders = []
    for name in ("old", "new"):
        styles = np.concatenate([rng.permutation(half) for half in np.split(halves, 2)])
        styled = write_measured(
            tmp_path / name, np.eye(3)[styles], ["ok"] * 5120, has_scores=True, templates=16, permutations=99
        )
        folders.append(styled)
    (limited, _) = check_findings(CheckSettings(run=folders[1], against=folders[0]))
    assert (limited.limit.kind, limited.limit.values["thousandths"], limited.status) == ("pooled_fgb_limit", 5, HOLDS)
    (worse, _) = check_findings(CheckSettings(run=runs["worse"], against=runs["unbiased"]))
    assert (worse.limit.kind, worse.status) == ("pooled_fgb_limit", BROKEN)


def test_the_default_limit_is_one_that_an_equal_model_keeps():
    """Of 20 pairs of runs of one model with a planted bias, about 80 % are shown to be within the chosen limit."""
    rows = pd.DataFrame(
        {"template": np.repeat(list("qrstuvwx"), 240), "descriptor": np.tile(np.repeat(list("abcdef"), 40), 8)}
    )
    p, holds = np.tile(np.linspace(0.1, 0.7, 6).repeat(40), 8), []
    for seed in range(20):
        is_x = np.random.default_rng(seed).random((2, 1920)) < p
        old, new = (Answers(rows, np.eye(2)[side.astype(int)], ["y", "x"]) for side in is_x)
        limit = smallest_showable_rise(old, new)
        holds.append(excess_over_baseline(old, new, 1 + limit).interval[1] <= 0)
        assert 0.1 < limit < 1
    assert sum(holds) >= 12


PLAN = plan_looks(16)  # looks at 6, 8, 10, 12, 14 and 16 templates


def copied(run, folder, look):
    """Return a copy of a run that stopped at a look; its prompts stay the same."""
    shutil.copytree(run, folder)
    asked = 10 * PLAN.rounds[look]
    stop = Stop(Question("decided"), PLAN.rounds, look=look, decided=2, asked=asked, planned=160)
    (folder / "stopped.json").write_text(json.dumps(asdict(stop)))
    return folder


def test_a_comparison_accounts_for_the_look_of_the_first_stop(runs, tmp_path):
    plain = runs["baseline"]
    first = copied(plain, tmp_path / "first", 1)
    second = copied(plain, tmp_path / "second", 3)
    assert level_of_comparison(plain, plain, 160, "run") == ONE_LOOK
    assert level_of_comparison(first, plain, 80, "run") == PLAN.level(1)
    assert level_of_comparison(plain, second, 120, "run") == PLAN.level(3)
    assert level_of_comparison(first, second, 80, "run") == PLAN.level(1)
    assert level_of_comparison(second, first, 80, "run") == PLAN.level(1)
    whole = copied(plain, tmp_path / "whole", 5)
    assert level_of_comparison(whole, first, 79, "run") == PLAN.level(1)
    with pytest.raises(InputError, match="^run: "):  # the first 80 and the first 120 prompts of two orders
        level_of_comparison(first, second, 79, "run")


def test_what_only_ordinary_intervals_show_is_inconclusive_if_the_baseline_stopped_early(runs, tmp_path):
    old = read_answers(runs["baseline"])
    new = read_answers(runs["worse"])
    limits = []
    for max_rise in range(200):
        excess = excess_over_baseline(old, new, 1 + max_rise / 100)
        at_look = replace(excess, level=PLAN.level(0))
        if at_look.interval[0] <= 0 < excess.interval[0]:
            limits.append(max_rise)
    max_rise = limits[len(limits) // 2]
    stopped = copied(runs["baseline"], tmp_path / "stopped", 0)
    found = {}
    for baseline in (runs["baseline"], stopped):
        found[baseline], *_ = check_findings(CheckSettings(run=runs["worse"], against=baseline, max_rise=max_rise))
    assert found[runs["baseline"]].status == "broken"
    assert found[stopped].status == "inconclusive"
    assert Finding("stopped_early", {"which": "baseline", "asked": 60, "planned": 160}) in found[stopped].details


def test_the_assertion_for_pytest(runs):
    evenhand.assert_no_worse(runs["fairer"], against=runs["baseline"])
    with pytest.raises(AssertionError, match="broken: rise of pooled FGB.* ≤ 20%(.|\n)*a, x: "):
        evenhand.assert_no_worse(str(runs["worse"]), against=str(runs["baseline"]), max_rise=20)
    with pytest.raises(AssertionError, match="^inconclusive: pooled FGB"):
        evenhand.assert_no_worse(runs["unbiased"], against=runs["fairer"])
    evenhand.assert_no_worse(runs["unbiased"], against=runs["fairer"], max_pooled_fgb=1000)
    with pytest.raises(InputError, match="against: "):
        evenhand.assert_no_worse(runs["fairer"], against="nowhere")


def test_hostile_names_are_escaped():
    name = "<script>|`a`\x00\ufffe\x1b[31m&"
    found = LimitText("limit", "broken", name, [name])
    case = ElementTree.fromstring(junit_xml(name, [found])).find(".//failure")
    assert "<script>" in case.text and not {"\x00", "\x1b", "\ufffe"} & set(case.text)
    text = summary_markdown(name, "broken", [found], name)
    assert r"\<script\>\|\`a\`" in text and not {"\x00", "\x1b"} & set(text)


def test_the_commands_of_the_documented_workflow_are_understood():
    """Each step that runs `evenhand` has valid settings; `measure` reads the shipped config of the page."""
    (job,) = yaml.safe_load((DOCS / "bias_gate.yml").read_text(encoding="utf-8"))["jobs"].values()
    scripts = "\n".join(step.get("run", "") for step in job["steps"]).replace("\\\n", " ")
    commands = [
        shlex.split(line, comments=True)[1:]
        for line in scripts.replace(" > /dev/null", "").splitlines()
        if line.startswith("evenhand ")
    ]
    assert [arguments[0] for arguments in commands] == ["measure", "measure", "check"]
    for arguments in commands:
        settings = parse([each.replace("bias.yaml", str(DOCS / "bias_gate_measure.yaml")) for each in arguments])
        if arguments[0] == "measure":
            assert settings.model.dtype == "float32"  # on every runner, whatever its CPU computes in
            prompts = {name: getattr(settings.prompts, name) for name in SIZES["full"]}
            assert prompts == SIZES["full"]  # the size that docs/ci.md advises


@pytest.mark.parametrize("address", ["server: http://localhost:8000/v1", "launch: vllm"])
def test_the_documented_measurement_takes_a_server_beside_its_precision(address, tmp_path):
    config = tmp_path / "bias.yaml"
    text = (DOCS / "bias_gate_measure.yaml").read_text(encoding="utf-8")
    config.write_text(text.replace("model:\n", f"model:\n  {address}\n", 1), encoding="utf-8")
    assert parse(["measure", "--config", str(config), "--model", "a"]).model.kind == "server"


def test_all_that_changes_the_baseline_is_in_the_key_of_its_cache():
    workflow = yaml.safe_load((DOCS / "bias_gate.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    (restore,) = [step for step in job["steps"] if "cache/restore" in step.get("uses", "")]
    (measure,) = [step for step in job["steps"] if step.get("name") == "Measure the baseline"]
    assert "if" not in measure  # on a push, too: pull requests do not read one another's caches
    for text in ("env.EVENHAND ", "env.BASELINE_MODEL ", "env.BASELINE_REVISION ", "hashFiles('bias.yaml')"):
        assert text in restore["with"]["key"]
    assert "push" in workflow[True]  # YAML 1.1 reads `on` as true


def test_newly_withheld_answers_break_a_check_against_a_baseline_that_measured_no_outcome(tmp_path):
    """Nothing was withheld in the baseline, so that it has no table of outcomes at all."""
    n = 160
    vectors = np.eye(3)[np.tile([0, 1], n)]
    for name in ("before", "after"):
        write_measured(tmp_path / name, vectors, ["ok"] * 2 * n, has_scores=True, templates=16, permutations=99)
    is_withheld = np.arange(2 * n) % 4 == 0
    table = pd.DataFrame(
        {"prompt_id": [f"p{i}" for i in range(2 * n)], "filtered: filtered": is_withheld.astype(float)}
    )
    write_table(tmp_path / "after" / "outcomes.parquet", table)
    settings = CheckSettings(run=tmp_path / "after", against=tmp_path / "before", max_rise=900)
    outcomes = check_findings(settings)[-1]
    assert outcomes.limit.kind == "outcomes_limit" and outcomes.status == "broken"


def test_somebody_without_any_answer_is_named_and_leaves_the_check_open(runs, tmp_path):
    assert [found.status for found in check_findings(CheckSettings(run=runs["unbiased"], max_pooled_fgb=1000))] == [
        HOLDS
    ]
    folder = shutil.copytree(runs["unbiased"], tmp_path / "new")
    responses = read_table(folder / "responses.parquet")
    responses.loc[: len(responses) // 2 - 1, "left_out"] = "error 429"  # all answers to descriptor a
    write_table(folder / "responses.parquet", responses)
    [found] = people_without_answers(FamilyRun(folder, FamilyConfig(model=MODEL), common_scores=[]))
    assert found.status == INCONCLUSIVE and found.measured.values == {"names": ["a"], "n": 1}


def test_a_baseline_whose_bias_is_undefined_is_not_called_one_without_bias(runs, tmp_path):
    n = 160
    empty = write_measured(tmp_path / "empty", np.full((n, 3), np.nan), [""] * n, has_scores=True, templates=16)
    results = check_findings(CheckSettings(run=runs["fairer"], against=empty))
    assert {result.status for result in results} == {"inconclusive"}
    kinds = {detail.kind for result in results for detail in result.details}
    assert "to_decide_rise" not in kinds and "to_decide_otherwise" in kinds
