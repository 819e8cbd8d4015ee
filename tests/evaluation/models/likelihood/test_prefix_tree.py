"""Prefix trees have the scores of plain batches; models that do not support them are detected."""

import numpy as np
import pytest
import torch
import transformers

from evenhand.evaluation.models.likelihood import prefix_tree as module
from evenhand.evaluation.models.likelihood.prefix_tree import prefix_tree, sequence_log_probabilities, sum_paths
from evenhand.evaluation.models.likelihood.sentences import (
    encode_sentences,
    sequence_log_likelihoods,
    supports_prefix_trees,
)
from evenhand.evaluation.models.loading import DialogueModel
from tests.tiny_models import word_level_tokenizer

WORDS = ["<s>", "</s>", "<pad>", "i", "am", "a", "deaf", "tall", "dad", "mum", "like", "people", "."]
SENTENCES = [
    f"{start} {quality} {who}{end}"
    for start in ("i am a", "i like")
    for quality in ("deaf", "tall", "deaf tall")
    for who in ("dad", "mum", "people")
    for end in ("", " .", " . .")
]
SENTENCES += ["i", "i am a deaf dad", "."]  # a beginning of others, a sentence twice, and one that shares nothing
SIZES = {"vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
LLAMA = {**SIZES, "intermediate_size": 24, "max_position_embeddings": 32}
GPT2 = {"vocab_size": len(WORDS), "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}
ARCHITECTURES = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
    "opt": lambda: transformers.OPTForCausalLM(
        transformers.OPTConfig(**SIZES, ffn_dim=24, word_embed_proj_dim=16, max_position_embeddings=32)
    ),
    "gemma": lambda: transformers.GemmaForCausalLM(
        transformers.GemmaConfig(**LLAMA, num_key_value_heads=1, head_dim=8)
    ),
}
OTHERS = {
    "bloom": lambda: transformers.BloomForCausalLM(
        transformers.BloomConfig(vocab_size=len(WORDS), hidden_size=16, n_layer=2, n_head=2)
    ),
    "mamba": lambda: transformers.MambaForCausalLM(
        transformers.MambaConfig(vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=2, state_size=4)
    ),
}


def built(architecture, dtype=torch.float32):
    """Return a model with random weights, large enough that a wrong mask or position shows."""
    torch.manual_seed(0)
    network = {**ARCHITECTURES, **OTHERS}[architecture]()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.4)
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<pad>"}
    tokenizer = word_level_tokenizer(WORDS, **special)
    return DialogueModel(network.to(dtype).eval(), tokenizer, "dialogue", architecture, "random")


def plain(model, encoded):
    total = np.full(len(encoded.ids), np.nan)
    for rows, values, _ in sequence_log_likelihoods(model, encoded):
        total[rows] = values
    return total


def by_tree(model, encoded):
    total = np.full(len(encoded.ids), np.nan)
    for rows, sums in sequence_log_probabilities(model, prefix_tree(encoded.ids), encoded.begin):
        assert np.isnan(total[rows]).all()  # each sentence is yielded once
        total[rows] = sums
    return total


def test_the_tree_of_three_sentences_by_hand():
    # 0 ─ 5 ─ 6, 0 ─ 5 ─ 7 ─ 8 and 0 ─ 9: the root, 5, 6, 7, 8, 9, depth first.
    tree = prefix_tree([[0, 9], [0, 5, 7, 8], [0, 5, 6], [0, 9]])
    assert tree.token.tolist() == [0, 5, 6, 7, 8, 9]
    assert tree.depth.tolist() == [0, 1, 2, 2, 3, 1]
    assert tree.parent.tolist() == [-1, 0, 1, 1, 3, 0]
    assert tree.leaf.tolist() == [5, 4, 2, 5]
    assert tree.inner.tolist() == [0, 1, 3] and tree.end.tolist() == [3, 3, 3]
    assert tree.child.tolist() == [1, 5, 2, 3, 4] and tree.first_child.tolist() == [0, 2, 4, 5]
    # Σ log p: of 6 it is that of 5 and 6; from position 2 on, of 6 alone.
    log_p = -np.array([0.0, 1.0, 2.0, 4.0, 8.0, 16.0])  # of 0, 5, 6, 7, 8, 9
    for begin, expected in (
        ([1, 1, 1, 1], [-16, -13, -3, -16]),
        ([2, 2, 2, 2], [0, -12, -2, 0]),
        ([1, 3, 2, 2], [-16, -8, -2, 0]),
    ):
        assert sum_paths(tree, log_p, tree.leaf, np.array(begin)).tolist() == expected


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("arguments", [{}, {"context": "i am tall ."}, {"end_of_sequence": True}], ids=str)
def test_trees_equal_plain_scoring(architecture, arguments):
    model = built(architecture)
    encoded = encode_sentences(model, SENTENCES, **arguments)
    assert supports_prefix_trees(model, encoded)
    expected = plain(model, encoded)
    assert np.ptp(expected) > 10  # sentences do differ
    assert by_tree(model, encoded) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("nodes", [1, 2, 5, 12])
def test_short_sequences_repeat_paths_and_change_nothing(monkeypatch, nodes):
    model = built("gpt2")
    encoded = encode_sentences(model, SENTENCES)
    positions = []
    count = lambda _, arguments, named: positions.append(named["input_ids"].numel())  # noqa: E731
    model.model.register_forward_pre_hook(count, with_kwargs=True)
    expected = by_tree(model, encoded)
    whole = sum(positions)
    monkeypatch.setitem(module.NODES_PER_PASS, "cpu", nodes)
    assert by_tree(model, encoded) == pytest.approx(expected, abs=1e-4)
    assert sum(positions) > 2 * whole


@pytest.mark.parametrize("architecture", OTHERS)
def test_unsupported_models_are_detected(architecture):
    model = built(architecture)
    assert not supports_prefix_trees(model, encode_sentences(model, SENTENCES))
