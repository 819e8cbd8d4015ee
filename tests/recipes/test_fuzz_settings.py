"""Whatever the value of a setting, the command ends with status 0, or 2 and one line that names the field.

A file sets every field to some values of ODD, and fields of each kind to all of them; hypothesis draws flags,
EVENHAND_FUZZ=2000 many of them.
"""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenhand.evaluation import families
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import select_prompts
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.decoding import PRESETS, decoding
from evenhand.evaluation.runs.run_paths import with_relative_paths
from evenhand.evaluation.runs.settings_comparison import settings_sha256
from evenhand.evaluation.settings import as_settings
from evenhand.recipes import command_line, commands
from evenhand.recipes.checking import settings_in
from evenhand.recipes.command_line import main
from evenhand.recipes.settings import COMMANDS
from tests.bad_input import ODD, TINY_TAXONOMY, written_taxonomy

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("EVENHAND_FUZZ", 60))
STEP = 10  # every tenth odd value to a field, other ones to the next field
fuzzed = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
FIELDS = {name: [one.name for one in settings_in(cls)] for name, cls in COMMANDS.items()}
OF_STAGES = ("loop", "ablate")  # what is nested in them is another command's


@pytest.fixture(scope="module")
def run_command():
    """A function: the status and stderr of a command, which does no more than begin."""

    def begin(settings) -> None:
        plain = as_settings(settings)
        settings_sha256(with_relative_paths(plain, Path("run")))
        assert yaml.safe_load(yaml.safe_dump(plain)) is not None

    def run(*arguments: str) -> tuple[int, str]:
        out, err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            status = main([*arguments, "-q"])
        return status, err.getvalue()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(command_line, "command_parser", cache(command_line.command_parser))
        patched.setattr(command_line, "root_parser", cache(command_line.root_parser))
        patched.setattr(commands, "import_module", lambda name: SimpleNamespace(**dict.fromkeys(COMMANDS, begin)))
        for name in ("check_before_loading", "check_default_classifier"):
            patched.setattr(command_line, name, lambda *settings: None)
        yield run


def one_line(status: int, err: str, name: str) -> None:
    """Check that a command ended well, or by a line that names the field."""
    if status == 0:
        assert err == ""
        return
    assert status == 2 and err.count("\n") == 1 and err.startswith("evenhand") and name in err, err
    assert len(err) < 1000, err


@pytest.mark.parametrize("command", COMMANDS)
def test_odd_values_in_a_file(run_command, tmp_path, command):
    file = tmp_path / "c.yaml"
    for number, field in enumerate(FIELDS[command]):
        parts = field.split(".")
        if command in OF_STAGES and len(parts) > 1:
            continue
        needed = {"metrics": [parts[0]]} if command == "measure" and parts[0] in families.names() else {}
        for value in ODD[number % STEP :: STEP]:
            for part in reversed(parts):
                value = {part: value}
            file.write_text(yaml.safe_dump({**needed, **value}), encoding="utf-8")
            one_line(*run_command(command, "--config", str(file)), parts[-1])


OF_EACH_KIND = {
    "measure": ["seed", "prompts.filters", "model", "metrics"],
    "label": ["responses", "beta"],
    "tune": ["training.peft"],
    "ablate": ["sweep", "seeds"],
    "train_classifier": ["labels", "label_separator"],
    "report": ["folders"],
}


@pytest.mark.parametrize(
    ("command", "field"), [(command, field) for command, fields in OF_EACH_KIND.items() for field in fields]
)
def test_every_odd_value_to_a_field_of_each_kind(run_command, tmp_path, command, field):
    for value in ODD:
        for part in reversed(field.split(".")):
            value = {part: value}
        (tmp_path / "c.yaml").write_text(yaml.safe_dump(value), encoding="utf-8")
        one_line(*run_command(command, "--config", str(tmp_path / "c.yaml")), field.rpartition(".")[2])


@fuzzed
@given(st.data())
def test_odd_flags(run_command, data):
    command = data.draw(st.sampled_from(list(COMMANDS)))
    field = data.draw(st.sampled_from(FIELDS[command]))
    texts = st.text(max_size=12) | st.sampled_from([yaml.safe_dump(value).strip() for value in ODD])
    texts |= st.text("[]{}:,'\"&*!|>%@-#? \n\t0", max_size=8)
    status, err = run_command(command, f"--{field}={data.draw(texts)}")
    one_line(status, err, next((name for name in families.names() if name in field), field.rpartition(".")[2]))


@pytest.mark.parametrize("key", ["nothing", "", "1", "a.b", "seed ", "config", None, 1, 1.5, True])
def test_keys_that_are_none(run_command, tmp_path, key):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({key: 1}), encoding="utf-8")
    status, err = run_command("measure", "--config", str(tmp_path / "c.yaml"))
    assert status == 2
    one_line(status, err, str(key))


@pytest.mark.parametrize(
    "text", ["1", "- a", "a: b: c", "\t", "{", "? a", "&a [*a]", "a: &x {y: *x}", "[" * 5000, "\x00", "a: !!python/x"]
)
def test_files_that_are_no_settings(run_command, tmp_path, text):
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    one_line(*run_command("label", "--config", str(tmp_path / "c.yaml")), "c.yaml")


ARGUMENTS = [
    *dict.fromkeys([*PRESETS["sample"], *PRESETS["paper"], "suppress_tokens", "bad_words_ids", "stop_strings"])
]
ARGUMENTS += ["sequence_bias", "min_p", "typical_p", "repetition_penalty", "length_penalty", "exponential_decay"]


def test_odd_arguments_and_filters(tmp_path):
    for name in sorted(ARGUMENTS):
        for value in ODD:
            refused(lambda name=name, value=value: decoding("sample", **{name: value}), name)
    prompts = generate_prompts(load_taxonomy(written_taxonomy(tmp_path, TINY_TAXONOMY)))
    for name in ("axis", "descriptor", "first_turn_only", "nothing"):
        for value in ODD:
            refused(lambda name=name, value=value: select_prompts(prompts, **{name: value}), name)
    refused(lambda: decoding("sample", temperature=10**400), "temperature")


def refused(call, name: str) -> None:
    """Check that a call ends well, or by an error of one line that has the name."""
    try:
        call()
    except InputError as error:
        assert name in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("command", "text", "message"),
    [
        ("label", f"seed: {'9' * 5000}", "is not YAML: Exceeds the limit"),
        ("label", 'responses: "\\0"', "responses: '\\x00' cannot be used: It contains a null character"),
        (
            "measure",
            "prompts: {filters: {axis: !!binary AAAA}}",
            "prompts.filters: {'axis': b'\\x00\\x00\\x00'} cannot",
        ),
        ("measure", f"prompts: {{per_cell: {10**30}}}", "prompts.per_cell: 1"),
        ("measure", f"decoding: {{arguments: {{top_k: {10**400}}}}}", "decoding.arguments: {'top_k': 1"),
        ("tune", f"seed: {2**32}", "seed: 4294967296 cannot be used: Input should be less than 4294967296"),
        ("measure", f"metrics: [{'x' * 5000}]", "x…"),
        ("label", "[" * 100_000, "is not YAML: line 1: more than 100 levels"),
        ("label", "seed: 1\nmethod: {}\nseed: 2", "is not YAML: line 3 has the key 'seed' a second time"),
        (
            "label",
            "a: &a [x]\n"
            + "\n".join(f"{'bcdefg'[n]}: &{'bcdefg'[n]} [{','.join(['*' + 'abcdef'[n]] * 9)}]" for n in range(6)),
            "is not YAML: line 6: more than 100 levels or 100,000 values",
        ),
        ("label", "a: &a [*a]", "is not YAML: line 1 has the alias *a"),
        ("label", f"a: {'x' * 300_000}", "is not YAML: it has more than 262,144 characters"),
    ],
)
def test_what_was_a_traceback_or_a_flood_is_one_line(run_command, tmp_path, command, text, message):
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    status, err = run_command(command, "--config", str(tmp_path / "c.yaml"))
    assert status == 2
    one_line(status, err, message)
