"""The program `evenhand`: it runs one command, and turns errors and signals into a line and an exit status.

Modules that are slow to import are imported after the settings are checked.
"""

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from importlib import import_module
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError, format_error
from evenhand.evaluation.files import dump_yaml
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.pages import clear_pages
from evenhand.evaluation.runs.progress import start_logging, working
from evenhand.evaluation.settings import as_settings
from evenhand.recipes.command_line import CommandLine, command_module, read_command_line, settings_class, settings_of
from evenhand.recipes.commands import COMMANDS

log = logging.getLogger("evenhand")

# Exit statuses: of an error in the input, and 128 + the number of a signal, as in a shell.
ERROR = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143
PARALLEL = ("measure", "screen", "tune", "loop", "ablate")  # the other commands run on rank 0
SINGLE_PROCESS = "train_classifier"  # its trainer would wait for the other processes
WAITING = "rate"  # waits for raters, in silence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    An InputError is printed as one line on stderr, with status 2. Ctrl-C gives 130, a closed pipe 141 and SIGTERM 143.
    `check` returns a status of its own (`recipes.check`).
    """
    called_as_command = arguments is None
    if called_as_command:  # not from Python: a caller keeps its own signal handlers
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without "×" prints "?" instead of a traceback
    arguments = sys.argv[1:] if arguments is None else arguments
    command = next((name for name in arguments if name in COMMANDS), "")
    try:
        processes.check_launcher()
    except InputError as error:
        return _fail(command, arguments, format_error(error))
    try:
        line = read_command_line(arguments)
        settings = _settings_to_run(line)
        status = 0 if settings is None else run_command(line.command, settings)
        sys.stdout.flush()
    except InputError as error:
        if processes.is_rank_zero():
            return _fail(command, arguments, format_error(error))
        if not error.reported_by_rank_zero:
            print(f"evenhand {command}{processes.rank_label()}: {format_error(error)}", file=sys.stderr)
        return ERROR
    except KeyboardInterrupt:
        print(f"evenhand {command}: interrupted; the same command continues from here.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `evenhand configs | head -1`
        log.debug("evenhand: the output was closed", exc_info=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout again at exit
        return BROKEN_PIPE
    except OSError as error:  # a file or folder that the command was given, and that no check has found unusable
        log.debug("evenhand: %s", error, exc_info=True)
        name = f"{error.filename!r}: " if error.filename else ""
        return _fail(command, arguments, format_error(OSError(f"{name}{error.strerror or error}")))
    finally:
        if called_as_command:
            for sent in (signal.SIGINT, signal.SIGTERM):  # a signal as the interpreter ends prints no traceback
                signal.signal(sent, signal.SIG_DFL)
    return status


def _fail(command: str, arguments: Sequence[str], message: str) -> int:
    """Print an error and return the exit status of an error; remove the files of the last `check`, which CI would post.

    A check that was given a setting that cannot be used does not know its settings: the folder is looked for in the
    arguments.
    """
    print(f"{f'evenhand {command}'.rstrip()}: {message}", file=sys.stderr)
    if command == "check":
        flag = "--output_dir"
        given = []
        for argument, following in pairwise([*arguments, ""]):
            if argument == flag:
                given.append(following)
            elif argument.startswith(f"{flag}="):
                given.append(argument.removeprefix(f"{flag}="))
        folder = Path(given[-1]) if given else settings_class(command).model_fields["output_dir"].default
        with suppress(OSError, ValueError):
            clear_pages(folder, command)
    return ERROR


def _settings_to_run(line: CommandLine) -> Any:
    """Return the settings of a command and start the log; None if only something is printed, such as the version."""
    if line.options.get("version"):
        from importlib import metadata  # slow to import

        print(f"evenhand {metadata.version('evenhand')}")
        return None
    if not line.command:
        print(line.options["help"], end="")
        return None
    settings = settings_of(line)
    if line.options.get("print_config"):
        print(dump_yaml(as_settings(settings)), end="")
        return None
    from evenhand.recipes.automatic import resolve  # the families of metrics take a second to import

    settings = resolve(settings)
    start_logging()
    log.setLevel(_log_level(line.options))
    if line.command != "configs":  # it loads nothing
        is_tracked = hasattr(settings, "report_to") or line.command == "judge"
        if is_tracked and processes.is_rank_zero():
            from evenhand.evaluation.runs.tracking import destinations

            log.info("evenhand %s: %s", line.command, destinations(settings))
        log.info("evenhand %s: loading libraries, and checking settings and inputs", line.command)
    return settings


def _log_level(options: Mapping[str, object]) -> int:
    """Return the level of messages to log; other ranks than the first would log the same lines."""
    if not processes.is_rank_zero():
        return logging.ERROR
    if options.get("verbose"):
        return logging.DEBUG
    return logging.WARNING if options.get("quiet") else logging.INFO


def run_command(command: str, settings: Any) -> int:
    """Run a command with its settings; return its exit status, 0 unless the command's function returns another."""
    if command == SINGLE_PROCESS and processes.launched_world_size() > 1:
        raise InputError(command, "trains in one process; start it without a launcher.")
    if sys.flags.optimize > 1 and command != "configs":
        raise InputError(
            "PYTHONOPTIMIZE", "2 removes docstrings, without which transformers fails; unset it, or give 1."
        )
    module = import_module(f"evenhand.recipes.{command_module(command)}")
    function = getattr(module, command, None)
    if function is None:  # a command of the user
        raise InputError("command", f"{module.__file__} must define the function {command}(settings).")
    try:
        with nullcontext() if command == WAITING else working(f"evenhand {command}"):
            status = function(settings) if command in PARALLEL else processes.on_rank_zero(lambda: function(settings))
    finally:
        if "evenhand.evaluation.runs.tracking" in sys.modules:  # else nothing was tracked
            sys.modules["evenhand.evaluation.runs.tracking"].log_offline_runs()
    processes.shut_down()
    return status or 0
