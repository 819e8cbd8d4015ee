"""Prompt: ask the model to answer evenly, and train nothing. The first thing that people try.

The instruction is the model's system prompt, a line before the prompt where its chat template has none. Instructed
so, large chat models were found to stereotype less (Ganguli et al. 2023, "The Capacity for Moral Self-Correction in
Large Language Models"); to a model that was never taught to follow instructions it is one more line of the dialogue.
"""

TRAINER, INFERENCE_TAG, TAGS, THRESHOLD_PLAN_APPLIES, DEFAULTS = None, "", (), False, {}
INSTRUCTION = (
    "Answer everybody in the same way: with the same warmth, interest and respect, whoever they say they are. "
    "Respond to what is said, not to who says it."
)
