"""`import evenhand` gives what docs/python_api.md shows, and the lines there run."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import evenhand
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.settings import Settings
from evenhand.evaluation.model_settings import ModelSettings, StyleClassifierSettings
from evenhand.evaluation.score import find_score, read_scores
from evenhand.recipes import measure as measure_command
from evenhand.recipes import testbed
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings
from tests.recorded_runs import write_run
from tests.testbed_settings import NEUTRAL_DIALOGUE
from tools.testbed import grammar
from tools.testbed.corpus import all_prompts

PAGE = Path(__file__).resolve().parents[1] / "docs" / "python_api.md"
TEXT = PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """All variables after the first three blocks of the page, and the folder in which they were run."""
    folder = tmp_path_factory.mktemp("page")
    prompts = all_prompts()
    templates, descriptors = (prompts[name].drop_duplicates()[:6] for name in ("template", "descriptor"))
    cells = prompts[prompts["template"].isin(templates) & prompts["descriptor"].isin(descriptors)]
    cells = cells.groupby(["template", "descriptor"]).head(4).reset_index(drop=True)
    frame = cells.assign(response=grammar.sample_responses(cells, seed=0))
    frame[["text", "descriptor", "axis", "template", "response"]].to_csv(folder / "logs.csv", index=False)
    variables = {"folder": folder}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for lines in re.findall(r"```python\n(.*?)```", TEXT, re.S)[:3]:
            classifier = repr(str(testbed.STYLE_CLASSIFIER))
            code = lines.replace('model="support-bot"', f'model="support-bot", style_classifier={classifier}')
            code = code.replace('load_style_classifier("go_emotions")', f"load_style_classifier({classifier})")
            exec(code.replace('"go_emotions"', '"testbed"'), variables)
    return variables


def test_the_steps_run_on_the_testbeds_responses(names):
    table = evenhand.score_table(names["scores"])
    assert table["form"][:3].tolist() == ["plain", "corrected", "pooled_corrected"]
    with_interval = table.dropna(subset="low")
    assert len(with_interval) > 40
    assert (with_interval["low"] < with_interval["high"]).all()
    assert (names["folder"] / "clusters.png").stat().st_size > 1000


@pytest.mark.parametrize("name", ["refusal", "descriptor", "response", "bucket"])
def test_a_function_cannot_replace_a_column_or_a_built_in_outcome(names, name):
    known = {"style_classifier": str(testbed.STYLE_CLASSIFIER), "style_clusters": "testbed"}
    with pytest.raises(InputError, match=f"^outcomes: '{name}' "):
        evenhand.measure_responses(names["frame"], outcomes={name: lambda texts: [1.0] * len(texts)}, **known)
    with pytest.raises(InputError, match="^outcomes: 'short' .* 1 "):
        evenhand.measure_responses(names["frame"], outcomes={"short": lambda texts: [1.0]}, **known)


def test_a_part_of_the_prompts_of_two_runs_is_compared(names):
    table, vectors, variables = names["frame"].copy(), names["vectors"], dict(names)
    left_out = (table.descriptor == table.descriptor[0]).to_numpy()
    table.loc[left_out, "axis"] = "nationality"
    for run, kept in (("before", 1), ("after", 0.5)):  # half of every difference is left
        (folder := names["folder"] / "runs" / run).mkdir(parents=True)
        table.assign(prompt_id=table.index.astype(str)).to_parquet(folder / "prompts.parquet")
        styles = pd.DataFrame(kept * vectors + (1 - kept) * vectors.mean(axis=0), columns=names["classifier"].labels)
        styles.assign(prompt_id=table.index.astype(str)).to_parquet(folder / "styles.parquet")
    code = re.findall(r"```python\n(.*?)```", TEXT, re.S)[3]
    exec(code.replace("runs/", f"{names['folder']}/runs/"), variables)
    difference = find_score(variables["scores"], "fgb", "pooled_corrected", "difference")
    part = evenhand.Answers(table[~left_out], vectors[~left_out], names["classifier"].labels)
    before = find_score(evenhand.generation_bias(part, {}), "fgb", "pooled_corrected")
    assert difference.value == pytest.approx(-0.75 * before.value)  # squared: a quarter is left
    assert difference.n == before.n == (~left_out).sum()


def test_derived_clusters_are_in_the_format_of_style_clusters(names):
    derived, labels = names["derived"], names["classifier"].labels
    loaded = evenhand.load_style_clusters(names["folder"] / "clusters.json", labels)
    assert {name: [labels[it] for it in members] for name, members in loaded.items()} == derived.clusters
    assert (names["folder"] / "dendrogram.png").stat().st_size > 1000


def test_one_call_has_the_scores_of_the_command_and_of_the_steps(names):
    folder = names["folder"]
    classifier = StyleClassifierSettings(name=str(testbed.STYLE_CLASSIFIER))
    settings = MeasureSettings(
        model=ModelSettings(name="support-bot"),
        generation_bias=Settings(style_classifier=classifier, style_clusters="testbed"),
        responses=folder / "logs.csv",
        output_dir=folder / "run",
        report_to="none",
    )
    measure(settings)

    def comparable(scores):
        scores = (dataclasses.replace(score, signature={}) for score in scores)  # it has the file's name and hash
        return [repr(score) for score in scores]  # NaN equals NaN

    result = names["result"]
    assert comparable(result.scores) == comparable(read_scores(folder / "run" / "scores.json"))
    pd.testing.assert_frame_equal(result.effects, pd.read_parquet(folder / "run" / "effects.parquet"))
    stepwise = {(score.name, *score.group.items()): score.value for score in names["scores"]}
    values = {(score.name, *score.group.items()): score.value for score in result.scores}
    assert {key: values[key] for key in stepwise} == pytest.approx(stepwise, nan_ok=True)


def test_the_result_shows_value_interval_and_verdict_in_a_few_lines(names):
    result, lines = names["result"], repr(names["result"]).splitlines()
    score = next(score for score in result.scores if score.name == "fgb_pooled_corrected")
    assert len(lines) == 6 and lines[0] == result.summary and result.verdict in lines[1]
    assert f"{1000 * score.value:.2f} [" in lines[2].replace("−", "-")
    html = result._repr_html_()
    assert f"{1000 * score.value:.2f}" in html and evenhand.signature_line(score) in html
    report = (names["folder"] / "page.html").read_text(encoding="utf-8")
    assert "support-bot" in report and result.summary[:40] in report
    assert "responses.html" in report and (names["folder"] / "responses.html").stat().st_size > 1000


@pytest.mark.parametrize("outcome", ["language", "other_language"])
def test_the_summary_names_who_gets_answers_in_another_language(outcome):
    """All answers are in English but those to "Mexican" people."""
    rows = [(f"t{t}", who, n) for t in range(6) for who in ("old", "deaf", "Mexican") for n in range(3)]
    frame = pd.DataFrame(rows, columns=["template", "descriptor", "n"])
    frame["text"] = "Hello there, I am " + frame["descriptor"] + ", and I like to talk with my family."
    frame["axis"] = "x"
    english = [f"Good for you, take care of yourself and of your family on day {n}!" for n in range(3)]
    spanish = [f"Lo siento mucho, espero que te sientas mejor muy pronto, dentro de {n} días." for n in range(3)]
    is_spanish = frame["descriptor"] == "Mexican"
    frame["response"] = np.where(is_spanish, frame["n"].map(spanish.__getitem__), frame["n"].map(english.__getitem__))
    own = {"style_classifier": testbed.STYLE_CLASSIFIER, "style_clusters": "testbed"}
    result = evenhand.measure_responses(frame, **own, outcomes=[outcome], permutations=99)
    assert result.summary.startswith("18 of 18 answers to “Mexican” people (100 of 100) are not in English")
    assert result.verdict != "shown" and "answers in the request's language" in repr(result)


@pytest.mark.slow
def test_a_model_is_measured_tuned_and_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", TEXT, re.S) if "eh.tune(" in block]
    templates = ["I'm {noun_phrase}.", "I like {plural_noun_phrase}."]
    few = {"noun_phrase_type": ["descriptor_noun"], "template": templates}
    training = {"epochs": 1, "batch_size": 8, "max_perplexity_rise": 900}
    settings = {
        "style_classifier": str(testbed.STYLE_CLASSIFIER),
        "style_clusters": "testbed",
        "permutations": 0,
        "neutral_dialogue": NEUTRAL_DIALOGUE,
    }
    replaced = {
        '"gpt2"': repr(str(testbed.DIALOGUE_MODEL)),
        '"answers_per_cell": 2}': f'"answers_per_cell": 2, "filters": {few}}}, "generation_bias": {settings}',
        '"descriptors": 26': '"descriptors": 13',
        'training={"epochs": 1}': f"training={training}, measure_every=0",
    }
    for old, new in replaced.items():
        assert old in code
        code = code.replace(old, new)
    exec(code, names := {"eh": evenhand})
    change = find_score(names["change"].scores, "fgb", "pooled_corrected", "difference")
    before, after = (find_score(names[run].scores, "fgb", "pooled_corrected") for run in ("before", "after"))
    assert change.value == pytest.approx(after.value - before.value)
    assert names["after"].page.exists() and "responses" in names["after"].tables
    assert len(names["labels"].table("labels")) == len(names["train"].table("responses"))
    with pytest.raises(InputError, match="^table: .* 'answers'"):
        names["after"].table("answers")
    network = AutoModelForCausalLM.from_pretrained(testbed.DIALOGUE_MODEL).eval()
    tokenizer = AutoTokenizer.from_pretrained(testbed.DIALOGUE_MODEL)
    loaded = evenhand.measure(network, tokenizer, output_dir="runs/loaded", **names["common"])
    responses = [run.table("responses")["response"].tolist() for run in (loaded, names["before"])]
    assert responses[0] == responses[1]
    values = [[score.value for score in run.scores] for run in (loaded, names["before"])]
    assert values[0] == pytest.approx(values[1], nan_ok=True)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    given = {"training": training, "measure_every": 0, "output_dir": "runs/tuned_loaded"}
    tuned = evenhand.tune(names["labels"], "exchange", model=network, tokenizer=tokenizer, **given)
    by_name = evenhand.tune(names["labels"], "exchange", **{**given, "output_dir": "runs/tuned_by_name"})
    adapters = [load_file(run.adapter / "adapter_model.safetensors") for run in (tuned, by_name)]
    assert all(torch.equal(adapters[0][name], adapters[1][name]) for name in adapters[1])
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    with pytest.raises(InputError, match="^tokenizer: "):
        evenhand.tune(names["labels"], "exchange", model=network, **given)
    with torch.no_grad():
        next(network.parameters()).mul_(2)
    trained = evenhand.measure(network, tokenizer, output_dir="runs/trained", split="train", **names["common"])
    labels = evenhand.label(trained, output_dir="runs/trained_labels")
    with pytest.raises(InputError, match="^model: its weights are not those that are saved under its name"):
        evenhand.tune(labels, "exchange", model=network, tokenizer=tokenizer, **given | {"output_dir": "runs/other"})
    network.config.name_or_path = "not/saved"
    with pytest.raises(InputError, match="not/saved"):
        evenhand.tune(names["labels"], "exchange", model=network, tokenizer=tokenizer, **given)


def test_own_outcomes_are_functions_of_the_responses(names):
    """Half of the responses to one of six descriptors shout on each template: a variance of ¼ / 6."""
    frame = names["frame"].assign(is_first=lambda it: it["descriptor"] == it["descriptor"].min())
    turn = frame.groupby(["template", "descriptor"]).cumcount() % 2
    frame["response"] += pd.Series(np.where(frame["is_first"] & (turn == 0), "!!!", ""), index=frame.index)
    result = evenhand.measure_responses(
        frame,
        style_classifier=str(testbed.STYLE_CLASSIFIER),
        style_clusters="testbed",
        permutations=0,
        outcomes={
            "shouts": lambda texts: [text.endswith("!!!") for text in texts],
            "size": lambda texts: ["long" if len(text) > 40 else "short" for text in texts],
        },
    )
    values = {score.name: score for score in result.scores if not score.group}
    assert values["shouts_spread"].value == pytest.approx((0.25 / 6) ** 0.5)
    assert values["size_spread"].n == len(frame)
    assert not result.warnings
    assert "shouts: spread" in result._pages["report.html"]


def test_the_result_escapes_hostile_descriptors(names):
    hostile = dataclasses.replace(names["result"], summary="<script>alert(1)</script>")
    assert "<script>" not in hostile._repr_html_()


def test_the_result_has_the_warnings_of_the_report(names):
    warned = dataclasses.replace(names["result"], warnings=["<b>Few."])
    assert repr(warned).splitlines()[1] == "WARNING  <b>Few." and "<p>&lt;b&gt;Few.</p>" in warned._repr_html_()


def test_every_public_name_is_there_and_on_the_page():
    for name in evenhand.__all__:
        assert getattr(evenhand, name) and f"`{name}" in TEXT
    assert set(evenhand.__all__) <= set(dir(evenhand))
    assert sorted(evenhand.__all__) == evenhand.__all__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = evenhand.nothing


CELLS = {"template": ["t"] * 4, "descriptor": ["a", "a", "b", "b"], "axis": ["x"] * 4}
FRAME = pd.DataFrame(CELLS).assign(text="hi", response="yes", persona="", prompt_id=list("1234"))
VECTORS = np.eye(2).repeat(2, axis=0)
STYLED = evenhand.Answers(FRAME, VECTORS, ["s", "r"])
OTHER = evenhand.Answers(FRAME.assign(template="u"), VECTORS, ["s", "r"])


def test_bad_input_is_an_error_with_field_value_and_fix():
    with pytest.raises(evenhand.InputError, match=r"^clusters: 'X' .*\[2\].* 0 .* 1"):
        evenhand.generation_bias(STYLED, {"X": [2]})
    with pytest.raises(evenhand.InputError, match="^after: .*template"):
        evenhand.compare_generation_bias(STYLED, OTHER, {})


def test_an_error_about_the_frame_does_not_name_a_file_that_nobody_gave():
    frame = pd.DataFrame({"text": ["a", "b"], "descriptor": ["x", "y"], "response": ["c", "d"]})
    for wrong in (frame.iloc[:0], frame.drop(columns="descriptor"), frame.assign(response=3)):
        with pytest.raises(InputError, match="^frame: ") as error:
            evenhand.measure_responses(wrong)
        assert "parquet" not in str(error.value)


def test_own_outcomes_of_a_frame_without_one_column_of_responses_are_an_error():
    frame = pd.DataFrame({"text": ["a", "b"], "descriptor": ["x", "y"], "response": ["c", "d"]})
    length = {"size": lambda texts: [len(text) for text in texts]}
    twice = pd.concat([frame, frame[["response"]]], axis=1)
    for wrong in (frame.drop(columns="response"), frame.assign(response=3), twice):
        with pytest.raises(InputError, match="^frame: .*response"):
            evenhand.measure_responses(wrong, outcomes=length)
    with pytest.raises(InputError, match="^outcomes: 'size' .*1"):
        evenhand.measure_responses(frame, outcomes={"size": lambda texts: 1.0})


def test_own_outcomes_get_empty_text_for_missing_responses_of_a_categorical_column(names):
    frame = names["frame"].iloc[:4].assign(response=pd.Categorical(["c", None, "d", "c"]))
    seen = []

    def size(texts):
        seen.extend(texts)
        return []  # one value is due for each response: stops before anything is measured

    with pytest.raises(InputError, match="^outcomes: 'size' .* 0 "):
        evenhand.measure_responses(frame, outcomes={"size": size})
    assert seen == ["c", "", "d", "c"]


def test_a_loaded_model_has_a_system_prompt_and_markers_of_reasoning(tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr(measure_command, "measure", lambda settings, **options: given.append((settings, options)))
    network = AutoModelForCausalLM.from_pretrained(testbed.DIALOGUE_MODEL).train()
    tokenizer = AutoTokenizer.from_pretrained(testbed.DIALOGUE_MODEL)
    settings = {"output_dir": str(tmp_path / "run"), "system_prompt": "Be brief.", "reasoning": ["<plan>", "</plan>"]}
    evenhand.measure(network, tokenizer, **settings)
    ((measured, options),) = given
    assert (measured.model.system_prompt, measured.model.reasoning) == ("Be brief.", ["<plan>", "</plan>"])
    assert (options["loaded"].system_prompt, options["loaded"].reasoning) == ("Be brief.", ("<plan>", "</plan>"))
    with pytest.raises(InputError, match="^model: "):
        evenhand.measure("gpt2", **settings)


def test_a_loaded_model_without_its_tokenizer_is_no_name():
    with pytest.raises(InputError, match="^tokenizer: "):
        evenhand.measure(object())


def test_a_folder_without_a_run_or_a_table_is_named(tmp_path):
    with pytest.raises(InputError, match="^run: .* has no run"):
        evenhand.Run(tmp_path).table("prompts")
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "styles.parquet")
    write_run(tmp_path, command="measure")
    with pytest.raises(InputError, match="^table: .* has no table 'prompts'; its tables are: styles"):
        evenhand.Run(tmp_path).table("prompts")
