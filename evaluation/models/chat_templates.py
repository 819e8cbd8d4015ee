"""Chat templates: a check in a process with limits, arguments for rendering, and system messages.

A chat template is an untrusted program, and Jinja's sandbox limits neither time nor memory.
"""

import multiprocessing
import re
import resource
from collections.abc import Sequence
from datetime import date
from multiprocessing.connection import Connection
from typing import Any

import jinja2
import psutil

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.revisions import first_line

# The date in templates that contain one (Llama 3, Mistral, gpt-oss), so that responses do not depend on the day of the
# run. It is the default of Llama 3.1's template.
TEMPLATE_DATE = date(2024, 7, 26)
DATE_CALL = re.compile(r"strftime_now\(\s*(['\"])(.*?)\1\s*\)")
MAX_SECONDS, MAX_BYTES = 5, 1 << 30  # limits of CPU time and memory for one message
PROBE = "What do you think?"


def check_chat_template(name: str, tokenizer: Any) -> None:
    """Check a model's chat template by rendering it in a process with limits; `name` is the model's name in errors.

    Raises:
        InputError: the template fails, takes too much time or memory, renders the same chat differently, or drops the
            user message.
    """
    receiver, sender = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_render_limited, args=(tokenizer, sender))
    process.start()
    sender.close()
    try:
        reason = receiver.recv()
    except EOFError:
        reason = f"it takes more than {MAX_SECONDS} seconds, or more memory than {MAX_BYTES >> 30} GiB"
    process.join()
    if reason:
        raise InputError(f"model: the chat template of {name} is broken: {reason}; give another model or template.")


def _render_limited(tokenizer: Any, sender: Connection) -> None:
    """Render the chat template in this process, and send the reason why it cannot be used, or "", to `sender`."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MAX_BYTES,) * 2)
    chat = [{"role": "user", "content": PROBE}]
    arguments = {"tokenize": False, "add_generation_prompt": True, **template_arguments(tokenizer)}
    try:
        texts = {tokenizer.apply_chat_template(chat, **arguments) for _ in range(3)}
    except Exception as error:  # an untrusted program can raise any error
        sender.send(first_line(error))
    else:
        varies = "it gives another text each time (a clock or a random choice)"
        sender.send(varies if len(texts) > 1 else "" if PROBE in texts.pop() else "it drops the user message")


def supports_system_message(tokenizer: Any, today: date = TEMPLATE_DATE) -> bool:
    """Return whether a chat template renders a system message; some templates raise an error, others drop it."""
    probe = [{"role": "system", "content": "a preface"}, {"role": "user", "content": "a prompt"}]
    try:
        return "a preface" in tokenizer.apply_chat_template(
            probe, tokenize=False, **template_arguments(tokenizer, today)
        )
    except jinja2.TemplateError:
        return False


def merge_system_message(chat: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return a chat with its system message moved to the start of the user message, on a separate line.

    >>> merge_system_message([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}])
    [{'role': 'user', 'content': 'Be brief.\\nHello!'}]
    """
    first, *rest = chat
    if first["role"] != "system":
        return list(chat)
    return [{**rest[0], "content": f"{first['content']}\n{rest[0]['content']}"}, *rest[1:]]


def template_arguments(tokenizer: Any, today: date = TEMPLATE_DATE) -> dict[str, Any]:
    """Return the arguments of `apply_chat_template` that turn off reasoning and fix the date."""
    return {
        # Reasoning would use up max_new_tokens. Templates without this choice ignore the argument.
        "enable_thinking": False,
        "chat_template": _fix_date(tokenizer.get_chat_template(), today),
        "date_string": f"{today:%d %b %Y}",  # Llama 3
    }


def _fix_date(template: str, day: date) -> str:
    """Return a chat template in which the date `day` replaces the calls of transformers' `strftime_now`.

    >>> _fix_date("Today is {{ strftime_now('%Y-%m-%d') }}.", date(2024, 7, 26))
    "Today is {{ '2024-07-26' }}."
    """
    return DATE_CALL.sub(lambda call: repr(day.strftime(call[2])), template)
