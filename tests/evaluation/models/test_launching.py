"""Servers that Evenhand starts: their command lines, and that they end with the measurement, however it ends."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from pydantic import ValidationError

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models import launching
from evenhand.evaluation.models.kinds.server import ServedModel
from evenhand.evaluation.models.launching import server_command
from evenhand.evaluation.prompt_settings import PromptSettings
from evenhand.evaluation.score import find_score, read_scores
from evenhand.evaluation.settings import Access
from evenhand.evaluation.tables import join_batches
from evenhand.recipes.measure import measure
from evenhand.recipes.received import NOWHERE, described
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.testbed import DIALOGUE_MODEL
from tests import stub_vllm, tiny_checkpoints
from tests.forked_commands import ENVIRONMENT, PATIENCE, ROOT, wait_until
from tests.testbed_settings import generation_bias

TINY = str(DIALOGUE_MODEL)
PROMPTS = pd.DataFrame({"prompt_id": ["1", "2"], "text": ["Hi!", "Hello."], "persona": ["", ""]})
LAUNCH = """
import sys, time
from evenhand.evaluation.models.launching import LaunchedServer
from evenhand.evaluation.model_settings import ModelSettings

server = LaunchedServer(ModelSettings(name="m", launch="vllm"))
print(server.process.pid, flush=True)
time.sleep(3600)
"""


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The file that the stub of vLLM writes; the stub is in PATH. The environment has a proxy that nothing reaches."""
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launching, "SECONDS_TO_END", PATIENCE)
    stub_vllm.install(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("STUB_VLLM", str(tmp_path / "started.json"))
    return tmp_path / "started.json"


def test_the_command_line_of_vllm(started, tmp_path):
    arguments = {"tensor_parallel_size": 8, "data_parallel_size": 2, "enforce_eager": True, "hf_overrides": {"a": 1}}
    model = ModelSettings(name="org/model", revision="abc", launch="vllm", launch_arguments=arguments)
    assert server_command(model, 8123) == [
        str(tmp_path / "bin" / "vllm"),
        "serve",
        "org/model",
        "--served-model-name=org/model",
        "--generation-config=vllm",
        "--host=127.0.0.1",
        "--port=8123",
        "--revision=abc",
        "--tensor-parallel-size=8",
        "--data-parallel-size=2",
        "--enforce-eager",
        '--hf-overrides={"a": 1}',
    ]


def test_a_model_is_measured_through_a_server_that_ends_with_it(started):
    model = ServedModel(ModelSettings(name="m", launch="vllm"), DecodingSettings(arguments={"max_new_tokens": 20}))
    tiny = ServedModel(ModelSettings(name=TINY, launch="vllm"))
    assert tiny.identity()["model"] == TINY
    assert not started.exists()  # nothing is started before it is needed
    answers = join_batches(model.respond(PROMPTS))
    assert answers["response"].str.len().gt(0).all()
    running = stub_vllm.processes(started)
    assert all(map(stub_vllm.is_running, running))
    model.close()
    assert not any(map(stub_vllm.is_running, running))
    model.close()  # again: nothing happens


def test_a_run_measures_and_ends_its_server(started, tmp_path):
    tiny_checkpoints.qwen(tmp_path / "model")
    measure(
        MeasureSettings(
            model=ModelSettings(name=str(tmp_path / "model"), launch="vllm"),
            prompts=PromptSettings(filters={"template": ["I'm {noun_phrase}."]}, descriptors=14, answers_per_cell=2),
            generation_bias=generation_bias(permutations=0),
            decoding=DecodingSettings(arguments={"max_new_tokens": 20}),
            output_dir=tmp_path / "run",
            report_to="none",
        )
    )
    assert not any(map(stub_vllm.is_running, stub_vllm.processes(started)))
    scores = read_scores(tmp_path / "run" / "scores.json")
    assert find_score(scores, "fgb", "pooled_corrected").signature["model"]["launch"] == "vllm"
    assert find_score(scores, "response_perplexity").value == pytest.approx(2.718281828)  # each token has −1


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_server_ends_with_the_process_that_started_it(started, sent):
    with subprocess.Popen([sys.executable, "-c", LAUNCH], stdout=subprocess.PIPE, text=True) as parent:
        supervisor = int(parent.stdout.readline())
        running = [supervisor, *stub_vllm.processes(started)]
        assert len(running) == 3 and all(map(stub_vllm.is_running, running))
        parent.send_signal(sent)
        parent.wait()
    wait_until(lambda: not any(map(stub_vllm.is_running, running)))


def test_the_supervisor_ends_the_server_if_it_is_ended(started):
    model = ServedModel(ModelSettings(name="m", launch="vllm"))
    _ = model.asked
    os.kill(model.launched.process.pid, signal.SIGTERM)
    wait_until(lambda: not any(map(stub_vllm.is_running, stub_vllm.processes(started))))
    model.close()


def test_a_server_that_ends_says_why(started, monkeypatch):
    monkeypatch.setenv("STUB_VLLM_FAILS", "1")
    with pytest.raises(InputError, match="model.launch: .* ended before it answered: “no GPU ") as error:
        _ = ServedModel(ModelSettings(name="m", launch="vllm")).asked
    assert "\x1b" not in str(error.value)


def test_a_server_that_is_killed_says_by_what(started, monkeypatch):
    monkeypatch.setenv("STUB_VLLM_FAILS", "SIGILL")  # as a build for another processor
    with pytest.raises(InputError, match=r"ended before it answered: “.*/vllm was ended by SIGILL\.”"):
        _ = ServedModel(ModelSettings(name="m", launch="vllm")).asked


def test_prompts_are_checked_before_a_server_starts(started, tmp_path):
    settings = MeasureSettings(
        model=ModelSettings(name=TINY, launch="vllm"),
        prompts=PromptSettings(descriptors=3),
        generation_bias=generation_bias(permutations=0),
        output_dir=tmp_path / "run",
        report_to="none",
    )
    with pytest.raises(InputError, match="descriptors: 3 is less"):
        measure(settings)
    assert not started.exists()


def test_a_command_that_is_not_installed_is_named_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="vllm is not installed"):
        ServedModel(ModelSettings(name="m", launch="vllm")).identity()


def test_several_processes_start_no_servers(started, monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="tensor_parallel_size"):
        _ = ServedModel(ModelSettings(name="m", launch="vllm")).asked
    assert not started.exists()


@pytest.mark.parametrize(
    "settings",
    [
        {"launch": "vllm", "server": "http://h/v1"},
        {"launch": "vllm", "source": "litellm"},
        {"launch_arguments": {"dtype": "half"}},
        {"launch": "vllm", "launch_arguments": {"port": 1}},
        {"launch": "vllm", "launch_arguments": {"--dtype": "half"}},
        {"launch": "vllm", "name": "--trust-remote-code"},
        {"launch": "vllm", "dtype": "bfloat16"},
        {"launch": "sglang"},
    ],
)
def test_settings_that_do_not_fit_are_refused(settings):
    with pytest.raises(ValidationError):
        ModelSettings(**{"name": "m", **settings})


def test_a_record_starts_no_server():
    model = {"name": "m", "launch": "vllm", "launch_arguments": {"trust_remote_code": True}, "server": None}
    found = described({"model": model}, but=["model"])["model"]
    assert (found["launch"], found["launch_arguments"]) == (None, None)
    assert (found["server"], found["tokenizer"]) == (NOWHERE, "m")
    settings = ModelSettings(**found)
    assert Access.LIKELIHOODS in ServedModel.access(settings) and ServedModel(settings).without_likelihoods


@pytest.mark.skipif(find_spec("fastapi") is None, reason="transformers' extra `serving` is not installed")
def test_transformers_serve_is_started_and_ended(tmp_path, monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    tiny_checkpoints.qwen(tmp_path / "model")
    settings = ModelSettings(
        name=str(tmp_path / "model"), launch="transformers", launch_arguments={"device": "cpu"}, concurrency=1
    )
    model = ServedModel(settings, DecodingSettings(arguments={"max_new_tokens": 8}))
    try:
        first = join_batches(model.respond(PROMPTS))
        again = join_batches(model.respond(PROMPTS))
        pid = model.launched.process.pid
        assert first["response"].tolist() == again["response"].tolist()
        assert json.loads(json.dumps(model.facts()["model"]["launch"])) == "transformers"
    finally:
        model.close()
    assert not Path(f"/proc/{pid}").exists()
