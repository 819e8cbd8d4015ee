"""Logs of other tools: OpenAI Batch, lm-evaluation-harness and inspect_ai. Lines without text have a reason."""

import json

import pytest

from evenhand.evaluation.data.response_files import read_responses
from evenhand.evaluation.errors import InputError


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def batch_line(custom_id, message=None, status=200, error=None, **choice):
    """A line as in platform.openai.com/docs/api-reference/batch/request-output."""
    body = {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "choices": [choice | {"message": message}]}
    response = {"status_code": status, "request_id": "req_1", "body": body if status == 200 else {"error": {}}}
    return {"id": "batch_req_1", "custom_id": custom_id, "response": None if error else response, "error": error}


def test_lines_of_a_batch(tmp_path):
    answered = {"role": "assistant", "content": "Oh.", "refusal": None}
    lines = {
        None: batch_line("a", answered, finish_reason="stop"),
        "refusal": batch_line("b", {"content": None, "refusal": "I can't."}),
        "no content": batch_line("c", {"content": None}),
        "never ended its reasoning": batch_line("d", {"content": "<think>Well"}, finish_reason="length"),
        "status 429": batch_line("e", status=429),
        "error batch_expired⟨U+001B⟩": batch_line("f", error={"code": "batch_expired\x1b", "message": "late"}),
        "error no": {"custom_id": "g", "response": {"status_code": 200, "body": None}, "error": "no"},  # vLLM
        "no response": {"custom_id": "h", "response": None, "error": None},
    }
    columns = read_responses(write_lines(tmp_path / "r.jsonl", lines.values()))
    assert columns["prompt_id"] == list("abcdefgh") and columns["response"] == ["Oh.", *[""] * 7]
    assert columns["left_out"] == list(lines)
    completion = {"custom_id": "a", "response": {"body": {"choices": [{"text": " <think>x</think> Hi. \ud800"}]}}}
    assert read_responses(write_lines(tmp_path / "r.jsonl", [completion]))["response"] == ["Hi. \ufffd"]


SAMPLE = {  # the fields of lm_eval 0.4.13
    "doc_id": 0,
    "doc": {"descriptor": "old", "template": "I'm {}."},
    "target": "",
    "arguments": {"gen_args_0": {"arg_0": "I'm old.", "arg_1": {"until": ["\n"]}}},
    "resps": [["Oh.", " "]],
    "filtered_resps": ["Oh."],
    "filter": "none",
}


def test_samples_of_the_harness(tmp_path):
    lines = [SAMPLE, SAMPLE | {"filter": "strip", "filtered_resps": ["O"]}]
    columns = read_responses(write_lines(tmp_path / "samples_mine.jsonl", lines))
    assert columns["text"] == ["I'm old."] * 2 and columns["descriptor"] == ["old"] * 2
    assert columns["response"] == ["Oh.", " "] and columns["left_out"] == [None, "no content"]
    columns = read_responses(write_lines(tmp_path / "samples_mine.jsonl", lines), "template")
    assert columns["descriptor"] == ["I'm {}."] * 2


def test_logs_of_inspect(tmp_path):
    pytest.importorskip("inspect_ai", reason="the extra `inspect` is not installed")
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ChatMessageSystem, ChatMessageUser, ModelOutput, ModelUsage, get_model

    texts = ["Oh. " * 400, "Filtered.", " "]
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in texts]
    outputs[1].choices[0].stop_reason = "content_filter"
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    chat = [ChatMessageSystem(content="Be brief."), ChatMessageUser(content="I'm old.")]
    samples = [Sample(id=f"p{n}", input="I'm old." if n else chat, metadata={"descriptor": "old"}) for n in range(3)]
    model = get_model("mockllm/model", custom_outputs=outputs)
    (log,) = eval(Task(dataset=MemoryDataset(samples)), model=model, log_dir=str(tmp_path), display="none")
    assert log.status == "success"
    write_eval_log(read_eval_log(log.location), str(tmp_path / "log.json"))
    (path,) = tmp_path.glob("*.eval")
    for file in (path, tmp_path / "log.json"):
        columns = read_responses(file)
        assert columns["text"] == ["I'm old."] * 3 and columns["descriptor"] == ["old"] * 3
        assert [text.strip() for text in columns["response"]] == [texts[0].strip(), "", ""]
        assert columns["left_out"] == [None, "content_filter", "no content"] and "prompt_id" not in columns
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="responses: .*eval cannot be read as a log of inspect_ai"):
        read_responses(path)
