"""Sections on effects: the largest in sentences with responses, a map, a table of all, and changes before and after.

All numbers are percentage points of mean probability; differences are shrunk toward 0, with 95 % intervals.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from urllib.parse import quote

import numpy as np
import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effects import (
    GROWN,
    IN_USE,
    INCONCLUSIVE,
    KEPT,
    NEW,
    REDUCED,
    REMOVED,
    SHOWN,
    TURNED,
    WORTH_A_LOOK,
    detectable_sizes,
    effects_figure,
)
from evenhand.evaluation.metrics.generation_bias.metric import DETECTABLE, MOVED, SHARE, SHIFT, root
from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.report.figures import svg
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT, interval, number, p_value, percent, sanitize, span
from evenhand.evaluation.report.page import Cell, Example, Figure, Mark, Row, Section, Table
from evenhand.evaluation.score import DESCRIPTOR, NOUN, RESPONSE, TEMPLATE, TEXT, BiasScore, find_score
from evenhand.evaluation.statistics.cells import to_codes

N_SENTENCES, MAX_ROWS = 5, 600  # effects in sentences and in the table
CHANGE_SENTENCES = (((REMOVED, REDUCED), 5), ((NEW, GROWN, TURNED), 3), ((KEPT,), 2))  # largest number of each
MAP_NOTE = (
    "Mean probability of a group of styles, less the average of all descriptors, for the descriptors with the largest "
    "differences. Orange is more than the average, purple is less; a dot marks a shown difference."
)
CERTAINTY_NOTE = (
    "“Shown”: if nothing differed, 5 of 100 such measurements would show anyone at all. “Worth a look”: about one in "
    "ten of these is chance. Differences are shrunk toward 0 and have 95 % intervals. A link leads to the responses."
)
STYLE_IN_USE = f"descriptor and a style of at least {IN_USE:.0%} of the responses"
CHANGES_NOTE = (
    "“Removed”: shown before, not after, and the change is shown. “Reduced” and “grown”: shown before and after, and "
    "the change is shown. “Kept”: shown before and after, no change is shown. “New”: shown after only, and the change "
    "is shown. “Open”: anything else. All effects are in effect_changes.parquet."
)


def lead_sections(
    effects: pd.DataFrame, scores: Sequence[BiasScore], example_of: Callable[[Mapping], Example]
) -> list[Section]:
    """Return the sections that open a report; [] if the table of effects is empty.

    Args:
        effects: the result of `effects`.
        scores: the scores of the run.
        example_of: function of an effect that returns responses that carry it (`effect_example`).
    """
    if not len(effects):
        return []
    claims = [replace(example_of(row), claim=effect_text(row)) for row in named_effects(effects)]
    size = filter(None, (_scale_text(scores), _share_text(scores), _resolution_text(effects, scores)))
    columns = ("descriptor or group", "axis", "style", "difference", "certainty", "mean", "average", "p, all tests")
    caption = "Effects on descriptors and groups; mean probability of the style in %, difference in percentage points"
    rows = [_row(row) for row in effects.head(MAX_ROWS).to_dict("records")]
    n_more = len(effects) - len(rows)
    note = f"{n_more:,} smaller effects are not in this table; effects.parquet has all." if n_more else ""
    title = "How large it is, and what this measurement can detect"
    return [
        Section(
            "Who is treated how",
            [_summary_text(effects)],
            examples=claims,
            parts=[Section(title, list(size), first_screen=True)],
            first_screen=True,
        ),
        Section("Largest effects at a glance", [MAP_NOTE], figures=[Figure("", svg(effects_figure(effects)))]),
        Section(
            "All effects",
            [CERTAINTY_NOTE],
            [Table(caption, columns, tuple(rows), note, filters=("axis", "style", "certainty"))],
        ),
    ]


def named_effects(effects: pd.DataFrame) -> list[dict]:
    """Return the largest shown effect of each descriptor or group, at most N_SENTENCES."""
    shown = effects[effects["certainty"] == SHOWN].drop_duplicates(["kind", "unit"])
    return shown.head(N_SENTENCES).to_dict("records")


def effect_text(row: Mapping) -> str:
    """Return an effect as a sentence: who gets more or fewer responses of a style, in percent and points."""
    who = f"“{sanitize(row['unit'], 60)}”" if row["kind"] == DESCRIPTOR else f"The {row['kind']} “{plain(row['unit'])}”"
    return (
        f"{who} gets {more_or_fewer(row)} “{plain(row['name'])}” responses: {points(row['mean'])} % against "
        f"{points(row['average'])} % on average; corrected for chance, {points(row['shrunk'], sign=True)} points "
        f"(95 % interval {span((row['low'], row['high']), 1, True, 100)})."
    )


def plain(name: str) -> str:
    """Return a name from a table as words: SYMPATHY and body_type become sympathy and body type."""
    words = sanitize(name.replace("_", " ").replace("(none)", "other"), 60)
    return words.lower() if words == words.upper() else words


def points(share: float, decimals: int = 1, sign: bool = False) -> str:
    """Return a share in percent, or a difference of shares in percentage points, without the unit."""
    return number(100 * share, decimals, sign)


def more_or_fewer(row: Mapping) -> str:
    """Return "more" if an effect is above 0, else "fewer"."""
    return "more" if row["shrunk"] > 0 else "fewer"


def _unit(row: Mapping) -> str:
    return sanitize(row["unit"], 60) if row["kind"] == DESCRIPTOR else f"{plain(row['unit'])} ({row['kind']})"


def _summary_text(effects: pd.DataFrame) -> str:
    n_shown, n_leads = (int((effects["certainty"] == level).sum()) for level in (SHOWN, WORTH_A_LOOK))
    text = f"None of {len(effects):,} effects is shown."
    if n_shown:
        text = (
            f"{n_shown:,} of {len(effects):,} effects {'are' if n_shown > 1 else 'is'} shown: if nothing differed, a "
        )
        text += "list like this would contain anyone at all in 5 of 100 such measurements."
    if n_leads:
        text += f" {n_leads:,}{' more' if n_shown else ''} {'are' if n_leads > 1 else 'is'} worth a look: "
        text += "about one in ten of these is chance." if n_leads > 1 else "it may be chance."
    return f"{text} The largest, as mean probability of the style:" if n_shown else text


def _scale_text(scores: Sequence[BiasScore]) -> str:
    moved, shift = (find_score(scores, name) for name in (MOVED, SHIFT))
    if not (moved and shift and math.isfinite(moved.value)):
        return ""
    bounds = f" (95 % interval {span(moved.interval, 1, False, 100)})" if moved.interval else ""
    return (
        "On average, the mix of styles that a descriptor gets is as far from the mix of all as if "
        f"{points(moved.value)} of 100 responses{bounds} had changed from one style to another (root mean square over "
        f"descriptors; as a distance, {points(shift.value)} points)."
    )


def _share_text(scores: Sequence[BiasScore]) -> str:
    shares = {score.group["source"]: score for score in scores if score.metric == SHARE}
    if not shares or any(math.isnan(score.value) for score in shares.values()):
        return ""
    texts = {
        source: f"{percent(it.value, 1)} {interval(it.interval and tuple(100 * end for end in it.interval), 1)}".strip()
        for source, it in shares.items()
    }
    return (
        f"Of all variance in style, {texts['descriptor']} is due to the descriptor, {texts['template']} to the "
        f"template, {texts['interaction']} to both together, and {texts['chance']} is chance: two responses to one "
        "prompt differ. The verdict uses the descriptor’s part, the only one that is the same in all templates."
    )


def _resolution_text(effects: pd.DataFrame, scores: Sequence[BiasScore]) -> str:
    """Return a sentence with the effect and the spread that this run detects with a probability of 80 %, or ""."""
    of_descriptors = effects[(effects["kind"] == DESCRIPTOR) & (effects["outcome"] == "style")]
    (effect, worst), n = detectable_sizes(effects), int(of_descriptors.drop_duplicates("unit")["n"].sum())
    spread = find_score(scores, DETECTABLE)
    parts = []
    if spread and math.isfinite(spread.value):
        moved = points(root(spread.value, None, 2.0)[0])
        parts.append(
            f"a difference over all descriptors as if {moved} of 100 responses changed their style (pooled FGB* of "
            f"{number(PER_UNIT * spread.value)} {UNIT})"
        )
    if np.isfinite(effect):
        parts.append(
            f"a single effect of {points(effect)} points (median; at worst {points(worst)}) on a {STYLE_IN_USE}"
        )
    return parts and (
        f"With its {n:,} responses, this measurement shows with a probability of 80 % {', and '.join(parts)}. About "
        f"four times as many responses, {4 * n:,}, show half of that."
    )


def _row(row: Mapping) -> Row:
    cells = (
        Cell(plain(row["axis"]), prose=True),
        Cell(plain(row["name"]), prose=True),
        Cell(points(row["shrunk"], sign=True), _interval(row)),
        Cell(row["certainty"], prose=True),
        Cell(points(row["mean"])),
        Cell(points(row["average"])),
        Cell(p_value(row["p_family"])),
    )
    column, value = (DESCRIPTOR, row["unit"]) if row["kind"] == DESCRIPTOR else ("axis", row["axis"])
    return Row(_unit(row), cells, href=f"./responses.html#{column}={quote(value, safe='')}")


def effect_example(
    run: StyledResponses, effect: Mapping, columns: Sequence[int], offensive: Sequence[bool] | None = None
) -> Example:
    """Return a response that shows an effect, next to a response to other descriptors, each under its prompt.

    The response with the largest probability of the style shows the effect. It is a response to the unit (a descriptor
    or a group) if the unit has more of the style than the average, else one to other descriptors. Next to it is a
    random response of the other side to the same template and, if possible, the same noun; the draw has a fixed seed.
    The example is empty if the other side has no response to any such template.

    Args:
        run: all prompts, responses and style vectors of a run.
        effect: a row of the table of effects.
        columns: the columns of the effect's styles.
        offensive: whether each response is offensive, and hidden, (n,); None without an offensiveness classifier.
    """
    table, template = run.table, to_codes(run.table[TEMPLATE])
    unit = table[DESCRIPTOR].astype(str) if effect["kind"] == DESCRIPTOR else run.groups()[effect["kind"]]
    p, is_own = run.vectors[:, list(columns)].sum(axis=1), (unit == effect["unit"]).to_numpy()
    sides = is_own & np.isfinite(p), ~is_own & np.isfinite(p)
    carriers, others = sides if effect["shrunk"] > 0 else sides[::-1]
    rows = np.flatnonzero(carriers & np.isin(template, template[others]))
    if not len(rows):
        return Example("", ())
    row = int(rows[np.argmax(p[rows])])
    alike = others & (template == template[row])
    same_noun = alike & (table[NOUN] == table[NOUN].iloc[row]).to_numpy() if NOUN in table else alike
    among = np.flatnonzero(same_noun if same_noun.any() else alike)
    pair = row, int(np.random.default_rng(row).choice(among))
    texts = tuple((table[TEXT].iloc[place], table[RESPONSE].iloc[place]) for place in pair)
    hidden = frozenset(n for n in (0, 1) if offensive is not None and offensive[pair[n]])
    return Example("", texts, hidden=hidden)


def effect_change_section(changes: pd.DataFrame) -> Section:
    """Return the section on changed effects; it has no content if the table of changes is empty.

    The section has sentences on the largest removed or reduced effects, then on new, grown or reversed effects, then on
    kept effects, and a folded table.
    """
    title = "Who is treated how, before and after"
    if not len(changes):
        return Section(title)
    single = changes[changes["outcome"] == "style"]
    sentences = [_changes_summary(single)]
    for names, most in CHANGE_SENTENCES:
        rows = single[single["transition"].isin(names)].head(most)
        sentences += map(_change_text, rows.to_dict("records"))
    smallest, worst = detectable_sizes(changes)
    if np.isfinite(smallest) and not (single["certainty"] == SHOWN).any():
        sentences.append(
            f"This comparison shows a change of an effect on a {STYLE_IN_USE} with a probability of 80 % from "
            f"{points(smallest)} percentage points (median; at worst {points(worst)}). Four times as many responses "
            "show half of it."
        )
    levels = changes[["certainty_before", "certainty_after"]]
    listed = changes[(levels == SHOWN).any(axis=1) | (changes["certainty"] != INCONCLUSIVE)]
    rows = [_change_row(row) for row in listed.head(MAX_ROWS).to_dict("records")]
    more = f" {len(listed) - len(rows):,} more are in effect_changes.parquet." if len(listed) > len(rows) else ""
    columns = ("descriptor or group, style", "became", "mean", "difference", "change", "certainty", "p, all tests")
    caption = (
        "Effects before and after tuning; mean probability in %, differences and their change in percentage points"
    )
    table = Table(caption, columns, tuple(rows), f"{CHANGES_NOTE}{more}" if rows else "")
    listed_title = "All effects that are shown before or after, and all changes that are shown or worth a look"
    part = Section(listed_title, tables=[table], folded=True)
    return Section(title, sentences, parts=[part], first_screen=True)


def _changes_summary(changes: pd.DataFrame) -> str:
    counts = changes.loc[changes["certainty_before"] == SHOWN, "transition"].value_counts().to_dict()
    names = (REMOVED, REDUCED, KEPT, GROWN, NEW, TURNED, INCONCLUSIVE)
    total, n_new = sum(counts.values()), int((changes["transition"] == NEW).sum())
    n_changes = int((changes["certainty"] == SHOWN).sum())
    before = f"None of {len(changes):,} effects is shown before tuning."
    if total:
        parts = ", ".join(f"{counts[name]:,} {name}" for name in names if name in counts)
        before = f"{total:,} of {len(changes):,} effects {'is' if total == 1 else 'are'} shown before tuning: {parts}."
    new = f"{n_new:,} {'are' if n_new > 1 else 'is'} new after tuning." if n_new else "None is new after tuning."
    shown = "No change of an effect is shown."
    if n_changes:
        verb = "changes are" if n_changes > 1 else "change is"
        shown = f"{n_changes:,} {verb} shown: if nothing had changed, 5 of 100 comparisons would show any."
    return f"{before} {new} {shown}"


def _change_text(row: Mapping) -> str:
    who = f"“{sanitize(row['unit'], 60)}”" if row["kind"] == DESCRIPTOR else f"“{plain(row['unit'])}” ({row['kind']})"
    return (
        f"{who}: {sanitize(row['name'], 60)} {_both(row, 'mean')} % (average {_both(row, 'average')} %), change of the "
        f"difference {points(row['shrunk'], sign=True)} points {_interval(row)}: {row['transition']}"
        f"{', no change is shown' if row['transition'] == KEPT else ''}."
    )


def _change_row(row: Mapping) -> Row:
    cells = (
        Cell(row["transition"], prose=True),
        Cell(_both(row, "mean")),
        Cell(_both(row, "shrunk", sign=True)),
        Cell(points(row["shrunk"], sign=True), _interval(row)),
        Cell(row["certainty"], prose=True),
        Cell(p_value(row["p_family"])),
    )
    marks = tuple(Mark(side, 100 * row[f"shrunk_{side}"], None) for side in ("before", "after"))
    return Row(f"{_unit(row)}, {plain(row['name'])}", cells, marks)


def _both(row: Mapping, name: str, sign: bool = False) -> str:
    return " → ".join(points(row[f"{name}_{side}"], sign=sign) for side in ("before", "after"))


def _interval(row: Mapping) -> str:
    return interval((100 * row["low"], 100 * row["high"]), 1, sign=True)
