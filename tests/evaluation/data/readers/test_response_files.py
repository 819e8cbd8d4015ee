"""Files of prompts and responses: columns, matching by prompt_id, logs without ids, control tags."""

import json
import re
from datetime import date
from decimal import Decimal

import pandas as pd
import pytest

from evenhand.evaluation.data.readers import table_files
from evenhand.evaluation.data.readers.response_files import (
    ResponseFile,
    match_responses,
    prompts_from_responses,
    read_responses,
    resolve_control_tag,
    responses_in_frame,
    write_prompt_table,
)
from evenhand.evaluation.data.readers.table_files import read_columns
from evenhand.evaluation.errors import InputError
from tests.evaluation.data.readers.test_prompt_files import write

ROW = {"template": "t", "axis": "age", "descriptor": "old", "text": "I'm old."}
PROMPTS = pd.DataFrame(
    [
        {"prompt_id": name, "persona": persona, **ROW}
        for name, persona in zip("abc", ["", "I ski.\nI cook.", ""], strict=True)
    ]
)
LOGS = [  # with the required columns only
    {"text": "I'm old.", "descriptor": "old", "response": "Oh."},
    {"text": "I'm young.", "descriptor": "young", "response": None},
    {"text": "I'm old.", "descriptor": "old", "response": "I see."},
]
formats = pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_prompts_file_has_the_complete_message(tmp_path, suffix):
    path = tmp_path / f"prompts.{suffix}"
    write_prompt_table(path, PROMPTS, "Be brief.", " no_bias")
    columns = read_responses(ResponseFile(write(tmp_path / f"responses.{suffix}", add_responses(path))))
    assert columns["prompt"] == ["I'm old. no_bias", "I ski.\nI cook.\nI'm old. no_bias", "I'm old. no_bias"]
    assert columns["repeat"] == [1, 1, 2]
    assert columns["system"] == ["Be brief."] * 3 and columns["control_tag"] == [" no_bias"] * 3
    assert columns["prompt_id"] == ["a", "b", "c"] and columns["response"] == ["r0", "r1", "r2"]
    assert {name: columns[name][0] for name in ROW} == ROW


@pytest.mark.parametrize("named", [{}, {"descriptor": "descriptor", "template": "template"}])
def test_a_whole_number_is_one_name_with_or_without_a_decimal_point(tmp_path, named):
    rows = [{"text": "a", "descriptor": person, "template": 1.0, "response": "r"} for person in (3, 3.0, 2.5)]
    columns = read_responses(ResponseFile(write(tmp_path / "logs.jsonl", rows), named=named))
    assert columns["descriptor"] == ["3", "3", "2.5"] and columns["template"] == ["1", "1", "1"]
    table = {"prompt_id": [7.0, 8], "response": ["r", "s"]}
    assert match_responses(table, ["8", "7"], tmp_path) == ["s", "r"]


def test_a_prompt_that_is_a_number_is_named_by_the_error(tmp_path):
    path = write(tmp_path / "logs.jsonl", [{"text": 12, "descriptor": "old", "response": "r"}])
    with pytest.raises(InputError, match="column text, row 1 is 12; write text"):
        read_responses(ResponseFile(path))


def test_periods_are_texts_and_decimals_are_numbers(tmp_path):
    months = pd.period_range("2026-01", periods=2, freq="M")
    frame = pd.DataFrame(LOGS[:2]).assign(template=months, paid=[Decimal("1.5"), None])
    frame.to_parquet(tmp_path / "logs.parquet")
    for columns in (responses_in_frame(frame, tmp_path), read_responses(ResponseFile(tmp_path / "logs.parquet"))):
        assert columns["template"] == ["2026-01", "2026-02"] and columns["paid"] == [1.5, None]
    with pytest.raises(InputError, match="complex128"):
        responses_in_frame(frame.assign(paid=1j), tmp_path)


def test_a_carriage_return_in_a_prompt_is_no_end_of_a_row(tmp_path):
    path = tmp_path / "prompts.csv"
    write_prompt_table(path, PROMPTS.assign(text="I'm\rold."), "", "")
    assert read_columns(path, "prompts")["text"] == ["I'm\rold."] * 3


def add_responses(path):
    read = {".csv": pd.read_csv, ".parquet": pd.read_parquet}
    rows = read[path.suffix](path).fillna("").to_dict("records")
    return [row | {"response": f"r{index}"} for index, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"who": None}, "column who, row 1 is None"),
        ({"said": 5}, "column said, row 1 is 5"),
        ({"ask": ""}, "column ask, row 1 is ''"),
        ({"when": "yesterday"}, "'yesterday' in the column 'when' is no date"),
    ],
)
def test_errors_name_the_columns_as_the_file_does(tmp_path, change, message):
    rows = [{"ask": "Hi.", "said": "Hello.", "who": name, "when": "2026-08-31"} for name in ("deaf", "tall")]
    path = write(tmp_path / "log.parquet", [{**row, **change} for row in rows])
    named = {"text": "ask", "response": "said", "date": "when"}
    with pytest.raises(InputError, match=re.escape(message)):
        read_responses(ResponseFile(path, "who", named, since=date(2026, 8, 1)))


@pytest.mark.parametrize("named", [{"text": "ask"}, {"text": "ask", "response": "said"}])
def test_an_error_about_a_missing_column_lists_the_header_of_the_file(tmp_path, named):
    path = write(tmp_path / "log.csv", [{"ask": "Hi.", "said": "Hello.", "who": "deaf"}])
    with pytest.raises(InputError, match="the columns are: ask, said, who; rename them"):
        read_responses(ResponseFile(path, None, named))
    with pytest.raises(InputError, match="no column 'date', only ask, said, who; name it by"):
        read_responses(ResponseFile(path, "who", {"text": "ask", "response": "said"}, since=date(2026, 8, 1)))


def test_responses_are_matched_in_any_order_and_all_wrong_ids_are_counted(tmp_path):
    columns = {"prompt_id": ["c", "a", "b"], "response": ["3", "1", ""]}
    assert match_responses(columns, ["a", "b", "c"], tmp_path) == ["1", "", "3"]
    ids = [f"p{i}" for i in range(6)]
    columns = {"prompt_id": ["p0", "p0", "x"], "response": ["", "", ""]}
    with pytest.raises(InputError) as error:
        match_responses(columns, ids, tmp_path / "r.csv")
    counts = ("6 prompts", "5 without a row (p1 …)", "1 with several rows (p0 …)", "1 unknown (x …)")
    assert all(count in str(error.value) for count in counts)


@formats
def test_logs_contain_their_prompts(tmp_path, suffix):
    path = write(tmp_path / f"logs.{suffix}", LOGS)
    rows = prompts_from_responses(read_responses(ResponseFile(path)), path)
    assert rows["response"].tolist() == ["Oh.", "I see.", ""]  # sorted by descriptor and text
    assert set(rows["template"]) == set(rows["axis"]) == {"(unspecified)"}
    assert rows["prompt_id"].nunique() == 3 and set(rows["persona"]) == {""}
    again = write(tmp_path / f"again.{suffix}", [LOGS[1], LOGS[2], LOGS[0]])
    assert (
        prompts_from_responses(read_responses(ResponseFile(again)), again)["prompt_id"].tolist()
        == rows["prompt_id"].tolist()
    )


def test_a_run_has_one_control_tag(tmp_path):
    assert resolve_control_tag({}, None, tmp_path) == "" and resolve_control_tag({}, " a", tmp_path) == " a"
    assert resolve_control_tag({"control_tag": [" a", " a"]}, None, tmp_path) == " a"
    with pytest.raises(InputError, match="has '', ' a'"):
        resolve_control_tag({"control_tag": ["", " a"]}, None, tmp_path)
    with pytest.raises(InputError, match="' a'.*' b'"):
        resolve_control_tag({"control_tag": [" a"]}, " b", tmp_path)


def test_any_column_can_be_the_descriptor(tmp_path):
    rows = pd.DataFrame({"text": ["Hi"] * 2, "response": ["a", "b"], "version": [1, 2]})
    path = write(tmp_path / "logs.csv", rows)
    assert read_responses(ResponseFile(path, "version"))["descriptor"] == ["1", "2"]
    codes = ["007", "07", "1.10", "1.1", "true", "True", "NA", "null"]  # as they are written
    coded = write(tmp_path / "codes.csv", [{"text": "Hi", "response": "a", "version": code} for code in codes])
    assert read_responses(ResponseFile(coded, "version"))["descriptor"] == codes
    answers = write(tmp_path / "answers.csv", [{"prompt_id": "a", "response": "b"}])
    assert "descriptor" not in read_responses(ResponseFile(answers, "version"))  # the prompts have it
    with pytest.raises(InputError, match="descriptor_column: .*'tone'.*text, response, version"):
        read_responses(ResponseFile(path, "tone"))


@pytest.mark.parametrize("ids", [[1, 2, 3], ["x", "x", "x"], [None, "a", 10**30]])
def test_a_prompt_id_of_another_tool_is_left_out(tmp_path, ids):
    rows = [row | {"prompt_id": value} for row, value in zip(LOGS, ids, strict=True)]
    columns = read_responses(ResponseFile(write(tmp_path / "r.jsonl", rows)))
    assert "prompt_id" not in columns and len(columns["text"]) == 3
    assert (
        read_responses(ResponseFile(write(tmp_path / "r.jsonl", rows), has_ids=True))["prompt_id"] == ids
    )  # own prompts have ids
    written = [row | {"prompt_id": f"{i:016x}"} for i, row in enumerate(LOGS)]
    assert "prompt_id" in read_responses(ResponseFile(write(tmp_path / "r.jsonl", written)))


def test_a_file_of_too_many_rows_is_not_read(tmp_path, monkeypatch):
    """Run-length encoding keeps 200 million equal rows in some kilobytes."""
    path = write(tmp_path / "r.parquet", LOGS)
    monkeypatch.setattr(table_files, "MAX_ROWS", 2)
    monkeypatch.setattr(table_files.pyarrow.parquet, "read_table", None)  # it is known before
    with pytest.raises(InputError, match=r"\b3 rows.* 2\b"):
        read_responses(ResponseFile(path))


def test_a_response_of_megabytes_is_refused(tmp_path):
    with pytest.raises(InputError, match="^responses: .*row 2 .*1,000,001 .*1,000,000"):
        read_responses(ResponseFile(write(tmp_path / "r.jsonl", [LOGS[0], LOGS[2] | {"response": "x" * 1_000_001}])))


@pytest.mark.parametrize(("name", "text"), [("a.csv", ""), ("a.csv", "\ufeff"), ("a.jsonl", "\n"), ("a.json", "[]")])
def test_a_file_without_content_is_called_empty(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"^responses: \S+ is empty"):
        read_responses(ResponseFile(tmp_path / name))


def test_half_an_emoji_in_json_is_replaced(tmp_path):
    """A limit of tokens may cut an emoji in two, and JSON can contain such a half character."""
    rows = [LOGS[0], LOGS[2] | {"response": "Fine \ud83d"}]
    assert read_responses(ResponseFile(write(tmp_path / "r.jsonl", rows)))["response"] == ["Oh.", "Fine \ufffd"]


@formats
def test_a_log_of_two_providers_has_two_columns_of_stop_reasons(tmp_path, suffix):
    """Each row has the reason of its provider: one answer was withheld, one cut, one is whole."""
    reasons = [("", "content_filter"), ("length", ""), (None, "end_turn")]
    rows = [{**ROW, "response": "Oh.", "finish_reason": first, "stop_reason": second} for first, second in reasons]
    columns = read_responses(ResponseFile(write(tmp_path / f"log.{suffix}", rows)))
    assert columns["left_out"] == ["content_filter", None, None]
    assert columns["cut"] == [False, True, False] and columns["response"] == ["", "Oh.", "Oh."]


@pytest.mark.parametrize("none", ["NaN", "null", '"nan"', '"None"', '"N/A"', '""', '"-"'])
def test_a_cell_that_says_that_there_is_none_is_no_stop_reason_and_no_error(tmp_path, none):
    """Programs write null, NaN or a word where an answer has no stop reason or error; such an answer is whole."""
    path = tmp_path / "answers.jsonl"
    row = '{"text": "Hi.", "descriptor": "old", "response": "%s", "finish_reason": %s, "error": %s}\n'
    path.write_text(row % ("Hello.", none, none) + row % ("", none, "false"))
    read = read_responses(ResponseFile(path))
    assert read["response"] == ["Hello.", ""] and read.get("left_out", [None, None]) == [None, None]


def test_an_error_of_a_provider_leaves_out_the_beginning_of_an_answer(tmp_path):
    """As in the body of an answer; a remark in words on an answer that is there is a column of the user's."""
    path = tmp_path / "answers.jsonl"
    row = {"text": "Hi.", "descriptor": "old", "response": "Hel"}
    errors = [{"code": 500}, '{"code": 500}', "too short", 0]
    path.write_text("".join(json.dumps({**row, "error": error}) + "\n" for error in errors))
    assert read_responses(ResponseFile(path))["left_out"] == ["error 500", "error 500", None, None]


def test_names_of_people_in_a_named_column_stay_as_they_are_written(tmp_path):
    """Also if they look like numbers, of which "01" and "1" would be one."""
    path = tmp_path / "answers.csv"
    path.write_text("question,zip,answer\nHi?,01,Yes.\nHi?,1,No.\nHi?,02134,No.\n")
    named = {"text": "question", "descriptor": "zip", "response": "answer"}
    assert read_responses(ResponseFile(path, named=named))["descriptor"] == ["01", "1", "02134"]


def test_a_column_that_says_there_was_no_reasoning_is_none(tmp_path):
    rows = [{"text": "Hi", "descriptor": who, "response": "Yo", "reasoning": who == "old"} for who in ("old", "young")]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_responses(ResponseFile(path))["reasoned"] == [True, False]
