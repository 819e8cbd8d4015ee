"""What W&B gets only with prompts and responses (`upload`): the texts in settings, names, tables and files of a run."""

import fnmatch
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import read_json

# Settings, and entries of signatures and of evenhand.json, that contain a text which a model reads.
PRIVATE = ("system_prompt", "instruction", "context", "request")
# Keys of groups of scores, and words in the headers of tables. A template is a prompt without its person, and the user
# may have written it. A rater is the name of a real person.
PRIVATE_GROUPS = ("template", "rater")
FILTERS = "filters"  # the setting that selects prompts: column → values
PROMPT_TEXTS = ("template", "text", "persona")  # columns of prompts that are texts
FACTS = "evenhand.json"  # of a tuned model
CARD = "README.md"  # of a tuned model; its code contains the system prompt


def is_private(name: str) -> bool:
    """Return whether a setting, by its name or dotted name, is a text.

    >>> is_private("measure.model.system_prompt"), is_private("prompts.filters.text"), is_private("model.name")
    (True, True, False)
    """
    *groups, last = name.split(".")
    return last in PRIVATE or (FILTERS in groups and last in PROMPT_TEXTS)


def contains_text(name: str, value: object) -> bool:
    """Return whether the value of a setting, which may be a group of settings, is or contains a private text.

    >>> contains_text("prompts.filters", {"template": "Where is my invoice?"}), contains_text("model", {"name": "m"})
    (True, False)
    """
    return value is not None and public_values({name: value}) != {name: value}


def is_private_group(names: Iterable[str]) -> bool:
    """Return whether keys of a group of scores, or words in the header of a table, name something private.

    >>> is_private_group({"template": "Where is my invoice?"}), is_private_group({"descriptor": "old"})
    (True, False)
    """
    return any(name in PRIVATE_GROUPS for name in names)


def public_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings without the private ones, which may have dotted names.

    Of filters of prompts, those by a text or a template are private.

    >>> public_values({"model": {"name": "m", "system_prompt": "Be kind"}, "sweep": [{"prompt.instruction": ["a"]}]})
    {'model': {'name': 'm'}, 'sweep': [{}]}
    >>> public_values({"prompts": {"filters": {"axis": "age", "template": "Where is {person}'s invoice?"}}})
    {'prompts': {'filters': {'axis': 'age'}}}
    """

    def public(value: Any) -> Any:
        if isinstance(value, list):
            return [public(item) for item in value]
        return public_values(value) if isinstance(value, Mapping) else value

    found = {}
    for name, value in settings.items():
        if str(name).rpartition(".")[2] == FILTERS:
            value = _without_texts(value)
        if not is_private(str(name)):
            found[name] = public(value)
    return found


def without_folders(value: Any) -> Any:
    """Return nested settings with the last part of each absolute path alone, since its folders may name a person.

    >>> without_folders({"people": "/home/me/people.csv", "name": "org/model", "sweep": [{"name": ["/home/me/a"]}]})
    {'people': '…/people.csv', 'name': 'org/model', 'sweep': [{'name': ['…/a']}]}
    """
    if isinstance(value, Mapping):
        return {name: without_folders(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    is_path = isinstance(value, str) and PurePath(value).is_absolute()
    return f"…/{PurePath(value).name}" if is_path else value


def _without_texts(filters: Any) -> Any:
    """Return filters of prompts, or a list of them, without those by a text."""
    if isinstance(filters, list):
        return [_without_texts(each) for each in filters]
    if not isinstance(filters, Mapping):
        return filters
    return {column: values for column, values in filters.items() if column not in PROMPT_TEXTS}


def stand_ins(sweep: Sequence[Mapping[str, object]]) -> dict[str, str]:
    """Return what to show in place of each swept value with a private text: "text 1", "text 2", … in their order.

    Args:
        sweep: the grids of an ablation: dotted name of a setting → its value, or a list of its values.

    >>> stand_ins([{"method": "prompt", "prompt.instruction": ["Be kind", "Be fair"]}])
    {'Be kind': 'text 1', 'Be fair': 'text 2'}
    >>> stand_ins([{"measure.prompts.filters": [{"axis": "age"}, {"template": "Where is my invoice?"}]}])
    {"{'template': 'Where is my invoice?'}": 'text 1'}
    """
    texts: dict[str, None] = {}
    for grid in sweep:
        for name, given in grid.items():
            values = given if isinstance(given, list) else [given]
            texts |= dict.fromkeys(str(value) for value in values if contains_text(name, value))
    return {text: f"text {number}" for number, text in enumerate(texts, 1)}


def _private_values(settings: object) -> Iterator[object]:
    if isinstance(settings, list):
        for item in settings:
            yield from _private_values(item)
    elif isinstance(settings, Mapping):
        for name, value in settings.items():
            if is_private(str(name)):
                yield from value if isinstance(value, list) else [value]
            else:
                yield from _private_values(value)


def public_files(folder: Path, leave_out: Sequence[str]) -> dict[str, Path | str]:
    """Return the files of a tuned model without private texts, by their relative paths: a path, or another content.

    Args:
        leave_out: patterns of the names of further files to leave out.

    Raises:
        InputError: the facts on the tuning cannot be read, so that it is unknown whether they contain a text.
    """
    facts_file = folder / FACTS
    facts = read_json(facts_file, "upload") if facts_file.exists() else {}
    if not isinstance(facts, dict):
        raise InputError("upload", f"{facts_file} contains no facts on a tuning; set upload to all or scores.")
    has_texts = any(value not in (None, "", {}, []) for value in _private_values(facts))
    files: dict[str, Path | str] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if any(fnmatch.fnmatch(path.name, pattern) for pattern in leave_out):
            continue
        if path == facts_file:
            blank = {key: "" for key in facts if is_private(key)}
            files[name] = json.dumps(public_values(facts) | blank, indent=1, ensure_ascii=False) + "\n"
        elif path.name != CARD or not has_texts:
            files[name] = path
    return files
