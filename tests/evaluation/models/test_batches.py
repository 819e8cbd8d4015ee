"""Batch sizes by memory, and the halving of batches that run out of memory."""

import logging

import pytest
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM, LlavaConfig

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models import batches

SIZES = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}

TOO_LITTLE = torch.OutOfMemoryError("CUDA out of memory.")


@pytest.fixture(scope="module")
def llama():
    config = LlamaConfig(**SIZES, intermediate_size=64, num_key_value_heads=2, head_dim=16)
    return LlamaForCausalLM(config).to(torch.bfloat16)


def limited_compute(n, error):
    """Return a function that sums batches of up to n items and raises `error` for larger ones, and its batch sizes."""
    sizes = []

    def compute(batch):
        sizes.append(len(batch))
        if len(batch) > n:
            raise error
        return sum(batch)

    return compute, sizes


def test_the_positions_of_a_model_that_reads_images_are_those_of_its_text():
    assert batches.max_positions(LlavaConfig(text_config=LlamaConfig(max_position_embeddings=64))) == 64


def test_running_out_of_memory_halves_all_later_batches_and_logs_one_warning(caplog):
    compute, sizes = limited_compute(3, TOO_LITTLE)
    with caplog.at_level(logging.WARNING, "evenhand"):
        results = list(batches.run_batches(range(20), lambda item: 8, compute))
    assert [list(batch) for batch, _ in results] == [list(range(i, i + 2)) for i in range(0, 20, 2)]
    assert sum(total for _, total in results) == sum(range(20))
    assert sizes == [8, 4, *[2] * 10]  # the larger sizes are not tried again
    assert len(caplog.messages) == 1 and "a batch of 8" in caplog.messages[0]


def test_single_items_and_other_errors_are_raised():
    with pytest.raises(InputError, match="device: "):
        list(batches.run_batches([1, 2, 3], lambda item: 2, limited_compute(0, TOO_LITTLE)[0]))
    compute, sizes = limited_compute(1, RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="multiplied"):
        list(batches.run_batches(range(4), lambda item: 4, compute))
    assert sizes == [4]


def test_bytes_of_activations_and_caches(llama):
    # bfloat16: 2 bytes, and 4 each for the copy in float32 and its log-softmax.
    assert batches.logits_bytes(llama, 7) == 7 * 100 * (2 + 8)
    # Keys and values of 3 layers, 2 heads of 16, for 5 tokens.
    assert batches.cache_bytes(llama, 5) == 2 * 3 * 2 * 16 * 5 * 2
    assert batches.cache_bytes(llama.float(), 5) == 2 * 3 * 2 * 16 * 5 * 4
    # 8 vectors of 32, 3 of 64, and 4 heads' attention of each token to each, twice.
    assert batches.activations_bytes(llama, 5) == 5 * (8 * 32 + 3 * 64 + 2 * 4 * 5) * 4
    model = llama.float()
    with torch.inference_mode():
        cache = model(input_ids=torch.zeros(2, 6, dtype=torch.long)).past_key_values
    taken = sum(states.nbytes for layer in cache.layers for states in (layer.keys, layer.values))
    assert taken == 2 * batches.cache_bytes(model, 6)


def test_batch_sizes_are_limited_by_memory_and_tokens_per_pass(llama, monkeypatch):
    base = BertModel(BertConfig(num_hidden_layers=0, vocab_size=10))
    large = BertModel(BertConfig(num_hidden_layers=0, vocab_size=10, hidden_size=1024, intermediate_size=4096))
    assert [batches.tokens_per_pass(base), batches.tokens_per_pass(large)] == [1024, 768]
    monkeypatch.setattr(batches, "MAX_HOST_BYTES", 1000)
    monkeypatch.setattr(batches, "CPU_CACHE_BYTES", 64 * llama.dtype.itemsize * 50)  # of 50 tokens
    at_once = batches.batch_size_limit(llama, lambda length: 100)
    assert [at_once(length) for length in (1, 5, 10, 1000)] == [10, 10, 5, 1]
