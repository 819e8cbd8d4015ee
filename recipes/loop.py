"""The whole loop: measure → label → tune → measure again → report, for each method beside the same base."""

from evenhand.evaluation.runs import processes
from evenhand.recipes.experiment import by_name, plans, refuse_stages_outside, run
from evenhand.recipes.settings import LoopSettings
from evenhand.recipes.sweep.present import summarise_and_present


def loop(settings: LoopSettings) -> None:
    """Run every stage that is not finished yet; end with the methods side by side and the paths of the reports.

    Raises:
        InputError: prompts that cannot be split into two sides; every method was refused.
    """
    place = by_name(settings.output_dir)
    planned = [plan for method in dict.fromkeys(settings.methods) for plan in plans(settings, method, place)]
    processes.on_rank_zero(lambda: refuse_stages_outside(settings.output_dir, planned))
    refused = run(planned, settings)
    processes.on_rank_zero(
        lambda: summarise_and_present("Generation bias before and after tuning", settings, planned, refused)
    )
