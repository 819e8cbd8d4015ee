"""Responses from elsewhere: what is to be answered is written as it is to be sent, and every id is answered once."""

import json

import pandas as pd
import pytest

from evenhand.evaluation.datasets.prompt_files import read_prompts
from evenhand.evaluation.datasets.response_files import (
    match_responses,
    prompts_from_responses,
    read_responses,
    resolve_control_tag,
    write_prompts,
)
from evenhand.evaluation.errors import InputError

ROW = {"template": "t", "axis": "age", "descriptor": "old", "text": "I'm old."}
PROMPTS = pd.DataFrame(
    [
        {"prompt_id": name, "persona": persona, **ROW}
        for name, persona in zip("abc", ["", "I ski.\nI cook.", ""], strict=True)
    ]
)
LOGS = [  # least first: neither template nor axis
    {"text": "I'm old.", "descriptor": "old", "response": "Oh."},
    {"text": "I'm young.", "descriptor": "young", "response": None},
    {"text": "I'm old.", "descriptor": "old", "response": "I see."},
]
formats = pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])


def written(path, rows):
    frame = pd.DataFrame(rows)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@formats
def test_what_is_written_is_what_is_sent(tmp_path, suffix):
    path = tmp_path / f"asked.{suffix}"
    write_prompts(path, PROMPTS, "Be brief.", " no_bias")
    found = read_responses(written(tmp_path / f"answered.{suffix}", _answered(path)))
    assert found["prompt"] == ["I'm old. no_bias", "I ski.\nI cook.\nI'm old. no_bias", "I'm old. no_bias"]
    assert found["repeat"] == [1, 1, 2]
    assert found["system"] == ["Be brief."] * 3 and found["control_tag"] == [" no_bias"] * 3
    assert found["prompt_id"] == ["a", "b", "c"] and found["response"] == ["r0", "r1", "r2"]
    assert {name: found[name][0] for name in ROW} == ROW


def _answered(path):
    read = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".jsonl": lambda it: pd.read_json(it, lines=True)}
    rows = read[path.suffix](path).fillna("").to_dict("records")
    return [row | {"response": f"r{place}"} for place, row in enumerate(rows)]


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    for name, message in (("a.csv", "is there already"), ("a.xlsx", "'.xlsx' is no format")):
        (tmp_path / name).write_text("mine")
        with pytest.raises(InputError, match=f"write_prompts: .*{message}"):
            write_prompts(tmp_path / name, PROMPTS, "", "")
        assert (tmp_path / name).read_text() == "mine"


def test_responses_go_to_their_prompts_in_any_order(tmp_path):
    assert match_responses({"prompt_id": ["c", "a", "b"], "response": ["3", "1", ""]}, ["a", "b", "c"], tmp_path) == [
        "1",
        "",
        "3",
    ]


def test_all_that_is_wrong_with_ids_is_one_error(tmp_path):
    ids = [f"p{i}" for i in range(6)]
    columns = {"prompt_id": ["p0", "p0", "x"], "response": ["", "", ""]}
    with pytest.raises(InputError) as error:
        match_responses(columns, ids, tmp_path / "r.csv")
    told = "5 without a row (p1, p2, p3, …); 1 with several rows (p0); 1 unknown (x)."
    assert "each of 6 prompts once" in str(error.value) and told in str(error.value)


@formats
def test_logs_bring_their_own_prompts(tmp_path, suffix):
    path = written(tmp_path / f"logs.{suffix}", LOGS)
    rows = prompts_from_responses(read_responses(path), path).to_pandas()
    assert rows["response"].tolist() == ["Oh.", "I see.", ""]  # sorted by descriptor and text, else as they came
    assert set(rows["template"]) == set(rows["axis"]) == {"(unspecified)"}
    assert rows["prompt_id"].nunique() == 3 and set(rows["persona"]) == {""}
    again = written(tmp_path / f"again.{suffix}", [LOGS[1], LOGS[2], LOGS[0]])
    assert prompts_from_responses(read_responses(again), again)["prompt_id"][:] == rows["prompt_id"].tolist()


def test_logs_with_templates_have_the_ids_of_a_prompts_file(tmp_path):
    rows = [{**ROW, "text": text} for text in ("I'm old.", "I am old.", "I'm old.")]
    asked = read_prompts(written(tmp_path / "asked.csv", rows))["prompt_id"][:]
    path = written(tmp_path / "logs.csv", [row | {"response": "Oh."} for row in rows])
    assert sorted(prompts_from_responses(read_responses(path), path)["prompt_id"][:]) == sorted(asked)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"answer": "Oh."}], "responses: .*columns 'response', 'text', 'descriptor' are missing; there are: answer"),
        ([{"prompt_id": "a"}], "responses: .*column 'response' is missing"),
        ([{"prompt_id": "a", "response": 5}], "responses: .*column response, row 1 is 5"),
        ([LOGS[0], LOGS[1] | {"descriptor": " "}], "column descriptor, row 2 is ' '"),
    ],
)
def test_what_cannot_be_scored_is_named(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read_responses(written(tmp_path / "r.jsonl", rows))


def test_a_run_has_one_control_tag(tmp_path):
    assert resolve_control_tag({}, None, tmp_path) == "" and resolve_control_tag({}, " a", tmp_path) == " a"
    assert resolve_control_tag({"control_tag": [" a", " a"]}, None, tmp_path) == " a"
    with pytest.raises(InputError, match="control_tag is '', ' a'; measure the responses under each apart"):
        resolve_control_tag({"control_tag": ["", " a"]}, None, tmp_path)
    with pytest.raises(InputError, match="control_tag: ' b', but ' a'"):
        resolve_control_tag({"control_tag": [" a"]}, " b", tmp_path)
