"""Responses of a model behind a server.

No model is loaded, and scores that need the model's weights are omitted.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.collect.prompts import dataset_signature
from evenhand.evaluation.metrics.generation_bias.collect.responses import (
    check_nonempty,
    check_repeated_prompts,
    response_table,
)
from evenhand.evaluation.metrics.generation_bias.styled_responses import PROMPTS, RESPONSES
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import prompt_seed
from evenhand.evaluation.models.loading import load_control_tag
from evenhand.evaluation.models.server import (
    Body,
    build_requests,
    check_client,
    fetch_answers,
    parse_full_response,
    request_arguments,
)
from evenhand.evaluation.score import CUT, PERSONA, PROMPT_ID, RESPONSE, TEXT
from evenhand.evaluation.settings import model_signature
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

ANSWERED_BY = "answered_by"  # column of the responses: name of the model in the server's answer


def check_served(config: MeasureConfig) -> None:
    """Check that the client is installed and that the API supports the decoding settings; send no request.

    Raises:
        InputError: the client is not installed, or the API does not support a decoding setting.
    """
    check_client()
    _arguments(config)


def collect_from_server(run: Store, config: MeasureConfig) -> dict[str, Any]:
    """Write the responses of a served model; return the signature's fields on model, dataset and decoding."""
    prompts = run.read(PROMPTS)
    arguments = decoding(config.decoding.preset, **config.decoding.arguments)
    check_repeated_prompts(prompts, arguments, config)
    run.facts["server"] = config.model.server
    responses = run.table(RESPONSES, lambda: served_responses(run, config, prompts))
    check_nonempty(responses[RESPONSE].tolist())
    return {**_served_signature(config, sorted(set(responses[ANSWERED_BY]))), "decoding": dict(arguments)}


def served_responses(run: Store, config: MeasureConfig, prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the responses of a served model, saved as they arrive, with the name of the model in each answer."""
    bodies = _bodies(config, prompts)

    def compute(bodies: Sequence[Body]) -> Iterator[tuple[Sequence[Any], ...]]:
        answers = fetch_answers(config.model, bodies, parse=parse_full_response)
        return ((rows, *zip(*columns, strict=True)) for rows, columns in answers)

    table = run.rows("responses", [RESPONSE, CUT, ANSWERED_BY], compute, bodies, unit="responses")
    return response_table(prompts, table[RESPONSE]).assign(
        **{name: table[name].to_numpy() for name in (CUT, ANSWERED_BY)}
    )


def _served_signature(config: MeasureConfig, answered_by: Sequence[str]) -> dict[str, Any]:
    """Return the signature's fields on model, dataset and seed for a served model.

    The fields contain the names of models in the answers if they differ from the configured name. The server may ignore
    the seeds of the requests, so the signature marks the seed as unverified.
    """
    tagged = {"system_prompt": config.model.system_prompt, "control_tag": _tag(config)}
    if list(answered_by) != [config.model.name]:
        tagged["answered_by"] = list(answered_by)
        names = ", ".join(map(repr, answered_by))
        log.warning("%s: asked for %r, the answers name %s", config.model.server, config.model.name, names)
    return {
        "model": model_signature(config.model, {}) | tagged,
        "dataset": dataset_signature(str(config.prompts.file or config.prompts.dataset), config.prompts),
        "server_seed": {"sent": config.seed, "verified": False},
    }


def _arguments(config: MeasureConfig) -> dict[str, Any]:
    return request_arguments(decoding(config.decoding.preset, **config.decoding.arguments))


def _bodies(config: MeasureConfig, prompts: pd.DataFrame) -> list[Body]:
    seeds = [prompt_seed(prompt_id, config.seed) for prompt_id in prompts[PROMPT_ID]]
    return build_requests(
        config.model, prompts[TEXT].tolist(), prompts[PERSONA].tolist(), seeds, _tag(config), _arguments(config)
    )


def _tag(config: MeasureConfig) -> str:
    """Return the configured control tag; if there is none, the tag in the folder of the served adapter."""
    tag = config.settings.control_tag
    return load_control_tag(config.model.name) if tag is None else tag
