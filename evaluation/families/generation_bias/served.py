"""Responses of a model that a server has: nothing is loaded, and what only weights could say stays unsaid."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pandas as pd

from evenhand.evaluation.families import Told
from evenhand.evaluation.families.generation_bias.responses import gathered
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import prompt_seed
from evenhand.evaluation.models.loading import control_tag
from evenhand.evaluation.models.server import Body, answers, check_installed, keeps_seeds, request_arguments, requests
from evenhand.evaluation.results import PERSONA, PROMPT_ID, TEXT
from evenhand.evaluation.runs.files import write_json
from evenhand.evaluation.runs.folders import Run
from evenhand.evaluation.runs.shares import Share

log = logging.getLogger("evenhand")

SERVER_FACTS = "server.json"  # what was found out about a server before it was asked for responses


def check_served(told: Told) -> None:
    """Look at what a server is to be asked with; it is not asked yet, for a finished run needs none.

    Raises:
        InputError: there is no client, or the API has no such decoding.
    """
    check_installed()
    _arguments(told)


def seeds_kept(run: Run, told: Told, prompts: pd.DataFrame) -> bool | None:
    """Return whether the server answers by seeds (`keeps_seeds`), None if that is not known; asked once in a run."""
    path = run.folder / SERVER_FACTS
    if not path.exists():
        samples = _arguments(told).get("temperature", 1) > 0
        kept = keeps_seeds(told.model, _bodies(told, prompts[:1])[0]) if samples else None
        write_json(path, {"keeps_seeds": kept})
    kept = json.loads(path.read_text(encoding="utf-8"))["keeps_seeds"]
    if kept is False:
        log.warning(
            "model.server: %s pays no heed to seeds: it answered one request in two ways; these responses cannot be "
            "drawn again",
            told.model.server,
        )
    return kept


def served_responses(run: Run, told: Told, prompts: pd.DataFrame) -> list[str | None]:
    """Return one response per prompt row, kept in the run as they come; None never left its thought."""
    bodies = _bodies(told, prompts)

    def batches(share: Share) -> Iterator[tuple[list[int], list[str | None]]]:
        return answers(told.model, bodies, share)

    return gathered(run, len(prompts), batches)


def served_signature(told: Told) -> dict[str, Any]:
    """Return what a signature says of a served model: its revision is hearsay."""
    model = told.model
    return {
        "model": {
            "name": model.name,
            "revision": model.revision,
            "system_prompt": model.system_prompt,
            "control_tag": _tag(told),
            "api": model.api,
        },
        "dataset": {"name": str(told.prompts.file or told.prompts.dataset)},
    }


def _arguments(told: Told) -> dict[str, Any]:
    return request_arguments(decoding(told.decoding.preset, **told.decoding.arguments))


def _bodies(told: Told, prompts: pd.DataFrame) -> list[Body]:
    seeds = [prompt_seed(prompt_id, told.seed) for prompt_id in prompts[PROMPT_ID]]
    return requests(told.model, prompts[TEXT].tolist(), prompts[PERSONA].tolist(), seeds, _tag(told), _arguments(told))


def _tag(told: Told) -> str:
    """Return the tag that is told, or that of the adapter's folder by whose path the model is served."""
    tag = told.settings.control_tag
    return control_tag(told.model.name) if tag is None else tag
