"""What a report says of the labels: the threshold plan, and the threshold that was taken."""

import json
from pathlib import Path

from evenhand.evaluation.report.page import Figure, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.runs.tables import read_table
from evenhand.mitigation.labelling.plots import ThresholdPlan, plan_panels, plan_table
from evenhand.mitigation.labelling.threshold_plan import TRUSTED_ABOVE

say = Sentences(__file__)

PLAN, THRESHOLD = "threshold_plan", "threshold.json"


def plan_section(folder: Path) -> Section:
    """Return the threshold plan of a labelling run, drawn and as a table, with the threshold that was taken."""
    used = json.loads((folder / THRESHOLD).read_text(encoding="utf-8"))
    plan = ThresholdPlan(read_table(folder / f"{PLAN}.parquet"), used["alpha"], used["quantile"])
    return Section(
        "The threshold plan",
        [say.plan, say.trust(TRUSTED_ABOVE)],
        figures=[Figure("", panel, wide=False) for panel in plan_panels(plan)],
        parts=[Section("The plan as a table", tables=[plan_table(plan)], folded=True)],
    )
