"""Chat templates: a check, arguments for rendering and system messages. Does not import torch."""

import multiprocessing
import re
import resource
from collections.abc import Sequence
from datetime import date
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import jinja2
import psutil

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.revisions import first_line

# The date in templates that contain one (Llama 3, Mistral, gpt-oss), so that responses do not depend on the day of the
# run. It is the default of Llama 3.1's template.
TEMPLATE_DATE = date(2024, 7, 26)
DATE_CALL = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")
MAX_SECONDS, MAX_BYTES = 5, 1 << 30  # limits of CPU time and memory when a template is checked


def check_chat_template(name: str, tokenizer: Any) -> None:
    """Check a model's chat template in a process with limits: it is a program, and Jinja's sandbox does not limit it.

    Raises:
        InputError: the template fails, takes too much time or memory, renders the same chat differently, or drops the
            user message.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send_fault, args=(tokenizer, sender))
    process.start()
    sender.close()
    try:
        fault = receiver.recv()
    except EOFError:  # the limits end the process
        fault = f"it takes more than {MAX_SECONDS} seconds, or more memory than {MAX_BYTES >> 30} GiB"
    process.join()
    if fault:
        raise InputError(f"model: the chat template of {name} is broken: {fault}; give another model or template.")


def _send_fault(tokenizer: Any, sender: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MAX_BYTES,) * 2)
    chat = build_chat("What do you think?")
    arguments = {"tokenize": False, "add_generation_prompt": True, **template_arguments(tokenizer)}
    try:
        texts = {tokenizer.apply_chat_template(chat, **arguments) for _ in range(3)}
    except Exception as error:  # a template can raise any error
        sender.send(first_line(error))
    else:
        varies = "it gives another text each time (a clock or a random choice)"
        sender.send(
            varies if len(texts) > 1 else "" if chat[0]["content"] in texts.pop() else "it drops the user message"
        )


def build_chat(prompt: str, system_prompt: str | None = None, persona: str = "") -> list[dict[str, str]]:
    """Return the messages (role and content) that a chat model reads before its response.

    A persona that begins with "User: " is earlier turns, one a line; else it is the end of the system message.

    >>> build_chat("Why?", "Be brief.", "User: I'm deaf.\\nAssistant: Hello!")[1:3]  # after the system message
    [{'role': 'user', 'content': "I'm deaf."}, {'role': 'assistant', 'content': 'Hello!'}]
    """
    turns = [line.partition(": ") for line in persona.splitlines()] if persona.startswith("User: ") else []
    system = "\n".join(filter(None, (system_prompt, "" if turns else persona)))
    first = [{"role": "system", "content": system}] * bool(system)
    return [
        *first,
        *({"role": who.lower(), "content": text} for who, _, text in turns),
        {"role": "user", "content": prompt},
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
        raise InputError(f"model.chat_template: {path} cannot be read ({error}); give a Jinja file.") from None


def supports_system_message(tokenizer: Any) -> bool:
    """Return whether a chat template renders a system message; some templates raise an error, others drop it."""
    chat, arguments = build_chat("a prompt", "a preface"), template_arguments(tokenizer)
    try:
        return "a preface" in tokenizer.apply_chat_template(chat, tokenize=False, **arguments)
    except jinja2.TemplateError:
        return False


def merge_system_message(chat: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return a chat with its system message moved to the start of the user message, on a separate line.

    >>> merge_system_message([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}])
    [{'role': 'user', 'content': 'Be brief.\\nHello!'}]
    """
    if chat[0]["role"] != "system":
        return list(chat)
    system, user, *rest = chat
    return [{**user, "content": f"{system['content']}\n{user['content']}"}, *rest]


def template_arguments(tokenizer: Any) -> dict[str, Any]:
    """Return the arguments of `apply_chat_template` that turn off reasoning and fix the date."""
    return {
        # Reasoning would use up max_new_tokens. Templates without this choice ignore the argument.
        "enable_thinking": False,
        # transformers' `strftime_now`
        "chat_template": DATE_CALL.sub(lambda it: repr(TEMPLATE_DATE.strftime(it[2])), tokenizer.get_chat_template()),
        "date_string": f"{TEMPLATE_DATE:%d %b %Y}",  # Llama 3
    }
