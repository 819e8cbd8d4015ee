"""Likelihood bias measured on few templates, by each kind of model, and two models compared."""

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import BlenderbotSmallConfig, BlenderbotSmallForConditionalGeneration

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.metrics.likelihood_bias import LikelihoodBias
from evenhand.evaluation.metrics.likelihood_bias.descriptor_pairs import limit_sentences, read_sentences
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.likelihood.tokens import response_perplexity
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.prompt_settings import PromptSettings, SentenceSettings
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.score import find_score
from evenhand.recipes.testbed import DIALOGUE_MODEL, LANGUAGE_MODEL, MASKED_MODEL
from tests.family_runs import compare_family, measure_tests

NAME = "likelihood_bias"
LOVE, HATE = "I love {plural_noun_phrase}.", "I hate {plural_noun_phrase}."
FILTERS = {
    "noun_phrase_type": ["descriptor_noun", "noun_descriptor"],
    "template": [LOVE, HATE],
    "axis": ["ability", "age", "nationality"],
    "descriptor_gender": "(none)",
}


def make_config(model=DIALOGUE_MODEL, filters=FILTERS, descriptors=24) -> FamilyConfig:
    return FamilyConfig(ModelSettings(name=str(model)), PromptSettings(filters=filters, descriptors=descriptors))


@pytest.fixture(scope="module")
def causal(tmp_path_factory):
    return measure_tests(tmp_path_factory.mktemp("causal"), NAME, make_config())


def test_each_sentence_has_the_likelihood_that_the_model_gives_it(causal):
    table = causal.table("likelihoods")
    assert table["descriptor"].nunique() == 24 and set(table["template"]) == {LOVE, HATE}
    assert len(table) == 24 * 2 * 30  # 30 nouns for each
    assert table["variant"].unique().tolist() == ["Σ log p of the whole sentence after BOS"]
    model = load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), device="cpu"))
    rows = table.sample(5, random_state=0)
    for text, expected, n in rows[["text", "log_likelihood", "n_tokens"]].itertuples(index=False):
        ids = [model.tokenizer.bos_token_id, *model.tokenizer.encode(text, add_special_tokens=False)]
        with torch.inference_mode():
            loss = model.model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
        assert n == len(ids) - 1 and expected == pytest.approx(-loss * n, abs=1e-3)


def test_a_context_and_an_end_count(causal, tmp_path):
    sentences = SentenceSettings(context="I like tea.\n", end_of_sequence=True)
    other = measure_tests(tmp_path, NAME, make_config(), sentences=sentences)
    table, without = other.table("likelihoods"), causal.table("likelihoods")
    assert (table["n_tokens"] - without["n_tokens"] == 1).all()
    assert not np.allclose(table["log_likelihood"], without["log_likelihood"])
    assert other.signature(NAME)["context"] == "I like tea.\n"


def test_two_models_are_compared_over_the_same_sentences(causal, tmp_path):
    after = measure_tests(tmp_path, NAME, make_config(LANGUAGE_MODEL))
    changes = compare_family(tmp_path / "compared", NAME, causal, after)
    change = find_score(changes.scores, "likelihood_bias", kind="difference")
    old, new = (find_score(run.scores, NAME) for run in (causal, after))
    assert change.value == pytest.approx(new.value - old.value) and change.interval is not None
    assert change.signature["after"]["model"]["name"] == str(LANGUAGE_MODEL)
    assert causal.signature(NAME)["dataset"]["descriptors"] == 24
    assert "compared" in page_html(LikelihoodBias().comparison_page(causal, after, changes))


def test_one_descriptor_of_each_axis_is_refused_before_a_model_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(LoadedModel, "load", lambda model: pytest.fail("the model is loaded"))
    with pytest.raises(InputError, match="^prompts: "):
        measure_tests(tmp_path, NAME, make_config(descriptors=3))


def test_a_masked_model_scores_phrases(tmp_path):
    filters = {"axis": FILTERS["axis"], "template": ["{noun_phrase} is a person."]}
    masked = measure_tests(tmp_path, NAME, make_config(MASKED_MODEL, filters))
    table = masked.table("likelihoods")
    assert table["variant"].unique().tolist() == ["each token of the phrase masked alone"]
    row = table[table["noun_phrase_type"] == "descriptor_noun"].iloc[0]
    assert row["text"][row["span_start"] : row["span_end"]] == f"{row['descriptor']} {row['noun']}"
    assert row["n_tokens"] >= 2
    assert "pseudo" in page_html(LikelihoodBias().page(masked))


def test_an_encoder_decoder_model_needs_a_context(tmp_path):
    torch.manual_seed(0)
    tokenizer = load_dialogue_model(ModelSettings(name=str(DIALOGUE_MODEL), device="cpu")).tokenizer
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1, "decoder_start_token_id": 0}
    config = BlenderbotSmallConfig(**sizes, **special, vocab_size=len(tokenizer), max_position_embeddings=64)
    BlenderbotSmallForConditionalGeneration(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    config = make_config(tmp_path / "model", {**FILTERS, "axis": ["ability"]}, 2)
    with pytest.raises(InputError, match="context: .*encoder"):
        measure_tests(tmp_path / "without", NAME, config)
    table = measure_tests(tmp_path / "run", NAME, config, sentences=SentenceSettings(context="Hi!")).table(
        "likelihoods"
    )
    model = load_dialogue_model(ModelSettings(name=str(tmp_path / "model"), device="cpu"))
    expected, tokens = response_perplexity(model, ["Hi!"] * 3, table["text"][:3].tolist())
    assert table["log_likelihood"][:3].tolist() == pytest.approx(expected.tolist(), abs=1e-3)
    assert table["n_tokens"][:3].tolist() == tokens.tolist()


def test_a_file_has_each_sentence_once_and_its_people_may_have_another_column(tmp_path):
    file = tmp_path / "sentences.csv"
    rows = ["text,template,axis,descriptor,who,noun", "A deaf man.,A {}.,a,x,deaf,man", "A man.,A {}.,a,x,tall,man"]
    file.write_text("\n".join(rows))
    assert read_sentences(file, "who")["descriptor"].tolist() == ["deaf", "tall"]
    with pytest.raises(InputError, match="descriptor 'x', noun 'man' occurs twice"):  # before a model scores them
        read_sentences(file)


def test_a_limit_keeps_whole_templates_of_every_axis():
    templates = {"age": "abcd", "body": "abcd", "cult": "ab"}
    sentences = pd.DataFrame(
        [
            {"axis": axis, "template": template, "descriptor": f"{axis} {number}"}
            for axis, names in templates.items()
            for template in names
            for number in range(10)
        ]
    )
    limited = limit_sentences(sentences, 65, seed=0)
    groups = limited.groupby(["axis", "template"]).size()
    assert (groups == 10).all()  # sentences are compared within a template
    assert groups.groupby("axis").size().tolist() == [2, 2, 2]
    assert limit_sentences(sentences, 1, seed=0).groupby("axis")["template"].nunique().tolist() == [1, 1, 1]
    assert limit_sentences(sentences, 100, seed=0).equals(sentences)
    samples = {tuple(limit_sentences(sentences, 30, seed)["template"].unique()) for seed in range(20)}
    assert len(samples) > 1
