"""Responses that are read from a file, so that no model is loaded.

Scores that need the model's weights are omitted. A process parses the file only once.
"""

import logging
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.data.prompt_files import CONTROL_TAG
from evenhand.evaluation.data.response_files import (
    BATCH,
    UNSPECIFIED,
    match_responses,
    prompts_from_responses,
    read_responses,
    resolve_control_tag,
    write_batch,
)
from evenhand.evaluation.data.response_files import (
    write_prompts as write_prompts_file,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.collect.prompts import (
    dataset_signature,
    measurement_prompts,
    prompts_fingerprint,
)
from evenhand.evaluation.metrics.generation_bias.styled_responses import PROMPTS, RESPONSES
from evenhand.evaluation.models.server import build_requests, request_arguments
from evenhand.evaluation.score import LEFT_OUT, PERSONA, PROMPT_ID, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")


def write_prompts(path: Path, config: MeasureConfig) -> int:
    """Write the prompts of the measurement with ids, by which a file of responses is matched; return their number.

    A .jsonl file has requests for OpenAI's Batch API, equal to the requests to a server (`--model.server`); files of
    other suffixes have tables.

    Raises:
        InputError: the prompts cannot be read, the file cannot be written, or requests have no model or the API has no
            equivalent of a decoding argument.
    """
    from evenhand.evaluation.models.decoding import decoding  # here because they are slow to import
    from evenhand.evaluation.models.generation import prompt_seed

    prompts, tag = measurement_prompts(config), config.settings.control_tag or ""
    if path.suffix != BATCH:
        write_prompts_file(path, prompts, config.model.system_prompt or "", tag)
        return len(prompts)
    if not config.model.name:
        raise InputError(f"model.name: {path} has requests to a model; give its name in the API by --model NAME.")
    arguments = request_arguments(decoding(config.decoding.preset, **config.decoding.arguments))
    texts, personas, ids = (prompts[name].tolist() for name in (TEXT, PERSONA, PROMPT_ID))
    seeds = [prompt_seed(prompt_id, config.seed) for prompt_id in ids]
    bodies = build_requests(config.model, texts, personas, seeds, tag, arguments)
    write_batch(path, ids, bodies, f"/v1/{'chat/' if config.model.api == 'chat' else ''}completions")
    return len(prompts)


def _read_tables(config: MeasureConfig) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the table of prompts and the table of responses, row by row.

    If the file has prompt ids, the prompts are the prompts that `write_prompts` writes; otherwise the prompts are in
    the file of responses.

    Raises:
        InputError: the file cannot be read, does not have one response per prompt, or all responses are empty.
    """
    path = config.responses
    columns = _columns(config)
    if not any(response.strip() for response in columns[RESPONSE]):
        raise InputError(f"responses: all {len(columns[RESPONSE])} of {path} are empty.")
    if PROMPT_ID in columns:
        prompts = measurement_prompts(config)
        responses = match_responses(columns, prompts[PROMPT_ID].tolist(), path)
        reasons = dict(zip(map(str, columns[PROMPT_ID]), columns.get(LEFT_OUT, ()), strict=False))
        left_out = [reasons.get(prompt_id) for prompt_id in prompts[PROMPT_ID]]
    elif config.prompts.file:
        raise InputError(f"prompts.file: {path} has its own prompts (it has no {PROMPT_ID}); leave this out.")
    else:
        rows = prompts_from_responses(columns, path).to_pandas()
        prompts = rows.drop(columns=[RESPONSE, CONTROL_TAG, LEFT_OUT], errors="ignore")
        responses, left_out = rows[RESPONSE].tolist(), rows.get(LEFT_OUT, pd.Series([None] * len(rows))).tolist()
    left_out = [
        reason if isinstance(reason, str) and not response.strip() else None
        for reason, response in zip(left_out, responses, strict=True)
    ]
    return prompts, pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses, LEFT_OUT: left_out})


def response_file_inputs(config: MeasureConfig) -> dict[str, str]:
    """Return hashes of the file of responses and of the dataset or file of its prompts.

    Raises:
        InputError: as in `_read_tables`, or the file's control tag is not the configured control tag.
    """
    _read_tables(config)
    columns = _columns(config)
    resolve_control_tag(columns, config.settings.control_tag, config.responses)
    hashes = {"responses": sha256_of(config.responses)}
    return hashes | (prompts_fingerprint(config.prompts) if PROMPT_ID in columns else {})


def collect_from_file(run: Store, config: MeasureConfig) -> dict[str, Any]:
    """Write the prompts and responses of a file; return the signature's fields on model, dataset and decoding."""

    def write_tables() -> dict[str, Any]:
        if not (run.has(PROMPTS) and run.has(RESPONSES)):
            with run.step(RESPONSES):
                prompts, responses = _read_tables(config)
                run.write(PROMPTS, prompts)
                run.write(RESPONSES, responses)
                if reasons := Counter(responses[LEFT_OUT].dropna()):
                    run.facts["left_out"] = dict(reasons)
                    listed = ", ".join(f"{reason} {n:,}" for reason, n in reasons.most_common())
                    log.warning("responses: %s: left out: %s", config.responses, listed)
        signature = _file_signature(config)
        _parse.cache_clear()
        return signature

    return processes.on_rank_zero(write_tables)


def _file_signature(config: MeasureConfig) -> dict[str, Any]:
    """Return the signature's fields on model, dataset and decoding. The user supplies them; they are not verified."""
    columns, model = _columns(config), config.model
    source = config.prompts.file or config.prompts.dataset if PROMPT_ID in columns else config.responses.name
    return {
        "model": {
            "name": model.name,
            "revision": model.revision,
            "system_prompt": model.system_prompt,
            "control_tag": resolve_control_tag(columns, config.settings.control_tag, config.responses),
            "sha256": sha256_of(config.responses),
        },
        "dataset": dataset_signature(str(source), config.prompts),
        "decoding": dict(config.decoding.arguments),
    }


def _columns(config: MeasureConfig) -> dict[str, list]:
    """Return the columns of the file of responses. The file is parsed again only if it has changed."""
    path = config.responses
    stat = path.stat() if path.exists() else None
    return _parse(path, config.prompts.descriptor_column, stat and (stat.st_mtime_ns, stat.st_size))


@lru_cache(maxsize=1)
def _parse(path: Path, descriptor_column: str | None, version: tuple[int, int] | None) -> dict[str, list]:
    return read_responses(path, descriptor_column)


def has_no_templates(prompts: pd.DataFrame) -> bool:
    """Return whether no prompt has a template. The prompts' content is then confounded with the descriptor."""
    return bool((prompts[TEMPLATE] == UNSPECIFIED).all())
