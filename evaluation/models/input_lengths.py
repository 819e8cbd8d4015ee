"""Limits on the number of tokens that a model reads."""

import math
from collections.abc import Sequence

from transformers import PreTrainedConfig, PreTrainedModel

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.loading import DialogueModel


def max_positions(config: PreTrainedConfig) -> float:
    """Return the number of positions in a model's config; infinity if the config has no limit."""
    return getattr(config, "max_position_embeddings", None) or math.inf


def max_input_length(model: PreTrainedModel) -> float:
    """Return the largest number of tokens, special tokens included, that an encoder reads; infinity without a limit.

    RoBERTa and related models number positions from the padding token's id on, so that the limit is smaller than the
    size of the position embeddings.
    """
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return module.num_embeddings - module.padding_idx - 1
    return max_positions(model.config)


def check_input_lengths(
    dialogue_model: DialogueModel, encoded: Sequence[Sequence[int]], max_new_tokens: int, field: str
) -> None:
    """Raise an InputError if an input is empty, or if an input or its response needs more positions than the model has.

    Args:
        encoded: the token ids of the inputs.
        field: the name of the inputs in the error.
    """
    limit = max_positions(dialogue_model.model.config)
    if dialogue_model.kind != "encoder_decoder":
        limit -= max_new_tokens
    elif max_new_tokens > limit:
        raise InputError(
            f"decoding: max_new_tokens is {max_new_tokens}; {dialogue_model.name} has {limit:.0f} positions."
        )
    if not all(encoded):
        raise InputError(f"{field}: one is empty; leave out empty texts.")
    longest = max(map(len, encoded), default=0)
    if longest > limit:
        raise InputError(
            f"{field}: one has {longest} tokens; {dialogue_model.name} has positions for {limit:.0f}, with "
            f"max_new_tokens {max_new_tokens}. Shorten the text or lower max_new_tokens."
        )
