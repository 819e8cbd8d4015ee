"""Several measurements with one command: a run for each point, and one page with a row and a box for each."""

from itertools import product

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import find_score, read_scores
from evenhand.recipes.measure import measure, run_settings
from evenhand.recipes.settings import MeasureSettings
from tests.parsed_page import assert_inert
from tests.testbed_settings import MASKED_MODEL

PAIRS = "more,less\nMany bakers are generous.,Many pilots are generous.\nThe pilots are slow.,The bakers are slow.\n"


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """The settings of a finished sweep over two files, the second of which has the same pairs reversed."""
    folder = tmp_path_factory.mktemp("sweep")
    (folder / "some.csv").write_text(PAIRS)
    (folder / "reversed.csv").write_text(PAIRS.replace("more,less", "less,more"))
    files = [str(folder / name) for name in ("some.csv", "reversed.csv")]
    grid = {"sentence_pairs.pairs": files, "sentence_pairs.perturbed": [False, True]}
    shared = {"model": MASKED_MODEL, "metrics": ["sentence_pairs"], "report_to": "none"}
    settings = MeasureSettings(**shared, sweep=[grid], output_dir=folder / "runs")
    measure(settings)
    return settings


def runs_of(settings):
    """The settings of each run, by (file, perturbed)."""
    (grid,) = settings.sweep
    return {point: run_settings(settings, dict(zip(grid, point, strict=True))) for point in product(*grid.values())}


def test_a_sweep_has_a_run_for_each_point(settings):
    found = {}
    for (_, perturbed), run in runs_of(settings).items():
        score = find_score(read_scores(run.output_dir / "scores.json"), "s_jsd")
        assert score.signature["perturbed"] == perturbed and score.n == 2
        found.setdefault(perturbed, []).append(score.value)
    for values in found.values():
        assert values[0] == pytest.approx(-values[1]) and values[0] != 0  # the sides are exchanged
    assert found[False] != found[True]


def test_all_runs_are_on_one_page_with_a_row_and_a_box_for_each(settings, capsys):
    written = {
        run.output_dir: (run.output_dir / "scores.json").stat().st_mtime_ns for run in runs_of(settings).values()
    }
    measure(settings)  # finished runs are not measured again
    assert written == {path: (path / "scores.json").stat().st_mtime_ns for path in written}
    text = assert_inert((settings.output_dir / "report.html").read_text()).text
    rows = text.split("All runs; drawn: S_JSD")[1].split("All pairs")[0]
    assert rows.count(": value ") == 4 and rows.count("perturbed-true: value ") == 2
    assert "Distribution of the pairs around the boundary" in text
    assert "S_JSD" in capsys.readouterr().out


def test_invalid_points_are_rejected(settings):
    for point, message in (
        ({"sentence_pairs.pair": "x"}, "sweep"),
        ({"likelihood_bias.limit": 3}, "sweep: 'likelihood_bias.limit' is not a setting in use"),
    ):
        with pytest.raises(InputError, match=message):
            run_settings(settings, point)
