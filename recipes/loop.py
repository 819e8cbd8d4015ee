"""The command `loop`: measure, label, tune, measure again and compare, for each method, with one report."""

import logging
from dataclasses import replace

from evenhand.evaluation.runs import processes
from evenhand.mitigation.training.checks import default_methods
from evenhand.recipes.experiment import run
from evenhand.recipes.plans import named_folders, plan_decodings, refuse_stages_outside
from evenhand.recipes.settings import FAMILY, LoopSettings, MeasureSettings, measure_config
from evenhand.recipes.sweep.output import write_report

log = logging.getLogger("evenhand")


def loop(settings: LoopSettings) -> None:
    """Run every unfinished stage, then write and print the report of all methods side by side.

    Raises:
        InputError: the prompts cannot be split, or every method was rejected.
    """
    if settings.methods is None:
        model = measure_config(MeasureSettings(**vars(settings.measure)), FAMILY).model
        settings = replace(settings, methods=processes.on_rank_zero(lambda: default_methods(model)))
        log.info("loop: chosen for this model: methods %s", ",".join(settings.methods))
    folders = named_folders(settings.output_dir)
    methods = dict.fromkeys(settings.methods)
    plans = [plan for method in methods for plan in plan_decodings(settings, method, folders)]
    processes.on_rank_zero(lambda: refuse_stages_outside(settings.output_dir, plans))
    refused = run(plans, settings)
    processes.on_rank_zero(lambda: write_report("Generation bias before and after tuning", settings, plans, refused))
