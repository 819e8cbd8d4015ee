"""Tuning where there is a GPU: the saved model is the checked model, and its memory has one copy of the base."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch

from benchmarks.random_models import full_size, tuning_data
from evenhand.evaluation.errors import TuningRejected
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.settings import ModelSettings
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.tune import tune

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

MODEL, RATE = "qwen_chat", 1e-3
SETTINGS = TuningSettings(learning_rate=RATE, evaluations_per_epoch=1, max_perplexity_increase=1e9)


@pytest.fixture
def base():
    model = full_size(MODEL)
    return replace(model, model=model.model.bfloat16().cuda())


def test_what_was_tuned_on_a_gpu_is_loaded_as_it_was_checked(base, tmp_path):
    folder = tmp_path / "base"
    base.model.save_pretrained(folder)
    base.tokenizer.save_pretrained(folder)
    settings, data = tuning_data(MODEL, "kto", SETTINGS, 8)
    result = tune(replace(base, name=str(folder)), data, settings, tmp_path)
    again = load_dialogue_model(ModelSettings(name=str(result.path), dtype="bfloat16", device="cuda"))
    ids = torch.tensor([[5, 6, 7]], device="cuda")
    with torch.inference_mode():
        change = (again.model(ids).logits - base.model(ids).logits).float().abs().max()
    assert change > 1e-3 and result.change.max_rounding > 0


def test_the_peak_is_one_copy_of_the_base_and_what_training_needs(base, tmp_path):
    settings, data = tuning_data(MODEL, "kto", SETTINGS, 8)
    weights = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with suppress(TuningRejected):  # two steps may not be enough to matter
        tune(base, data, settings, tmp_path)
    # Less than a second copy for the adapter, its optimizer and the activations of 8 rows of 48 tokens.
    assert torch.cuda.max_memory_allocated() < 2 * weights
