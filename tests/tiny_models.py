"""Dialogue models of random weights that know the letters of the alphabet as words."""

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from evenhand.evaluation.models.loading import DialogueModel

WORDS = ["<eos>", "<pad>", "<unk>", *"abcdefghijklmnopqrstuvwxyz"]
EOS, PAD = 0, 1
SIZES = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
SEQ2SEQ = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "decoder_start_token_id": PAD,
    "forced_eos_token_id": None,
}
SPECIAL = {"vocab_size": len(WORDS), "bos_token_id": EOS, "eos_token_id": EOS, "pad_token_id": PAD}


def word_level_tokenizer(words, template=None, **special):
    """Return a tokenizer that splits at white space, with special tokens as in `eos_token="<eos>"`.

    Without any, words in brackets are BERT's special tokens. `template` adds special tokens, as in "[CLS] $A [SEP]".
    """
    special = special or {f"{word[1:-1].lower()}_token": word for word in words if word.startswith("[")}
    model = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=special["unk_token"]))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if template:
        added = [(word, words.index(word)) for word in template.split() if word != "$A"]
        model.post_processor = processors.TemplateProcessing(single=template, special_tokens=added)
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, **special)


SPECIAL_TOKENS = {"eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>", "padding_side": "left"}


def word_tokenizer(adds_eos=False):
    return word_level_tokenizer(WORDS, "$A <eos>" if adds_eos else None, **SPECIAL_TOKENS)


def tiny(architecture):
    torch.manual_seed(0)
    build = {
        "gpt2": lambda: transformers.GPT2LMHeadModel(
            transformers.GPT2Config(**SPECIAL, n_embd=16, n_layer=2, n_head=2, n_positions=96)
        ),
        "llama": lambda: transformers.LlamaForCausalLM(
            transformers.LlamaConfig(**SPECIAL, **SIZES, num_key_value_heads=1, max_position_embeddings=96)
        ),
        "sliding": lambda: transformers.MistralForCausalLM(
            transformers.MistralConfig(
                **SPECIAL, **SIZES, num_key_value_heads=2, sliding_window=4, max_position_embeddings=96
            )
        ),
        "bart": lambda: transformers.BartForConditionalGeneration(
            transformers.BartConfig(**SPECIAL, **SEQ2SEQ, max_position_embeddings=96)
        ),
        "blenderbot": lambda: transformers.BlenderbotForConditionalGeneration(
            transformers.BlenderbotConfig(**SPECIAL, **SEQ2SEQ, max_position_embeddings=96)
        ),
    }
    model = build[architecture]().eval()
    # As `load_dialogue_model` does: BlenderBot's config alone asks for beams and blocked n-grams.
    start = model.generation_config.decoder_start_token_id
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=EOS, pad_token_id=PAD, decoder_start_token_id=start
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)  # away from uniform probabilities
    seq2seq = model.config.is_encoder_decoder
    return DialogueModel(model, word_tokenizer(seq2seq), "encoder_decoder" if seq2seq else "dialogue", "tiny", "0")
