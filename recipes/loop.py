"""The whole loop: measure → label → tune → measure again → report, for each method beside the same base."""

from recipes.config import LoopConfig
from recipes.experiment import by_name, plan, run
from recipes.summary import Summary


def loop(config: LoopConfig) -> None:
    """Run every stage that is not finished yet; end with the methods side by side and the paths of the reports.

    Raises:
        InputError: a field is given that the loop sets itself, or prompts that cannot be split into two sides; every
            method was refused.
    """
    plans = [plan(config, method, by_name(config.output_dir)) for method in dict.fromkeys(config.methods)]
    refused = run(plans)
    Summary("Generation bias before and after tuning", config, plans, refused).report()
