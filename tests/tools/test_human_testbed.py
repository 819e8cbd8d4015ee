"""The human testbed: its data, which comment answers, and what is true of the answers, by hand."""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import find_score
from evenhand.evaluation.settings import PromptSettings
from evenhand.recipes.testbed.plan import Plan, style_distribution
from tests.tiny_models import word_level_tokenizer
from tools.human_testbed import build, comments, data
from tools.testbed import check

WORDS = ["<end>", "how", "sad", "nice", "is", "it"]
EMOTIONS = ("joy", "sadness")
BANK = pd.DataFrame(
    {"text": ["how nice", "nice", "how sad", "how sad is it"], "emotion": ["joy", "joy", "sadness", "sadness"]}
)


@pytest.fixture(scope="module")
def bank():
    tokenizer = word_level_tokenizer(WORDS, eos_token="<end>", unk_token="<end>")
    return comments.tokenized_bank(BANK, EMOTIONS, tokenizer)


def test_expectations_are_those_of_the_bank(bank):
    # p(joy) = 0.8: the four comments have 0.4, 0.4, 0.1 and 0.1.
    drawn = comments.sample_comments(bank, np.tile([0.8, 0.2], (200, 1)), np.random.default_rng(0))
    found = {" ".join(WORDS[i] for i in ids): expected.numpy() for ids, expected in drawn}
    assert set(found) == {f"{text} <end>" for text in BANK["text"]}
    for text, expected in found.items():
        np.testing.assert_allclose(expected[0], [0, 0.6, 0, 0.4, 0, 0], atol=1e-6)
        if text.startswith("how"):  # 0.4 go on with "nice", 0.2 with "sad"
            np.testing.assert_allclose(expected[1], [0, 0, 1 / 3, 2 / 3, 0, 0], atol=1e-6)
        if text.startswith("how sad"):  # as often over as going on
            np.testing.assert_allclose(expected[2], [0.5, 0, 0, 0, 0.5, 0], atol=1e-6)
        if text.startswith("nice") or "is" in text:  # no comment goes on
            np.testing.assert_allclose(expected[-1], np.eye(6)[0], atol=1e-6)
        np.testing.assert_allclose(expected.sum(axis=1), 1, atol=1e-6)
    shares = [sum(ids == [*bank.tokens[k][bank.tokens[k] != 0], 0] for ids, _ in drawn) / 200 for k in range(4)]
    np.testing.assert_allclose(shares, [0.4, 0.4, 0.1, 0.1], atol=0.12)


def test_truth_through_a_classifier_by_hand():
    # One template, two descriptors; base even, effects ±ln 3 on joy: p(joy) is 3/4 and 1/4.
    planted = Plan(
        {"t": np.log([0.5, 0.5])}, {"t": 1.0}, {"a": np.array([np.log(3), 0.0]), "b": np.array([-np.log(3), 0.0])}, {}
    )
    cells = pd.DataFrame(product(["t"], ["a", "b"]), columns=["template", "descriptor"])
    np.testing.assert_allclose(style_distribution(planted, ["t", "t"], ["a", "b"]), [[0.75, 0.25], [0.25, 0.75]])
    assert find_score(comments.truth(cells, planted, np.eye(2)), "fgb_pooled_corrected").value == pytest.approx(0.25)
    # A classifier that sees joy in "nice" alone: of joy's two comments it sees 1 and 1/2, of sadness' none.
    sees = {"how nice": [0.5, 0.5], "nice": [1, 0], "how sad": [0, 1], "how sad is it": [0, 1]}
    seen = comments.expected_emotions_of_classifier(BANK, EMOTIONS, lambda texts: [sees[text] for text in texts])
    np.testing.assert_allclose(seen, [[0.75, 0.25], [0, 1]])
    # Expected vectors: 3/4·(0.75, 0.25) + 1/4·(0, 1) and the like: they differ by 0.375 in each of two styles.
    score = find_score(comments.truth(cells, planted, seen), "fgb_pooled_corrected")
    assert score.value == pytest.approx(2 * 0.375**2 / 2)


def test_some_axes_have_no_bias_and_pity_is_where_the_plan_puts_it():
    clusters = yaml.safe_load((comments.FOLDER / "plan.yaml").read_text(encoding="utf-8"))["clusters"]
    names = tuple(emotion for shares in clusters.values() for emotion in shares)
    assert len(names) == len(set(names)) == 28
    planted = comments.plan(names)
    template = "I'm {noun_phrase}."
    descriptors = ["left-handed", "American", "Chinese", "Deaf", "gorgeous"]
    p = style_distribution(planted, [template] * 5, descriptors)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose(p[1:3], p[[0, 0]])  # nationality has none
    sad, admired = p[:, names.index("sadness")], p[:, names.index("admiration")]
    assert sad[3] > 3 * sad[0] and admired[4] > 2 * admired[0]


DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_data = pytest.mark.skipif(not (DATA / data.TRAIN).is_file(), reason="GoEmotions is not in ../shared/data")


def test_an_absent_or_another_file_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"data: there is no .*train\.tsv; give the folder that holds GoEmotions"):
        data.check_data(tmp_path)
    path = tmp_path / data.TRAIN
    path.parent.mkdir(parents=True)
    path.write_text("Nice.\t0\tid\n", encoding="utf-8")
    with pytest.raises(InputError, match="is not the file that the testbed was made of"):
        data.check_data(tmp_path)


def test_the_bank_is_short_plain_comments_with_one_label_of_one_half(tmp_path):
    (tmp_path / "goemotions" / "original").mkdir(parents=True)
    (tmp_path / data.LABELS).write_text("joy\nfear\n", encoding="utf-8")
    texts = [f"Nice thing number {n}" for n in range(40)]
    odd = ["Oh", "[NAME] is nice", "See http://x.y", "word " * 13, "It’s nice"]
    lines = [f"{text}\t0\tid" for text in texts + odd] + ["Two labels here\t0,1\tid", "Scary thing\t1\tid"]
    (tmp_path / data.TRAIN).write_text("\n".join(lines) + "\n", encoding="utf-8")
    taken, left = data.bank(tmp_path), data.classifier_texts(tmp_path)
    ours = [text for text in texts if data.is_of_bank(text)]
    assert 10 < len(ours) < 30
    assert set(taken["text"]) - {"It's nice", "Scary thing"} == set(ours)
    assert not set(taken["text"]) & set(left["text"]) and len(left) == sum(
        not data.is_of_bank(line.split("\t")[0]) for line in lines
    )
    assert data.is_of_bank("It’s nice") == data.is_of_bank("It's  nice")


@needs_data
def test_the_real_data_is_what_the_documentation_says():
    data.check_data(DATA)
    bank = data.bank(DATA)
    assert len(bank) == 3020 and bank["text"].is_unique and bank["emotion"].nunique() == 28
    assert bank["emotion"].value_counts().max() == data.MAX_OF_AN_EMOTION
    classified = set(data.classifier_texts(DATA)["text"])
    assert not set(bank["text"]) & classified and not set(data.held_out_comments(DATA)) & set(bank["text"])
    train, held_out = (data.small_talk(DATA, held_out) for held_out in (False, True))
    assert len(train) == 1520 and len(held_out) == 1483


def test_the_settings_of_both_builds_are_those_of_a_measurement(tmp_path):
    paths = [tmp_path / name for name in ("model", "first", "second", "neutral.jsonl")]
    for classifiers in (paths[1:2], paths[1:3]):
        settings = build.measure_settings(tmp_path, paths[0], classifiers, paths[3], PromptSettings(), seed=3)
        chosen = (settings.generation_bias.style_classifier, settings.generation_bias.second_style_classifier)
        assert [it.name for it in chosen if it is not None] == [str(path) for path in classifiers]
        assert settings.output_dir == tmp_path / "measured" and settings.seed == 3
    built_in = check.measure_settings(0, str(paths[0]), str(paths[1])).generation_bias
    assert built_in.style_classifier.name == str(paths[1]) and built_in.second_style_classifier is None
