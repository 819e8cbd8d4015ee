"""What is given to functions of the Python API is checked before anything is measured."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import evenhand
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import load_family
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusSettings
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import checked
from evenhand.recipes.command_settings import TrainClassifierSettings
from evenhand.recipes.settings import MeasureSettings, family_config
from evenhand.recipes.train_classifier import train_classifier

TABLE = pd.DataFrame({"template": ["a", "a"], "descriptor": ["old", "deaf"], "text": ["I'm old.", "I'm deaf."]})


@pytest.mark.parametrize("column", ["template", "descriptor"])
def test_a_row_without_a_person_or_a_template_is_an_error(column):
    table = TABLE.assign(**{column: ["x", None]})
    with pytest.raises(InputError, match=f"no {column}"):
        evenhand.Answers(table, np.eye(2), ["kind", "curt"])


@pytest.mark.parametrize("styles", [[], [0, 0], [2]])
def test_a_cluster_has_different_columns_that_there_are(styles):
    with pytest.raises(InputError, match="give different columns from 0 to 1"):
        evenhand.generation_bias(evenhand.Answers(TABLE, np.eye(2), ["kind", "curt"]), {"WARM": styles})


def test_paths_may_stand_in_groups_of_settings():
    values = {"model": {"name": Path("m")}, "generation_bias": {"style_clusters": Path("c.json")}}
    settings = checked(MeasureSettings, values, "measure")
    assert settings.model.name == "m" and settings.generation_bias.style_clusters == "c.json"


@pytest.mark.parametrize(
    ("family", "files"), [("embedding_bias", {"vectors": "v"}), ("translation_bias", {"translations": "t"})]
)
def test_files_of_results_need_no_model(family, files):
    settings = checked(MeasureSettings, {"metrics": [family], family: files}, "measure")
    assert not family_config(settings, family).model.name
    with pytest.raises(InputError, match="none is given"):
        family_config(checked(MeasureSettings, {"metrics": [family]}, "measure"), family)


def test_the_headline_is_a_score_with_a_value():
    german = BiasScore("embedding_gap", float("nan"), 0.0, (-2.0, 2.0), n=0, group={"lang": "de"}, reason="few")
    spanish = BiasScore("embedding_gap", 0.5, 0.0, (-2.0, 2.0), n=6, group={"lang": "es"})
    assert load_family("embedding_bias")().headline([german, spanish]) == spanish
    assert load_family("embedding_bias")().headline([german]) == german


def test_a_corpus_is_counted_once():
    with pytest.raises(InputError, match="occurs twice"):
        checked(CorpusSettings, {"paths": ["a.txt", "b.txt", "a.txt"]}, "corpus")


def test_outcomes_may_be_one_name():
    with pytest.raises(InputError, match="'nowhere'"):
        evenhand.measure_responses(TABLE.assign(response="Hi."), outcomes="nowhere")


@pytest.mark.parametrize("value", [-1, float("nan"), "5 %"])
def test_a_limit_that_is_no_number_is_an_error(value):
    with pytest.raises(InputError, match="max_rise"):
        evenhand.assert_no_worse("new", against="old", max_rise=value)


def test_runs_are_given_as_their_functions_return_them(tmp_path):
    with pytest.raises(InputError, match="has no finished run"):
        evenhand.assert_no_worse(evenhand.Run(tmp_path), against=evenhand.Run(tmp_path))


def test_a_callback_asks_each_prompt_with_its_own_random_numbers():
    prompts = pd.concat([TABLE.assign(prompt_id=["1", "2"])] * 4)
    with pytest.raises(InputError, match="a prompt_id occurs twice"):
        evenhand.BiasCallback(prompts, "go_emotions")


def test_no_classifier_is_trained_without_texts(tmp_path):
    (tmp_path / "texts.csv").write_text("text,label\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(8)))
    values = {"data_dir": tmp_path, "texts": "texts.csv", "test_texts": "texts.csv", "output_dir": tmp_path / "run"}
    columns = {"text_column": "text", "label_column": "label", "labels": {}, "report_to": "none"}
    with pytest.raises(InputError, match="give other texts"):
        train_classifier(checked(TrainClassifierSettings, {**values, **columns}, "train_classifier"))


def test_one_of_something_has_a_verb_in_the_singular():
    counts = {"n_languages": 1, "n_masculine": 0, "n_feminine": 0, "n_untested": 1, "mean": 0.0}
    said = load_family("embedding_bias")().sentence(Finding("gaps", counts))
    assert "in 0 of 1 language (1 has no test)" in said
    counts = {"n_used": 1, "n_languages": 2, "n_missing": 1}
    said = load_family("translation_bias")().sentence(Finding("languages", counts))
    assert said == "1 of 2 languages is in the scores; 1 of its sentences is left out."
    counts = {"effect": None, "n_descriptors": 2, "n_above": 1, "n_below": 0, "n_unknown": 1}
    said = load_family("offensiveness")().sentence(Finding("effects", counts))
    assert "1 has an interval above 0, and 0 below 0; 1 has no interval." in said
