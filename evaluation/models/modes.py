"""Training and evaluation mode of networks: dropout is off where a model is measured, and where it must not differ."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def evaluation_mode(network: torch.nn.Module) -> Iterator[None]:
    """Put a network into evaluation mode for the block; each of its modules has its own mode again after it."""
    in_training = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        for module in in_training:
            module.training = True


def turn_off_dropout(network: torch.nn.Module) -> None:
    """Put a network that is trained into evaluation mode: two passes over the same tokens are then equal.

    Dropout may be a module or a function that reads the mode and a probability of its module (OPT). Layers that compute
    their activations again in the backward pass do so in training mode only: they stay in it, with probabilities of 0.
    """
    network.eval()
    for module in network.modules():
        if not getattr(module, "gradient_checkpointing", False):
            continue
        module.training = True
        for name, value in vars(module).items():
            if isinstance(value, float) and "drop" in name:
                setattr(module, name, 0.0)
