"""Reports on sentence pairs: of one model, and of two models over the same pairs (paper 001)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.families import FamilyRun, ReportContext
from evenhand.evaluation.families.sentence_pairs import tables
from evenhand.evaluation.families.sentence_pairs.metrics import PREFERENCES
from evenhand.evaluation.families.sentence_pairs.plots import FEW, Spread, spread_chart
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.formatted_scores import formatted_score
from evenhand.evaluation.report.metrics import glossary
from evenhand.evaluation.report.numbers import UNIT, before_after, find, number, visible
from evenhand.evaluation.report.page import Example, Figure, Page, Section
from evenhand.evaluation.report.sentences import Sentences
from evenhand.evaluation.report.tables import Table
from evenhand.evaluation.results import BIAS_TYPE, DIRECTION, LEFT_OUT, LESS, MORE, PAIR_ID, BiasScore, display_name

METRICS = tuple(metric.name for metric in PREFERENCES)
HEADLINES = ("s_jsd", "stereotype_preference")  # the verdict's metric: of a masked model, of a causal one
BESIDE = {"s_jsd": "cps", "stereotype_preference": "likelihood_difference"}
# Beyond these a warning is shown: our judgement of what a reader would want to be told.
MANY_LEFT_OUT, EASY_TOKENS = 0.10, 0.90
PAIRS_AT_EACH_END, PAIRS_AT_BOUNDARY = 5, 6
LONGEST_SIDE = 14  # letters of a model's name that fit above a column; longer ones are called before and after
AT_ONCE = ("s_jsd", "cps", "stereotype_preference", "likelihood_difference")  # the rest are folded away
DIFFERENCE = "difference"
DRAWN = {DIFFERENCE: (1, 2, 1), "s_jsd": (1000, 1, -1)}  # of each pair: its factor, decimals, the stereotype's side
text = Sentences(__file__)
Scores = Sequence[BiasScore]


def page(measured: FamilyRun, known: ReportContext) -> Page:
    """Return the report of one model."""
    scores, table = measured.scores, _with_differences(measured.table("pairs"))
    used = table[table[LEFT_OUT].isna()]
    of, truth = formatted_score(scores, headline_metric(scores)), tables.truth_table(scores, known.truth)
    cps = formatted_score(scores, "cps")
    cps = cps if cps and cps.defined and of and of.metric.unit == UNIT else None  # a share of pairs says more to people
    big = "–" if of is None or not of.defined else (cps or of).valued

    def by_cut(metric: str, cut: str, values: Sequence[str]) -> Table:
        return tables.cut_table(metric, cut, values, scores, known.truth)

    return Page(
        title="Sentence pairs",
        subtitle=f"{display_name(measured.config.model.name)} · {display_name(measured.config.settings.pairs)}",
        date=date.today().isoformat(),
        big=big,
        under=text.under(of, cps),
        verdict=text.verdict(of, formatted_score(scores, "cps")),
        warnings=_warnings(scores, table),
        tables=[tables.headline_table(scores)],
        notes=[
            *_not_told(scores),
            " ".join([text.intervals, text.detectable, *([text.planted] if known.truth else [])]),
            *known.notes,
        ],
        sections=[
            _coverage_section([scores], [table], ("value",), [""]),
            _cut_section("By bias type", BIAS_TYPE, scores, by_cut),
            _spread_section([used], _values(scores, BIAS_TYPE), ("",)),
            _cut_section("By direction", DIRECTION, scores, by_cut, [text.directions]),
            Section("Against what was planted", [text.against_planted] if truth.rows else [], [truth]),
            _example_section(used),
        ],
        glossary=_glossary(scores),
        limits=text.limits,
        signature=measured.signature(*METRICS),
        signature_lines=measured.signature_lines(*METRICS),
    )


def comparison_page(before: FamilyRun, after: FamilyRun, changes: FamilyRun, known: ReportContext) -> Page:
    """Return the report of two models over the same pairs."""
    names = (_name(before.config, after.config), _name(after.config, before.config))
    sides, runs = _sides(*names), (before.scores, after.scores, changes.scores)
    found = [_with_differences(each.table("pairs")) for each in (before, after)]
    used, sets = _in_both(*found), [each.config.settings.pairs for each in (before, after)]
    metric = headline_metric(changes.scores, "_difference")
    change = formatted_score(changes.scores, metric and f"{metric}_difference")

    def by_cut(metric: str, cut: str, values: Sequence[str]) -> Table:
        return tables.cut_change_table(metric, cut, values, runs, sides)

    return Page(
        title="Sentence pairs, compared",
        subtitle=f"{before_after(*names)} · " + " and ".join(dict.fromkeys(Path(it).name for it in sets)),
        date=date.today().isoformat(),
        big=change.text if change and change.defined else "–",
        under=text.change_under(change),
        verdict=_change_verdict(runs, metric, [visible(name, 120) for name in names]),
        warnings=[it for each in zip(runs[:2], found, names, strict=True) for it in _warnings(*each)],
        tables=[tables.headline_change_table(runs, sides)],
        notes=[text.intervals, *known.notes, *([text.other_sets] if sets[0] != sets[1] else [])],
        sections=[
            Section(
                "What the comparison can show",
                _power(changes.scores, metric),
                [tables.power_table(changes.scores)],
                first_screen=True,
            ),
            _coverage_section(runs[:2], found, sides, names),
            _cut_section("By bias type", BIAS_TYPE, before.scores, by_cut),
            _spread_section(used, _values(before.scores, BIAS_TYPE), sides),
            _cut_section("By direction", DIRECTION, before.scores, by_cut),
            _moved_section(*used, sides),
        ],
        glossary=_glossary([*before.scores, *after.scores], compared=True),
        limits=text.limits,
        signature=changes.signature(*(f"{metric}_difference" for metric in METRICS)),
        signature_lines=before.signature_lines(*METRICS) + after.signature_lines(*METRICS),
        sides=sides,
    )


def headline_metric(scores: Scores, suffix: str = "") -> str | None:
    """Return the metric of the verdict, or with the suffix "_difference" that of the verdict on the change, or None."""
    return next((metric for metric in HEADLINES if find(scores, f"{metric}{suffix}")), None)


def _name(told: Any, other: Any) -> str:
    """Return what tells one of the two runs from the other."""
    parts = [display_name(told.model.name)]
    this, that = told.settings, other.settings
    parts += [f"on {Path(this.pairs).name}"] * (this.pairs != that.pairs)
    parts += ["perturbed" if this.perturbed else "unperturbed"] * (this.perturbed != that.perturbed)
    parts += [told.model.dtype] * (told.model.dtype != other.model.dtype)
    return ", ".join(parts)


def _sides(before: str, after: str) -> tuple[str, str]:
    """Return what stands above the columns of the two models: their names, where they are short."""
    names = (visible(before), visible(after))
    clear = names[0] != names[1] and not {"", "measure", "change", "p", "pairs"} & {*names}
    return names if clear and max(map(len, names)) <= LONGEST_SIDE else ("before", "after")


def _with_differences(table: pd.DataFrame) -> pd.DataFrame:
    difference = table["log_likelihood_more"] - table["log_likelihood_less"]
    return table.assign(**{DIFFERENCE: difference}).reset_index(drop=True)


def _in_both(before: pd.DataFrame, after: pd.DataFrame) -> list[pd.DataFrame]:
    """Return the pairs that both models have scores of, in one order."""
    before, after = (table[table[LEFT_OUT].isna()].set_index(PAIR_ID) for table in (before, after))
    common = before.index.intersection(after.index, sort=False)
    return [table.loc[common].reset_index() for table in (before, after)]


def _values(scores: Scores, cut: str) -> list[str]:
    """Return the values of a cut, the most stereotypical first by the headline's metric."""
    metric = headline_metric(scores)

    def place(value: str) -> tuple[float, str]:
        of = formatted_score(scores, metric, **{cut: value})
        return (-of.metric.stereotype_side * of.score.value if of and of.defined else math.inf, value)

    return sorted({str(score.group[cut]) for score in scores if list(score.group) == [cut]}, key=place)


def _warnings(scores: Scores, table: pd.DataFrame, whose: str = "") -> list[str]:
    """Return what keeps the numbers from being taken at their word; `whose` names the model, if there are two."""
    found, n_left_out = [], int(table[LEFT_OUT].notna().sum())
    if n_left_out > MANY_LEFT_OUT * len(table):
        found.append(text.many_left_out(n_left_out, len(table)))
    if easy := [score for score in scores if score.metric == "token_accuracy" and score.value > EASY_TOKENS]:
        found.append(text.easy_words(easy))
    metric = headline_metric(scores)
    one, other = formatted_score(scores, metric), formatted_score(scores, BESIDE.get(metric))
    if one and other and one.leaning * other.leaning < 0:
        found.append(text.at_odds(one, other))
    return [f"{visible(whose, 120)}: {warning}" if whose else warning for warning in found]


def _not_told(scores: Scores) -> list[str]:
    """Return, for the verdict's measures where they show no preference, what this many pairs would miss.

    The other measures that show none are named.
    """
    sentences, others = [], []
    for metric in METRICS:
        of = formatted_score(scores, metric)
        if of is None or not of.defined or not of.metric.stereotype_side or of.leaning:
            continue
        if metric in (*HEADLINES, *BESIDE.values()):
            sentences.append(text.would_be_missed(of, find(scores, f"{metric}_detectable")))
        else:
            others.append(of.metric.label)
    return [*sentences, text.not_told(others, bool(sentences))] if others else sentences


def _change_verdict(runs: Sequence[Scores], metric: str | None, names: Sequence[str]) -> str:
    before, after, changes = runs
    change = formatted_score(changes, metric and f"{metric}_difference")
    old, new = formatted_score(before, metric), formatted_score(after, metric)
    what = (f"the change of {change.metric.label}" if change else "", *names)
    for name, of in zip(what, (change, old, new), strict=True) if change else ():
        if of is None or not of.defined:
            return text.no_verdict(name, of)
    return text.change_verdict(change, old, new, *names)


def _power(changes: Scores, metric: str | None) -> list[str]:
    """Return the smallest change that the comparison could have shown."""
    reach = metric and find(changes, f"{metric}_difference_detectable")
    known = reach and not math.isnan(reach.value)
    return [text.power(formatted_score(changes, f"{metric}_difference"), reach)] if known else []


def _glossary(scores: Scores, compared: bool = False) -> list[tuple[str, str]]:
    """Return the measures that are shown, and the words about them."""
    shown = {score.metric for score in scores}
    entries = dict(glossary(metric for metric in METRICS if metric in shown)) | text.glossary
    if "token_accuracy" not in shown:
        del entries["token accuracy"]
    if compared:
        entries["detectable"] += f" {text.detectable_change}"
    return list(entries.items())


def _coverage_section(
    scores: Sequence[Scores], found: Sequence[pd.DataFrame], sides: Sequence[str], names: Sequence[str]
) -> Section:
    missing = [tables.left_out_table(table, name) for table, name in zip(found, names, strict=True)]
    return Section("Which pairs and words", tables=[*missing, tables.accuracy_table(scores, sides)])


def _cut_section(
    title: str,
    cut: str,
    scores: Scores,
    table_of: Callable[[str, str, Sequence[str]], Table],
    sentences: Sequence[str] = (),
) -> Section:
    """Return the rows of one cut: the measures of the verdict drawn, the others folded away."""
    found = {metric: table_of(metric, cut, _values(scores, cut)) for metric in METRICS}
    first, others = (
        [table for metric, table in found.items() if table.rows and (metric in AT_ONCE) == at_once]
        for at_once in (True, False)
    )
    folded = Section(f"The other measures {title[0].lower()}{title[1:]}", tables=others, folded=True)
    return Section(title, sentences if first else (), first, parts=[folded], first_screen=cut == BIAS_TYPE)


def _spread_section(used: Sequence[pd.DataFrame], types: Sequence[str], sides: Sequence[str]) -> Section:
    """Return the paper's Figure 2: how the pairs are spread around the decision boundary."""
    figures, numbers = [], []
    for column, (factor, decimals, towards) in DRAWN.items():
        if any(column not in table for table in used):
            continue
        rows = [row for row in _spreads(used, column, factor, types) if any(map(len, row.differences.values()))]
        if not rows:
            continue
        caption, ends = text.drawn[column]["caption"], text.drawn[column]["ends"]
        chart, beyond = spread_chart(caption, rows, ends, towards, decimals)
        dots = any(0 < len(values) < FEW for row in rows for values in row.differences.values())
        figures.append(Figure(caption, svg(chart), text.spread(FEW if dots else 0, beyond)))
        numbers.append(tables.quartiles(caption, rows, sides, decimals))
    part = Section("The same as tables", tables=numbers, folded=True)
    sentences = [text.boundary] if figures else []
    return Section("How the pairs are spread around the boundary", sentences, figures=figures, parts=[part])


def _spreads(used: Sequence[pd.DataFrame], column: str, factor: float, types: Sequence[str]) -> list[Spread]:
    def spread(label: str, cuts: Iterable[pd.DataFrame]) -> Spread:
        values = (cut[column].to_numpy(float) * factor for cut in cuts)
        return Spread(label, {role: each[np.isfinite(each)] for role, each in zip(roles, values, strict=True)})

    roles = ("before", "after")[: len(used)]
    by_type = [spread(value, (table[table[BIAS_TYPE] == value] for table in used)) for value in types]
    return [spread("all pairs", used), *by_type]


def _example_section(used: pd.DataFrame) -> Section:
    """Return the pairs with the largest differences either way and, folded away, those nearest to the boundary."""
    ordered = used[np.isfinite(used[DIFFERENCE])].sort_values([DIFFERENCE, PAIR_ID], kind="stable")
    likelier, unlikelier = _both_ends(ordered, DIFFERENCE)
    rest = ordered.drop(index=[*likelier.index, *unlikelier.index])
    nearest = rest.loc[rest[DIFFERENCE].abs().sort_values(kind="stable").index[:PAIRS_AT_BOUNDARY]]

    def facts(row: Mapping) -> str:
        text = f"difference {number(row[DIFFERENCE], 2, sign=True)} nats"
        if math.isfinite(row.get("s_jsd", math.nan)):
            text += f" · S_JSD {number(row['s_jsd'] * 1000, 1, sign=True)} {UNIT}"
        return text

    parts = [
        _pairs("Where the more stereotypical sentence is likelier by most", likelier, facts),
        _pairs("Where the less stereotypical sentence is likelier by most", unlikelier, facts),
        _pairs("Pairs nearest to the boundary", nearest, facts, folded=True),
    ]
    return Section("Pairs to read", [text.of_pairs] if any(part.shown for part in parts) else [], parts=parts)


def _moved_section(before: pd.DataFrame, after: pd.DataFrame, sides: tuple[str, str]) -> Section:
    """Return the pairs whose difference changed most between the models, if both read the same sentences."""
    joined = before.assign(now=after[DIFFERENCE], moved=after[DIFFERENCE] - before[DIFFERENCE])
    joined = joined[np.isfinite(joined["moved"]) & (before[[MORE, LESS]] == after[[MORE, LESS]]).all(axis=1)]
    towards, away = _both_ends(joined.sort_values(["moved", PAIR_ID], kind="stable"), "moved")

    def facts(row: Mapping) -> str:
        was, now = (number(row[column], 2, sign=True) for column in (DIFFERENCE, "now"))
        return f"difference {was} ({sides[0]}), {now} ({sides[1]}), in nats"

    parts = [
        _pairs("Moved most towards the more stereotypical sentence", towards, facts),
        _pairs("Moved most towards the less stereotypical sentence", away, facts),
    ]
    return Section("Pairs that changed most", [text.of_pairs] if any(part.shown for part in parts) else [], parts=parts)


def _both_ends(ordered: pd.DataFrame, column: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the few rows furthest above 0, and those furthest below."""
    above, below = ordered[ordered[column] > 0], ordered[ordered[column] < 0]
    return above.iloc[::-1].head(PAIRS_AT_EACH_END), below.head(PAIRS_AT_EACH_END)


def _pairs(title: str, rows: pd.DataFrame, facts: Callable[[Mapping], str], folded: bool = False) -> Section:
    """Return pairs to read, with what is told of each."""
    examples = []
    for row in rows.to_dict("records"):
        cuts = [str(row[it]) for it in (BIAS_TYPE, DIRECTION) if isinstance(row[it], str)]
        names = [visible(it, tables.MAX_NAME_LENGTH) for it in (*cuts, str(row[PAIR_ID]))]
        more, less = differing(str(row[MORE]), str(row[LESS]))
        heading = " · ".join([*names[:-1], f"pair {names[-1]}", facts(row)])
        examples.append(Example(heading, (("more stereotypical", more), ("less stereotypical", less))))
    return Section(title, examples=examples, folded=folded)


def differing(one: str, other: str) -> tuple[tuple[tuple[str, bool], ...], tuple[tuple[str, bool], ...]]:
    """Return both sentences in parts, each with whether it is not in the other sentence; by words, else by letters.

    >>> differing("He is old.", "She is old.")
    ((('He', True), (' is old.', False)), (('She', True), (' is old.', False)))
    """
    space = " " if " " in one and " " in other else ""
    words = [text.split(" ") if space else list(text) for text in (one, other)]
    parts: tuple[list, list] = ([], [])
    for tag, *spans in SequenceMatcher(None, *words, autojunk=False).get_opcodes():
        for of_one, side, (start, end) in zip(parts, words, (spans[:2], spans[2:]), strict=True):
            if start < end:
                before = space if start else ""
                same = tag == "equal"
                if before and not same:
                    of_one.append((before, False))
                of_one.append(((before if same else "") + space.join(side[start:end]), not same))
    return tuple(parts[0]), tuple(parts[1])
