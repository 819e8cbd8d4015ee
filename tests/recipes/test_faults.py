"""Bad input: one clear error on one line, status 2, nothing lost; wrong inputs are rejected before torch is loaded."""

import json
import shlex
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from evenhand.evaluation import metrics as families
from evenhand.recipes.cli import main
from tests.forked_commands import wait_until
from tests.gendered_references import COLUMNS, ROWS, written_references, written_translations
from tests.measured_runs import write_measured
from tests.recorded_runs import change_record
from tests.testbed_settings import MASKED_MODEL, PAIRS

SMALL = ["--config", "testbed", "--prompts.descriptors", "3", "--prompts.answers_per_cell", "2", "--report_to", "none"]
SMALL += ["--generation_bias.neutral_dialogue", "null", "--generation_bias.permutations", "0", "--prompts.filters"]
SMALL += ['{axis: [ability], template: ["I\'m {noun_phrase}."], noun_phrase_type: [descriptor_noun]}']


def error_of(capsys, *arguments):
    assert main(arguments) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"evenhand {arguments[0]}: ")
    return error


@pytest.fixture
def measured(tmp_path):
    """A finished measuring run of eight made-up responses."""
    vectors = np.random.default_rng(0).dirichlet(np.ones(3), 8)
    return write_measured(tmp_path / "measured", vectors, ["yes"] * 8)


HEAVY = ("torch", "transformers", "peft", "trl", "sklearn")
# Wrong inputs of each family: flags, with {name} for a file of the fixture `wrong`, and a part of the error.
CLASSIFIER = "--offensive_classifier {classifier} --offensive_classifier.label"
WRONG = {
    "generation_bias": [
        ("--prompts.dataset {prompts}", "column 'descriptor' is missing"),
        ("--model {pickle}", "pytorch_model.bin may be a pickle"),
        ("--generation_bias.style_clusters {clusters}", "SYMPATHY: 'Sorrowful' is unknown"),
    ],
    "sentence_pairs": [
        ("--sentence_pairs.pairs {pairs}", "no column 'more', only stereo, less"),
        (f"--model {{absent}} --sentence_pairs.pairs {PAIRS}", "does not exist"),
    ],
    "likelihood_bias": [("--prompts.dataset {absent}", "absent")],
    "offensiveness": [(f"{CLASSIFIER} toxic", "'toxic' is not a label")],
    "translation_bias": [
        ("--translation_bias.translations {translations} --references {columns}", "'gender'"),
    ],
    "answer_accuracy": [
        ("--answer_accuracy.questions {pairs}", "prompts.cues: none is given"),
        ("--prompts.cues [profile] --answer_accuracy.questions {pairs}", "has no goal"),
    ],
    "embedding_bias": [("--model {absent} --references {references}", "does not exist")],
    "screen": [
        ("--model {absent}", "does not exist"),
        ("--prompts.descriptor_column who", "prompts.descriptor_column: 'who' is for own prompts"),
    ],
    "bbq": [("", "bbq.data: none is given"), ("--bbq.data {pairs}", "cannot be read")],
}
# Runs each command line of a file in one process; prints status, error, and what of HEAVY was imported by then.
EACH = """
import contextlib, io, json, sys
from evenhand.recipes.cli import main
for arguments in json.load(open(sys.argv[1])):
    error = io.StringIO()
    with contextlib.redirect_stderr(error):
        status = main(arguments)
    print(json.dumps([status, error.getvalue(), [name for name in {heavy!r} if name in sys.modules]]), flush=True)
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """Files and folders that lack something, and some that do not, by the names that WRONG has for them."""
    folder = tmp_path_factory.mktemp("wrong")
    for name in ("classifier", "pickle"):
        (folder / name).mkdir()
    labels = {"id2label": {0: "ok", 1: "offensive"}, "architectures": ["BertForSequenceClassification"]}
    (folder / "classifier" / "config.json").write_text(json.dumps(labels))
    (folder / "classifier" / "model.safetensors").write_bytes(b"")
    (folder / "pickle" / "config.json").write_text("{}")
    (folder / "pickle" / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    (folder / "prompts.csv").write_text("text,template,axis\nHi.,t,age\n")
    (folder / "pairs.csv").write_text("stereo,less\nHe ran.,She ran.\n")
    (folder / "clusters.json").write_text('{"SYMPATHY": ["Sympathetic", "Sorrowful"]}')
    place = COLUMNS.index("gender")
    lines = [",".join([*row[:place], *row[place + 1 :]]) for row in (COLUMNS, *ROWS)]
    (folder / "columns.csv").write_text("\n".join(lines) + "\n")
    translations = written_translations(folder / "translations", eng_Latn__spa_Latn=[ROWS[0][-1], ROWS[2][-1]])
    files = {name: folder / f"{name}.csv" for name in ("prompts", "pairs", "columns")}
    return {
        **files, "clusters": folder / "clusters.json", "classifier": folder / "classifier", "pickle": folder / "pickle",
        "references": written_references(folder), "translations": translations, "absent": folder / "absent",
    }  # fmt: skip


@pytest.fixture(scope="module")
def refusals(wrong, tmp_path_factory):
    """Of each (family, flags) of WRONG: the exit status, the error, and what of HEAVY was imported by then."""
    folder = tmp_path_factory.mktemp("rejected")
    cases = [(family, flags) for family, all_wrong in WRONG.items() for flags, _ in all_wrong]
    lines = []
    for family, flags in cases:
        given = shlex.split(flags.format(**wrong))
        base = ["--config", "testbed"] if family == "generation_bias" else ["--model", MASKED_MODEL.name]
        flags = ["--metrics", family, *given, "--output_dir", str(folder / "run"), "-q"]
        lines.append(["measure", *base, *flags])
    (folder / "lines.json").write_text(json.dumps(lines))
    command = [sys.executable, "-c", EACH.replace("{heavy!r}", repr(HEAVY)), str(folder / "lines.json")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not (folder / "run").exists()
    return dict(zip(cases, map(json.loads, done.stdout.splitlines()), strict=True))


def test_every_family_has_wrong_inputs():
    assert WRONG.keys() == {*families.names()}


@pytest.mark.parametrize(
    ("family", "flags", "message"), [(family, *each) for family, all_wrong in WRONG.items() for each in all_wrong]
)
def test_wrong_input_is_rejected_before_torch_is_imported(refusals, family, flags, message):
    status, error, heavy = refusals[family, flags]
    assert (status, heavy) == (2, [])
    assert message in error
    assert error.startswith("evenhand measure: ") and error.count("\n") == 1


def test_a_threshold_that_labels_nothing_can_be_mended_in_the_same_folder(capsys, measured, tmp_path):
    arguments = ["label", str(measured), "--output_dir", str(tmp_path / "l"), "--report_to", "none"]
    error = error_of(capsys, *arguments, "--beta", "99")
    assert "beta: 99.0 labels 0% of the responses" in error
    assert "between" in error
    assert main([*arguments, "--quantile", "0.5"]) == 0


def test_runs_of_another_format(capsys, measured, tmp_path):
    """Runs of another version are refused in one line and left unchanged."""
    old = shutil.copytree(measured, tmp_path / "old")
    change_record(old, format=3)
    for arguments in (
        ["label", str(old)],
        ["compare", str(measured), str(old)],
        ["compare", str(old), str(measured)],
    ):
        error = error_of(capsys, *arguments, "--output_dir", str(tmp_path / "new"), "--report_to", "none")
        assert f"{old} is a run of another version" in error and "`evenhand measure`" in error
        assert "Traceback" not in error
    kept = {path: path.read_bytes() for path in old.iterdir()}
    error = error_of(capsys, "measure", *SMALL, "--output_dir", str(old))
    assert f"output_dir: {old} is a run of another version" in error
    assert {path: path.read_bytes() for path in old.iterdir()} == kept


@pytest.mark.slow
def test_a_signal_ends_a_command_without_a_traceback(tmp_path, commands):
    running = commands.start("measure", "--config", "testbed", "--report_to", "none", "--output_dir", str(tmp_path))
    # Once the model responds: libraries ignore signals while they are loaded.
    wait_until(lambda: running.status() is not None or list(tmp_path.glob("parts/*/responses/*.parquet")))
    assert running.kill(signal.SIGINT) == 130
    assert "interrupted" in running.stderr and "Traceback" not in running.stderr


@pytest.mark.parametrize("work", ["", "sys.argv[1:] = ['configs']; main();"], ids=["start", "end"])
def test_an_interrupt_at_the_start_or_the_end_prints_nothing(work):
    code = f"import os, signal, sys; from evenhand.__main__ import main; {work} os.kill(os.getpid(), signal.SIGINT)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (process.returncode, process.stderr) == (-signal.SIGINT, "")
