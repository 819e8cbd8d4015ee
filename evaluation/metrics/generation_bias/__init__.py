"""Generation bias: how a model's style depends on the descriptor in its prompt (Smith et al. 2022, A.7)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyRun, MeasureConfig, Metric
from evenhand.evaluation.metrics.generation_bias import settings as family_settings
from evenhand.evaluation.metrics.generation_bias.accepted import AcceptedDifferences
from evenhand.evaluation.metrics.generation_bias.classifiers import classifier_inputs
from evenhand.evaluation.metrics.generation_bias.cuts import Cuts
from evenhand.evaluation.metrics.generation_bias.parts.corpus import CorpusPart
from evenhand.evaluation.metrics.generation_bias.parts.effects import EffectsPart
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OutcomesPart
from evenhand.evaluation.metrics.generation_bias.parts.phrases import PhrasesPart
from evenhand.evaluation.metrics.generation_bias.parts.quality import QualityPart
from evenhand.evaluation.metrics.generation_bias.parts.relevance import RelevancePart
from evenhand.evaluation.metrics.generation_bias.parts.spread import SpreadPart
from evenhand.evaluation.metrics.generation_bias.parts.style_changes import StyleChangesPart
from evenhand.evaluation.metrics.generation_bias.prompts import prompt_inputs, write_prompts
from evenhand.evaluation.metrics.generation_bias.published import log_differences
from evenhand.evaluation.metrics.generation_bias.stopping_question import question_of
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.page import Page
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.store import Store

# In the order of the reports. Accepted differences change the responses of all other parts; cuts are scores of some.
PARTS = (
    EffectsPart(),
    AcceptedDifferences(),
    OutcomesPart(),
    Cuts(),
    SpreadPart(),
    RelevancePart(),
    QualityPart(),
    PhrasesPart(),
    StyleChangesPart(),
    CorpusPart(),
)


class GenerationBias(Metric):
    """Scores of the styles of responses, and of what reducing bias costs."""

    Settings = family_settings.Settings
    SHARED = ("offensive_classifier",)
    ComparisonSettings = family_settings.ComparisonSettings
    FORMATS = (
        *(metric for part in PARTS for metric in part.FORMATS),
        Format(
            "common_prompts",
            "prompts of both runs",
            "Share of the prompts that both runs have; the others are left out.",
            "%",
            factor=100,
        ),
    )
    SERVER_APIS = ("chat", "completions")
    USES_SYSTEM_PROMPT = True
    READS_RESPONSES = True
    TITLE = "Generation bias"
    COUNTED = "responses"
    parts = PARTS

    def inputs(self, config: MeasureConfig) -> dict[str, Json]:
        """Return fingerprints of all inputs of the measurement, by name.

        Raises:
            InputError: an input cannot be read or does not fit the others, both style classifiers are the same, or
                `until` is given for responses that are known already, or does not fit the other settings.
        """
        model = config.open_model()
        if question_of(config.settings) is not None and not model.can_be_asked:
            raise InputError("generation_bias.until", "the responses are known already; leave this out.")
        inputs = {**prompt_inputs(config, model), **model.identity(), **classifier_inputs(config)}
        for part in self.parts:
            inputs |= part.inputs(config, model)
        if config.for_comparisons:
            inputs["for_comparisons"] = True
        return inputs

    def comparison_inputs(self, settings: family_settings.ComparisonSettings) -> dict[str, Json]:
        """Return fingerprints of the inputs of a comparison, except the two runs, by name.

        Raises:
            InputError: the file of phrases does not exist or has a wrong format; the corpus does not exist.
        """
        inputs: dict[str, Json] = {}
        for part in self.parts:
            inputs |= part.comparison_inputs(settings)
        return inputs

    def write_prompts(self, path: Path, config: MeasureConfig) -> int:
        """Write the prompts for another program to answer, and return their number."""
        return write_prompts(path, config)

    def collect(self, store: Store, config: MeasureConfig) -> dict[str, Any]:
        """Write the tables of the measured rows; return the signature's entries on model, dataset and decoding."""
        from evenhand.evaluation.metrics.generation_bias.measure import collect  # imports torch

        log_differences(config)
        return collect(store, config, self.parts)

    def score(self, store: Store, config: MeasureConfig, collected: Mapping[str, Any]) -> list[BiasScore]:
        """Return all scores of the run's tables."""
        from evenhand.evaluation.metrics.generation_bias.measure import joint_tests, read_classified_run, track_samples

        run = read_classified_run(store, config, collected)
        tests = joint_tests(run, self.parts)
        scores = []
        for part in self.parts:
            scores += part.score(run, tests)
        store.facts["rows"] = len(run.responses)
        track_samples(run)
        return scores

    def compare(
        self, store: Store, before: FamilyRun, after: FamilyRun, settings: family_settings.ComparisonSettings | None
    ) -> list[BiasScore]:
        """Return the paired differences and reductions between two runs, and write the tables of changes."""
        from evenhand.evaluation.metrics.generation_bias.compare import opened_comparison, track_samples

        comparison, common = opened_comparison(store, before, after, settings)
        scores = []
        for part in self.parts:
            scores += part.compare(comparison)
        track_samples(comparison)
        return [*scores, common]

    def page(self, run: FamilyRun) -> Page:
        """Return the report on one measuring run."""
        from evenhand.evaluation.metrics.generation_bias.page import page

        return page(run, self.parts)

    def comparison_page(self, before: FamilyRun, after: FamilyRun, changes: FamilyRun) -> Page:
        """Return the report that shows two measuring runs side by side with the changes between them."""
        from evenhand.evaluation.metrics.generation_bias.page import comparison_page

        return comparison_page(before, after, changes, self.parts)
