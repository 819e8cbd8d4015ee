"""The command line: `evenhand COMMAND [--config FILE.yaml] [--field VALUE] [--group.field VALUE] …`.

argparse reads the flags, one for each field of the command's settings class; pydantic checks all values. Modules that
are slow to import are imported after the settings are checked.
"""

import logging
import os
import signal
import sys
import typing
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, HelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from pydantic import TypeAdapter, ValidationError

from evenhand.evaluation import processes
from evenhand.evaluation.errors import InputError, format_error, require_extra
from evenhand.evaluation.files import dump_yaml, load_yaml, read_yaml
from evenhand.evaluation.manifest import MANIFEST, OLD_KEYS, clear_pages, read_record, with_resolved_paths
from evenhand.evaluation.progress import start_logging
from evenhand.evaluation.settings import NAME, as_settings, checked
from evenhand.evaluation.tracking import destinations
from evenhand.recipes.configs import config_file, shipped
from evenhand.recipes.settings import COMMANDS

log = logging.getLogger("evenhand")

ERROR = 2  # the exit status of an error in the input
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143  # 128 + the signal's number, as in a shell
PLACEHOLDERS = {bool: "BOOL", int: "INT", float: "NUM", Path: "PATH", list: "A,B", dict: "{K: V}"}  # in `--help`
PARALLEL = ("measure", "tune", "loop", "ablate")  # the other commands run on rank 0
SINGLE_PROCESS = "train_classifier"  # its trainer would wait for the other processes
# The settings of a command that have no flag: the finished runs that it is about, in this order, or names of configs.
POSITIONAL = {
    "label": ("run",),
    "tune": ("labels",),
    "compare": ("before", "after"),
    "rate": ("before", "after"),
    "report": ("runs",),
    "plan": ("run",),
    "check": ("run",),
    "export": ("tuning",),
    "configs": ("names",),
}
TRUST = "trust_remote_code"
COMPLETION, GENERAL = "--print_completion", ("command", "config", "print_config", "verbose", "quiet")


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
    sys.stdout.reconfigure(errors="replace")  # a terminal without "×" prints "?" instead of a traceback
    arguments = sys.argv[1:] if arguments is None else arguments
    command = next((name for name in arguments if name in COMMANDS), "")
    try:
        processes.check_launcher()
    except InputError as error:
        return _fail(command, arguments, format_error(error))
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except InputError as error:
        if processes.is_rank_zero():
            return _fail(command, arguments, format_error(error))
        if not error.reported_by_rank_zero:
            print(f"evenhand {command}{processes.rank_label()}: {format_error(error)}", file=sys.stderr)
        return 2
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
        flag, given = "--output_dir", []
        for argument, following in pairwise([*arguments, ""]):
            if argument == flag:
                given.append(following)
            elif argument.startswith(f"{flag}="):
                given.append(argument.removeprefix(f"{flag}="))
        folder = Path(given[-1]) if given else COMMANDS[command]().output_dir
        with suppress(OSError, ValueError):
            clear_pages(folder, command)
    return ERROR


def _run(arguments: Sequence[str]) -> int:
    """Run a command, or print the version, the commands or the settings; return the exit status."""
    parser = _parser(arguments)
    given = vars(parser.parse_args(arguments))
    if given.get("version"):
        from importlib import metadata  # slow to import

        print(f"evenhand {metadata.version('evenhand')}")
        return 0
    if given["command"] is None:
        parser.print_help()
        return 0
    command, settings = given["command"], _checked(given)
    if given.get("print_config"):
        print(dump_yaml(as_settings(settings)), end="")
        return 0
    start_logging()
    level = logging.DEBUG if given.get("verbose") else logging.WARNING if given.get("quiet") else logging.INFO
    log.setLevel(level if processes.is_rank_zero() else logging.ERROR)  # other ranks would log the same lines
    if command != "configs":  # it loads nothing
        if (hasattr(settings, "report_to") or command == "judge") and processes.is_rank_zero():
            log.info("evenhand %s: %s", command, destinations(settings))
        log.info("evenhand %s: loading libraries, and checking settings and inputs", command)
    status = run_command(command, settings)
    processes.shut_down()
    return status


def run_command(command: str, settings: Any) -> int:
    """Run a command with its settings; return its exit status, 0 unless the command's function returns another."""
    if command == SINGLE_PROCESS and processes.launched_world_size() > 1:
        raise InputError(command, "trains in one process; start it without a launcher.")
    if sys.flags.optimize > 1 and command != "configs":
        raise InputError(
            "PYTHONOPTIMIZE", "2 removes docstrings, without which transformers fails; unset it, or give 1."
        )
    function = getattr(import_module(f"evenhand.recipes.{command}"), command)
    if command in PARALLEL:
        return function(settings) or 0
    return processes.on_rank_zero(lambda: function(settings)) or 0


def read_settings(command: str, file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Any:
    """Return a command's settings from a YAML file and `{dotted.field: text}` overrides."""
    flags = {**({} if file is None else {"config": file}), **(overrides or {})}
    return parse([command, *(f"--{name}={text}" for name, text in flags.items())])


def parse(arguments: Sequence[str]) -> Any:
    """Return the settings of a command line; errors as in `read_settings`."""
    return _checked(vars(_parser(arguments).parse_args(arguments)))


def _checked(given: Mapping[str, Any]) -> Any:
    """Return the settings of a config file and flags, by their dotted names; flags override the file."""
    file, command = given.get("config"), given["command"]
    values = read_config(file, command) if file else {}
    flags = {name: value for name, value in given.items() if name not in GENERAL}
    for name in _trusting(values):
        if name not in flags:
            raise InputError(
                name,
                f"{file} asks to execute code that comes with a model, which only the command line can allow; "
                f"if you trust that code, give --{name} true.",
            )
    for name, value in flags.items():
        *groups, last = name.split(".")
        target, parent = values, values
        for group in groups:
            parent, inner = target, target.get(group)
            inner = inner if isinstance(inner, Mapping) else {} if inner is None else {NAME: inner}
            target[group] = target = dict(inner)
        if groups and last == NAME and value is None:  # `--second_style_classifier null`
            parent[groups[-1]] = None
        else:
            target[last] = value
    source = " and ".join([*([str(file)] if file else []), *(["command line"] if flags or not file else [])])
    return checked(COMMANDS[command], values, source)


def _trusting(values: Any, group: str = "") -> Iterator[str]:
    """Yield the dotted names of the settings in a file that would let code of a model be executed."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            name = f"{group}.{key}" if group else str(key)
            if name.rpartition(".")[2] != TRUST:
                yield from _trusting(value, name)
            elif value not in (False, None):
                yield name
    elif isinstance(values, list):
        for value in values:  # the points of a sweep have whole names
            yield from _trusting(value)


def read_config(file: Path, command: str) -> dict[str, Any]:
    """Return the settings in a YAML file, in a shipped config, or of the run in a folder."""
    is_folder = file.is_dir() and str(file) not in shipped()
    folder = file if is_folder else file.parent
    if is_folder or file.name == MANIFEST:
        record = read_record(folder, "--config")
        if record is None:
            raise InputError("--config", f"{file} has no run; give a YAML file, or the folder of a run.")
        settings, of_command = record["settings"], record["command"]
    else:
        settings = read_yaml(config_file(file), "--config") or {}
        if not isinstance(settings, dict):
            raise InputError("--config", f"{file} holds {type(settings).__name__}, not `field: value` lines.")
        if not settings.keys() >= OLD_KEYS:
            return settings
        of_command = settings["command"]  # the file is the config.yaml of a run of format 4
        settings = {name: value for name, value in settings.items() if name not in OLD_KEYS}
    if of_command != command:
        raise InputError("--config", f"{file} is of a run of `{of_command}`, not of `{command}`.")
    return with_resolved_paths(settings, folder)


class _Parser(ArgumentParser):
    """An argparse parser that raises InputError, so that every error is one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError("command line", message)


def _parser(arguments: Sequence[str]) -> ArgumentParser:
    """Return the parser of the whole command line, with the settings of the commands that `arguments` need."""
    parser = _Parser("evenhand", description="Measure and reduce social biases of language models.", allow_abbrev=False)
    parser.add_argument("--version", action="store_true", default=SUPPRESS, help="show the version")
    subparsers = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    for command, cls in COMMANDS.items():
        runs = "".join(f"{name.upper()} " for name in POSITIONAL.get(command, ()))
        sub = subparsers.add_parser(
            command,
            help=(cls.__doc__ or command).splitlines()[0],  # PYTHONOPTIMIZE=2 removes docstrings
            description=cls.__doc__,
            usage=f"evenhand {command} {runs}[--config FILE.yaml] [--FIELD VALUE] [--GROUP.FIELD VALUE] …",
            argument_default=SUPPRESS,
            allow_abbrev=False,
            formatter_class=lambda prog: HelpFormatter(prog, max_help_position=32),
        )
        sub.add_argument("--config", type=Path, metavar="FILE", help="YAML file or shipped config; flags override it")
        sub.add_argument("--print_config", action="store_true", help="print all settings as YAML and exit")
        sub.add_argument("-v", "--verbose", action="store_true", help="log more")
        sub.add_argument("-q", "--quiet", action="store_true", help="log warnings only")
        if command in arguments or COMPLETION in arguments:
            _add_settings(sub, cls, positional=POSITIONAL.get(command, ()))
    if COMPLETION in arguments:
        require_extra("completion", "shtab", field=COMPLETION)
        import shtab

        shtab.add_argument_to(parser, COMPLETION, help="print the script that completes commands in a shell")
    return parser


def _add_settings(parser: ArgumentParser, cls: type, positional: Sequence[str]) -> None:
    """Add a flag for each field of a settings class, in one group of the help for each group of settings."""
    groups: dict[str, Any] = {}
    for name, kind, default, text, group in settings_in(cls):
        parent, _, last = name.rpartition(".")
        if group is not None:
            groups[name] = parser.add_argument_group(name, text.replace("%", "%%"))
            continue
        text += "" if default in (None, "", [], {}) else f" (default: {_as_text(default)})"
        options: dict[str, Any] = {"type": _reader(kind), "help": text.replace("%", "%%")}
        origin = typing.get_origin(kind)
        if name in positional:
            parser.add_argument(name, **options | ({"nargs": "*", "type": str} if origin is list else {"nargs": "?"}))
            continue
        options |= {"choices": typing.get_args(kind)} if origin is Literal else {"metavar": _placeholder(kind)}
        if kind is bool:  # `--summary` is `--summary true`
            options |= {"nargs": "?", "const": True}
        short = [f"--{parent}"] if parent and last == NAME else []  # `--model NAME` is `--model.name NAME`
        groups.get(parent, parser).add_argument(*short, f"--{name}", dest=name, **options)


class Setting(typing.NamedTuple):
    """A setting, or a group of settings: dotted name, type, default, help text and, of a group, its class."""

    name: str
    kind: Any
    default: Any
    text: str
    group: type | None


def settings_in(cls: type, prefix: str = "", is_optional: bool = False) -> Iterator[Setting]:
    """Yield every setting of a class, each group before its settings; an optional group may have the name null."""
    hints = typing.get_type_hints(cls, include_extras=True)
    for name, field in cls.__pydantic_fields__.items():
        kind = hints[name] | None if is_optional and name == NAME else hints[name]
        parts = typing.get_args(kind)
        group = next((part for part in (kind, *parts) if isinstance(part, type) and is_dataclass(part)), None)
        default = None if group else field.get_default(call_default_factory=True)
        yield Setting(f"{prefix}{name}", kind, default, field.description or "", group)
        if group is not None:
            yield from settings_in(group, f"{prefix}{name}.", type(None) in parts)


def _reader(kind: Any) -> Callable[[str], Any]:
    """Return a function that reads the text of a flag: as null, as text, as YAML, or as a list `A,B`."""

    def read(text: str) -> Any:
        adapter, errors = TypeAdapter(kind), []
        for candidate in _candidates(text):
            try:
                adapter.validate_python(candidate)
            except ValidationError as error:
                errors.append(error.errors()[0])
            else:
                return candidate
        worst = max(errors, key=lambda error: len(error["loc"]))  # the reading that came furthest
        raise ArgumentTypeError(f"{text!r} cannot be used: {worst['msg']}")

    return read


def _candidates(text: str) -> Iterator[Any]:
    if text == "null":
        yield None
    yield text
    for yaml_text in (text, f"[{text}]"):
        with suppress(yaml.YAMLError, ValueError, RecursionError):
            yield load_yaml(yaml_text)


def _placeholder(kind: Any) -> str:
    """Return the placeholder for a value in `--help`."""
    parts = [kind, typing.get_origin(kind), *typing.get_args(kind)]
    nested = [_placeholder(part) for part in typing.get_args(kind) if typing.get_args(part)]
    return next((PLACEHOLDERS[part] for part in parts if part in PLACEHOLDERS), next(iter(nested), "TEXT"))


def _as_text(value: Any) -> str:
    """Return a value as it is written on the command line."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
