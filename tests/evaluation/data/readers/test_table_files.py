"""Tables in files: delimiters, encodings, headers and blank rows are found; what two readings fit is an error."""

import json
from pathlib import Path

import pandas as pd
import pytest

from evenhand.evaluation.data.readers.response_files import ResponseFile, read_responses
from evenhand.evaluation.data.readers.table_files import read_columns
from evenhand.evaluation.errors import InputError

ROWS = [("Hi, I'm old; hi", "old", "Oh | no."), ("Café?", "young", 'He said "no".')]
COLUMNS = {
    "text": ["Hi, I'm old; hi", "Café?"],
    "descriptor": ["old", "young"],
    "response": ["Oh | no.", 'He said "no".'],
}


def delimited(delimiter, escape='""', header="text{0}descriptor{0}response", end="\n"):
    """The rows with all fields quoted and this text for a quotation mark inside a field."""
    fields = [delimiter.join(f'"{cell.replace(chr(34), escape)}"' for cell in row) for row in ROWS]
    return end.join([header.format(delimiter), *fields, ""])


FILES = {  # name of the file, its bytes
    "comma": ("logs.csv", delimited(",").encode()),
    "semicolon": ("logs.csv", delimited(";").encode()),
    "tab": ("logs.tsv", delimited("\t").encode()),
    "tab in a csv": ("logs.csv", delimited("\t").encode()),
    "bar": ("logs.txt", delimited("|").encode()),
    "capital suffix": ("LOGS.CSV", delimited(",").encode()),
    "mark of UTF-8": ("logs.csv", delimited(",").encode("utf-8-sig")),
    "UTF-16": ("logs.csv", delimited("\t").encode("utf-16")),
    "UTF-16 without a mark": ("logs.csv", delimited("\t").encode("utf-16-le")),
    "cp1252": ("logs.csv", delimited(";").encode("cp1252")),
    "backslashes": ("logs.csv", delimited(",", escape='\\"').encode()),
    "Windows lines": ("logs.csv", delimited(",", end="\r\n").encode()),
    "capitals and spaces": ("logs.csv", delimited(",", header=" Text{0} Descriptor{0}RESPONSE ").encode()),
    "blank columns and rows": (
        "logs.csv",
        "\n".join(f"{line}{',' * 2}" for line in [*delimited(",").splitlines(), ",,", ",,", ""]).encode(),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_a_delimited_file(tmp_path, name):
    file, content = FILES[name]
    (tmp_path / file).write_bytes(content)
    columns = read_responses(ResponseFile(tmp_path / file))
    assert {name: columns[name] for name in COLUMNS} == COLUMNS
    assert set(columns) == {*COLUMNS, "template", "axis", "reasoned"}


def test_a_null_character_in_utf_8_is_a_part_of_its_cell(tmp_path):
    (tmp_path / "a.csv").write_bytes("text,n\na\0é,1\n".encode())
    assert read_columns(tmp_path / "a.csv", "a table") == {"text": ["a\0é"], "n": ["1"]}


def test_fields_that_are_not_quoted(tmp_path):
    (tmp_path / "a.csv").write_text("text;n\nHi, you;1\nYes, I, do;2\n")
    assert read_columns(tmp_path / "a.csv", "a table") == {"text": ["Hi, you", "Yes, I, do"], "n": ["1", "2"]}
    assert read_columns(tmp_path / "a.csv", "a table", known=["text"], typed=True)["n"] == [1, 2]
    (tmp_path / "a.tsv").write_text('text\tn\n"Hi, said she\t1\n')  # a quotation mark without meaning
    assert read_columns(tmp_path / "a.tsv", "a table") == {"text": ['"Hi, said she'], "n": ["1"]}


def test_the_reading_is_logged(tmp_path, caplog):
    (tmp_path / "a.csv").write_bytes("text;n\nCafé;1\n".encode("cp1252"))
    with caplog.at_level("INFO", logger="evenhand"):
        read_columns(tmp_path / "a.csv", "a table")
    assert "cp1252" in caplog.text and "semicolon" in caplog.text


AMBIGUOUS = {  # content, and the candidates in the error
    "delimiter": (b"a;b,c\n1;2,3\n", ("comma", "semicolon")),
    "encoding": ("text,n\nbyła mąż,1\n".encode("cp1250"), ("cp1250", "cp1252", "była")),
    "Cyrillic": ("text,n\nпривет,1\n".encode("cp1251"), ("cp1251", "привет")),
    "Chinese": ("text,n\n你好吗,1\n".encode("gb18030"), ("gb18030", "你好吗")),
    "names": (b"Text,TEXT\n1,2\n", ("'Text'", "'TEXT'")),
    "length": (b"a;b\n1;2\n1;2;3\n", ("row 3", "3 fields")),
}


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguity_is_an_error_with_the_candidates(tmp_path, name):
    content, candidates = AMBIGUOUS[name]
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(InputError) as error:
        read_columns(tmp_path / "a.csv", "a table", known=["text"])
    assert all(candidate in str(error.value) for candidate in candidates)


def test_a_missing_file_is_called_so_with_the_folder_where_its_path_begins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("people.csv", "people.json", "people.parquet"):
        with pytest.raises(InputError, match="no such file") as error:
            read_columns(Path(name), "people")
        assert str(tmp_path) in str(error.value) and "UTF-8" not in str(error.value)


RECORDS = [{"text": "Hi", "n": 1}, {"text": "No", "n": 2}]
JSON_FILES = {
    "array": json.dumps(RECORDS),
    "indented array": json.dumps(RECORDS, indent=2),
    "object with an array": json.dumps({"meta": {"page": 1}, "data": RECORDS}),
    "nested": json.dumps({"results": {"prompts": [{"raw": "Hi"}], "results": RECORDS}}),
    "one object a line": "\n".join(map(json.dumps, RECORDS)),
} | {
    orient: pd.DataFrame(RECORDS).to_json(orient=orient) for orient in ("columns", "index", "split", "records", "table")
}
JSON_FILES["columns of equal length"] = json.dumps(pd.DataFrame(RECORDS).to_dict("list"))


@pytest.mark.parametrize("name", JSON_FILES)
def test_json(tmp_path, name):
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "a.JSON").write_text(JSON_FILES[name], encoding=encoding)
        columns = read_columns(tmp_path / "a.JSON", "a table")
        assert {key: columns[key] for key in ("text", "n")} == {"text": ["Hi", "No"], "n": [1, 2]}


def test_json_of_pandas_whose_columns_are_numbered(tmp_path):
    (tmp_path / "a.json").write_text(pd.DataFrame([["Hi", 1]]).to_json(orient="split"))
    assert read_columns(tmp_path / "a.json", "a table") == {"0": ["Hi"], "1": [1]}


def test_json_that_is_no_table_or_several(tmp_path):
    for content, reason in {
        json.dumps({"a": [{"x": 1}], "b": [{"x": 1}]}): "several arrays of objects: a, b",
        json.dumps({"a": 1}): "no array",
        "[1, 2]": "element 1",
        "{": "Expecting",
        json.dumps({"columns": ["a"], "data": [1, 2]}): "no array",
        json.dumps({"columns": ["a"], "data": [[1, 2]]}): "columns",
    }.items():
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(InputError, match=reason):
            read_columns(tmp_path / "a.json", "a table")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_first_line_of_files_for_excel_names_the_delimiter(tmp_path, delimiter):
    path = tmp_path / "logs.csv"
    path.write_bytes(
        f"sep={delimiter}\r\ntext{delimiter}response\r\nHi{delimiter}Oh, no; ok\r\n".replace(
            "Oh, no; ok", '"Oh, no; ok"'
        ).encode()
    )
    assert read_columns(path, "responses") == {"text": ["Hi"], "response": ["Oh, no; ok"]}


def test_a_line_that_was_cut_off_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"a": 2}\n{"a":')
    with pytest.raises(InputError, match="line 4"):
        read_columns(tmp_path / "a.jsonl", "a table")


def test_quotation_marks_of_a_table_without_quoting_join_no_rows(tmp_path):
    """Files such as GoEmotions have tabs and no quoting: a quotation mark belongs to the text."""
    path = tmp_path / "texts.tsv"
    path.write_text('text\tlabel\n"Sure he said\t1\nNice.\t2\nand left"\t3\n')
    found = read_columns(path, "texts")
    assert found == {"text": ['"Sure he said', "Nice.", 'and left"'], "label": ["1", "2", "3"]}
    path.write_text('text\tlabel\n"Two\nlines"\t1\n')  # quoted, since no line alone is a row
    assert read_columns(path, "texts") == {"text": ["Two\nlines"], "label": ["1"]}


@pytest.mark.parametrize("known", [("text", "Text"), ("Text", "text")])
def test_a_column_keeps_a_name_that_the_user_gives(tmp_path, known):
    path = tmp_path / "texts.csv"
    path.write_text("Text,RESPONSE\na,b\n")
    assert list(read_columns(path, "texts", known=[*known, "response"])) == ["Text", "response"]


def test_a_header_that_is_repeated_is_no_row(tmp_path, caplog):
    """As where files were joined by a shell."""
    path = tmp_path / "logs.csv"
    path.write_bytes(delimited(",").encode() * 2)
    assert len(read_responses(ResponseFile(path))["response"]) == 4
    assert "1 rows repeat the header" in caplog.text


@pytest.mark.parametrize("text", ['{"text": "Hi", "text": "Oh"}', '[{"a": {"b": 1, "b": 2}}]'])
def test_a_name_twice_in_an_object_is_refused_as_in_a_header(tmp_path, text):
    """One of the values would be lost."""
    path = tmp_path / "logs.json"
    path.write_text(text)
    with pytest.raises(InputError, match="has the column '(text|b)' twice"):
        read_columns(path, "responses")


@pytest.mark.parametrize("start", [b"PK\x03\x04", b"\x1f\x8b", b"PAR1"])
def test_a_file_that_is_no_text_is_called_so(tmp_path, start):
    path = tmp_path / "logs.csv"
    path.write_bytes(start + bytes(range(30)) * 3)
    with pytest.raises(InputError, match="it is no text, but an archive, or a file of Excel or Parquet"):
        read_columns(path, "responses")
