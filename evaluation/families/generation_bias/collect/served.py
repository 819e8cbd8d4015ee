"""Responses of a model that a server has: nothing is loaded, and what only weights could say stays unsaid."""

from typing import Any

import pandas as pd

from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.collect.responses import read_responses
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import prompt_seed
from evenhand.evaluation.models.loading import load_control_tag
from evenhand.evaluation.models.server import Body, build_requests, check_client, fetch_answers, request_arguments
from evenhand.evaluation.results import PERSONA, PROMPT_ID, RESPONSE, TEXT
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.settings import model_signature


def check_served(config: MeasureConfig) -> None:
    """Look at what a server is to be asked with; it is not asked yet, for a finished run needs none.

    Raises:
        InputError: there is no client, or the API has no such decoding.
    """
    check_client()
    _arguments(config)


def served_responses(run: Run, config: MeasureConfig, prompts: pd.DataFrame) -> list[str | None]:
    """Return one response per prompt row, kept in the run as they come; None never left its thought."""
    bodies = _bodies(config, prompts)
    parts = run.parts("responses", [RESPONSE], len(prompts))
    for shard in parts.unfinished_shards():
        parts.save(shard, fetch_answers(config.model, bodies, shard), "responses", "responses")
    return read_responses(parts)


def served_signature(config: MeasureConfig) -> dict[str, Any]:
    """Return a signature's fields on a served model.

    The server may ignore the seeds that it is sent, so the signature marks the seed as unverified.
    """
    told_it = {"system_prompt": config.model.system_prompt, "control_tag": _tag(config)}
    return {
        "model": model_signature(config.model, {}) | told_it,
        "dataset": {"name": str(config.prompts.file or config.prompts.dataset)},
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
    """Return the tag that is told, or that of the adapter's folder by whose path the model is served."""
    tag = config.settings.control_tag
    return load_control_tag(config.model.name) if tag is None else tag
