"""Where there is a GPU, responses, likelihoods, styles and tuned models equal the CPU's up to rounding."""

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset

from evenhand.evaluation.models.base import prompt_seed
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.likelihood.prefix_tree import node_log_probabilities, prefix_tree
from evenhand.evaluation.models.likelihood.tokens import response_perplexity
from evenhand.evaluation.models.styles import style_vectors
from evenhand.mitigation.adapter import load_tuned
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.distill import Distill
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import TrainingRows
from tests.mitigation.tiny_dialogue import QUICK, tiny_base
from tests.tiny_models import EOS, WORDS, tiny

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA, and -m gpu")]

DEVICES = ("cpu", "cuda")
RNG = np.random.default_rng(0)
CONTEXTS = [" ".join(RNG.choice(list("abcdefgh"), size=RNG.integers(1, 10))) for _ in range(200)]
STYLES = "package:evenhand/recipes/testbed/style_classifier"


def on_devices(model):
    """Return copies of a dialogue model, or of a classifier, on the CPU and on the GPU."""
    return [replace(model, model=deepcopy(model.model).to(device)) for device in DEVICES]


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "sliding", "bart"])
@pytest.mark.parametrize("samples", [False, True])
def test_responses(architecture, samples):
    arguments = decoding_arguments("sample", {"do_sample": samples, "max_new_tokens": 12})

    def responses(model):
        seeds = [prompt_seed(str(row), 0) for row in range(len(CONTEXTS))]
        texts = [""] * len(CONTEXTS)
        for batch in generate_responses(model, CONTEXTS, seeds, arguments):
            for row, response in batch.items():
                texts[row] = response.text
        return np.array(texts)

    on_cpu, on_gpu = map(responses, on_devices(tiny(architecture)))
    assert len(set(on_cpu)) > 3
    assert (on_cpu == on_gpu).mean() > 0.98  # rounding may decide between two tokens


def test_likelihoods():
    answers = CONTEXTS[1:] + CONTEXTS[:1]
    on_cpu, on_gpu = (response_perplexity(model, CONTEXTS, answers)[0] for model in on_devices(tiny("llama")))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-4)

    def of_nodes(model):
        tree = prefix_tree([[EOS, *map(WORDS.index, text.split())] for text in CONTEXTS])
        values = np.full(len(tree.token), np.nan)  # the root has no probability
        for rows, part in node_log_probabilities(model, tree):
            values[rows] = part
        return values

    on_cpu, on_gpu = map(of_nodes, on_devices(tiny("llama")))
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=1e-4, atol=1e-4)


def test_styles():
    texts = ["i am happy for you", "that is sad", "what do you mean?", *CONTEXTS]
    on_cpu, on_gpu = (style_vectors(classifier, texts) for classifier in on_devices(load_style_classifier(STYLES)))
    np.testing.assert_allclose(on_gpu, on_cpu, atol=1e-4)


def without_dropout(network):
    for module in network.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0


@pytest.mark.parametrize("method", ["distill", "exchange"])
def test_a_tuning(method, tmp_path):
    prompts = [f"{letter} j" for letter in "abcdefgh"]
    rows = {"prompt": prompts, "context": prompts, "completion": ["red sun", "blue sky"] * 4}
    if method == "distill":
        rows["others"] = [[other for other in prompts if other != prompt] for prompt in prompts]
    rows = Dataset.from_dict(rows)
    of_one_token = trained_method(method, {"distill": Distill.Settings(first_tokens=1)})
    data = TrainingRows(method=of_one_token, train=rows, validation=rows.select([0, 1]))
    settings = QUICK.replaced(batch_size=2)
    curves, predictions = [], []
    for base in on_devices(tiny_base()):
        without_dropout(base.model)  # random numbers differ between devices
        result = tune(base, data, settings, tmp_path / base.model.device.type)
        curves.append([loss for _, loss in result.validation_losses])
        ids = torch.tensor([[7, 16], [8, 16]], device=base.model.device)
        with torch.no_grad():
            predictions.append(load_tuned(base, result.path, True).model(ids).logits.log_softmax(-1).cpu())
    assert curves[0][-1] < 0.9 * curves[0][0]
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-2, atol=1e-4)
    np.testing.assert_allclose(predictions[1], predictions[0], atol=0.05)
