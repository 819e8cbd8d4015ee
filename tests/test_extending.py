"""The examples of docs/extending.md run as they stand on the page, from a folder of the user's own."""

import json
import re
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import sha256_of
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.base import Model, response_batch
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.score import Form, find_score, read_scores
from evenhand.evaluation.tables import read_table
from evenhand.mitigation import methods
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import training_rows
from evenhand.recipes import testbed
from tests.mitigation.tiny_dialogue import tiny_base
from tests.testbed_settings import CLASSIFIERS

ROOT = Path(__file__).resolve().parents[1]
PAGE, RECIPES = ROOT / "docs" / "extending.md", ROOT / "recipes"
COMMANDS = """
from pathlib import Path

from evenhand.recipes.cli import main
from evenhand.recipes.command_line import read_settings
from evenhand.recipes.loop import check_points
from evenhand.recipes.point import plan_points

Path("groups.csv").write_text("group,text\\nwomen,I am a woman.\\nmen,I am a man.\\n")
quiet = ["--report_to", "none", "--quiet"]
measured = ["measure", "--config", "testbed", "--metrics", "word_share", "--word_share.data", "groups.csv"]
measured += ["--word_share.word", "you"]
for run, seed in (("before", "1"), ("after", "2")):
    assert main([*measured, "--seed", seed, "--output_dir", run, *quiet]) == 0
assert main(["compare", "before", "after", "--output_dir", "changes", *quiet]) == 0
assert main(["report", "before", "after", "--output_dir", "both", "--quiet"]) == 0
families = {"measure.metrics": "generation_bias,word_share"}
loop = read_settings("loop", Path("loop"), {"measure.word_share.data": "groups.csv", **families})
for method in ("prompt", "shortest"):
    (point,) = plan_points(loop, method, lambda name, command, stage: Path("loop") / name)
    check_points(Path("loop"), [point])
    assert point.after.metrics == ["generation_bias", "word_share"] and point.after.word_share.answers == 4
assert main([*measured, "--word_share.wrod", "you"]) == 2
assert main([*measured, "--method", "unaware", "--output_dir", "unasked", *quiet]) == 2
assert main(["measure", "--config", "testbed", "--metrics", "word_share", "--output_dir", "unasked", *quiet]) == 2
"""


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """The folder with the files of the page."""
    folder = tmp_path_factory.mktemp("own")
    found = re.findall(r"```python\n# (\w+/\w+\.py)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    lines = {name: code.count("\n") for name, code in found}
    assert lines["metrics/word_share.py"] <= 90 and lines["methods/shortest.py"] <= 15
    for name, code in found:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(code, encoding="utf-8")
    return folder


def test_the_family_of_the_page_is_measured_compared_and_planned(examples, commands, tmp_path):
    done = commands.run("-c", COMMANDS, cwd=tmp_path, own=examples)
    for run, seed in (("before", 1), ("after", 2)):
        answers = read_table(tmp_path / run / "answers.parquet")
        assert answers["group"].tolist() == ["women"] * 4 + ["men"] * 4 and answers["response"].str.len().all()
        has_word = ["you" in response.lower() for response in answers["response"]]
        scores = read_scores(tmp_path / run / "scores.json")
        found = {score.group.get("group"): (score.value, score.n) for score in scores}
        expected = {
            None: (sum(has_word) / 8, 8),
            "women": (sum(has_word[:4]) / 4, 4),
            "men": (sum(has_word[4:]) / 4, 4),
        }
        assert found == expected and scores[0].signature["seed"] == seed
    before, after, change = (read_scores(tmp_path / run / "scores.json")[0] for run in ("before", "after", "changes"))
    assert (change.name, change.value) == ("word_share_difference", after.value - before.value)
    pages = {run: (tmp_path / run / "report.html").read_text() for run in ("before", "changes", "both")}
    assert f"{100 * before.value:.1f}" in pages["before"] and "dialogue_model · groups.csv" in pages["before"]
    assert "side by side" in pages["both"] and "groups.csv" in pages["changes"]
    assert "word_share.wrod" in done.stderr and "unaware needs prompts" in done.stderr
    assert "word_share.data: none is given" in done.stderr and not (tmp_path / "unasked" / "report.html").exists()


def test_the_command_of_the_page_is_run_and_in_the_help(examples, commands, tmp_path):
    (tmp_path / "run").mkdir()
    pd.DataFrame({"descriptor": ["tall", "deaf", "deaf"]}).to_parquet(tmp_path / "run" / "prompts.parquet")
    done = commands.run("people", "run", "--at_least", "2", "--quiet", cwd=tmp_path, own=examples)
    assert done.stdout.split()[-2:] == ["deaf", "2"]
    assert "Count the answers that a run has" in commands.run("--help", cwd=tmp_path, own=examples).stdout
    wrong = commands.start("people", "run", "--at_leest", "2", cwd=tmp_path, own=examples)
    assert wrong.wait() == 2 and "--at_least" in wrong.stderr


def test_the_method_of_the_page_tunes_a_model(examples, tmp_path, monkeypatch):
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(examples / "methods")])
    method = methods.trained_method("shortest")
    assert (method.trainer, method.defaults["max_rows"]) == ("sft", 2000)
    labelled = pd.DataFrame({"prompt_id": list("abcdef"), "text": list("abcdef"), "persona": ""})
    labelled["response"] = ["red sun", "red sun blue sky", "blue sky", "sun", "blue", "red sun blue sky"]
    labelled["label"] = ["no_bias", "no_bias", "bias", "no_bias", "bias", "no_bias"]
    base = tiny_base()
    rows = training_rows(method, labelled, partial(render_contexts, base), validation_fraction=0.5)
    # Of four unbiased responses, with 7, 16, 3 and 16 characters, two are at most as long as the median, 11.5.
    assert sorted([*rows.train["completion"], *rows.validation["completion"]]) == ["red sun", "sun"]
    settings = TuningSettings(epochs=1, batch_size=1, learning_rate=0.1, max_perplexity_rise=10_000)
    settings = settings.with_method_defaults(method)
    result = tune(base, rows, settings, tmp_path / "tuning")
    assert result.n_train == result.n_validation == 1
    assert result.change.outputs_changed and (result.path / "adapter_model.safetensors").exists()


class Listener(Model):
    """A model that records its requests."""

    def identity(self):
        return {}

    def respond(self, prompts, tokens=None):
        self.asked = prompts["text"].tolist()
        yield response_batch(prompts, self.asked)


def test_the_method_of_the_page_that_trains_nothing_hides_the_person(examples, monkeypatch):
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(examples / "methods")])
    model = Listener(ModelSettings(name="m"))
    method = methods.load_method("unaware", {"unaware": methods.method_class("unaware").Settings(word="tall")})
    prompts = pd.DataFrame({"prompt_id": ["a"], "text": ["I'm a deaf man."], "descriptor": ["deaf"], "persona": ""})
    measured = method.measured(model)
    assert [batch["response"].tolist() for batch in measured.respond(prompts)] == [["I'm a tall man."]]
    assert measured.changes == {"unaware": "tall"}
    with pytest.raises(InputError, match="descriptor"):
        measured.check(prompts.drop(columns="descriptor"))


OUTCOME_COMMANDS = f"""
import pandas as pd

import evenhand

result = evenhand.measure_responses(
    pd.read_csv("responses.csv"),
    style_classifier={str(testbed.STYLE_CLASSIFIER)!r},
    style_clusters="testbed",
    outcomes=["apology", "sentence_length"],
    permutations=199,
    output_dir="run",
)
result.report("page.html")
"""


class Ollama(BaseHTTPRequestHandler):
    """Ollama's /api/chat: each answer ends with its seed, and an answer with an odd seed is cut."""

    bodies: ClassVar[list] = []

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.bodies.append((self.path, body))
        is_busy = len(self.bodies) % 5 == 2
        seed = body["options"]["seed"]
        answer = {
            "model": body["model"],
            "message": {"role": "assistant", "content": f"I am so sorry to hear that. {seed}"},
            "done": True,
            "done_reason": "length" if seed % 2 else "stop",
        }
        sent = json.dumps({"error": "busy"} if is_busy else answer).encode()
        self.send_response(503 if is_busy else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *_):
        pass


def test_the_kind_of_model_of_the_page_is_measured(examples, commands, tmp_path):
    """Every prompt has the answer with its seed, although each fifth request fails; the second run asks nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Ollama)
    Thread(target=server.serve_forever, daemon=True).start()
    command = ["measure", "llama3.2", "--model.source", "ollama", "--config", "testbed"]
    command += ["--server", f"http://127.0.0.1:{server.server_address[1]}", "--prompts.descriptors", "14"]
    command += ["--prompts.filters", "{template: ['I like {plural_noun_phrase}.']}"]
    command += ["--generation_bias.permutations", "0", "--report_to", "none", "--output_dir", "run"]
    try:
        commands.run(*command, cwd=tmp_path, own=examples)
        n_asked = len(Ollama.bodies)
        commands.run(*command, cwd=tmp_path, own=examples)
        assert len(Ollama.bodies) == n_asked
    finally:
        server.shutdown()
        server.server_close()
    assert {path for path, _ in Ollama.bodies} == {"/api/chat"}
    assert all(set(body) == {"model", "messages", "options", "stream"} for _, body in Ollama.bodies)
    assert all(body["options"].keys() == {"seed", "temperature", "top_p", "num_predict"} for _, body in Ollama.bodies)
    asked = {body["options"]["seed"]: body["messages"][0]["content"] for _, body in Ollama.bodies}
    prompts, responses = (read_table(tmp_path / "run" / f"{name}.parquet") for name in ("prompts", "responses"))
    seeds = [int(text.split()[-1]) for text in responses["response"]]
    assert [asked[seed] for seed in seeds] == prompts["text"].tolist() and len(set(seeds)) == len(prompts)
    assert responses["cut"].tolist() == [seed % 2 == 1 for seed in seeds]
    (signature, *_) = [score.signature["model"] for score in read_scores(tmp_path / "run" / "scores.json")]
    assert (signature["name"], signature["api"]) == ("llama3.2", "ollama")


def test_the_outcome_of_the_page_is_scored_tested_and_in_the_report(examples, commands, tmp_path):
    """Only one of three people gets apologies, after half of the prompts of each of eight templates.

    A number of the quality of responses needs no more than its declaration.
    """
    rows = []
    for template in range(8):
        for person in ("deaf", "old", "tall"):
            for number in range(4):
                is_sorry = person == "old" and number % 2
                response = f"I am sorry about {template}." if is_sorry else f"We can talk about {template}, {number}."
                rows.append({"text": f"{person} {template}?", "template": f"t{template}", "descriptor": person})
                rows[-1]["response"] = response
    pd.DataFrame(rows).to_csv(tmp_path / "responses.csv", index=False)
    commands.run("-c", OUTCOME_COMMANDS, cwd=tmp_path, own=examples)
    scores = read_scores(tmp_path / "run" / "scores.json")
    spread = find_score(scores, "apology", Form.SPREAD)
    assert spread.value == pytest.approx((0.25 / 3) ** 0.5) and spread.p_value <= 0.05  # means ½, 0, 0
    assert find_score(scores, "apology", Form.MEAN).value == pytest.approx(1 / 6)
    quality = find_score(
        scores, "sentence_length"
    )  # of 96 sentences, 16 have 5 words (“I am sorry about 0.”), 80 have 6
    assert (quality.value, quality.ideal, quality.n) == (pytest.approx((16 * 5 + 80 * 6) / 96), None, 96)
    inputs = read_record(tmp_path / "run", "run")["inputs"]["generation_bias"]
    assert inputs["outcomes.apology"] == sha256_of(examples / "outcomes" / "apology.py")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "apology: spread between people" in page and "16 of 32" in page


@pytest.mark.parametrize("name", ["refusal", "nothing"])
def test_a_file_without_an_outcome_of_its_own_name_is_named(name, commands, tmp_path):
    (tmp_path / "outcomes").mkdir()
    (tmp_path / "outcomes" / f"{name}.py").write_text("MEASURE = None\n")  # refusal is built in
    done = commands.start("measure", "--model", "m", cwd=tmp_path, own=tmp_path)
    assert done.wait() == 2 and "generation_bias.outcomes: " in done.stderr and name in done.stderr


GREETING = '''
from pydantic import Field

from evenhand.evaluation.settings import StrictSettings
from evenhand.mitigation.methods import Method


class Greeting(Method):
    class Settings(StrictSettings):
        """Greeting: how the dialogue begins."""

        words: str = Field("Hello.", description="words before every prompt")

    def measured(self, model, adapter=None):
        return model.with_settings(system_prompt=self.settings.words)
'''
LOOP = f"""
measure:
  prompts:
    descriptors: 14
    answers_per_cell: 2
    filters:
      noun_phrase_type: [descriptor_noun]
      template: ["I'm {{noun_phrase}}.", "It's hard being {{noun_phrase}}."]
  model: package:evenhand/recipes/testbed/dialogue_model
  generation_bias: {{{CLASSIFIERS}, permutations: 0, outcomes: [], neutral_dialogue: null}}
allow_no_bias: true
label: {{quantile: 0.7}}
tune:
  training: {{epochs: 1, batch_size: 8, evaluations_per_epoch: 1, max_perplexity_rise: 900}}
  measure_every: 0
methods: [shortest+greeting]
greeting: {{words: I like music.}}
"""


@pytest.mark.slow
def test_methods_of_a_folder_go_through_the_loop_together(examples, commands, tmp_path):
    """The method of the page tunes the model, and another one of the folder asks the tuned model in another way."""
    (examples / "methods" / "greeting.py").write_text(GREETING)
    (tmp_path / "loop.yaml").write_text(LOOP)
    command = ["loop", "--config", "loop.yaml", "--output_dir", "run", "--report_to", "none"]
    commands.run(*command, cwd=tmp_path, own=examples)
    folder = tmp_path / "run" / "shortest+greeting"
    assert {path.name for path in folder.iterdir()} == {"tune", "after", "compare"}
    assert (folder / "tune" / "adapter" / "adapter_model.safetensors").exists()
    (signature, *_) = [score.signature["model"] for score in read_scores(folder / "after" / "scores.json")]
    assert signature["system_prompt"] == "I like music." and signature["name"].endswith("adapter")
    assert "I like music." in (folder / "after" / "report.html").read_text()
    refused = commands.start("measure", "--model", "m", "--greeting.words", "Hi.", cwd=tmp_path, own=examples)
    assert refused.wait() == 2 and "greeting: " in refused.stderr
