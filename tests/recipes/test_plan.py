"""`plan` prints the designs that reach the goals, from the tables of a finished run."""

import numpy as np
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.recipes.plan import plan
from evenhand.recipes.settings import PlanSettings
from tests.measured_runs import write_measured

HALF = 40  # responses to each of two descriptors


@pytest.fixture
def run(tmp_path):
    """Descriptor a gets style x in 3 of 4 responses, b in 1 of 4."""
    styles = np.eye(3)[[0, 0, 0, 1] * (HALF // 4) + [0, 1, 1, 1] * (HALF // 4)]
    return write_measured(tmp_path / "run", styles.tolist(), ["ok"] * (2 * HALF))


def test_the_designs_for_half_of_the_interval_and_for_a_reduction(run, capsys):
    plan(PlanSettings(run=run, halve_interval=True, reduction=50))
    lines = capsys.readouterr().out.splitlines()
    assert "pooled FGB* 240.38" in lines[0]  # 2 styles · [(3/4 − 1/4)² / 2 − (3/4 · 1/4 · 40/39) / 40] = 0.24038
    assert [line.split()[:4] for line in lines if line.split()[:1] == ["this"]] == [["this", "run", "2", "1"]] * 2
    found = [line.split() for line in lines if line.split()[:1] == ["responses"]]
    assert int(found[0][3]) > 2 * HALF and sum(line.startswith("A ") for line in lines) == 2


def test_a_run_without_an_interval_or_without_bias_has_no_plan(tmp_path):
    single = write_measured(tmp_path / "single", np.eye(3)[[0, 1]].tolist(), ["ok"] * 2)
    with pytest.raises(InputError, match="nothing can be planned"):
        plan(PlanSettings(run=single))
    even = write_measured(tmp_path / "even", np.eye(3)[[0, 1] * 8].tolist(), ["ok"] * 16)
    with pytest.raises(InputError, match="no bias"):
        plan(PlanSettings(run=even, reduction=50))
