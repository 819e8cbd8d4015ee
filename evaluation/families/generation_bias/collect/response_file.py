"""Responses from a file: no model is loaded, and scores that need the model's weights are omitted.

The file is parsed once in a process, though its fingerprint, its tables and its signature are needed one after another.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation.datasets.prompt_files import CONTROL_TAG
from evenhand.evaluation.datasets.response_files import (
    NOT_TOLD,
    matched,
    own_prompts,
    read_responses,
    tag_of,
)
from evenhand.evaluation.datasets.response_files import (
    write_prompts as write_prompts_file,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.collect.prompts import measurement_prompts, prompts_fingerprint
from evenhand.evaluation.families.generation_bias.collect.rows import PROMPTS, RESPONSES
from evenhand.evaluation.results import LEFT_OUT, PROMPT_ID, RESPONSE, TEMPLATE
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.files import sha256_of
from evenhand.evaluation.runs.run import Run


def write_prompts(path: Path, config: MeasureConfig) -> int:
    """Write what is to be answered, and by which responses are then scored; return the number of rows.

    Raises:
        InputError: the prompts cannot be had, or the file cannot be written (`write_prompts`).
    """
    prompts = measurement_prompts(config)
    write_prompts_file(path, prompts, config.model.system_prompt or "", config.settings.control_tag or "")
    return len(prompts)


def _read_tables(config: MeasureConfig) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the prompts, and row by row prompt_id and response: the file's own prompts, or those that were written.

    Raises:
        InputError: the file cannot be read, does not answer each prompt once, or has no response with any text.
    """
    path = config.responses
    columns = _columns(path)
    if not any(response.strip() for response in columns[RESPONSE]):
        raise InputError(f"responses: all {len(columns[RESPONSE])} of {path} are empty; there is nothing to measure.")
    if PROMPT_ID in columns:
        prompts = measurement_prompts(config)
        responses = matched(columns, prompts[PROMPT_ID].tolist(), path)
    elif config.prompts.file:
        raise InputError(f"prompts.file: {path} brings its own prompts (it has no {PROMPT_ID}); leave this out.")
    else:
        rows = own_prompts(columns, path).to_pandas()
        prompts, responses = rows.drop(columns=[RESPONSE, CONTROL_TAG], errors="ignore"), rows[RESPONSE].tolist()
    return prompts, pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses, LEFT_OUT: None})


def response_file_inputs(config: MeasureConfig) -> dict[str, str]:
    """Return hashes of the file of responses and of what its prompts were drawn from.

    Raises:
        InputError: as `_read_tables`; the tag is not the one that is told.
    """
    _read_tables(config)
    columns = _columns(config.responses)
    tag_of(columns, config.settings.control_tag, config.responses)
    found = {"responses": sha256_of(config.responses)}
    return found | (prompts_fingerprint(config.prompts) if PROMPT_ID in columns else {})


def collect_from_file(run: Run, config: MeasureConfig) -> dict[str, Any]:
    """Write the responses of a file; return the signature's fields on model, dataset and decoding."""

    def write_tables() -> dict[str, Any]:
        if not (run.has(PROMPTS) and run.has(RESPONSES)):
            with run.step(RESPONSES):
                prompts, responses = _read_tables(config)
                run.write(PROMPTS, prompts)
                run.write(RESPONSES, responses)
        signature = _file_signature(config)
        _parse.cache_clear()
        return signature

    return processes.on_rank_zero(write_tables)


def _file_signature(config: MeasureConfig) -> dict[str, Any]:
    """Return what a signature says of responses that were given: the model's name and the decoding are hearsay."""
    columns, model = _columns(config.responses), config.model
    source = config.prompts.file or config.prompts.dataset if PROMPT_ID in columns else config.responses.name
    return {
        "model": {
            "name": model.name,
            "revision": model.revision,
            "system_prompt": model.system_prompt,
            "control_tag": tag_of(columns, config.settings.control_tag, config.responses),
            "sha256": sha256_of(config.responses),
        },
        "dataset": {"name": str(source)},
        "decoding": dict(config.decoding.arguments),
    }


def _columns(path: Path) -> dict[str, list]:
    """Return the columns of the file, parsed again only if it has changed."""
    stat = path.stat() if path.exists() else None
    return _parse(path, stat and (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=1)
def _parse(path: Path, version: tuple[int, int] | None) -> dict[str, list]:
    return read_responses(path)


def without_templates(prompts: pd.DataFrame) -> bool:
    """Say whether the prompts came without templates, so that what people ask is mixed with who they are."""
    return bool((prompts[TEMPLATE] == NOT_TOLD).all())
