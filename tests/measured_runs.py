"""A finished measuring run of made-up responses, as `measure` leaves it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.answers import Answers, style_table
from evenhand.evaluation.metrics.generation_bias.engine.spread import generation_bias
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.score import write_scores
from evenhand.evaluation.tables import write_table
from evenhand.recipes.settings import MeasureSettings
from tests.testbed_settings import MODEL
from tests.testbed_settings import generation_bias as generation_bias_settings

STYLES = ("x", "y", "z")


def styled_columns(vectors, template, descriptor, axis, styles):
    """Return Answers from columns."""
    frame = pd.DataFrame({"template": template, "descriptor": descriptor, "axis": axis})
    return Answers(frame, np.asarray(vectors), styles)


def write_measured(
    folder: Path,
    vectors: Sequence[Sequence[float]] = (),
    responses: Sequence[str] = (),
    metrics: Sequence[str] = ("generation_bias",),
    has_scores: bool = False,
    templates: int = 1,
    text: str = "I'm.",
    **own: Any,
) -> Path:
    """Return the folder of a run: half of the responses are to descriptor a, half to b, with these style vectors.

    The responses to each descriptor are to the templates in turn, and to `text` with the descriptor.
    `own` are the settings of generation bias.
    """
    families = {"generation_bias": generation_bias_settings(**own)} if "generation_bias" in metrics else {}
    settings = MeasureSettings(model=MODEL, metrics=list(metrics), **families, output_dir=folder, report_to="none")
    with stage("measure", settings):
        n = len(vectors)
        ids = pd.Series([f"p{i}" for i in range(n)])
        template = [f"t{i % max(n // 2, 1) % templates}" for i in range(n)]
        cell = {"template": template, "descriptor": ["a"] * (n // 2) + ["b"] * (n // 2), "axis": "age"}
        prompts = pd.DataFrame({columns.PROMPT_ID: ids, "persona": "", **cell})
        prompts["text"] = [text.format(descriptor=name) for name in prompts["descriptor"]]
        write_table(folder / "prompts.parquet", prompts)
        write_table(
            folder / "responses.parquet",
            pd.DataFrame({columns.PROMPT_ID: ids, columns.RESPONSE: list(responses), columns.LEFT_OUT: None}),
        )
        table = style_table(ids, np.array(vectors, dtype=np.float32).reshape(n, len(STYLES)), STYLES)
        write_table(folder / "styles.parquet", table)
        styled = Answers(prompts, np.array(vectors).reshape(n, len(STYLES)), STYLES)
        write_scores(folder / "scores.json", generation_bias(styled, {}, permutations=0) if has_scores else [])
    return folder
