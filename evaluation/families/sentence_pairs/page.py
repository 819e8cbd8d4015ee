"""Reports on sentence pairs for one model, and for two models over the same pairs (paper 001)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

import numpy as np
import pandas as pd

from evenhand.evaluation.families import FamilyRun, MeasureConfig, ReportContext
from evenhand.evaluation.families.sentence_pairs import tables
from evenhand.evaluation.families.sentence_pairs.metrics import PREFERENCES
from evenhand.evaluation.families.sentence_pairs.plots import FEW, Spread, spread_chart
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.formatted_scores import formatted_score
from evenhand.evaluation.report.metrics import glossary
from evenhand.evaluation.report.numbers import UNIT, before_after, number, sanitize
from evenhand.evaluation.report.page import Example, Figure, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Table
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
HEADLINES = ("s_jsd", "stereotype_preference")  # metric of the verdict: for masked models, for causal models
SECOND_METRICS = {"s_jsd": "cps", "stereotype_preference": "likelihood_difference"}
UNFOLDED = (*HEADLINES, *SECOND_METRICS.values())  # the tables of other metrics are folded
MANY_LEFT_OUT, EASY_TOKENS = 0.10, 0.90  # shares above which the page has a warning
PAIRS_AT_EACH_END, PAIRS_AT_BOUNDARY = 5, 6
MAX_SIDE_LENGTH = 14  # characters; longer model names do not fit above a column, which is then "before" or "after"
DIFFERENCE = "difference"
CHARTS = {DIFFERENCE: (1, 2, 1), "s_jsd": (1000, 1, -1)}  # column: factor, decimals, side of the stereotype
text = Sentences(__file__)
Scores = Sequence[BiasScore]


def page(run: FamilyRun, context: ReportContext) -> Page:
    """Return the report on one model."""
    scores, table = run.scores, _add_differences(run.table("pairs"))
    scored = table[table[LEFT_OUT].isna()]
    headline, truth = formatted_score(scores, headline_metric(scores)), tables.truth_table(scores, context.truth)
    cps = formatted_score(scores, "cps")
    # The large number is a share of pairs, which is easier to understand than S_JSD.
    big_cps = cps if cps and cps.is_defined and headline and headline.metric.unit == UNIT else None

    def cut_table(metric: str, cut: str, values: Sequence[str]) -> Table:
        return tables.cut_table(metric, cut, values, scores, context.truth)

    return Page(
        title="Sentence pairs",
        subtitle=f"{run.model_name} · {display_name(run.config.settings.pairs)}",
        headline_value=(big_cps or headline).text_with_unit if headline and headline.is_defined else "–",
        headline_caption=text.headline_caption(headline, big_cps),
        verdict=text.verdict(headline, cps),
        warnings=_warnings(scores, table),
        tables=[tables.headline_table(scores)],
        notes=[
            *_insignificance_notes(scores),
            " ".join([text.intervals, text.detectable, *([text.planted] if context.truth else [])]),
            *_limit_notes(run, len(table)),
            *context.notes,
        ],
        sections=[
            _coverage_section([scores], [table], ("value",), [""]),
            _cut_section("By bias type", BIAS_TYPE, scores, cut_table),
            _distribution_section([scored], _sorted_values(scores, BIAS_TYPE), ("",)),
            _cut_section("By direction", DIRECTION, scores, cut_table, [text.directions]),
            Section("Against what was planted", [text.against_planted] if truth.rows else [], [truth]),
            _example_section(scored),
        ],
        glossary=_glossary(scores),
        limits=text.limits,
        signature=run.signature(*METRICS),
        signature_lines=run.signature_lines(*METRICS),
    )


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, context: ReportContext) -> Page:
    """Return the report that compares two models over the same pairs."""
    names = (_distinctive_name(before.config, after.config), _distinctive_name(after.config, before.config))
    sides, runs = _column_names(*names), (before.scores, after.scores, changes.scores)
    pair_tables = [_add_differences(run.table("pairs")) for run in (before, after)]
    scored, pair_sets = _scored_by_both(*pair_tables), [run.config.settings.pairs for run in (before, after)]
    metric = headline_metric(changes.scores, "_difference")
    change = formatted_score(changes.scores, metric and f"{metric}_difference")

    def cut_table(metric: str, cut: str, values: Sequence[str]) -> Table:
        return tables.cut_change_table(metric, cut, values, runs, sides)

    return Page(
        title="Sentence pairs, compared",
        subtitle=f"{before_after(*names)} · " + " and ".join(dict.fromkeys(Path(it).name for it in pair_sets)),
        headline_value=change.text if change and change.is_defined else "–",
        headline_caption=text.change_headline_caption(change),
        verdict=_change_verdict(runs, metric, [sanitize(name, 120) for name in names]),
        warnings=[
            warning
            for scores, table, name in zip(runs[:2], pair_tables, names, strict=True)
            for warning in _warnings(scores, table, name)
        ],
        tables=[tables.headline_change_table(runs, sides)],
        notes=[text.intervals, *context.notes, *([text.different_sets] if pair_sets[0] != pair_sets[1] else [])],
        sections=[
            Section(
                "What the comparison can show",
                _power_note(changes.scores, metric),
                [tables.power_table(changes.scores)],
                first_screen=True,
            ),
            _coverage_section(runs[:2], pair_tables, sides, names),
            _cut_section("By bias type", BIAS_TYPE, before.scores, cut_table),
            _distribution_section(scored, _sorted_values(before.scores, BIAS_TYPE), sides),
            _cut_section("By direction", DIRECTION, before.scores, cut_table),
            _change_section(*scored, sides),
        ],
        glossary=_glossary([*before.scores, *after.scores], compared=True),
        limits=text.limits,
        signature=changes.signature(*(f"{metric}_difference" for metric in METRICS)),
        signature_lines=before.signature_lines(*METRICS) + after.signature_lines(*METRICS),
        sides=sides,
    )


def headline_metric(scores: Scores, suffix: str = "") -> str | None:
    """Return the name of the verdict's metric: the first of `HEADLINES` of which there is a score, or None.

    With the suffix "_difference", only metrics with a score of their change are considered.
    """
    return next((metric for metric in HEADLINES if find_score(scores, f"{metric}{suffix}")), None)


def _distinctive_name(config: MeasureConfig, other: MeasureConfig) -> str:
    """Return the model's name with the settings of the run that differ from the settings of the other run."""
    parts = [display_name(config.model.name)]
    settings, other_settings = config.settings, other.settings
    if settings.pairs != other_settings.pairs:
        parts.append(f"on {Path(settings.pairs).name}")
    if settings.perturbed != other_settings.perturbed:
        parts.append("perturbed" if settings.perturbed else "unperturbed")
    if config.model.dtype != other.model.dtype:
        parts.append(config.model.dtype)
    return ", ".join(parts)


def _column_names(before: str, after: str) -> tuple[str, str]:
    """Return the column names of two models: the models' names if short and distinct, else "before" and "after"."""
    names = (sanitize(before), sanitize(after))
    is_distinct = names[0] != names[1] and not {"", "measure", "change", "p", "pairs"} & {*names}
    return names if is_distinct and max(map(len, names)) <= MAX_SIDE_LENGTH else ("before", "after")


def _add_differences(table: pd.DataFrame) -> pd.DataFrame:
    difference = table["log_likelihood_more"] - table["log_likelihood_less"]
    return table.assign(**{DIFFERENCE: difference}).reset_index(drop=True)


def _scored_by_both(before: pd.DataFrame, after: pd.DataFrame) -> list[pd.DataFrame]:
    before, after = (table[table[LEFT_OUT].isna()].set_index(PAIR_ID) for table in (before, after))
    common = before.index.intersection(after.index, sort=False)
    return [table.loc[common].reset_index() for table in (before, after)]


def _sorted_values(scores: Scores, cut: str) -> list[str]:
    metric = headline_metric(scores)

    def sort_key(value: str) -> tuple[float, str]:
        score = formatted_score(scores, metric, **{cut: value})
        return (-score.metric.stereotype_side * score.score.value if score and score.is_defined else math.inf, value)

    return sorted({str(score.group[cut]) for score in scores if list(score.group) == [cut]}, key=sort_key)


def _warnings(scores: Scores, table: pd.DataFrame, model: str = "") -> list[str]:
    """Return warnings about pairs left out, easy words and contradictory metrics, with the model's name if given."""
    warnings, n_left_out = [], int(table[LEFT_OUT].notna().sum())
    if n_left_out > MANY_LEFT_OUT * len(table):
        warnings.append(text.many_left_out(n_left_out, len(table)))
    if easy := [score for score in scores if score.metric == "token_accuracy" and score.value > EASY_TOKENS]:
        warnings.append(text.easy_words(easy))
    metric = headline_metric(scores)
    first, second = formatted_score(scores, metric), formatted_score(scores, SECOND_METRICS.get(metric))
    if first and second and first.stereotype_direction * second.stereotype_direction < 0:
        warnings.append(text.contradiction(first, second))
    return [f"{sanitize(model, 120)}: {warning}" if model else warning for warning in warnings]


def _limit_notes(run: FamilyRun, n: int) -> list[str]:
    signature = run.signature(*METRICS)
    return [text.sample(n, signature["seed"])] if "limit" in signature else []


def _insignificance_notes(scores: Scores) -> list[str]:
    """Return a sentence with the smallest detectable distance for each main metric without a significant preference.

    A last sentence lists the other metrics without a significant preference.
    """
    sentences, folded_labels = [], []
    for metric in METRICS:
        score = formatted_score(scores, metric)
        if score is None or not score.is_defined or not score.metric.stereotype_side or score.stereotype_direction:
            continue
        if metric in UNFOLDED:
            sentences.append(text.detectable_distance(score, find_score(scores, f"{metric}_detectable")))
        else:
            folded_labels.append(score.metric.label)
    return [*sentences, text.not_significant(folded_labels)] if folded_labels else sentences


def _change_verdict(runs: Sequence[Scores], metric: str | None, names: Sequence[str]) -> str:
    before, after, changes = runs
    change = formatted_score(changes, metric and f"{metric}_difference")
    old, new = formatted_score(before, metric), formatted_score(after, metric)
    labels = (f"the change of {change.metric.label}" if change else "", *names)
    for label, score in zip(labels, (change, old, new), strict=True) if change else ():
        if score is None or not score.is_defined:
            return text.no_verdict(label, score)
    return text.change_verdict(change, old, new, *names)


def _power_note(changes: Scores, metric: str | None) -> list[str]:
    """Return a sentence with the smallest change that the comparison can detect; [] if it is undefined."""
    detectable = metric and formatted_score(changes, f"{metric}_difference_detectable")
    if not detectable or not detectable.is_defined:
        return []
    return [text.power(formatted_score(changes, f"{metric}_difference"), detectable)]


def _glossary(scores: Scores, compared: bool = False) -> list[tuple[str, str]]:
    measured = {score.metric for score in scores}
    entries = dict(glossary(metric for metric in METRICS if metric in measured)) | text.glossary
    if "token_accuracy" not in measured:
        del entries["token accuracy"]
    if compared:
        entries["detectable"] += f" {text.detectable_change}"
    return list(entries.items())


def _coverage_section(
    scores: Sequence[Scores], pair_tables: Sequence[pd.DataFrame], sides: Sequence[str], names: Sequence[str]
) -> Section:
    left_out = [tables.left_out_table(table, name) for table, name in zip(pair_tables, names, strict=True)]
    return Section("Pairs left out, and token accuracy", tables=[*left_out, tables.accuracy_table(scores, sides)])


def _cut_section(
    title: str,
    cut: str,
    scores: Scores,
    make_table: Callable[[str, str, Sequence[str]], Table],
    sentences: Sequence[str] = (),
) -> Section:
    """Return a section with a table of each metric by the values of the column `cut`; main metrics are unfolded."""
    by_metric = {metric: make_table(metric, cut, _sorted_values(scores, cut)) for metric in METRICS}
    unfolded, folded = (
        [table for metric, table in by_metric.items() if table.rows and (metric in UNFOLDED) == is_unfolded]
        for is_unfolded in (True, False)
    )
    part = Section(f"Other metrics {title[0].lower()}{title[1:]}", tables=folded, folded=True)
    return Section(title, sentences if unfolded else (), unfolded, parts=[part], first_screen=cut == BIAS_TYPE)


def _distribution_section(scored: Sequence[pd.DataFrame], types: Sequence[str], sides: Sequence[str]) -> Section:
    """Return the section with charts of the pairs' distribution around the decision boundary (001, Figure 2)."""
    figures, numbers = [], []
    for column, (factor, decimals, towards) in CHARTS.items():
        if any(column not in table for table in scored):
            continue
        rows = [row for row in _spreads(scored, column, factor, types) if any(map(len, row.differences.values()))]
        if not rows:
            continue
        caption, ends = text.drawn[column]["caption"], text.drawn[column]["ends"]
        chart, beyond = spread_chart(caption, rows, ends, towards, decimals)
        dots = any(0 < len(values) < FEW for row in rows for values in row.differences.values())
        figures.append(Figure(caption, svg(chart), text.spread(FEW if dots else 0, beyond)))
        numbers.append(tables.quartile_table(caption, rows, sides, decimals))
    part = Section("The same numbers as tables", tables=numbers, folded=True)
    sentences = [text.boundary] if figures else []
    return Section("Distribution of the pairs around the boundary", sentences, figures=figures, parts=[part])


def _spreads(scored: Sequence[pd.DataFrame], column: str, factor: float, types: Sequence[str]) -> list[Spread]:
    def spread(label: str, cuts: Iterable[pd.DataFrame]) -> Spread:
        values = (cut[column].to_numpy(float) * factor for cut in cuts)
        return Spread(label, {role: it[np.isfinite(it)] for role, it in zip(roles, values, strict=True)})

    roles = ("before", "after")[: len(scored)]
    by_type = [spread(value, (table[table[BIAS_TYPE] == value] for table in scored)) for value in types]
    return [spread("all pairs", scored), *by_type]


def _example_section(scored: pd.DataFrame) -> Section:
    """Return the section with the pairs of the largest differences in each direction and of the smallest ones."""
    ordered = scored[np.isfinite(scored[DIFFERENCE])].sort_values([DIFFERENCE, PAIR_ID], kind="stable")
    likelier, unlikelier = _both_ends(ordered, DIFFERENCE)
    rest = ordered.drop(index=[*likelier.index, *unlikelier.index])
    nearest = rest.loc[rest[DIFFERENCE].abs().sort_values(kind="stable").index[:PAIRS_AT_BOUNDARY]]

    def describe(row: Mapping) -> str:
        difference = f"difference {number(row[DIFFERENCE], 2, sign=True)} nats"
        if math.isfinite(row.get("s_jsd", math.nan)):
            difference += f" · S_JSD {number(row['s_jsd'] * 1000, 1, sign=True)} {UNIT}"
        return difference

    return _pairs_section(
        "Pairs to read",
        _pair_list("The more stereotypical sentence is much likelier", likelier, describe),
        _pair_list("The less stereotypical sentence is much likelier", unlikelier, describe),
        _pair_list("Both sentences are about equally likely", nearest, describe, folded=True),
    )


def _change_section(before: pd.DataFrame, after: pd.DataFrame, sides: tuple[str, str]) -> Section:
    """Return the section with the pairs whose difference changed most between two models that read equal sentences."""
    pairs = before.assign(after=after[DIFFERENCE], change=after[DIFFERENCE] - before[DIFFERENCE])
    pairs = pairs[np.isfinite(pairs["change"]) & (before[[MORE, LESS]] == after[[MORE, LESS]]).all(axis=1)]
    towards, away = _both_ends(pairs.sort_values(["change", PAIR_ID], kind="stable"), "change")

    def describe(row: Mapping) -> str:
        old, new = (number(row[column], 2, sign=True) for column in (DIFFERENCE, "after"))
        return f"difference {old} ({sides[0]}), {new} ({sides[1]}), in nats"

    return _pairs_section(
        "Pairs that changed most",
        _pair_list("Towards the more stereotypical sentence", towards, describe),
        _pair_list("Towards the less stereotypical sentence", away, describe),
    )


def _both_ends(ordered: pd.DataFrame, column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    above, below = ordered[ordered[column] > 0], ordered[ordered[column] < 0]
    return above.iloc[::-1].head(PAIRS_AT_EACH_END), below.head(PAIRS_AT_EACH_END)


def _pairs_section(title: str, *parts: Section) -> Section:
    return Section(title, [text.read_pairs] if any(part.has_content for part in parts) else [], parts=parts)


def _pair_list(title: str, rows: pd.DataFrame, describe: Callable[[Mapping], str], folded: bool = False) -> Section:
    examples = []
    for row in rows.to_dict("records"):
        cuts = [str(row[it]) for it in (BIAS_TYPE, DIRECTION) if isinstance(row[it], str)]
        names = [sanitize(it, tables.MAX_NAME_LENGTH) for it in (*cuts, str(row[PAIR_ID]))]
        more, less = mark_differences(str(row[MORE]), str(row[LESS]))
        heading = " · ".join([*names[:-1], f"pair {names[-1]}", describe(row)])
        examples.append(Example(heading, (("more stereotypical", more), ("less stereotypical", less))))
    return Section(title, examples=examples, folded=folded)


def mark_differences(first: str, second: str) -> tuple[tuple[tuple[str, bool], ...], tuple[tuple[str, bool], ...]]:
    """Return both sentences in parts (words or characters), each with whether it is missing from the other sentence.

    >>> mark_differences("He is old.", "She is old.")
    ((('He', True), (' is old.', False)), (('She', True), (' is old.', False)))
    """
    space = " " if " " in first and " " in second else ""
    words = [sentence.split(" ") if space else list(sentence) for sentence in (first, second)]
    parts: tuple[list, list] = ([], [])
    for tag, *spans in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for sentence_parts, side, (start, end) in zip(parts, words, (spans[:2], spans[2:]), strict=True):
            if start < end:
                before = space if start else ""
                is_equal = tag == "equal"
                if before and not is_equal:
                    sentence_parts.append((before, False))
                sentence_parts.append(((before if is_equal else "") + space.join(side[start:end]), not is_equal))
    return tuple(parts[0]), tuple(parts[1])
