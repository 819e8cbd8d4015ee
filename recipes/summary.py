"""Several tuned models beside one base: points → summary table, report, and one W&B run a point."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from hashlib import sha256
from typing import Any

import pandas as pd

from evaluation.errors import InputError
from evaluation.files import write_text
from evaluation.report import SweepContent, print_sweep, write_sweep_html, write_sweep_markdown
from evaluation.report.numbers import number
from evaluation.report.sweep.summary import COLUMNS
from evaluation.results import read_scores
from recipes.config import AblateConfig, LoopConfig
from recipes.experiment import Plan
from recipes.points import point_row
from recipes.reports import HTML, MARKDOWN, notes_on, pooled_text
from recipes.runs import read_run
from recipes.tables import SCORES, write_table
from recipes.tracking import tracked

POINTS, TRACKED = "points.parquet", "tracked"


@dataclass
class Summary:
    """The points of a loop or an ablation; `fields` has what was swept, by the folder of a point's comparison."""

    title: str
    config: LoopConfig | AblateConfig
    plans: Sequence[Plan]
    refused: dict[str, str] = field(default_factory=dict)
    swept: Sequence[str] = ()
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def row(self, plan: Plan) -> dict[str, Any]:
        """Return the columns of one finished or refused point."""
        key = str(plan.comparison)
        return point_row(plan, self.fields.get(key, {}), self.refused.get(key, ""))

    def track(self, plan: Plan) -> None:
        """Make the point's own run in the group, once, whatever is resumed."""
        if str(plan.comparison) in self.refused or not (plan.comparison / "run.json").exists():
            return
        mark = self.config.output_dir / TRACKED / sha256(str(plan.comparison).encode()).hexdigest()[:12]
        if mark.exists():
            return
        row = self.row(plan)
        group = self.config.output_dir.name
        with tracked("point", self.config, group=group, name=point_name(plan, self.fields), settings=row) as tracker:
            tracker.values({name: float(value) for name, value in row.items() if isinstance(value, (int, float))})
            tracker.scores(read_scores(plan.comparison / SCORES))
        write_text(mark, f"{point_name(plan, self.fields)}\n")

    def report(self) -> None:
        """Write and print the summary.

        Raises:
            InputError: every point was refused.
        """
        if len(self.refused) == len(self.plans):
            raise InputError(next(iter(self.refused.values())))
        points = pd.DataFrame([self.row(plan) for plan in self.plans])
        points = points.reindex(columns=list(dict.fromkeys([*points, *COLUMNS])))
        folder = self.config.output_dir
        write_table(folder / POINTS, points.astype({name: str for name in self.swept if points[name].dtype == object}))
        measured = self.config.measure if isinstance(self.config, LoopConfig) else self.config.loop.measure
        content = SweepContent(
            title=self.title,
            date=date.today().isoformat(),
            base_model=measured.model,
            swept=self.swept,
            points=points,
            notes=[
                *self._own_reports(),
                *self._base(),
                *notes_on(measured.model, {"style_classifier": measured.style_classifier}),
            ],
        )
        write_sweep_html(folder / HTML, content)
        write_sweep_markdown(folder / MARKDOWN, content)
        print_sweep(content)
        with tracked("summary", self.config, group=folder.name, name=f"{folder.name}-summary") as tracker:
            tracker.table("points", points)
            tracker.artifact("summary", "report", *(folder / name for name in (HTML, MARKDOWN, POINTS)))
        print(f"\nReport: {(folder / HTML).resolve()}")

    def _own_reports(self) -> list[str]:
        """Return where each method's own report lies, for a loop; of a sweep's points `points.parquet` says it."""
        done = [plan.comparison for plan in self.plans if str(plan.comparison) not in self.refused]
        paths = ", ".join(str((folder / HTML).relative_to(self.config.output_dir)) for folder in done)
        return (
            []
            if self.swept
            else [f"What tuning changed, and all scores, method by method: {paths} beside this report."]
        )

    def _base(self) -> list[str]:
        """Return what the base model scored, in a sentence for each of the measurements there are."""
        found = []
        for folder in dict.fromkeys(plan.before for plan in self.plans):
            scores = read_scores(folder / SCORES)
            parts = [f"pooled FGB* {pooled_text(scores)}"]
            for metric in ("perplexity", "distinct_2", "parroting"):
                those = [score for score in scores if score.metric == metric and not score.group]
                parts += [f"{metric.replace('_', '-')} {number(score.value, 4)}" for score in those]
            settings, _ = read_run(folder, "measure", "before")
            found.append(f"The base, seed {settings['seed']}: {', '.join(parts)}.")
        return found


def point_name(plan: Plan, fields: Mapping[str, Mapping[str, Any]]) -> str:
    """Return "kto, label.quantile 0.7, seed 0"."""
    swept = {name: value for name, value in fields.get(str(plan.comparison), {}).items() if name != "method"}
    return ", ".join([plan.method, *(f"{name} {value}" for name, value in swept.items()), f"seed {plan.seed}"])
