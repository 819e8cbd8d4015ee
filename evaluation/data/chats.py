"""Texts in the chats, answers and traces of other programs: messages, lists of parts, and the answers of providers.

A chat is a list of messages with a role and a content. A content is a text or a list of parts. Sources of the formats:
OpenAI (`/v1/chat/completions`, `/v1/completions`, `/v1/responses`), Anthropic (`/v1/messages`), Google
(`generateContent`), Amazon (`Converse`), Ollama (`/api/chat`), ShareGPT ("from", "value"), langfuse (input, output).
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

USER = "user"
ASSISTANT = "assistant"
SYSTEM = "system"
ROLES = {"human": USER, "gpt": ASSISTANT, "ai": ASSISTANT, "model": ASSISTANT, "bot": ASSISTANT, "developer": SYSTEM}
CHATS = ("messages", "conversations", "conversation", "contents", "chat")  # names of a list of messages
TEXT_PARTS = ("text", "output_text", "input_text", None)  # types of a part that the user reads or wrote
REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning")
LENGTH_STOPS = ("length", "max_tokens", "max_output_tokens", "MAX_TOKENS")  # why an answer was cut
FILTER_STOPS = ("content_filter", "content_filtered", "guardrail_intervened", "SAFETY", "PROHIBITED_CONTENT")
# reasons why an answer has no text
REFUSAL = "refusal"
FILTERED = "content_filter"
FILTER_REASONS = (FILTERED, REFUSAL)  # an answer that its provider withheld
# How providers say that a filter of theirs rejected a text.
FILTER = re.compile(
    r"content[ _-]?(?:filter|policy|management|moderation)|contentfilter|moderat|flagged|guardrail|safety|responsible"
    r"|inappropriate|data_?inspection|prohibited_?content|violat|harmful|blocklist|blocked by",
    re.IGNORECASE,
)
MAX_DEPTH = 20  # of values inside values


@dataclass(frozen=True)
class Answer:
    """A text that a model wrote.

    Attributes:
        text: the text without the parts that are reasoning; None if there is none.
        stop: why the text ended, in the words of its source, "" if that is unknown.
        refusal: a refusal in a separate field, "" if there is none.
        reasoning: reasoning in a separate field or in separate parts, "" if there is none.
    """

    text: str | None
    stop: str = ""
    refusal: str = ""
    reasoning: str = ""

    @property
    def is_cut(self) -> bool:
        """Whether the maximum number of tokens ended the text."""
        return self.stop in LENGTH_STOPS

    @property
    def is_filtered(self) -> bool:
        """Whether a filter of the provider ended the text."""
        return self.stop in FILTER_STOPS

    @property
    def missing(self) -> str | None:
        """The reason why there is no text; None if the source gives no reason."""
        if self.is_filtered:
            return FILTERED
        return REFUSAL if self.refusal or self.stop == "refusal" else None


def is_message(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a value is a message of a chat."""
    return isinstance(value, Mapping) and isinstance(value.get("role", value.get("from")), str)


def is_chat(value: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    """Return whether a value is a nonempty list of messages."""
    return isinstance(value, Sequence) and not isinstance(value, str) and bool(value) and all(map(is_message, value))


def parse_json(value: object) -> object:
    """Return the object or array in a text of JSON, such as in a cell of a table; any other value as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def parse_chat(value: object) -> object:
    """Return the chat, message or provider's answer in a text of JSON; any other value as it is.

    A response may be JSON that the user asked for, so other objects stay texts.
    """
    parsed = parse_json(value)
    is_answer = isinstance(parsed, Mapping) and not parsed.keys().isdisjoint(("choices", "candidates", *CHATS))
    return parsed if is_chat(parsed) or is_message(parsed) or is_answer else value


def value_at(row: object, path: str) -> object:
    """Return the value at a dotted path in a row of nested values; None if there is none.

    A name with dots is found before a path. Numbers are positions in lists, and texts of JSON are parsed on the way.

    >>> value_at({"metadata": '{"tags": ["old"]}'}, "metadata.tags.0")
    'old'
    """
    if isinstance(row, Mapping) and path in row:
        return row[path]
    first, _, rest = path.partition(".")
    row = parse_json(row)
    if isinstance(row, Mapping) and first in row:
        found = row[first]
    elif isinstance(row, Sequence) and not isinstance(row, str) and re.fullmatch("-?[0-9]+", first):
        position = int(first)
        found = row[position] if -len(row) <= position < len(row) else None
    else:
        return None
    return value_at(parse_json(found), rest) if rest else found


def role_of(message: Mapping[str, object]) -> str:
    """Return the role of a message, in OpenAI's words.

    >>> role_of({"from": "human", "value": "Hi"})
    'user'
    """
    role = str(message.get("role", message.get("from"))).lower()
    return ROLES.get(role, role)


def content_of(message: Mapping[str, object]) -> Answer:
    """Return the text of a message, whose content is a text or a list of parts."""
    found = next((message[name] for name in ("content", "value", "parts", "text") if name in message), None)
    text, reasoning = _joined_parts(found)
    own_reasoning = next(
        (message[name] for name in ("reasoning_content", "reasoning", "thinking") if message.get(name)), ""
    )
    refusal = message.get("refusal") or _part(found, "refusal")
    return Answer(text, refusal=str(refusal or ""), reasoning=reasoning or str(own_reasoning))


def _joined_parts(content: object) -> tuple[str | None, str]:
    """Return the text in a content, and its reasoning."""
    if content is None or isinstance(content, str):
        return content, ""
    parts = content if isinstance(content, Sequence) else [content]
    texts = [part if isinstance(part, str) else _part([part], "text") for part in parts if not _is_reasoning(part)]
    reasoning = [str(part.get("thinking") or part.get("text") or "…") for part in parts if _is_reasoning(part)]
    texts = [text for text in texts if text]
    return "".join(texts) if texts else None, "".join(reasoning)


def _is_reasoning(part: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(part, Mapping) and (part.get("type") in REASONING_PARTS or bool(part.get("thought")))


def _part(content: object, field: str) -> str | None:
    """Return the first text with this name in the parts of a content that have text."""
    if isinstance(content, str) or not isinstance(content, Sequence):
        return None
    for part in content:
        has_field = isinstance(part, Mapping) and isinstance(part.get(field), str)
        if has_field and part.get("type") in (*TEXT_PARTS, field):
            return part[field]
    return None


def answer_in(value: object, depth: int = 0) -> Answer | None:
    """Return the answer in a text, a message, a chat, a list of parts, or the body of a provider's answer.

    None if the value has no known format.
    """
    if value is None or isinstance(value, str):
        return Answer(value)
    if depth > MAX_DEPTH:
        return None
    if is_chat(value):
        said = [message for message in value if role_of(message) == ASSISTANT]
        return content_of(said[-1]) if said else Answer(None)
    if isinstance(value, Sequence):
        return _answer_in_list(value, depth)
    return _answer_in_object(value, depth) if isinstance(value, Mapping) else None


def _answer_in_list(values: Sequence[object], depth: int) -> Answer | None:
    """Return the answer in a list of parts, in the output of `/v1/responses`, or in a list of one answer."""
    if len(values) == 1:
        inner = answer_in(values[0], depth + 1)
        if inner is not None:
            return inner
    items = [item for item in values if isinstance(item, Mapping)]
    if len(items) != len(values):
        return None
    messages = [item for item in items if item.get("type") == "message" or is_message(item)]
    if messages:  # other items are reasoning and calls of tools
        found = content_of(messages[-1])
        reasoning = found.reasoning
        if not reasoning and any(_is_reasoning(item) for item in items):
            reasoning = "…"
        return Answer(found.text, refusal=found.refusal, reasoning=reasoning)
    if all("type" in item or "text" in item for item in items):
        text, reasoning = _joined_parts(values)
        return Answer(text, refusal=_part(values, "refusal") or "", reasoning=reasoning)
    return None


def _answer_in_object(value: Mapping[str, object], depth: int) -> Answer | None:
    """Return the answer in the body of a provider's answer, in a message, or in a trace."""
    if "choices" in value or "candidates" in value:
        choices = value.get("choices", value.get("candidates")) or []
        if not isinstance(choices, Sequence):
            return None
        if len(choices) != 1 or not isinstance(choices[0], Mapping):
            feedback = value.get("promptFeedback")
            is_blocked = isinstance(feedback, Mapping) and bool(feedback.get("blockReason"))
            return Answer(None, stop=FILTERED) if is_blocked or not choices else None
        return _with_stop(choices[0], _answer_in_choice(choices[0], depth), value)
    if value.get("type") in REASONING_PARTS:
        return Answer(None, reasoning="…")
    for name in ("message", "output", *CHATS, "generations", "completion", "generated_text"):
        if name in value:
            return _with_stop(value, answer_in(parse_json(value[name]), depth + 1), value)
    if any(name in value for name in ("content", "parts", "value", "text", "refusal")):
        return _with_stop(value, content_of(value), value)
    return None


def _answer_in_choice(choice: Mapping[str, object], depth: int) -> Answer | None:
    for name in ("message", "content"):
        if isinstance(choice.get(name), (Mapping, list)):
            return answer_in(choice[name], depth + 1)
    text = choice.get("text")
    if isinstance(text, str):
        return Answer(text)
    reason = choice.get("finish_reason", choice.get("finishReason"))
    return Answer(None) if reason in (*FILTER_STOPS, *LENGTH_STOPS) else None


def _with_stop(part: Mapping[str, object], answer: Answer | None, body: Mapping[str, object]) -> Answer | None:
    """Return the answer with the reason for its end, from the part of the body that contains the answer."""
    if answer is None:
        return None
    incomplete = body.get("incomplete_details")
    reasons = [part.get(name) for name in ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason")]
    reasons.append(incomplete.get("reason") if isinstance(incomplete, Mapping) else None)
    stop = next((reason for reason in reasons if isinstance(reason, str)), answer.stop)
    return Answer(answer.text, stop, answer.refusal, answer.reasoning)


def prompt_in(value: object) -> tuple[str | None, str]:
    """Return the last message of the user in a text, a chat or the body of a request, and the turns before it.

    The turns are lines that begin with "User: " or "Assistant: ", as in the column persona of prompts; "" if none.
    """
    if isinstance(value, Mapping) and not is_message(value):
        inner = next((value[name] for name in (*CHATS, "input", "prompt", "query", "question") if name in value), None)
        return prompt_in(parse_json(inner)) if inner is not None else (content_of(value).text, "")
    if isinstance(value, str):
        return value, ""
    if is_chat(value):
        messages = value
    elif is_message(value):
        messages = [value]
    else:
        return _joined_parts(value)[0], ""
    asked = [index for index, message in enumerate(messages) if role_of(message) == USER]
    if not asked:
        return None, ""
    names = {USER: "User", ASSISTANT: "Assistant"}
    before = [message for message in messages[: asked[-1]] if role_of(message) in names]
    turns = [f"{names[role_of(message)]}: {' '.join((content_of(message).text or '').split())}" for message in before]
    return content_of(messages[asked[-1]]).text, "\n".join(turns)
