"""Texts in the chats, answers and traces of other programs: messages, lists of parts, and the answers of providers.

A chat is a list of messages with a role and a content. A content is a text or a list of parts. Sources of the formats:
OpenAI (`/v1/chat/completions`, `/v1/completions`, `/v1/responses`), Anthropic (`/v1/messages`), Google
(`generateContent`), Amazon (`Converse`), Ollama (`/api/chat`), ShareGPT ("from", "value"), langfuse (input, output).
"""

import json
import re
import warnings
from ast import literal_eval
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TypeGuard

from evenhand.evaluation.data.readers.answers import FILTERED, NO_ANSWER, Answer, Ending, ending_of, error_reason

USER = "user"
ASSISTANT = "assistant"
SYSTEM = "system"
# Other names of roles; ShareGPT has those of programs.
ROLES = {"human": USER, "developer": SYSTEM} | dict.fromkeys(
    ("gpt", "ai", "model", "bot", "chatgpt", "bard", "bing"), ASSISTANT
)
KNOWN_ROLES = (USER, ASSISTANT, SYSTEM, "tool", "function", "ipython", "environment")  # a play has others
CHATS = ("messages", "conversations", "conversation", "contents", "chat")  # names of a list of messages
TEXT_PARTS = ("text", "output_text", "input_text", None)  # types of a part that the user reads or wrote
REASONING_PARTS = ("thinking", "redacted_thinking", "reasoning")
# Names of the reason why an answer ended.
STOPS = ("finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason", "completionReason")
# Lists in the body of a provider's answer, and the names that tell their elements from a model's own: a quiz also has
# `choices`, and a list of applicants `candidates`.
LISTS = {
    "choices": ("message", *STOPS),
    "candidates": ("content", *STOPS),
    "generations": ("text", "message"),
    "results": ("outputText", "generated_text", *STOPS),  # Amazon Titan, IBM watsonx
    "outputs": STOPS,  # Mistral at Amazon
}
# Names next to such a list, which may then be empty.
NEXT_TO_LISTS = ("object", "usage", "usageMetadata", "modelVersion", "promptFeedback")
# Names next to the reason why an answer ended.
CONTENTS = ("content", "message", "output", "text", "completion", "generation", "generated_text", "outputText")
# Names of what contains an answer; the second ones have other meanings next to a content. `kwargs` is LangChain's.
OUTER = ("message", "output", *CHATS, "generations", "completion", "generated_text")
INNER = ("results", "outputs", "generation", "outputText", "kwargs")
# Names of objects next to an answer that have the reason for its end: LangChain's, and those of Hugging Face.
ABOUT_ANSWERS = ("response_metadata", "generation_info", "details")
BLOCKED = "promptFeedback.blockReason"  # of Google
NO_CHOICES = "error: no choices"  # an answer of another API, or of a proxy that failed
CLOSING = ".,;:!?)]}”’…%。，、；：！？）」』"  # punctuation that follows a word without a blank
MAX_DEPTH = 20  # of values inside values


def is_message(value: object) -> TypeGuard[Mapping[str, object]]:
    """Return whether a value is a message of a chat."""
    return isinstance(value, Mapping) and isinstance(_role_in(value), str)


def _role_in(message: Mapping[str, object]) -> object:
    """Return the role of a message in its own words; LangChain has it as the type."""
    kind = message.get("type")
    return message.get("role", message.get("from", kind if kind in ("human", "ai", SYSTEM, "tool") else None))


def is_chat(value: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    """Return whether a value is a nonempty list of messages."""
    return isinstance(value, Sequence) and not isinstance(value, str) and bool(value) and all(map(is_message, value))


def parse_json(value: object) -> object:
    """Return the object or array in a text of JSON, or as Python writes it; any other value as it is.

    Programs write Python's notation if a cell of a table has an object.

    >>> parse_json('{"a": null}'), parse_json("{'a': None}"), parse_json("[sic]")
    ({'a': None}, {'a': None}, '[sic]')
    """
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        for parse in (json.loads, literal_eval):
            with (
                suppress(ValueError, SyntaxError, RecursionError, MemoryError),
                warnings.catch_warnings(action="ignore"),
            ):
                return parse(value.strip())
    return value


def parse_chat(value: object) -> object:
    """Return the chat, message or provider's answer in a text of JSON; any other value as it is.

    A response may be JSON that the user asked for, so other objects stay texts, and messages of others than a chat's.
    """
    parsed = parse_json(value)
    messages = [parsed] if is_message(parsed) else parsed
    has_messages = is_chat(messages) and (_has_known_roles(messages) or not isinstance(value, str))
    return parsed if has_messages or (isinstance(parsed, Mapping) and _is_body(parsed)) else value


def _has_known_roles(messages: Sequence[Mapping[str, object]]) -> bool:
    return all(role_of(message) in KNOWN_ROLES for message in messages)


def _is_body(value: Mapping[str, object]) -> bool:
    """Return whether an object is the body of a provider's answer or error, or a chat, and not a model's own JSON.

    >>> _is_body({"choices": [{"message": {}}]}), _is_body({"choices": [{"label": "A"}]}), _is_body({"candidates": []})
    (True, False, False)
    """
    if value.get("object") == "response" or "promptFeedback" in value or isinstance(value.get("generated_text"), str):
        return True
    for name in CHATS:
        chat = value.get(name)
        if is_chat(chat) and _has_known_roles(chat):
            return True
    for name, parts in LISTS.items():
        if name not in value:
            continue
        elements = value[name] or []
        if not elements and any(other in value for other in NEXT_TO_LISTS):
            return True
        if isinstance(elements, list) and elements and _has_parts(elements[0], parts):
            return True
    stops = [value[name] for name in STOPS if name in value]
    is_ended = any(stop is None or ending_of(str(stop)) != Ending.UNKNOWN for stop in stops)
    error = value.get("error")
    is_error = isinstance(error, Mapping) and ("message" in error or "code" in error)
    return is_error or (is_ended and any(name in value for name in CONTENTS))


def _has_parts(element: object, parts: Sequence[str]) -> bool:
    """Return whether an element of a provider's list, or the first element of a list in it, has one of the parts."""
    inner = element[0] if isinstance(element, list) and element else element
    return isinstance(inner, Mapping) and any(name in inner for name in parts)


def value_at(row: object, path: str) -> object:
    """Return the value at a dotted path in a row of nested values; None if there is none.

    Names may have dots: the longest that fits is taken. Numbers are positions in lists, and texts of JSON are parsed on
    the way.

    >>> value_at({"metadata": '{"tags": ["old"]}'}, "metadata.tags.0")
    'old'
    """
    row = parse_json(row)
    if isinstance(row, Mapping) and path in row:
        return row[path]
    first, _, rest = path.partition(".")
    if isinstance(row, Mapping):
        first = max((name for name in row if path.startswith(f"{name}.")), key=len, default="")
        if not first:
            return None
        found, rest = row[first], path[len(first) + 1 :]
    elif isinstance(row, Sequence) and not isinstance(row, str) and re.fullmatch("-?[0-9]+", first):
        position = int(first)
        found = row[position] if -len(row) <= position < len(row) else None
    else:
        return None
    return value_at(parse_json(found), rest) if rest else found


def role_of(message: Mapping[str, object]) -> str:
    """Return the role of a message, in OpenAI's words; Anthropic sends the result of a tool as the user's message.

    >>> role_of({"from": "human", "value": "Hi"})
    'user'
    """
    parts = message.get("content")
    if isinstance(parts, list) and parts and all(value_at(part, "type") == "tool_result" for part in parts):
        return "tool"
    role = str(_role_in(message)).lower()
    return ROLES.get(role, role)


def content_of(message: Mapping[str, object]) -> Answer:
    """Return the text of a message, whose content is a text or a list of parts."""
    found = next((message[name] for name in ("content", "value", "parts", "text") if name in message), None)
    text, reasoning = _joined_parts(found)
    own_reasoning = next(
        (message[name] for name in ("reasoning_content", "reasoning", "thinking") if message.get(name)), ""
    )
    refusal = message.get("refusal") or _refusal_in(found)
    return Answer(text, refusal=str(refusal or ""), reasoning=reasoning or str(own_reasoning))


def _joined_parts(content: object) -> tuple[str | None, str]:
    """Return the text in a content, and its reasoning."""
    if content is None or isinstance(content, str):
        return content, ""
    parts = content if isinstance(content, Sequence) else [content]
    texts = [part if isinstance(part, str) else _text_part(part) for part in parts if not _is_reasoning(part)]
    reasoning = [
        str(part.get("thinking") or part.get("text") or part.get("content") or "…")
        for part in parts
        if _is_reasoning(part)
    ]
    texts = [text for text in texts if text]
    return _joined(texts) if texts else None, _joined(reasoning)


def _joined(texts: Sequence[str]) -> str:
    """Return the texts of parts as one, with a new line where two meet without a blank or closing punctuation.

    Anthropic cuts sentences before and after what it cites, with their blanks.

    >>> _joined(["Oh, ", "no", ".", "Look:"])
    'Oh, no.\\nLook:'
    """
    joined = ""
    for text in texts:
        is_apart = not joined or joined[-1].isspace() or text[:1].isspace() or text[:1] in CLOSING
        joined += text if is_apart else f"\n{text}"
    return joined


def _is_reasoning(part: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(part, Mapping) and (part.get("type") in REASONING_PARTS or bool(part.get("thought")))


def _text_part(part: object) -> str | None:
    """Return the text of a part: `text` (in OpenAI's threads, with a `value`), or OpenTelemetry's `content`."""
    if not isinstance(part, Mapping) or part.get("type") not in TEXT_PARTS:
        return None
    found = part.get("text", part.get("content"))
    if isinstance(found, Mapping):
        found = found.get("value")
    return found if isinstance(found, str) else None


def _refusal_in(content: object) -> str:
    """Return the first refusal in the parts of a content; "" if there is none."""
    if isinstance(content, str) or not isinstance(content, Sequence):
        return ""
    found = [part.get("refusal") for part in content if isinstance(part, Mapping) and part.get("type") == "refusal"]
    return next((refusal for refusal in found if isinstance(refusal, str)), "")


def answer_in(value: object, depth: int = 0) -> Answer | None:
    """Return the answer in a text, a message, a chat, a list of parts, or the body of a provider's answer.

    None if the value has no known format.
    """
    if isinstance(value, Answer):
        return value
    if value is None or isinstance(value, str):
        return Answer(value)
    if depth > MAX_DEPTH:
        return None
    if is_chat(value):
        if any(role_of(message) == USER for message in value):
            return exchange_in(value).answer
        said = [message for message in value if role_of(message) == ASSISTANT]
        return _message_answer(said[-1]) if said else Answer(None)
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
        return Answer(text, refusal=_refusal_in(values), reasoning=reasoning)
    return None


def _answer_in_object(value: Mapping[str, object], depth: int) -> Answer | None:
    """Return the answer in the body of a provider's answer, in a message, or in a trace."""
    choices = value.get("choices", value.get("candidates"))
    if choices is None and any(value.get(name) for name in NEXT_TO_LISTS):
        choices = []
    if choices is not None and ("choices" in value or "candidates" in value):
        if not isinstance(choices, Sequence):
            return None
        if error := error_reason(value.get("error")):
            return Answer(None, error=error)
        if len(choices) != 1 or not isinstance(choices[0], Mapping):
            return Answer(None, stop=FILTERED) if not choices or value_at(value, BLOCKED) else None
        return _with_stop(choices[0], _answer_in_choice(choices[0], depth), value)
    if value.get("type") in REASONING_PARTS:
        return Answer(None, reasoning="…")
    found = next((name for name in OUTER if name in value), None)
    is_content = any(name in value for name in ("content", "parts", "value", "text", "refusal")) or is_message(value)
    if found is None and is_content:
        return _with_stop(value, content_of(value), value)
    found = found or next((name for name in INNER if name in value), None)
    if found is not None:
        return _with_stop(value, answer_in(parse_json(value[found]), depth + 1), value)
    if value_at(value, BLOCKED):
        return Answer(None, stop=FILTERED)
    error = error_reason(value.get("error") or value.get("detail"))
    if not error and ("choices" in value or "candidates" in value):
        error = NO_CHOICES
    return Answer(None, error=error) if error else None


def _answer_in_choice(choice: Mapping[str, object], depth: int) -> Answer | None:
    for name in ("message", "content"):
        if choice.get(name) == {}:  # of Google, if nothing was written
            return Answer(None)
        if isinstance(choice.get(name), (Mapping, list)):
            return answer_in(choice[name], depth + 1)
    text = choice.get("text")
    if isinstance(text, str):
        return Answer(text)
    endings = {ending_of(str(choice[name])) for name in STOPS if choice.get(name)}
    return Answer(None) if choice.get("error") or endings - {Ending.WHOLE, Ending.CALL} else None


def _with_stop(part: Mapping[str, object], answer: Answer | None, body: Mapping[str, object]) -> Answer | None:
    """Return the answer with the reason for its end, and with an error, if the body or its part has them.

    `part` is the part of the body that contains the answer.
    """
    if answer is None:
        return None
    reasons = [part.get(name) for name in STOPS]
    reasons.append(value_at(body, "incomplete_details.reason"))
    reasons += [value_at(part, f"{place}.{name}") for place in ABOUT_ANSWERS for name in STOPS]
    if body.get("object") == "response":
        reasons.append(body.get("status"))
    stop = next((str(reason) for reason in reasons if _is_reason(reason)), answer.stop)
    error = error_reason(part.get("error") or body.get("error"))
    return replace(answer, stop=stop, error=error or answer.error)


def answer_at(row: object, path: str) -> object:
    """Return the value at a dotted path in a row as an answer, whose end and error may stand in the objects around it.

    A value that is no answer is returned as it is, and a remark next to a text is no error.
    """
    value = value_at(row, path)
    answer = answer_in(parse_chat(value))
    if answer is None:
        return value
    names = path.split(".")
    for end in range(len(names) - 1, 0, -1):
        around = _object_at(row, ".".join(names[:end]))
        is_remark = bool(answer.text) and not isinstance(around.get("error"), Mapping)
        answer = _with_stop({**around, "error": None} if is_remark else around, answer, {}) or answer
    return answer


def _object_at(row: object, path: str) -> Mapping[str, object]:
    """Return the object at a dotted path in a row; {} without one. A table may have a column for each of its values."""
    found = parse_json(value_at(row, path))
    if isinstance(found, Mapping):
        return found
    values = row if isinstance(row, Mapping) else {}
    start = f"{path}."
    return {name.removeprefix(start): value for name, value in values.items() if name.startswith(start)}


def _is_reason(value: object) -> bool:
    return isinstance(value, (str, int)) and not isinstance(value, bool)


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
    return _request(messages, asked[-1]) if asked else (None, "")


def _request(messages: Sequence[Mapping[str, object]], asked: int) -> tuple[str | None, str]:
    """Return the text of a message, and the turns before it."""
    names = {USER: "User", ASSISTANT: "Assistant"}
    before = [message for message in messages[:asked] if role_of(message) in names]
    turns = [f"{names[role_of(message)]}: {' '.join((content_of(message).text or '').split())}" for message in before]
    return content_of(messages[asked]).text, "\n".join(turns)


@dataclass(frozen=True)
class Exchange:
    """A message of the user and the answer to it.

    Attributes:
        text: the user's message.
        turns: the turns before it, as of `prompt_in`.
        answer: the answer; without a text, and with the reason, if the chat has none.
        has_unanswered_end: whether the chat goes on after the answer with a message of the user that has none.
    """

    text: str | None
    turns: str
    answer: Answer
    has_unanswered_end: bool


def exchange_in(messages: Sequence[Mapping[str, object]]) -> Exchange:
    """Return the last answer of a chat to a message of the user, and that message, the last one before the answer.

    A greeting before the user's first message is no answer.
    """
    roles = [role_of(message) for message in messages]
    if USER not in roles:
        return Exchange(None, "", Answer(None, error=NO_ANSWER), has_unanswered_end=False)
    answers = [index for index, role in enumerate(roles) if role == ASSISTANT and index > roles.index(USER)]
    if not answers:
        asked = len(roles) - 1 - roles[::-1].index(USER)
        return Exchange(*_request(messages, asked), Answer(None, error=NO_ANSWER), has_unanswered_end=False)
    answered = answers[-1]
    asked = max(index for index in range(answered) if roles[index] == USER)
    text, turns = _request(messages, asked)
    return Exchange(text, turns, _message_answer(messages[answered]), has_unanswered_end=USER in roles[answered:])


def _message_answer(message: Mapping[str, object]) -> Answer:
    """Return the answer in a message, with the reason for its end, if it has one."""
    found = content_of(message)
    return _with_stop(message, found, message) or found
