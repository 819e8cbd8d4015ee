"""Functions that benchmarks share: the command line, prompts, CPU seconds and peak memory."""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.score import AXIS, DESCRIPTOR, PERSONA, PROMPT_ID, TEMPLATE, TEXT

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"  # data sets and tokenizers that are not shipped
TEMPLATES, DESCRIPTORS, AXES = 26, 200, 13  # numbers in `make_prompts`
NO_BFLOAT16 = "this processor has none and only imitates it, slowly; its speed is not measured"


def make_parser(doc: str, **options: Any) -> argparse.ArgumentParser:
    """Return a parser with a flag for each option; `doc` is the text of `--help`.

    Args:
        options: name → default, or (default, help text). A flag has the type of its default and several values if the
            default is a list; a class, such as Path, is the type of a flag with the default None; False is a switch.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, option in options.items():
        default, text = option if isinstance(option, tuple) else (option, None)
        if default is False:
            parser.add_argument(f"--{name}", action="store_true", help=text)
        elif isinstance(default, type):
            parser.add_argument(f"--{name}", type=default, help=text)
        elif isinstance(default, list):
            parser.add_argument(f"--{name}", type=type(default[0]), nargs="+", default=default, help=text)
        else:
            parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
    return parser


def parse_options(doc: str, **options: Any) -> argparse.Namespace:
    """Return the options of the command line; see `make_parser`."""
    return make_parser(doc, **options).parse_args()


def make_prompts(texts: list[str]) -> pd.DataFrame:
    """Return prompts with these texts over TEMPLATES × DESCRIPTORS cells."""
    cell = np.arange(len(texts)) % (TEMPLATES * DESCRIPTORS)
    columns = {
        TEMPLATE: [f"template {t}" for t in cell // DESCRIPTORS],
        DESCRIPTOR: [f"descriptor {d}" for d in cell % DESCRIPTORS],
        AXIS: [f"axis {d % AXES}" for d in cell % DESCRIPTORS],
    }
    return pd.DataFrame({PROMPT_ID: [f"{row:016x}" for row in range(len(texts))], TEXT: texts, PERSONA: "", **columns})


def has_bfloat16() -> bool:
    """Return whether the processor computes in bfloat16."""
    import torch  # imported here, because its memory would count in benchmarks that do not need it

    return torch.ops.mkldnn._is_mkldnn_bf16_supported()


def peak_memory() -> float:
    """Return the peak of this process's resident memory, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the CPU seconds and the result of a call."""
    start = time.process_time()
    result = work(*arguments)
    return time.process_time() - start, result
