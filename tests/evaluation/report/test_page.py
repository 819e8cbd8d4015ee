"""Any page is complete and safe, as HTML and on the terminal, also with hostile texts."""

import io
import math
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from rich.console import Console

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import sentence_pairs  # noqa: F401 (declares the metrics of the scores here)
from evenhand.evaluation.report import output
from evenhand.evaluation.report.html import page_html, row_plot, row_scale
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.report.output import present
from evenhand.evaluation.report.page import (
    SCORES_TITLE,
    Cell,
    Example,
    Figure,
    Mark,
    Page,
    Row,
    Section,
    Step,
    Table,
    format_table,
)
from evenhand.evaluation.report.score_sections import score_section, score_sections
from evenhand.evaluation.report.terminal import print_page
from evenhand.evaluation.score import BiasScore
from tests.named_scores import named_score
from tests.parsed_page import ParsedPage, assert_inert, without_script
from tests.report_pages import HOSTILE, picture

ROWS = (
    Row("age", (Cell("55.0", "[51.0, 59.0]"), Cell("0.012")), (Mark("before", 55.0, (51.0, 59.0)),)),
    Row("nonce", (Cell("undefined", reason="only one pair"), Cell(""))),
)
PLOTTED = Table("By type", ("type", "value", "p"), ROWS, note="A note.", ideal=50.0)
PLAIN = Table("Plain", ("measure", "value"), (Row("CPS", (Cell("55.0"),)),))
PAGE = Page(
    title="A title",
    subtitle="a model",
    date="2025-11-21",
    headline_value="55 %",
    headline_caption="of pairs",
    verdict="It leans.",
    warnings=["Beware."],
    notes=["A word on it."],
    sections=[
        Section(SCORES_TITLE, tables=[PLAIN], first_screen=True),
        Section("First", ["It is so."], [PLOTTED], first_screen=True),
        Section(
            "Second",
            figures=[Figure("A picture", picture("a picture"), "of nothing")],
            parts=[
                Section("Below", tables=[replace(PLAIN, caption="Folded away")], folded=True),
                Section("Texts", examples=[Example("pair 1", (("more", "He is old."),))]),
            ],
        ),
        Section("Folded", ["Seen."], [replace(PLAIN, caption="Not seen at first")], folded=True),
        Section("Empty", tables=[Table("", (), ())], parts=[Section("Empty too")]),
    ],
    glossary=[("CPS", "A share.")],
    limits=["It is limited."],
    signature={"model": {"name": "/home/me/runs/loop/kto/adapter"}, "seed": 3},
)


@cache
def hostile_page() -> Page:
    """Return a page whose texts are all hostile."""
    strings = [it for it in HOSTILE if it]
    rows = tuple(
        Row(it, (Cell("1", "[0, 2]"), Cell("undefined", reason=it)), (Mark("before", 1, (0, 2)),)) for it in strings
    )
    words = " ".join(strings)
    parts = [
        Section(
            it,
            [it],
            [Table(it, (it, "value", it), rows, it)],
            [Figure(it, picture(f"{sanitize(it)} {folded}"), it)],
            [Example(it, ((it, words),))],
            [Section(it, [it], folded=folded, examples=[Example(it, ((it, words),))])],
            folded=folded,
            first_screen=True,
        )
        for it in strings
        for folded in (True, False)
    ]
    return Page(
        *(" ".join(strings)[:900] for _ in range(6)),
        strings,
        strings,
        parts,
        [(it, it) for it in strings],
        strings,
        {it: {it: it} for it in strings},
        ("value", strings[0]),
    )


def printed(page: Page, capsys, monkeypatch) -> str:
    for name in ("FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    print_page(page)
    return capsys.readouterr().out


@pytest.mark.parametrize("make_page", [lambda: PAGE, hostile_page], ids=["plain", "hostile"])
def test_no_code_runs_nothing_is_fetched_and_ids_are_unique(make_page):
    parsed = assert_inert(page_html(make_page()))
    ids = [value for _, name, value in parsed.attributes if name == "id"]
    labels = [value for _, name, value in parsed.attributes if name == "aria-labelledby"]
    assert len(ids) == len(set(ids)) and set(labels) <= set(ids)
    levels = [int(tag[1]) for tag in parsed.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(after - before <= 1 for before, after in pairwise(levels))


def test_hostile_strings_become_text():
    source = page_html(hostile_page())
    text = ParsedPage(source).text.replace("\u00a0", " ")
    for string in filter(None, HOSTILE):
        assert re.sub(r"\s+", " ", sanitize(string)) in text, string
    for raw in ("<script", "<img", "<b>", "\x1b", "\x00", "\u202e", "\u2028"):
        assert raw not in without_script(source).replace('<img class="chart" alt="', "")
    source.encode("utf-8")


def test_the_terminal_escapes_codes_and_markup(capsys, monkeypatch):
    text = printed(hostile_page(), capsys, monkeypatch)
    assert not {"\x1b", "\x00", "\x07", "\u202e"} & set(text)
    out = io.StringIO()
    print_page(hostile_page(), Console(file=out, width=4000, force_terminal=True, color_system="standard"))
    assert "[bold red]markup[/bold red]" in out.getvalue() and "\x1b]8;" not in out.getvalue()


def test_the_terminal_prints_in_100_columns_and_the_verdict_last(capsys, monkeypatch):
    text = printed(PAGE, capsys, monkeypatch)
    positions = [
        text.index(it) for it in ("Plain", "By type", "A note.", "A word on it.", "It leans.", "WARNING  Beware.")
    ]
    assert positions == sorted(positions) and max(map(len, text.split("\n"))) <= 100
    assert "Folded away" not in text and "Not seen at first" not in text and "only one pair" in text


def test_a_command_is_one_line_on_the_terminal_with_whole_paths_and_shortened_for_others(capsys, monkeypatch):
    folder = Path(
        "/home/ann/a long name of a folder/runs/of/the/baseline/that/does/not/fit/into/a/line/of/100/characters"
    )
    step = Step("Plan:", ["evenhand", "plan", folder, Path.cwd() / "runs" / "new", "--to", "/no_think"])
    text = printed(replace(PAGE, steps=[step]), capsys, monkeypatch)
    assert f"    evenhand plan '{folder}' runs/new --to /no_think\n" in text
    assert step.shared_command == "evenhand plan '…/of/100/characters' runs/new --to /no_think"
    assert "ann" not in page_html(replace(PAGE, steps=[step]))


def test_plots_mark_the_ideal_and_comparisons_both_sides():
    scale = row_scale(PLOTTED.rows, 50.0)
    assert scale.low == 50.0 and scale.high < 60
    svg = str(row_plot(PLOTTED.rows[0], scale, 50.0, ("value",)))
    assert re.findall(r'x1="([\d.]+)%"[^>]*class="zero"', svg) == [str(scale(50.0))]
    assert "age: value 55.00 (51.00 to 59.00)" in svg
    one, two = (page_html(replace(PAGE, sides=sides)) for sides in (("value",), ("value", "p")))
    assert 'class="report single"' in one and 'class="before"' not in re.findall(r"<th[^>]*>", one)
    assert '<th scope="col" class="before">value</th>' in two and '<th scope="col" class="after">p</th>' in two


def test_empty_sections_are_omitted_and_folded_sections_are_complete():
    source = page_html(PAGE)
    assert "/home" not in source and "loop/kto/adapter" in source
    assert "Empty" not in source and "<summary>Below</summary>" in source and "He is old." in source
    assert "only one pair" in ParsedPage(source).text


def test_a_closed_pipe_leaves_the_report_and_ends_no_run(tmp_path, monkeypatch):
    def closed(page):
        raise BrokenPipeError

    monkeypatch.setattr(output, "print_page", closed)
    present(tmp_path, {"": PAGE}, write=True, show=True)
    assert (tmp_path / "report.html").is_file()


def test_equal_pages_give_equal_files_without_remnants(tmp_path):
    for folder in ("one", "two"):
        present(tmp_path / folder, {"": PAGE}, write=True, show=False)
    assert (tmp_path / "one" / "report.html").read_bytes() == (tmp_path / "two" / "report.html").read_bytes()
    assert [it.name for it in (tmp_path / "one").iterdir()] == ["report.html"]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        present(tmp_path / "file", {"": PAGE}, write=True, show=False)


def test_undefined_cells_are_dashes_with_one_footnote():
    rows = [
        Row(label, (Cell("undefined", reason=why), Cell("2.0"))) for label, why in (("a", "no rows"), ("b", "odd."))
    ]
    both, one = (Table("T", ("x", "value", "n"), tuple(it), note="A note.") for it in (rows, [rows[0]] * 2))
    assert [row.cells[0].text for row in format_table(both).rows] == ["–¹", "–²"]
    assert re.fullmatch(r"A note\. –¹ .*no rows.*–² .*odd.*", format_table(both).note)
    assert [row.cells[0].text for row in format_table(one).rows] == ["–", "–"]
    assert re.fullmatch(r"A note\. – .*no rows.*", format_table(one).note)


def test_a_wide_table_of_one_run_has_intervals_below_values_and_wraps_names(capsys, monkeypatch):
    cells = tuple(Cell("+1.00", "[+0.90, +1.10]") for _ in range(6))
    table = Table("Wide", ("type", *("a long name",) * 6), (Row("age", cells),))
    text = printed(replace(PAGE, sections=[Section("", tables=[table], first_screen=True)]), capsys, monkeypatch)
    lines = text.splitlines()
    (values,) = (line for line in lines if "+1.00" in line)
    assert values.count("+1.00") == 6 and lines[lines.index(values) + 1].count("[+0.90, +1.10]") == 6
    assert max(map(len, text.split("\n"))) <= 100


def test_a_wide_table_of_many_rows_is_split_and_each_part_names_its_rows(capsys, monkeypatch):
    """Seven columns of 20 characters and a name: four fit into 100 characters, and three are in a second table."""
    names = [f"{letter} · 0.01" for letter in "abcde"]
    cells = tuple(Cell(f"+{number}.00", "[−1,000.0, +1,000.0]") for number in range(7))
    columns = ("setting", *(f"cost {number}" for number in range(7)))
    table = Table("Wide", columns, tuple(Row(name, cells) for name in names))
    text = printed(replace(PAGE, sections=[Section("", tables=[table], first_screen=True)]), capsys, monkeypatch)
    assert text.count("[−1,000.0, +1,000.0]") == 7 * len(names)
    assert [text.count(name) for name in (*names, "setting", "cost 6")] == [2] * len(names) + [2, 1]
    assert max(map(len, text.split("\n"))) <= 100


def test_the_column_of_n_is_named_by_what_the_scores_count():
    """Scores that count several things have their noun in the cell."""
    pairs = named_score("cps", 55.0, 50.0, (0.0, 100.0), 1200, group={"axis": "age"}, n_of="pairs")
    languages = named_score("cps", 51.0, 50.0, (0.0, 100.0), 3, group={"axis": "all"}, n_of="languages")
    unknown = named_score("cps", 50.0, 50.0, (0.0, 100.0), 7, group={"axis": "x"})

    def shown(*scores):
        (table,) = score_section("By axis", scores, "axis").tables
        return table.columns[-1], [row.cells[-1].text for row in table.rows]

    assert shown(pairs) == ("pairs", ["1,200"])
    assert shown(languages) == ("languages", ["3"])
    assert shown(pairs, languages, unknown) == ("n", ["1,200 pairs", "3 languages", "7"])
    assert [table.caption for table in score_sections([replace(pairs, group={})])[0].tables] == ["All pairs; ideal 50"]


def test_the_default_section_shows_values_intervals_ideal_counts_and_reasons():
    def score(axis: str, value: float, metric: str = "cps", **fields) -> BiasScore:
        return named_score(metric, value, 50.0, (0.0, 100.0), group={"axis": axis}, n_of="pairs", **fields)

    scores = [
        score("age", 55.0, n=40, interval=(51.0, 59.0), p_value=0.01),
        score("body_type", 60.0, n=10, n_left_out=3),
        score("nonce", math.nan, n=0, reason="no pair"),
        score("age", 52.0, "aul", n=40),
    ]
    section = score_section("By axis", scores, "axis", ["So."])
    (table,), (folded,) = section.tables, section.parts
    assert table.columns == ("axis", "value", "pairs", "left out") and table.caption == "CPS, %; ideal 50"
    assert [row.label for row in table.rows] == ["body type", "age"] and table.ideal == 50
    assert [[cell.text for cell in row.cells] for row in table.rows] == [["60.0", "10", "3"], ["55.0", "40", "0"]]
    assert table.rows[1].cells[0].interval == "[51.0, 59.0]"
    assert "nonce" in table.note and "no pair" in table.note
    assert [mark.value for row in table.rows for mark in row.marks] == [60.0, 55.0]
    assert folded.folded and folded.tables[0].rows[0].cells[0].text == "52.0"
    assert not score_section("Empty", [], "axis", ["Nothing."]).has_content


def test_a_long_table_has_the_scores_furthest_from_the_ideal_and_leads_to_all():
    scores = [named_score("cps", value, 50.0, (0.0, 100.0), n=1, group={"axis": f"{value}"}) for value in range(40, 57)]
    table = score_section("", scores, "axis", max_rows=3).tables[0]
    assert [row.label for row in table.rows] == ["42", "41", "40"] and table.ideal == 50
    assert len(score_section("", scores[:12], "axis", max_rows=3).tables[0].rows) == 12  # not a long table
    assert "scores.csv" in ParsedPage(page_html(replace(PAGE, sections=[Section("", tables=[table])]))).text


def test_a_column_of_p_values_is_in_tables_in_which_most_rows_have_one():
    def columns(*p_values):
        scores = [
            named_score("cps", 55.0, 50.0, (0.0, 100.0), n=1, p_value=p, group={"axis": f"{n}"})
            for n, p in enumerate(p_values)
        ]
        return score_section("", scores, "axis").tables[0].columns

    assert "p-value" in columns(0.1, 0.2, None) and "p-value" not in columns(0.1, None)


def test_a_metric_without_a_defined_score_has_no_table_beside_another():
    scores = [
        named_score("cps", 55.0, 50.0, (0.0, 100.0), n=1),
        named_score("aul", math.nan, 50.0, (0.0, 100.0), n=0, reason="no pair"),
    ]
    section = score_section("Scores", scores, "axis")
    assert len(section.tables) == 1 and not section.parts
    assert not score_section("Scores", scores[1:], "axis").tables[0].rows


def test_a_flag_of_a_sentence_is_one_word_and_all_else_is_text():
    sentence = "Give --model.system_prompt -- or <b>."
    html = page_html(Page(title="t", subtitle="", headline_value="1", headline_caption="", verdict=sentence))
    assert '<span class="flag">--model.system_prompt</span> -- or &lt;b&gt;.' in html
