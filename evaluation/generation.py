"""Contexts → responses: rendering, decoding presets, and batches whose result depends on neither their size nor order.

Three facts make it fast. Contexts of equal length share a batch, so nothing is padded and no attention mask is built.
The cache of keys and values is allocated once and written in place, where the library's grows by copying itself at
every token. Rows that have ended leave the batch, where `generate` would carry them on to the longest one's end.

Two facts make it repeatable. Every prompt has its own stream of random numbers, keyed by its seed, one number per
token; and the batches are a function of contexts, seeds and batch size alone, so a run that goes on after a kill
computes the very batches that the undisturbed run would have.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, StoppingCriteriaList
from transformers.cache_utils import Cache, DynamicLayer, EncoderDecoderCache
from transformers.generation import logits_process as processors
from transformers.generation.stopping_criteria import StopStringCriteria
from transformers.modeling_outputs import ModelOutput

from evaluation.errors import InputError, unknown_name
from evaluation.models import DialogueModel

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

# Processors that look at each row by itself. With any other, rows stay in the batch until all have ended, because it
# may hold a tensor with one entry per row.
_ROW_BY_ROW = (
    processors.EpsilonLogitsWarper,
    processors.EtaLogitsWarper,
    processors.ExponentialDecayLengthPenalty,
    processors.ForcedBOSTokenLogitsProcessor,
    processors.ForcedEOSTokenLogitsProcessor,
    processors.InfNanRemoveLogitsProcessor,
    processors.LogitNormalization,
    processors.MinLengthLogitsProcessor,
    processors.MinNewTokensLengthLogitsProcessor,
    processors.MinPLogitsWarper,
    processors.SequenceBiasLogitsProcessor,  # NoBadWords is one
    processors.SuppressTokensAtBeginLogitsProcessor,
    processors.SuppressTokensLogitsProcessor,
    processors.TemperatureLogitsWarper,
    processors.TopHLogitsWarper,
    processors.TopKLogitsWarper,
    processors.TopPLogitsWarper,
    processors.TypicalLogitsWarper,
)

SHARE_OF_ENDED_ROWS = 1 / 16  # of the batch; below it, moving rows costs more than carrying them


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
    for name, is_right, wanted in (
        ("max_new_tokens", lambda value: value >= 1, "at least 1"),
        ("min_new_tokens", lambda value: 0 <= value <= chosen["max_new_tokens"], "0 to max_new_tokens"),
        ("num_beams", lambda value: value >= 1, "at least 1"),
        ("no_repeat_ngram_size", lambda value: value >= 0, "0 (none) or more"),
        ("temperature", lambda value: value > 0, "above 0"),
        ("top_k", lambda value: value >= 0, "0 (all) or more"),
        ("top_p", lambda value: 0 < value <= 1, "above 0 and at most 1"),
        ("repetition_penalty", lambda value: value > 0, "above 0"),
    ):
        try:
            if chosen.get(name) is not None and not is_right(chosen[name]):
                raise TypeError
        except TypeError:
            raise InputError(f"decoding: {name} is {chosen[name]!r}; it must be {wanted}.") from None
    try:
        GenerationConfig(**chosen)
    except (ValueError, TypeError) as error:
        raise InputError(f"decoding: {error}") from None
    return chosen


def prompt_seed(prompt_id: str, seed: int) -> int:
    """Return the 64-bit seed of one prompt in a run: a hash of both, the same on every machine."""
    return int.from_bytes(hashlib.blake2b(f"{seed}:{prompt_id}".encode(), digest_size=8).digest(), "big")


def render_contexts(
    dialogue_model: DialogueModel, prompts: Sequence[str], personas: Sequence[str], tag: str = ""
) -> list[str]:
    """Return what the model reads before it answers each prompt: persona, prompt and control tag in its own format.

    - dialogue (DialoGPT): persona lines and prompt joined by line ends, tag, EOS. The response follows, ended by EOS.
    - chat: the tokenizer's chat template, with the persona as system message (at the head of the user's message where
      the template takes none) and prompt + tag as user message, up to the point where the answer begins.
    - encoder_decoder: persona lines and prompt joined by line ends, tag; the tokenizer adds its own special tokens.

    `personas` has one entry per prompt; "" is none. A rendered context is encoded with `encode_contexts`. In training
    it is the `prompt` column as it stands (the `completion` being the response; TRL appends the EOS).
    """
    if len(prompts) != len(personas):
        raise InputError(f"personas: {len(personas)} for {len(prompts)} prompts; give one each, '' for none.")
    if dialogue_model.kind == "chat":
        return _render_chats(dialogue_model.tokenizer, prompts, personas, tag)
    end = dialogue_model.tokenizer.eos_token if dialogue_model.kind == "dialogue" else ""
    return [
        f"{persona}\n{prompt}{tag}{end}" if persona else f"{prompt}{tag}{end}"
        for prompt, persona in zip(prompts, personas, strict=True)
    ]


def _render_chats(tokenizer: Any, prompts: Sequence[str], personas: Sequence[str], tag: str) -> list[str]:
    takes_system = True
    try:
        probe = [{"role": "system", "content": "\x00"}, {"role": "user", "content": ""}]
        # Some templates refuse a system message, others drop it without a word.
        takes_system = "\x00" in tokenizer.apply_chat_template(probe, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template raises whatever it likes, mostly jinja2.TemplateError
        if "TemplateError" not in {cls.__name__ for cls in type(error).__mro__}:
            raise
        takes_system = False

    def messages(prompt: str, persona: str) -> list[dict[str, str]]:
        if not persona:
            return [{"role": "user", "content": prompt + tag}]
        if takes_system:
            return [{"role": "system", "content": persona}, {"role": "user", "content": prompt + tag}]
        return [{"role": "user", "content": f"{persona}\n{prompt}{tag}"}]

    chats = [messages(prompt, persona) for prompt, persona in zip(prompts, personas, strict=True)]
    return tokenizer.apply_chat_template(chats, tokenize=False, add_generation_prompt=True) if chats else []


def encode_contexts(dialogue_model: DialogueModel, contexts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of rendered contexts; special tokens are added for encoder-decoder models alone."""
    if not contexts:
        return []
    adds = dialogue_model.kind == "encoder_decoder"
    return dialogue_model.tokenizer(list(contexts), add_special_tokens=adds)["input_ids"]


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
    # By length for batches without padding; by tokens within it, so that rows with a common beginning meet.
    jobs = sorted(rows_of, key=lambda job: (-len(encoded[job[0]]), encoded[job[0]], job[1]))
    # Sampling inside a beam search draws from one stream for the whole batch: there, a batch is one row.
    size = 1 if decoding.get("do_sample") and decoding.get("num_beams", 1) > 1 else batch_size
    batches = [
        group[start : start + size]
        for _, members in groupby(jobs, key=lambda job: len(encoded[job[0]]))
        for group in [list(members)]
        for start in range(0, len(group), size)
    ]
    return _each_batch(dialogue_model, encoded, batches[first:], rows_of, decoding)


def _check_lengths(dialogue_model: DialogueModel, encoded: list[list[int]], decoding: Mapping[str, Any]) -> None:
    room = getattr(dialogue_model.model.config, "max_position_embeddings", None) or np.inf
    if dialogue_model.kind != "encoder_decoder":
        room -= decoding["max_new_tokens"]
    for ids in encoded:
        if not ids:
            raise InputError("contexts: one is empty; leave out empty prompts.")
        if len(ids) > room:
            raise InputError(
                f"contexts: one has {len(ids)} tokens, {dialogue_model.name} has room for {room:.0f} beside the response "
                f"(max_new_tokens {decoding['max_new_tokens']}); shorten personas or lower max_new_tokens."
            )


def _each_batch(
    dialogue_model: DialogueModel,
    encoded: list[list[int]],
    batches: list[list[tuple[int, int]]],
    rows_of: Mapping[tuple[int, int], list[int]],
    decoding: Mapping[str, Any],
) -> Iterator[tuple[list[int], list[str]]]:
    for batch in batches:
        token_ids = torch.tensor([encoded[context] for context, _ in batch])
        texts = _respond(dialogue_model, token_ids, [seed for _, seed in batch], decoding)
        rows = [row for job in batch for row in rows_of[job]]
        yield rows, [text for job, text in zip(batch, texts, strict=True) for _ in rows_of[job]]


@torch.inference_mode()
def _respond(
    dialogue_model: DialogueModel, token_ids: torch.Tensor, seeds: Sequence[int], decoding: Mapping[str, Any]
) -> list[str]:
    """Return the responses to contexts of equal length, token_ids (b, c)."""
    model, tokenizer = dialogue_model.model, dialogue_model.tokenizer
    arguments = dict(decoding)
    start = 0 if dialogue_model.kind == "encoder_decoder" else token_ids.shape[1]
    extra: dict[str, Any] = {"logits_processor": LogitsProcessorList(), "stopping_criteria": StoppingCriteriaList()}
    if size := arguments.pop("no_repeat_ngram_size", None):
        extra["logits_processor"].append(ResponseNGramBlock(size, start))
    if strings := arguments.pop("stop_strings", None):
        extra["stopping_criteria"].append(StopStringCriteria(tokenizer, strings))
    if arguments.get("num_beams", 1) == 1:
        extra["custom_generate"] = _decode_rows
        extra["uniforms"] = (
            torch.from_numpy(_uniforms(seeds, arguments["max_new_tokens"])).to(model.device)
            if arguments.get("do_sample")
            else None
        )
    token_ids = token_ids.to(model.device)
    with torch.random.fork_rng(enabled=len(seeds) == 1):
        if len(seeds) == 1:
            torch.manual_seed(seeds[0])  # for sampling inside a beam search, the one way that draws from torch
        output = model.generate(token_ids, attention_mask=torch.ones_like(token_ids), **arguments, **extra)
    texts = tokenizer.batch_decode(output[:, start:], skip_special_tokens=True)
    return [text.strip() for text in texts]


def _uniforms(seeds: Sequence[int], count: int) -> np.ndarray:
    """Return numbers in [0, 1), shape (len(seeds), count), each row a function of its seed alone.

    Philox is a counter-based generator: a key (here the seed) names a stream, and its streams are independent
    (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
    """
    return np.stack([np.random.Generator(np.random.Philox(key=seed)).random(count, dtype=np.float32) for seed in seeds])


class ResponseNGramBlock(LogitsProcessor):
    """Forbids a token that would repeat an n-gram of the response; the context before `start` is not looked at."""

    def __init__(self, size: int, start: int) -> None:
        self.block, self.start = processors.NoRepeatNGramLogitsProcessor(size), start

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return self.block(input_ids[:, self.start :], scores)


class RoomyLayer(DynamicLayer):
    """A layer's keys and values in two tensors with room for the whole response, written in place.

    `DynamicLayer` concatenates, that is, copies everything at every token: over half of a small model's time.
    """

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.key_room, self.value_room = (
            states.new_empty((*states.shape[:2], self.length, states.shape[3])) for states in (key_states, value_states)
        )
        self.keys, self.values = self.key_room[:, :, :0], self.value_room[:, :, :0]
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        rows, start = self.keys.shape[0], self.keys.shape[2]
        self.key_room[:rows, :, start : start + key_states.shape[2]] = key_states
        self.value_room[:rows, :, start : start + value_states.shape[2]] = value_states
        self._show(rows, start + key_states.shape[2])
        return self.keys, self.values

    def reorder_cache(self, beam_idx: torch.Tensor) -> None:
        """Make row i hold what row beam_idx[i] held; rows may become more or fewer."""
        filled = self.keys.shape[2]
        for name in ("key_room", "value_room"):
            old = getattr(self, name)
            new = old.new_empty((len(beam_idx), *old.shape[1:]))
            new[:, :, :filled] = old[beam_idx, :, :filled]
            setattr(self, name, new)
        self._show(len(beam_idx), filled)

    def move_rows(self, sources: torch.Tensor, targets: torch.Tensor, left: int) -> None:
        """Copy rows `sources` over rows `targets`, then keep the first `left` rows."""
        filled = self.keys.shape[2]
        for room in (self.key_room, self.value_room):
            room[targets, :, :filled] = room[sources, :, :filled]
        self._show(left, filled)

    def _show(self, rows: int, filled: int) -> None:
        self.keys, self.values = self.key_room[:rows, :, :filled], self.value_room[:rows, :, :filled]


def _decode_rows(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    uniforms: torch.Tensor | None,
    **model_kwargs: Any,
) -> torch.Tensor:
    """Decode (b, c) token ids to (b, max_length), greedily or by each row's own uniforms (b, max_new_tokens).

    This is the loop that `generate` runs in place of its own, after it has made processors, stopping criteria and the
    cache and, for an encoder-decoder model, has run the encoder.
    """
    rows, start = input_ids.shape
    ids = torch.full((rows, generation_config.max_length), generation_config._pad_token_tensor, device=input_ids.device)
    ids[:, :start] = input_ids
    result = ids.clone()
    place = torch.arange(rows, device=ids.device)  # slot i of the batch decodes row place[i]
    ended = torch.zeros(rows, dtype=torch.bool, device=ids.device)
    may_drop = all(isinstance(processor, _ROW_BY_ROW) for processor in logits_processor)
    forward, move_rows, logits = _prefill(model, input_ids, ids.shape[1], model_kwargs)
    for step in range(ids.shape[1] - start):
        scores = logits_processor(ids[:, : start + step], logits.float())
        tokens = scores.argmax(1) if uniforms is None else _draw(scores, uniforms[place, step])
        tokens[ended] = generation_config._pad_token_tensor
        ids[:, start + step] = tokens
        ended |= stopping_criteria(ids[:, : start + step + 1], None)
        count = int(ended.sum())
        if count == len(ended):
            break
        if may_drop and count >= SHARE_OF_ENDED_ROWS * len(ended):
            result[place[ended]] = ids[ended]
            left = len(ended) - count
            # The running rows behind the first `left` slots move into the slots there whose rows have ended.
            targets, sources = torch.where(ended[:left])[0], left + torch.where(~ended[left:])[0]
            ids[targets], place[targets] = ids[sources], place[sources]
            ids, place, ended = ids[:left], place[:left], ended.new_zeros(left)
            tokens = ids[:, start + step]
            move_rows(sources, targets, left)
        logits = forward(tokens[:, None])
    result[place] = ids
    return result


def _draw(scores: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Return one token per row by the inverse of its cumulative distribution; scores (b, v), uniforms (b,) in [0, 1).

    The first token whose cumulative probability exceeds u has a probability above 0 itself.
    """
    cumulative = scores.softmax(1).cumsum_(1)
    return torch.searchsorted(cumulative, uniforms[:, None] * cumulative[:, -1:], right=True).squeeze(1)
