"""Tiny dialogue models of random weights, and settings with which they learn within seconds."""

import torch
import transformers

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.settings import TuningSettings
from tests.tiny_models import SPECIAL_TOKENS, word_level_tokenizer

WORDS = ["<eos>", "<pad>", "<unk>", "red", "sun", "blue", "sky", *"abcdefghij"]
QUICK = TuningSettings(
    epochs=3, batch_size=16, learning_rate=1e-2, evaluations_per_epoch=2, patience=9, max_perplexity_rise=10_000
)


def tokenizer(words=WORDS):
    return word_level_tokenizer(words, **SPECIAL_TOKENS)


def tiny_base(n_positions=32, words=WORDS):
    torch.manual_seed(0)
    # Weights are ten times as large as usual: a frozen output layer of tiny weights could never be sure.
    sizes = {"n_positions": n_positions, "n_embd": 32, "n_layer": 2, "n_head": 2, "initializer_range": 0.2}
    config = transformers.GPT2Config(vocab_size=len(words), bos_token_id=0, eos_token_id=0, **sizes)
    return DialogueModel(transformers.GPT2LMHeadModel(config).eval(), tokenizer(words), "dialogue", "tiny", "r0")


def tiny_encoder_decoder():
    torch.manual_seed(0)
    layers = {f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in ("layers", "attention_heads")}
    sizes = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32}
    special = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 1, "decoder_start_token_id": 0}
    config = transformers.BartConfig(vocab_size=len(WORDS), **layers, **sizes, **special, init_std=0.2)
    model = transformers.BartForConditionalGeneration(config).eval()
    return DialogueModel(model, tokenizer(), "encoder_decoder", "tiny", "r0")
