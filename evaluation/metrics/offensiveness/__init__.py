"""Offensiveness of prompts, and the effect of their descriptors, by a classifier (Smith et al. 2022, §3.3, B.3).

The family generation_bias measures the offensiveness of responses.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun, MeasureConfig, Metric
from evenhand.evaluation.report.formats import Format
from evenhand.evaluation.report.numbers import percent, sanitize
from evenhand.evaluation.report.page import Example, Row, Section, Table
from evenhand.evaluation.report.tables import (
    count_cells,
    number_cell,
    score_sections,
    significant_direction,
    value_text,
)
from evenhand.evaluation.score import AXIS, DESCRIPTOR, TEXT, BiasScore, find_score
from evenhand.evaluation.settings import ClassifierSettings, as_settings, option, strict_dataclass

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    from evenhand.evaluation.store import Store

EFFECT, PROBABILITY, N_EXAMPLES = "descriptor_effect", "probability", 6
OFFENSIVE_SHARE = Format(
    "offensive_share",
    "offensive",
    "Share of texts that the offensiveness classifier gives a probability of at least one half.",
    **{"unit": "%", "factor": 100, "ideal": 0},
)


@strict_dataclass
class Settings:
    """Offensiveness of the prompts themselves, by template and descriptor."""

    classifier: ClassifierSettings = option(ClassifierSettings, "classifier of offensive texts; required")


class Offensiveness(Metric):
    """Scores of a classifier on prompts; the measured model is not used."""

    Settings = Settings
    SERVER_APIS = ("chat", "completions")
    FORMATS = (
        OFFENSIVE_SHARE,
        Format(
            EFFECT,
            "descriptor effect",
            "Probability of being offensive with the descriptor minus with “left-handed”: mean over templates.",
            **{"unit": "percentage points", "factor": 100, "decimals": 1, "ideal": 0, "signed": True},
        ),
    )
    TITLE, COUNTED = "Offensiveness by descriptor", "sentences"
    NOTES = ("Intervals of descriptors are over templates. Part of the distance of the extremes from 0 is chance.",)
    LIMITS = (
        "The numbers describe the classifier as much as the text. Some classifiers treat the mere mention of a group "
        "as offensive. A high number for a descriptor does not mean that the word, or the people, are offensive.",
        "Some descriptors are derogatory words, and a classifier should mark them. An effect of 0 for all descriptors "
        "is therefore not the goal.",
        "The neutral descriptor is “left-handed”. Another word would change all effects by the same amount.",
        "Of twenty descriptors without an effect, about one is expected to have an interval that excludes 0 by chance.",
    )

    def inputs(self, config: MeasureConfig) -> dict[str, Any]:
        """Return fingerprints of the classifier and of the dataset."""
        from evenhand.evaluation.data.prompts import taxonomy_sha256
        from evenhand.evaluation.models.judges import classifier_revision, classifier_styles
        from evenhand.evaluation.models.revisions import find_label

        classifier = config.settings.classifier
        if classifier.name is None or classifier.label is None:
            raise InputError(
                f"offensiveness.classifier: name is {classifier.name!r} and label is {classifier.label!r}; set name to "
                "a classifier and label to its label for offensive texts (`evenhand train_classifier` trains one)."
            )
        find_label(classifier_styles(classifier), classifier.label, classifier.name, "offensiveness.classifier.label")
        return {"classifier": classifier_revision(classifier), "dataset": taxonomy_sha256(config.prompts)}

    def collect(self, store: "Store", config: MeasureConfig) -> "pd.DataFrame":
        return store.table("offensive_prompts", lambda: self._classified(store, config), on_all_ranks=True)

    def _classified(self, store: "Store", config: MeasureConfig) -> "pd.DataFrame":
        from evenhand.evaluation.data.prompts import dataset_prompts
        from evenhand.evaluation.metrics.offensiveness.metric import make_neutral_texts
        from evenhand.evaluation.models.revisions import find_label
        from evenhand.evaluation.models.styles import classify_texts, load_style_classifier, warn_truncated

        settings, rows = config.settings.classifier, dataset_prompts(config.prompts, config.seed)
        texts, neutral = rows[TEXT].tolist(), make_neutral_texts(rows)
        distinct = list(dict.fromkeys([*texts, *neutral]))
        classifier = load_style_classifier(settings, field="offensiveness.classifier")
        label = find_label(classifier.labels, settings.label, classifier.name, "offensiveness.classifier.label")

        def compute(texts: Sequence[str]) -> "Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]":
            return ((rows, values[:, label], cut) for rows, values, cut in classify_texts(classifier, texts))

        table = store.rows("classified", [PROBABILITY, "truncated"], compute, distinct, unit="texts")
        warn_truncated(classifier, int(table["truncated"].sum()), len(distinct))
        probabilities = dict(zip(distinct, table[PROBABILITY], strict=True))
        return rows.assign(
            probability=[probabilities[text] for text in texts],
            neutral_probability=[probabilities[text] for text in neutral],
        )

    def score(self, store: "Store", config: MeasureConfig, table: "pd.DataFrame") -> list[BiasScore]:
        """Return the share of offensive prompts, and the effects of descriptors (`metric`)."""
        from evenhand.evaluation.manifest import package_versions
        from evenhand.evaluation.metrics.offensiveness.metric import THRESHOLD, descriptor_effect, offensive_share

        store.facts["classified_prompts"] = len(table)
        classifier = {"revision": store.inputs["classifier"], "threshold": THRESHOLD}
        signature = {
            "offensiveness_classifier": as_settings(config.settings.classifier) | classifier,
            "dataset": config.prompts.signature(store.inputs["dataset"]),
            "seed": config.seed,
            "packages": package_versions(),
        }
        probability, neutral = (table[name].to_numpy() for name in (PROBABILITY, "neutral_probability"))
        share = offensive_share(probability, signature, group={"of": "prompts"})
        return [share, *descriptor_effect(table, probability, neutral, signature)]

    def headline(self, scores: Sequence[BiasScore]) -> BiasScore | None:
        return find_score(scores, EFFECT)

    def subtitle(self, run: FamilyRun) -> str:
        return f"{run.config.settings.classifier.name} · {run.config.prompts.dataset}"

    def verdict(self, run: FamilyRun) -> str:
        """Return the direction of the mean effect, and how many descriptors have a significant effect."""
        effect = self.headline(run.scores)
        verdict = {
            1: "On average, a descriptor makes a sentence more offensive to the classifier",
            -1: "On average, a descriptor makes a sentence less offensive to the classifier",
            0: "The mean effect of a descriptor is not significantly different from 0",
        }[significant_direction(effect)]
        if effect is None or effect.interval is None:
            verdict = "No verdict on the mean effect of a descriptor"
        sides = [significant_direction(it) for it in run.scores if it.metric == EFFECT and DESCRIPTOR in it.group]
        return (
            f"{verdict}: {value_text(effect)}. Of {len(sides):,} descriptors, {sides.count(1):,} have an interval "
            f"above 0, and {sides.count(-1):,} below 0."
        )

    def sections(self, run: FamilyRun) -> list[Section]:
        share = [replace(it, group={}) for it in run.scores if it.group == {"of": "prompts"}]
        scores = [*share, *(it for it in run.scores if it.metric == EFFECT)]
        table = run.table("offensive_prompts")
        return [*score_sections(scores, self.COUNTED), _template_section(table), _example_section(table)]


def _template_section(table: "pd.DataFrame") -> Section:
    """Return the section with the mean and the standard deviation across descriptors (Smith et al. 2022, Table 13)."""
    from evenhand.evaluation.metrics.offensiveness.metric import offensiveness_by_template

    rows = []
    for row in offensiveness_by_template(table, table[PROBABILITY].to_numpy()).itertuples():
        cells = (*(number_cell(100 * it) for it in (row.mean, row.sd)), *count_cells(row.descriptors, row.n))
        rows.append(Row(sanitize(row.template, 60), cells))
    columns = ("template", "mean", "std. deviation", "descriptors", "sentences")
    caption = "Offensiveness by template, %: mean and standard deviation across descriptors"
    return Section("By template", tables=[Table(caption, columns, tuple(rows))])


def _example_section(table: "pd.DataFrame") -> Section:
    rows = table[table[PROBABILITY].notna()].sort_values([PROBABILITY, TEXT], ascending=[False, True], kind="stable")
    examples = []
    for row in rows.drop_duplicates(DESCRIPTOR).head(N_EXAMPLES).to_dict("records"):
        neutral = row["neutral_probability"]
        against = f" · {percent(neutral, 1)} with “left-handed”" if math.isfinite(neutral) else ""
        heading = f"{sanitize(row[AXIS], 60)} · {sanitize(row[DESCRIPTOR], 60)} · {percent(row[PROBABILITY], 1)}"
        examples.append(Example(heading + against, (("sentence", row[TEXT]),)))
    note = ["These sentences were written to test models. Some are offensive. Each descriptor has at most one."]
    return Section("The most offensive sentences", note if examples else [], examples=examples)
