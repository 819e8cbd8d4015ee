"""The tables of a report: checks of the headline, changes, costs, and the warnings about them."""

import math
import re
from dataclasses import replace

import pandas as pd
import pytest

from evenhand.evaluation.families.generation_bias.report import change_tables as changes
from evenhand.evaluation.families.generation_bias.report import tables
from evenhand.evaluation.families.generation_bias.report.sections import report_page
from evenhand.evaluation.families.generation_bias.report.warnings import warnings
from evenhand.evaluation.report.html import page_html
from evenhand.evaluation.report.markdown import page_markdown
from evenhand.evaluation.report.tables import format_table
from tests.evaluation.families.generation_bias.conftest import changes_of, phrase_row, samples, score, style_rows
from tests.report_pages import printed

POOLED = "fgb_pooled_corrected"


@pytest.fixture
def changed(tuned):
    return replace(
        tuned,
        tables=tuned.tables | changes_of("Kind", "deaf", "ability", "so sorry", "sympathy", "CARE", "books"),
        chosen_samples=samples(["deaf"]),
        differences=[
            *tuned.differences,
            score("parroting_rho", 0.19, (0.1, 0.28), 0.000002),
            score("frequency_rho", -0.4, (-0.6, -0.1), 0.004, cluster="CARE", run="before"),
            score("frequency_rho", math.nan, reason="all are equal", cluster="CARE", run="after"),
        ],
    )


def texts(table):
    return [[row.label, *(f"{cell.text} {cell.interval}".strip() for cell in row.cells)] for row in table.rows]


def test_reductions_have_a_column_and_a_dash_has_a_reason(tuned):
    reductions = [
        score(f"{POOLED}_reduction", 0.683, (0.6, 0.77), axis="ability"),
        score(f"{POOLED}_reduction", math.nan, reason="nothing to divide by", axis="nonce"),
    ]
    (table,) = tables.main_tables(replace(tuned, differences=[*tuned.differences, *reductions]), "axis", "axis")
    assert table.columns[-1] == "reduction"
    assert texts(table)[0][-1] == "68 % [60, 77]"
    assert texts(format_table(table))[1][1:] == ["–¹", "–¹", "", "–²"]
    assert format_table(table).note == "–¹ undefined: only one descriptor; –² undefined: nothing to divide by."
    assert tables.main_tables(tuned, "axis", "axis")[0].columns[-1] != "reduction"


def test_the_terminal_stays_narrow_without_the_reductions(tuned):
    reduction = score(f"{POOLED}_reduction", 0.683, (0.6, 0.77), axis="ability")
    data = replace(tuned, differences=[*tuned.differences, reduction])
    assert "reduction" not in printed(report_page(data)) and "| reduction |" in page_markdown(report_page(data))


def test_styles_with_the_largest_change(changed):
    table = changes.style_change_table(changed)
    assert texts(table) == [["Kind", "4.00 [3.00, 5.00]", "1.00", "−3.00 [−3.50, −2.50]", "< 0.0001"]]
    assert "the 1 of 1 that changed most" in table.caption and "1 vary less" in table.note
    assert {mark.role: mark.value for mark in table.rows[0].marks} == {"before": 4.0, "after": 1.0}
    moved = changes.mean_style_table(changed)
    assert texts(moved) == [["Kind", "5.0 → 2.0", "deaf 50.0\u00a0→\u00a010.0", "not deaf 10.0\u00a0→\u00a030.0"]]


def test_styles_are_the_largest_changes_in_order_and_a_rise_is_marked(tuned):
    rows = [(f"s{place:02d}", 0.001 * place, 0.0, -0.1, 0.1, 0.5) for place in range(20)]
    rows.append(("risen", 0.0, 0.05, 0.04, 0.06, 0.001))
    frame = style_rows(*rows).sort_values("change", ignore_index=True)
    table = changes.style_change_table(replace(tuned, tables={"style_changes": frame}))
    assert [row.label for row in table.rows] == [f"s{place:02d}" for place in range(19, 8, -1)] + ["risen"]
    assert [row.direction for row in table.rows] == [0] * 11 + [1]


def test_undefined_styles_are_left_out(tuned):
    frame = style_rows(("Kind", math.nan, math.nan, math.nan, math.nan, math.nan))
    assert not changes.style_change_table(replace(tuned, tables={"style_changes": frame})).rows


def test_phrases_by_set_of_descriptors(tuned):
    frame = pd.DataFrame(
        [
            phrase_row("sympathy", "so sorry", "sympathy", ["deaf"], 0.12, 0.03),
            phrase_row("sympathy", "so sorry", "confusion", ["pan"], 0.01, 0.02),
            phrase_row("sympathy", "so sorry", "all others", ["a", "b"], 0.05, 0.04),
            phrase_row("confusion", "what?", "sympathy", ["deaf"], 0.0, 0.0),
            phrase_row("confusion", "what?", "confusion", ["pan"], 0.2, 0.1),
            phrase_row("confusion", "what?", "all others", ["a", "b"], 0.0, 0.0),
            *(phrase_row("confusion", "never", it, [], 0.0, 0.0) for it in ("sympathy", "confusion", "all others")),
        ]
    )
    expected, other = changes.phrase_tables(replace(tuned, tables={"phrases": frame}))
    assert [[row.label for row in table.rows] for table in expected] == [["“so sorry”"], ["“what?”"]]
    assert texts(expected[0])[0][1:] == ["12.0 [6.0, 24.0]", "3.0 [1.5, 6.0]", "−9.0 [−10.0, −8.0]", "0.01"]
    assert expected[0].note.startswith("deaf: 1,200 responses") and "“never”" in expected[0].note
    assert [[row.label for row in table.rows] for table in other] == [
        ["“what?” (confusion)"],
        ["“so sorry” (sympathy)"],
        ["“so sorry” (sympathy)", "“what?” (confusion)"],
    ]
    assert other[-1].caption.endswith("the 2 other descriptors")


def test_absent_phrases_are_named(tuned):
    frame = pd.DataFrame([phrase_row("g", "hum", it, [], 0.0, 0.0) for it in ("g", "all others")])
    data = replace(tuned, tables={"phrases": frame})
    assert "“hum”" in page_html(report_page(data)) and "“hum”" in page_markdown(report_page(data))


def test_parroting_by_descriptor(changed, tuned):
    assert texts(changes.parroting_table(changed)) == [
        ["deaf", "ability", "25.0", "50.0", "+25.0", "200.00", "104"]
    ]  # shares in percent, b in thousandths
    assert "+0.19 (95 % interval +0.10 to +0.28, p < 0.0001)" in page_markdown(report_page(changed)).replace("\\", "")
    undefined = replace(changed, differences=[score("parroting_rho", math.nan, reason="nothing to rank")])
    assert "is undefined: nothing to rank." in page_markdown(report_page(undefined))
    without = changed.tables["parroting"].assign(mean_b=math.nan)
    assert texts(changes.parroting_table(replace(changed, tables={"parroting": without})))[0][-2:] == ["", "104"]


def test_frequencies(changed):
    assert texts(changes.frequency_table(changed)) == [["CARE", "−0.40 [−0.60, −0.10]", "undefined"]]
    numbers = r"books contains 5 usages .* 1,000 examples; 1 of the 2 descriptors"
    assert re.search(numbers, page_markdown(report_page(changed)))


def test_html_and_markdown_contain_all_changes(changed):
    page, source = page_html(report_page(changed)), page_markdown(report_page(changed))
    for text in ("Kind", "“so sorry”", "The corpus books", "Spearman’s ρ", "deaf 50.0"):
        assert text in page and text in source, text
    assert page.count('class="prompt"') == 3  # two samples, and one of the descriptor with the highest b
    assert "one of the descriptors with the highest mean b" in page


def test_without_changes_there_is_no_section(tuned):
    page, source = page_html(report_page(tuned)), page_markdown(report_page(tuned))
    for heading in ("What tuning changed", "Style against frequency", "Share of each style cluster"):
        assert heading not in page and heading not in source


@pytest.fixture
def checked(tuned):
    """Tuned on: 12 to 1 ×10⁻³, never tuned on: 8 to 6."""
    differences = []
    for seen, before, change, reduction in (("yes", 0.012, -0.011, 0.917), ("no", 0.008, -0.002, 0.25)):
        difference = score(f"{POOLED}_difference", change, (change - 0.001, change + 0.001), 0.001, seen=seen)
        differences.append(replace(difference, ideal=-before))
        differences.append(score(f"{POOLED}_reduction", reduction, (reduction - 0.1, reduction + 0.1), seen=seen))
    return replace(tuned, differences=[*tuned.differences, *differences])


def test_checks_compare_prompts_that_tuning_used_with_others(checked, tuned):
    assert texts(tables.check_table(checked)) == [
        ["descriptors tuned on", "12.00", "1.00", "−11.00 [−12.00, −10.00]", "0.001", "92 % [82, 102]"],
        ["descriptors never tuned on", "8.00", "6.00", "−2.00 [−3.00, −1.00]", "0.001", "25 % [15, 35]"],
    ]
    assert "axes never tuned on" in page_html(report_page(replace(checked, unseen_by="axis")))
    assert not tables.check_table(tuned).rows


def test_scores_by_the_second_classifier_are_checks(tuned, single):
    reduction = score(f"{POOLED}_reduction", 0.5, (0.4, 0.6), classifier="second")
    difference = replace(score(f"{POOLED}_difference", -0.01, (-0.02, -0.005), classifier="second"), ideal=-0.02)
    data = replace(tuned, differences=[*tuned.differences, difference, reduction])
    assert [row.label for row in tables.check_table(data).rows] == ["by the second style classifier"]
    second = score(POOLED, 0.02, (0.01, 0.03), classifier="second")
    table = tables.check_table(replace(single, scores_before=[*single.scores_before, second]))
    assert table.columns == ("check", "value")
    assert texts(table) == [["by the second style classifier", "20.00 [10.00, 30.00]"]]


def with_scores(data, metric, before, after, difference=None, **group):
    differences = [score(f"{metric}_difference", *difference, **group)] if difference else []
    return replace(
        data,
        scores_before=[*data.scores_before, score(metric, *before, **group)],
        scores_after=[*data.scores_after, score(metric, *after, **group)],
        differences=[*data.differences, *differences],
    )


def test_an_increase_of_offensive_responses_has_a_warning(tuned):
    data = with_scores(
        tuned, "offensive_share", (0.06, (0.05, 0.07)), (0.065, (0.055, 0.075)), (0.005, (0.002, 0.008), 0.001)
    )
    (warning,) = [text for text in warnings(data) if "offensive" in text]
    for number in ("6.00 % to 6.50 %", "+0.50", "+0.20 to +0.80", "p = 0.001"):
        assert number in warning
    assert re.search("offensive: 6.0 % before, 6.5 % after", page_markdown(report_page(data)))
    row = ["offensive, %", "6.00 [5.00, 7.00]", "6.50 [5.50, 7.50]", "+0.50 [+0.20, +0.80]"]
    assert row in texts(tables.cost_table(data))


@pytest.mark.parametrize(
    ("cluster", "after", "difference", "has_warning"),
    [
        ("HATE", (0.06, (0.055, 0.065)), None, True),  # the intervals do not overlap
        ("ENVY", (0.06, (0.055, 0.065)), None, True),
        ("HATE", (0.05, (0.041, 0.059)), None, False),
        ("HATE", (0.05, (0.041, 0.059)), (0.01, (0.004, 0.016), 0.01), True),  # the paired difference is significant
        ("HATE", (0.06, (0.055, 0.065)), (0.02, (-0.01, 0.05), 0.2), False),
        ("CARE", (0.06, (0.055, 0.065)), None, False),  # not harmful
        ("HATE", (0.02, (0.015, 0.025)), None, False),
    ],
)
def test_an_increase_of_a_harmful_cluster_has_a_warning(tuned, cluster, after, difference, has_warning):
    data = with_scores(tuned, "style_share", (0.04, (0.035, 0.045)), after, difference, cluster=cluster)
    page_warnings = [text for text in warnings(data) if text.startswith(f"The share of {cluster} among the styles")]
    assert bool(page_warnings) == has_warning
    assert all(f"4.00 % to {100 * after[0]:.2f} %" in text for text in page_warnings)
    assert all(("do not overlap" in text) == (difference is None) for text in page_warnings)
    assert (
        bool(re.search(r'class="warnings".*The share of ' + cluster, page_html(report_page(data)), re.DOTALL))
        == has_warning
    )
    (row,) = tables.style_share_table(data).rows
    assert (row.direction > 0) == has_warning
    assert texts(tables.style_share_table(data))[0][1] == "4.00 [3.50, 4.50]"
