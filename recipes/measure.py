"""Measure: a model and what it is measured on → scores and a report for each metric family.

A family is a module of recipes/measuring with

- `inputs(config)`, fingerprints of what it reads, by name;
- `measure(run, config, inputs)`, its scores, the rows behind them written into the run's folder;
- `page(config)`, its report, made from what is on disk.
"""

import recipes.measuring
from evaluation.results import write_scores
from recipes.config import MeasureConfig
from recipes.reports import present
from recipes.rooms import module_named
from recipes.runs import stage
from recipes.tables import SCORES


def measure(config: MeasureConfig) -> None:
    """Measure one model by every family of metrics that is asked for."""
    families = {name: module_named(recipes.measuring, name, "metrics") for name in dict.fromkeys(config.metrics)}
    inputs = {name: family.inputs(config) for name, family in families.items()}
    with stage("measure", config, inputs) as run:
        if run is not None:
            scores = [s for name, family in families.items() for s in family.measure(run, config, inputs[name])]
            write_scores(config.output_dir / SCORES, scores)
            run.tracker.scores(scores)
        if run is None and not config.show:
            return
        pages = {name: family.page(config) for name, family in families.items()}
        files = present(config.output_dir, pages, write=run is not None, show=config.show)
        if run is not None:
            run.tracker.artifact("measurement", "report", config.output_dir / SCORES, *files)
