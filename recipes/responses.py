"""The page of all responses, with the bias value of each, which is the treatment's notion."""

from pathlib import Path

import numpy as np

from evenhand.evaluation.families.generation_bias.rows import StyledRun, read_styled_run
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.report.responses import responses_html, rows_of
from evenhand.evaluation.results import DESCRIPTOR, TEMPLATE
from evenhand.evaluation.runs.files import write_text
from evenhand.evaluation.statistics.cells import codes
from evenhand.mitigation.labelling.projection import bias_values, descriptor_means, project

RESPONSES = "responses.html"
LINK = Link("all responses", RESPONSES)


def write_responses(folder: Path, subtitle: str, before: Path, after: Path | None = None) -> Path:
    """Write the page of one measuring run, or of two over the same prompts, into the folder; return its path."""
    runs = {"response": before} if after is None else {"before": before, "after": after}
    read = {side: read_styled_run(run) for side, run in runs.items()}
    base = next(iter(read.values()))
    said = {side: (run.responses, run.vectors, run.styles, _bias_values(base, run)) for side, run in read.items()}
    page = responses_html("All responses", subtitle, rows_of(base.prompts, said), list(said))
    write_text(folder / RESPONSES, page)
    return folder / RESPONSES


def _bias_values(base: StyledRun, run: StyledRun) -> np.ndarray:
    """Return b (n,) of a run's responses by the base's directions; NaN for those without a style vector.

    The base's own responses are each taken out of their direction.
    """
    b = np.full(len(run.prompts), np.nan)
    known = base.usable()
    template, descriptor = (codes(base.prompts.loc[known, name]) for name in (TEMPLATE, DESCRIPTOR))
    if run is base:
        b[known] = bias_values(base.vectors[known], template, descriptor, cross_fitted=True)
        return b
    m_d = descriptor_means(base.vectors[known], template, descriptor)
    names = np.unique(base.prompts.loc[known, DESCRIPTOR].astype(str))
    there = run.usable() & run.prompts[DESCRIPTOR].isin(names).to_numpy()
    direction = m_d[np.searchsorted(names, run.prompts.loc[there, DESCRIPTOR].astype(str))] - m_d.mean(axis=0)
    b[there] = project(run.vectors[there], m_d.mean(axis=0), direction, 0)
    return b
