"""Markers of reasoning in the output of models that reason before they answer. The module does not import torch."""

from dataclasses import dataclass


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
