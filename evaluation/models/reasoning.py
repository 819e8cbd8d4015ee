"""Reasoning in the output of models that reason before they answer: markers and removal. Does not import torch."""

from dataclasses import dataclass

UNFINISHED_REASONING = "never ended its reasoning"  # why a response is left out


@dataclass(frozen=True)
class ReasoningFormat:
    """The reasoning markers of a family of models.

    Attributes:
        start: text before the reasoning, either at the end of the context or at the beginning of the response.
        end: text between reasoning and answer.
        empty: text that ends the reasoning at once when appended to a context that ends with `start`.
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
