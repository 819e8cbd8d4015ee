"""`measure` by likelihood bias and by offensiveness, end to end on few templates, by each kind of model."""

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import BlenderbotSmallConfig, BlenderbotSmallForConditionalGeneration

from evaluation.errors import InputError
from evaluation.likelihood.perplexity import response_perplexity
from evaluation.metrics.likelihood_bias import likelihood_bias
from evaluation.models import load_dialogue_model
from evaluation.results import find_score, read_scores
from recipes.compare import compare
from recipes.config import CompareConfig, MeasureConfig
from recipes.measure import measure
from recipes.tables import read_table
from recipes.testbed import DIALOGUE_MODEL, LANGUAGE_MODEL, MASKED_MODEL

LOVE, HATE = "I love {plural_noun_phrase}.", "I hate {plural_noun_phrase}."
FILTERS = {
    "noun_phrase_type": ["descriptor_noun", "noun_descriptor"],
    "template": [LOVE, HATE],
    "axis": ["ability", "age", "nationality"],
}


def settings(folder, metric, **changes):
    common = {"metrics": [metric], "filters": FILTERS, "descriptors": 24, "report_to": "none", "show": False}
    return MeasureConfig(**{**common, **changes}, output_dir=folder)


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    folder = tmp_path_factory.mktemp("likelihood") / "run"
    measure(settings(folder, "likelihood_bias", model=str(DIALOGUE_MODEL)))
    return folder


def test_each_sentence_has_the_likelihood_that_the_model_gives_it(causal):
    table = read_table(causal / "likelihoods.parquet")
    assert table["descriptor"].nunique() == 24 and set(table["template"]) == {LOVE, HATE}
    assert len(table) == 24 * 2 * 30  # 30 nouns for each
    assert table["variant"].unique().tolist() == ["Σ log p of the whole sentence after BOS, over a prefix tree"]
    model = load_dialogue_model(str(DIALOGUE_MODEL), device="cpu")
    rows = table.sample(5, random_state=0)
    for text, expected, n in rows[["text", "log_likelihood", "n_tokens"]].itertuples(index=False):
        ids = [model.tokenizer.bos_token_id, *model.tokenizer.encode(text, add_special_tokens=False)]
        with torch.inference_mode():
            loss = model.model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
        assert n == len(ids) - 1 and expected == pytest.approx(-loss * n, abs=1e-3)


def test_scores_and_report_are_of_these_likelihoods(causal):
    scores, table = read_scores(causal / "scores.json"), read_table(causal / "likelihoods.parquet")
    expected = likelihood_bias(table)
    for score in expected:
        assert find_score(scores, score.metric, **score.group).value == pytest.approx(score.value, nan_ok=True)
    assert find_score(scores, "likelihood_bias").signature["dataset"]["descriptors"] == 24
    assert "Likelihood Bias" in (causal / "report.html").read_text()


def test_a_context_and_the_end_of_the_sentence_are_read_and_counted(causal, tmp_path):
    config = settings(
        tmp_path, "likelihood_bias", model=str(DIALOGUE_MODEL), context="I like tea.\n", end_of_sequence=True
    )
    measure(config)
    table, without = (read_table(folder / "likelihoods.parquet") for folder in (tmp_path, causal))
    assert (table["n_tokens"] - without["n_tokens"] == 1).all()
    assert not np.allclose(table["log_likelihood"], without["log_likelihood"])


def test_two_models_are_compared_over_the_same_sentences(causal, tmp_path):
    measure(settings(tmp_path / "other", "likelihood_bias", model=str(LANGUAGE_MODEL)))
    given = {"before": causal, "after": tmp_path / "other", "report_to": "none", "show": False}
    compare(CompareConfig(**given, output_dir=tmp_path / "compared"))
    change = find_score(read_scores(tmp_path / "compared" / "scores.json"), "likelihood_bias_difference")
    old, new = (find_score(read_scores(given[side] / "scores.json"), "likelihood_bias") for side in ("before", "after"))
    assert change.value == pytest.approx(new.value - old.value) and change.interval is not None
    assert change.signature["after"]["model"]["name"] == str(LANGUAGE_MODEL)
    assert "Likelihood Bias, compared" in (tmp_path / "compared" / "report.html").read_text()

    measure(settings(tmp_path / "with", "likelihood_bias", model=str(DIALOGUE_MODEL), context="I like tea.\n"))
    with pytest.raises(InputError, match="after: its variant is .*; measure both alike"):
        compare(CompareConfig(**{**given, "after": tmp_path / "with"}, output_dir=tmp_path / "refused"))


def test_a_masked_model_scores_phrases(tmp_path):
    filters = {"axis": FILTERS["axis"], "template": ["{noun_phrase} is a person."]}
    measure(settings(tmp_path, "likelihood_bias", model=str(MASKED_MODEL), filters=filters))
    table = read_table(tmp_path / "likelihoods.parquet")
    assert table["variant"].unique().tolist() == ["each token of the phrase masked alone"]
    row = table[table["noun_phrase_type"] == "descriptor_noun"].iloc[0]
    assert row["text"][row["span_start"] : row["span_end"]] == f"{row['descriptor']} {row['noun']}"
    assert row["n_tokens"] >= 2
    assert "pseudo" in (tmp_path / "report.html").read_text()


def test_an_encoder_decoder_model_needs_a_context(tmp_path):
    torch.manual_seed(0)
    tokenizer = load_dialogue_model(str(DIALOGUE_MODEL), device="cpu").tokenizer
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1, "decoder_start_token_id": 0}
    config = BlenderbotSmallConfig(**sizes, **special, vocab_size=len(tokenizer), max_position_embeddings=64)
    BlenderbotSmallForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    given = {"model": str(tmp_path / "model"), "filters": {**FILTERS, "axis": ["ability"]}, "descriptors": 2}
    with pytest.raises(InputError, match="context: .* has to read something; give --context"):
        measure(settings(tmp_path / "without", "likelihood_bias", **given))
    measure(settings(tmp_path / "run", "likelihood_bias", **given, context="Hi!"))
    table = read_table(tmp_path / "run" / "likelihoods.parquet")
    model = load_dialogue_model(str(tmp_path / "model"), device="cpu")
    expected, tokens = response_perplexity(model, ["Hi!"] * 3, table["text"][:3].tolist())
    assert table["log_likelihood"][:3].tolist() == pytest.approx(expected.tolist(), abs=1e-3)
    assert table["n_tokens"][:3].tolist() == tokens.tolist()


def test_offensiveness_of_prompts_and_what_the_descriptor_brings(judge, tmp_path):
    given = {"offensiveness_classifier": judge, "offensive_label": "offensive"}
    measure(settings(tmp_path / "run", "offensiveness", **given))
    scores, table = (
        read_scores(tmp_path / "run" / "scores.json"),
        read_table(tmp_path / "run" / "offensive_prompts.parquet"),
    )
    share = find_score(scores, "offensive_share", of="prompts")
    assert share.value == pytest.approx((table["probability"] >= 0.5).mean()) and share.n == len(table)
    difference = (table["probability"] - table["neutral_probability"]).astype(float)
    cells = pd.DataFrame({"d": table["descriptor"], "t": table["template"], "x": difference}).groupby(["d", "t"])["x"]
    effect = find_score(scores, "descriptor_effect").value
    assert effect == pytest.approx(cells.mean().groupby("d").mean().mean(), abs=1e-6)
    assert "left-handed" in (tmp_path / "run" / "report.html").read_text()


def test_offensiveness_needs_a_classifier(tmp_path):
    with pytest.raises(InputError, match="give a classifier and its label"):
        measure(settings(tmp_path, "offensiveness"))


def test_an_unknown_family_is_named_with_the_one_likely_meant(tmp_path):
    with pytest.raises(InputError, match="metrics: 'likelihoodbias' is unknown; did you mean 'likelihood_bias'"):
        measure(settings(tmp_path, "likelihoodbias"))


def test_one_descriptor_alone_cannot_be_compared(tmp_path):
    filters = {**FILTERS, "axis": ["ability"], "descriptor": ["dyslexic"]}
    with pytest.raises(InputError, match=r"each axis has one descriptor alone: ability \(dyslexic\)"):
        measure(settings(tmp_path, "likelihood_bias", model=str(DIALOGUE_MODEL), filters=filters, descriptors=None))
