"""The command line: `evenhand COMMAND --config FILE.yaml --field value`."""

import os
import sys
from collections.abc import Sequence
from dataclasses import MISSING
from importlib import import_module

from evaluation.errors import InputError
from evaluation.progress import start_logging
from recipes.config import parser, read_config


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr and status 2."""
    given = vars(parser().parse_args(arguments))
    command, file = given.pop("command"), given.pop("config")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    sys.stdout.reconfigure(errors="replace")  # a terminal that has no "×" shows "?" instead of a traceback
    start_logging()
    try:
        config = read_config(command, file, {flag: text for flag, text in given.items() if text is not MISSING})
        getattr(import_module(f"recipes.{command}"), command)(config)
    except InputError as error:
        print(f"evenhand {command}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
