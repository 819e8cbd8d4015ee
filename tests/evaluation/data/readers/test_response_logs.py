"""Logs of other tools: batches, chats, traces, lm-evaluation-harness, inspect_ai. Lines without text have a reason."""

import csv
import json
from types import SimpleNamespace

import pandas as pd
import pytest

from evenhand.evaluation.data.readers.answers import error_reason
from evenhand.evaluation.data.readers.chats import answer_in, parse_chat
from evenhand.evaluation.data.readers.response_files import ResponseFile, match_responses, read_responses, with_repeats
from evenhand.evaluation.data.readers.response_logs import inspect_rows
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
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", lines.values())))
    assert columns["prompt_id"] == list("abcdefgh") and columns["response"] == ["Oh.", *[""] * 7]
    assert columns["left_out"] == list(lines)
    completion = {"custom_id": "a", "response": {"body": {"choices": [{"text": " <think>x</think> Hi. \ud800"}]}}}
    assert read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [completion])))["response"] == ["Hi. \ufffd"]


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
    columns = read_responses(ResponseFile(write_lines(tmp_path / "samples_mine.jsonl", lines)))
    assert columns["text"] == ["I'm old."] * 2 and columns["descriptor"] == ["old"] * 2
    assert columns["response"] == ["Oh.", ""] and columns["left_out"] == [None, "no content"]
    columns = read_responses(ResponseFile(write_lines(tmp_path / "samples_mine.jsonl", lines), "template"))
    assert columns["descriptor"] == ["I'm {}."] * 2


def test_samples_of_the_harness_over_an_api_of_chats(tmp_path):
    """The prompt is a list of one text of JSON (`JsonChatStr`); quotation marks in it are escaped."""
    chat = [turn("user", "Hi."), turn("assistant", "Hello."), turn("user", 'I\'m "old".')]
    sent = SAMPLE | {"arguments": {"gen_args_0": {"arg_0": [json.dumps(chat)], "arg_1": {}}}}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "samples_mine.jsonl", [sent])))
    assert columns["text"] == ['I\'m "old".'] * 2 and columns["persona"] == ["User: Hi.\nAssistant: Hello."] * 2


def test_samples_of_several_tasks_of_the_harness_are_all_read(tmp_path):
    """The second task has filters of other names; of its two lines for a document, the first counts."""
    other = SAMPLE | {"doc": SAMPLE["doc"] | {"descriptor": "deaf"}, "resps": [["I see."]], "filter": "strict"}
    lines = [SAMPLE, SAMPLE | {"filter": "strip"}, other, other | {"filter": "flexible"}]
    columns = read_responses(ResponseFile(write_lines(tmp_path / "samples.jsonl", lines)))
    assert columns["descriptor"] == ["old", "old", "deaf"] and columns["response"] == ["Oh.", "", "I see."]


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
        columns = read_responses(ResponseFile(file))
        assert columns["text"] == ["I'm old."] * 3 and columns["descriptor"] == ["old"] * 3
        assert [text.strip() for text in columns["response"]] == [texts[0].strip(), "", ""]
        assert columns["left_out"] == [None, "content_filter", "no content"] and "prompt_id" not in columns
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(InputError, match="^responses: .*eval .*inspect_ai"):
        read_responses(ResponseFile(path))


def test_a_part_of_a_log_of_inspect_is_named(tmp_path, caplog):
    """Of two samples, each in two epochs, one has an answer when the evaluation is cancelled."""
    pytest.importorskip("inspect_ai", reason="the extra `inspect` is not installed")
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.log import read_eval_log, write_eval_log
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    outputs = [ModelOutput.from_content("mockllm/model", "Oh.") for _ in range(4)]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    samples = [Sample(id=name, input="I'm old.", metadata={"descriptor": "old"}) for name in "ab"]
    task = Task(dataset=MemoryDataset(samples), epochs=2)
    model = get_model("mockllm/model", custom_outputs=outputs)
    (written,) = eval(task, model=model, log_dir=str(tmp_path), display="none")
    (path,) = tmp_path.glob("*.eval")
    assert len(read_responses(ResponseFile(path))["response"]) == 4
    found = read_eval_log(written.location)
    assert "the evaluation of this log" not in caplog.text
    found.status, found.samples = "cancelled", found.samples[:1]
    write_eval_log(found, str(tmp_path / "log.json"))
    assert len(read_responses(ResponseFile(tmp_path / "log.json"))["response"]) == 1
    assert "'cancelled': it has 1 of 4 samples" in caplog.text


def test_two_epochs_of_a_sample_of_inspect_are_two_responses():
    """An epoch repeats the prompt of `write_prompts`, so the second has its id with "#2"."""

    def sample(epoch, text):
        choice = SimpleNamespace(stop_reason="stop")
        output = SimpleNamespace(choices=[choice], completion=text)
        return SimpleNamespace(id="a", epoch=epoch, input="I'm old.", metadata={}, output=output, error=None)

    rows = [*inspect_rows(sample(1, "Oh."), None), *inspect_rows(sample(2, "I see."), None)]
    assert [row["prompt_id"] for row in rows] == ["a", "a#2"]
    prompts = with_repeats(pd.DataFrame({"prompt_id": ["a"], "text": ["I'm old."]}), ["a", "a#2", "b#2"])
    assert prompts.to_dict("list") == {"prompt_id": ["a", "a#2"], "text": ["I'm old."] * 2}
    columns = {name: [row[name] for row in rows] for name in ("prompt_id", "response")}
    columns["response"] = [answer.text for answer in columns["response"]]
    assert match_responses(columns, ["a", "a#2"], "log.eval") == ["Oh.", "I see."]


def test_two_epochs_of_a_log_that_inspect_wrote_are_two_responses(tmp_path):
    pytest.importorskip("inspect_ai", reason="the extra `inspect` is not installed")
    from inspect_ai import Task, eval
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    texts = ["Oh.", "I see.", "Hi.", "<think>Well</think>Bye."]
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in texts]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
    model = get_model("mockllm/model", custom_outputs=outputs)
    samples = [Sample(id="a", input="I'm old."), Sample(id="b", input="I'm deaf.")]
    task = Task(dataset=MemoryDataset(samples), epochs=2)
    eval(task, model=model, log_dir=str(tmp_path), log_format="json", display="none", max_samples=1)
    (path,) = tmp_path.glob("*.json")
    columns = read_responses(ResponseFile(path))
    assert sorted(columns["prompt_id"]) == ["a", "a#2", "b", "b#2"]
    assert sorted(columns["response"]) == ["Bye.", "Hi.", "I see.", "Oh."]
    wanted = {"a": "I'm old.", "a#2": "I'm old.", "b": "I'm deaf.", "b#2": "I'm deaf."}
    assert dict(zip(columns["prompt_id"], columns["text"], strict=True)) == wanted


PARTS = [{"type": "thinking", "thinking": "Well"}, {"type": "text", "text": "Oh."}, {"type": "text", "text": " No."}]
APART = [{"type": "text", "text": "Oh."}, {"type": "text", "text": "No."}]
OUTPUT = [  # of /v1/responses
    {"type": "reasoning", "summary": []},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Oh. No."}]},
]
REFUSED = [{"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I can't."}]}]
BODIES = {  # the body of an answer, its response, and the reason if it has none
    "chat with parts": ({"choices": [{"message": {"content": PARTS}}]}, "Oh. No.", None),
    "parts without a blank": ({"choices": [{"message": {"content": APART}}]}, "Oh.\nNo.", None),
    "responses": ({"object": "response", "output": OUTPUT}, "Oh. No.", None),
    "responses, refused": ({"object": "response", "output": REFUSED}, "", "refusal"),
    "responses, filtered": (
        {"output": [], "incomplete_details": {"reason": "content_filter"}},
        "",
        "content_filter",
    ),
    "filtered": (
        {"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]},
        "",
        "content_filter",
    ),
    "no choices": ({"choices": None, "object": "chat.completion"}, "", "content_filter"),
    "of no API": ({"choices": None, "code": 500, "msg": "later"}, "", "error: no choices"),
    "Google": ({"candidates": [{"content": {"role": "model", "parts": [{"text": "Oh. No."}]}}]}, "Oh. No.", None),
    "Google, blocked": ({"promptFeedback": {"blockReason": "SAFETY"}, "candidates": []}, "", "content_filter"),
    "Ollama": ({"message": {"role": "assistant", "content": "Oh. No."}, "done_reason": "stop"}, "Oh. No.", None),
    "Bedrock": ({"output": {"message": {"role": "assistant", "content": [{"text": "Oh. No."}]}}}, "Oh. No.", None),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_body_of_an_answer_in_a_batch(tmp_path, name):
    body, response, reason = BODIES[name]
    lines = [{"custom_id": "a", "response": {"status_code": 200, "body": body}}]
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", lines)))
    assert (columns["response"], columns["left_out"]) == ([response], [reason])


def test_a_batch_of_anthropic(tmp_path):
    """Source of the format: docs.anthropic.com/en/api/retrieving-message-batch-results."""

    def message(content, stop):
        return {"type": "succeeded", "message": {"role": "assistant", "content": content, "stop_reason": stop}}

    results = {
        None: message(PARTS, "end_turn"),
        "never ended its reasoning": message([PARTS[0]], "max_tokens"),
        "refusal": message([], "refusal"),
        "errored invalid_request_error": {
            "type": "errored",
            "error": {"type": "error", "error": {"type": "invalid_request_error"}},
        },
        "expired": {"type": "expired"},
        "content_filter": {
            "type": "errored",
            "error": {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"},
            },
        },
    }
    lines = [{"custom_id": str(n), "result": result} for n, result in enumerate(results.values())]
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", lines)))
    assert columns["response"] == ["Oh. No.", "", "", "", "", ""] and columns["left_out"] == list(results)


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "I'm old."},
    {"role": "assistant", "content": "Hello!"},
    {"role": "user", "content": [{"type": "text", "text": "Can I ski?"}]},
    {"role": "assistant", "content": PARTS},
]
SHARED = [{"from": "human", "value": "Can I ski?"}, {"from": "gpt", "value": "Oh. No."}]
LOGS = {
    "messages": {"messages": CHAT, "descriptor": "old"},
    "ShareGPT": {"conversations": SHARED, "descriptor": "old"},
    "TRL": {"prompt": CHAT[:-1], "completion": CHAT[-1:], "descriptor": "old"},
    "langfuse": {"id": "1", "input": {"messages": CHAT[:-1]}, "output": CHAT[-1], "metadata": {"descriptor": "old"}},
    "langfuse, texts": {"id": "1", "input": "Can I ski?", "output": "Oh. No.", "metadata": '{"descriptor": "old"}'},
    "langfuse, answer": {"input": CHAT[:-1], "output": {"choices": [{"message": CHAT[-1]}]}, "descriptor": "old"},
}


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
def test_chats_and_traces(tmp_path, name, suffix):
    """The last user message is the text, the turns before it the persona, and the last answer the response."""
    path = tmp_path / f"log.{suffix}"
    if suffix == "csv":  # a cell with nested values is JSON
        cells = {key: it if isinstance(it, str) else json.dumps(it) for key, it in LOGS[name].items()}
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([cells.keys(), cells.values()])
    elif suffix == "json":
        path.write_text(json.dumps({"data": [LOGS[name]], "meta": {"page": 1}}))
    else:
        write_lines(path, [LOGS[name]])
    columns = read_responses(ResponseFile(path))
    assert (columns["text"], columns["response"]) == (["Can I ski?"], ["Oh. No."]) and columns["descriptor"] == ["old"]
    has_turns = name not in ("ShareGPT", "langfuse, texts")
    assert columns["persona"] == ["User: I'm old.\nAssistant: Hello!" if has_turns else ""]


def test_columns_are_named_by_paths(tmp_path):
    rows = [
        {
            "request": {"messages": CHAT[:-1]},
            "answer": CHAT[-1],
            "metadata": {"group": "old", "tags": ["x", "y"]},
            "n": 1,
        },
        {"request": {"messages": CHAT[:2]}, "answer": None, "metadata": {"group": 70, "tags": []}, "n": 2},
    ]
    named = {"text": "request.messages", "response": "answer", "descriptor": "metadata.group", "tag": "metadata.tags.1"}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "log.jsonl", rows), None, named))
    assert columns["text"] == ["Can I ski?", "I'm old."] and columns["response"] == ["Oh. No.", ""]
    assert columns["descriptor"] == ["old", "70"] and columns["tag"] == ["y", None] and columns["n"] == [1, 2]
    table = tmp_path / "log.csv"
    pd.DataFrame({"Question": ["Hi"], "Answer": ["Oh."], "meta": [json.dumps({"group": "old"})]}).to_csv(table)
    columns = read_responses(
        ResponseFile(table, None, {"text": "Question", "response": "Answer", "descriptor": "meta.group"})
    )
    assert (columns["text"], columns["response"], columns["descriptor"]) == (["Hi"], ["Oh."], ["old"])
    with pytest.raises(InputError, match=r"responses.columns: .*'meta.age' .*descriptor.*meta.group"):
        read_responses(ResponseFile(table, None, {"text": "Question", "response": "Answer", "descriptor": "meta.age"}))
    with pytest.raises(InputError, match=r"'response', 'text', 'descriptor'"):
        read_responses(ResponseFile(table))


def test_a_response_that_is_json_stays_a_text(tmp_path):
    rows = [{"text": "Give me JSON.", "descriptor": "old", "response": '{"text": "Oh."}'}]
    assert read_responses(ResponseFile(write_lines(tmp_path / "log.jsonl", rows)))["response"] == ['{"text": "Oh."}']


STOPS = {  # the word for the end of an answer, and the reason why "I am so" is left out; None: it is measured
    "stop": None,
    "end_turn": None,
    "FinishReason.MAX_TOKENS": None,
    "model_context_window_exceeded": None,
    "content_filter": "content_filter",
    "guardrail_intervened": "content_filter",
    "SAFETY": "content_filter",
    "RECITATION": "content_filter",
    "ERROR_TOXIC": "content_filter",
    "refusal": "refusal",
    "error": "failed: error",
    "OTHER": "unknown stop reason OTHER",
}


@pytest.mark.parametrize("place", ["choice", "message", "column", "batch"])
def test_one_table_says_what_a_stop_reason_means(tmp_path, place):
    rows = []
    for n, stop in enumerate(STOPS):
        row = {"text": "Can I ski?", "descriptor": "old"}
        choice = {"finish_reason": stop, "message": {"role": "assistant", "content": "I am so"}}
        if place == "choice":
            row["response"] = {"choices": [choice]}
        elif place == "message":
            row["response"] = json.dumps({"role": "assistant", "content": "I am so", "stop_reason": stop})
        elif place == "column":
            row |= {"response": "I am so", "finish_reason": stop}
        else:
            row = {"custom_id": str(n), "response": {"status_code": 200, "body": {"choices": [choice]}}}
        rows.append(row)
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", rows)))
    assert columns["left_out"] == list(STOPS.values())
    assert columns["response"] == ["" if reason else "I am so" for reason in STOPS.values()]
    assert [stop for stop, is_cut in zip(STOPS, columns["cut"], strict=True) if is_cut] == list(STOPS)[2:4]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"error": {"message": "Provider returned error", "code": 429}}, "error 429"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error overloaded_error"),
        ({"choices": [{"message": {"content": None}}], "error": {"code": 429}}, "error 429"),
        ({"choices": [{"message": {"content": "I am"}, "error": {"code": 502}, "finish_reason": "stop"}]}, "error 502"),
        ({"error": {"code": 403, "message": "Your input was flagged"}}, "content_filter"),
        ({"error": {"message": "this violates the rate limit", "code": 429}}, "error 429"),
        (
            {"object": "response", "status": "failed", "output": [], "error": {"code": "server_error"}},
            "error server_error",
        ),
        (
            {"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL"}]},
            "failed: MALFORMED_FUNCTION_CALL",
        ),
        ('{"error": "Rate limit exceeded"}', "failure of the client"),
        ('{"detail": "Not Found"}', "failure of the client"),
        ({"error": "Rate limit exceeded"}, "error Rate limit"),
        ({"detail": "Not Found"}, "error"),
        ("{'error': 'timeout', 'code': 504}", "failure of the client"),
        ("{'error': {'code': 429, 'message': None}}", "error 429"),
    ],
)
def test_a_body_with_an_error_is_no_answer(tmp_path, body, reason):
    rows = [{"text": "Can I ski?", "descriptor": "old", "response": body}]
    rows += [{"text": "Can I ski?", "descriptor": "old", "response": "Yes."}]
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", rows)))
    assert (columns["response"], columns["left_out"]) == (["", "Yes."], [reason, None])


def turn(role, text):
    return {"role": role, "content": text}


GREETING = turn("assistant", "Welcome! How can I help?")
ASKED = turn("user", "Can I ski?")
ANSWERED = turn("assistant", "Oh. No.")
CHATS = {  # a chat; the pair, the turns before it, the reason if there is no answer, and whether its end has none
    "greeted": ([GREETING, ASKED, ANSWERED], "Oh. No.", "Assistant: Welcome! How can I help?", None, False),
    "greeted only": ([GREETING, ASKED], "", "Assistant: Welcome! How can I help?", "chat without an answer", False),
    "ends with the user": ([ASKED, ANSWERED, turn("user", "Where is the exit?")], "Oh. No.", "", None, True),
    "ends with two": ([ASKED, ANSWERED, turn("user", "Hm."), turn("user", "Bye.")], "Oh. No.", "", None, True),
    "asked twice": ([turn("user", "Hi."), ASKED, ANSWERED], "Oh. No.", "User: Hi.", None, False),
    "with a tool": ([ASKED, turn("assistant", None), turn("tool", "snow: 0"), ANSWERED], "Oh. No.", "", None, False),
}


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("place", ["messages", "both columns", "response"])
def test_an_answer_belongs_to_the_message_before_it(tmp_path, name, place):
    chat, response, turns, reason, is_unanswered = CHATS[name]
    row = {"descriptor": "old"}
    if place == "messages":
        row["messages"] = chat
    elif place == "both columns":
        row |= {"text": chat, "response": json.dumps(chat)}
    else:
        row |= {"text": "Can I ski?", "response": chat}
    ok = {
        **row,
        **{key: "Hi." if key in ("text", "response") else [ASKED, ANSWERED] for key in row.keys() - {"descriptor"}},
    }
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [row, ok])))
    assert (columns["text"][0], columns["response"][0]) == ("Can I ski?", response)
    assert columns.get("left_out", [None])[0] == reason
    if place != "response":
        assert columns.get("persona", [""])[0] == turns
    if place == "messages":
        assert columns["unanswered_end"] == [is_unanswered, False]


def test_the_result_of_a_tool_is_no_message_of_the_user(tmp_path):
    """Anthropic sends it as one; without a question before it, the chat would be no row."""
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "snow", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "0"}]}
    row = {"messages": [ASKED, call, result, ANSWERED], "descriptor": "old"}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [row])))
    assert (columns["text"], columns["response"]) == (["Can I ski?"], ["Oh. No."])


@pytest.mark.parametrize(
    ("roles", "problem"),
    [
        (("customer", "agent"), "messages of customer, agent; write the roles user and assistant"),
        (("user", "Helper"), "messages of helper"),
        (("assistant", "assistant"), "no chat has a message of the user"),
    ],
)
def test_roles_that_nobody_knows_are_named(tmp_path, roles, problem):
    row = {"messages": [turn(role, "Hi.") for role in roles], "descriptor": "old"}
    with pytest.raises(InputError, match=problem):
        read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [row, row])))


LANGCHAIN = {"type": "ai", "content": "Oh. No.", "response_metadata": {"finish_reason": "content_filter"}}
WITHHELD = {  # an answer that its provider withheld
    "Python": str({"choices": [{"message": {"content": "Oh. No."}, "finish_reason": "content_filter"}], "usage": None}),
    "LangChain": [{"type": "human", "content": "Can I ski?"}, LANGCHAIN],
    "LangChain, dumped": {"lc": 1, "type": "constructor", "kwargs": LANGCHAIN},
    "LangSmith": {"generations": [[{"text": "Oh. No.", "generation_info": {"finish_reason": "content_filter"}}]]},
    "Titan": json.dumps({"results": [{"outputText": "Oh. No.", "completionReason": "CONTENT_FILTERED"}]}),
    "watsonx": json.dumps({"results": [{"generated_text": "Oh. No.", "stop_reason": "CONTENT_FILTERED"}]}),
    "Llama at Amazon": json.dumps({"generation": "Oh. No.", "stop_reason": "guardrail"}),
    "Mistral at Amazon": json.dumps({"outputs": [{"text": "Oh. No.", "stop_reason": "content_filtered"}]}),
}


@pytest.mark.parametrize("name", WITHHELD)
def test_the_end_of_an_answer_is_found_in_the_bodies_of_many_providers(tmp_path, name):
    row = {"text": "Can I ski?", "descriptor": "old", "response": WITHHELD[name]}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [row])))
    assert (columns["response"], columns["left_out"]) == ([""], ["content_filter"])
    whole = json.loads(
        json.dumps(WITHHELD[name]).replace("CONTENT_FILTERED", "stop").replace("content_filtered", "stop")
    )
    whole = json.loads(json.dumps(whole).replace("content_filter", "stop").replace("guardrail", "stop"))
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [{**row, "response": whole}])))
    assert columns["response"] == ["Oh. No."]


def test_a_path_to_a_text_finds_the_end_and_the_error_around_it(tmp_path):
    def row(error=None, **choice):
        return {"q": "Can I ski?", "who": "old", "r": {"choices": [choice] if choice else None, "error": error}}

    message = {"message": {"content": "I am"}}
    rows = [
        row(**message, finish_reason="stop"),
        row(**message, finish_reason="content_filter"),
        row(error={"code": 429}),
        row(**message, error="expected: Yes"),
    ]
    named = {"text": "q", "response": "r.choices.0.message.content", "descriptor": "who"}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", rows), named=named))
    assert columns["left_out"] == [None, "content_filter", "error 429", None]
    assert columns["response"] == ["I am", "", "", "I am"]


def test_the_end_of_an_answer_is_found_in_columns_of_its_object(tmp_path):
    """As pandas.json_normalize and exports of OpenTelemetry write it."""
    row = {"q": "Can I ski?", "a.0.message.content": "I am", "a.0.finish_reason": "content_filter", "who": "old"}
    named = {"text": "q", "response": "a.0.message.content", "descriptor": "who"}
    path = tmp_path / "r.csv"
    pd.DataFrame([row, {**row, "a.0.finish_reason": "stop"}]).to_csv(path, index=False)
    assert read_responses(ResponseFile(path, named=named))["left_out"] == ["content_filter", None]


def test_instructions_and_what_they_are_about(tmp_path):
    alpaca = [
        {"instruction": "May I?", "input": about, "output": "No.", "descriptor": "old"} for about in ("", "Skiing.")
    ]
    columns = read_responses(ResponseFile(write_lines(tmp_path / "a.jsonl", alpaca)))
    assert (columns["text"], columns["response"]) == (["May I?", "May I?\nSkiing."], ["No.", "No."])
    dolly = {"instruction": "May I?", "context": "Skiing.", "response": "No.", "category": "x", "descriptor": "old"}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "d.jsonl", [dolly])))
    assert (columns["text"], columns["response"]) == (["May I?\nSkiing."], ["No."])


def test_cells_with_objects_of_python_or_of_a_request(tmp_path):
    """pandas writes Python's notation; a request is a body around its messages."""
    path = tmp_path / "r.csv"
    chat = [{"role": "user", "content": "Can't I ski?"}]
    request = json.dumps({"model": "m", "messages": chat})
    rows = {"text": [str(chat), request], "response": [str([ANSWERED]), "Oh. No."], "descriptor": "old"}
    pd.DataFrame(rows).to_csv(path, index=False)
    columns = read_responses(ResponseFile(path))
    assert (columns["text"], columns["response"]) == (["Can't I ski?"] * 2, ["Oh. No."] * 2)


def test_names_with_dots_in_a_path(tmp_path):
    row = {"attributes.llm": {"q": "Can I ski?", "a": "Oh. No."}, "attributes.meta.data": {"who": "old"}}
    named = {"text": "attributes.llm.q", "response": "attributes.llm.a", "descriptor": "attributes.meta.data.who"}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [row]), named=named))
    assert (columns["text"], columns["response"], columns["descriptor"]) == (["Can I ski?"], ["Oh. No."], ["old"])


@pytest.mark.parametrize("is_metadata", [False, True])
@pytest.mark.parametrize("form", ["messages", "input", "prompt"])
def test_a_column_of_the_log_does_not_replace_the_message_of_the_user(tmp_path, form, is_metadata):
    """What the columns text and persona of a log mean is unknown; what was said is known."""
    chat = [turn("user", "Hi."), ASKED]
    places = {
        "messages": {"messages": [*chat, ANSWERED]},
        "input": {"input": {"messages": chat}, "output": ANSWERED},
        "prompt": {"prompt": chat, "completion": [ANSWERED]},
    }
    own = {"text": "ticket 7", "persona": "pirate", "tone": "warm"}
    row = {"descriptor": "old", **places[form], **({"metadata": own} if is_metadata else own)}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [row, row])))
    assert columns["text"] == ["Can I ski?"] * 2 and columns["response"] == ["Oh. No."] * 2
    assert columns["persona"] == ["User: Hi."] * 2 and columns["tone"] == ["warm"] * 2


@pytest.mark.parametrize(("own", "text"), [("I'm old.", "I'm old."), ("ticket 7", "Be kind.\nI'm old.")])
def test_the_text_of_a_sample_is_what_was_sent(tmp_path, own, text):
    doc = {"descriptor": "old", "text": own, "persona": "Be kind."}
    rows = [{"doc": doc, "resps": [["Oh."]], "arguments": {"gen_args_0": {"arg_0": "Be kind.\nI'm old."}}}] * 2
    assert read_responses(ResponseFile(write_lines(tmp_path / "samples_x.jsonl", rows)))["text"] == [text] * 2
    output = SimpleNamespace(choices=[SimpleNamespace(stop_reason="stop")], completion="Oh.")
    sample = {"id": "a", "epoch": 1, "input": "Be kind.\nI'm old.", "metadata": doc, "output": output, "error": None}
    (row,) = inspect_rows(SimpleNamespace(**sample), None)
    assert row["text"] == text


def test_each_choice_of_a_sample_of_inspect_is_a_response_and_its_turns_are_kept():
    """The second epoch of two choices has the third and the fourth response."""
    said = [("system", "Be kind."), ("user", "I'm old."), ("assistant", "Hello."), ("user", "Can I ski?")]
    choices = [SimpleNamespace(stop_reason="stop", message=SimpleNamespace(text=text)) for text in ("Yes.", "No.")]
    sample = SimpleNamespace(
        id="a",
        epoch=2,
        input=[SimpleNamespace(role=role, text=text) for role, text in said],
        metadata={},
        output=SimpleNamespace(choices=choices, completion="Yes."),
        error=None,
    )
    rows = list(inspect_rows(sample, None))
    assert [(row["prompt_id"], row["response"].text) for row in rows] == [("a#3", "Yes."), ("a#4", "No.")]
    assert {(row["text"], row["persona"]) for row in rows} == {("Can I ski?", "User: I'm old.\nAssistant: Hello.")}


def test_the_turns_of_a_named_chat_are_kept(tmp_path):
    chat = [turn("user", "I'm old."), turn("assistant", "Hello."), ASKED]
    row = {"request": {"messages": chat}, "answer": "Oh. No.", "who": "old"}
    named = {"text": "request.messages", "response": "answer", "descriptor": "who"}
    columns = read_responses(
        ResponseFile(write_lines(tmp_path / "r.jsonl", [row, row | {"request": {"messages": [ASKED]}}]), None, named)
    )
    assert columns["text"] == ["Can I ski?"] * 2
    assert columns["persona"] == ["User: I'm old.\nAssistant: Hello.", ""]


@pytest.mark.parametrize(
    "own",
    [
        '{"choices": ["red", "blue"]}',
        '{"candidates": [1, 2], "why": "…"}',
        '{"candidates": []}',
        '{"candidates": [{"name": "Ann", "score": 5}, {"name": "Bo", "score": 4}]}',
        '{"question": "Which?", "choices": [{"label": "A", "text": "Paris"}, {"label": "B", "text": "Rome"}]}',
        '{"conversation": [{"speaker": "Ann", "line": "Hi!"}]}',
        '{"messages": ["a", "b"]}',
        '{"chat": "Hello there!"}',
        '{"stop_reason": "red light", "answer": "yes"}',
        '{"error": {"line": 3}}',
        '{"error": "none", "answer": "Yes."}',
    ],
)
def test_a_quiz_in_json_is_an_answer(tmp_path, own):
    rows = [{"text": "Ask me.", "descriptor": who, "response": own} for who in ("old", "deaf")]
    assert read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", rows)))["response"] == [own] * 2


def test_a_chat_without_a_message_of_the_user_is_no_row(tmp_path):
    rows = [{"messages": [GREETING], "descriptor": "old"}, {"messages": [ASKED, ANSWERED], "descriptor": "deaf"}]
    assert read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", rows)))["descriptor"] == ["deaf"]


def test_messages_of_open_telemetry(tmp_path):
    """Semantic conventions 1.37: parts with `content`, in attributes that are texts of JSON."""
    asked = [{"role": "user", "parts": [{"type": "text", "content": "Can I ski?"}]}]
    parts = [{"type": "reasoning", "content": "Well"}, {"type": "text", "content": "Oh. No."}]
    answered = [{"role": "assistant", "parts": parts, "finish_reason": "length"}]
    row = {"attributes": {"input": json.dumps(asked), "output": json.dumps(answered), "who": "old"}}
    named = {"text": "attributes.input", "response": "attributes.output", "descriptor": "attributes.who"}
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", [row]), named=named))
    assert columns["text"] == ["Can I ski?"] and columns["response"] == ["Oh. No."]
    assert columns["cut"] == [True] and columns["reasoned"] == [True]


def test_samples_of_older_harnesses_and_what_is_wrong_with_others(tmp_path):
    older = SAMPLE | {"arguments": [["I'm old.", {"until": ["\n"]}]]}
    assert read_responses(ResponseFile(write_lines(tmp_path / "s.jsonl", [older])))["text"] == ["I'm old."] * 2
    for wrong, problem in (({"arguments": {}}, "arguments"), ({"resps": [["a"], ["b"]]}, "resps"), ({"doc": 1}, "doc")):
        with pytest.raises(InputError, match=f"sample 1: {problem} is"):
            read_responses(ResponseFile(write_lines(tmp_path / "s.jsonl", [SAMPLE | wrong])))


def test_an_error_in_a_column_says_why_there_is_no_response(tmp_path):
    rows = [
        {"text": "Can I ski?", "descriptor": "old", "response": None, "error": {"code": 429, "message": "slow down"}},
        {"text": "Can I ski?", "descriptor": "old", "response": "", "error": "timeout"},
        {"text": "Can I ski?", "descriptor": "old", "response": "Yes.", "error": "spelling"},
    ]
    columns = read_responses(ResponseFile(write_lines(tmp_path / "r.jsonl", rows)))
    assert columns["left_out"] == ["error 429", "error timeout", None]


@pytest.mark.parametrize(
    ("message", "reason"), [("connection reset", "error level ERROR"), ("content_filter triggered", "content_filter")]
)
def test_a_trace_of_a_call_that_failed_has_no_answer(tmp_path, message, reason):
    """langfuse exports such a call without an output, which is no empty answer."""
    good = {"input": "Can I ski?", "output": "Yes.", "descriptor": "old", "level": "DEFAULT", "statusMessage": None}
    path = tmp_path / "traces.jsonl"
    write_lines(path, [good, {**good, "output": None, "level": "ERROR", "statusMessage": message}])
    read = read_responses(ResponseFile(path))
    assert read["response"] == ["Yes.", ""] and read["left_out"] == [None, reason]


@pytest.mark.parametrize(
    "error",
    [
        {"code": 0, "message": "success"},
        {"code": None, "message": None},
        {"code": 200},
        {"message": ""},
        {"type": "none"},
    ],
)
def test_an_error_that_says_there_is_none_is_none(error):
    assert error_reason(error) == ""
    assert error_reason({**error, "code": 429}) == "error 429"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("no answer to Ann in room 12", "error"),
        ("ReadTimeout: Ann", "error ReadTimeout"),
        ("status 503, Ann", "error 503"),
    ],
)
def test_a_sentence_in_an_error_is_no_reason(error, reason):
    """Trackers get reasons, and no texts."""
    assert error_reason(error) == reason


def test_a_play_is_no_chat_and_an_empty_message_is_an_empty_answer():
    play = '[{"role": "hero", "content": "Halt!"}, {"role": "villain", "content": "Never!"}]'
    mail = '{"from": "Ann", "to": "Bob", "text": "Hi"}'
    assert parse_chat(play) == play and parse_chat(mail) == mail
    chat = '[{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]'
    assert answer_in(parse_chat(chat)).text == "Yo"
    cut = answer_in({"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}]})
    assert cut.text is None and cut.is_cut
