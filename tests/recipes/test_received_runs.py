"""Run folders that come from somebody else: a record executes no code, sends and writes nothing."""

import contextlib
import json
import re
import shutil
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pandas as pd
import pytest

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.record import read_record
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.runs.tracking import destinations
from evenhand.evaluation.settings import as_settings, checked
from evenhand.recipes.automatic import with_base_run
from evenhand.recipes.cli import main
from evenhand.recipes.command_line import read_settings, settings_in
from evenhand.recipes.command_settings import COMMANDS
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.loop import loop
from evenhand.recipes.received import ACTING, NOWHERE, PLACES, Permissions, acting_settings, check_permitted, described
from evenhand.recipes.tuning_settings import LabelSettings, LoopSettings, TuneSettings
from tests.measured_runs import write_measured
from tests.recorded_runs import change_record, write_run
from tests.testbed_settings import MEASURE

VECTORS = [[0.9, 0.1, 0], [0.4, 0.6, 0], [0.1, 0.9, 0], [0.6, 0.4, 0]]


def contents(folder):
    """What a folder holds, by path."""
    return {path: path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


@pytest.fixture
def precious(tmp_path):
    """A file outside all runs."""
    path = tmp_path / "precious.txt"
    path.write_text("years of work")
    return path


@pytest.fixture
def command(tmp_path):
    """A finished labelling of a finished measurement, as the arguments that made it; its folder is `label`."""
    clusters = tmp_path / "clusters.json"
    clusters.write_text(json.dumps({"Z": ["z"]}))
    measured = write_measured(tmp_path / "train", VECTORS, ["yes", "no"] * 2, style_clusters=str(clusters))
    given = ["label", str(measured), "--output_dir", str(tmp_path / "label")]
    assert main([*given, "--report_to", "none", "--quantile", "0.5"]) == 0
    return [*given, "--report_to", "none", "--quantile", "0.5"]


@pytest.mark.parametrize(("run", "field"), [("label", "output_dir"), ("train", "run")])
def test_a_manifest_that_lists_a_file_outside_its_folder_deletes_nothing(
    command, precious, tmp_path, run, field, capsys
):
    files = read_record(tmp_path / run, "run")["files"]
    change_record(tmp_path / run, files={"../precious.txt": "0" * 64, **files})
    kept = contents(tmp_path)
    assert main(command) == 2
    assert f"{field}: {tmp_path / run / 'run.json'} lists the file '../precious.txt'" in capsys.readouterr().err
    assert contents(tmp_path) == kept


def test_a_provider_that_a_record_names_is_never_asked():
    model = described({"model": {"name": "anthropic/m", "source": "litellm", "server": None}})["model"]
    assert (model["source"], model["server"]) == ("server", NOWHERE)
    assert described({"model": {"name": "m", "source": "weights"}})["model"]["source"] == "weights"


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_run_that_is_read_is_never_changed(command, tmp_path, damage, capsys):
    shutil.rmtree(tmp_path / "label")
    damage(tmp_path / "train" / "styles.parquet")
    kept = contents(tmp_path / "train")
    assert main(command) == 2
    assert "styles.parquet is missing or damaged" in capsys.readouterr().err
    assert contents(tmp_path / "train") == kept


def test_damaged_parts_behind_a_link_are_not_deleted(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "mine.parquet").write_text("no Parquet of ours")
    settings = LabelSettings(output_dir=tmp_path / "run", report_to="none")
    with contextlib.suppress(KeyboardInterrupt), stage("label", settings):
        raise KeyboardInterrupt
    (tmp_path / "run" / "parts").mkdir()
    (tmp_path / "run" / "parts" / "rows").symlink_to(tmp_path / "elsewhere")
    refused = pytest.raises(InputError, match=r"^output_dir: \S+parts/rows ")
    with refused, stage("label", settings) as run:
        run.rows("rows", pd.DataFrame({"n": [1]}), lambda items: [items])
    assert (tmp_path / "elsewhere" / "mine.parquet").exists()


def test_a_lock_that_is_a_link_overwrites_nothing(tmp_path, precious):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").symlink_to(precious)
    refused = pytest.raises(InputError, match=r"^output_dir: \S+\.lock ")
    with refused, stage("label", LabelSettings(output_dir=tmp_path / "run", report_to="none")):
        pass
    assert precious.read_text() == "years of work"


def test_a_loop_works_in_no_folder_that_a_link_leads_to(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".draft.part").write_text("of another program")
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "before").symlink_to(tmp_path / "mine")
    with pytest.raises(InputError, match=r"^output_dir: \S+before "):
        loop(LoopSettings(measure=MEASURE, output_dir=tmp_path / "loop", report_to="none"))
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [".draft.part"]


@pytest.fixture
def with_code(command, tmp_path):
    """A labelling of a measurement of a model whose code writes the file `ran`, which the measurement says to trust."""
    folder = tmp_path / "train"
    (folder / "model").mkdir()
    config = {"model_type": "own", "auto_map": {"AutoConfig": "code.Config"}, "architectures": ["Own"]}
    (folder / "model" / "config.json").write_text(json.dumps(config))
    (folder / "model" / "model.safetensors").touch()
    code = f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom transformers import PretrainedConfig\n"
    (folder / "model" / "code.py").write_text(f"{code}class Config(PretrainedConfig):\n    model_type = 'own'\n")
    settings = read_record(folder, "run")["settings"]
    settings["model"] |= {"name": "./model", "trust_remote_code": True}
    change_record(folder, settings=settings)
    shutil.rmtree(tmp_path / "label")
    assert main(command) == 0
    return tmp_path


@pytest.mark.parametrize(
    ("command_of", "text", "name"),
    [
        ("measure", "model: {name: ./model, trust_remote_code: true}", "model.trust_remote_code"),
        ("measure", "model: {name: ./model, trust_remote_code: 1}", "model.trust_remote_code"),
        ("measure", "sweep: [{model.trust_remote_code: [true]}]", "model.trust_remote_code"),
        (
            "loop",
            "measure: {model: {name: a, trust_remote_code: 'yes'}}",
            "measure.model.trust_remote_code",
        ),
        ("tune", "trust_remote_code: true", "trust_remote_code"),
    ],
)
def test_a_file_of_settings_cannot_allow_code(tmp_path, command_of, text, name):
    (tmp_path / "received.yaml").write_text(text)
    with pytest.raises(InputError, match=f"^{name}: .*--{name} true"):
        read_settings(command_of, tmp_path / "received.yaml")
    if "sweep" not in text:
        allowed = read_settings(command_of, tmp_path / "received.yaml", {name: "true"})
        assert checked(type(allowed), as_settings(allowed), "test") == allowed


class Trap:
    """A folder of runs of somebody else, whose records name code, servers, and files of the user to write to."""

    def __init__(self, folder, server):
        self.folder = folder
        self.server = server
        self.requests = []
        self.precious = folder / "precious"
        self.precious.mkdir()

    def sprung(self):
        """What the commands did that only a record asked for."""
        written = sorted(path.name for path in self.precious.rglob("*"))
        return [*self.requests, *written, *(["code"] if (self.folder / "ran").exists() else [])]


@pytest.fixture
def server():
    """A server that answers nothing, and notes each request."""

    class Handler(BaseHTTPRequestHandler):
        requests: ClassVar[list[str]] = []

        def do_POST(self):
            self.requests.append(self.path)
            self.send_error(500)

        do_GET = do_POST

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield listening
        listening.shutdown()


@pytest.fixture
def trap(with_code, server, monkeypatch):
    """All that a record can name is in the records of the measurement `train`, and of runs of other commands."""
    trap = Trap(with_code, f"http://127.0.0.1:{server.server_port}/v1")
    trap.requests = server.RequestHandlerClass.requests
    cache = str(trap.precious / "cache.sqlite")
    judge = {"name": "j", "judge": {"name": "go_emotions", "server": trap.server, "samples": 1, "cache": cache}}
    outside = {"output_dir": str(trap.precious / "run"), "upload": "all"}
    settings = read_record(with_code / "train", "run")["settings"]
    settings["generation_bias"] |= {"style_classifier": judge, "second_style_classifier": {**judge, "name": "k"}}
    change_record(with_code / "train", settings={**settings, "capabilities": ["evil.yaml"], **outside})
    shutil.rmtree(with_code / "label")
    with monkeypatch.context() as patched:
        patched.chdir(with_code)
        assert main(["label", "train", "--output_dir", "label", "--report_to", "none", "--quantile", "0.5"]) == 0
    write_run(
        with_code / "tune", "tune", labels="../label", method="exchange", write_rows=str(trap.precious), **outside
    )
    write_run(with_code / "judged", "judge", style_classifier=judge, output_dir=outside["output_dir"])
    write_run(with_code / "trained", "train_classifier", **outside)
    write_run(with_code / "rated", "rate", before="../train", after="../train", host="0.0.0.0", **outside)
    write_run(with_code / "exported", "export", tuning="../tune", push_to_hub="them/model", **outside)
    monkeypatch.chdir(with_code)
    monkeypatch.setenv("EVENHAND_API_KEY", "a-key")
    monkeypatch.setattr("evenhand.recipes.rate._serve", lambda settings: None)
    return trap


# Each command with runs of somebody else, and the flags that its error asks for; "": it does all that it has to do.
CODE = "--trust_remote_code true"
COMMANDS_ON_RECORDS = {
    "loop train": "--measure.model.trust_remote_code true --servers SERVER --capabilities evil.yaml",
    "tune label": f"{CODE} --servers SERVER",
    "compare train train": CODE,
    "export tune": CODE,
    "measure --config train": "--generation_bias.second_style_classifier.judge.server SERVER "
    "--generation_bias.style_classifier.judge.server SERVER --model.trust_remote_code true --capabilities evil.yaml",
    "judge --config judged": "--style_classifier.judge.server SERVER",
    "label train": "",
    "label train --value divergence": CODE,
    "report train": "",
    "check train --max_pooled_fgb 1": "",
    "audit train": "",
    "plan train": "",
    "rate train train": "",
    "train_classifier --config trained": "",
    "screen --config train": "",
    "watch --config train": "",
    "ablate --config train": "",
    "configs": "",
}
IN_THEIR_FOLDERS = ("train_classifier", "report")  # these write there


def test_the_list_has_all_commands():
    assert {line.split()[0] for line in COMMANDS_ON_RECORDS} == COMMANDS.keys()


@pytest.mark.parametrize("line", COMMANDS_ON_RECORDS)
def test_a_record_describes_and_never_acts(trap, line, capsys):
    name, *given = line.split()
    if "output_dir" in COMMANDS[name].model_fields and name not in IN_THEIR_FOLDERS:
        given += ["--output_dir", "next"]
    with contextlib.suppress(Exception):  # what the made-up runs lack
        main([name, *given])
    error = capsys.readouterr().err
    assert trap.sprung() == []
    for flag in filter(None, COMMANDS_ON_RECORDS[line].replace("SERVER", trap.server).split("--")):
        assert f"--{flag.strip()}" in error


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"model": {"trust_remote_code": True}}, "--measure.model.trust_remote_code true"),
        ({"generation_bias": {"style_classifier": {"judge": {"server": "http://s/v1"}}}}, "--servers http://s/v1"),
        ({"capabilities": ["arc_easy", "mine.yaml"]}, "--capabilities mine.yaml"),
        ({"capabilities": ["arc_easy"], "model": {"trust_remote_code": False, "server": None}}, ""),
    ],
)
def test_what_acts_is_allowed_by_the_flags_that_the_error_names(settings, flags):
    allowed = {"code_flag": "--measure.model.trust_remote_code"}
    if flags:
        with pytest.raises(InputError, match=f"^base_run: .*{re.escape(flags)}"):
            check_permitted(settings, Permissions(**allowed), "base_run", [""])
        other = Permissions(code=False, servers=["http://t/v1"], tasks=["other.yaml"], **allowed)
        with pytest.raises(InputError):
            check_permitted(settings, other, "base_run", [""])
    check_permitted(settings, Permissions(True, ["http://s/v1"], ["mine.yaml"], **allowed), "base_run", [""])


def test_a_described_run_has_nothing_to_act_by(trap):
    measured, _ = read_measurement(Path("train"), "run")
    assert list(acting_settings({**as_settings(measured), "generation_bias": None})) == []
    judge = measured.generation_bias.style_classifier.judge
    assert judge.server.startswith(NOWHERE) and judge.cache is None and measured.upload == "scores"


def test_a_loop_goes_on_only_with_what_the_run_read(tmp_path):
    write_measured(tmp_path / "train", VECTORS, ["yes", "no"] * 2)
    with pytest.raises(InputError, match=r"^base_run: .*model.*style_classifier"):  # of which its record knows nothing
        with_base_run(LoopSettings(base_run=tmp_path / "train"))


def test_the_first_line_says_which_servers_get_texts(tmp_path):
    settings = TuneSettings(output_dir=tmp_path, report_to="none", servers=["http://s/v1"])
    assert destinations(settings).endswith("prompts and responses go to http://s/v1")


@pytest.mark.parametrize(("command_of", "folder"), [("tune", "tune"), ("rate", "rated"), ("export", "exported")])
def test_a_record_does_not_say_where_to_write(trap, command_of, folder):
    settings = read_settings(command_of, Path(folder))
    assert settings.output_dir == Path(folder)
    named = {str(value) for value in as_settings(settings).values()}
    assert not named & {str(trap.precious), "all", "0.0.0.0", "them/model"}


def test_every_setting_that_could_act_is_one_that_records_cannot_set():
    """A new setting with a path that is not read, or with an address, belongs to received.PLACES or ACTING."""
    declared = {setting.name.rpartition(".")[2]: setting for cls in COMMANDS.values() for setting in settings_in(cls)}
    texts = {name: setting.text for name, setting in declared.items() if setting.group is None}
    suspects = {
        name for name, text in texts.items() if re.search(r"\bserver|\burl|address|execute|upload|write|\bkey", text)
    }
    describe = {
        "model",
        "name",
        "tokenizer",
        "request",
        "requests",
        "samples",
        "concurrency",
        "listed_tokens",
        "report_to",
        "port",
        "strip",
    }
    assert suspects - describe <= {*PLACES, *ACTING}, suspects - describe - {*PLACES, *ACTING}


def test_code_of_a_model_is_run_where_it_is_trusted(with_code, monkeypatch):
    monkeypatch.chdir(with_code)
    flags = ["label", "--output_dir", "next", "--report_to", "none", "--trust_remote_code", "true"]
    with contextlib.suppress(ValueError):  # the code has a config and no network
        main(["tune", *flags])
    assert (with_code / "ran").exists()
