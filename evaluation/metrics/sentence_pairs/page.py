"""Reports on sentence pairs for one model, and for two models over the same pairs (Martinková et al., S_JSD)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics import FamilyRun, ReportContext
from evenhand.evaluation.metrics.sentence_pairs.metrics import PREFERENCES
from evenhand.evaluation.report.figures import box_figure, svg
from evenhand.evaluation.report.formats import format_of, glossary
from evenhand.evaluation.report.numbers import before_after, number, sanitize
from evenhand.evaluation.report.page import Cell, Example, Figure, Page, Section
from evenhand.evaluation.report.tables import (
    change_section,
    change_table,
    score_cell,
    score_changes,
    score_section,
    scores_table,
    significant_direction,
    value_text,
)
from evenhand.evaluation.score import (
    BIAS_TYPE,
    DIRECTION,
    LEFT_OUT,
    LESS,
    MORE,
    PAIR_ID,
    BiasScore,
    display_name,
    find_score,
)

METRICS = tuple(metric.name for metric in PREFERENCES)
SECOND_METRICS = {"s_jsd": "cps", "stereotype_preference": "likelihood_difference"}  # headlines, and what confirms them
MANY_LEFT_OUT, EASY_TOKENS = 0.10, 0.90  # shares above which the page has a warning
N_PAIRS = 5  # pairs to read at each end
DIFFERENCE = "difference"
NOTE = (
    "Brackets hold the 95 % interval over new pairs of the same kind; of means, by the bootstrap-t. Detectable is the "
    "smallest "
    "true distance from the ideal, or true change, that these pairs would show in four of five measurements."
)
LIMITS = [
    "A share of 50 % means that the model prefers neither sentence more often. It does not mean that the model is "
    "fair: it "
    "may strongly prefer half of the stereotypes and the reverse of the other half.",
    "A single pair or a handful of pairs means nothing, and a bias type has few pairs. Read the intervals: of twenty "
    "groups "
    "without any preference, about one has an interval that excludes the ideal by chance.",
    "CrowS-Pairs has known flaws (Blodgett et al. 2021), and its stereotypes were written in the United States.",
    "If a word is split into pieces, the later pieces are easy to predict, whoever the sentence is about. Languages "
    "and "
    "tokenizers differ in this, so do not compare scores across them.",
]
Scores = Sequence[BiasScore]


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on one model."""
    scores, table = run.scores, run.table("pairs")
    headline, cps = find_score(scores, metric := headline_metric(scores)), find_score(scores, "cps")
    shown = cps if cps and math.isfinite(cps.value) else headline  # a share of pairs is easier to understand than S_JSD
    verdict = {
        1: "The model prefers the more stereotypical sentence of a pair",
        -1: "The model prefers the less stereotypical sentence of a pair",
        0: "The model shows no significant preference",
    }[stereotype_direction(headline)]
    verdict = "No verdict" if headline is None or headline.interval is None else verdict
    also = f", and CPS is {value_text(cps)}" if cps else ""
    signature = run.signature(*METRICS)
    return Page(
        title="Sentence pairs",
        subtitle=f"{run.model_name} · {display_name(run.config.settings.pairs)}",
        headline_value=f"{format_of(shown).text(shown.value)} {format_of(shown).unit}" if shown else "–",
        headline_caption=f"{format_of(shown).label}: {format_of(shown).description}" if shown else "",
        verdict=f"{verdict}: {format_of(metric).label} is {value_text(headline)}{also}.",
        warnings=_warnings(scores, table),
        tables=[
            scores_table(
                "Preference for the more stereotypical sentence",
                [find_score(scores, it) for it in METRICS],
                "measure",
                label=lambda score: format_of(score).title,
                counted="pairs",
                further={"detectable": lambda score: _detectable(scores, score)},
            )
        ],
        notes=[
            NOTE,
            *(
                [f"{len(table):,} pairs are a random sample by bias type (limit, seed {signature['seed']})."]
                if "limit" in signature
                else []
            ),
            *context.notes,
        ],
        sections=[
            *_cut_sections(scores),
            _distribution_section(table),
            _coverage_section(scores, table),
            _example_section("Pairs to read", table, table[f"log_likelihood_{MORE}"] - table[f"log_likelihood_{LESS}"]),
        ],
        glossary=glossary(metric for metric in METRICS if find_score(scores, metric)),
        limits=LIMITS,
        signature=signature,
        signature_lines=run.signature_lines(*METRICS),
    )


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, context: ReportContext) -> Page:
    """Return the report that compares two models over the same pairs."""
    runs, names = (before.scores, after.scores, changes.scores), (_label(before, after), _label(after, before))
    metric = headline_metric(changes.scores, "_difference")
    change, (old, new) = find_score(changes.scores, f"{metric}_difference"), (find_score(it, metric) for it in runs[:2])
    nearer = old and new and abs(new.value - new.ideal) < abs(old.value - old.ideal)
    verdict = f"The second model is {'nearer to' if nearer else 'further from'} no preference than the first"
    verdict = verdict if significant_direction(change) else "The difference between the models is not significant"
    tables = [run.table("pairs").set_index(PAIR_ID) for run in (before, after)]
    pair_sets = [Path(run.config.settings.pairs).name for run in (before, after)]
    sets = f"The two runs have different pairs, {' and '.join(pair_sets)}, matched by {PAIR_ID}."
    overall = score_changes({format_of(it).title: (it, {}) for it in METRICS}, runs)
    detectable = (find_score(changes.scores, f"{it}_difference_detectable") for it in METRICS)
    return Page(
        title="Sentence pairs, compared",
        subtitle=before_after(*names),
        headline_value=format_of(change).text(change.value) if change else "–",
        headline_caption=f"change of {format_of(metric).title}" if change else "",
        verdict=f"{verdict}: {format_of(metric).label} is {value_text(old)} and {value_text(new)}; change "
        f"{value_text(change)}.",
        warnings=[
            f"{name}: {warning}"
            for name, scores, table in zip(names, runs, tables, strict=False)
            for warning in _warnings(scores, table)
        ],
        tables=[change_table("All pairs", "measure", overall, counted="pairs", is_plotted=False)],
        notes=[NOTE, *context.notes, *([sets] if pair_sets[0] != pair_sets[1] else [])],
        sections=[
            *(
                change_section(f"By {cut.replace('_', ' ')}", cut, METRICS, runs, counted="pairs")
                for cut in (BIAS_TYPE, DIRECTION)
            ),
            Section(
                "What the comparison can show",
                tables=[
                    scores_table(
                        "Detectable change",
                        detectable,
                        "measure",
                        label=lambda it: format_of(it).title,
                        counted="pairs",
                    )
                ],
            ),
            *(
                _coverage_section(scores, table, f", {name}")
                for name, scores, table in zip(names, runs, tables, strict=False)
            ),
            _example_section("Pairs that changed most", tables[0].reset_index(), _change(*tables)),
        ],
        glossary=glossary(METRICS),
        limits=LIMITS,
        signature=changes.signature(*(f"{metric}_difference" for metric in METRICS)),
        signature_lines=before.signature_lines(*METRICS) + after.signature_lines(*METRICS),
        sides=("before", "after"),
    )


def headline_metric(scores: Scores, suffix: str = "") -> str:
    """Return the metric of the verdict: the preference of causal models if it was measured, else S_JSD."""
    return next((metric for metric in SECOND_METRICS if find_score(scores, f"{metric}{suffix}")), "s_jsd")


def stereotype_direction(score: BiasScore | None) -> int:
    """Return 1 if the model significantly prefers stereotypes, −1 if it significantly avoids stereotypes, else 0."""
    return significant_direction(score) * format_of(score).stereotype_side if score else 0


def _detectable(scores: Scores, score: BiasScore) -> Cell:
    """Return the cell of the smallest detectable distance; empty for a metric that cannot reach its ideal."""
    detectable = find_score(scores, f"{score.metric}_detectable", **score.group)
    return score_cell(detectable) if detectable and format_of(score).stereotype_side else Cell("")


def _warnings(scores: Scores, table: pd.DataFrame) -> list[str]:
    """Return warnings about pairs left out, easy words and contradictory metrics."""
    warnings, n_left_out = [], int(table[LEFT_OUT].notna().sum())
    if n_left_out > MANY_LEFT_OUT * len(table):
        warnings.append(f"{n_left_out:,} of {len(table):,} pairs are left out of the scores.")
    if any(score.metric == "token_accuracy" and score.value > EASY_TOKENS for score in scores):
        warnings.append("More than 90 % of the masked words are predicted correctly, so the scores mean less.")
    metric = headline_metric(scores)
    first, second = find_score(scores, metric), find_score(scores, SECOND_METRICS[metric])
    if stereotype_direction(first) * stereotype_direction(second) < 0:
        labels = (format_of(score).label for score in (first, second))
        warnings.append(f"{' and '.join(labels)} point in opposite directions. Do not rely on either alone.")
    return warnings


def _cut_sections(scores: Scores) -> list[Section]:
    return [
        score_section(
            f"By {cut.replace('_', ' ')}",
            [it for metric in METRICS for it in scores if it.metric == metric and list(it.group) == [cut]],
            cut.replace("_", " "),
            counted="pairs",
            label=lambda score: sanitize(next(iter(score.group.values())), 60),
            further={"detectable": lambda score: _detectable(scores, score)},
            first_screen=cut == BIAS_TYPE,
        )
        for cut in (BIAS_TYPE, DIRECTION)
    ]


def _distribution_section(table: pd.DataFrame) -> Section:
    """Return the section with the distribution of the pairs around the boundary (Martinková et al., Figure 2)."""
    difference = table[f"log_likelihood_{MORE}"] - table[f"log_likelihood_{LESS}"]
    known = np.isfinite(difference.astype(float))
    groups = {"all pairs": difference[known]} | dict(iter(difference[known].groupby(table[BIAS_TYPE][known])))
    values = {sanitize(str(name), 30): it.to_numpy(float) for name, it in groups.items() if len(it)}
    label = "Log-likelihood of the more stereotypical sentence minus the other, in nats"
    sentence = "If many pairs are close to 0, a small change of the model moves many of them to the other side."
    figures = [Figure("", svg(box_figure(label, values, ideal=0.0)))] if values else []
    return Section("Distribution of the pairs around the boundary", [sentence] if values else [], figures=figures)


def _coverage_section(scores: Scores, table: pd.DataFrame, name: str = "") -> Section:
    reasons = table[LEFT_OUT].dropna().value_counts()
    left_out = "; ".join(f"{n:,}: {sanitize(str(reason), 200)}" for reason, n in reasons.items())
    sentence = f"{reasons.sum():,} of {len(table):,} pairs are left out{f' ({left_out})' if left_out else ''}."
    accuracies = [score for score in scores if score.metric == "token_accuracy"]
    section = score_section("", accuracies, "sentences", label=lambda it: f"the {it.group['side']} stereotypical")
    return Section(f"Pairs left out, and token accuracy{name}", [sentence], section.tables)


def _change(before: pd.DataFrame, after: pd.DataFrame) -> pd.Series:
    """Return the change of each pair's difference; NaN if the two models read different sentences."""
    old, new = (it[f"log_likelihood_{MORE}"] - it[f"log_likelihood_{LESS}"] for it in (before, after))
    is_same = (before[[MORE, LESS]] == after[[MORE, LESS]].reindex(before.index)).all(axis=1)
    return (new.reindex(before.index) - old).where(is_same).reset_index(drop=True)


def _example_section(title: str, table: pd.DataFrame, difference: pd.Series) -> Section:
    """Return the pairs with the largest differences in each direction."""
    ordered = table.assign(**{DIFFERENCE: difference.to_numpy(float)})
    ordered = ordered[np.isfinite(ordered[DIFFERENCE])].sort_values([DIFFERENCE, PAIR_ID], kind="stable")
    above, below = (ordered[side * ordered[DIFFERENCE] > 0] for side in (1, -1))
    parts = [
        Section(
            f"Towards the {name} stereotypical sentence", examples=[_example(row) for row in rows.to_dict("records")]
        )
        for name, rows in (("more", above.iloc[::-1].head(N_PAIRS)), ("less", below.head(N_PAIRS)))
    ]
    note = "The sentences repeat stereotypes, and some are offensive. They were written to test models."
    return Section(title, [note] if len(ordered) else [], parts=parts)


def _example(row: Mapping) -> Example:
    names = [sanitize(str(row[it]), 60) for it in (BIAS_TYPE, DIRECTION, PAIR_ID) if isinstance(row[it], (str, int))]
    heading = f"{' · '.join(names)} · {number(row[DIFFERENCE], 2, sign=True)} nats"
    return Example(heading, (("more stereotypical", str(row[MORE])), ("less stereotypical", str(row[LESS]))))


def _label(run: FamilyRun, other: FamilyRun) -> str:
    """Return the name of a run's model, with the settings in which the run differs from the other run."""
    ours, theirs = run.config.settings, other.config.settings
    parts = [run.model_name]
    if ours.pairs != theirs.pairs:
        parts.append(f"on {Path(ours.pairs).name}")
    if ours.perturbed != theirs.perturbed:
        parts.append("perturbed" if ours.perturbed else "unperturbed")
    return ", ".join(parts)
