"""The HTML page of all responses of one or two runs, with bias values."""

from pathlib import Path

import numpy as np

from evenhand.evaluation.files import write_text
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses, read_styled_responses
from evenhand.evaluation.report.page import Link
from evenhand.evaluation.report.responses import responses_html
from evenhand.evaluation.score import DESCRIPTOR, RESPONSE
from evenhand.mitigation.labels import bias_values_along, cross_fitted_bias_values

RESPONSES = "responses.html"
LINK = Link("all responses", RESPONSES)


def write_responses(folder: Path, subtitle: str, before: Path, after: Path | None = None) -> Path:
    """Write the page of one run, or of two runs over the same prompts, into `folder`; return the path of the page."""
    runs = {"response": before} if after is None else {"before": before, "after": after}
    styled_runs = {side: read_styled_responses(run) for side, run in runs.items()}
    base = next(iter(styled_runs.values()))
    b = {side: _bias_values(base, run) for side, run in styled_runs.items()}

    sides = {side: (run.table[RESPONSE], run.vectors, run.styles, b[side]) for side, run in styled_runs.items()}
    write_text(folder / RESPONSES, responses_html("All responses", subtitle, base.table, sides))
    return folder / RESPONSES


def _bias_values(base: StyledResponses, run: StyledResponses) -> np.ndarray:
    """Return the bias values (n,) of a run's responses along the base's directions; NaN without a style vector."""
    if run is base:
        return cross_fitted_bias_values(base.table, base.vectors)
    return bias_values_along(base.table, base.vectors, run.table[DESCRIPTOR], run.vectors)
