"""Responses of a model that is loaded in this process, and likelihoods of the responses under the model."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.files import write_json
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.generation_bias.collect.prompts import dataset_signature
from evenhand.evaluation.metrics.generation_bias.collect.resampling import resample
from evenhand.evaluation.metrics.generation_bias.collect.responses import (
    check_nonempty,
    check_repeated_prompts,
    likelihoods_of_responses,
    respond,
    response_likelihoods,
)
from evenhand.evaluation.metrics.generation_bias.costs.capability import CAPABILITIES
from evenhand.evaluation.metrics.generation_bias.costs.even_reference import EVEN_LIKELIHOODS, even_responses
from evenhand.evaluation.metrics.generation_bias.costs.relevance import LIKELIHOODS, sample_prompts
from evenhand.evaluation.metrics.generation_bias.costs.template_relevance import (
    TEMPLATE_LIKELIHOODS,
    likelihoods_within_template,
)
from evenhand.evaluation.metrics.generation_bias.settings import neutral_dialogue
from evenhand.evaluation.metrics.generation_bias.styled_responses import PROMPTS, RESPONSES
from evenhand.evaluation.models.batches import free_gpu_memory
from evenhand.evaluation.models.capabilities import capability_rows, load_tasks
from evenhand.evaluation.models.contexts import prompt_format
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.loading import load_control_tag, load_dialogue_model
from evenhand.evaluation.score import PROMPT_ID, RESPONSE
from evenhand.evaluation.settings import model_signature
from evenhand.evaluation.store import Store

NEUTRAL = "neutral"  # the table of likelihoods of neutral dialogue
MODEL_FACTS = "model.json"  # facts for the signature that are known only once the model is loaded


def collect_from_model(run: Store, config: MeasureConfig) -> dict[str, Any]:
    """Write all tables that need the loaded model; return the signature's fields on model, dataset and decoding."""
    prompts = run.read(PROMPTS)
    arguments = decoding(config.decoding.preset, **config.decoding.arguments)
    check_repeated_prompts(prompts, arguments, config)
    tag = config.settings.control_tag
    tag = load_control_tag(config.model.name) if tag is None else tag
    _write_tables(run, config, tag, arguments, prompts)
    facts = json.loads((run.folder / MODEL_FACTS).read_text(encoding="utf-8"))
    model = {**model_signature(config.model, run.inputs), "dtype": facts["dtype"], "control_tag": tag}
    if config.settings.resampling.exponents is not None:
        model["resampling"] = {
            "candidates": config.settings.resampling.candidates,
            "exponents": run.inputs["exponents"],
        }
    dataset = dataset_signature(str(config.prompts.file or config.prompts.dataset), config.prompts)
    return {"model": model, "format": facts["format"], "dataset": dataset, "decoding": dict(arguments)}


def _write_tables(
    run: Store, config: MeasureConfig, tag: str, arguments: Mapping[str, Any], prompts: pd.DataFrame
) -> None:
    """Write responses, likelihoods of the responses and of neutral dialogue, and results on tasks of the harness.

    The dialogue model is loaded only if a table is not on disk, and released at the end.
    """
    tasks = load_tasks(config.capabilities)  # raises for an unknown task before hours of generation
    settings = config.model
    model = cache(lambda: load_dialogue_model(settings))
    sampling = {"seed": config.seed, "batch_size": config.decoding.batch_size, "run": run}

    if processes.is_rank_zero() and not (run.folder / MODEL_FACTS).exists():
        dtype = str(model().model.dtype).removeprefix("torch.")  # the precision that "auto" resolved to
        write_json(run.folder / MODEL_FACTS, {"dtype": dtype, "format": prompt_format(model())})
    if not run.has(RESPONSES):
        with run.step(RESPONSES):
            if config.settings.resampling.exponents is None:
                run.write(RESPONSES, respond(model(), prompts, tag, arguments, **sampling))
            else:
                run.write(RESPONSES, resample(run, config, model(), prompts, tag, arguments))
    responses = run.read(RESPONSES)[RESPONSE].tolist()
    check_nonempty(responses)

    def likelihoods(name: str, scored: list[str]) -> pd.DataFrame:
        n_parameters = model().model.num_parameters()
        drawn = sample_prompts(prompts[PROMPT_ID].tolist(), config.settings.relevance_share, n_parameters)
        return likelihoods_of_responses(run, name, model(), prompts, scored, tag, drawn)

    def within_template() -> pd.DataFrame:
        return likelihoods_within_template(run, TEMPLATE_LIKELIHOODS, model(), prompts, responses, tag)

    if config.settings.relevance:
        run.ensure(LIKELIHOODS, lambda: likelihoods(LIKELIHOODS, responses), on_all_ranks=True)
        if config.settings.for_comparisons:
            even = even_responses(prompts, responses)
            run.ensure(EVEN_LIKELIHOODS, lambda: likelihoods(EVEN_LIKELIHOODS, even), on_all_ranks=True)
            run.ensure(TEMPLATE_LIKELIHOODS, within_template, on_all_ranks=True)
    if (path := neutral_dialogue(config)) is not None:
        pairs = load_neutral_dialogue(path)
        run.ensure(NEUTRAL, lambda: response_likelihoods(model(), pairs, tag))
    if tasks:
        run.ensure(CAPABILITIES, lambda: capability_rows(model(), tasks))
    model.cache_clear()
    free_gpu_memory()
