"""The markers of reasoning in the text of models that reason before they answer. Imports nothing heavy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReasoningFormat:
    """The reasoning markers of a family of models.

    Attributes:
        start: begins reasoning; it is the end of the context or the beginning of the response.
        end: separates reasoning and answer.
        empty: closes the reasoning at once when it is appended to a context that ends with `start`.
    """

    start: str
    end: str
    empty: str


REASONING_FORMATS = (
    # The text of Qwen3's template with enable_thinking=False.
    ReasoningFormat("<think>", "</think>", "\n</think>\n\n"),
    ReasoningFormat("<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
)
