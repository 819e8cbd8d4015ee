"""Sentences → translations, by a model.

Any encoder–decoder model that transformers knows as one for translation: NLLB, M2M-100, mBART, Marian. What differs
between them is how they are told the languages, which is settled here once: a token of the source language that the
tokenizer adds, and one of the target language that the translation has to begin with. Load one with
`evenhand.evaluation.models.loading.load_dialogue_model(name, kind="encoder_decoder")`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import torch
from transformers import LogitsProcessorList, MBartTokenizer, PreTrainedTokenizerBase

from evenhand.evaluation.datasets.gendered_translations import language
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.models.batches import (
    activations_bytes,
    batch_size_limit,
    cache_bytes,
    logits_bytes,
    run_batches,
)
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.row_decoding import RefuseNaN
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard

# Paper 004, §4.1.
PAPER_DECODING: Mapping[str, Any] = MappingProxyType({"do_sample": False, "num_beams": 5, "max_new_tokens": 100})
# How language codes look where the tokenizer has no list of them: NLLB's "spa_Latn", mBART's "es_XX".
LANGUAGE_TOKEN = re.compile(r"[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")
# Where NLLB's tokenizer names a language otherwise than Table 4 of paper 004.
NLLB_CODES = {"cmn_Hans": "zho_Hans"}


def language_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[str, str]:
    """Return the language codes that a translation model's tokenizer knows, with their tokens; {} if it has none.

    "spa_Latn" (NLLB), "es" for "__es__" (M2M-100), "es_XX" (mBART), "spa" for ">>spa<<" (Marian with several target
    languages; one with a single pair has none).
    """
    if hasattr(tokenizer, "lang_code_to_token"):
        return dict(tokenizer.lang_code_to_token)
    if marian := getattr(tokenizer, "supported_language_codes", None):
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
    shard: WorkShard = ALL_ROWS,
) -> Iterator[tuple[list[int], list[str]]]:
    """Yield (row indices, their translations) batch by batch, until every text has one.

    By default with the paper's decoding: a beam search of 5 and at most 100 new tokens (004, §4.1). Equal texts are
    translated once. They come in a fixed order, the longest texts first. A translation is without special tokens and
    outer blanks; it may be "".

    Args:
        model: of kind "encoder_decoder".
        texts: (n,) sentences in the source language.
        source, target: codes as the tokenizer writes them, or FLORES codes (`gendered_translations.language`), which
            are put into its form. A Marian model of one pair of languages has none and passes over them.
        decoding: arguments of `generate`.
        batch_size: texts in a batch, at most.
        shard: of the rows; by default all.

    Raises:
        InputError: before any work, if the model is no encoder–decoder, its tokenizer does not know a language, or a
            text is blank or too long for the model.
    """
    if model.kind != "encoder_decoder":
        raise InputError(f"model: {model.name} is of kind {model.kind!r}; translation takes an encoder-decoder model.")
    if batch_size < 1:
        raise InputError(f"batch_size: {batch_size} is not at least 1.")
    distinct = list(dict.fromkeys(texts))
    if any(not text.strip() for text in distinct):
        raise InputError("texts: one is blank; leave out empty sentences.")
    encoded, forced = _encode(model.tokenizer, distinct, source, target)
    _check_lengths(model, encoded, decoding)
    rows_of: dict[str, list[int]] = {}
    for row, text in enumerate(texts):
        rows_of.setdefault(text, []).append(row)
    order = sorted(range(len(distinct)), key=lambda place: (len(encoded[place]), encoded[place]), reverse=True)
    rows = [rows_of[text] for text in distinct]
    return _translate_batches(model, encoded, rows, order, {**decoding, **forced}, batch_size, shard)


def _encode(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], source: str, target: str
) -> tuple[list[list[int]], dict[str, int]]:
    """Return the token ids of the texts, and what makes the model begin in the target language."""
    tokens, forced = language_tokens(tokenizer), {}
    if hasattr(tokenizer, "supported_language_codes"):
        if tokens:  # Marian reads the target language before the text
            texts = [f"{tokens[_match_language_code(tokens, 'target', target)]} {text}" for text in texts]
    elif tokens:
        tokenizer.src_lang = _match_language_code(tokens, "source", source)
        token = tokenizer.convert_tokens_to_ids(tokens[_match_language_code(tokens, "target", target)])
        # The first mBART starts from the language's token, where the others start from EOS and write the token next.
        forced["decoder_start_token_id" if isinstance(tokenizer, MBartTokenizer) else "forced_bos_token_id"] = token
    return tokenizer(texts)["input_ids"] if texts else [], forced


def _match_language_code(tokens: Mapping[str, str], field: str, code: str) -> str:
    """Return a language's code in the tokenizer's form: as given, "spa_Latn", "spa", "es" or "es_XX".

    Raises:
        InputError: it is none of the tokenizer's; a close one is named.
    """
    forms = [code]
    with suppress(InputError):  # a code that is not among the paper's languages can only be the tokenizer's own
        one = language(code)
        forms += [one.code, NLLB_CODES.get(one.code, ""), one.code[:3], one.short]
        forms += [token for token in tokens if one.short and token.startswith(f"{one.short}_")]
    for form in forms:
        if form in tokens:
            return form
    raise unknown_name(field, code, tokens)


def _check_lengths(model: DialogueModel, encoded: Sequence[Sequence[int]], decoding: Mapping[str, Any]) -> None:
    room = getattr(model.model.config, "max_position_embeddings", None)
    if room is None:
        return
    if decoding.get("max_new_tokens", 0) > room:
        raise InputError(f"decoding: max_new_tokens is {decoding['max_new_tokens']}; {model.name} has room for {room}.")
    longest = max(map(len, encoded), default=0)
    if longest > room:
        raise InputError(f"texts: one has {longest} tokens; {model.name} has room for {room}. Shorten or leave it out.")


def _translate_batches(
    model: DialogueModel,
    encoded: Sequence[list[int]],
    rows_of: Sequence[list[int]],
    order: Sequence[int],
    arguments: Mapping[str, Any],
    batch_size: int,
    shard: WorkShard,
) -> Iterator[tuple[list[int], list[str]]]:
    # Not every tokenizer counts these among its special tokens: M2M-100's would leave "__es__" in each translation.
    languages = set(model.tokenizer.convert_tokens_to_ids(list(language_tokens(model.tokenizer).values())))
    network, new, beams = model.model, arguments["max_new_tokens"], arguments.get("num_beams", 1)

    def bytes_of(length: int) -> int:
        row = cache_bytes(network, length + new) + logits_bytes(network, 1)
        return beams * row + activations_bytes(network, length)

    @torch.inference_mode()
    def compute(batch: Sequence[int]) -> list[str]:
        inputs = model.tokenizer.pad({"input_ids": [encoded[place] for place in batch]}, return_tensors="pt")
        inputs = {name: inputs[name].to(network.device) for name in ("input_ids", "attention_mask")}
        output = network.generate(**inputs, logits_processor=LogitsProcessorList([RefuseNaN()]), **arguments).tolist()
        output = [[token for token in ids if token not in languages] for ids in output]
        return [text.strip() for text in model.tokenizer.batch_decode(output, skip_special_tokens=True)]

    at_once = batch_size_limit(network, bytes_of)
    mine = {"shard": shard, "row_of": lambda place: rows_of[place][0]}
    for batch, found in run_batches(
        order, lambda place: min(batch_size, at_once(len(encoded[place]))), compute, **mine
    ):
        rows = [row for place in batch for row in rows_of[place]]
        yield rows, [text for text, place in zip(found, batch, strict=True) for _ in rows_of[place]]
