"""Contexts → responses: rendering, decoding presets, and batches whose result depends on neither their size nor order.

What makes it fast is in `row_decoding`. Two facts make it repeatable. Every prompt has its own stream of random
numbers, keyed by its seed, one number per token; and the batches are a function of contexts, seeds, decoding and batch
size alone, so a run that goes on after a kill computes the very batches that the undisturbed run would have.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

import jinja2
import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.stopping_criteria import StopStringCriteria

from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.row_decoding import ResponseNGramBlock, can_join, decode_rows

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # The model's own distribution, unshaped: what a bias of its responses is a property of.
        "sample": {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 40},
        # Paper 002, A.4, as for DialoGPT (BlenderBot 2.0: num_beams 3). The paper gives no maximum; this is ours.
        "paper": {
            "do_sample": False,
            "num_beams": 10,
            "min_new_tokens": 20,
            "no_repeat_ngram_size": 3,
            "max_new_tokens": 80,
        },
    }
)

# Arguments that shape a token's probabilities from the scores alone: with them, contexts of all lengths share a batch.
FROM_SCORES_ALONE = {
    "do_sample",
    "epsilon_cutoff",
    "eta_cutoff",
    "max_new_tokens",
    "min_p",
    "num_beams",
    "remove_invalid_values",
    "renormalize_logits",
    "stop_strings",
    "suppress_tokens",
    "temperature",
    "top_h",
    "top_k",
    "top_p",
    "typical_p",
}
# Arguments that look at a row's own tokens too: with them, contexts of equal length share a batch. What is in neither
# list may hold a tensor with an entry for every row, or another model's cache: a batch is one row.
FROM_ROW_ALONE = FROM_SCORES_ALONE | {
    "bad_words_ids",
    "begin_suppress_tokens",
    "exponential_decay_length_penalty",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "sequence_bias",
}

# Fields of GenerationConfig that say how `generate` computes or what it returns, not which response is given, and
# those whose result would depend on the machine (max_time) or on the context's length (max_length, min_length).
_NOT_DECODING = (
    "assistant_",
    "bos_token_id",
    "cache_",
    "compile_config",
    "continuous_batching_config",
    "decoder_start_token_id",
    "disable_compile",
    "eos_token_id",
    "is_assistant",
    "low_memory",
    "max_cache_len",
    "max_length",
    "max_matching_ngram_size",
    "max_time",
    "min_length",
    "num_assistant_tokens",
    "num_return_sequences",
    "output_",
    "pad_token_id",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "return_dict_in_generate",
    "speculation_type",
    "target_lookbehind",
    "token_healing",
    "transformers_version",
    "use_cache",
    "use_mtp",
    "_",
)


def decoding(preset: str = "sample", **overrides: Any) -> dict[str, Any]:
    """Return the arguments of `generate` for a named preset, changed by `overrides`.

    Any field of `transformers.GenerationConfig` that shapes the response may be given. One differs from `generate`:
    `no_repeat_ngram_size` blocks n-grams "within the response but not the context" (paper 002, A.4) for every kind
    of model.

    Raises:
        InputError: the preset or an argument is unknown, or a value out of range.

    >>> decoding("sample", temperature=0.7)["temperature"]
    0.7
    """
    if preset not in PRESETS:
        raise unknown_name("decoding", preset, PRESETS)
    allowed = [name for name in vars(GenerationConfig()) if not name.startswith(_NOT_DECODING)]
    for name in overrides:
        if name not in allowed:
            raise unknown_name("decoding", name, allowed)
    chosen = {**PRESETS[preset], **overrides}
    if not chosen["do_sample"]:  # `generate` warns of the preset's sampling arguments at every batch
        chosen = {
            name: chosen[name] for name in chosen if name in overrides or name not in ("temperature", "top_k", "top_p")
        }
    for name, type_, least, most in (
        ("do_sample", bool, False, True),
        ("max_new_tokens", int, 1, None),
        ("min_new_tokens", int, 0, chosen["max_new_tokens"]),
        ("num_beams", int, 1, None),
        ("no_repeat_ngram_size", int, 0, None),
        ("temperature", float, 1e-4, None),
        ("top_k", int, 0, None),
        ("top_p", float, 1e-4, 1),
        ("repetition_penalty", float, 1e-4, None),
    ):
        if name in chosen:
            _check_range(name, chosen[name], type_, least, most)
    try:
        GenerationConfig(**chosen)
    except (ValueError, TypeError) as error:
        raise InputError(f"decoding: {error}") from None
    return chosen


def _check_range(name: str, value: Any, type_: type, least: float, most: float | None) -> None:
    types = (int, float) if type_ is float else type_
    is_typed = isinstance(value, types) and isinstance(value, bool) == (type_ is bool)
    if is_typed and least <= value and (most is None or value <= most):
        return
    wanted = "true or false"
    if type_ is not bool:
        wanted = f"{'a number' if type_ is float else 'an integer'} from {least}{f' to {most}' if most else ''}"
    raise InputError(f"decoding: {name} is {value!r}; it must be {wanted}.")


def prompt_seed(prompt_id: str, seed: int) -> int:
    """Return the 64-bit seed of one prompt in a run: a hash of both, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{prompt_id}".encode(), digest_size=8).digest(), "big")


def render_contexts(
    dialogue_model: DialogueModel, prompts: Sequence[str], personas: Sequence[str], tag: str = ""
) -> list[str]:
    """Return what the model reads before it answers each prompt: preface, prompt and control tag in its own format.

    The preface is the model's system prompt and the persona, on lines of their own.

    - dialogue (DialoGPT): preface and prompt joined by line ends, tag, EOS. The response follows, ended by EOS.
    - chat: the tokenizer's chat template, with the preface as system message (at the head of the user's message where
      the template takes none) and prompt + tag as user message, up to the point where the answer begins; a model that
      can think before it answers (Qwen3) is told not to.
    - encoder_decoder: preface and prompt joined by line ends, tag; the tokenizer adds its own special tokens.

    `personas` has one entry per prompt; "" is none. A rendered context is encoded with `encode_contexts`. In training
    it is the `prompt` column as it stands (the `completion` being the response; TRL appends the EOS).
    """
    if len(prompts) != len(personas):
        raise InputError(f"personas: {len(personas)} for {len(prompts)} prompts; give one each, '' for none.")
    prefaces = ["\n".join(filter(None, (dialogue_model.system_prompt, persona))) for persona in personas]
    if dialogue_model.kind == "chat":
        return _render_chats(dialogue_model.tokenizer, prompts, prefaces, tag)
    end = dialogue_model.tokenizer.eos_token if dialogue_model.kind == "dialogue" else ""
    return [
        f"{preface}\n{prompt}{tag}{end}" if preface else f"{prompt}{tag}{end}"
        for prompt, preface in zip(prompts, prefaces, strict=True)
    ]


def _render_chats(tokenizer: Any, prompts: Sequence[str], prefaces: Sequence[str], tag: str) -> list[str]:
    # Thoughts would use up max_new_tokens and be measured in place of the answer. Other templates ignore the argument.
    arguments = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
    probe = [{"role": "system", "content": "a preface"}, {"role": "user", "content": "a prompt"}]
    try:
        # Some templates refuse a system message, others drop it without a word.
        takes_system = "a preface" in tokenizer.apply_chat_template(probe, **arguments)
    except jinja2.TemplateError:
        takes_system = False

    def messages(prompt: str, preface: str) -> list[dict[str, str]]:
        if not preface:
            return [{"role": "user", "content": prompt + tag}]
        if takes_system:
            return [{"role": "system", "content": preface}, {"role": "user", "content": prompt + tag}]
        return [{"role": "user", "content": f"{preface}\n{prompt}{tag}"}]

    chats = [messages(prompt, preface) for prompt, preface in zip(prompts, prefaces, strict=True)]
    return tokenizer.apply_chat_template(chats, **arguments) if chats else []


def encode_contexts(dialogue_model: DialogueModel, contexts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of rendered contexts; special tokens are added for encoder-decoder models alone.

    What an encoder reads ends with EOS, also where the tokenizer leaves it out, as transformers 5 makes BlenderBot's of
    a folder without tokenizer.json.
    """
    if not contexts:
        return []
    if dialogue_model.kind != "encoder_decoder":
        return dialogue_model.tokenizer(list(contexts), add_special_tokens=False)["input_ids"]
    encoded = dialogue_model.tokenizer(list(contexts))["input_ids"]
    return [ended(ids, dialogue_model.tokenizer.eos_token_id) if ids else ids for ids in encoded]


def encode_responses(dialogue_model: DialogueModel, responses: Sequence[str]) -> list[list[int]]:
    """Return the token ids of responses, each ended once by `end_of_response`: encoded apart from any context, as they
    come about when they are generated, with what an encoder-decoder's tokenizer puts around them.
    """
    if not responses:
        return []
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind == "encoder_decoder":
        encoded = tokenizer(text_target=list(responses))["input_ids"]
    else:
        encoded = tokenizer(list(responses), add_special_tokens=False)["input_ids"]
    end = end_of_response(dialogue_model)
    return [ended(ids, end) for ids in encoded]


def ended(ids: list[int], end: int) -> list[int]:
    """Return the token ids with the token `end` behind them, once."""
    return ids if ids and ids[-1] == end else [*ids, end]


def end_of_response(dialogue_model: DialogueModel) -> int:
    """Return the token that ends a response: EOS, or what the chat template puts behind an answer to end the turn.

    The two differ for Gemma ("<end_of_turn>") and Phi-3 ("<|end|>"), whose generation configs stop at either.
    """
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind != "chat" or not tokenizer.chat_template:
        return tokenizer.eos_token_id
    chat = [{"role": "user", "content": "a prompt"}, {"role": "assistant", "content": "an answer"}]
    rest = tokenizer.apply_chat_template(chat, tokenize=False).rpartition("an answer")[2]
    stops = np.atleast_1d(dialogue_model.model.generation_config.eos_token_id)
    found = (token for token in tokenizer(rest, add_special_tokens=False)["input_ids"] if token in stops)
    return next(found, tokenizer.eos_token_id)


def generate_responses(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    seeds: Sequence[int],
    decoding: Mapping[str, Any],
    *,
    batch_size: int = 256,
    first: int = 0,
) -> Iterator[tuple[list[int], list[str]]]:
    """Yield (row indices, their responses) batch by batch, until every row of `contexts` has one response.

    Rows with the same context (and, where decoding samples, the same seed) are computed once. Batches come in a
    fixed order, the longest contexts first; `first` of them are skipped, which is how a run goes on after a kill. A
    response is the text up to the first end-of-sequence token, without special tokens and outer blanks; it may be "".

    Raises:
        InputError: before any work, if a context is empty or too long for the model, or lengths do not agree.
    """
    if len(contexts) != len(seeds):
        raise InputError(f"seeds: {len(seeds)} for {len(contexts)} contexts; give one each.")
    if batch_size < 1:
        raise InputError(f"batch_size: {batch_size} is not at least 1.")
    distinct = {context: index for index, context in enumerate(dict.fromkeys(contexts))}
    encoded = encode_contexts(dialogue_model, list(distinct))
    _check_lengths(dialogue_model, encoded, decoding)

    rows_of: dict[tuple[int, int], list[int]] = {}
    for row, (context, seed) in enumerate(zip(contexts, seeds, strict=True)):
        rows_of.setdefault((distinct[context], seed if decoding.get("do_sample") else 0), []).append(row)
    # By length for batches without padding; by tokens within it, so that rows with a common beginning are neighbours.
    jobs = sorted(rows_of, key=lambda job: (len(encoded[job[0]]), encoded[job[0]], job[1]))
    batches = _batches(dialogue_model, [len(encoded[context]) for context, _ in jobs], decoding, batch_size)
    return _each_batch(
        dialogue_model, encoded, [jobs[part] for part in reversed(batches)][first:], rows_of, dict(decoding)
    )


def _batches(
    dialogue_model: DialogueModel, lengths: Sequence[int], decoding: Mapping[str, Any], batch_size: int
) -> list[slice]:
    """Cut contexts of ascending lengths into batches, as mixed as the decoding allows."""
    asked = {name for name, value in decoding.items() if value is not None}
    if decoding.get("num_beams", 1) > 1:
        # Sampling inside a beam search draws from one stream for the whole batch; there, a batch is one row.
        batch_size, mixed = 1 if decoding.get("do_sample") else batch_size, False
    else:
        batch_size = batch_size if asked <= FROM_ROW_ALONE else 1
        mixed = asked <= FROM_SCORES_ALONE and can_join(dialogue_model.model)
    groups = [len(lengths)] if mixed else [len(list(group)) for _, group in groupby(lengths)]
    ends = np.cumsum(groups)
    return [
        slice(start, min(start + batch_size, end))
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
        for start in range(begin, end, batch_size)
    ]


def _check_lengths(dialogue_model: DialogueModel, encoded: list[list[int]], decoding: Mapping[str, Any]) -> None:
    room = getattr(dialogue_model.model.config, "max_position_embeddings", None) or np.inf
    if dialogue_model.kind != "encoder_decoder":
        room -= decoding["max_new_tokens"]
    elif decoding["max_new_tokens"] > room:
        raise InputError(
            f"decoding: max_new_tokens is {decoding['max_new_tokens']}; {dialogue_model.name} has room for {room}."
        )
    for ids in encoded:
        if not ids:
            raise InputError("contexts: one is empty; leave out empty prompts.")
        if len(ids) > room:
            raise InputError(
                f"contexts: one has {len(ids)} tokens; {dialogue_model.name} has room for {room:.0f} beside the "
                f"{decoding['max_new_tokens']} of max_new_tokens. Shorten personas or lower max_new_tokens."
            )


def _each_batch(
    dialogue_model: DialogueModel,
    encoded: list[list[int]],
    batches: list[list[tuple[int, int]]],
    rows_of: Mapping[tuple[int, int], list[int]],
    decoding: Mapping[str, Any],
) -> Iterator[tuple[list[int], list[str]]]:
    for batch in batches:
        texts = _respond(
            dialogue_model, [encoded[context] for context, _ in batch], [seed for _, seed in batch], decoding
        )
        rows = [row for job in batch for row in rows_of[job]]
        yield rows, [text for job, text in zip(batch, texts, strict=True) for _ in rows_of[job]]


def _respond(
    dialogue_model: DialogueModel, contexts: Sequence[list[int]], seeds: Sequence[int], arguments: dict[str, Any]
) -> list[str]:
    """Return the responses to a batch of contexts of ascending lengths, one seed each."""
    model, tokenizer = dialogue_model.model, dialogue_model.tokenizer
    shortest, *longer = (torch.tensor(list(group)).to(model.device) for _, group in groupby(contexts, key=len))
    start = 0 if dialogue_model.kind == "encoder_decoder" else shortest.shape[1]
    arguments = {"logits_processor": LogitsProcessorList(), "stopping_criteria": StoppingCriteriaList(), **arguments}
    if size := arguments.pop("no_repeat_ngram_size", None):
        arguments["logits_processor"].append(ResponseNGramBlock(size, start))
    if strings := arguments.pop("stop_strings", None):
        arguments["stopping_criteria"].append(StopStringCriteria(tokenizer, strings))
    by_rows = arguments.get("num_beams", 1) == 1
    if by_rows:
        uniforms = None
        if arguments.get("do_sample"):
            uniforms = torch.from_numpy(_uniforms(seeds, arguments["max_new_tokens"])).to(model.device)
        arguments |= {"custom_generate": decode_rows, "uniforms": uniforms, "longer": longer}
    with torch.random.fork_rng(enabled=not by_rows):
        if not by_rows:
            torch.manual_seed(seeds[0] % 2**63)  # for sampling inside a beam search, where a batch is one row
        output = model.generate(inputs=shortest, attention_mask=torch.ones_like(shortest), **arguments)
    texts = tokenizer.batch_decode(output if by_rows else output[:, start:], skip_special_tokens=True)
    return [text.strip() for text in texts]


def _uniforms(seeds: Sequence[int], count: int) -> np.ndarray:
    """Return numbers in [0, 1), shape (len(seeds), count), each row a function of its seed alone.

    Philox is a counter-based generator: a key (here the seed) names a stream, and its streams are independent
    (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
    """
    return np.stack([np.random.Generator(np.random.Philox(key=seed)).random(count, dtype=np.float32) for seed in seeds])
