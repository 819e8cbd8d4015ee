"""Tokenizers of many kinds, trained on a few sentences: byte-level BPE, as SentencePiece, word pieces, characters."""

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

TEXTS = [
    "Hello you.",
    "I'm a mom.",
    "It is so nice to hear from you!",
    "A: Hi\nB: Hello",
    "Tell me about the rain: it is wet.",
]
SPECIAL = ["</s>", "<pad>", "<unk>", "<user>", "<bot>"]
# Templates whose contexts end with a colon, a line end and a special token.
TEMPLATES = {
    "colon": "{% for m in messages %}{% if m.role == 'user' %}A: {{ m.content }}\n{% else %}B: {{ m.content }}\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}B:{% endif %}",
    "line": "{% for m in messages %}{{ '<user>' if m.role == 'user' else '<bot>' }}\n{{ m.content }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<bot>\n{% endif %}",
    "token": "{% for m in messages %}{{ '<user>' if m.role == 'user' else '<bot>' }}{{ m.content }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<bot>{% endif %}",
}


def _trained(model, trainer, pre_tokenizer, decoder=None, used=None):
    """Return a trained tokenizer; `used`, a function, replaces parts after the training, which splits at blanks."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    if decoder is not None:
        tokenizer.decoder = decoder
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    if used is not None:
        used(tokenizer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        additional_special_tokens=["<user>", "<bot>"],
    )


def _byte_level(add_prefix_space):
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet)
    return _trained(
        models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space), decoders.ByteLevel()
    )


def _metaspace(model, scheme, split):
    if model == "unigram":
        trainer = trainers.UnigramTrainer(vocab_size=90, special_tokens=SPECIAL, unk_token="<unk>")
        model = models.Unigram()
    else:
        trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=SPECIAL)
        model = models.BPE(unk_token="<unk>")

    def use(tokenizer):
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)

    pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    return _trained(model, trainer, pre_tokenizer, decoders.Metaspace(prepend_scheme=scheme), use)


def _legacy_llama():
    """Return a tokenizer that prepends a blank by a normalizer, after each special token, as Llama 2's."""
    trainer = trainers.BpeTrainer(vocab_size=120, special_tokens=SPECIAL)
    decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])

    def use(tokenizer):
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([])
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])

    return _trained(models.BPE(unk_token="<unk>"), trainer, pre_tokenizers.Metaspace(), decoder, use)


def _word_piece():
    trainer = trainers.WordPieceTrainer(vocab_size=120, special_tokens=SPECIAL)
    model = models.WordPiece(unk_token="<unk>")
    return _trained(model, trainer, pre_tokenizers.BertPreTokenizer(), decoders.WordPiece())


def _words():
    trainer = trainers.WordLevelTrainer(special_tokens=SPECIAL)
    return _trained(models.WordLevel(unk_token="<unk>"), trainer, pre_tokenizers.Whitespace())


def _characters():
    trainer = trainers.WordLevelTrainer(special_tokens=SPECIAL)
    split = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    return _trained(models.WordLevel(unk_token="<unk>"), trainer, split, decoders.Fuse())


def _bytes():
    return ByT5Tokenizer(extra_ids=0, additional_special_tokens=["<user>", "<bot>"])


KINDS = {
    "byte-level BPE": lambda: _byte_level(add_prefix_space=False),
    "byte-level BPE, blank prepended": lambda: _byte_level(add_prefix_space=True),
    "unigram, blank prepended first": lambda: _metaspace("unigram", "first", split=False),
    "BPE, blank prepended first": lambda: _metaspace("bpe", "first", split=False),
    "BPE, blank always prepended": lambda: _metaspace("bpe", "always", split=True),
    "BPE, blank never prepended": lambda: _metaspace("bpe", "never", split=True),
    "legacy Llama": _legacy_llama,
    "WordPiece": _word_piece,
    "words": _words,
    "characters": _characters,
    "bytes": _bytes,
}


def tiny_tokenizer(kind, template):
    """Return a tokenizer of a kind, with a chat template whose contexts end in one of the three ways."""
    tokenizer = KINDS[kind]()
    tokenizer.chat_template = TEMPLATES[template]
    return tokenizer
