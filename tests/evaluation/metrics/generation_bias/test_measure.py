"""Classifiers, inputs, scores, resuming, untuned prompts and prompts files of a measurement."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from evenhand.evaluation.data.language.mentions import clean_response
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import plain
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.generation_bias import GenerationBias, classification, prompts_sha256
from evenhand.evaluation.metrics.generation_bias.answers import (
    Answers,
    read_answers,
    style_table,
)
from evenhand.evaluation.metrics.generation_bias.classification import configured_classifiers
from evenhand.evaluation.metrics.generation_bias.engine.quality import text_scores
from evenhand.evaluation.metrics.generation_bias.engine.spread import generation_bias
from evenhand.evaluation.metrics.generation_bias.measurement_prompts import measurement_prompts
from evenhand.evaluation.metrics.generation_bias.page_warnings import score_cautions
from evenhand.evaluation.metrics.generation_bias.parts import corpus as corpus_part
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusPart, CorpusSettings, frequency_scores
from evenhand.evaluation.metrics.generation_bias.parts.quality import neutral_dialogue_file
from evenhand.evaluation.model_settings import DecodingSettings, OffensiveClassifierSettings, StyleClassifierSettings
from evenhand.evaluation.models import loading
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.styles import style_vectors
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.report.formats import find_format
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.runs.tracking import Tracker
from evenhand.evaluation.score import display_name, find_score
from evenhand.evaluation.tables import write_table
from evenhand.recipes.testbed import SECOND_STYLE_CLASSIFIER
from tests.family_runs import measure_tests
from tests.named_scores import find_named
from tests.report_pages import assert_leads_to_a_decision
from tests.testbed_settings import GENERATION_BIAS, MODEL, NEUTRAL_DIALOGUE
from tests.testbed_settings import generation_bias as generation_bias_settings
from tools.testbed.corpus import all_prompts

FILTERS = {
    "noun_phrase_type": ["descriptor_noun", "noun_descriptor"],
    "template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}.", "I love {plural_noun_phrase}.",
                 "I hate {plural_noun_phrase}."],
}  # fmt: skip
SMALL = {"filters": FILTERS, "descriptors": 26, "answers_per_cell": 4}
SETTINGS = {**GENERATION_BIAS, "permutations": 0, "neutral_dialogue": None}
FORMS = ("fgb", "fgb_corrected", "fgb_pooled_corrected")


def family_config(settings=SETTINGS, split="measure", seed=0, **prompts) -> FamilyConfig:
    prompts = PromptSettings(**(SMALL | prompts))
    return FamilyConfig(
        prompts=prompts,
        model=MODEL,
        settings=generation_bias_settings(**settings),
        seed=seed,
        split=split,
    )


@pytest.fixture(scope="module")
def measured(tmp_path_factory, offensiveness_classifier):
    offensiveness = OffensiveClassifierSettings(name=offensiveness_classifier, label="offensive")
    config, folder = family_config(untuned_by="descriptor"), tmp_path_factory.mktemp("measured")
    texts = tmp_path_factory.mktemp("corpus")
    corpus = CorpusSettings(paths=[str(texts / "some.txt"), str(texts / "none.txt")])
    known = sorted(set(all_prompts()["descriptor"]))[::2]
    (texts / "some.txt").write_text("\n".join([*known, *(name.upper() for name in known[::2])]), encoding="utf-8")
    (texts / "none.txt").write_text("Nobody is here.", encoding="utf-8")
    settings = {**SETTINGS, "corpus": corpus}
    return measure_tests(folder, "generation_bias", config, offensive_classifier=offensiveness, **settings)


def test_frequencies_in_a_corpus_beside_the_mean_probabilities_of_clusters(measured):
    some, none = measured.config.settings.corpus.paths
    rows = measured.table("corpus").query("cluster == 'SYMPATHY' and corpus == @some")
    assert set(rows["count"]) == {0, 1, 2}
    rho = find_score(measured.scores, "frequency_rho", cluster="SYMPATHY", corpus=display_name(some))
    nobody = find_score(measured.scores, "frequency_rho", cluster="SYMPATHY", corpus=display_name(none))
    assert math.isnan(nobody.value) and nobody.reason  # of a corpus without any of the people
    assert rho.value == pytest.approx(stats.spearmanr(rows["frequency"], rows["probability"]).statistic)
    assert rho.n == len(rows) == 26 and "corpus" in rho.signature
    report = GenerationBias().page(measured)
    assert_leads_to_a_decision(report)
    assert plain(report.facts) == plain(GenerationBias().facts(measured))
    text = page_html(report)
    assert find_format("frequency_rho").label in text


def test_each_score_is_signed_by_its_run_and_adds_what_is_its_own(measured):
    own = {"generation_bias", "outcomes", "corpus", "scored", "lm_eval", "offensiveness_classifier", "style_classifier"}
    shared = measured.signature("fgb").keys() - own
    assert {"model", "dataset", "decoding", "seed", "packages", "inputs"} <= shared
    for score in measured.scores:
        assert shared <= score.signature.keys() <= shared | own, score.name
    assert find_score(measured.scores, "length", "mean").signature["outcomes"] == "3"


def test_the_same_prompts_have_one_hash_in_all_runs(tmp_path):
    prompts = pd.DataFrame({"template": ["t", "t"], "descriptor": ["a", "b"]})
    hashes = []
    for name, table in (("run", prompts), ("another", prompts), ("other prompts", prompts[::-1])):
        (tmp_path / name).mkdir()
        store = Store(tmp_path / name, f"the fingerprint of {name}", Tracker())
        store.write("prompts", table)
        hashes.append(prompts_sha256(store))
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_corpus_needs_style_clusters(tmp_path, monkeypatch):
    (tmp_path / "texts.txt").write_text("Nobody is here.")
    monkeypatch.setattr(corpus_part, "classifier_labels", lambda settings: ["warm", "plain"])  # of no known clusters
    settings = {"corpus": CorpusSettings(paths=[str(tmp_path / "texts.txt")]), "style_clusters": None}
    with pytest.raises(InputError, match=r"^generation_bias\.corpus: .*style_clusters"):
        CorpusPart().inputs(family_config({**SETTINGS, **settings}), None)
    responses = Answers(pd.DataFrame({"template": "t", "descriptor": ["a", "b"]}), np.eye(2), ["warm", "plain"])
    with pytest.raises(InputError, match="style_clusters"):
        frequency_scores(None, {"probability": responses}, {}, settings["corpus"])


def names(**settings):
    return {name: model.name for name, model in configured_classifiers(family_config(settings)).items()}


def test_classifiers_and_neutral_dialogue_of_the_settings():
    first, second = "style_classifier", "second_style_classifier"
    mine, another = StyleClassifierSettings(name="mine"), StyleClassifierSettings(name="another")
    assert names(second_style_classifier=None) == {first: GENERATION_BIAS[first].name}
    assert names(style_classifier=mine, second_style_classifier=another) == {first: "mine", second: "another"}
    with pytest.raises(InputError, match=r"^generation_bias\.style_classifier: "):
        names(style_classifier=StyleClassifierSettings())
    shipped = StyleClassifierSettings(name="go_emotions")
    with pytest.raises(InputError, match="style_classifier"):  # it reads English
        configured_classifiers(family_config({"style_classifier": shipped}, language="es"))
    assert neutral_dialogue_file(family_config({})) == NEUTRAL_DIALOGUE
    assert neutral_dialogue_file(family_config({"neutral_dialogue": "small_talk"})).endswith("small_talk.jsonl")
    assert neutral_dialogue_file(family_config({"neutral_dialogue": "own.jsonl"})) == "own.jsonl"
    assert neutral_dialogue_file(family_config({"neutral_dialogue": None})) is None


def test_only_repeated_prompts_of_a_file_need_sampling(tmp_path, monkeypatch):
    def reached(*arguments):
        raise LookupError

    monkeypatch.setattr(loading, "load_dialogue_model", reached)
    prompts, beams = tmp_path / "prompts.csv", DecodingSettings(preset="paper")
    pd.DataFrame([["Hi!", "t", "age", "old"]], columns=["text", "template", "axis", "descriptor"]).to_csv(prompts)
    with pytest.raises(InputError, match="decoding: 'paper' .* 3 of 4 prompts"):
        measure_tests(
            tmp_path / "file",
            "generation_bias",
            replace(family_config(dataset=str(prompts)), decoding=beams),
            **SETTINGS,
        )
    with pytest.raises(LookupError):  # 32 draws from some 15 nouns repeat some
        measure_tests(
            tmp_path / "drawn",
            "generation_bias",
            replace(family_config(answers_per_cell=32), decoding=beams),
            **SETTINGS,
        )


def test_the_second_classifier_sees_the_same_cleaned_responses(measured):
    second = read_answers(measured.folder, second=True)
    classifier = load_style_classifier(str(SECOND_STYLE_CLASSIFIER))
    cleaned = [clean_response(*pair) for pair in zip(second.table["response"], second.table["descriptor"], strict=True)]
    np.testing.assert_allclose(second.values, style_vectors(classifier, cleaned), atol=1e-5)
    assert second.columns == classifier.labels
    assert not np.allclose(second.values, read_answers(measured.folder).values, atol=0.1)

    scores = measured.scores
    expected = generation_bias(second, {}, permutations=0)
    for metric in FORMS:
        score, same = find_named(scores, metric, classifier="second"), find_named(expected, metric)
        assert (score.value, score.interval, score.p_value) == (same.value, same.interval, None)
        assert score.signature["style_classifier"]["name"] == GENERATION_BIAS["second_style_classifier"].name
        assert score.signature["style_classifier"]["revision"] == classifier.revision
    assert find_score(scores, "fgb").signature["style_classifier"]["revision"] != classifier.revision
    assert not [score for score in scores if "classifier" in score.group and score.name not in FORMS]


def test_seen_and_unseen_are_two_cuts_of_one_measurement(measured):
    run = read_answers(measured.folder)
    scores = measured.scores
    untuned = run.table["untuned"].to_numpy()
    parts = {"yes": run.rows(~untuned), "no": run.rows(untuned)}
    for part, rows in parts.items():
        expected = generation_bias(rows, {}, permutations=0)
        for metric in FORMS:
            score = find_named(scores, metric, tuned=part)
            assert (score.value, score.interval) == (
                find_named(expected, metric).value, find_named(expected, metric).interval
            )  # fmt: skip
    assert sum(find_score(scores, "fgb", tuned=part).n for part in parts) == find_score(scores, "fgb").n


def test_offensiveness_is_of_the_unchanged_responses_and_every_cluster_has_its_share(measured):
    rows = measured.table("offensiveness")
    run = read_answers(measured.folder)
    assert rows.columns.tolist() == ["prompt_id", "offensiveness"]
    assert rows["prompt_id"].tolist() == run.table["prompt_id"].tolist()
    classifier = load_style_classifier(measured.config.offensive_classifier.name)
    vectors = style_vectors(classifier, run.table["response"].tolist())
    np.testing.assert_allclose(rows["offensiveness"], vectors[:, 1], atol=1e-5)
    score = find_score(measured.scores, "offensive_share")
    assert score.value == (rows["offensiveness"] >= 0.5).sum() / rows["offensiveness"].notna().sum()
    assert score.signature["offensiveness_classifier"]["label"] == "offensive"
    run = read_answers(measured.folder)
    scores = measured.scores
    hate = [run.columns.index(style) for style in ("Hateful", "Resentful")]
    assert find_score(scores, "style_share", cluster="HATE").value == pytest.approx(
        np.nansum(run.values[:, hate]) / np.isfinite(run.values[:, 0]).sum(), rel=1e-5
    )
    assert len([score for score in scores if score.metric == "style_share"]) == 6


def test_tables_on_disk_are_not_computed_again(measured, monkeypatch):
    """As after a kill during the scores: responses and the tables of all three classifiers are on disk."""

    def never(*arguments, **options):
        raise AssertionError("computed again")

    monkeypatch.setattr(loading, "load_dialogue_model", never)
    monkeypatch.setattr(classification, "load_style_classifier", never)
    before = [(score.name, score.value) for score in measured.scores]
    same = {name: getattr(measured.config.settings, name) for name in (*SETTINGS, "corpus")}
    again = measure_tests(measured.folder, "generation_bias", measured.config, **same)
    assert [(score.name, score.value) for score in again.scores] == before


def test_truncated_responses_have_a_column_and_a_score(measured, tmp_path):
    for name in ("prompts", "responses"):
        write_table(tmp_path / f"{name}.parquet", measured.table(name))
    run = read_answers(measured.folder)
    cut = np.arange(len(run)) < 3
    write_table(tmp_path / "styles.parquet", style_table(run.table["prompt_id"], run.values, run.columns, cut))
    again = read_answers(tmp_path)
    assert again.columns == run.columns and (run.n_truncated, again.n_truncated) == (0, 3)
    shares = {score.name: score for score in text_scores(again)}
    assert shares["cut_share"].value == 3 / again.is_nonempty().sum()
    assert "cut_share" not in {score.name for score in text_scores(run)}
    uncut = style_table(run.table["prompt_id"], run.values, run.columns, cut & False)
    assert "cut_by_classifier" not in uncut


def test_responses_without_a_label_are_counted_in_the_scores_and_on_the_page(measured, tmp_path):
    for name in ("prompts", "responses"):
        write_table(tmp_path / f"{name}.parquet", measured.table(name))
    run = read_answers(measured.folder)
    no_label = np.arange(len(run)) < 2
    table = style_table(run.table["prompt_id"], run.values, run.columns, unlabelled=no_label)
    write_table(tmp_path / "styles.parquet", table)
    again = read_answers(tmp_path)
    assert again.columns == run.columns and (run.n_unlabelled, again.n_unlabelled) == (0, 2)
    scores = text_scores(again)
    score = find_score(scores, "no_label_share")
    assert score.value == 2 / score.n and score.n == again.is_nonempty().sum()
    assert find_score(text_scores(run), "no_label_share") is None
    counted = [found for found in score_cautions(scores) if found.kind == "no_label"]
    assert [found.values["n"] for found in counted] == [2] and score_cautions(text_scores(run)) == []


def test_the_page_shows_the_headline(measured):
    score = find_score(measured.scores, "fgb", "pooled_corrected")
    assert GenerationBias().page(measured).headline_value == f"{100 * (score.value / 2) ** 0.5:.1f} of 100"


@pytest.mark.parametrize("by", ["descriptor", "template"])
def test_the_train_split_lacks_the_unseen_prompts(by):
    settings = {"untuned_by": by, "seed": 3}
    train = measurement_prompts(family_config(**settings, split="train"))
    rows = measurement_prompts(family_config(**settings))
    plain = measurement_prompts(family_config(**(settings | {"untuned_by": None})))
    pd.testing.assert_frame_equal(rows.drop(columns="untuned"), plain)
    trained, tuned, untuned = set(train[by]), set(rows[by][~rows["untuned"]]), set(rows[by][rows["untuned"]])
    assert trained == tuned
    assert not tuned & untuned
    assert tuned | untuned == set(plain[by])
    assert "untuned" not in train
    assert not set(train["text"]) & set(rows["text"])


@pytest.fixture
def files(tmp_path):
    """The paths of two prompts files: three descriptors to each of two templates, and one descriptor more."""
    columns = ["text", "template", "axis", "descriptor"]
    rows = [[f"{name} {template}", template, "age", name] for template in "st" for name in ("old", "young", "tall")]
    paths = tmp_path / "measured.csv", tmp_path / "train.csv"
    for path, part in zip(paths, (rows, [["grey s", "s", "age", "grey"]]), strict=True):
        pd.DataFrame(part, columns=columns).to_csv(path, index=False)
    return paths


def test_a_prompts_file_is_whole_split_or_has_a_train_file(files):
    def prompts(split, **config):
        return measurement_prompts(family_config(split=split, dataset=files[0], **config))

    assert len(prompts("measure")) == 6 * 4 and prompts("all").equals(prompts("measure"))  # answers_per_cell is 4
    train, measure = (prompts(split, split_by="template") for split in ("train", "measure"))
    assert sorted({*train["template"], *measure["template"]}) == ["s", "t"] and len(train) == len(measure) == 12
    assert set(prompts("train", train_file=files[1])["descriptor"]) == {"grey"}
    assert prompts("measure", train_file=files[1]).equals(prompts("measure"))
    with pytest.raises(InputError, match=r"^split: .*measured.csv .*prompts.train_file.*prompts.spl"):
        prompts("train")
