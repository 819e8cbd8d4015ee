"""The curves of a training as charts and as a table."""

from evenhand.evaluation.report.figures import svg
from evenhand.mitigation.training.page import TrainingCurve, curve_table, training_charts


def test_training_charts_skip_undefined_values():
    curve = TrainingCurve([(10, 2.5), (20, 1.50)], [(10, float("nan")), (20, 1.51)])
    (chart,) = training_charts(curve)
    lines = {line.get_label(): line.get_xydata().tolist() for line in chart.axes[0].lines}
    assert lines == {"train": [[10, 2.5], [20, 1.5]], "validation": [[20, 1.51]]}
    assert [it.get_text() for it in chart.axes[0].get_legend().get_texts()] == ["train", "validation"]
    assert "nan" not in svg(chart)


def test_the_table_has_the_steps_that_were_measured():
    table = curve_table(TrainingCurve([(10, 2.5), (20, 1.5)], [(20, 1.6)], [(0, 0.0101), (20, 0.002)]))
    rows = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert rows == {"0": ["", "", "10.100"], "20": ["1.500", "1.600", "2.000"]}
