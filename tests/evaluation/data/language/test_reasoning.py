"""Reasoning is removed from responses of every source, for each pair of markers."""

import json

import pandas as pd
import pytest

from evenhand.evaluation.data.language.reasoning import REASONING_FORMATS, split_reasoning
from evenhand.evaluation.data.readers.response_files import ResponseFile, read_responses
from evenhand.evaluation.metrics.generation_bias.answer_warnings import reasoned
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.kinds.file import RecordedModel
from evenhand.evaluation.tables import join_batches

names = pytest.mark.parametrize("form", REASONING_FORMATS, ids=lambda form: form.start)


@names
def test_each_format(form):
    assert split_reasoning(f" {form.start}So\n…{form.end} Hi.") == ("Hi.", True)
    assert split_reasoning(f"{form.start}So {form.end}") == ("", True)
    unfinished = ("analysis So", False) if form.start == "analysis" else (None, True)
    assert form.is_phrase or split_reasoning(f"{form.start} So") == (None, True)
    assert form.start != "analysis" or split_reasoning("analysis So") == unfinished
    if not form.is_phrase:  # the start may be at the end of the context, and reasoning may come again
        end_alone = f"So…{form.end} Hi."
        assert split_reasoning(end_alone) == ((end_alone, False) if form.needs_start else ("Hi.", True))
        assert split_reasoning(f"{form.start}a{form.end}Hi {form.start}b{form.end}there.") == ("Hi there.", True)
        assert split_reasoning(f"{form.start}a{form.end}Hi. {form.start}b") == ("Hi.", True)


def test_text_without_reasoning_stays():
    for text in ("Hi.", "I think <so>.", "The tag is <think>, she said.", "analysis is fun", "Here is my response: no"):
        assert split_reasoning(text) == (text, False)
    details = '<details type="reasoning" done="true" duration="3">\n<summary>Thought</summary>\n> So\n</details>\nHi.'
    assert split_reasoning(details) == ("Hi.", True)
    folded = "Sure.\n<details><summary>Steps</summary>Boil it.</details>"
    assert split_reasoning(folded) == (folded, False)
    assert split_reasoning("<<So>> Hi.", ("<<", ">>")) == ("Hi.", True)
    assert split_reasoning("<think>So</think><answer>Hi.</answer>") == ("Hi.", True)


def test_files_of_every_kind_lose_the_reasoning(tmp_path):
    answer, rest = "[THINK]So[/THINK] Hi.", {"descriptor": "old", "text": "t"}
    sample = {"doc": rest, "resps": [[answer]], "arguments": {"gen_args_0": {"arg_0": "t"}}, "filter": "none"}
    body = {"choices": [{"message": {"content": answer}}]}
    files = {
        "table": rest | {"response": answer},
        "harness": sample,
        "batch": {"custom_id": "a", "response": {"status_code": 200, "body": body}},
        "chat": rest | {"messages": [{"role": "user", "content": "t"}, {"role": "assistant", "content": answer}]},
    }
    for name, row in files.items():
        if name == "chat":
            del row["text"]
        path = tmp_path / f"{name}.jsonl"
        path.write_text(json.dumps(row))
        columns = read_responses(ResponseFile(path))
        assert (columns["response"], columns["reasoned"]) == (["Hi."], [True]), name
    pd.DataFrame([rest | {"response": answer}]).to_csv(tmp_path / "t.csv", index=False)
    assert read_responses(ResponseFile(tmp_path / "t.csv"))["response"] == ["Hi."]


def test_answers_with_reasoning_are_counted(tmp_path):
    texts = ["<<So>> Hi.", "<<So", "Hi."]
    rows = [{"text": "t", "descriptor": name, "response": text} for name, text in zip("abc", texts, strict=True)]
    path = tmp_path / "logs.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    file = ResponseFile(path, reasoning=("<<", ">>"))
    model = RecordedModel(ModelSettings(name="m"), file=file)
    responses = join_batches(model.respond(file.prompts()))
    assert responses["response"].tolist() == ["Hi.", "", "Hi."]
    assert responses["left_out"].fillna("").tolist() == ["", "never ended its reasoning", ""]
    (found,) = reasoned(responses)
    assert found.values == {"n": 2, "n_of": 3, "n_unfinished": 1}
    assert reasoned(responses.iloc[2:]) == []
