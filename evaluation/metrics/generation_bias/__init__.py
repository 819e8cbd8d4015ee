"""Generation bias: how a model's style depends on the descriptor in its prompt (Smith et al. 2022, A.7)."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.metrics import FamilyRun, MeasureConfig, Metric
from evenhand.evaluation.metrics.generation_bias import settings as family_settings
from evenhand.evaluation.metrics.generation_bias.metrics import METRICS
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.score import BiasScore

if TYPE_CHECKING:
    from evenhand.evaluation.store import Store


class GenerationBias(Metric):
    """Scores of the styles of responses, and of what reducing bias costs."""

    Settings, ComparisonSettings = family_settings.Settings, family_settings.ComparisonSettings
    FORMATS = METRICS
    SERVER_APIS, USES_SYSTEM_PROMPT, READS_RESPONSES = ("chat", "completions"), True, True
    RECOMPUTABLE = {"neutral_dialogue": "neutral"}
    TITLE, COUNTED = "Generation bias", "responses"

    def inputs(self, config: MeasureConfig) -> dict[str, Any]:
        """Return fingerprints of all inputs; raise InputError if one cannot be read or does not fit the others."""
        return family_settings.inputs(config)

    def comparison_inputs(self, settings: Any) -> Mapping[str, Any]:
        """Return fingerprints of the phrases and of the corpus; raise InputError if they cannot be read."""
        return family_settings.comparison_inputs(settings)

    def write_prompts(self, path: Path, config: MeasureConfig) -> int:
        """Write the prompts for another program to answer, and return their number."""
        from evenhand.evaluation.metrics.generation_bias.collect.prompts import write_prompts

        return write_prompts(path, config)

    def collect(self, store: "Store", config: MeasureConfig) -> Any:
        """Write the tables of prompts, responses and style vectors; return the responses, and facts about them."""
        from evenhand.evaluation.metrics.generation_bias.measure import collect

        return collect(store, config)

    def score(self, store: "Store", config: MeasureConfig, collected: Any) -> list[BiasScore]:
        """Return all scores of the run's tables."""
        from evenhand.evaluation.metrics.generation_bias.measure import score

        return score(store, config, *collected)

    def compare(self, store: "Store", before: FamilyRun, after: FamilyRun, settings: Any) -> list[BiasScore]:
        """Return the paired differences and reductions between two runs, and write the tables of changes."""
        from evenhand.evaluation.metrics.generation_bias.compare import differences

        return differences(store, before, after, settings)

    def page(self, run: FamilyRun) -> Page:
        """Return the report on one measuring run."""
        from evenhand.evaluation.metrics.generation_bias.page import page

        return page(run)

    def comparison_page(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Page:
        """Return the report that shows two measuring runs side by side with the changes between them."""
        from evenhand.evaluation.metrics.generation_bias.page import comparison_page

        return comparison_page(before, after, changes)
