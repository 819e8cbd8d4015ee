"""The shipped weights: they load, they are small, and the dialogue model has the bias that was planted."""

import json

import numpy as np
import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.language.mentions import clean_response
from evenhand.evaluation.data.prompts import sample_cells, select_prompts
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.styles import style_vectors
from evenhand.recipes.testbed import DIALOGUE_MODEL, SECOND_STYLE_CLASSIFIER, STYLE_CLASSIFIER
from tools.testbed import grammar
from tools.testbed.build import ABOUT, MEASURED
from tools.testbed.classifiers import is_new_to_both, style_posteriors

MEGABYTE = 1e6
MODELS = [DIALOGUE_MODEL.parent / name for name in ABOUT]


def test_the_models_load_without_pickle_and_are_small():
    dialogue = AutoModelForCausalLM.from_pretrained(DIALOGUE_MODEL)
    classifier = AutoModelForSequenceClassification.from_pretrained(STYLE_CLASSIFIER)
    second = AutoModelForSequenceClassification.from_pretrained(SECOND_STYLE_CLASSIFIER)
    assert [model.config.model_type for model in (dialogue, classifier, second)] == ["gpt2", "bert", "modernbert"]
    assert second.config.id2label == classifier.config.id2label
    assert (SECOND_STYLE_CLASSIFIER / "model.safetensors").stat().st_size <= 2 * MEGABYTE
    assert dialogue.num_parameters() <= 1.5e6
    assert tuple(classifier.config.id2label[i] for i in range(len(grammar.styles()))) == grammar.styles()
    files = [file for folder in MODELS for file in folder.iterdir()]
    assert {file.suffix for file in files} <= {".safetensors", ".json", ".md"}
    assert max(file.stat().st_size for file in files) < 4 * MEGABYTE
    assert sum(file.stat().st_size for file in files) <= 10 * MEGABYTE
    assert all((folder / "README.md").exists() for folder in MODELS)


def test_the_dialogue_model_has_learned_the_planted_bias():
    descriptors = ["paralyzed", "with a lisp", "gorgeous", "handsome", "tulver", "pansexual", "Sikh", "left-handed"]
    prompts = select_prompts(
        generate_prompts(load_taxonomy("paper")),
        {"descriptor": descriptors, "noun_phrase_type": ["descriptor_noun", "noun_descriptor"]},
    )
    prompts = sample_cells(prompts, 4, seed=0)
    model = load_dialogue_model(str(DIALOGUE_MODEL))
    contexts = render_contexts(model, prompts["text"].tolist(), [""] * len(prompts))
    responses = [""] * len(prompts)
    for batch in generate_responses(model, contexts, range(len(prompts)), decoding_arguments("sample")):
        for row, response in batch.items():
            responses[row] = response.text
    cleaned = [clean_response(*pair) for pair in zip(responses, prompts["descriptor"], strict=True)]
    vectors = style_vectors(load_style_classifier(str(STYLE_CLASSIFIER)), cleaned)
    measured = np.stack([vectors[prompts["descriptor"] == d].mean(axis=0) for d in descriptors])
    planted = grammar.descriptor_means(list(grammar.plan().base), descriptors)
    measured, planted = measured - measured.mean(axis=0), planted - planted.mean(axis=0)
    # 104 responses each: noise alone would give a correlation of about 0 and a slope of about 0.
    assert np.corrcoef(measured.ravel(), planted.ravel())[0, 1] > 0.8
    assert 0.6 < (measured * planted).sum() / (planted**2).sum() < 1.3


def test_the_second_classifier_knows_utterances_that_neither_saw():
    texts, posteriors, share = style_posteriors()
    new = np.flatnonzero([is_new_to_both(text) for text in texts])
    vectors = style_vectors(load_style_classifier(str(SECOND_STYLE_CLASSIFIER)), [texts[row] for row in new])
    accuracy = np.average(posteriors[new, vectors.argmax(1)], weights=share[new])
    recorded = json.loads((DIALOGUE_MODEL.parent / MEASURED).read_text())["second_classifier_accuracy"]
    assert accuracy == pytest.approx(recorded, abs=0.002)
    assert accuracy >= 0.85
