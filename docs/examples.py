"""The example reports in `docs/examples`, of finished runs, with few responses, so that they are small:

$ python docs/examples.py runs/service docs/examples/service
$ python docs/examples.py runs/smollm2/distill/compare docs/examples/before_and_after

docs/reports.md has the commands of the runs.
"""

import sys
from dataclasses import replace
from pathlib import Path

from evenhand.evaluation.files import write_text
from evenhand.evaluation.report import answers_page, html
from evenhand.evaluation.runs.record import read_record, read_run
from evenhand.evaluation.settings import checked
from evenhand.recipes import compare, measure
from evenhand.recipes.command_settings import CompareSettings
from evenhand.recipes.finished_runs import read_measurement

MAX_BYTES = 150_000  # of the responses on the page of responses


def write_example(run: Path, folder: Path) -> None:
    """Write the report of a run of `measure` or `compare`, and a random part of its responses, to a folder."""
    answers_page.MAX_BYTES = MAX_BYTES
    if read_record(run, "run")["command"] == "measure":
        settings = read_measurement(run, "run")[0].replaced(output_dir=run)
        responses = [run]
        (page,) = measure.report(settings, write=False, show=False).values()
    else:
        values = read_run(run, "compare", "run")[0] | {"output_dir": run}
        settings = checked(CompareSettings, values, str(run))
        responses = [settings.before, settings.after]
        (page,) = compare.report(settings, write=False, show=False).values()
    measure.write_responses(folder, page.subtitle, *responses)
    write_text(folder / "report.html", html.page_html(replace(page, links=[measure.LINK])))
    write_text(folder / "scores.csv", (run / "scores.csv").read_text(encoding="utf-8"))  # the report has a link to it


if __name__ == "__main__":
    write_example(*map(Path, sys.argv[1:]))
