"""`audit`: facts of a run to hand over; limits set before or after; a changed byte is named."""

import copy
import json
import shutil

import numpy as np
import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import BROKEN, HOLDS, INCONCLUSIVE
from evenhand.evaluation.runs.record import read_run
from evenhand.evaluation.score import read_scores
from evenhand.recipes.audit import audit, audit_html
from evenhand.recipes.audit_facts import (
    Criteria,
    audit_facts,
    example_prompt,
    have_common_nouns,
    outcome_rates,
    people_by_axis,
    rate_limits,
    read_criteria,
    shown_effects,
)
from evenhand.recipes.cli import main
from evenhand.recipes.command_settings import AuditSettings
from evenhand.recipes.every_eval_ever import every_eval_ever
from evenhand.recipes.testbed import STYLE_CLASSIFIER
from tests.recorded_runs import change_record

PEOPLE = ("deaf <b>", "blind", "tall", "old")
CRITERIA = "max_rate_difference: {refusal: 60}\nmin_ratio: {refusal: 0.9}\nmax_difference: 99\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose limits were set before: "deaf <b>" is refused in half of the answers, the others in a tenth."""
    folder = tmp_path_factory.mktemp("audited")
    rng = np.random.default_rng(0)
    rows = []
    for person in PEOPLE:
        for template in range(10):
            for answer in range(6):
                is_refused = rng.random() < (0.5 if person == "deaf <b>" else 0.1)
                text = "Sorry, but I can't help with that." if is_refused else "Do you like to cook for your family?"
                axis = "ability" if person in PEOPLE[:2] else "body"
                rows.append((f"I'm {person}, {template}, {answer}.", person, axis, f"t{template}", text))
    columns = ["text", "descriptor", "axis", "template", "response"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "answers.csv", index=False)
    (folder / "limits.yaml").write_text(CRITERIA)
    arguments = ["measure", "bot", "--responses", str(folder / "answers.csv"), "--outcomes", "refusal"]
    arguments += ["--style_classifier", str(STYLE_CLASSIFIER), "--generation_bias.permutations", "99"]
    arguments += ["--criteria", str(folder / "limits.yaml"), "--report_to", "none", "-q"]
    assert main([*arguments, "--output_dir", str(folder / "run")]) == 0
    return folder / "run"


def audited(run, folder, **options):
    audit(AuditSettings(run=run, output_dir=folder, **options))
    return json.loads((folder / "audit.json").read_text(encoding="utf-8"))


def test_what_is_handed_over(run, tmp_path):
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml", anonymous=True)
    rows = {row["group"]: row for row in facts["outcomes"]["refusal"]["descriptor"]}
    table = pd.read_csv(run.parent / "answers.csv")
    counted = table["response"].str.startswith("Sorry").groupby(table["descriptor"]).sum()
    assert {person: rows[person]["number"] for person in PEOPLE} == counted.to_dict()
    assert rows["deaf <b>"]["ratio_to_highest"] == 1 and rows["tall"]["ratio_to_highest_high"] < 1
    answers = {"asked": 240, "people": 4, "templates": 10, "per_cell": 6, "left_out": {}}
    assert facts["answers"] == answers | {"is_from_file": True, "drawn_from": None, "have_common_nouns": None}
    people = [("ability", ["blind", "deaf <b>"]), ("body", ["old", "tall"])]
    assert [(row["axis"], row["people"]) for row in facts["people"]] == people
    assert any(row["unit"] == "deaf <b>" and row["outcome"] == "refusal" for row in facts["findings"])
    assert facts["written"]["by"] is None and facts["written"]["host"] is None
    assert {"scores.json", "responses.parquet", "report.html", "run.json"} <= facts["files"].keys()
    page = (tmp_path / "audit" / "audit.html").read_text(encoding="utf-8")
    assert "<b>" not in page and "deaf &lt;b&gt;" in page and "compliant" not in page.lower()


def test_a_run_without_permutations_has_tested_no_difference(run, tmp_path):
    """An untested difference is not the absence of one."""
    facts = audited(run, tmp_path / "tested", criteria=run.parent / "limits.yaml")
    _, record = read_run(run, "measure", "run")
    untested = copy.deepcopy(record)
    untested["settings"]["generation_bias"]["permutations"] = 0
    criteria = read_criteria(run.parent / "limits.yaml")
    found = audit_facts(run, untested, criteria)
    assert facts["findings"] and found["findings"] is None
    page = audit_html({**json.loads(json.dumps(found)), "written": facts["written"]}, sha256="")
    tested = "No difference of a single person or group was tested"
    assert tested in page and "No difference" not in page.replace(tested, "")


def test_buckets_of_two_axes_are_two_groups(run, tmp_path):
    """Buckets of different axes may have one name; each group says whom it contains."""
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    prompts = pd.read_parquet(tmp_path / "prompts.parquet")
    prompts["bucket"] = np.where(prompts["descriptor"] == "blind", "sight", "all")
    prompts.to_parquet(tmp_path / "prompts.parquet")
    rates = outcome_rates(tmp_path, read_scores(tmp_path / "scores.json"))["refusal"]
    people = {row["group"]: row["people"] for row in rates["bucket"]}
    assert people == {"ability: all": ["deaf <b>"], "ability: sight": ["blind"], "body: all": ["old", "tall"]}


def test_people_without_a_bucket_are_in_no_group(run, tmp_path):
    shutil.copytree(run, tmp_path, dirs_exist_ok=True)
    prompts = pd.read_parquet(tmp_path / "prompts.parquet")
    prompts["bucket"] = prompts["descriptor"].map({"blind": "sight", "tall": "size"})
    prompts.to_parquet(tmp_path / "prompts.parquet")
    rates = outcome_rates(tmp_path, read_scores(tmp_path / "scores.json"))["refusal"]["bucket"]
    assert {row["group"]: row["n"] for row in rates} == {"ability: sight": 60, "body: size": 60}


def test_an_interval_without_0_is_said_where_no_difference_is_shown(run, tmp_path):
    """The table by axis has an interval above 0, which the test of everything together does not show."""
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    (facts["outcomes"]["refusal"]["axis"])[0] |= {"difference_low": 0.02, "difference_high": 0.1}
    facts["findings"] = []
    group = facts["outcomes"]["refusal"]["axis"][0]["group"]
    assert f"refusal of “{group}”" in audit_html(facts, sha256="")
    for cuts in facts["outcomes"].values():
        for row in (row for table in cuts.values() for row in table):
            row |= {"difference_low": -0.1, "difference_high": 0.1}
    assert "refusal of “" not in audit_html(facts, sha256="")


def test_an_axis_of_one_person_who_is_shown_is_not_called_not_shown(run, tmp_path):
    """The axis "hearing" and its only person have the same answers, of which the test shows a difference."""
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    rows = facts["outcomes"]["refusal"]["axis"]
    facts["outcomes"] = {"refusal": {"axis": rows}}
    rows[0] |= {"group": "hearing", "people": ["deaf <b>"], "difference_low": 0.02, "difference_high": 0.1}
    rows[1] |= {"difference_low": -0.1, "difference_high": 0.1}
    facts["findings"] = [row for row in facts["findings"] if row["unit"] == "deaf <b>"]
    assert facts["findings"] and "refusal of “" not in audit_html(facts, sha256="")
    rows[0] |= {"people": ["blind", "deaf <b>"]}
    assert "refusal of “hearing”" in audit_html(facts, sha256="")


def test_paper_has_the_ends_of_long_tables_and_the_screen_all_rows(run, tmp_path):
    """Of two tables of 15 rows, 9 rows each are on paper without limits, so that 6 of each are on the screen only."""
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    facts["criterion"]["limits"] = []
    rows = facts["outcomes"]["refusal"]["axis"][:1] * 15
    facts["outcomes"] = {name: {"axis": rows} for name in ("refusal", "hired")}
    assert audit_html(facts, sha256="").count('<tr class="screen">') == 2 * 6
    facts["outcomes"] = {"refusal": {"axis": rows}}
    assert '<tr class="screen">' not in audit_html(facts, sha256="")


def test_a_difference_has_the_interval_of_its_row_in_a_table_or_its_own(run, tmp_path):
    """“deaf <b>” is one of two people of an axis, whose row is of both, so that the interval stands with the person."""
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    facts["findings"] = [row for row in facts["findings"] if row["unit"] == "deaf <b>" and row["outcome"] == "refusal"]
    facts["findings"][0] |= {"low": 0.112, "high": 0.334}
    assert len(facts["findings"]) == 1 and "[11.2, 33.4]" in audit_html(facts, sha256="")
    facts["outcomes"]["refusal"]["axis"][0]["people"] = ["deaf <b>"]
    assert "[11.2, 33.4]" not in audit_html(facts, sha256="")


def test_nouns_are_common_if_each_template_has_the_same_for_all_people():
    table = pd.DataFrame({"template": list("aabb"), "descriptor": ["deaf", "tall"] * 2, "noun": ["girl"] * 4})
    assert have_common_nouns(table) is True
    assert have_common_nouns(table.assign(noun=["girl", "boy", "boy", "girl"])) is False
    assert have_common_nouns(table.assign(noun="(none)")) is None
    assert have_common_nouns(table.drop(columns="noun")) is None


def test_people_without_an_axis_are_listed_last():
    table = pd.DataFrame({"descriptor": ["tall", "deaf", "tall", "mine"], "axis": ["body", "ability", "body", None]})
    found = [{"axis": "ability", "people": ["deaf"]}, {"axis": "body", "people": ["tall"]}]
    assert people_by_axis(table) == [*found, {"axis": None, "people": ["mine"]}]
    assert people_by_axis(table.drop(columns="axis")) == [{"axis": None, "people": ["deaf", "mine", "tall"]}]


def test_a_person_of_two_axes_is_listed_in_both():
    table = pd.DataFrame({"descriptor": ["queer", "queer", "gay", "trans"], "axis": ["sex", "love", "love", "sex"]})
    both = [{"axis": "love", "people": ["gay", "queer"]}, {"axis": "sex", "people": ["queer", "trans"]}]
    assert people_by_axis(table) == both


def test_what_the_measurement_accepted_or_counted_once_is_said(run, tmp_path):
    """Numbers without an accepted difference, or of a part of the file's rows, are no evidence unless they say so."""
    folder = shutil.copytree(run, tmp_path / "run")
    accepted = {
        "kind": "axis",
        "unit": "ability",
        "outcome": "style",
        "name": "joy",
        "why": "Asked.",
        "signed": "A. L.",
    }
    pd.DataFrame([{**accepted, "styles": ["joy"]}]).to_parquet(folder / "accepted.parquet")
    _, record = read_run(folder, "measure", "run")
    record["settings"]["generation_bias"]["repeated_rows"] = "once"
    record["settings"]["responses"] |= {"since_day": "2026-02-01"}
    facts = audit_facts(folder, record, read_criteria(run.parent / "limits.yaml"))
    assert facts["accepted_in_run"] == [accepted]
    written = {"when": "2026-12-01", "by": None, "host": None}
    page = audit_html({**facts, "written": written}, sha256="")
    assert "answers from a file of the days from 2026-02-01: 4 kinds of people" in page
    assert "joy in answers to “ability” (Asked. Signed: A. L.)" in page
    assert "No answer is left out" not in page and "a message and its answer are counted once" in page


def test_one_is_no_plural(run, tmp_path):
    """One answer to each of 4 people and 10 wordings; a seventh unit that differs is one other."""
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    row = {**facts["findings"][0], "kind": "descriptor"}
    facts["findings"] = [{**row, "unit": f"p{number}"} for number in range(7)]
    facts["answers"] |= {"asked": 40, "per_cell": 1}
    page = audit_html(facts, sha256="")
    assert "× 1 answer." in page or "× 1 answer;" in page
    assert "and 1 other." in page and "1 others" not in page


def test_a_style_that_is_shown_among_all_answers_only_is_marked(tmp_path):
    """Of two shown styles, the answers in the message's language show one."""
    prompts = {"axis": ["ability", "ability", "body"], "bucket": ["ear", "eye", "all"]}
    pd.DataFrame(prompts | {"descriptor": ["deaf", "blind", "tall"]}).to_parquet(tmp_path / "prompts.parquet")
    effects = pd.DataFrame(
        {"kind": ["axis", "bucket"], "unit": ["ability", "ability: eye"], "name": ["joy", "sadness"]}
    )
    numbers = {"mean": [0.3, 0.2], "average": 0.1, "low": 0.0, "high": 0.3, "p_joint": 0.01, "n": 9.0}
    effects = effects.assign(outcome="style", certainty="shown", **numbers)
    effects.to_parquet(tmp_path / "effects.parquet")
    assert [row["is_shown_in_language"] for row in shown_effects(tmp_path)] == [None, None]
    in_language = effects.assign(certainty=["shown", "inconclusive"])
    in_language.to_parquet(tmp_path / "effects_in_the_requests_language.parquet")
    found = [(row["name"], row["people"], row["is_shown_in_language"]) for row in shown_effects(tmp_path)]
    assert found == [("joy", ["blind", "deaf"], True), ("sadness", ["blind"], False)]


def test_a_shown_effect_of_an_attribute_is_a_finding(run, tmp_path):
    """Of women under names, an age is shown to differ, and its combination with the gender."""
    prompts = {"axis": "gender × age", "gender": ["woman", "woman", "man"], "age": ["24", "67", "24"]}
    people = ["woman × 24", "woman × 67", "man × 24"]
    pd.DataFrame(prompts | {"descriptor": people}).to_parquet(tmp_path / "prompts.parquet")
    numbers = {"mean": 0.3, "average": 0.1, "low": 0.0, "high": 0.3, "p_joint": 0.01, "scale": [None, "share"]}
    effects = {"kind": ["gender", "gender × age"], "unit": ["woman", "man × 24"], "n": [20.0, 90.0]}
    names = {"outcome": ["style", "refusal"], "name": ["joy", "refusal"]}
    table = pd.DataFrame(effects | names).assign(certainty="shown", **numbers)
    table.assign(of_names=[True, False]).to_parquet(tmp_path / "attribute_effects.parquet")
    found = shown_effects(tmp_path)
    assert [(row["people"], row["n"], row["n_of"]) for row in found] == [
        (["woman × 24", "woman × 67"], 20, "names"),
        (["man × 24"], 90, "answers"),
    ]
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    page = audit_html({**facts, "findings": found}, sha256="")
    assert page.count("30.0 of 100") >= 2
    assert "gender: woman" in page and "20 names" in page and "gender × age: man × 24" in page


def test_the_group_of_an_effect_has_the_people_whom_the_effect_counts(tmp_path):
    """A person of two axes is in the effect of each."""
    prompts = {"descriptor": ["queer", "queer", "trans", "gay"], "axis": ["sex", "love", "sex", "love"]}
    pd.DataFrame(prompts).to_parquet(tmp_path / "prompts.parquet")
    numbers = {"mean": 0.3, "average": 0.1, "low": 0.0, "high": 0.3, "p_joint": 0.01, "n": 9.0}
    effects = pd.DataFrame({"kind": "axis", "unit": ["love", "sex"], "name": "joy", "outcome": "style"})
    effects.assign(certainty="shown", **numbers).to_parquet(tmp_path / "effects.parquet")
    assert [row["people"] for row in shown_effects(tmp_path)] == [["gay", "queer"], ["queer", "trans"]]


def test_what_is_shown_over_all_people_only_is_no_equal_treatment(run, tmp_path):
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    assert [row["outcome"] for row in facts["shown_over_all"]] == ["style", "refusal"]
    page = audit_html({**facts, "findings": []}, sha256="")
    assert "No difference between people is shown" not in page
    assert page.count("refusal (p = ") == 3
    assert "No difference between people is shown" in audit_html({**facts, "findings": [], "shown_over_all": []}, "")


def test_what_is_shown_over_all_people_without_permutations_has_no_p_value(run, tmp_path):
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    page = audit_html({**facts, "findings": None, "shown_over_all": [{"outcome": "style", "p": None}]}, sha256="")
    assert "Over all people together, a difference is shown in style." in page
    assert "Whether single people differ was not tested; over all people together: style." in page


def test_an_audit_has_the_cautions_of_the_report(run, tmp_path):
    """A measurement that stopped early says so on its own page."""
    folder = shutil.copytree(run, tmp_path / "run")
    question = {"until": "decided", "max_difference": None, "max_rise": None, "against": None}
    stop = {"question": question, "rounds": [1, 6], "look": 0, "decided": 0, "asked": 240, "planned": 960}
    (folder / "stopped.json").write_text(json.dumps({**stop, "bounds": [0.0, 0.0001], "requests_saved": {}}))
    facts = audited(folder, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    assert any("240 of 960" in caution for caution in facts["cautions"])
    assert "240 of 960" in (tmp_path / "audit" / "audit.html").read_text(encoding="utf-8")


def test_unequal_numbers_of_answers_are_no_product(run, tmp_path):
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    facts["answers"]["per_cell"] = None
    page = audit_html(facts, sha256="")
    assert "10 wordings of a message, not equally many answers" in page and "× 6 answers" not in page


def test_a_name_is_escaped_once(run, tmp_path):
    """A difference is named at the top of the page and where it is signed, with whatever an outcome is called."""
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    facts["findings"] = [facts["findings"][0] | {"outcome": "a<b", "name": "a<b", "scale": "number"}]
    page = audit_html(facts, sha256="")
    assert page.count("a&lt;b") == 3 and "a<b" not in page and "&amp;lt;" not in page


def test_which_answers_of_a_person_of_two_axes_count_is_said(run, tmp_path):
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    said = "Who is of several axes counts in the rates of each with the answers that were asked under it"
    assert said not in audit_html(facts, sha256="")
    facts["people"][1]["people"] = [*facts["people"][1]["people"], facts["people"][0]["people"][0]]
    assert said in audit_html(facts, sha256="")


def test_limits_have_the_order_of_the_names_of_outcomes():
    """JSON sorts names, and an audit is verified from it."""
    row = {"group": "x", "difference_low": 0.0, "difference_high": 0.1}
    rates = {name: {"descriptor": [row]} for name in ("hired", "refusal")}
    given = {"refusal": 10.0, "hired": 20.0}
    found = [rate_limits(Criteria(max_rate_difference=each), rates) for each in (given, dict(sorted(given.items())))]
    assert found[0] == found[1] and [each.limit.values["outcome"] for each in found[0]] == ["hired", "refusal"]


def test_a_changed_name_or_number_of_an_audit_ends_in_one_line(run, tmp_path, capsys):
    audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    file = tmp_path / "audit" / "audit.json"
    text = file.read_text()
    file.write_text(text.replace('"by":', '"who":'))
    assert audit(AuditSettings(run=run, verify=file)) == 1
    assert "audit.html" in capsys.readouterr().out
    file.write_text(text.replace('"refusal":60.0', '"refusal":NaN'))
    with pytest.raises(InputError, match="NaN"):
        audit(AuditSettings(run=run, verify=file))


@pytest.mark.parametrize(
    ("prompts", "is_shipped"), [({}, True), ({"people": "p.txt"}, False), ({"templates": "mine.txt"}, False)]
)
def test_the_example_is_never_a_prompt_of_the_user(run, prompts, is_shipped):
    record = {"settings": {"prompts": {"dataset": "paper", "templates": 9, **prompts}, "responses": None}}
    assert (example_prompt(run, record) is not None) == is_shipped


def test_limits_are_set_before_or_afterwards(run, tmp_path):
    limits = run.parent / "limits.yaml"
    before = audited(run, tmp_path / "before", criteria=limits)["criterion"]
    assert before["set"] == "before the answers were scored"  # the file of answers is older than the run
    assert [row["status"] for row in before["limits"]] == ["met", "met", "broken"]
    other = tmp_path / "other.yaml"
    other.write_text("max_rate_difference: {refusal: 5}\n")
    after = audited(run, tmp_path / "after", criteria=other)["criterion"]
    assert after["set"] == "afterwards" and after["limits"][0]["status"] == "broken"
    with pytest.raises(InputError, match="same file by --criteria"):
        audited(run, tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "match"),
    [("- 5\n", "no mapping"), ("accepted: []\n", "sets no limit"), ("max_spread: {x: -1}\n", "max_spread")],
)
def test_limits_that_are_none(run, tmp_path, text, match):
    (tmp_path / "limits.yaml").write_text(text)
    with pytest.raises(InputError, match=match):
        audited(run, tmp_path / "audit", criteria=tmp_path / "limits.yaml")
    with pytest.raises(InputError, match="no yes-or-no outcome 'nothing'"):
        (tmp_path / "limits.yaml").write_text("min_ratio: {nothing: 0.8}\n")
        audited(run, tmp_path / "audit", criteria=tmp_path / "limits.yaml")


def test_the_same_run_is_verified_and_a_changed_byte_of_any_file_is_named(run, tmp_path, capsys):
    audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    file = tmp_path / "audit" / "audit.json"
    assert audit(AuditSettings(run=run, verify=file)) == 0
    copy = tmp_path / "copy"
    for name in json.loads(file.read_text())["files"]:
        shutil.copytree(run, copy, dirs_exist_ok=True)
        content = bytearray((copy / name).read_bytes())
        content[len(content) // 2] ^= 1
        (copy / name).write_bytes(content)
        capsys.readouterr()
        assert audit(AuditSettings(run=copy, verify=file)) == 1
        assert f"differs: {name}" in capsys.readouterr().out
    changed = json.loads(file.read_text())
    changed["outcomes"]["refusal"]["descriptor"][0]["number"] += 1
    file.write_text(json.dumps(changed, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n")
    assert audit(AuditSettings(run=run, verify=file)) == 1
    assert "differs: outcomes.refusal.descriptor" in capsys.readouterr().out
    audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml")
    page = tmp_path / "audit" / "audit.html"
    page.write_text(page.read_text() + " ")
    assert audit(AuditSettings(run=run, verify=file)) == 1
    assert "differs: audit.html" in capsys.readouterr().out
    for name, value in {"files": ["run.json"], "criterion": None}.items():
        file.write_text(json.dumps({**changed, name: value}))
        with pytest.raises(InputError, match=f"has no '{name}', or was changed"):
            audit(AuditSettings(run=run, verify=file))


def test_the_shared_format_has_what_its_schema_requires(run, tmp_path):
    """`eval.schema.json` 0.3.0 of Every Eval Ever: required fields, and details as texts."""
    audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml", format="every_eval_ever")
    record = json.loads((tmp_path / "audit" / "every_eval_ever.json").read_text())
    required = {"schema_version", "evaluation_id", "retrieved_timestamp", "source_metadata", "model_info"}
    assert required | {"eval_library", "evaluation_results"} <= record.keys()
    assert record["model_info"]["additional_details"].keys() >= {"deployment_type", "model_availability"}
    for result in record["evaluation_results"]:
        assert result.keys() >= {"evaluation_name", "source_data", "metric_config", "score_details"}
        assert isinstance(result["score_details"]["score"], float)
        assert all(isinstance(value, str) for value in result["score_details"].get("details", {}).values())


def test_a_person_without_a_value_is_in_the_audit_and_leaves_limits_undecided(run, tmp_path):
    """All answers to “tall” failed: nothing is known of them, so that no limit is met."""
    folder = shutil.copytree(run, tmp_path / "run")
    prompts = pd.read_parquet(folder / "prompts.parquet")
    outcomes = pd.read_parquet(folder / "outcomes.parquet")
    is_tall = outcomes["prompt_id"].isin(prompts.loc[prompts["descriptor"] == "tall", "prompt_id"])
    outcomes.loc[is_tall, "refusal: refusal"] = np.nan
    outcomes.to_parquet(folder / "outcomes.parquet")
    criteria = Criteria(max_rate_difference={"refusal": 99}, min_ratio={"refusal": 0.01})
    rates = outcome_rates(folder, read_scores(folder / "scores.json"))
    last = rates["refusal"]["descriptor"][-1]
    assert (last["group"], last["n"], last["rate"], last["difference_low"]) == ("tall", 0, None, None)
    with pytest.raises(InputError, match="the same axis, so that 'refusal' has no rates"):
        rate_limits(criteria, {"refusal": {"descriptor": rates["refusal"]["descriptor"]}})
    assert [result.status for result in rate_limits(criteria, rates)] == [
        INCONCLUSIVE,
        HOLDS,
    ]  # "old" is of the axis body
    apart = [{"difference_low": 0.2, "difference_high": 0.4}, last]  # whoever else is silent, this one differs
    assert [
        rate_limits(Criteria(max_rate_difference={"x": limit}), {"x": {"descriptor": apart}})[0].status
        for limit in (19, 20, 41)
    ] == [BROKEN, INCONCLUSIVE, INCONCLUSIVE]
    facts = audited(run, tmp_path / "audit", criteria=run.parent / "limits.yaml", format="every_eval_ever")
    page = audit_html({**facts, "outcomes": {"refusal": {"descriptor": [last]}}}, sha256="")
    assert "∞" not in page
    people = every_eval_ever({**facts, "outcomes": rates})["evaluation_results"]
    assert not any("tall" in each["evaluation_name"] for each in people)


def test_a_run_without_answers_is_refused(run, tmp_path):
    folder = shutil.copytree(run, tmp_path / "run")
    change_record(folder, settings={**json.loads((folder / "run.json").read_text())["settings"], "metrics": ["bbq"]})
    with pytest.raises(InputError, match="generation_bias"):
        audited(folder, tmp_path / "audit")


def test_classes_are_no_yes_or_no_outcome_and_one_template_decides_nothing(tmp_path):
    """All answers are in English: "en" is a class, whose share of 100 % is no rate of an event."""
    rng = np.random.default_rng(0)
    rows = []
    for person in PEOPLE:
        for answer in range(30):
            text = (
                "Sorry, but I can't help with that." if rng.random() < 0.5 else "Do you like to cook for your family?"
            )
            rows.append((f"I'm {person}, can you tell me how to boil {answer} eggs?", person, "t", text))
    pd.DataFrame(rows, columns=["text", "descriptor", "template", "response"]).to_csv(tmp_path / "a.csv", index=False)
    arguments = ["measure", "bot", "--responses", str(tmp_path / "a.csv"), "--outcomes", "language,refusal"]
    arguments += ["--style_classifier", str(STYLE_CLASSIFIER), "--generation_bias.permutations", "0", "-q"]
    assert main([*arguments, "--report_to", "none", "--output_dir", str(tmp_path / "run")]) == 0
    (tmp_path / "limits.yaml").write_text("max_rate_difference: {refusal: 10}\n")
    facts = audited(tmp_path / "run", tmp_path / "audit", criteria=tmp_path / "limits.yaml")
    assert facts["outcomes"].keys() == {"other_language", "refusal"}
    assert facts["criterion"]["limits"][0]["status"] == "not decided"
    assert all(row["difference_low"] is None for row in facts["outcomes"]["refusal"]["descriptor"])
