"""The command `judge`, and measurements by an LLM judge: agreement with people and with a classifier, signatures."""

import json

import numpy as np
import pandas as pd
import pytest

import evenhand
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.estimates import NO_STYLE
from evenhand.evaluation.metrics.generation_bias.pilot import pilot_of
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.settings import checked
from evenhand.evaluation.statistics.accuracy import calibration_error, label_agreement
from evenhand.recipes.command_settings import COMMANDS
from evenhand.recipes.judge import judge
from tests.evaluation.models.test_judges import quoted_text
from tests.fault_server import serving


@pytest.fixture
def files(tmp_path):
    """A judge of two labels, clusters of them, and texts with labels of which one is both."""
    (tmp_path / "judge.yaml").write_text("labels: [kind, curt]\n", encoding="utf-8")
    (tmp_path / "clusters.json").write_text(json.dumps({"KIND": ["kind"]}), encoding="utf-8")
    rows = [("thanks 1", "k"), ("thanks 2", "k"), ("no", "c"), ("never", "k"), ("thanks, no", "k,c")]
    lines = ["text\tlabel", *("\t".join(row) for row in rows)]
    (tmp_path / "texts.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def settings_of(files, url):
    """The judge on a server, as settings by name."""
    judge = {"name": str(files / "judge.yaml"), "server": url, "cache": str(files / "cache.sqlite")}
    return {"name": "some-judge", "judge": judge}


def values_of(files, **classifiers):
    """The settings of the command, by name."""
    return {
        "texts": str(files / "texts.tsv"),
        "text_column": "text",
        "label_column": "label",
        "labels": {"k": "kind", "c": "curt"},
        "label_separator": ",",
        "output_dir": str(files / "run"),
        **classifiers,
    }


def kind_if_thankful(body):
    """A choice of the option A with a probability of 0.75 for a text with thanks, else of B."""
    right, wrong = ("A", "B") if "thanks" in quoted_text(body) else ("B", "A")
    top = [{"token": token, "logprob": float(np.log(p)), "bytes": None} for token, p in ((right, 0.75), (wrong, 0.25))]
    return {"logprobs": {"content": [{**top[0], "top_logprobs": top}], "refusal": None}}


def test_a_judge_is_compared_with_people(files, capsys):
    with serving(choice=kind_if_thankful) as (url, _):
        classifier = settings_of(files, url)
        values = values_of(files, style_classifier=classifier, other_classifier=classifier)
        judge(checked(COMMANDS["judge"], values, "test"))
    scores = read_scores(files / "run" / "scores.json")
    by_judge = {"by": "judge"}
    # Kind is right for 3 of the 3 texts called kind, of 4 that are; curt for 1 of 2 called curt, of 2 that are.
    assert find_score(scores, "f1", **by_judge, label="kind").value == pytest.approx(6 / 7)
    assert find_score(scores, "f1", **by_judge, label="curt").value == pytest.approx(2 / 4)
    assert find_score(scores, "macro_f1", **by_judge).value == pytest.approx((6 / 7 + 1 / 2) / 2)
    assert find_score(scores, "top_label_accuracy", **by_judge).value == pytest.approx(4 / 5)
    assert find_score(scores, "calibration_error", **by_judge).value == pytest.approx(4 / 5 - 0.75)
    # Four texts with one label, 8 values of which 5 are kind: α = 1 − (8 − 1) · 2 / (2 · 5 · 3) = 8 / 15.
    assert find_score(scores, "krippendorff_alpha", **by_judge, **{"with": "people"}).value == pytest.approx(8 / 15)
    assert find_score(scores, "krippendorff_alpha", **by_judge, **{"with": "other classifier"}).value == 1
    # One of the five texts has two labels.
    agreement = find_score(scores, "krippendorff_alpha", **by_judge, **{"with": "people"})
    assert (agreement.n, agreement.n_left_out) == (4, 1) and scores[0].n_left_out == 0
    signature = scores[0].signature["judge"]
    assert signature["name"] == "some-judge" and signature["judge"]["server"] == url
    assert "macro_f1 judge: 0.679" in capsys.readouterr().out
    table = pd.read_parquet(files / "run" / "judged.parquet")
    assert table["p_kind"].round(4).tolist() == [0.75, 0.75, 0.25, 0.25, 0.75]
    values["labels"] = {"k": "kind", "c": "rude"}
    with pytest.raises(InputError, match="^labels: .*'rude'.*some-judge.*: kind"):
        judge(checked(COMMANDS["judge"], values, "test"))


def test_the_other_classifier_must_have_all_labels_of_the_judge(files):
    url = "http://127.0.0.1:9/v1"  # nothing is asked before the settings are checked
    (files / "wide.yaml").write_text("labels: [kind, curt, calm]\n", encoding="utf-8")
    wide = settings_of(files, url)
    wide["judge"] = {**wide["judge"], "name": str(files / "wide.yaml")}
    values = values_of(files, style_classifier=wide, other_classifier=settings_of(files, url))
    with pytest.raises(InputError, match="^other_classifier: .*'calm'.*kind, curt"):
        judge(checked(COMMANDS["judge"], values, "test"))


def test_responses_are_measured_by_a_judge_which_the_signature_names(files):
    rows = [(d, r) for d, n in (("old", 3), ("young", 1)) for r in ["thanks"] * n + ["no"] * (4 - n)]
    frame = pd.DataFrame(rows, columns=["descriptor", "response"]).assign(text="hi", template="t", axis="age")
    with serving(choice=kind_if_thankful) as (url, record):
        arguments = {"style_classifier": settings_of(files, url), "style_clusters": files / "clusters.json"}
        result = evenhand.measure_responses(frame, **arguments, permutations=9)
        assert sorted(map(quoted_text, record["bodies"][1:])) == ["no", "thanks"]
    # p(kind) is 0.25 + 0.5 x, x = ¾ or ¼ of 4: Var = (¼)² / 2, its noise (½)² · ¾ · ¼ · 4/3 / 4; twice for 2 styles.
    expected = 2 * (0.25**2 / 2 - 0.25 * 0.75 * 0.25 * 4 / 3 / 4)
    assert find_score(result.scores, "fgb", "corrected").value == pytest.approx(expected)
    facts = result.scores[0].signature["style_classifier"]
    assert facts["name"] == "some-judge" and facts["clusters"].endswith("clusters.json")
    assert facts["judge"]["server"] == url and facts["judge"]["answers"] == "log-probabilities"
    assert len(facts["judge"]["file_sha256"]) == 64 and "device" not in facts


def test_a_judge_that_names_no_option_for_any_answer_is_on_the_page(files, tmp_path):
    """It is not said that the answers are too few, or that more of them help: all eight have no style."""
    rows = [(d, t, f"{t} {d}") for d in ("old", "young") for t in ("a", "b", "c", "d")]
    frame = pd.DataFrame(rows, columns=["descriptor", "template", "response"]).assign(text="hi", axis="age")
    with serving(choice=lambda body: {"message": {"content": "I'm sorry."}}) as (url, _):
        arguments = {"style_classifier": settings_of(files, url), "style_clusters": files / "clusters.json"}
        result = evenhand.measure_responses(frame, **arguments, permutations=9)
    assert {score.reason for score in result.scores if score.metric in ("fgb", "scgb")} == {NO_STYLE}
    result.report(tmp_path / "page.html")
    page = " ".join((tmp_path / "page.html").read_text().split())
    assert "8 of 8 answers have no style" in page and "No answer has a style" in page
    assert "too few, or too much alike" not in page and "evenhand plan" not in page
    without = Answers(frame, np.full((8, 2), np.nan), ["kind", "curt"])
    with pytest.raises(InputError, match=f"^run: .*{NO_STYLE}; give another style classifier"):
        pilot_of(without, tmp_path)


def test_calibration_and_agreement_by_hand():
    p = np.array([[0.9, 0.1], [0.9, 0.1], [0.35, 0.65], [0.35, 0.65]])
    truth = np.array([[1, 0], [0, 1], [0, 1], [0, 1]], dtype=bool)
    score = calibration_error(p, truth, 0)
    assert score.value == pytest.approx((abs(1 - 1.8) + abs(2 - 1.3)) / 4)
    assert score.interval[0] <= score.value <= score.interval[1]
    equal = label_agreement(np.zeros((2, 3)), 0, {})
    assert np.isnan(equal.value) and equal.reason == "all labels are equal"
