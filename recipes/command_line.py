"""The command line: `evenhand COMMAND --config FILE.yaml --field value --group.field value`.

jsonargparse parses the flags, merges flags with the config file and completes flags in a shell. The classes in
`settings` declare and check the fields. Modules that are slow to import are imported after the settings are checked.
"""

import json
import logging
import os
import signal
import sys
import typing
from argparse import ArgumentError, ArgumentTypeError, HelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, set_parsing_settings

from evenhand.evaluation import families
from evenhand.evaluation.errors import InputError, format_error, unknown_name
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.files import dump_yaml
from evenhand.evaluation.runs.progress import start_logging
from evenhand.evaluation.runs.waiting_threads import let_waiting_threads_sleep
from evenhand.evaluation.settings import as_settings
from evenhand.mitigation import methods
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
from evenhand.recipes.default_classifier import check_default_classifier
from evenhand.recipes.flag_help import flag_completion, flag_default, flag_metavar
from evenhand.recipes.preflight import check_before_loading
from evenhand.recipes.settings import COMMANDS, POSITIONAL, SINGLE_VALUE

log = logging.getLogger("evenhand")

MAX_SETTINGS = 40  # maximum number in one help text, so that it fits on one screen
METRICS = "metrics"
INTERRUPTED, BROKEN_PIPE, TERMINATED = 130, 141, 143  # 128 + the signal's number, as in a shell
FLAGS = "command line"  # the source that errors about flags name
HELP_POSITION = 32  # column of the texts of `--help`
GENERAL = ("config", "help", "version", "verbose", "quiet", "print_config", "quick")
LOGGING = ("-v", "--verbose", "-q", "--quiet")
QUICK = "--quick"
QUICK_FLAGS = {  # of a command → the flags that --quick stands for; flags of the user override them
    "measure": ("--prompts.descriptors=40", "--prompts.per_cell=2"),
    "loop": ("--measure.prompts.descriptors=40", "--measure.prompts.per_cell=2", "--train_per_cell=2"),
}


def select_settings(
    cls: type, topic: str, sources: Sequence[Mapping[str, Any]], limit: int = MAX_SETTINGS
) -> tuple[list[Setting], list[Setting], bool]:
    """Return the settings that the help of a command, or of a group of settings, lists.

    Args:
        cls: the class of a command's settings.
        topic: the dotted name of the group; "" for the whole command.
        sources: settings from flags or a file. The settings of a family of metrics are listed only if `sources` or
            `topic` contains the family's name.
        limit: the largest number of settings that are listed without folding groups.

    Returns:
        The settings, the groups that are folded to one line each, and whether settings of families are hidden.

    Raises:
        InputError: the command has no such group or setting.
    """
    settings = list(settings_in(cls))
    inside = [setting for setting in settings if not topic or _is_in(setting.name, topic)]
    if not inside:
        raise unknown_name("--help", topic, [setting.name for setting in settings if setting.is_group])
    named = {*topic.split("."), *_metrics_in(sources)}
    prefixes = [setting.name.removesuffix(METRICS) for setting in inside if f".{setting.name}".endswith(f".{METRICS}")]
    hidden = [prefix + family for prefix in prefixes for family in families.names() if family not in named]
    selected = [setting for setting in inside if not any(_is_in(setting.name, name) for name in hidden)]
    selected = list(_fold_models(selected, topic))
    if sum(not setting.is_group for setting in selected) <= limit:
        return selected, [], bool(hidden)
    depth = topic.count(".") + 1 if topic else 0
    selected = [setting for setting in selected if setting.name.count(".") <= depth]
    folded = [setting for setting in selected if setting.is_group and setting.name != topic]
    return [setting for setting in selected if setting not in folded], folded, bool(hidden)


def _is_in(name: str, group: str) -> bool:
    return f"{name}.".startswith(f"{group}.")


def _metrics_in(settings: Any) -> Iterator[str]:
    """Yield the families of metrics in every list `metrics` of nested settings."""
    if isinstance(settings, Mapping):
        metrics = settings.get(METRICS)
        yield from metrics if isinstance(metrics, list) else []
        settings = list(settings.values())
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        for item in settings:
            yield from _metrics_in(item)


def _fold_models(settings: Sequence[Setting], topic: str) -> Iterator[Setting]:
    """Yield the settings; each group with a `name` (a model or classifier) outside the topic becomes one setting."""
    names = {setting.name for setting in settings}
    models = {name for name in names if f"{name}.{NAME}" in names and not _is_in(topic, name)}
    for setting in settings:
        if setting.name in models:
            text = f"{setting.text} (more: `--help {setting.name}`)"
            yield Setting(setting.name, str, getattr(setting.default, NAME, None), text)
        elif setting.name.rpartition(".")[0] not in models:
            yield setting


set_parsing_settings(add_print_completion_argument=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    An InputError is printed as one line on stderr, with status 2. Ctrl-C gives 130, a closed pipe 141 and SIGTERM 143.
    `check` returns a status of its own (`recipes.check`).
    """
    called_as_command = arguments is None
    if called_as_command:  # not from Python: a caller keeps its own signal handlers
        signal.signal(signal.SIGTERM, _terminate)
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    sys.stdout.reconfigure(errors="replace")  # a terminal without "×" prints "?" instead of a traceback
    arguments = sys.argv[1:] if arguments is None else arguments
    command = next((name for name in arguments if not name.startswith("-")), None)
    command = command if command in COMMANDS else None
    try:
        status = _run_arguments(command, arguments)
        sys.stdout.flush()
    except InputError as error:
        if processes.is_rank_zero() or not error.reported_by_rank_zero:
            name, rank = f" {command}" if command else "", "" if processes.is_rank_zero() else processes.rank_label()
            print(f"evenhand{name}{rank}: {format_error(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"evenhand {command}: interrupted; the same command continues from here.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # `evenhand configs | head -1`
        log.debug("evenhand: the output was closed", exc_info=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes stdout again at exit
        return BROKEN_PIPE
    finally:
        if called_as_command:
            for sent in (signal.SIGINT, signal.SIGTERM):  # a signal as the interpreter ends prints no traceback
                signal.signal(sent, signal.SIG_DFL)
    return status


def _run_arguments(command: str | None, arguments: Sequence[str]) -> int:
    """Run a command, or print the version, a help text or the settings; return the exit status."""
    parsed = parse(root_parser(command), arguments, command)
    flags = parsed | parsed.pop(parsed.pop("command", None), {})
    file, topic, version, verbose, quiet, print_config, quick = (flags.pop(name, None) for name in GENERAL)
    if version:
        print(f"evenhand {_version()}")
        return 0
    if command is None:
        print(root_parser().format_help().rstrip())
        return 0
    if topic is not None:
        print(help_text(command, topic, flags, read_yaml(file, command) if file else {}))
        return 0
    settings = merge_settings(command, file, flags)
    if print_config:
        print(dump_yaml(as_settings(settings)), end="")
        return 0
    start_logging()
    level = logging.DEBUG if verbose else logging.WARNING if quiet else logging.INFO
    log.setLevel(level if processes.is_rank_zero() else logging.ERROR)  # other ranks would log the same lines
    if command != "configs":  # it loads nothing
        log.info("evenhand %s: loading libraries, and checking settings and inputs", command)
        if reason := let_waiting_threads_sleep():
            log.info("%s", reason)
        if quick:
            log.info(
                "%s stands for %s: a first answer with wide intervals, which rarely shows whom a difference concerns",
                QUICK,
                " ".join(QUICK_FLAGS[command]),
            )
    check_before_loading(command, settings)
    if command in ("measure", "loop"):
        from_file = with_groups(COMMANDS[command], read_yaml(file, command), str(file)) if file else {}
        check_default_classifier(settings, [from_file, flags])
    status = run_command(command, settings)
    processes.shut_down()
    return status


def _terminate(*_: Any) -> None:
    """Exit after SIGTERM, which a launcher of several processes sends to the remaining processes when one fails."""
    if processes.launched_world_size() > 1 and processes.is_rank_zero():  # `print` is not safe in a signal handler
        os.write(2, b"evenhand: the launcher ended this process; the same command continues from here.\n")
    sys.exit(TERMINATED)


def read_settings(command: str, file: Path | None = None, overrides: Mapping[str, str] | None = None) -> Any:
    """Return the command's settings from a YAML file and `{dotted.field: text}` overrides.

    Raises:
        InputError: the file cannot be read; a key is unknown; a value has the wrong type or is out of range.
    """
    flags = [f"--{name}={text}" for name, text in (overrides or {}).items()]
    return merge_settings(command, file, parse(command_parser(command), flags, command))


def merge_settings(command: str, file: Path | None, flags: Mapping[str, Any]) -> Any:
    """Return the command's settings from a file and from flags; a flag overrides the file."""
    cls, parser = COMMANDS[command], command_parser(command)
    from_file = with_groups(cls, read_yaml(file, command), str(file)) if file else {}
    try:
        base = parser.parse_object(from_file, defaults=False)
        values = parser.parse_object(dict(flags), cfg_base=base, defaults=False).as_dict()
    except (ArgumentError, ArgumentTypeError) as error:
        raise InputError(f"{file}: {' '.join(str(error).split())}") from None
    sources = [*([str(file)] if file else []), *([FLAGS] if flags or not file else [])]
    return checked(cls, values, " and ".join(sources))


def parse(parser: ArgumentParser, arguments: Sequence[str], command: str | None) -> dict[str, Any]:
    """Return the settings on the command line, without defaults; groups of settings are nested dictionaries.

    Raises:
        InputError: a flag is unknown or was renamed, or its value cannot be used.
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
            problem = f"{unknown!r} is not a setting; give settings as --field value."
        elif CANNOT in problem and problem.startswith("--"):  # our error names the field itself
            problem = problem.partition(": ")[2]
        raise InputError(f"{FLAGS}: {problem}") from None


def _spelled_out(arguments: Sequence[str], command: str | None) -> list[str]:
    """Return the arguments with short flags of groups written out: `--model NAME` becomes `--model.name NAME`.

    The flags that `--quick` stands for come before all other flags of the command, which override them.
    Values directly after the command, without a flag, become the value of the command's setting in POSITIONAL.
    """
    if command in POSITIONAL:
        start = list(arguments).index(command) + 1 if command in arguments else 0
        while arguments[start:] and arguments[start] in LOGGING:
            start += 1
        end = next((index for index in range(start, len(arguments)) if arguments[index][:1] == "-"), len(arguments))
        end = min(end, start + 1) if command in SINGLE_VALUE else end
        value = arguments[start] if command in SINGLE_VALUE and end > start else json.dumps(arguments[start:end])
        flag = [f"--{POSITIONAL[command]}={value}"] if end > start else []
        arguments = [*arguments[:start], *flag, *arguments[end:]]
    if QUICK in arguments and command in QUICK_FLAGS:
        start = list(arguments).index(command) + 1 if command in arguments else 0
        arguments = [*arguments[:start], *QUICK_FLAGS[command], *arguments[start:]]
    flags = {f"--{setting.name}" for setting in settings_in(COMMANDS[command])} if command else set()
    parts = [argument.partition("=") for argument in arguments]
    return [flag + (f".{NAME}" if f"{flag}.{NAME}" in flags else "") + sign + text for flag, sign, text in parts]


def root_parser(command: str | None = None) -> ArgumentParser:
    """Return the parser of the whole command line. Its subcommands are all COMMANDS, or `command` alone."""
    parser = ArgumentParser(
        prog="evenhand",
        usage="evenhand COMMAND [--config FILE.yaml] [--FIELD VALUE] [--GROUP.FIELD VALUE] …",
        description="Measure and reduce social biases of language models.",
        exit_on_error=False,
        add_help=False,
        allow_abbrev=False,  # applies to subcommands, too
        formatter_class=_formatter,
    )
    parser.add_argument("-h", "--help", action="store_const", const="", help="show this help")
    parser.add_argument("--version", action="store_true", help="show the version")
    _add_logging(parser)
    commands = parser.add_subcommands(
        dest="command",
        required=False,
        metavar="COMMAND [SETTINGS]",
        title="commands",
        description="`evenhand COMMAND --help` shows the settings of a command.",
    )
    for name in COMMANDS if command is None else [command]:
        commands.add_subcommand(name, command_parser(name), help=COMMANDS[name].__doc__.splitlines()[0])
    return parser


def command_parser(command: str, shown: Sequence[Setting] | None = None) -> ArgumentParser:
    """Return the parser of one command, with a flag for each setting of the command, or for `shown` alone."""
    parser = ArgumentParser(
        prog=f"evenhand {command}",
        usage=f"evenhand {command} [--config FILE.yaml] [--FIELD VALUE] [--GROUP.FIELD VALUE] …",
        description=COMMANDS[command].__doc__,
        exit_on_error=False,
        add_help=False,
        allow_abbrev=False,
        print_config=None,  # `main` prints what has been checked
        formatter_class=_formatter,
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file or shipped config; flags override it")
    parser.add_argument("--print_config", action="store_true", help="print all settings as YAML and exit")
    if command in QUICK_FLAGS:
        parser.add_argument(QUICK, action="store_true", help="40 descriptors, 2 responses each: a first, wide answer")
    parser.add_argument("-h", "--help", nargs="?", const="", metavar="GROUP", help="show this help, or a group's")
    _add_logging(parser)
    groups, optional = {"": parser.add_argument_group("settings")}, set()
    for setting in settings_in(COMMANDS[command]) if shown is None else shown:
        group, _, last = setting.name.rpartition(".")
        if setting.is_group:
            groups[setting.name] = parser.add_argument_group(f"{setting.name} – {setting.text.rstrip('.?')}")
            optional |= {setting.name} if type(None) in typing.get_args(setting.kind) else set()
            continue
        kind = setting.kind | None if last == NAME and group in optional else setting.kind
        groups.get(group, groups[""]).add_argument(
            f"--{setting.name}",
            type=reader(setting.name, kind),
            metavar=flag_metavar(kind),
            **({"nargs": "?", "const": True} if kind is bool else {}),  # `--summary` is `--summary true`
            **flag_completion(kind),
            help=f"{setting.text}{flag_default(setting.default)}".replace("%", "%%"),
        )
    return parser


def help_text(command: str, topic: str, *sources: Mapping[str, Any]) -> str:
    """Return the help text of a command, or of one group `topic` of the command's settings.

    The settings of a family of metrics are listed only if `sources` (settings from flags or a file) contain the family.

    Raises:
        InputError: the command has no such group.
    """
    summaries = methods.summaries() if command in ("tune", "loop") and not topic else {}
    settings, groups, hides_families = select_settings(COMMANDS[command], topic, sources, MAX_SETTINGS - len(summaries))
    parser = command_parser(command, settings)
    if groups:
        lines = parser.add_argument_group(f"groups of settings (`evenhand {command} --help GROUP` shows one)")
        for group in groups:
            lines.add_argument(f"--{group.name}.…", help=group.text, metavar="")
    if summaries:
        lines = parser.add_argument_group("methods (docs/mitigation.md compares them)")
        for name, summary in summaries.items():
            lines.add_argument(name, help=summary)
    if hides_families:
        parser.epilog = "`--metrics FAMILY --help` shows the settings of a family of metrics as well."
    return parser.format_help().rstrip()


def _formatter(prog: str, **arguments: Any) -> HelpFormatter:
    """Return a formatter of help texts in two columns."""
    return HelpFormatter(prog, **{**arguments, "max_help_position": HELP_POSITION})


def _add_logging(parser: ArgumentParser) -> None:
    parser.add_argument(*LOGGING[:2], action="store_true", help="log more")
    parser.add_argument(*LOGGING[2:], action="store_true", help="log warnings only")


def _version() -> str:
    from importlib import metadata  # slow to import, and needed for one line

    try:
        return metadata.version("evenhand")
    except metadata.PackageNotFoundError:
        return "(not installed)"
