"""What a model reads before it answers, and what of its tokens is the answer: each model in its own format.

A chat template is rendered on a fixed day, and asked not to have the model think. Some models think all the same (R1's
distills, QwQ, Qwen3-Thinking, gpt-oss): their thoughts are no part of the response that is measured, and where a given
response is scored or trained on, its context says that the thought is over.
"""

import hashlib
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import jinja2
import numpy as np

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import tokenize_texts
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.reasoning import REASONING_FORMATS

# For templates that write the date (Llama 3, Mistral, gpt-oss), or else responses would depend on the day they are
# drawn: the day that Llama 3.1's has for want of another.
TEMPLATE_DATE = date(2024, 7, 26)
DATE_CALL = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")
UNFINISHED_REASONING = "never left its thought"  # why a response is left out
MAX_CUE_TOKENS = 16  # tokens, in whatever tokenizer


def render_contexts(
    dialogue_model: DialogueModel, prompts: Sequence[str], personas: Sequence[str], tag: str = ""
) -> list[str]:
    """Return what the model reads before it answers each prompt: preface, prompt and control tag in its own format.

    The preface is the model's system prompt and the persona, on lines of their own.

    - dialogue (DialoGPT): preface and prompt joined by line ends, tag, EOS. The response follows, ended by EOS.
    - chat: the tokenizer's chat template, with the preface as system message (at the head of the user's message where
      the template takes none) and prompt + tag as user message, up to the point where the answer begins; a model that
      can think before it answers (Qwen3) is told not to, and a template that writes the date gets `TEMPLATE_DATE`.
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


def _render_chats(
    tokenizer: Any, prompts: Sequence[str], prefaces: Sequence[str], tag: str, today: date = TEMPLATE_DATE
) -> list[str]:
    arguments = {"tokenize": False, "add_generation_prompt": True, **template_arguments(tokenizer, today)}
    chats = []
    for prompt, preface in zip(prompts, prefaces, strict=True):
        system = [{"role": "system", "content": preface}] if preface else []
        chats.append([*system, {"role": "user", "content": prompt + tag}])
    if not supports_system_message(tokenizer, today):
        chats = [merge_system_message(chat) for chat in chats]
    return tokenizer.apply_chat_template(chats, **arguments) if chats else []


def supports_system_message(tokenizer: Any, today: date = TEMPLATE_DATE) -> bool:
    """Return whether a chat template writes a system message: some refuse one, others drop it without a word."""
    probe = [{"role": "system", "content": "a preface"}, {"role": "user", "content": "a prompt"}]
    try:
        return "a preface" in tokenizer.apply_chat_template(
            probe, tokenize=False, **template_arguments(tokenizer, today)
        )
    except jinja2.TemplateError:
        return False


def merge_system_message(chat: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return a chat with its system message at the head of the user's, on lines of its own.

    >>> without_system([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}])
    [{'role': 'user', 'content': 'Be brief.\\nHello!'}]
    """
    first, *rest = chat
    if first["role"] != "system":
        return list(chat)
    return [{**rest[0], "content": f"{first['content']}\n{rest[0]['content']}"}, *rest[1:]]


def template_arguments(tokenizer: Any, today: date = TEMPLATE_DATE) -> dict[str, Any]:
    """Return what a chat template is told besides the chat: no thoughts, and the same day always."""
    return {
        # Thoughts would use up max_new_tokens. Templates of models that cannot choose ignore the argument.
        "enable_thinking": False,
        "chat_template": _fix_date(tokenizer.get_chat_template(), today),
        "date_string": f"{today:%d %b %Y}",  # what Llama 3 writes in place of the day
    }


def _fix_date(template: str, day: date) -> str:
    """Return a chat template with a day in place of its calls for today's date, a function of transformers.

    >>> _on_day("Today is {{ strftime_now('%Y-%m-%d') }}.", date(2024, 7, 26))
    "Today is {{ '2024-07-26' }}."
    """
    return DATE_CALL.sub(lambda call: repr(day.strftime(call[2])), template)


def prompt_format(dialogue_model: DialogueModel) -> dict[str, Any]:
    """Return what a score's signature says of the model's format: a hash of a rendered and encoded exchange, and the
    date, where there is one in it, else None.

    Whatever else is the same, models that read their prompts in another format are not asked the same.
    """
    plain = replace(dialogue_model, system_prompt="")
    contexts = render_contexts(plain, ["a prompt", "a prompt"], ["", "a preface"])
    read = [contexts, encode_contexts(plain, contexts), encode_responses(plain, ["an answer"])]
    dated = False
    if plain.kind == "chat":
        days = (
            _render_chats(plain.tokenizer, ["a prompt"], [""], "", day) for day in (TEMPLATE_DATE, date(1999, 12, 31))
        )
        dated = len({*map(tuple, days)}) > 1
    return {
        "sha256": hashlib.sha256(repr(read).encode()).hexdigest(),
        "date": TEMPLATE_DATE.isoformat() if dated else None,
    }


def encode_contexts(dialogue_model: DialogueModel, contexts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of rendered contexts.

    A chat template has written all special tokens. Before a dialogue stands the BOS of a tokenizer that adds one
    (Llama, Gemma): base models have seen no text without. What an encoder reads has its tokenizer's special tokens and
    ends with EOS, also where the tokenizer leaves it out, as transformers 5 makes BlenderBot's of a folder without
    tokenizer.json.
    """
    if not contexts:
        return []
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind == "encoder_decoder":
        encoded = tokenize_texts(tokenizer, contexts)
        return [append_end(ids, tokenizer.eos_token_id) if ids else ids for ids in encoded]
    encoded = tokenize_texts(tokenizer, contexts, add_special_tokens=False)
    if dialogue_model.kind == "dialogue" and adds_bos(tokenizer):
        return [[tokenizer.bos_token_id, *ids] if ids else ids for ids in encoded]
    return encoded


def adds_bos(tokenizer: Any) -> bool:
    """Say whether the tokenizer puts BOS before a text."""
    return tokenizer.bos_token_id is not None and tokenizer("a text")["input_ids"][0] == tokenizer.bos_token_id


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
        encoded = tokenize_texts(tokenizer, responses, add_special_tokens=False)
    end = end_of_response(dialogue_model)
    return [append_end(ids, end) for ids in encoded]


def append_end(ids: list[int], end: int) -> list[int]:
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


def close_reasoning(contexts: Sequence[str]) -> list[str]:
    """Return the contexts of given answers: as they are, and where a thought would follow, with one that is over.

    >>> before_answers(["Hi!<|assistant|>", "Hi!<|assistant|><think>"])
    ['Hi!<|assistant|>', 'Hi!<|assistant|><think>\\n</think>\\n\\n']
    """
    skips = (
        next((one.empty for one in REASONING_FORMATS if text.rstrip().endswith(one.start)), "") for text in contexts
    )
    return [context + skip for context, skip in zip(contexts, skips, strict=True)]


def decode_responses(
    dialogue_model: DialogueModel, contexts: Sequence[list[int]], generated: Sequence[Sequence[int]]
) -> list[str | None]:
    """Return the text of each response without special tokens, outer blanks and thoughts.

    None is one that never left its thought.

    Args:
        contexts, generated: token ids of the contexts, and of all that came after them.
    """
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind == "chat":
        pairs = zip(contexts, generated, strict=True)
        generated = [_strip_reasoning(tokenizer, context, list(ids)) for context, ids in pairs]
    texts = tokenizer.batch_decode([ids or [] for ids in generated], skip_special_tokens=True)
    return [None if ids is None else text.strip() for ids, text in zip(generated, texts, strict=True)]


def _strip_reasoning(tokenizer: Any, context: list[int], ids: list[int]) -> list[int] | None:
    """Return the tokens of the answer; None if there is a thought and nothing but it."""
    text, asked = tokenizer.decode(ids), tokenizer.decode(context[-MAX_CUE_TOKENS:]).rstrip()
    for marks in REASONING_FORMATS:
        if marks.end in text:
            end = marks.end  # the tokens up to the first one that completes it are no part of the answer
            return ids[bisect_left(range(len(ids)), True, key=lambda n: end in tokenizer.decode(ids[:n])) :]
        if asked.endswith(marks.start) or text.lstrip().startswith(marks.start):
            return None
    return ids
