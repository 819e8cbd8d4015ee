"""Translations of sentences by an encoder–decoder model: NLLB, M2M-100, mBART, Marian.

The tokenizer adds a token of the source language to a text, and the translation has to begin with a token of the target
language. Models differ in how the two languages are set.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from transformers import LogitsProcessorList, MBartTokenizer, PreTrainedTokenizerBase

from evenhand.evaluation.data.gendered_translations import find_language
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.models.batches import (
    activations_bytes,
    batch_size_limit,
    cache_bytes,
    check_input_lengths,
    group_rows,
    logits_bytes,
    run_batches,
)
from evenhand.evaluation.models.generation import RefuseNaN
from evenhand.evaluation.models.loading import DialogueModel

# Costa-jussà et al. 2023, §4.1.
PAPER_DECODING: Mapping[str, bool | int] = {"do_sample": False, "num_beams": 5, "max_new_tokens": 100}
# The form of language codes of tokenizers without a list of them: NLLB's "spa_Latn", mBART's "es_XX".
LANGUAGE_TOKEN = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")
# Codes of Table 4 of Costa-jussà et al. 2023 with a different form in NLLB's tokenizer.
NLLB_CODES = {"cmn_Hans": "zho_Hans"}


def language_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Return language code → token of a tokenizer: "spa_Latn" (NLLB), "es" → "__es__" (M2M-100), "es_XX" (mBART).

    A Marian model with several targets has "spa" → ">>spa<<", one with a single pair of languages has none.
    """
    if hasattr(tokenizer, "lang_code_to_token"):
        return dict(tokenizer.lang_code_to_token)
    marian = getattr(tokenizer, "supported_language_codes", None)
    if marian:
        return {token.removeprefix(">>").removesuffix("<<"): token for token in marian}
    special = (str(token) for token in tokenizer.all_special_tokens)
    return {token: token for token in special if LANGUAGE_TOKEN.fullmatch(token)}


def translate(
    model: DialogueModel,
    texts: Sequence[str],
    *,
    source: str,
    target: str,
    decoding: Mapping[str, Any] = PAPER_DECODING,
    batch_size: int = 32,
) -> Iterator[tuple[list[int], list[str]]]:
    """Yield (row indices, translations) batch by batch, one translation for each text.

    Equal texts are translated once. The order of the rows is fixed: the longest texts first. A translation has no
    special tokens and no outer white space; it may be "".

    `source` and `target` are language codes of the tokenizer or of `gendered_translations.find_language`. A Marian
    model of a single pair of languages ignores both. InputError if the tokenizer does not have a language, or a text is
    blank or too long.
    """
    if model.kind != "encoder_decoder":
        raise InputError("model", f"{model.name} is no encoder-decoder model; give one that translates.")
    distinct = list(dict.fromkeys(texts))
    if any(not text.strip() for text in distinct):
        raise InputError("texts", "one is blank; leave out empty sentences.")
    encoded, forced = _encode(model.tokenizer, distinct, source, target)
    check_input_lengths(model, encoded, decoding.get("max_new_tokens", 0), "texts")
    rows = list(group_rows(texts).values())
    order = sorted(range(len(distinct)), key=lambda index: (len(encoded[index]), encoded[index]), reverse=True)
    arguments = {**decoding, **forced}
    # Some tokenizers do not list language codes as special tokens: M2M-100's would leave "__es__" in each translation.
    languages = set(model.tokenizer.convert_tokens_to_ids(list(language_tokens(model.tokenizer).values())))
    network = model.model
    new_tokens = arguments["max_new_tokens"]
    beams = arguments.get("num_beams", 1)

    def row_bytes(length: int) -> int:
        decoder_bytes = cache_bytes(network, length + new_tokens) + logits_bytes(network, 1)
        return beams * decoder_bytes + activations_bytes(network, length)

    @torch.inference_mode()
    def compute(batch: Sequence[int]) -> list[str]:
        inputs = model.tokenizer.pad({"input_ids": [encoded[index] for index in batch]}, return_tensors="pt")
        inputs = {name: inputs[name].to(network.device) for name in ("input_ids", "attention_mask")}
        output = network.generate(**inputs, logits_processor=LogitsProcessorList([RefuseNaN()]), **arguments).tolist()
        output = [[token for token in ids if token not in languages] for ids in output]
        return [text.strip() for text in model.tokenizer.batch_decode(output, skip_special_tokens=True)]

    limit = batch_size_limit(network, row_bytes)
    for batch, translations in run_batches(order, lambda index: min(batch_size, limit(len(encoded[index]))), compute):
        found = [(row, text) for index, text in zip(batch, translations, strict=True) for row in rows[index]]
        yield [row for row, _ in found], [text for _, text in found]


def _encode(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], source: str, target: str
) -> tuple[list[list[int]], dict[str, int]]:
    """Return the token ids of the texts, and the argument of `generate` that selects the target language."""
    tokens = language_tokens(tokenizer)
    forced = {}
    if hasattr(tokenizer, "supported_language_codes"):
        if tokens:  # Marian expects the target language before the text
            texts = [f"{tokens[_match_language_code(tokens, 'target', target)]} {text}" for text in texts]
    elif tokens:
        tokenizer.src_lang = _match_language_code(tokens, "source", source)
        token = tokenizer.convert_tokens_to_ids(tokens[_match_language_code(tokens, "target", target)])
        # The first mBART starts decoding from the language token. Others start from EOS and generate the token next.
        forced["decoder_start_token_id" if isinstance(tokenizer, MBartTokenizer) else "forced_bos_token_id"] = token
    return tokenizer(texts)["input_ids"] if texts else [], forced


def _match_language_code(tokens: Mapping[str, str], field: str, code: str) -> str:
    """Return a language code in the form that the tokenizer has: unchanged, "spa_Latn", "spa", "es" or "es_XX"."""
    forms = [code]
    with suppress(InputError):  # the tokenizer may have languages that the paper does not have
        known = find_language(code)
        forms += [known.code, NLLB_CODES.get(known.code, ""), known.code[:3], known.short]
        forms += [token for token in tokens if known.short and token.startswith(f"{known.short}_")]
    for form in forms:
        if form in tokens:
            return form
    raise unknown_name(field, code, tokens)
