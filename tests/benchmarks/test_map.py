"""The map of methods: what serving needs, the table of made-up results, and the section in a page."""

import math
import re
from types import SimpleNamespace

import pytest

import benchmarks.map
from benchmarks.map import (
    BEGIN,
    END,
    check_same_options,
    finished_rows,
    needs_of,
    result_of,
    section,
    with_means,
    write_figure,
    write_section,
)
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.record import RUNNING
from tests.recorded_runs import change_record, write_run

ROW = {
    "method": "distill",
    "seed": 0,
    "failed": "",
    "cpu_minutes": 3.14,
    "reduction": 0.5,
    "reduction_low": 0.25,
    "reduction_high": 0.75,
    "reduction_tuned": math.nan,
    "divergence_tuned": 0.44,
    "relevance_to_person_kept": 0.9,
    "relevance_to_person_kept_low": 0.8,
    "relevance_to_person_kept_high": 1.0,
}
OUTPUT = {"base_run": None, "output_dir": None}
PROMPTS_60 = SimpleNamespace(descriptors=60, untuned_by="axis")
SETTINGS = SimpleNamespace(
    measure=SimpleNamespace(
        model=SimpleNamespace(name="org/model"), prompts=SimpleNamespace(descriptors=20, untuned_by="axis")
    ),
    **OUTPUT,
)


def test_what_serving_a_method_needs():
    assert needs_of("distill") == "nothing: the weights are merged"
    assert needs_of("opening") == "the adapter for the first tokens, then the base"
    assert needs_of("distill+prompt") == "nothing: the weights are merged; a line in the system prompt"
    assert "tag" in needs_of("control_tags")


def test_the_section_has_a_row_for_each_method_and_is_replaced(tmp_path):
    failed = {"method": "rejection", "seed": 0, "failed": "learning_rate: it damaged | the model"}
    text = section([ROW, failed], SETTINGS, "python -m benchmarks.map")
    row, refused = (line for line in text.splitlines() if line.startswith("| `"))
    assert row.startswith("| `distill` | 0 | 50 % [25, 75] | – | – | 44 % | – | 90 % [80, 100] |")
    assert row.endswith("| 3.1 | nothing: the weights are merged |")
    assert "damaged \\| the model" in refused
    header = next(line for line in text.splitlines() if line.startswith("| method"))
    columns = [len(re.findall(r"(?<!\\)\|", line)) for line in (header, row, refused)]
    assert columns == columns[:1] * 3
    page = tmp_path / "page.md"
    page.write_text("# A page\n\nText.\n")
    write_section(page, text)
    write_section(page, section([ROW], SETTINGS, "python -m benchmarks.map"))
    written = page.read_text()
    assert written.startswith("# A page\n\nText.\n") and "rejection" not in written
    assert written.count(BEGIN.format(20)) == written.count(END.format(20)) == 1
    of_60 = SimpleNamespace(measure=SimpleNamespace(model=SETTINGS.measure.model, prompts=PROMPTS_60), **OUTPUT)
    write_section(page, section([ROW], of_60, "python -m benchmarks.map --descriptors 60"))
    assert page.read_text().startswith(written.rstrip()) and BEGIN.format(60) in page.read_text()
    unknown = ROW | {"reduction": math.nan, "divergence_untuned": 0.23}
    write_figure(tmp_path / "map.png", [ROW, failed, unknown])
    assert (tmp_path / "map.png").stat().st_size > 1000


def test_the_mean_of_seeds_is_over_those_that_know_the_number():
    seeds = [
        ROW | {"divergence_tuned": 0.4},
        ROW | {"seed": 1, "divergence_tuned": 0.2, "reduction": math.nan},
        ROW | {"seed": 2, "divergence_tuned": 0.3, "reduction": 0.7},
        {"method": "distill", "seed": 3, "failed": "learning_rate: it damaged the model"},
    ]
    other = ROW | {"method": "opening"}
    *of_seeds, mean, of_other = with_means([*seeds, other])
    assert of_seeds == seeds
    assert of_other == other  # one seed has no mean
    assert mean["seed"] == "mean"
    assert math.isclose(mean["divergence_tuned"], 0.3)
    # The error of the mean of 0.4, 0.2 and 0.3 is 0.1 / √3; Student's quantile with two degrees of freedom is 4.303.
    assert math.isclose(mean["divergence_tuned_low"], 0.3 - 4.303 * 0.1 / math.sqrt(3), abs_tol=1e-3)
    assert math.isclose(mean["reduction"], 0.6)
    assert "reduction_low" not in mean  # of two seeds


def test_finished_rows_are_those_of_all_seeds_in_the_folder(tmp_path):
    for seed, value in ((1, "null"), (0, "0.5")):
        folder = tmp_path / f"seed_{seed}"
        folder.mkdir()
        (folder / "distill.json").write_text(f'{{"method": "distill", "seed": {seed}, "reduction": {value}}}')
    first, second = finished_rows(SimpleNamespace(base_run=None, output_dir=tmp_path))
    assert (first["seed"], first["reduction"]) == (0, 0.5)
    assert second["seed"] == 1
    assert math.isnan(second["reduction"])


def test_a_folder_has_results_of_one_set_of_options(tmp_path):
    for _ in range(2):  # the same command continues
        check_same_options(tmp_path, max_rows=80, run=None)
        assert finished_rows(SimpleNamespace(base_run="run", output_dir=tmp_path)) == []
    with pytest.raises(InputError, match="^results: .*--max_rows 80, not 0"):
        check_same_options(tmp_path, max_rows=0, run=None)


def test_minutes_are_those_of_stages_that_ran_whole(tmp_path, monkeypatch):
    stage = SimpleNamespace(output_dir=tmp_path / "after")
    point = SimpleNamespace(method="prompt", seed=0, tune=None, after=stage)
    monkeypatch.setattr(benchmarks.map, "run_labels", lambda point, stages: None)
    monkeypatch.setattr(benchmarks.map, "run_point", lambda point, stages: InputError("model", "no"))
    assert result_of(point, None)["cpu_minutes"] >= 0
    write_run(stage.output_dir, "measure")
    change_record(stage.output_dir, state=RUNNING)  # killed
    assert math.isnan(result_of(point, None)["cpu_minutes"])
