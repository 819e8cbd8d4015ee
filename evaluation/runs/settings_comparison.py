"""Comparison of the settings of two runs, restricted to settings that affect the runs' numbers."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from evenhand.evaluation.runs.run_paths import MODEL_NAME, RUN_FOLDERS

# Settings that affect no number: folder and tracking of a run, options of the report, and the collection of votes.
NOT_COMPARED = (
    *("output_dir", "report_to", "log_artifacts", "group", "show"),
    *("host", "port", "import_votes", "summary", "push_to_hub", "trust_remote_code"),
)
# Settings whose value is a path or an address. The fingerprints of their contents, in `inputs`, are compared instead of
# the values. The same holds for every setting that has a fingerprint of the same name.
PROMPT_FILE, SERVING = "file", ("server", "concurrency", "tokenizer")
COMPARED_BY_CONTENT = (*RUN_FOLDERS, MODEL_NAME, PROMPT_FILE, *SERVING)


def settings_sha256(settings: Mapping[str, Any]) -> str:
    """Return a hash of the settings that affect a run's numbers."""
    return json_sha256(_compared(settings, _fingerprints(settings).keys()))


def json_sha256(value: Any) -> str:
    """Return the SHA-256 of a value's JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def settings_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, str]:
    """Return the differences between the settings of two runs that affect numbers.

    The keys are dotted names of settings; the values are texts with the value before and after.
    """
    earlier, later = _fingerprints(before), _fingerprints(after)
    unchanged = [name for name, fingerprint in later.items() if earlier.get(name) == fingerprint]
    return dict(_differences("", _compared(before, unchanged), _compared(after, unchanged)))


def _differences(name: str, before: Any, after: Any) -> Iterator[tuple[str, str]]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in dict.fromkeys([*before, *after]):
            yield from _differences(f"{name}.{key}" if name else key, before.get(key), after.get(key))
    elif before != after:
        yield name, f"{name} was {before!r}, now {after!r}"


def _fingerprints(settings: Mapping[str, Any]) -> dict[str, list[Any]]:
    fingerprints: dict[str, list[Any]] = {}
    groups = [settings.get("inputs") or {}]
    for group in groups:  # the loop appends to the list
        for name, value in group.items():
            if isinstance(value, Mapping):
                groups.append(value)
            else:
                fingerprints.setdefault(name, []).append(value)
    return fingerprints


def _compared(settings: Mapping[str, Any], fingerprinted: Collection[str]) -> dict[str, Any]:
    """Return the settings that affect a run's numbers, with "…" for each value that is compared by a fingerprint."""
    compared = {key: value for key, value in settings.items() if key not in NOT_COMPARED}
    by_content = {*COMPARED_BY_CONTENT, *fingerprinted}
    return {
        key: value if key == "inputs" else _without_paths(key, value, by_content) for key, value in compared.items()
    }


def _without_paths(key: str, value: Any, by_content: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        # The batch size of decoding changes no response, unlike the batch size of training.
        is_decoding = key.endswith("decoding")
        return {
            str(name): _without_paths(name, item, by_content)  # a YAML key may be a number, which JSON could not sort
            for name, item in value.items()
            if not (is_decoding and name == "batch_size")
        }
    return "…" if key in by_content and value is not None else value
