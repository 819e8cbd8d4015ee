"""Sentence pairs, measured and compared: the testbed's planted ones, and others by models of random weights."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, BertTokenizer

from evenhand.evaluation.data import sentence_pairs
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.sentence_pairs import WITHOUT_DEFECTS, SentencePairs
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.revisions import tokenizer_revision
from evenhand.evaluation.prompt_settings import SentenceSettings
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.score import find_score
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tests import tiny_checkpoints
from tests.family_runs import compare_family, measure_tests
from tests.fault_server import serving
from tests.named_scores import find_named
from tests.report_pages import texts
from tests.testbed_settings import MASKED_MODEL, PAIRS
from tools.testbed.pairs import truth

GENERATION_BIAS = "sentence_pairs"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "he", "she", "is", "a", "good", "bad", "doctor", "nurse", ".", ","]
ROWS = [
    (f"he is a {quality} {job}.", f"she is a {quality} {job}.", kind)
    for quality in ("good", "bad")
    for job, kind in (("doctor", "work"), ("nurse", "care"))
]


def masked_model(folder, seed=0, further=()):
    """Save a tiny BERT with random weights, and `further` words."""
    words = [*WORDS, *further]
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForMaskedLM(BertConfig(**sizes, vocab_size=len(words), initializer_range=1.0))
    model.save_pretrained(folder)
    BertTokenizer(vocab={word: number for number, word in enumerate(words)}).save_pretrained(folder)
    return str(folder)


def config(model):
    return FamilyConfig(model=ModelSettings(name=str(model)))


def write_pairs(path, ids="12345"):
    rows = [*ROWS, ("", "she is good", "care")]
    lines = [f"{pair_id},{','.join(row)},stereo" for pair_id, row in zip(ids, rows, strict=True)]
    path.write_text("\n".join(["pair_id,more,less,bias_type,stereo_antistereo", *lines]) + "\n")
    return str(path)


@pytest.fixture
def pairs(tmp_path):
    return write_pairs(tmp_path / "pairs.csv")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return measure_tests(tmp_path_factory.mktemp("pairs"), GENERATION_BIAS, config(MASKED_MODEL.name), pairs=PAIRS)


def test_a_limit_scores_a_stratified_sample_that_the_signature_and_the_page_name(tmp_path, pairs):
    model = masked_model(tmp_path / "model")
    limit = SentenceSettings(limit=2)
    limited = [
        measure_tests(
            tmp_path / str(seed), GENERATION_BIAS, replace(config(model), seed=seed), pairs=pairs, sentences=limit
        )
        for seed in (0, 0, 3)
    ]
    tables = [run.table("pairs") for run in limited]
    assert all(sorted(table["bias_type"]) == ["care", "work"] and table["left_out"].isna().all() for table in tables)
    assert tables[0]["pair_id"].tolist() == tables[1]["pair_id"].tolist()
    signature = limited[0].signature("s_jsd")
    assert (signature["limit"], signature["seed"]) == (2, 0)
    assert "limit, seed 0" in page_html(SentencePairs().page(limited[0]))
    whole = measure_tests(tmp_path / "whole", GENERATION_BIAS, config(model), pairs=pairs)
    assert "limit" not in whole.signature("s_jsd") and len(whole.table("pairs")) == 5
    scores = whole.table("pairs").set_index("pair_id")["s_jsd"]
    assert tables[2]["s_jsd"].tolist() == pytest.approx(scores[tables[2]["pair_id"]].tolist(), abs=1e-6)


def test_the_testbed_shows_the_planted_bias_types_only(planted):
    table = planted.table("pairs")
    types = {score.group["bias_type"] for score in planted.scores if "bias_type" in score.group}
    assert types == set(table["bias_type"])
    known = truth(table)
    for kind in types:
        true, found = (find_score(scores, "s_jsd", bias_type=kind) for scores in (known, planted.scores))
        cps = find_score(planted.scores, "cps", bias_type=kind)
        if true.value == 0:
            assert found.interval[0] <= 0 <= found.interval[1]
            assert cps.interval[0] <= 50 <= cps.interval[1]
        else:
            assert found.interval[1] < 0 and found.value == pytest.approx(true.value, rel=0.25)
            assert cps.interval[0] > 50
    assert any(find_score(known, "s_jsd", bias_type=kind).value == 0 for kind in types)


def test_any_masked_model_on_any_file_with_a_missing_side_counted(pairs, tmp_path):
    run = measure_tests(tmp_path / "run", GENERATION_BIAS, config(masked_model(tmp_path / "bert")), pairs=pairs)
    table, cps = run.table("pairs"), find_score(run.scores, "cps")
    assert table["left_out"].isna().tolist() == [True] * 4 + [False] and table["left_out"][4] == "a sentence is missing"
    assert table["tokens"][0].tolist() == ["is", "a", "good", "doctor", "."]
    assert (cps.n, cps.n_left_out) == (4, 1)
    assert find_score(run.scores, "cps", bias_type="care").n_left_out == 1
    assert "aula" in {score.name for score in run.scores}


def test_whole_words_names_and_filters_of_pairs_in_a_new_language(tmp_path):
    (tmp_path / "names.yaml").write_text("{female: [she], male: [he]}")
    rows = "{male} is a nursedoctor.,{female} is a nursedoctor.\nhe is good.,he is good.\nhe.,she.\n"
    (tmp_path / "pairs.csv").write_text(f"more,less\n{rows}")
    model = masked_model(tmp_path / "bert", further=["##doctor"])
    settings = {"pairs": str(tmp_path / "pairs.csv"), "names": str(tmp_path / "names.yaml"), "min_words": 2}
    run = measure_tests(tmp_path / "run", GENERATION_BIAS, config(model), whole_words=True, **settings)
    table, signature = run.table("pairs").set_index("pair_id"), run.signature("s_jsd")
    reasons = ["", "the two sentences are equal", "a sentence has fewer than 2 words"]
    assert table["left_out"].fillna("").tolist() == reasons
    assert table["tokens"]["1"].tolist() == ["is", "a", "nurse", "##doctor", "."]
    assert signature["variant"] == "each shared token masked with its word"
    assert (signature["names"], signature["min_words"]) == ({"female": ["she"], "male": ["he"]}, 2)
    network, tokenizer = BertForMaskedLM.from_pretrained(model).eval(), AutoTokenizer.from_pretrained(model)
    ids = tokenizer("he is a nursedoctor.", return_tensors="pt")["input_ids"]
    masked = torch.where((ids == ids[0, 4]) | (ids == ids[0, 5]), tokenizer.mask_token_id, ids)
    with torch.no_grad():
        log_p = network(masked).logits[0].log_softmax(-1)
    expected = [float(log_p[place, ids[0, place]]) for place in (4, 5)]
    assert table["log_p_more"]["1"].tolist()[2:4] == pytest.approx(expected, abs=1e-5)
    assert "the two sentences are equal" in page_html(SentencePairs().page(run))
    for wrong, message in (({"names": None}, "names: sentences have {female}"), ({"min_words": 9}, "all are left out")):
        with pytest.raises(InputError, match=message):
            measure_tests(tmp_path / "none", GENERATION_BIAS, config(model), **settings | wrong)


def test_a_causal_model_scores_whole_sentences(pairs, tmp_path):
    run = measure_tests(tmp_path / "run", GENERATION_BIAS, config(DIALOGUE_MODEL), pairs=pairs)
    preference = find_score(run.scores, "stereotype_preference")
    assert preference.n == 4 and preference.signature["model"]["kind"] == "causal"
    assert preference.signature["variant"] == "Σ log p of the whole sentence after BOS"
    assert (preference.signature["context"], preference.signature["end_of_sequence"]) == ("", False)
    assert find_score(run.scores, "likelihood_difference").value > 0


def test_equal_sentences_are_no_pair_also_if_perturbing_makes_them_equal_or_empty(tmp_path):
    rows = ["he is good.,she is good.", "he is bad.,he is bad.", "he is bad.,he is bad!", "a,b"]
    (tmp_path / "pairs.csv").write_text("\n".join(["more,less", *rows]))
    model = tiny_checkpoints.qwen(tmp_path / "model")
    numbers = []
    for perturbed in (False, True):
        settings = {"pairs": str(tmp_path / "pairs.csv"), "perturbed": perturbed}
        run = measure_tests(tmp_path / str(perturbed), GENERATION_BIAS, config(model), **settings)
        numbers.append(find_score(run.scores, "stereotype_preference").n)
    assert numbers == [3, 1]


def test_a_served_model_is_signed_by_its_name_and_tokenizer(pairs, tmp_path):
    with serving(logprobs=lambda ids: [-float(token) for token in ids[1:]]) as (url, _):
        model = ModelSettings(name="m", server=f"{url}/completions", tokenizer=str(DIALOGUE_MODEL))
        run = measure_tests(tmp_path / "run", GENERATION_BIAS, FamilyConfig(model=model), pairs=pairs)
    tokenizer = AutoTokenizer.from_pretrained(DIALOGUE_MODEL)
    assert run.table("pairs")["log_likelihood_more"][0] == -sum(
        tokenizer(ROWS[0][0], add_special_tokens=False)["input_ids"]
    )
    signature = find_score(run.scores, "stereotype_preference").signature
    assert signature["model"] == {
        "name": "m", "revision": None, "api": "completions", "kind": "causal",
        "tokenizer": tokenizer_revision(str(DIALOGUE_MODEL)),
    }  # fmt: skip


def test_two_models_are_compared_also_perturbed_and_on_other_pairs(pairs, tmp_path):
    models = [config(masked_model(tmp_path / f"bert{seed}", seed)) for seed in (0, 1)]
    first, second = (
        measure_tests(tmp_path / f"run{n}", GENERATION_BIAS, model, pairs=pairs) for n, model in enumerate(models)
    )
    perturbed = measure_tests(tmp_path / "perturbed", GENERATION_BIAS, models[0], pairs=pairs, perturbed=True)
    assert perturbed.table("pairs")["tokens"][0].tolist() == ["is", "a", "good", "doctor"]  # the full stop is gone
    other = measure_tests(tmp_path / "de", GENERATION_BIAS, models[0], pairs=write_pairs(tmp_path / "de.csv"))
    for after, title in ((perturbed, "pairs.csv, perturbed"), (other, "de.csv")):
        changes = compare_family(tmp_path / f"both {title}", GENERATION_BIAS, first, after)
        assert SentencePairs().comparison_page(first, after, changes).subtitle.endswith(title)
        assert find_score(changes.scores, "s_jsd", kind="difference").n == 4
    changes = compare_family(tmp_path / "both", GENERATION_BIAS, first, second)
    old, new = (find_score(run.scores, "s_jsd").value for run in (first, second))
    assert find_score(changes.scores, "s_jsd", kind="difference").value == pytest.approx(new - old)
    assert find_score(changes.scores, "cps", kind="detectable_difference").reason  # four pairs are too few
    page = SentencePairs().comparison_page(first, second, changes)
    assert "bert0" in page.subtitle and page.signature["before"]["model"]["name"].endswith("bert0")
    assert texts(page.sections[0].tables[0])["S_JSD, thousandths"][2] == f"{1000 * (new - old):+.2f}".replace("-", "−")


@pytest.mark.parametrize(
    ("model", "settings"),
    [
        (DIALOGUE_MODEL, {"sentences": SentenceSettings(context="I hate")}),
        (DIALOGUE_MODEL, {"sentences": SentenceSettings(end_of_sequence=True)}),
        (MASKED_MODEL.name, {"whole_words": True}),
    ],
)
def test_runs_that_were_scored_in_different_ways_are_not_compared(pairs, tmp_path, model, settings):
    first = measure_tests(tmp_path / "first", GENERATION_BIAS, config(model), pairs=pairs)
    second = measure_tests(tmp_path / "second", GENERATION_BIAS, config(model), pairs=pairs, **settings)
    with pytest.raises(InputError, match="^after: "):
        compare_family(tmp_path / "compare", GENERATION_BIAS, first, second)


def test_pairs_with_known_defects_are_scored_with_and_without(tmp_path, pairs, monkeypatch):
    """Of four pairs, one is on the list; its row is the score of a file without it."""
    more, less, _ = ROWS[0]
    (tmp_path / "list.csv").write_text(
        f"pair_id,sentences,defect\n9,{sentence_pairs._pair_key(more, less)},stray spaces\n"
    )
    monkeypatch.setattr(sentence_pairs, "DEFECTS", tmp_path / "list.csv")
    model = masked_model(tmp_path / "model")
    run = measure_tests(tmp_path / "run", GENERATION_BIAS, config(model), pairs=pairs)
    for metric in ("cps", "s_jsd"):
        whole, without = (find_named(run.scores, metric, **group) for group in ({}, WITHOUT_DEFECTS))
        assert (whole.n, without.n) == (4, 3)
    path = tmp_path / "three.csv"
    rest = [f"{number},{','.join(row)},stereo" for number, row in enumerate(ROWS[1:])]
    path.write_text("\n".join(["pair_id,more,less,bias_type,stereo_antistereo", *rest]))
    three = measure_tests(tmp_path / "three", GENERATION_BIAS, config(model), pairs=str(path))
    assert find_score(three.scores, "s_jsd").value == pytest.approx(
        find_score(run.scores, "s_jsd", **WITHOUT_DEFECTS).value
    )
    assert not [score for score in three.scores if score.group == WITHOUT_DEFECTS]
    other = config(masked_model(tmp_path / "other", 1))
    after = measure_tests(tmp_path / "after", GENERATION_BIAS, other, pairs=pairs)
    three_after = measure_tests(tmp_path / "three after", GENERATION_BIAS, other, pairs=str(path))
    changes = compare_family(tmp_path / "both", GENERATION_BIAS, run, after)
    changes_of_three = compare_family(tmp_path / "both three", GENERATION_BIAS, three, three_after)
    for name in ("cps_difference", "s_jsd_difference"):
        without = find_named(changes.scores, name, **WITHOUT_DEFECTS)
        assert (find_named(changes.scores, name).n, without.n) == (4, 3)
        assert without.value == pytest.approx(find_named(changes_of_three.scores, name).value)
    assert not [score for score in changes_of_three.scores if score.group == WITHOUT_DEFECTS]
    compared = page_html(SentencePairs().comparison_page(run, after, changes))
    assert WITHOUT_DEFECTS["pairs"] in compared
    sections = {section.title: section for section in SentencePairs().page(run).sections}
    assert any("stray spaces" in sentence for sentence in sections["Pairs left out"].sentences)
