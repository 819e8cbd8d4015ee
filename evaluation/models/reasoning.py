"""How models that think before they answer mark their thoughts. Imports nothing heavy."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ReasoningFormat:
    """How a family of models marks thoughts: a context that ends with `cue` is followed by one (and so is a response
    that begins with it), `end` stands between thought and answer, and `skip` behind the context makes the thought none.
    """

    cue: str
    end: str
    skip: str


REASONING_FORMATS = (
    ReasoningFormat(
        "<think>", "</think>", "\n</think>\n\n"
    ),  # the very text of Qwen3's template with enable_thinking=False
    ReasoningFormat("<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>final<|message|>"),  # gpt-oss
)
