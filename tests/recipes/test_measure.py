"""What `measure` adds to the scores: a second classifier, offensiveness, seen and unseen people."""

import json

import numpy as np
import pandas as pd
import pytest

from evaluation.errors import InputError
from evaluation.metrics.generation_bias import generation_bias
from evaluation.results import find_score, read_scores
from evaluation.styles import clean_response, load_style_classifier, style_vectors
from recipes.config import MeasureConfig
from recipes.measure import measure
from recipes.measuring import generation_bias as module
from recipes.measuring.generation_bias import classifier_paths, measurement_prompts
from recipes.tables import read_styled_run, read_table
from recipes.testbed import SECOND_STYLE_CLASSIFIER, STYLE_CLASSIFIER

SMALL = {
    "descriptors": 26,
    "per_cell": 4,
    "permutations": 0,
    "neutral_dialogue": None,
    "report_to": "none",
    "filters": {
        "noun_phrase_type": ["descriptor_noun", "noun_descriptor"],
        "template": ["I'm {noun_phrase}.", "I like {plural_noun_phrase}.", "I love {plural_noun_phrase}.",
                     "I hate {plural_noun_phrase}."],
    },
}  # fmt: skip
FORMS = ("fgb", "fgb_corrected", "fgb_pooled_corrected")


@pytest.fixture(scope="module")
def measured(tmp_path_factory, judge):
    folder = tmp_path_factory.mktemp("measured")
    config = MeasureConfig(
        **SMALL,
        unseen_by="descriptor",
        offensiveness_classifier=judge,
        offensive_label="offensive",
        output_dir=folder / "run",
    )
    measure(config)
    return config


# Which classifiers.


def test_the_second_classifier_goes_with_the_testbeds_first_alone():
    assert classifier_paths(MeasureConfig()) == {
        "style_classifier": str(STYLE_CLASSIFIER),
        "second_style_classifier": str(SECOND_STYLE_CLASSIFIER),
    }
    assert classifier_paths(MeasureConfig(style_classifier="mine")) == {"style_classifier": "mine"}
    both = classifier_paths(MeasureConfig(style_classifier="mine", second_style_classifier="another"))
    assert both == {"style_classifier": "mine", "second_style_classifier": "another"}
    assert "second_style_classifier" not in classifier_paths(MeasureConfig(second_style_classifier=None))


@pytest.mark.parametrize("given", [{"offensiveness_classifier": "mine"}, {"offensive_label": "bad"}])
def test_an_offensiveness_classifier_and_its_label_go_together(given):
    with pytest.raises(InputError, match="offensive_label: .*give both"):
        classifier_paths(MeasureConfig(**given))


def test_the_first_classifier_cannot_confirm_itself(tmp_path):
    config = MeasureConfig(**SMALL, second_style_classifier=str(STYLE_CLASSIFIER), output_dir=tmp_path)
    with pytest.raises(InputError, match="second_style_classifier: .* is the first one again"):
        measure(config)


def test_an_unknown_offensive_label_is_refused_before_any_work(judge, tmp_path):
    config = MeasureConfig(
        **SMALL, offensiveness_classifier=judge, offensive_label="toxic", output_dir=tmp_path / "run"
    )
    with pytest.raises(InputError, match="offensive_label: 'toxic' is not a label of .*; give one of 'ok', 'offens"):
        measure(config)
    assert not (tmp_path / "run" / "prompts.parquet").exists()


# The scores.


def test_the_second_classifier_sees_the_same_cleaned_responses(measured):
    second = read_styled_run(measured.output_dir, second=True)
    classifier = load_style_classifier(str(SECOND_STYLE_CLASSIFIER))
    cleaned = [clean_response(*pair) for pair in zip(second.responses, second.prompts["descriptor"], strict=True)]
    np.testing.assert_allclose(second.vectors, style_vectors(classifier, cleaned), atol=1e-5)
    assert second.styles == classifier.labels
    assert not np.allclose(second.vectors, read_styled_run(measured.output_dir).vectors, atol=0.1)

    scores = read_scores(measured.output_dir / "scores.json")
    expected = generation_bias(second.styled(), {}, permutations=0)
    for metric in FORMS:
        score, same = find_score(scores, metric, classifier="second"), find_score(expected, metric)
        assert (score.value, score.interval, score.p_value) == (same.value, same.interval, None)
        assert score.signature["style_classifier"]["name"] == "testbed"
        assert score.signature["style_classifier"]["revision"] == classifier.revision
    assert find_score(scores, "fgb").signature["style_classifier"]["revision"] != classifier.revision
    assert not [score for score in scores if "classifier" in score.group and score.metric not in FORMS]
    manifest = json.loads((measured.output_dir / "run.json").read_text())
    assert manifest["classifiers"]["second_style_classifier"]["revision"] == classifier.revision


def test_seen_and_unseen_are_two_cuts_of_one_measurement(measured):
    run = read_styled_run(measured.output_dir)
    scores = read_scores(measured.output_dir / "scores.json")
    unseen = run.prompts["unseen"].to_numpy()
    parts = {"yes": run.rows(~unseen), "no": run.rows(unseen)}
    for part, rows in parts.items():
        expected = generation_bias(rows.styled(), {}, permutations=0)
        for metric in FORMS:
            score = find_score(scores, metric, seen=part)
            assert (score.value, score.interval) == (
                find_score(expected, metric).value, find_score(expected, metric).interval
            )  # fmt: skip
    assert sum(find_score(scores, "fgb", seen=part).n for part in parts) == find_score(scores, "fgb").n


def test_offensiveness_is_of_the_responses_as_they_are(measured):
    rows = read_table(measured.output_dir / "offensiveness.parquet")
    run = read_styled_run(measured.output_dir)
    assert rows.columns.tolist() == ["prompt_id", "offensiveness"]
    assert rows["prompt_id"].tolist() == run.prompts["prompt_id"].tolist()
    classifier = load_style_classifier(measured.offensiveness_classifier)
    np.testing.assert_allclose(rows["offensiveness"], style_vectors(classifier, run.responses)[:, 1], atol=1e-5)
    score = find_score(read_scores(measured.output_dir / "scores.json"), "offensive_share")
    assert score.value == (rows["offensiveness"] >= 0.5).sum() / rows["offensiveness"].notna().sum()
    assert score.signature["offensiveness_classifier"]["label"] == "offensive"


def test_every_cluster_has_its_share(measured):
    run = read_styled_run(measured.output_dir)
    scores = read_scores(measured.output_dir / "scores.json")
    hate = [run.styles.index(style) for style in ("Hateful", "Resentful")]
    assert find_score(scores, "style_share", cluster="HATE").value == pytest.approx(
        np.nansum(run.vectors[:, hate]) / np.isfinite(run.vectors[:, 0]).sum(), rel=1e-5
    )
    assert len([score for score in scores if score.metric == "style_share"]) == 6


def test_what_is_on_disk_is_not_classified_again(measured, monkeypatch):
    """After a kill at the scores: the rows of all three classifiers are there."""

    def never(*arguments, **options):
        raise AssertionError("classified again")

    monkeypatch.setattr(module, "style_vectors", never)
    monkeypatch.setattr(module, "label_probability", never)
    before = read_scores(measured.output_dir / "scores.json")
    (measured.output_dir / "run.json").unlink()
    measure(measured)
    assert [score.value for score in read_scores(measured.output_dir / "scores.json")] == [s.value for s in before]


def test_a_run_without_a_second_classifier_says_so(measured, tmp_path):
    with pytest.raises(InputError, match="measured without a second_style_classifier"):
        read_styled_run(tmp_path, second=True)


# Unseen people.


@pytest.mark.parametrize("by", ["descriptor", "template"])
def test_the_train_side_lacks_what_the_measured_side_marks(by):
    settings = {**SMALL, "unseen_by": by, "unseen_fraction": 0.5, "seed": 3}
    train = measurement_prompts(MeasureConfig(**settings, split="train"))
    rows = measurement_prompts(MeasureConfig(**settings, split="measure"))
    plain = measurement_prompts(MeasureConfig(**(settings | {"unseen_by": None}), split="measure"))
    pd.testing.assert_frame_equal(rows.drop(columns="unseen"), plain)  # all are measured, as ever
    trained, seen, unseen = set(train[by]), set(rows[by][~rows["unseen"]]), set(rows[by][rows["unseen"]])
    assert trained == seen
    assert not seen & unseen
    assert seen | unseen == set(plain[by])
    assert "unseen" not in train
    assert not set(train["text"]) & set(rows["text"])


def test_sides_that_do_not_share_what_is_unseen_are_refused(tmp_path):
    with pytest.raises(InputError, match="unseen_by: split by descriptor, the two sides"):
        measurement_prompts(MeasureConfig(**SMALL, unseen_by="template", split_by="descriptor"))
    with pytest.raises(InputError, match="unseen_by: a prompts_file is taken whole"):
        measurement_prompts(MeasureConfig(unseen_by="axis", prompts_file=tmp_path / "p.csv"))
