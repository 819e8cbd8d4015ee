"""Tuning where there is a GPU: the saved model is the checked model, and its memory has one copy of the base."""

from contextlib import suppress

import pytest
import torch
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM

from evenhand.evaluation.errors import TuningRejected
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import TrainingRows
from tests.tiny_models import word_level_tokenizer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA, and -m gpu")]

SETTINGS = TuningSettings(learning_rate=1e-3, evaluations_per_epoch=1, max_perplexity_rise=1e9)
WORDS = ["<pad>", "<unk>", "<eos>", *(f"w{index}" for index in range(3, 8000))]
# Qwen3-0.6B's shape, so that the weights take most of the memory.
SHAPE = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16}
SHAPE |= {"num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True, "eos_token_id": 2, "pad_token_id": 0}


@pytest.fixture
def base():
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPE)).bfloat16().cuda().eval()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "<eos>", "padding_side": "left"}
    return DialogueModel(model, word_level_tokenizer(WORDS, **special), "dialogue", "random", "random")


def tuning_data(rows=2):
    def texts(length, seed):
        tokens = torch.randint(3, 8000, (2 * rows + 2, length), generator=torch.Generator().manual_seed(seed))
        return [" ".join(f"w{token}" for token in row) for row in tokens.tolist()]

    contexts, answers = texts(28, seed=1), texts(20, seed=2)
    data = Dataset.from_dict({"prompt": contexts, "context": contexts, "completion": answers})
    train, validation = data.select(range(2 * rows)), data.select(range(2 * rows, len(data)))
    settings = SETTINGS.with_method_defaults(trained_method("exchange")).replaced(
        batch_size=rows, evaluations_per_epoch=1
    )
    return TrainingRows(method=trained_method("exchange"), train=train, validation=validation), settings


def test_the_peak_is_one_copy_of_the_base_and_what_training_needs(base, tmp_path):
    weights = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    with suppress(TuningRejected):  # two steps may not be enough to matter
        tune(base, *tuning_data(), tmp_path)
    # Less than a second copy for the adapter, its optimizer and the activations of 2 rows of 48 tokens.
    assert torch.cuda.max_memory_allocated() < 2 * weights
