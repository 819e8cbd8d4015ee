"""Contexts, the texts that a model reads before its response, and the conversion of responses to and from tokens.

Chat templates are rendered with a fixed date and with reasoning turned off. Some models reason regardless (R1's
distills, QwQ, Qwen3-Thinking, gpt-oss); their reasoning is not part of the response.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from transformers import PreTrainedTokenizerBase

from evenhand.evaluation.data.language.reasoning import reasoning_formats, split_reasoning
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.models.batches import tokenize_texts
from evenhand.evaluation.models.chat_templates import (
    TEMPLATE_DATE,
    build_chat,
    merge_system_message,
    render_chat,
    render_if_accepted,
    supports_system_message,
    template_arguments,
)
from evenhand.evaluation.models.loading import DialogueModel, turn_end

CONTEXT_END = 32  # characters at the end of a context with which a text is encoded
MAX_CUE_TOKENS = 16  # at the end of a context, enough for the start marker of reasoning in every tokenizer


def render_contexts(
    dialogue_model: DialogueModel,
    prompts: Sequence[str],
    personas: Sequence[str],
    tag: str = "",
) -> list[str]:
    """Return the context of each prompt: preface, prompt and control tag in the format of the model.

    The preface is the model's system prompt and the persona, each on a separate line.

    - dialogue (DialoGPT): preface and prompt joined by line ends, tag, EOS.
    - chat: the tokenizer's chat template with the generation prompt. The preface is the system message, or the start of
      the user message if the template has no system message; prompt + tag is the user message. Reasoning is turned off
      if the template allows it (Qwen3), and the date is TEMPLATE_DATE.
    - encoder_decoder: preface and prompt joined by line ends, tag; the tokenizer adds the special tokens.
    """
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind == "chat":
        arguments = template_arguments(tokenizer)
        chats = chat_messages(dialogue_model, prompts, personas, tag)
        return [render_chat(tokenizer, chat, add_generation_prompt=True, **arguments) for chat in chats]
    end = tokenizer.eos_token if dialogue_model.kind == "dialogue" else ""
    return [
        "\n".join(filter(None, (dialogue_model.system_prompt, persona, f"{prompt}{tag}{end}")))
        for prompt, persona in zip(prompts, personas, strict=True)
    ]


def chat_messages(
    dialogue_model: DialogueModel, prompts: Sequence[str], personas: Sequence[str], tag: str = ""
) -> list[list[dict[str, str]]]:
    """Return the messages (role and content) whose texts are in the contexts of `render_contexts`.

    The system prompt is a line of the user message if the model has no template that renders a system message.
    """
    chats = [
        build_chat(f"{prompt}{tag}", dialogue_model.system_prompt, persona)
        for prompt, persona in zip(prompts, personas, strict=True)
    ]
    supported = dialogue_model.kind == "chat" and supports_system_message(dialogue_model.tokenizer)
    return chats if supported else [merge_system_message(chat) for chat in chats]


def prompt_format(dialogue_model: DialogueModel) -> dict[str, Json]:
    """Return a hash of an example that is rendered and encoded without system prompt, and the date in the template."""
    plain = replace(dialogue_model, system_prompt="")
    contexts = render_contexts(plain, ["a prompt", "a prompt"], ["", "a preface"])
    has_date = any(name in str(plain.tokenizer.chat_template) for name in ("strftime_now", "date_string"))
    example = [contexts, encode_contexts(plain, contexts), encode_responses(plain, contexts[:1], ["an answer"])]
    return {
        "sha256": hashlib.sha256(repr(example).encode()).hexdigest(),
        "date": TEMPLATE_DATE.isoformat() if has_date else None,
    }


def encode_contexts(dialogue_model: DialogueModel, contexts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of rendered contexts.

    - chat: no tokens are added, because the chat template contains all special tokens.
    - dialogue: BOS comes first if the tokenizer adds it to texts (Llama, Gemma), because base models expect it.
    - encoder_decoder: the tokenizer's special tokens, with EOS at the end even if the tokenizer does not add it
      (transformers 5 loads BlenderBot's tokenizer without EOS from a folder without tokenizer.json).
    """
    if not contexts:
        return []
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind == "encoder_decoder":
        encoded = tokenize_texts(tokenizer, contexts)
        return [append_end(ids, tokenizer.eos_token_id) if ids else ids for ids in encoded]
    encoded = tokenize_texts(tokenizer, contexts, add_special_tokens=False)
    bos = tokenizer.bos_token_id
    if dialogue_model.kind == "dialogue" and bos is not None and tokenizer("a text")["input_ids"][0] == bos:
        return [[bos, *ids] if ids else ids for ids in encoded]
    return encoded


def encode_responses(
    dialogue_model: DialogueModel,
    contexts: Sequence[str],
    responses: Sequence[str],
    written: Sequence[object] | None = None,
    is_cut: Sequence[bool] | None = None,
) -> list[list[int]]:
    """Return the token ids in which a model reads each response after its rendered context.

    The ids in which a response was written are used as they are, with the end that was written. To decode, strip and
    encode it would give other ids: after "B:", a model writes " Hello", another token than "Hello". Any other text is
    encoded as `encode_continuations`, with one `end_of_response` token at its end unless it is cut.

    Args:
        written: the ids in which each response was written (`generation.Response.ids`), None where they are unknown.
        is_cut: whether max_new_tokens ended each response; None: no response.
    """
    found = written_ids(dialogue_model, responses, written, is_cut)
    others = [row for row in range(len(responses)) if row not in found]
    encoded = encode_continuations(
        dialogue_model, [contexts[row] for row in others], [responses[row] for row in others]
    )
    end = end_of_response(dialogue_model)
    for row, ids in zip(others, encoded, strict=True):
        with_end = append_end(ids, end)
        is_unfinished = is_cut is not None and is_cut[row] and len(with_end) > 1
        found[row] = with_end[:-1] if is_unfinished else with_end
    return [found[row] for row in range(len(responses))]


def encode_continuations(
    dialogue_model: DialogueModel, contexts: Sequence[str], texts: Sequence[str]
) -> list[list[int]]:
    """Return the token ids of texts as they continue rendered contexts, without an end.

    Encoded alone, a text would begin with other tokens: many tokenizers prepend a blank to it. So it is encoded
    together with the end of its context, whose ids are cut off; if the tokenizer joins characters of both in one token,
    with a line end in place of the context, or alone. The chat template says whether a blank stands between context and
    text. An encoder-decoder model's texts continue nothing, and have the special tokens of a target.
    """
    if not texts:
        return []
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind == "encoder_decoder":
        return tokenizer(text_target=list(texts))["input_ids"]
    separator = _separator(dialogue_model)
    ends = [context[-CONTEXT_END:] for context in contexts]
    bodies = [text if end[-1:].isspace() else separator + text for end, text in zip(ends, texts, strict=True)]
    found = _encode_after(tokenizer, ends, bodies)
    for end in ("\n", ""):
        rows = [row for row, ids in enumerate(found) if ids is None]
        again = _encode_after(tokenizer, [end] * len(rows), [bodies[row] for row in rows])
        for row, ids in zip(rows, again, strict=True):
            found[row] = ids
    return [ids or [] for ids in found]


def _encode_after(
    tokenizer: PreTrainedTokenizerBase, beginnings: Sequence[str], texts: Sequence[str]
) -> list[list[int] | None]:
    """Return the token ids of each text after another text; None if one token has characters of both."""
    heads = tokenize_texts(tokenizer, beginnings, add_special_tokens=False)
    wholes = tokenize_texts(
        tokenizer, [head + text for head, text in zip(beginnings, texts, strict=True)], add_special_tokens=False
    )
    found: list[list[int] | None] = []
    for head, whole in zip(heads, wholes, strict=True):
        found.append(whole[len(head) :] if whole[: len(head)] == head else None)
    return found


def _separator(dialogue_model: DialogueModel) -> str:
    """Return the white space that the chat template writes between a context and the response.

    It is " " for templates with "ASSISTANT: Hello!", whose contexts end with "ASSISTANT:", and "" for most others.
    """
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind != "chat" or not tokenizer.chat_template:
        return ""
    arguments = template_arguments(tokenizer)
    prompt = build_chat("a prompt")
    answer = {"role": "assistant", "content": "an answer"}
    context = render_if_accepted(tokenizer, prompt, add_generation_prompt=True, **arguments)
    whole = render_if_accepted(tokenizer, [*prompt, answer], **arguments)
    if context is None or whole is None or not whole.startswith(context):
        return ""
    between, found, _ = whole.removeprefix(context).partition("an answer")
    return between if found and not between.strip() else ""


def written_ids(
    dialogue_model: DialogueModel,
    texts: Sequence[str],
    written: Sequence[object] | None,
    is_cut: Sequence[bool] | None,
) -> dict[int, list[int]]:
    """Return, by row, the ids in which texts were written, where the model's tokenizer decodes them to the text.

    Ids of another tokenizer, or of a text that was edited, do not. A stop string may follow the text only if nothing
    else ended it: neither a token for the end, nor max_new_tokens (`is_cut`).
    """
    ends = set(np.atleast_1d(dialogue_model.model.generation_config.eos_token_id).tolist())
    size = dialogue_model.model.config.get_text_config(decoder=True).vocab_size
    known: dict[int, list[int]] = {}
    for row, ids in enumerate(written or ()):
        if isinstance(ids, list | tuple | np.ndarray) and len(ids) and max(ids) < size:
            known[row] = [int(token) for token in ids]
    if not known:
        return {}
    bodies = [ids[:-1] if ids[-1] in ends else ids for ids in known.values()]
    decoded = dialogue_model.tokenizer.batch_decode(bodies, skip_special_tokens=True)
    found: dict[int, list[int]] = {}
    for (row, ids), body, text in zip(known.items(), bodies, decoded, strict=True):
        whole = _visible(text)
        response = _visible(texts[row])
        has_stop = len(body) == len(ids) and (is_cut is None or not is_cut[row])
        if whole == response or (has_stop and response and whole.startswith(response)):
            found[row] = ids
    return found


def _visible(text: str) -> str:
    """Return a text without outer white space, and without the bytes of a character that it does not finish."""
    return text.strip().rstrip("\ufffd").strip()


def append_end(ids: list[int], end: int) -> list[int]:
    """Return the token ids with the token `end` appended, unless `end` is already the last id."""
    return ids if ids and ids[-1] == end else [*ids, end]


def end_of_response(dialogue_model: DialogueModel) -> int:
    """Return the token that ends a response: EOS, or the chat template's end of a turn if generation stops at it.

    EOS and the end of a turn differ for Gemma ("<end_of_turn>") and Phi-3 ("<|end|>"), whose generation configs contain
    both tokens.
    """
    stops = np.atleast_1d(dialogue_model.model.generation_config.eos_token_id)
    tokens = turn_end(dialogue_model.tokenizer) if dialogue_model.kind == "chat" else []
    return next((token for token in tokens if token in stops), dialogue_model.tokenizer.eos_token_id)


def close_reasoning(contexts: Sequence[str], markers: Sequence[str] | None = None) -> list[str]:
    """Return the contexts, with empty reasoning appended to each context after which the model would reason.

    `markers` are the start and end of the model's reasoning, if they are not known ones.

    >>> close_reasoning(["Hi!<|assistant|>", "Hi!<|assistant|><think>"])
    ['Hi!<|assistant|>', 'Hi!<|assistant|><think>\\n</think>\\n\\n']
    """
    formats = [form for form in reasoning_formats(markers) if form.empty]
    return [
        text + next((form.empty for form in formats if text.rstrip().endswith(form.context_end)), "")
        for text in contexts
    ]


def decode_responses(
    dialogue_model: DialogueModel, contexts: Sequence[list[int]], generated: Sequence[Sequence[int]]
) -> list[tuple[str | None, bool]]:
    """Return the text of each response, without special tokens and outer white space, and whether it had reasoning.

    The text is None if the reasoning never ended.
    """
    tokenizer = dialogue_model.tokenizer
    if dialogue_model.kind != "chat":
        texts = tokenizer.batch_decode([list(ids) for ids in generated], skip_special_tokens=True)
        return [(text.strip(), False) for text in texts]
    found = [
        _strip_reasoning(dialogue_model, context, list(ids)) for context, ids in zip(contexts, generated, strict=True)
    ]
    texts = tokenizer.batch_decode([ids or [] for ids, _ in found], skip_special_tokens=True)
    answers = []
    for (ids, had_reasoning), text in zip(found, texts, strict=True):
        if ids is None:
            answers.append((None, True))
        else:
            answer, has_more = split_reasoning(text, dialogue_model.reasoning)
            answers.append((answer, had_reasoning or has_more))
    return answers


def _strip_reasoning(model: DialogueModel, context: list[int], ids: list[int]) -> tuple[list[int] | None, bool]:
    """Return the generated token ids after the model's reasoning, and whether there was any; None if it does not end.

    Markers may be special tokens, which the text of a response does not have.
    """
    tokenizer = model.tokenizer
    text = tokenizer.decode(ids)
    cue = tokenizer.decode(context[-MAX_CUE_TOKENS:]).rstrip()
    for reasoning in reasoning_formats(model.reasoning):
        if reasoning.is_phrase:
            continue
        if reasoning.end in text:
            end = reasoning.end  # the answer begins after the token that completes this marker
            return ids[bisect_left(range(len(ids)), True, key=lambda n: end in tokenizer.decode(ids[:n])) :], True
        if cue.endswith(reasoning.context_end) or text.lstrip().startswith(reasoning.start):
            return None, True
    return ids, False
