"""Responses of a model that a server has: nothing is loaded, and what only weights could say stays unsaid."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pandas as pd

from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.collect.responses import gathered
from evenhand.evaluation.families.generation_bias.collect.rows import RESPONSES
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import prompt_seed
from evenhand.evaluation.models.loading import control_tag
from evenhand.evaluation.models.server import Body, answers, check_installed, keeps_seeds, request_arguments, requests
from evenhand.evaluation.results import PERSONA, PROMPT_ID, TEXT
from evenhand.evaluation.runs.files import write_json
from evenhand.evaluation.runs.folders import Run
from evenhand.evaluation.runs.work_shards import WorkShard
from evenhand.evaluation.settings import model_signature

log = logging.getLogger("evenhand")

SERVER_FACTS = "server.json"  # what was found out about a server before it was asked for responses


def check_served(config: MeasureConfig) -> None:
    """Look at what a server is to be asked with; it is not asked yet, for a finished run needs none.

    Raises:
        InputError: there is no client, or the API has no such decoding.
    """
    check_installed()
    _arguments(config)


def seeds_kept(run: Run, config: MeasureConfig, prompts: pd.DataFrame) -> bool | None:
    """Return whether the server answers by seeds (`keeps_seeds`), None if that is not known.

    It is asked at each start of a run, which may go on at another address or with more requests at once; what it did
    worst counts.
    """
    path, samples = run.folder / SERVER_FACTS, _arguments(config).get("temperature", 1) > 0
    found = json.loads(path.read_text(encoding="utf-8"))["keeps_seeds"] if path.exists() else []
    if samples and not (run.folder / f"{RESPONSES}.parquet").exists():
        found.append(keeps_seeds(config.model, _bodies(config, prompts[:1])[0]))
        write_json(path, {"keeps_seeds": found})
    kept = min(found, key=(False, None, True).index, default=None)
    if kept is False:
        log.warning(
            "model.server: %s pays no heed to seeds: it answered one request in two ways, up to %s being under way; "
            "these responses cannot be drawn again. Some servers keep seeds with --model.concurrency 1.",
            config.model.server,
            config.model.concurrency,
        )
    if samples and kept is None:
        log.warning(
            "model.server: %s answered one prompt alike whatever the seed; see that it samples: where its generation "
            "config says do_sample: false, all responses to a prompt are one, and scores take that for certainty.",
            config.model.server,
        )
    return kept


def served_responses(run: Run, config: MeasureConfig, prompts: pd.DataFrame) -> list[str | None]:
    """Return one response per prompt row, kept in the run as they come; None never left its thought."""
    bodies = _bodies(config, prompts)

    def batches(share: WorkShard) -> Iterator[tuple[list[int], list[str | None]]]:
        return answers(config.model, bodies, share)

    return gathered(run, len(prompts), batches)


def served_signature(config: MeasureConfig) -> dict[str, Any]:
    """Return what a signature says of a served model: its revision is hearsay."""
    told_it = {"system_prompt": config.model.system_prompt, "control_tag": _tag(config)}
    return {
        "model": model_signature(config.model, {}) | told_it,
        "dataset": {"name": str(config.prompts.file or config.prompts.dataset)},
    }


def _arguments(config: MeasureConfig) -> dict[str, Any]:
    return request_arguments(decoding(config.decoding.preset, **config.decoding.arguments))


def _bodies(config: MeasureConfig, prompts: pd.DataFrame) -> list[Body]:
    seeds = [prompt_seed(prompt_id, config.seed) for prompt_id in prompts[PROMPT_ID]]
    return requests(
        config.model, prompts[TEXT].tolist(), prompts[PERSONA].tolist(), seeds, _tag(config), _arguments(config)
    )


def _tag(config: MeasureConfig) -> str:
    """Return the tag that is told, or that of the adapter's folder by whose path the model is served."""
    tag = config.settings.control_tag
    return control_tag(config.model.name) if tag is None else tag
