"""Reasoning in a model's answers, which is not part of the response: its markers, and the text without it.

One table of markers (`files/reasoning_formats.yaml`) serves loaded and served models and files of responses.
`model.reasoning` adds a pair to the table. Does not import torch.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from evenhand.evaluation.files import read_yaml

UNFINISHED_REASONING = "never ended its reasoning"  # why a response is left out


@dataclass(frozen=True)
class ReasoningFormat:
    """The markers of reasoning.

    Attributes:
        start: the text that begins the reasoning, at the start of a response or of a context's last line.
        end: the text between reasoning and answer.
        empty: text that ends the reasoning at once, when it is appended to a context that ends with `cue`.
        cue: the end of a context after which the model reasons; "": `start`.
        is_phrase: whether the markers are words that an answer may contain, so that one alone says nothing.
        needs_start: whether the end is a marker that an answer may contain, so that it says nothing without the start.
    """

    start: str
    end: str
    empty: str = ""
    cue: str = ""
    is_phrase: bool = False
    needs_start: bool = False

    @property
    def context_end(self) -> str:
        """The end of a context after which the model reasons."""
        return self.cue or self.start

    @cached_property
    def block(self) -> re.Pattern[str]:
        """The pattern of a reasoning with its end; its start may be in the context."""
        start = re.escape(self.start)
        end = re.escape(self.end)
        if self.is_phrase:
            begin = rf"\A\s*{start}"
        elif self.needs_start:
            begin = start
        else:
            begin = rf"(?:{start}|\A)"
        return re.compile(rf"{begin}(?:(?!{start}).)*?{end}", re.DOTALL)


def _read_formats() -> tuple[ReasoningFormat, ...]:
    """Return the formats of reasoning in the data file."""
    return tuple(ReasoningFormat(**entry) for entry in read_yaml(FORMATS, "reasoning formats"))


FORMATS = Path(__file__).resolve().parents[1] / "files" / "reasoning_formats.yaml"
REASONING_FORMATS = _read_formats()
# Markers around a whole answer after reasoning.
ANSWERS = (
    ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    ("<response>", "</response>"),
    ("<answer>", "</answer>"),
    ("<|begin_of_solution|>", "<|end_of_solution|>"),
)
Markers = Sequence[str] | None  # the value of `model.reasoning`: start and end


def reasoning_formats(markers: Markers = None) -> tuple[ReasoningFormat, ...]:
    """Return the known formats of reasoning, and first the one with these two markers, if they are given."""
    if not markers:
        return REASONING_FORMATS
    start, end = markers
    return (ReasoningFormat(start, end, f"\n{end}\n\n"), *REASONING_FORMATS)


def split_reasoning(text: str, markers: Markers = None) -> tuple[str | None, bool]:
    """Return a response without outer white space and reasoning, and whether it had reasoning.

    The response is None if its reasoning did not end.

    >>> split_reasoning("<think>So …</think> Hi."), split_reasoning("[THINK]So …"), split_reasoning("Hi.")
    (('Hi.', True), (None, True), ('Hi.', False))
    """
    had_reasoning = False
    for reasoning in reasoning_formats(markers):
        if reasoning.end in text:
            text, n = reasoning.block.subn("", text)
            had_reasoning |= n > 0
        before, found, _ = text.partition(reasoning.start)
        if found and not reasoning.is_phrase and (had_reasoning or not before.strip()):
            had_reasoning = True
            text = before
            if not before.strip():
                return None, True
    text = text.strip()
    if had_reasoning:
        text = _unwrap_answer(text)
    return text, had_reasoning


def _unwrap_answer(text: str) -> str:
    """Return an answer without the markers around it; the end may be missing if the answer was cut."""
    for start, end in ANSWERS:
        if text.startswith(start):
            return text.removeprefix(start).removesuffix(end).strip()
    return text


def strip_reasoning(
    text: str, is_cut: bool, markers: Markers = None, had_reasoning: bool = False
) -> tuple[str | None, bool]:
    """Return a response from an API or a file without reasoning, and whether it had reasoning (`split_reasoning`).

    Args:
        text: the response; lone surrogates, which JSON allows, are replaced.
        is_cut: whether the maximum number of tokens ended the response.
        markers: two more markers of reasoning, of its start and its end.
        had_reasoning: whether the source gave reasoning in a separate field.

    >>> strip_reasoning("<think>So …</think> Hi.", False), strip_reasoning("<think>So …", True)
    (('Hi.', True), (None, True))
    """
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if not text and is_cut:
        return None, True  # the server removes reasoning, which used up all tokens
    answer, found = split_reasoning(text, markers)
    return answer, found or had_reasoning
