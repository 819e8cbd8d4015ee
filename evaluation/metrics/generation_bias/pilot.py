"""A finished run as the pilot of a more precise one: its design, and its estimate of pooled FGB*."""

import math
from pathlib import Path

import numpy as np

from evenhand.evaluation import columns
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import Answers, read_answers
from evenhand.evaluation.metrics.generation_bias.engine.estimates import NO_STYLE
from evenhand.evaluation.metrics.generation_bias.measurement_prompts import shipped_numbers
from evenhand.evaluation.metrics.generation_bias.requested_language import styled_answers
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.settings import checked
from evenhand.evaluation.statistics.cells import arrange_cells, to_codes
from evenhand.evaluation.statistics.descriptor_spread import Estimate
from evenhand.evaluation.statistics.person_pairs import pooled_spread
from evenhand.evaluation.statistics.sample_size import Pilot, StudySize
from evenhand.evaluation.statistics.variance_shares import variance_parts


def read_pilot(folder: Path) -> Pilot:
    """Return the pilot: the design of the run in `folder`, and pooled FGB* of the answers that its page shows."""
    return pilot_of(read_answers(folder), folder, styled_answers(FamilyRun(folder)))


def can_plan(folder: Path) -> bool:
    """Return whether the run in `folder` can be the pilot of another one."""
    try:
        read_pilot(folder)
    except InputError:
        return False
    return True


def pilot_of(run: Answers, folder: Path, styled: Answers | None = None) -> Pilot:
    """Return the pilot that answers of the run in `folder` are, all of them or those that are compared.

    Args:
        run: the answers, whose number is planned.
        folder: the run's folder.
        styled: the same answers, some of them without the style vectors that are left out; None: `run`.

    Raises:
        InputError: pooled FGB* of the answers has no interval.
    """
    template = to_codes(run.table[columns.TEMPLATE])
    descriptor = to_codes(run.table[columns.DESCRIPTOR])
    cells = arrange_cells(run.values, template, descriptor, min_count=1)
    used = cells if styled is None else arrange_cells(styled.values, template, descriptor, min_count=1)
    estimate = pooled_spread(used)
    if not used.n:
        raise InputError("run", f"{folder}: nothing can be planned, since {NO_STYLE}; give another style classifier.")
    if estimate.interval is None:
        n_templates = len(np.unique(template))
        raise InputError("run", f"{folder}: nothing can be planned, since {_why_no_interval(estimate, n_templates)}.")
    parts = variance_parts(used)
    interaction = 0.0
    if parts.reason is None and parts.chance > 0:
        # Of n answers to a cell, n · share are used: the noise ρ + 1 / (n · share) is that of ρ · share + 1 / n.
        interaction = max(parts.interaction.value / parts.chance, 0.0) * used.n / cells.n
    n_descriptors = len(np.unique(cells.descriptor))
    n_templates = len(np.unique(cells.template))
    n_pairs = len(cells.count)
    design = StudySize(
        descriptors=n_descriptors,
        templates=n_templates,
        responses=cells.n / n_pairs,
        interaction=interaction,
        share_of_pairs=n_pairs / (n_descriptors * n_templates),
    )
    record = read_record(folder, "run")
    settings = None if record is None else record["settings"].get("prompts")
    limits = {} if settings is None else shipped_numbers(checked(PromptSettings, settings, f"{folder}"), run.table)
    return Pilot(design, estimate, limits)


def _why_no_interval(estimate: Estimate, n_templates: int) -> str:
    """Return why pooled FGB* has no interval, and what to measure."""
    if n_templates < 2:
        return (
            "it has one template, and intervals are over templates; measure with more, or give answers of your own a "
            "column `template`, such as the kind of request"
        )
    if math.isnan(estimate.value):
        return "its pooled FGB* is unknown; measure a first run with at least two descriptors and two templates"
    return (
        "the styles vary too little: between the templates of a descriptor, nothing does, so its pooled FGB* has no "
        "interval; read whether all answers are alike, and measure with more templates, or with a decoding that samples"
    )
