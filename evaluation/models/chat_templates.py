"""Chat templates: a check, arguments for rendering and system messages. Does not import torch."""

import re
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from evenhand.evaluation.errors import InputError, format_value
from evenhand.evaluation.models.revisions import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The date in templates that write one, so that responses do not depend on the day of the run. It is the default of
# Llama 3.1's template.
TEMPLATE_DATE = date(2024, 7, 26)
DIRECTIVE = re.compile(r"%-?[aAbBcdeHIjmMpSuUwWxXyY]\b")  # of `strftime`
MAX_SECONDS = 10.0  # of computing, for one rendering


@contextmanager
def guarded_template(tokenizer: "PreTrainedTokenizerBase", chat: Sequence[Mapping[str, str]]) -> Iterator[None]:
    """Raise one InputError for whatever a chat template does wrong as it renders the chat in the block.

    A template is a program that comes with the model. transformers runs it in Jinja's sandbox, which does not limit its
    time: a timer ends it after MAX_SECONDS. Only the main thread can have a timer.
    """
    try:
        with _time_limit(MAX_SECONDS):
            yield
    except Exception as error:  # a template can raise any error
        message = chat[-1]["content"] if chat else ""
        raise InputError(
            "model",
            f"the chat template of {tokenizer.name_or_path or 'the model'} fails for the message "
            f"{format_value(message)}: {first_line(error)}; give another model or template.",
        ) from error


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after so many seconds of computing, in the main thread; elsewhere no limit."""
    has_timer = hasattr(signal, "setitimer")  # Windows has none
    if not has_timer or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise TimeoutError(f"it takes more than {seconds:g} seconds")

    previous = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, previous)


def render_chat(tokenizer: "PreTrainedTokenizerBase", chat: Sequence[Mapping[str, str]], **arguments: Any) -> str:
    """Return a chat as the tokenizer's template renders it; InputError if the template fails or takes too long.

    `arguments` are those of `apply_chat_template`.
    """
    with guarded_template(tokenizer, chat):
        rendered = tokenizer.apply_chat_template([dict(message) for message in chat], tokenize=False, **arguments)
        return cast(str, rendered)


def render_if_accepted(
    tokenizer: "PreTrainedTokenizerBase", chat: Sequence[Mapping[str, str]], **arguments: Any
) -> str | None:
    """Return the rendered chat, or None if the template raises an error for it; a time-out is an InputError."""
    try:
        return render_chat(tokenizer, chat, **arguments)
    except InputError as error:
        if isinstance(error.__cause__, TimeoutError):
            raise
        return None


def check_chat_template(tokenizer: "PreTrainedTokenizerBase") -> None:
    """Raise InputError if a model's chat template fails, takes too long, or drops the user message.

    Nor may it ignore `add_generation_prompt` and write a header before an answer: the model would write the header, and
    all scores would read it as the beginning of the answer.
    """
    chat = build_chat("What do you think?")
    arguments = template_arguments(tokenizer)
    text = render_chat(tokenizer, chat, add_generation_prompt=True, **arguments)
    if chat[0]["content"] not in text:
        raise InputError(
            "model",
            f"the chat template of {tokenizer.name_or_path or 'the model'} drops the user message; give another "
            "model or template.",
        )
    answered = render_if_accepted(tokenizer, [*chat, {"role": "assistant", "content": "an answer"}], **arguments)
    if text != render_if_accepted(tokenizer, chat, **arguments) or answered is None or not answered.startswith(text):
        return
    header = answered.removeprefix(text).partition("an answer")[0].strip()
    if header:
        raise InputError(
            "model.chat_template",
            f"the chat template of {tokenizer.name_or_path or 'the model'} ignores add_generation_prompt, so that the "
            f"model would begin each answer with {format_value(header)}; give a template that ends with it "
            "(`{% if add_generation_prompt %}`).",
        )


TURN = re.compile(r"^(User|Assistant): ", re.MULTILINE)


def build_chat(prompt: str, system_prompt: str | None = None, persona: str = "") -> list[dict[str, str]]:
    """Return the messages (role and content) that a chat model reads before its response.

    A persona that begins with "User: " or "Assistant: " is earlier turns, each of which begins so on a line of its own;
    else it is the end of the system message.

    >>> build_chat("Why?", "Be brief.", "User: I'm deaf.\\nAssistant: Hello!")[1:3]  # after the system message
    [{'role': 'user', 'content': "I'm deaf."}, {'role': 'assistant', 'content': 'Hello!'}]
    """
    turns = _turns(persona) if TURN.match(persona) else []
    system = "\n".join(filter(None, (system_prompt, "" if turns else persona)))
    chat = [{"role": "system", "content": system}] if system else []
    return [*chat, *turns, {"role": "user", "content": prompt}]


def _turns(persona: str) -> list[dict[str, str]]:
    """Return the turns of a persona; lines that begin no turn go on with the one before."""
    starts = [*TURN.finditer(persona)]
    ends = [*(start.start() for start in starts[1:]), len(persona)]
    return [
        {"role": start[1].lower(), "content": persona[start.end() : end].rstrip("\r\n")}
        for start, end in zip(starts, ends, strict=True)
    ]


NO_TEMPLATE = "none"  # in a signature: of a causal model without a chat template
# A template of a model that also reads images may expect the content of a message to be a list of parts.
PARTS_LOOP = re.compile(r"\bin\s+\w+\s*(?:\.\s*content|\[\s*['\"]content['\"]\s*\])|content['\"]?\]?\[0\]")
TEXT_TEST = re.compile(r"\bis\s+(?:not\s+)?string\b")
# Gives a template a list of one part for each content that is a text.
TEXTS_TO_PARTS = (
    "{%- set texts = namespace(messages=[]) -%}{%- for message in messages -%}{%- if message.content is string -%}"
    "{%- set texts.messages = texts.messages + [dict(message, content=[{'type': 'text', 'text': message.content}])] -%}"
    "{%- else -%}{%- set texts.messages = texts.messages + [message] -%}{%- endif -%}{%- endfor -%}"
    "{%- set messages = texts.messages -%}"
)


def accept_texts(template: str) -> str:
    """Return a chat template that accepts contents that are texts, if it reads lists of parts only."""
    if template.startswith(TEXTS_TO_PARTS) or not PARTS_LOOP.search(template) or TEXT_TEST.search(template):
        return template
    return TEXTS_TO_PARTS + template


def read_template(path: Path) -> str:
    """Return the chat template in a Jinja file; InputError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise InputError("model.chat_template", f"{path} cannot be read ({error}); give a Jinja file.") from None


def supports_system_message(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Return whether a chat template renders a system message; some templates raise an error, others drop it."""
    chat = build_chat("a prompt", "a preface")
    text = render_if_accepted(tokenizer, chat, **template_arguments(tokenizer))
    return text is not None and "a preface" in text


def merge_system_message(chat: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return a chat with its system message moved to the start of the user message, on a separate line.

    >>> merge_system_message([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}])
    [{'role': 'user', 'content': 'Be brief.\\nHello!'}]
    """
    if chat[0]["role"] != "system":
        return list(chat)
    system, user, *rest = chat
    return [{**user, "content": f"{system['content']}\n{user['content']}"}, *rest]


def template_arguments(tokenizer: "PreTrainedTokenizerBase") -> dict[str, bool | str]:
    """Return the arguments of `apply_chat_template` that turn off reasoning and, if it writes a date, fix it."""
    # Reasoning would use up max_new_tokens. Templates without this choice ignore the argument.
    arguments: dict[str, bool | str] = {"enable_thinking": False}
    template = tokenizer.get_chat_template()
    if "date_string" in template:  # Llama 3
        arguments["date_string"] = f"{TEMPLATE_DATE:%d %b %Y}"
    if "strftime_now" in template:
        arguments["chat_template"] = fixed_strftime(template) + template
    return arguments


def fixed_strftime(template: str) -> str:
    """Return a beginning for a chat template: its calls of `strftime_now` write TEMPLATE_DATE.

    It is a macro in place of transformers' function, and replaces the directives, such as %d, that the template has.
    """
    directives = sorted(DIRECTIVE.findall(template))
    steps = "".join(f"|replace('{name}', '{TEMPLATE_DATE.strftime(name)}')" for name in dict.fromkeys(directives))
    # Jinja trims the newline after a block, so that the template itself still begins a line.
    return f"{{% macro strftime_now(form) %}}{{{{ form{steps} }}}}{{% endmacro %}}\n"
