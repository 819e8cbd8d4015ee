"""A labelling run's part of a report: its threshold plan, with the threshold that was taken."""

import json

from evenhand.evaluation.runs.tables import write_table
from evenhand.mitigation.labelling.page import plan_section
from evenhand.mitigation.labelling.threshold_plan import TRUSTED_ABOVE

from .test_plots import PLAN


def test_the_plan_is_drawn_for_each_alpha_and_the_taken_threshold_pointed_out(tmp_path):
    write_table(tmp_path / "threshold_plan.parquet", PLAN)
    (tmp_path / "threshold.json").write_text(json.dumps({"alpha": 0, "quantile": 0.9, "beta": 0.001}))
    section = plan_section(tmp_path)
    assert len(section.figures) == 2 and sum("chosen" in figure.svg for figure in section.figures) == 1
    (table,) = section.parts[0].tables
    assert [row.cells[-1].text for row in table.rows] == ["no", "yes", "yes, chosen", "no", "yes"]
    assert any(str(TRUSTED_ABOVE) in sentence for sentence in section.sentences)
