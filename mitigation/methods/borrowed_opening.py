"""Begin every response as if to another person; no training.

The first tokens of a response are sampled after the same prompt with another descriptor, and the model continues them
after the own prompt. On SmolLM2-135M-Instruct, the style of a response to a descriptor is mostly decided there. The
method needs no labels, and also acts on descriptors that no label knows. `distill` with `training.first_tokens` teaches
the same to the model itself.
"""

from evenhand.mitigation.methods import Method


class BorrowedOpening(Method):
    """Measures the model with responses whose first tokens do not depend on the person."""

    opens = True

    def measured(self, model):
        raise NotImplementedError
