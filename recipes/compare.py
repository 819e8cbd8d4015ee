"""Compare: two measuring runs over the same rows → differences with intervals → the report of both, side by side.

A family of metrics is a module of recipes/comparing with

- `inputs(config)`, fingerprints of what it reads besides the two runs, by name;
- `differences(run, config, settings, manifests)`, its scores, from the configs and manifests of the two runs;
- `page(config)`, its report, made from what is on disk.
"""

import recipes.comparing
from evaluation.errors import InputError
from evaluation.results import write_scores
from recipes.config import CompareConfig
from recipes.reports import present
from recipes.rooms import module_named, names_in
from recipes.runs import read_run, stage
from recipes.tables import SCORES


def compare(config: CompareConfig) -> None:
    """Write the differences of `after` to `before`, by every family of metrics that both have, and the report.

    Raises:
        InputError: the two runs have no family in common, or were not measured alike.
    """
    settings, manifests = {}, {}
    for side, folder in (("before", config.before), ("after", config.after)):
        settings[side], manifests[side] = read_run(folder, "measure", side)
    known = names_in(recipes.comparing)
    names = [name for name in settings["before"]["metrics"] if name in settings["after"]["metrics"] and name in known]
    if not names:
        both = " and ".join(str(settings[side]["metrics"]) for side in settings)
        raise InputError(
            f"after: the runs ({both}) have no metrics in common that can be compared, which are {', '.join(known)}; "
            "measure both by one of them."
        )
    families = {name: module_named(recipes.comparing, name, "metrics") for name in names}
    inputs = {side: manifest["fingerprint"] for side, manifest in manifests.items()}
    for family in families.values():
        inputs |= family.inputs(config)
    with stage("compare", config, inputs) as run:
        if run is not None:
            changes = [s for each in families.values() for s in each.differences(run, config, settings, manifests)]
            write_scores(config.output_dir / SCORES, changes)
            run.tracker.scores(changes)
            run.facts["signature"] = {side: manifests[side].get("signature") for side in settings}
        if run is None and not config.show:
            return
        pages = {name: family.page(config) for name, family in families.items()}
        files = present(config.output_dir, pages, write=run is not None, show=config.show)
        if run is not None:
            tables = sorted(config.output_dir.glob("*.parquet"))
            run.tracker.artifact("comparison", "report", config.output_dir / SCORES, *files, *tables)
