"""The command line: `evenhand COMMAND [--config FILE.yaml] [--field VALUE] [--group.field VALUE] …`.

pydantic-settings reads the flags, one for each setting; pydantic checks all values. Modules that are slow to import
are imported when they are needed.
"""

import json
import shlex
import typing
from argparse import SUPPRESS, ArgumentParser, HelpFormatter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn

import yaml
from pydantic import BaseModel
from pydantic_settings import CliPositionalArg, CliSettingsSource, SettingsError

from evenhand.evaluation.doors import SHORT_NAMES
from evenhand.evaluation.errors import InputError, first_line, format_value, require_extra, unknown_name
from evenhand.evaluation.files import load_yaml, read_yaml
from evenhand.evaluation.plugins import PATH_VARIABLE, load_class
from evenhand.evaluation.runs.paths import with_resolved_paths
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.runs.results import RECORD
from evenhand.evaluation.settings import NAME, WITHOUT_FLAG, StrictSettings, checked, group_of
from evenhand.recipes.commands import COMMANDS, EXAMPLES, SHIPPED, SWEEP, USER_COMMANDS
from evenhand.recipes.configs import config_file, shipped
from evenhand.recipes.received import CODE, LAUNCHES, acting_settings, without_places

COMPLETION = "--print_completion"
NULL = "null"
POSITIONAL_MODEL = "positional_model"
# The placeholders of values in `--help`, by type.
PLACEHOLDERS = {
    "bool": "BOOL",
    "dict": "{K: V}",
    "float": "NUM",
    "int": "INT",
    "list": "A,B",
    "Path": "PATH",
    "str": "TEXT",
}
MAX_NEW_TOKENS = "max_new_tokens"
SIZE = "size"
# The prompts of each size; settings override them.
SIZES = {
    "quick": {"descriptors": 60, "answers_per_cell": 2},
    "full": {"descriptors": 200, "answers_per_cell": 4},
}
POSITIONAL_HELP = {
    "measure": "the same as --model MODEL",
    "screen": "the same as --model MODEL",
    "loop": "the same as --model MODEL, or a finished run of `measure` to go on from",
    "ablate": "the same as --model MODEL",
}
# The commands with a model and short names, and where a measurement is in their settings.
METRICS = "metrics"  # the setting of `measure`
PREFIXES = {"measure": "", "screen": "", "loop": "measure.", "ablate": "loop.measure."}
# The library keeps this short name for the group `screen`, whose settings have flags, but which has none itself.
SCREEN_FIRST = {"screen_first": "--screen"}

# What `--help` lists first, in this order; where a measurement is in the settings of a command, its settings have the
# prefix of the command. A loop tunes the model, and so refuses one on a server.
FIRST_FLAGS = (
    "model",
    "model.server",
    "responses",
    "model.system_prompt",
    "model.dtype",
    "metrics",
    "generation_bias.style_classifier",
    "output_dir",
    "prompts.descriptors",
)


@dataclass(frozen=True)
class CommandLine:
    """The content of a command line.

    Attributes:
        command: the name of the command, or "" without one.
        options: the arguments that are no settings: version, print_config, verbose, quiet.
        config: the file or folder after `--config`.
        max_new_tokens: the number after `--max_new_tokens`, which is a key of the setting `decoding.arguments`.
        size: the word after `--size`, one of SIZES, or "".
        flags: the dotted names of the settings that are given.
        values: their values, nested, of which pydantic checks types and ranges.
    """

    command: str
    options: Mapping[str, Any]
    config: Path | None = None
    max_new_tokens: int | None = None
    size: str = ""
    flags: Collection[str] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


def settings_class(command: str) -> type[BaseModel]:
    """Return the class of a command's settings.

    Raises:
        InputError: a module of the user has the command's name and no settings, or the name of one of Evenhand's.
    """
    from evenhand.recipes import command_settings  # the families of metrics take a second to import

    if command in SHIPPED and command in USER_COMMANDS:
        raise InputError("command", f"{command!r} is the name of two commands; rename yours in {PATH_VARIABLE}.")
    if command in command_settings.COMMANDS:
        return command_settings.COMMANDS[command]
    return load_class("evenhand.recipes.user_commands", command, StrictSettings, "command")


def command_module(command: str) -> str:
    """Return the name in `evenhand.recipes` of the module that has a command, which is Evenhand's or the user's."""
    return command if command in SHIPPED else f"user_commands.{command}"


def read_settings(command: str, file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Any:
    """Return the settings of a command from a YAML file, some replaced by `overrides`, {dotted name: text}."""
    flags = {**({} if file is None else {"config": file}), **(overrides or {})}
    return parse([command, *(f"--{name}={text}" for name, text in flags.items())])


def parse(arguments: Sequence[str]) -> Any:
    """Return the settings of a command line.

    Raises:
        InputError: a command or a flag is unknown, or a value cannot be used.
    """
    return settings_of(read_command_line(arguments))


def settings_of(line: CommandLine) -> Any:
    """Return the settings of a config file and flags; flags override the file."""
    values = read_config(line)
    cls = settings_class(line.command)
    if METRICS in line.flags:
        values = _of_families(values, line.values[METRICS])
    if line.size:
        group_at(values, f"{PREFIXES[line.command]}prompts").update(SIZES[line.size])
    values = _merged(values, line.values, cls)
    if line.max_new_tokens is not None:
        decoding = group_at(values, f"{PREFIXES[line.command]}decoding")
        decoding["arguments"] = {**(decoding.get("arguments") or {}), MAX_NEW_TOKENS: line.max_new_tokens}
    sources = [str(line.config)] if line.config else []
    if line.flags or not line.config:
        sources.append("command line")
    return checked(cls, values, " and ".join(sources))


def _of_families(values: Mapping[str, Any], metrics: Collection[str]) -> dict[str, Any]:
    """Return the settings of a file without those of families of metrics that the command line does not name."""
    from evenhand.recipes.settings import FAMILIES, groups_of

    unused = groups_of(FAMILIES) - groups_of(name for name in metrics if name in FAMILIES)
    return {name: value for name, value in values.items() if name not in unused}


def group_at(values: dict[str, Any], dotted: str) -> dict[str, Any]:
    """Return the nested mapping at a dotted name; add it if it is missing."""
    for name in dotted.split("."):
        values[name] = dict(values.get(name) or {})
        values = values[name]
    return values


def _merged(file: object, flags: object, cls: type[BaseModel] | None) -> Any:
    """Return the values of a file, overridden by the values of flags; `cls` is the class of the group."""
    if cls is None or not isinstance(flags, Mapping):
        return flags
    if not isinstance(file, Mapping):
        file = {} if file is None else {NAME: file}  # `model: gpt2` is short for `model: {name: gpt2}`
    if flags == {NAME: None}:  # `--second_style_classifier null`
        return None
    merged = dict(file)
    for name, value in flags.items():
        merged[name] = _merged(file.get(name), value, group_of(cls.model_fields[name].annotation))
    return merged


def read_config(line: CommandLine) -> dict[str, Any]:
    """Return the settings in a YAML file, in a shipped config, or of the run in a folder; {} without `--config`.

    Raises:
        InputError: the file cannot be read or is of another command; or it asks to execute code, or, of a run, to do
            more, and the command line does not have the flag for it.
    """
    file = line.config
    if file is None:
        return {}
    is_folder = file.is_dir() and str(file) not in shipped()
    if is_folder or file.name == RECORD:
        return _recorded_settings(line, file if is_folder else file.parent)
    settings = read_yaml(config_file(file), "--config") or {}
    if not isinstance(settings, dict):
        raise InputError("--config", f"{file} holds {type(settings).__name__}, not `field: value` lines.")
    for name, _ in acting_settings(settings):
        if name.rpartition(".")[2] == CODE and name not in line.flags:
            raise InputError(
                name,
                f"{file} asks to execute code that comes with a model, which only the command line can allow; "
                f"if you trust that code, give --{name} true.",
            )
    return settings


def _recorded_settings(line: CommandLine, folder: Path) -> dict[str, Any]:
    """Return the settings in the record of a run, for a command that works in the same folder by default.

    What acts, such as a server, is taken from the command line only, and so is where the command writes otherwise.
    """
    record = read_record(folder, "--config")
    if record is None:
        raise InputError("--config", f"{folder} has no run; give a YAML file, or the folder of a run.")
    if record["command"] != line.command:
        raise InputError("--config", f"{folder} is of a run of `{record['command']}`, not of `{line.command}`.")
    settings = with_resolved_paths(record["settings"], folder)
    acting = {name: value for name, value in acting_settings(settings) if name not in line.flags}
    started = [name for name in acting if name.rpartition(".")[2] in LAUNCHES]
    if started:
        raise InputError(
            started[0],
            f"the record in {folder}, which may come from another person, asks to start a server; give the YAML file "
            "of the run in place of its folder.",
        )
    if acting:
        flags = " ".join(f"--{name} {shlex.quote(_as_text(value))}" for name, value in acting.items())
        raise InputError(
            next(iter(acting)),
            f"the record in {folder}, which may come from another person, asks to execute code or to send texts to a "
            f"server; if you trust that, give the same command with {flags}.",
        )
    return {**without_places(settings), "output_dir": str(folder)}


class _Parser(ArgumentParser):
    """An argparse parser that raises InputError, so that every error is one line."""

    def error(self, message: str) -> NoReturn:
        raise InputError("command line", message)


def read_command_line(arguments: Sequence[str]) -> CommandLine:
    """Return the content of a command line; print the help or the completion, and exit, if it is asked for.

    Raises:
        InputError: a command or flag is unknown, or the value of a flag is missing or cannot be read.
    """
    first = next((argument for argument in arguments if not argument.startswith("-")), None)
    if first is not None and first not in COMMANDS and COMPLETION not in arguments:
        raise unknown_name("command", first, COMMANDS)
    parser, sources = _parser(arguments)
    given, unknown = parser.parse_known_args(arguments)
    options = vars(given)
    command = options.pop("command") or ""
    if unknown:
        if not command:
            raise _unknown_flag(unknown[0], ["version", "help"], ())
        raise _unknown_flag(unknown[0], sources[command].flags, sources[command].settings.values())
    if not command:
        return CommandLine("", {**options, "help": parser.format_help()})
    config = options.pop("config", None)
    max_new_tokens = options.pop(MAX_NEW_TOKENS, None)
    size = options.pop(SIZE, "")
    _name_model(command, options)
    settings = {name: value for name, value in options.items() if name in sources[command].settings}
    rest = {name: value for name, value in options.items() if name not in settings}
    return CommandLine(
        command=command,
        options=rest,
        config=config,
        max_new_tokens=max_new_tokens,
        size=size,
        flags=list(settings),
        values=sources[command].nested(settings),
    )


def _name_model(command: str, options: dict[str, Any]) -> None:
    """Store the positional argument MODEL as the setting `model.name`, or, for `loop RUN`, as `base_run`."""
    model = options.pop(POSITIONAL_MODEL, None)
    if model is None:
        return
    if command == "loop" and (Path(model) / RECORD).is_file():
        options["base_run"] = model
        return
    if command == "loop" and (Path(model) / SWEEP).is_file():
        raise InputError(
            "model",
            f"{model} is the folder of a loop; the command that made it continues it. For another loop, give a model "
            "or a run of `measure`.",
        )
    name = f"{PREFIXES[command]}model.{NAME}"
    if name in options:
        raise InputError("model", f"{model!r} and {options[name]!r} are both given; give one model.")
    options[name] = model


def _unknown_flag(argument: str, known: Collection[str], settings: Iterable["Setting"]) -> InputError:
    """Return the error for an argument that the command does not have, though one of its settings may have its name."""
    name = argument.partition("=")[0].lstrip("-")
    if name.endswith("api_key"):
        from evenhand.evaluation.models.server_client import API_KEY_VARIABLES

        return InputError(argument, f"keys are read from the environment; set {' or '.join(API_KEY_VARIABLES)}.")
    own = [setting for setting in settings if not setting.has_flag and setting.group is None]
    only_in_files = [setting.name for setting in own if f".{setting.name}".endswith(f".{name}")]
    if argument.startswith("-") and only_in_files:
        listed = " or ".join(only_in_files)
        return InputError(argument, f"it has no flag; set {listed} in a YAML file, and give --config FILE.")
    close = get_close_matches(name, known, n=1)
    if argument.startswith("-") and close:
        return InputError(argument, f"the command line has no such flag; did you mean --{close[0]}?")
    return InputError(argument, "the command line has no such argument; --help lists all.")


def _parser(arguments: Sequence[str]) -> tuple[ArgumentParser, dict[str, "_FlagSource"]]:
    """Return the parser of the whole command line, and the flags of each command that `arguments` need."""
    parser = _Parser("evenhand", description="Measure and reduce social biases of language models.", allow_abbrev=False)
    parser.add_argument("--version", action="store_true", default=SUPPRESS, help="show the version")
    subparsers = parser.add_subparsers(dest="command", title="commands", metavar="COMMAND")
    sources = {}
    for command, purpose in COMMANDS.items():
        is_needed = command in arguments or COMPLETION in arguments
        cls = settings_class(command) if is_needed else None
        runs = "".join(f"{name.upper()} " for name in positional(cls)) if cls else ""
        model = "[MODEL] " if command in PREFIXES else ""
        sub = subparsers.add_parser(
            command,
            help=purpose,
            description=cls.__doc__ if cls else purpose,
            usage=f"evenhand {command} {runs}{model}[--config FILE.yaml] [--FIELD VALUE] [--GROUP.FIELD VALUE] …",
            argument_default=SUPPRESS,
            allow_abbrev=False,
            formatter_class=lambda prog: HelpFormatter(prog, max_help_position=32),
            epilog=f"Example: {EXAMPLES[command]}" if command in EXAMPLES else None,
        )
        sub.add_argument("--config", type=Path, metavar="FILE", help="YAML file or shipped config; flags override it")
        sub.add_argument(
            "--print_config", action="store_true", help="print the settings as YAML, without nulls, and exit"
        )
        sub.add_argument("-v", "--verbose", action="store_true", help="log more")
        sub.add_argument("-q", "--quiet", action="store_true", help="log warnings only")
        first = sub.add_argument_group("given most often")
        if command in PREFIXES:
            sub.add_argument(POSITIONAL_MODEL, nargs="?", metavar="MODEL", help=POSITIONAL_HELP[command])
        if is_needed:
            sources[command] = _FlagSource(command, sub, first, hidden=_hidden_groups(command, arguments))
        if command in PREFIXES:
            first.add_argument(f"--{SIZE}", choices=SIZES, help="quick: 60 descriptors, 2 answers a cell; full: 200, 4")
            first.add_argument(f"--{MAX_NEW_TOKENS}", type=int, metavar="INT", help="the longest answer, in tokens")
    if COMPLETION in arguments:
        require_extra("completion", "shtab", field=COMPLETION)
        import shtab

        shtab.add_argument_to(parser, COMPLETION, help="print the script that completes commands in a shell")
    return parser, sources


def _hidden_groups(command: str, arguments: Sequence[str]) -> set[str]:
    """Return the groups of settings that `--help` leaves out.

    These are the groups of the families of metrics that the flag `--metrics` does not name and, in `measure` and
    `tune`, of the methods that the flag `--method` does not name.
    """
    from evenhand.recipes.settings import FAMILIES, GENERATION_BIAS, MethodGroups, groups_of

    if COMPLETION in arguments:
        return set()
    given = {"metrics": command if command in FAMILIES else GENERATION_BIAS, "method": ""}
    for argument, following in pairwise([*arguments, ""]):
        name, _, value = argument.partition("=")
        name = name.rpartition(".")[2].lstrip("-")
        if name in given:
            given[name] = value or following
    asked = {name.strip() for name in given["metrics"].split(",")}
    hidden = groups_of(FAMILIES) - groups_of(asked & set(FAMILIES))
    if command in ("measure", "screen", "tune"):
        hidden |= set(MethodGroups.model_fields) - set(given["method"].split("+"))
    return hidden


class _FlagSource(CliSettingsSource):
    """The flags of one command, one for each field of its settings, by pydantic-settings.

    Beyond what the library does: a group whose settings may be given by a name has that name as its flag
    (`--model gpt2`), a mapping is read as YAML (`{axis: [age]}`), `--summary` alone is `--summary true`, and choices
    can be completed by a shell.
    """

    def __init__(self, command: str, parser: ArgumentParser, first: Any, hidden: Collection[str]) -> None:
        """Add the flags of a command to its parser, and those that are given most often to the group `first`."""
        cls = settings_class(command)
        names = []
        if command in PREFIXES:
            is_loop = PREFIXES[command] != ""
            listed = [name for name in FIRST_FLAGS if not (is_loop and name == "model.server")]
            names = [*(f"{PREFIXES[command]}{name}" for name in listed), *listed]
        self._first: dict[str, tuple[tuple[str, ...], dict[str, Any]] | None] = dict.fromkeys(names)
        self.settings = {setting.name: setting for setting in settings_in(cls)}
        self.flags: list[str] = []
        self._hidden = hidden
        self._ungrouped = parser.add_argument_group("further settings") if command in PREFIXES else parser
        super().__init__(
            cls,
            root_parser=parser,
            cli_parse_none_str=NULL,
            cli_avoid_json=True,
            cli_shortcuts=short_names(command),
            add_argument_method=self._add_flag,
            add_argument_group_method=self._add_flag_group,
        )
        for flag in self._first.values():
            if flag is not None:
                first.add_argument(*flag[0], **flag[1])

    def nested(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of flags, by their dotted names, as nested values."""
        readable = {name: self._as_json(name, value) for name, value in given.items()}
        try:
            return self(parsed_args=readable)()
        except SettingsError as error:
            name = next((name for name in given if f"for {name}:" in str(error)), "command line")
            raise InputError(name, f"{format_value(given.get(name))} cannot be read: {first_line(error)}") from None

    def _as_json(self, name: str, value: object) -> object:
        """Return the value of a flag, with YAML mappings and null as pydantic-settings reads them."""
        if isinstance(value, list) and len(value) == 1:
            if value[0] == NULL:
                return NULL
            if "{" in value[0]:
                with suppress(yaml.YAMLError, ValueError, RecursionError):
                    return [json.dumps(load_yaml(value[0]))]
        return value

    def _is_hidden(self, name: str) -> bool:
        """Return whether a setting is of a family that is not measured."""
        return name.removeprefix("loop.").removeprefix("measure.").partition(".")[0] in self._hidden

    def _add_flag(self, parser: Any, *names: str, **kwargs: Any) -> None:
        """Add a flag; the library calls this for each field."""
        dotted = names[0].lstrip("-")
        setting = self.settings[dotted]
        if not setting.has_flag:
            return
        if dotted in SCREEN_FIRST:
            names = (*names, SCREEN_FIRST[dotted])
        if setting.group is not None:
            if NAME not in setting.group.model_fields:
                return
            name = self.settings[f"{dotted}.{NAME}"]
            kwargs = {"dest": name.name, "metavar": "NAME", "help": escape_percent(name.text)}
        elif setting.kind is bool:
            kwargs |= {"nargs": "?", "const": "true", "metavar": PLACEHOLDERS["bool"]}
        elif names[0].startswith("-") and setting.choices:
            kwargs["choices"] = setting.choices
            kwargs["metavar"] = "{" + ",".join(setting.choices) + "}"
        elif names[0].startswith("-"):
            kwargs["metavar"] = _placeholder(kwargs["metavar"])
        if setting.group is None:
            default = "" if setting.default in (None, "", [], {}) else f" (default: {_as_text(setting.default)})"
            kwargs["help"] = escape_percent(setting.text + default)
        group = self.settings.get(dotted.removesuffix(f".{NAME}"))
        is_shown_as_group = dotted.endswith(f".{NAME}") and group is not None  # `--model NAME`
        if self._is_hidden(dotted) or is_shown_as_group:
            kwargs["help"] = SUPPRESS
        self.flags += [name.lstrip("-") for name in names if name.startswith("-")]
        kwargs.pop("required", None)
        if names[0].startswith("-"):
            kwargs["default"] = SUPPRESS
        if not names[0].startswith("-"):
            parser.add_argument(*names, **kwargs)
        elif dotted in self._first:
            self._first[dotted] = (names, kwargs)
        else:
            (self._ungrouped if isinstance(parser, ArgumentParser) else parser).add_argument(*names, **kwargs)

    def _add_flag_group(self, parser: ArgumentParser, title: str, description: str | None, **_: object) -> Any:
        """Add a group of flags to the help."""
        name = title.removesuffix(" options")
        text = None if self._is_hidden(name) else escape_percent(self.settings[name].text)
        return parser.add_argument_group(name, text)


def _placeholder(metavar: str) -> str:
    """Return the placeholder of a value in `--help`, such as INT, for the types that pydantic-settings names.

    >>> _placeholder("{Path,null}"), _placeholder("{decided,float,null}")
    ('PATH', 'decided,NUM')
    """
    kind = metavar.strip("{}").removesuffix(f",{NULL}")
    words = kind.partition("[")[0].split(",")
    return ",".join(PLACEHOLDERS.get(word, word) for word in words)


def escape_percent(text: str) -> str:
    """Return a help text with each percent sign doubled, because argparse formats help with %."""
    return text.replace("%", "%%")


def short_names(command: str) -> dict[str, str]:
    """Return the short name of each setting that has one, by its dotted name."""
    if command not in PREFIXES:
        return {}
    named = {f"{PREFIXES[command]}{name}": name.rpartition(".")[2] for name in SHORT_NAMES}
    return {name: short for name, short in named.items() if name != short}


def positional(cls: type[BaseModel]) -> list[str]:
    """Return the settings of a command that have no flag: finished runs that it is about, or names of configs."""
    mark = typing.get_args(CliPositionalArg[Any])[-1]
    return [name for name, declared in cls.model_fields.items() if mark in declared.metadata]


class Setting(typing.NamedTuple):
    """A setting, or a group of settings: dotted name, type, default, help text and, of a group, its class."""

    name: str
    kind: Any
    default: Any
    text: str
    group: type[BaseModel] | None
    has_flag: bool

    @property
    def choices(self) -> list[str]:
        """The values that the setting allows, if these can be listed."""
        if typing.get_origin(self.kind) is Literal:
            return list(map(str, typing.get_args(self.kind)))
        kinds = [kind for kind in typing.get_args(self.kind) if kind is not type(None)]
        if len(kinds) != 1 or typing.get_origin(kinds[0]) is not Literal or typing.get_origin(self.kind) is list:
            return []
        return [*map(str, typing.get_args(kinds[0])), NULL]


def settings_in(cls: type[BaseModel], prefix: str = "") -> Iterator[Setting]:
    """Yield every setting of a settings class; a group comes before the settings in it."""
    for name, declared in cls.model_fields.items():
        group = group_of(declared.annotation)
        default = None if group or declared.is_required() else declared.get_default(call_default_factory=True)
        has_flag = not WITHOUT_FLAG.items() <= (declared.json_schema_extra or {}).items()
        yield Setting(f"{prefix}{name}", declared.annotation, default, declared.description or "", group, has_flag)
        if group is not None:
            yield from settings_in(group, f"{prefix}{name}.")


def _as_text(value: object) -> str:
    """Return a value as it is written on the command line."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
