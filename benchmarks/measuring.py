"""Functions that benchmarks share: the command line, CPU seconds and peak memory."""

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"  # data sets and tokenizers that are not shipped


def parse_options(doc: str, folders: Sequence[str] = (), **options: Any) -> argparse.Namespace:
    """Return the options of the command line, with a flag for each option.

    Args:
        doc: the text of `--help`.
        folders: names of arguments without a flag, each a folder.
        options: name → default, or (default, help text). A flag has the type of its default and several values if the
            default is a list; a class, such as Path, is the type of a flag with the default None; False is a switch.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in folders:
        parser.add_argument(name, type=Path)
    for name, option in options.items():
        default = option
        text = None
        if isinstance(option, tuple):
            default, text = option
        flag = f"--{name}"
        if default is False:
            parser.add_argument(flag, help=text, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(flag, help=text, type=default)
        elif isinstance(default, list):
            parser.add_argument(flag, help=text, type=type(default[0]), nargs="+", default=default)
        else:
            parser.add_argument(flag, help=text, type=type(default), default=default)
    return parser.parse_args()


def peak_memory() -> float:
    """Return the peak of this process's resident memory, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """Return the CPU seconds and the result of a call."""
    start = time.process_time()
    result = work(*arguments)
    return time.process_time() - start, result
