"""Which prompts are asked: sampled by cell from one side of the split, or a file's."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from evenhand.evaluation.datasets.holistic_bias import generate, load_taxonomy
from evenhand.evaluation.datasets.prompt_files import load_personas, read_prompts
from evenhand.evaluation.datasets.prompts import STRATA, same_cells, sample_cells, select, split, unseen_rows
from evenhand.evaluation.errors import InputError, unknown_name
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.results import NOUN, UNSEEN
from evenhand.evaluation.runs.files import sha256_of
from evenhand.evaluation.settings import PromptSettings


def measurement_prompts(config: MeasureConfig) -> pd.DataFrame:
    """Return one row per response to be asked for, sampled by cell from the chosen side of the split.

    With `unseen_by`, the train side lacks the prompts of the unseen values; any other has all of them, with a column
    `unseen` that marks those.

    Raises:
        InputError: `unseen_by` of prompts that both sides of the split do not have alike; what cannot be read.
    """
    settings = config.prompts
    if settings.file:
        return _of_file(config)
    by = settings.split_by or NOUN
    prompts = select(generate(load_taxonomy(settings.dataset)), **settings.kept())
    if config.split != "all":
        train, held_out = split(prompts, by, settings.train_fraction, config.seed)
        prompts = train if config.split == "train" else held_out
        if settings.unseen_by and not same_cells(train, held_out):
            raise InputError(
                f"unseen_by: split by {by}, the two sides do not have the same templates and "
                "descriptors, so that seen and unseen would not be what is measured. Split by noun, or drop filters."
            )
    sampled = sample_cells(
        prompts,
        settings.per_cell,
        config.seed,
        descriptors=settings.descriptors,
        personas=personas(settings),
        variations=settings.variations,
    )
    rows = sampled.to_pandas()
    if settings.unseen_by is None:
        return rows
    # The sample is drawn first, and the same on both sides: what is dropped here is what is marked there.
    unseen = unseen_rows(sampled, settings.unseen_by, settings.unseen_fraction, config.seed)
    return rows[~unseen].reset_index(drop=True) if config.split == "train" else rows.assign(**{UNSEEN: unseen})


def _of_file(config: MeasureConfig) -> pd.DataFrame:
    """Return the prompts of a file: all of them, one side of its split, or those of the file to train on."""
    settings = config.prompts
    if config.split == "train" and settings.train_file:
        return read_prompts(settings.train_file, settings.per_cell).to_pandas()
    prompts = read_prompts(settings.file, settings.per_cell)
    if config.split != "all" and settings.split_by:
        train, held_out = split(prompts, settings.split_by, settings.train_fraction, config.seed)
        return (train if config.split == "train" else held_out).to_pandas()
    if config.split == "train":
        raise InputError(f"split: {settings.file} has no train split; give prompts.train_file, or prompts.split_by.")
    return prompts.to_pandas()


def personas(settings: PromptSettings) -> Sequence[str]:
    """Return the personas that are drawn from: none, ours, or those of a file."""
    if settings.personas == "none":
        return ()
    return load_personas(None if settings.personas == "default" else Path(settings.personas))


def prompts_fingerprint(settings: PromptSettings) -> dict[str, str]:
    """Return hashes of the dataset or the prompts' files, and of a file of personas.

    Raises:
        InputError: one cannot be read, or is not what it should be.
    """
    if settings.file:
        files = list(filter(None, (settings.file, settings.train_file)))
        for file in files:
            read_prompts(file)
        found = {"dataset": sha256_of(*files)}
    else:
        if settings.split_by not in (None, *STRATA):
            raise unknown_name("split_by", settings.split_by, STRATA)
        found = {"dataset": load_taxonomy(settings.dataset).sha256}
    if personas(settings) and settings.personas != "default":
        found["personas"] = sha256_of(Path(settings.personas))
    return found
