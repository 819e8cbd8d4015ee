"""Suppression of warnings and telemetry of the training libraries."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Turn off TRL's telemetry, and warnings of the libraries about each other's deprecated names."""
    disabled = constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*gradient_checkpointing.*", FutureWarning)
            yield
    finally:
        constants.HF_HUB_DISABLE_TELEMETRY = disabled
