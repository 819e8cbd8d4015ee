"""The command line: `evenhand COMMAND --config FILE.yaml --field value --group.field value`.

jsonargparse has the flags, groups them, lays them over the file and completes them in a shell; what a field may be is
said once, by its class in `settings`. Nothing heavy is imported before the settings are known to be good.
"""

import json
import logging
import os
import signal
import sys
import typing
from argparse import ArgumentError, ArgumentTypeError, HelpFormatter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import yaml
from jsonargparse import ArgumentParser, set_parsing_settings

from evenhand.evaluation import families
from evenhand.evaluation.errors import InputError, one_line
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import start_logging
from evenhand.evaluation.settings import as_settings
from evenhand.recipes.checking import (
    CANNOT,
    NAME,
    Setting,
    checked,
    read_yaml,
    reader,
    settings_in,
    unknown_setting,
    with_groups,
)
from evenhand.recipes.commands import run_command
from evenhand.recipes.help import what_to_show
from evenhand.recipes.settings import COMMANDS, POSITIONAL, check_inputs

log = logging.getLogger("evenhand")

INTERRUPTED, TERMINATED = 130, 143  # 128 and the signal, as shells have it
FLAGS = "command line"  # what errors call the place where flags are given
GENERAL = ("config", "help", "version", "verbose", "quiet", "print_config")
SAYING = ("-v", "--verbose", "-q", "--quiet")
METAVARS = {str: "TEXT", Path: "PATH", int: "INT", float: "NUM", bool: "BOOL", list: "A,B", dict: "{K: V}"}
set_parsing_settings(add_print_completion_argument=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a user's mistake is one line on stderr and status 2, Ctrl-C 130 and SIGTERM 143."""
    if arguments is None:  # as a command: whoever calls it has handlers of their own
        signal.signal(signal.SIGTERM, _end)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    sys.stdout.reconfigure(errors="replace")  # a terminal that has no "×" shows "?" instead of a traceback
    arguments = sys.argv[1:] if arguments is None else arguments
    command = next((name for name in arguments if not name.startswith("-")), None)
    command = command if command in COMMANDS else None
    try:
        told = parsed(root_parser(command), arguments, command)
        given = told | told.pop(told.pop("command", None), {})
        file, topic, version, verbose, quiet, print_config = (given.pop(name, None) for name in GENERAL)
        if version:
            print(f"evenhand {_version()}")
            return 0
        if command is None:
            print(root_parser().format_help().rstrip())
            return 0
        if topic is not None:
            print(help_of(command, topic, given, read_yaml(file) if file else {}))
            return 0
        settings = merged(command, file, given)
        if print_config:
            print(yaml.safe_dump(as_settings(settings), sort_keys=False, allow_unicode=True), end="")
            return 0
        start_logging()
        level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
        log.setLevel(level if processes.is_rank_zero() else logging.ERROR)  # the others find the same
        if command != "configs":  # of which nothing is loaded
            log.info("evenhand %s: loading …", command)
        if command == "measure":
            check_inputs(settings)
        run_command(command, settings)
        processes.shut_down()
    except InputError as error:
        if processes.is_rank_zero() or not error.reported_by_rank_zero:
            of, one = f" {command}" if command else "", "" if processes.is_rank_zero() else processes.name()
            print(f"evenhand{of}{one}: {one_line(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"evenhand {command}: interrupted; the same command goes on from here.", file=sys.stderr)
        return INTERRUPTED
    return 0


def _end(*_: Any) -> None:
    """End after SIGTERM, which the launcher of several processes sends when one of them is lost."""
    if processes.launched_world_size() > 1 and processes.is_rank_zero():  # not by `print`, which may be at work
        os.write(2, b"evenhand: the launcher ends this process and says why; the same command goes on from here.\n")
    sys.exit(TERMINATED)


def read_settings(command: str, file: Path | None = None, overrides: Mapping[str, str] | None = None) -> Any:
    """Return the command's settings from a YAML file and `{dotted.field: text}` overrides.

    Raises:
        InputError: the file cannot be read; a key is unknown; a value has the wrong type or is out of range.
    """
    flags = [f"--{name}={text}" for name, text in (overrides or {}).items()]
    return merged(command, file, parsed(command_parser(command), flags, command))


def merged(command: str, file: Path | None, given: Mapping[str, Any]) -> Any:
    """Return the command's settings from a file, with what is given laid over it."""
    cls, parser = COMMANDS[command], command_parser(command)
    there = with_groups(cls, read_yaml(file), str(file)) if file else {}
    try:
        base = parser.parse_object(there, defaults=False)
        told = parser.parse_object(dict(given), cfg_base=base, defaults=False).as_dict()
    except (ArgumentError, ArgumentTypeError) as error:
        raise InputError(f"{file}: {' '.join(str(error).split())}") from None
    return checked(cls, told, " and ".join([*([str(file)] if file else []), *([FLAGS] if given or not file else [])]))


def parsed(parser: ArgumentParser, arguments: Sequence[str], command: str | None) -> dict[str, Any]:
    """Return what is given on the command line and nothing else, groups as dictionaries.

    Raises:
        InputError: a flag is unknown or has moved, or its value cannot be used.
    """
    try:
        return parser.parse_args(_spelled_out(arguments, command), defaults=False).as_dict()
    except (ArgumentError, ArgumentTypeError) as error:
        problem = " ".join(str(error).split()).removeprefix("argument ")
        _, unrecognized, unknown = problem.partition("unrecognized arguments: ")
        if command and unknown.startswith("--"):
            flag = unknown.split()[0].removeprefix("--").partition("=")[0]
            raise unknown_setting(COMMANDS[command], flag, FLAGS) from None
        if unrecognized:
            problem = f"{unknown!r} is no setting; they are given as --field value."
        elif CANNOT in problem and problem.startswith("--"):  # ours, which names the field without the library's help
            problem = problem.partition(": ")[2]
        raise InputError(f"{FLAGS}: {problem}") from None


def _spelled_out(arguments: Sequence[str], command: str | None) -> list[str]:
    """Return the arguments with `--model NAME` as `--model.name NAME`, for each group that has a name.

    What stands behind the command without a flag is the field that POSITIONAL names.
    """
    if command in POSITIONAL:
        start = list(arguments).index(command) + 1 if command in arguments else 0
        while arguments[start:] and arguments[start] in SAYING:
            start += 1
        end = next((place for place in range(start, len(arguments)) if arguments[place][:1] == "-"), len(arguments))
        bare = [f"--{POSITIONAL[command]}={json.dumps(arguments[start:end])}"] if end > start else []
        arguments = [*arguments[:start], *bare, *arguments[end:]]
    flags = {f"--{setting.name}" for setting in settings_in(COMMANDS[command])} if command else set()
    parts = [argument.partition("=") for argument in arguments]
    return [flag + (f".{NAME}" if f"{flag}.{NAME}" in flags else "") + sign + text for flag, sign, text in parts]


def root_parser(command: str | None = None) -> ArgumentParser:
    """Return the parser of the whole command line: one subcommand for each of COMMANDS, or for this one alone."""
    parser = ArgumentParser(
        prog="evenhand",
        description="Does your model treat people differently by who they say they are, how sure are you, "
        "and can you make it stop?",
        exit_on_error=False,
        add_help=False,
        allow_abbrev=False,  # of its subcommands, too
        formatter_class=partial(HelpFormatter, max_help_position=32),
    )
    _add_logging(parser)
    parser.add_argument("-h", "--help", action="store_const", const="", help="show this")
    parser.add_argument("--version", action="store_true", help="show the version")
    commands = parser.add_subcommands(dest="command", required=False, metavar="COMMAND")
    for name in COMMANDS if command is None else [command]:
        commands.add_subcommand(name, command_parser(name), help=COMMANDS[name].__doc__.splitlines()[0])
    return parser


def command_parser(command: str, shown: Sequence[Setting] | None = None) -> ArgumentParser:
    """Return the parser of one command: a flag for each of its fields, or of those that are shown."""
    parser = ArgumentParser(
        prog=f"evenhand {command}",
        usage=f"evenhand {command} [--config FILE.yaml] [--FIELD VALUE] [--GROUP.FIELD VALUE] …",
        description=COMMANDS[command].__doc__,
        exit_on_error=False,
        add_help=False,
        allow_abbrev=False,
        print_config=None,  # `main` prints what has been checked
        formatter_class=partial(HelpFormatter, max_help_position=32),
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE.yaml",
        help="file, or one of `evenhand configs`; flags go over it",
    )
    parser.add_argument("--print_config", action="store_true", help="print all settings as YAML and do nothing")
    parser.add_argument("-h", "--help", nargs="?", const="", metavar="GROUP", help="show this, or a group of settings")
    _add_logging(parser)
    places, optional = {"": parser}, set()
    for setting in settings_in(COMMANDS[command]) if shown is None else shown:
        group, _, last = setting.name.rpartition(".")
        if setting.is_group:
            places[setting.name] = parser.add_argument_group(f"{setting.name} – {setting.text.rstrip('.?')}")
            optional |= {setting.name} if type(None) in typing.get_args(setting.kind) else set()
            continue
        kind = setting.kind | None if last == NAME and group in optional else setting.kind
        places.get(group, parser).add_argument(
            f"--{setting.name}",
            type=reader(setting.name, kind),
            metavar=_metavar(kind),
            **({"nargs": "?", "const": True} if kind is bool else {}),  # `--summary` is `--summary true`
            **_completion(kind),
            help=f"{setting.text}{_default(setting.default)}".replace("%", "%%"),
        )
    return parser


def help_of(command: str, topic: str, *told: Mapping[str, Any]) -> str:
    """Return the help of a command, or of a group of its settings; `told` is what is given of them.

    Raises:
        InputError: there is no such group.
    """
    shown, groups, families_hidden = what_to_show(COMMANDS[command], topic, told)
    parser = command_parser(command, shown)
    if groups:
        lines = parser.add_argument_group(f"groups of settings (`evenhand {command} --help GROUP` shows one)")
        for group in groups:
            lines.add_argument(f"--{group.name}.…", help=group.text, metavar="")
    if families_hidden:
        parser.epilog = f"`--metrics NAME --help` shows a family's own settings: {', '.join(families.names())}."
    return parser.format_help().rstrip()


def _add_logging(parser: ArgumentParser) -> None:
    parser.add_argument(*SAYING[:2], action="store_true", help="say more of what is done")
    parser.add_argument(*SAYING[2:], action="store_true", help="say only what is wrong, and the report")


def _metavar(kind: Any) -> str:
    """Return what stands for a value of this type in `--help`."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return "{" + ",".join(map(str, parts)) + "}"
    if origin is list and typing.get_origin(parts[0]) is dict:
        return "[{K: V}]"
    return METAVARS.get(origin) or METAVARS.get(kind) or _metavar(parts[0])


def _completion(kind: Any) -> dict[str, Any]:
    """Return what a shell can complete a value to."""
    choices = (True, False) if kind is bool else typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    return {"choices": choices} if choices else {}


def _default(value: Any) -> str:
    """Return what `--help` says of a default; null and what is empty are explained in the text."""
    if value is None or value in ("", [], {}):
        return ""
    shown = ",".join(value) if isinstance(value, list) and isinstance(value[0], str) else value
    return f" (default: {str(shown).lower() if isinstance(shown, bool) else shown})"


def _version() -> str:
    from importlib import metadata  # takes a while, for one line

    try:
        return metadata.version("evenhand")
    except metadata.PackageNotFoundError:
        return "(not installed)"
