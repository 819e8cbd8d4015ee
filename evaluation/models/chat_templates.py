"""Chat templates: a check in a process with limits, arguments for rendering, system messages and reasoning.

A chat template is an untrusted program, and Jinja's sandbox limits neither time nor memory. Does not import torch.
"""

import multiprocessing
import re
import resource
from collections.abc import Sequence
from dataclasses import dataclass
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
UNFINISHED_REASONING = "never ended its reasoning"  # why a response is left out


@dataclass(frozen=True)
class ReasoningFormat:
    """The markers of reasoning: `start` ends the context or begins the response, `end` stands before the answer.

    `empty` ends the reasoning at once, when it is appended to a context that ends with `start`.
    """

    start: str
    end: str
    empty: str


REASONING_FORMATS = (
    # The text of Qwen3's template with enable_thinking=False.
    ReasoningFormat("<think>", "</think>", "\n</think>\n\n"),
    ReasoningFormat("<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
)


def strip_reasoning(text: str, is_cut: bool) -> str | None:
    """Return a response from an API without outer white space and reasoning; None if its reasoning did not end.

    Args:
        text: the response; lone surrogates, which JSON allows, are replaced.
        is_cut: whether the maximum number of tokens ended the response.

    >>> strip_reasoning("<think>So …</think> Hi.", False), strip_reasoning("<think>So …", True)
    ('Hi.', None)
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if not text and is_cut:
        return None  # the server removes reasoning, which used up all tokens
    for reasoning in REASONING_FORMATS:
        if reasoning.end in text:
            text = text.partition(reasoning.end)[2]
        elif text.lstrip().startswith(reasoning.start):
            return None
    return text.strip()


def check_chat_template(name: str, tokenizer: Any) -> None:
    """Check the chat template of the model `name` by rendering it in a process with limits.

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


def supports_system_message(tokenizer: Any) -> bool:
    """Return whether a chat template renders a system message; some templates raise an error, others drop it."""
    probe = [{"role": "system", "content": "a preface"}, {"role": "user", "content": "a prompt"}]
    try:
        return "a preface" in tokenizer.apply_chat_template(probe, tokenize=False, **template_arguments(tokenizer))
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
        # transformers' `strftime_now`
        "chat_template": DATE_CALL.sub(lambda call: repr(today.strftime(call[2])), tokenizer.get_chat_template()),
        "date_string": f"{today:%d %b %Y}",  # Llama 3
    }
