"""Prompts of a measurement, which are sampled by cell from one split of a dataset or read from a file."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.crossed_prompts import crossed_prompts
from evenhand.evaluation.data.holistic_bias import NONE, SHIPPED, all_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import (
    SPLIT_STRATA,
    have_same_cells,
    prompts_taxonomy,
    sample_cells,
    sample_descriptors,
    select_prompts,
    split_prompts,
    untuned_mask,
)
from evenhand.evaluation.data.readers import response_files
from evenhand.evaluation.data.readers.prompt_files import load_personas, paper_personas, read_prompts
from evenhand.evaluation.data.readers.response_files import BATCH
from evenhand.evaluation.data.service import load_requests, service_prompts
from evenhand.evaluation.data.strata import stable_hash
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.files import json_sha256, sha256_of
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.models.kinds.server import ServedModel
from evenhand.evaluation.models.revisions import local_path
from evenhand.evaluation.prompt_settings import PromptSettings

TRAIN_FRACTION = 0.5  # share of the values of split_by whose prompts are for training
EXTRA_SEED = "extra"  # names the random numbers of `extra_prompts`
UNTUNED_FRACTION = 0.5  # share of the values of untuned_by that training excludes


def measurement_prompts(config: FamilyConfig) -> pd.DataFrame:
    """Return the prompts of the configured split, sampled by cell: one row per response that the model will generate.

    With `untuned_by`, the train split has no prompts of untuned values (of descriptor, axis or template). The other
    splits have all prompts and a column `untuned` that marks the prompts of untuned values.

    Raises:
        InputError: `untuned_by` is given and the splits have different cells; the dataset or file cannot be read.
    """
    settings = config.prompts
    if settings.is_own:
        return _own_prompts(config)
    rows = sample_cells(
        candidate_prompts(config),
        settings.answers_per_cell,
        config.seed,
        descriptors=settings.descriptors,
        personas=personas(settings),
        variations=settings.variations,
    )
    if settings.untuned_by is None:
        return rows
    # Both splits are sampled before the selection, so that the train split drops the prompts that the others mark.
    untuned = untuned_mask(rows, settings.untuned_by, UNTUNED_FRACTION, config.seed)
    return (
        rows[~untuned].reset_index(drop=True) if config.split == "train" else rows.assign(**{columns.UNTUNED: untuned})
    )


def extra_prompts(config: FamilyConfig) -> pd.DataFrame:
    """Return the additional prompts of the people of `more_answers`, with the columns of `measurement_prompts`.

    Their ids end in "+".

    Raises:
        InputError: nobody has the name of one of these people.
    """
    settings = config.prompts
    more = settings.more_answers or {}
    candidates = sample_descriptors(candidate_prompts(config), settings.descriptors)
    known = set(candidates[columns.DESCRIPTOR])
    parts = []
    for n in sorted(set(more.values())):
        people = [person for person in more if more[person] == n]
        for person in people:
            if person not in known:
                raise unknown_name("prompts.more_answers", person, map(str, known))
        rows = sample_cells(
            candidates[candidates[columns.DESCRIPTOR].isin(people)],
            n - settings.answers_per_cell,
            stable_hash(config.seed, EXTRA_SEED),
            personas=personas(settings),
            variations=settings.variations,
        )
        parts.append(rows)
    rows = pd.concat(parts, ignore_index=True)
    return rows.assign(**{columns.PROMPT_ID: rows[columns.PROMPT_ID] + "+"})


def candidate_prompts(config: FamilyConfig) -> pd.DataFrame:
    """Return all prompts of the configured split: of a taxonomy, each descriptor with each noun; or the user's own.

    Raises:
        InputError: as `measurement_prompts`.
    """
    settings = config.prompts
    if settings.is_own:
        return _own_prompts(config)
    by = settings.split_by or columns.NOUN
    taxonomy = prompts_taxonomy(settings)
    requests = load_requests(settings.templates) if settings.cues else []
    prompts = service_prompts(taxonomy, settings.cues, requests) if settings.cues else all_prompts(taxonomy)
    prompts = select_prompts(prompts, settings.active_filters())
    if config.split != "all":
        train, held_out = split_prompts(prompts, by, TRAIN_FRACTION, config.seed)
        prompts = train if config.split == "train" else held_out
        if settings.untuned_by and not have_same_cells(train, held_out):
            raise InputError(
                "untuned_by",
                f"split by {by}, the two splits have different templates and descriptors, so their prompts "
                "differ in more than tuned and untuned. Split by noun, or drop filters.",
            )
    return prompts


def shipped_numbers(settings: PromptSettings, prompts: pd.DataFrame) -> dict[str, int]:
    """Return the numbers of templates and of descriptors of the shipped set that all of the prompts come from.

    Prompts of the user's own, of which more can be written, have no such numbers.
    """
    if settings.is_own or settings.language or settings.dataset not in SHIPPED:
        return {}
    phrases = _shipped_phrases(settings.dataset)
    filters = {column: values for column, values in settings.active_filters().items() if column in phrases}
    templates = {template.text for template in load_taxonomy(settings.dataset).templates}
    if settings.cues:
        templates = {f"{cue}: {request}" for cue in settings.cues for request in load_requests()}
    shipped = {
        columns.TEMPLATE: templates,
        columns.DESCRIPTOR: set(select_prompts(phrases, filters)[columns.DESCRIPTOR]) - {NONE},
    }
    return {f"{column}s": len(known) for column, known in shipped.items() if set(prompts[column]) <= known}


@lru_cache(maxsize=len(SHIPPED))
def _shipped_phrases(dataset: str | Path) -> pd.DataFrame:
    """Return the noun phrases of a shipped set, which are put together once; the table must not be changed."""
    return load_taxonomy(dataset).phrases()


def _crossed_files(settings: PromptSettings) -> tuple[Path, Path]:
    """Return the files of templates and of people, which may be in an installed package (package:NAME/PATH)."""
    return (
        local_path(str(settings.templates), "prompts.templates"),
        local_path(str(settings.people), "prompts.people"),
    )


def _own_prompts(config: FamilyConfig) -> pd.DataFrame:
    """Return all prompts of the user's file, or of templates and people, one split of them, or those of `train_file`.

    The loop splits templates and people by template (`recipes.tuning_settings.Experiment`).
    """
    settings = config.prompts
    if config.split == "train" and settings.train_file:
        return read_prompts(settings.train_file, settings.answers_per_cell, settings.descriptor_column)
    if settings.people:
        prompts = crossed_prompts(*_crossed_files(settings), settings.answers_per_cell)
    else:
        prompts = read_prompts(settings.file, settings.answers_per_cell, settings.descriptor_column)
    if config.split != "all" and settings.split_by:
        train, held_out = split_prompts(prompts, settings.split_by, TRAIN_FRACTION, config.seed)
        return train if config.split == "train" else held_out
    if config.split == "train":
        raise InputError(
            "split", f"{settings.source} has no train split; give prompts.train_file, or prompts.split_by."
        )
    return prompts


def asked_prompts(config: FamilyConfig) -> pd.DataFrame:
    """Return the prompts of a measurement, which may come with the responses of a file."""
    file = config.response_file()
    if file is None:
        return measurement_prompts(config)
    if file.has_prompts:
        return file.prompts()
    return response_files.with_repeats(measurement_prompts(config), file.columns[columns.PROMPT_ID])


def check_repeated_prompts(config: FamilyConfig, model: Model, prompts: pd.DataFrame) -> None:
    """Raise InputError if decoding is deterministic and a prompts file repeats a prompt.

    The same response would count several times. Prompts that `sample_cells` repeats are allowed, because the contexts
    of a cell are independent draws.
    """
    repeated = int(prompts.duplicated([columns.TEXT, columns.PERSONA]).sum())
    if repeated and config.prompts.is_own and model.can_be_asked and not model.samples:
        raise InputError(
            "decoding",
            f"{config.decoding.preset!r} gives a context the same response every time, and {repeated} of "
            f"{len(prompts)} prompts of {config.prompts.source} are repeated; sample, or write 1 as `repeats` and "
            "a persona for each.",
        )


def write_prompts(path: Path, config: FamilyConfig) -> int:
    """Write the prompts of the measurement with ids, by which a file of responses is matched; return their number.

    A .jsonl file has requests for OpenAI's Batch API, equal to the requests to a server (`--model.server`); files of
    other suffixes have tables.

    Raises:
        InputError: the prompts cannot be read, the file cannot be written, or requests have no model or the API has no
            equivalent of a decoding argument.
    """
    if path.exists():
        raise InputError("write_prompts", f"{path} exists and may have responses; give another file.")
    prompts = measurement_prompts(config)
    tag = config.settings.control_tag or ""
    if path.suffix != BATCH:
        response_files.write_prompt_table(path, prompts, config.model.system_prompt or "", tag)
        return len(prompts)
    if not config.model.name:
        raise InputError(
            "model.name", f"{path} has requests to a model; give its name in the API by {spelled('model', 'NAME')}."
        )
    model = ServedModel(config.model, config.decoding, tag=tag, seed=config.seed)
    bodies = model.requests(prompts)
    if config.model.server:
        bodies = [model.parameters().apply(body) for body in bodies]
    url = f"/v1/{'chat/' if config.model.api == 'chat' else ''}completions"
    response_files.write_batch(path, prompts[columns.PROMPT_ID].tolist(), bodies, url)
    return len(prompts)


def dataset_signature(settings: PromptSettings) -> dict[str, Json]:
    """Return the entry of a signature that identifies the prompts: their name and, if set, the descriptor column."""
    signature: dict[str, Json] = {"name": settings.source}
    if settings.language:
        signature["language"] = settings.language
    if settings.descriptor_column:
        signature["descriptor_column"] = settings.descriptor_column
    if settings.cues:
        signature["cues"] = list(settings.cues)
    return signature


def personas(settings: PromptSettings) -> Sequence[str]:
    """Return the personas to sample from: () for "none", the default ones, plain or as in the paper, or a file's."""
    if settings.personas == "none":
        return ()
    if settings.personas == "paper":
        return paper_personas()
    return load_personas(None if settings.personas == "default" else Path(settings.personas))


def prompt_inputs(config: FamilyConfig, model: Model) -> dict[str, str]:
    """Return hashes of the dataset or of the files of prompts, and of the file of personas, by name.

    Raises:
        InputError: a file cannot be read, or has a wrong format; the model has prompts of its own.
    """
    settings = config.prompts
    file = config.response_file()
    if file is not None and file.has_prompts:
        if settings.is_own:
            raise InputError(
                "prompts.dataset", f"the responses have prompts of their own (no {columns.PROMPT_ID}); leave this out."
            )
        return {}
    if settings.file:
        hashes = {}
        for name, file in {"dataset": settings.file, "train_file": settings.train_file}.items():
            if file is not None:
                read_prompts(file, descriptor_column=settings.descriptor_column)
                hashes[name] = sha256_of(file)
    elif settings.people:
        templates, people = _crossed_files(settings)
        crossed_prompts(templates, people)  # raises if they cannot be used
        hashes = {"dataset": sha256_of(templates), "people": sha256_of(people)}
    else:
        if settings.descriptor_column:
            raise InputError(
                "prompts.descriptor_column",
                f"{settings.descriptor_column!r} is for own prompts ({spelled('prompts.dataset', 'FILE')}) and "
                f"own responses without prompt_id ({spelled('responses')}); leave it out.",
            )
        if settings.split_by not in (None, *SPLIT_STRATA):
            raise unknown_name("split_by", settings.split_by, SPLIT_STRATA)
        hashes = {"dataset": prompts_taxonomy(settings).sha256}
        if settings.cues:
            hashes["requests"] = json_sha256(load_requests(settings.templates))
    texts = personas(settings)
    if texts:
        hashes["personas"] = json_sha256(list(texts))
    return hashes
