"""Where the curves of a training lie, and their table."""

import xml.etree.ElementTree as ElementTree

from evenhand.mitigation.training.plots import TrainingCurve, curve_table, training_panels


def test_training_panels_skip_what_was_not_measured_and_part_close_labels():
    curve = TrainingCurve([(10, 2.5), (20, 1.50)], [(10, float("nan")), (20, 1.51)])
    (panel,) = training_panels(curve)
    svg = ElementTree.fromstring(str(panel))
    heights = {it.text: float(it.get("y")[:-1]) for it in svg.iter("text") if it.get("class").startswith("label")}
    assert abs(heights["train"] - heights["validation"]) >= 6.9
    assert "nan" not in str(panel)


def test_the_table_has_the_steps_that_were_measured():
    table = curve_table(TrainingCurve([(10, 2.5), (20, 1.5)], [(20, 1.6)], [(0, 0.0101), (20, 0.002)]))
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert rows == {"0": ["", "", "10.100"], "20": ["1.500", "1.600", "2.000"]}
