"""Whatever lies in a file that a command reads, it ends with status 0, or 2 and one line that names file or setting.

Good files are spoilt: cut off, bits flipped, values in places of others, no text at all. More of it by EVENHAND_FUZZ.
"""

import copy
import csv
import io
import json
import os
import random
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.manifest import run_sha256
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.score import BiasScore, read_scores, write_scores
from evenhand.recipes import cli, compare, label, measure, rate, testbed, train_classifier, tune
from evenhand.recipes.settings import LabelSettings, RateSettings
from tests.bad_input import NO_TEXT, ODD_JSON, TINY_TAXONOMY, written_taxonomy
from tests.measured_runs import write_measured

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("EVENHAND_FUZZ", 3))  # of each file
fuzzed = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


BATCH_LINE = {"response": {"status_code": 200, "body": {"choices": [{"message": {"content": "Yes."}}]}}, "error": None}
SAMPLE = {"resps": [["Yes."]], "arguments": {"gen_args_0": {"arg_0": "Hi."}}, "filter": "none"}


class Begun(Exception):
    """A command has read its inputs and would begin to work."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of good files and finished runs, in which every stage ends as it begins."""
    place = tmp_path_factory.mktemp("fuzz")
    vectors = np.eye(3)[[0, 0, 1, 0, 1, 1, 2, 1]]
    for side in ("before", "after"):
        write_measured(place / side, vectors, [f"{side} {row}" for row in range(len(vectors))])
    labelling = LabelSettings(responses=place / "before", output_dir=place / "labels", report_to="none")
    inputs = {"responses": run_sha256(json.loads((place / "before" / "run.json").read_text()))}
    with stage("label", labelling, inputs):
        pass
    files = written_taxonomy(place / "taxonomy", TINY_TAXONOMY)
    rows = [{"text": f"Hi {d}.", "template": "Hi.", "axis": "age", "descriptor": d} for d in ("old", "young")]
    contents = {
        "prompts.jsonl": "\n".join(json.dumps(row | {"repeats": 2}) for row in rows),
        "batch_prompts.jsonl": "\n".join(
            json.dumps(row | {"prompt_id": name, "repeats": 1}) for row, name in zip(rows, "ab", strict=True)
        ),
        "prompts.csv": "text,template,axis,descriptor\nHi old.,Hi.,age,old\nHi young.,Hi.,age,young\n",
        "answers.jsonl": "\n".join(json.dumps(row | {"response": "Yes."}) for row in rows),
        "answers.csv": "text,descriptor,response\nHi old.,old,Yes.\nHi young.,young,\n",
        "batch.jsonl": "\n".join(json.dumps(BATCH_LINE | {"custom_id": name}) for name in ("a", "b")),
        "samples.jsonl": "\n".join(json.dumps(SAMPLE | {"doc": row}) for row in rows),
        "personas.txt": "I'm a cook.\nI like tea.\n\nI'm a nurse.\nI swim.\n",
        "pairs.csv": "more,less\nMany bakers are kind.,Many pilots are kind.\nA b c.,A d c.\n",
        "pairs.jsonl": '{"more": "Many bakers.", "less": "Many pilots."}\n{"more": "A b.", "less": null}\n',
        "references.csv": "english,lang,gender,reference\nHi.,spa_Latn,masculine,Él\nHi.,spa_Latn,feminine,Ella\n",
        "clusters.json": json.dumps({"KIND": ["Sympathetic"]}),
        "neutral.jsonl": '{"text": "Rain.", "response": "Yes."}\n{"text": "Sun.", "response": "No."}\n',
        "phrases.yaml": "kind:\n  axes: [age]\n  phrases: [so sorry]\n",
        "questions.yaml": "warmth: Who is warmer?\n",
        "leave_out.yaml": "template: []\ndescriptor: [b]\n",
        "texts.csv": "tweet,class\nawful,1\nlovely,0\nnasty,1\nsunny,0\n",
        "texts.jsonl": "\n".join(json.dumps({"tweet": f"a{n}", "class": n % 2}) for n in range(4)),
        "texts.tsv": "tweet\tclass\nawful\t1\nlovely\t0\n",
        "label.yaml": "quantile: 0.9\nalpha: 1\nexclude_clusters: []\n",
    }
    for name, text in contents.items():
        (place / name).write_text(text, encoding="utf-8")
    pd.DataFrame(rows).to_parquet(place / "prompts.parquet")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rate, "serve", lambda app, listening: None)
        rate.rate(RateSettings(before=place / "before", after=place / "after", output_dir=place / "rated", port=0))
        pair = pd.read_parquet(place / "rated" / "pairs.parquet").iloc[0]["prompt_id"]
        (place / "votes.csv").write_text(f"rater,prompt_id,question,choice\nann,{pair},preference,1\n")
        for module in (compare, label, measure, rate, train_classifier, tune):
            patched.setattr(module, "stage", begun)
        patched.chdir(place)
        yield place
    assert files.exists()


@contextmanager
def begun(command, settings, inputs=None, recomputable=None):
    """Stand for a stage that has something to do."""
    assert isinstance(command, str) and settings is not None and inputs is not None
    raise Begun
    yield


def ended_well(arguments: list[str], names: tuple[str, ...]) -> None:
    """Run a command: it begins to work, ends well, or ends with a line that holds one of the names."""
    for left in ("asked.csv", "rated/votes.jsonl"):
        Path(left).unlink(missing_ok=True)
    out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = cli.main([*arguments, "-q"])
        except Begun:
            status = 0
    if status != 0:
        line = err.getvalue()
        assert status == 2 and line.count("\n") == 1 and line.startswith("evenhand "), line
        assert any(name in line for name in names) and len(line) < 1500, line


MODEL = str(Path(testbed.__file__).parent / "masked_model")
TESTBED = ["measure", "--config", "testbed"]
ASKED = ["measure", "--prompts.descriptors", "null", "--write_prompts", "asked.csv"]
ANSWERED = [*TESTBED, "--model", "m"]
ANSWERED += ["--generation_bias.neutral_dialogue", "null"]
READERS = {
    "prompts.jsonl": [*ASKED, "--prompts.file"],
    "prompts.csv": [*ASKED, "--prompts.file"],
    "prompts.parquet": [*ASKED, "--prompts.file"],
    "taxonomy/descriptors.json": [*ASKED, "--prompts.dataset", "taxonomy", "--group"],
    "taxonomy/nouns.json": [*ASKED, "--prompts.dataset", "taxonomy", "--group"],
    "taxonomy/sentence_templates.json": [*ASKED, "--prompts.dataset", "taxonomy", "--group"],
    "taxonomy/standalone_noun_phrases.json": [*ASKED, "--prompts.dataset", "taxonomy", "--group"],
    "personas.txt": [*ASKED, "--prompts.dataset", "taxonomy", "--prompts.personas"],
    "answers.jsonl": [*ANSWERED, "--responses"],
    "answers.csv": [*ANSWERED, "--responses"],
    "batch.jsonl": [*ANSWERED, "--prompts.file", "batch_prompts.jsonl", "--responses"],
    "samples.jsonl": [*ANSWERED, "--responses"],
    "clusters.json": [*ANSWERED, "--responses", "answers.csv", "--generation_bias.style_clusters"],
    "neutral.jsonl": [
        "measure",
        "--config",
        "testbed",
        "--prompts.file",
        "prompts.csv",
        "--generation_bias.neutral_dialogue",
    ],
    "pairs.csv": ["measure", "--config", "testbed_pairs", "--sentence_pairs.pairs"],
    "pairs.jsonl": ["measure", "--config", "testbed_pairs", "--sentence_pairs.pairs"],
    "references.csv": ["measure", "--model", MODEL, "--metrics", "embedding_bias", "--embedding_bias.references"],
    "questions.yaml": ["rate", "--before", "before", "--after", "after", "--questions"],
    "leave_out.yaml": ["rate", "--before", "before", "--after", "after", "--leave_out"],
    "votes.csv": ["rate", "--output_dir", "rated", "--import_votes"],
    "texts.csv": ["train_classifier", "--texts"],
    "texts.jsonl": ["train_classifier", "--texts"],
    "texts.tsv": ["train_classifier", "--texts"],
    "phrases.yaml": ["compare", "--before", "before", "--after", "after", "--generation_bias.phrases"],
    "label.yaml": ["label", "--responses", "before", "--config"],
    "before/config.yaml": ["label", "--group", "x", "--responses", "before", "--group"],
    "before/run.json": ["label", "--responses", "before", "--group"],
    "after/config.yaml": ["compare", "--before", "before", "--after", "after", "--group"],
    "after/run.json": ["rate", "--before", "before", "--after", "after", "--group"],
    "after/scores.json": ["report", "after", "--output_dir"],
    "rated/run.json": ["rate", "--output_dir", "rated", "--import_votes", "votes.csv", "--group"],
    "before/styles.parquet": ["label", "--responses", "before", "--group"],
    "labels/config.yaml": ["tune", "--labels", "labels", "--group"],
    "labels/run.json": ["tune", "--labels", "labels", "--group"],
}


@pytest.mark.parametrize("name", READERS)
def test_spoilt_files(folder, name):
    file, arguments = folder / name, READERS[name]
    good = file.read_bytes()
    of_settings = [flag.rpartition(".")[2] for argument in arguments for flag in argument.split("--")[1:]]
    # A taxonomy of other words has other filters: that they choose nothing of it is the taxonomy's mistake or theirs.
    names = (file.name, file.parent.name, *of_settings, *(["filter"] if "taxonomy" in arguments else []))

    @fuzzed
    @given(st.integers(0, 2**32))
    def spoil(seed):
        file.write_bytes(spoilt(good, file.suffix, random.Random(seed)))
        ended_well([*arguments, str(file)], names)

    try:
        ended_well([*arguments, str(file)], ())
        spoil()
        for bad in NO_TEXT:
            file.write_bytes(bad)
            ended_well([*arguments, str(file)], names)
        file.unlink()
        ended_well([*arguments, str(file)], names)
        file.mkdir()
        ended_well([*arguments, str(file)], names)
        file.rmdir()
    finally:
        file.write_bytes(good)


def spoilt(good: bytes, suffix: str, rng: random.Random) -> bytes:
    """Return a file's contents with one thing, or several, wrong."""
    how = rng.randrange(5)
    if how == 0 or not good:
        return good[: rng.randrange(len(good) + 1)]
    if how == 1:
        found = bytearray(good)
        for _ in range(rng.randrange(1, 4)):
            found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
        return bytes(found)
    text = good.decode("utf-8", errors="replace")
    if suffix == ".json":
        return json.dumps(replaced(json.loads(text), rng)).encode()
    if suffix == ".jsonl":
        lines = [json.loads(line) for line in text.splitlines()]
        return "\n".join(json.dumps(line) for line in replaced(lines, rng, deeper=True)).encode()
    if suffix == ".yaml":
        return yaml.safe_dump(replaced(yaml.safe_load(text), rng)).encode()
    if suffix in (".csv", ".tsv"):
        rows = list(csv.reader(text.splitlines(), delimiter="\t" if suffix == ".tsv" else ","))
        row = rng.choice(rows)
        row[rng.randrange(len(row))] = rng.choice(["", " ", "x", '"', "1", "nan", "\x00", "a\nb", "=1+1", "é" * 300])
        if how == 4:
            row.pop(rng.randrange(len(row)))
        return "\n".join(",".join(row) for row in rows).encode()
    return good[rng.randrange(len(good)) :]


def replaced(value, rng: random.Random, deeper: bool = False):
    """Return a JSON value with a random one of those in it replaced by an odd one, or taken out."""
    value = copy.deepcopy(value)
    inside = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not inside or (not deeper and rng.random() < 0.2):
        return copy.deepcopy(rng.choice(ODD_JSON))
    key = rng.choice(inside)
    if rng.random() < 0.2:
        del value[key]
    else:
        value[key] = replaced(value[key], rng)
    return value


SCORES = [
    BiasScore("fgb", 0.1, 0.0, (0.0, 1.0), n=4, interval=(0.0, 0.2), group={"axis": "age"}, signature={"seed": 0}),
    BiasScore("pgb", float("nan"), 0.0, (0.0, 1.0), n=0, reason="nothing"),
]


def test_spoilt_scores(tmp_path):
    write_scores(tmp_path / "scores.json", SCORES)
    good = (tmp_path / "scores.json").read_bytes()

    @settings(fuzzed, max_examples=10 * EXAMPLES)
    @given(st.integers(0, 2**32))
    def spoil(seed):
        (tmp_path / "scores.json").write_bytes(spoilt(good, ".json", random.Random(seed)))
        try:
            assert all(isinstance(score, BiasScore) for score in read_scores(tmp_path / "scores.json"))
        except InputError as error:
            assert "scores.json" in str(error) and "\n" not in str(error)

    spoil()
