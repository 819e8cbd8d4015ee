"""What the libraries say and send by themselves is not the user's."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from huggingface_hub import constants


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Keep TRL from reporting the run to the hub, and the libraries from warning of each other's deprecated names."""
    told = constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*gradient_checkpointing.*", FutureWarning)
            yield
    finally:
        constants.HF_HUB_DISABLE_TELEMETRY = told
