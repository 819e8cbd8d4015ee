"""Settings are read strictly: one clear error, before any work starts; what is printed can be given back."""

import logging
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from evenhand.evaluation import families
from evenhand.evaluation.datasets.style_clusters import CLUSTERS
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.settings import ClassifierSettings, ModelSettings, as_settings
from evenhand.recipes import command_line, commands
from evenhand.recipes.checking import RENAMED, checked, settings_in
from evenhand.recipes.command_line import main, read_settings
from evenhand.recipes.settings import COMMANDS, Experiment, LabelSettings, LoopSettings, Measurement, MeasureSettings

FOLDER = Path(__file__).resolve().parents[2] / "recipes" / "configs"
CONFIGS = sorted(file for file in FOLDER.rglob("*.yaml") if file.parent.name != "accelerate")


@pytest.fixture
def written(tmp_path):
    def write(text):
        (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
        return tmp_path / "c.yaml"

    return write


@pytest.fixture
def ran(monkeypatch):
    """The settings that a command was called with; nothing is imported for it."""
    told = []
    names = dict.fromkeys(COMMANDS, told.append)
    monkeypatch.setattr(commands, "import_module", lambda name: SimpleNamespace(**names))
    return told


def refused(capsys, *arguments):
    """Return the one line that a user's mistake is."""
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("evenhand")
    return err


# What is given


def test_flags_go_over_the_file_and_the_file_over_the_defaults(written):
    file = written("prompts: {per_cell: 7}\nseed: 3\n")
    told = read_settings("measure", file, {"seed": "5"})
    assert (told.prompts.per_cell, told.seed, told.decoding) == (7, 5, MeasureSettings().decoding)


def test_groups_are_dotted_and_keep_what_is_not_given(written):
    file = written("measure: {prompts: {per_cell: 7, split_by: template}}\n")
    told = read_settings("loop", file, {"measure.prompts.per_cell": "5", "tune.training.epochs": "2"})
    assert (told.measure.prompts.per_cell, told.measure.prompts.split_by) == (5, "template")
    assert told.tune.training.epochs == 2


def test_lists_mappings_and_null_are_understood_as_flags():
    flags = {"metrics": "sentence_pairs, generation_bias", "prompts.filters": "{axis: [age]}"}
    told = read_settings("measure", None, {**flags, "prompts.descriptors": "null"})
    assert told.metrics == ["sentence_pairs", "generation_bias"]
    assert (told.prompts.filters, told.prompts.descriptors) == ({"axis": ["age"]}, None)


def test_a_mapping_given_as_a_flag_replaces_the_files(written):
    told = read_settings("measure", written("prompts: {filters: {a: [1]}}"), {"prompts.filters": "{b: [2]}"})
    assert told.prompts.filters == {"b": [2]}


@pytest.mark.parametrize("text", ["1e-3", "0.001", "1.0e-3"])
def test_numbers_are_numbers_in_files_and_flags(written, text):
    file = written(f"training: {{learning_rate: {text}}}")
    assert read_settings("tune", file) == read_settings("tune", None, {"training.learning_rate": text})
    assert read_settings("tune", file).training.learning_rate == 0.001


@pytest.mark.parametrize("text", ["1234567", "1e5", "no", "null_model", "2020-01-01"])
def test_text_stays_text(text):
    assert read_settings("measure", None, {"model.revision": text}).model.revision == text


def test_names_that_yaml_takes_for_something_else_stay_names():
    flags = {"metrics": "translation_bias", "translation_bias.languages": "no,es"}
    assert read_settings("measure", None, flags).translation_bias.languages == ["no", "es"]


@pytest.mark.parametrize(("text", "expected"), [("0,1,2", [0, 1, 2]), ("[3]", [3]), ("4", [4])])
def test_lists_of_numbers(text, expected):
    assert read_settings("ablate", None, {"seeds": text}).seeds == expected


def test_mappings_are_taken_as_they_are(written):
    mapping = {"a.b": [1], "x y": {"c": {"d": None}}, "name": "x", "null": 1e-5}
    file = written(yaml.safe_dump({"prompts": {"filters": mapping}, "decoding": {"arguments": mapping}}))
    told = read_settings("measure", file, {"seed": "1"})
    assert told.prompts.filters == mapping == told.decoding.arguments


def test_values_that_look_like_flags_stay_values(ran):
    assert main(["label", "--output_dir", "a/model", "--group", "--model".lstrip("-"), "-q"]) == 0
    assert (ran[0].output_dir, ran[0].group) == (Path("a/model"), "model")


def test_paths_are_paths(written):
    file = written("output_dir: runs/a\nlabels: runs/b")
    told = read_settings("compare", file, {"tuning": "runs/c"})
    assert (told.output_dir, told.labels, told.tuning) == (Path("runs/a"), Path("runs/b"), Path("runs/c"))


# Groups that are models


@pytest.mark.parametrize("flag", ["model", "model.name"])
def test_a_model_is_given_by_its_name(written, flag):
    assert read_settings("measure", None, {flag: "gpt2"}).model == ModelSettings(name="gpt2")
    assert read_settings("measure", written("model: gpt2"), {"model.dtype": "bfloat16"}).model == ModelSettings(
        name="gpt2", dtype="bfloat16"
    )


def test_a_name_goes_over_the_file_and_leaves_its_other_fields(written):
    told = read_settings("loop", written("measure: {model: {name: a, revision: r}}"), {"measure.model": "b"})
    assert told.measure.model == ModelSettings(name="b", revision="r")


def test_classifiers_are_given_by_their_names_at_any_depth(written):
    flags = {"loop.measure.generation_bias.style_classifier": "x", "loop.measure.generation_bias.offensiveness": "y"}
    told = read_settings("ablate", written("loop: {measure: {generation_bias: {second_style_classifier: z}}}"), flags)
    own = told.loop.measure.generation_bias
    assert (own.style_classifier.name, own.second_style_classifier.name) == ("x", "z")
    assert own.offensiveness == ClassifierSettings(name="y")


def test_no_second_classifier_in_file_flag_and_dictionary(written):
    file = written("generation_bias: {second_style_classifier: null}")
    by_flag = read_settings("measure", None, {"generation_bias.second_style_classifier": "null"})
    assert read_settings("measure", file) == by_flag == checked(MeasureSettings, as_settings(by_flag), "test")
    assert by_flag.generation_bias.second_style_classifier is None


def test_models_are_named_on_the_command_line(ran, monkeypatch):
    monkeypatch.setattr(command_line, "check_inputs", lambda settings: None)  # there are no such models
    assert main(["measure", "--model", "gpt2", "--generation_bias.offensiveness=judge", "-q"]) == 0
    assert (ran[0].model.name, ran[0].generation_bias.offensiveness.name) == ("gpt2", "judge")


# Families of metrics


def test_a_family_has_settings_where_it_is_named():
    told = read_settings("measure", None, {"metrics": "sentence_pairs", "sentence_pairs.pairs": "crows_pairs"})
    assert told.sentence_pairs.pairs == "crows_pairs" and told.generation_bias is None
    named = {name for name in as_settings(told) if name in families.names()}
    assert named == {"sentence_pairs"}


@pytest.mark.parametrize(("command", "at"), [("measure", ""), ("loop", "measure."), ("ablate", "loop.measure.")])
def test_settings_of_a_family_that_is_not_named_are_refused(command, at):
    flags = {f"{at}metrics": "sentence_pairs", f"{at}generation_bias.permutations": "3"}
    with pytest.raises(InputError) as error:
        read_settings(command, None, flags)
    assert f"{at}generation_bias.permutations: generation_bias is not among metrics [sentence_pairs]" in str(
        error.value
    )


def test_a_measurement_can_be_narrowed():
    told = read_settings("measure", None, {"metrics": "generation_bias,sentence_pairs", "seed": "3"})
    narrowed = told.with_metrics("generation_bias")
    assert narrowed.sentence_pairs is None and narrowed.generation_bias == told.generation_bias
    assert replace(narrowed, split="train").split == "train" and narrowed.seed == 3


def test_every_family_has_settings_with_descriptions():
    assert {"generation_bias", "sentence_pairs"} <= {*families.names()}
    for name in families.names():
        assert families.settings_of(name).Settings()
    assert all(setting.text for command in COMMANDS.values() for setting in settings_in(command))


def test_an_unknown_family_is_named():
    with pytest.raises(InputError, match="measure.metrics: 'sentence_pair' is unknown; did you mean 'sentence_pairs'"):
        checked(LoopSettings, {"measure": {"metrics": ["sentence_pair"]}}, "test")


def test_families_check_before_anything_is_run(ran, monkeypatch, capsys):
    def inputs(told):
        raise InputError("pairs: there are none.")

    monkeypatch.setattr("evenhand.evaluation.families.sentence_pairs.settings.inputs", inputs)
    assert "pairs: there are none." in refused(capsys, "measure", "--metrics", "sentence_pairs")
    assert ran == []


# Mistakes


@pytest.mark.parametrize(
    ("command", "text", "message"),
    [
        ("measure", "prompts: {per_cel: 4}", "'prompts.per_cel' is unknown; did you mean 'prompts.per_cell'"),
        ("measure", "modle: gpt2", "'modle' is unknown; did you mean 'model'"),
        ("loop", "measure: {prompts: {sed: 4}}", "'measure.prompts.sed' is unknown"),
        ("label", "quantile: 1.5", "quantile: 1.5 cannot be used: Input should be less than 1"),
        ("label", "beta: high", "beta: 'high' cannot be used"),
        ("label", "alpha: 3", "alpha: 3 cannot be used: Input should be 0, 1 or 2"),
        ("label", "cross_fitted: 1", "cross_fitted: 1 cannot be used"),
        ("measure", "prompts: {per_cell: 0}", "prompts.per_cell: 0 cannot be used: Input should be greater than or"),
        ("measure", "seed: 1.5", "seed: 1.5 cannot be used"),
        ("measure", "seed: true", "seed: True cannot be used"),
        ("measure", "seed: [1]", "seed: [1] cannot be used"),
        ("measure", "decoding: {preset: beam}", "decoding.preset: 'beam' cannot be used: Input should be 'sample' or"),
        ("measure", "model: 5", "model.name: 5 cannot be used"),
        ("measure", "model: [a]", "model.name: ['a'] cannot be used"),
        ("measure", "prompts: 5", "prompts: 5 is not a group of settings"),
        ("loop", "measure.prompts.per_cell: 5", "nested keys, measure: {prompts: {per_cell: …}}"),
        ("measure", "metrics: []", "metrics: [] cannot be used"),
        ("loop", "tune: {training: {learning_rate: -1}}", "tune.training.learning_rate: -1 cannot be used"),
        ("ablate", "seeds: [0, x]", "seeds.1: 'x' cannot be used"),
        ("measure", "[1, 2]", "not `field: value` lines"),
        ("measure", "a: [", "is not YAML"),
        ("measure", "model: !!python/object:os.system {}", "is not YAML"),
    ],
)
def test_a_mistake_in_a_file_is_one_error_that_names_it(written, command, text, message):
    with pytest.raises(InputError) as error:
        read_settings(command, file := written(text))
    assert message in str(error.value) and str(file) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["label", "--quantile", "2"], "quantile: 2 cannot be used: Input should be less than 1."),
        (
            ["tune", "--training={epochs: 1}"],
            "training is a group of settings; give them one by one, such as --training.",
        ),
        (["label", "--quantil", "0.5"], "'quantil' is unknown; did you mean 'quantile'?"),
        (["measure", "--prompts.per_cel=3"], "'prompts.per_cel' is unknown; did you mean 'prompts.per_cell'?"),
        (["measure", "--seed"], "seed: expected one argument"),
        (["measure", "--prompts.filters", "{a: ["], "prompts.filters: '{a: [' cannot be used"),
        (["measure", "--prompts.unseen_by", "axi"], "prompts.unseen_by: 'axi' cannot be used: Input should be"),
        (["measure", "gpt2"], "'gpt2' is not a setting"),
        (["ablate", "--seeds", "1,x"], "seeds.1: 'x' cannot be used"),
        (["measur"], "invalid choice: 'measur'"),
        (["measure", "--help", "promts"], "'promts' is unknown; did you mean 'prompts'?"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_status_2(capsys, ran, arguments, message):
    assert message in refused(capsys, *arguments)
    assert ran == []


def test_the_line_says_that_the_command_line_is_meant(capsys):
    expected = "evenhand label: command line: quantile: 2 cannot be used: Input should be less than 1.\n"
    assert refused(capsys, "label", "--quantile", "2") == expected


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"absent.yaml cannot be read"):
        read_settings("measure", tmp_path / "absent.yaml")


# Names of 0.2


@pytest.mark.parametrize("old, new", RENAMED)
def test_every_new_name_is_a_setting_and_no_old_name_is(old, new):
    names = {f".{setting.name}" for command in COMMANDS.values() for setting in settings_in(command)}
    assert any(name.endswith(f".{new}") for name in names)
    # A dotted name may be old in one group and current in another.
    assert "." in old or not any(name.endswith(f".{old}") for name in names)


@pytest.mark.parametrize(
    ("command", "old", "new"),
    [
        ("measure", "side", "split"),
        ("loop", "untagged", "measure_without_tag"),
        ("ablate", "loop.untagged", "loop.measure_without_tag"),
        ("compare", "untagged", "after_without_tag"),
        ("loop", "even_if_unbiased", "allow_no_bias"),
        ("tune", "training.largest_perplexity_rise", "training.max_perplexity_increase"),
        ("loop", "tune.training.largest_perplexity_rise", "tune.training.max_perplexity_increase"),
    ],
)
def test_an_old_name_is_refused_with_the_new_name(written, capsys, ran, command, old, new):
    nested = "x"
    for part in reversed(old.split(".")):
        nested = {part: nested}
    for read in (
        lambda: read_settings(command, written(yaml.safe_dump(nested))),
        lambda: checked(COMMANDS[command], nested, "python"),
    ):
        with pytest.raises(InputError) as error:
            read()
        assert str(error.value).endswith(f": {old} is now {new}.")
    assert f": {old} is now {new}.\n" in refused(capsys, command, f"--{old}", "x") and ran == []


@pytest.mark.parametrize(
    ("command", "name", "likely"),
    [
        ("measure", "per_cell", "prompts.per_cell"),
        ("loop", "measure.descriptors", "measure.prompts.descriptors"),
        ("loop", "tune.training.seed", "seed"),
        ("ablate", "loop.measure.style_classifier", "loop.measure.generation_bias.style_classifier"),
        ("compare", "phrases", "generation_bias.phrases"),
    ],
)
def test_a_setting_of_another_group_is_suggested(capsys, command, name, likely):
    assert f"did you mean {likely!r}?\n" in refused(capsys, command, f"--{name}", "1")


@pytest.mark.parametrize(
    ("command", "key"),
    [
        ("loop", "measure.seed"),
        ("loop", "measure.split"),
        ("loop", "label.responses"),
        ("loop", "tune.method"),
        ("ablate", "loop.methods"),
        ("ablate", "loop.output_dir"),
    ],
)
def test_what_a_caller_sets_cannot_be_given(capsys, command, key):
    assert f": {key}: " in refused(capsys, command, f"--{key}", "1")


# Back to plain values


@pytest.mark.parametrize("command", COMMANDS)
def test_settings_survive_yaml_and_a_process(command):
    told = COMMANDS[command]()
    assert checked(COMMANDS[command], yaml.safe_load(yaml.safe_dump(as_settings(told))), "file") == told
    assert pickle.loads(pickle.dumps(told)) == told


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_what_is_printed_can_be_given_back(file, tmp_path, capsys):
    command = command_of(file)
    assert main([command, "--config", str(file), "--output_dir", "elsewhere", "--print_config"]) == 0
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out, encoding="utf-8")
    expected = read_settings(command, file, {"output_dir": "elsewhere"})
    assert read_settings(command, tmp_path / "printed.yaml") == expected


def test_a_point_names_fields_of_the_loop_by_dotted_paths():
    told = as_settings(Experiment())
    for name, value in (("label.quantile", 0.5), ("tune.training.learning_rate", 0.1), ("measure.model", "gpt2")):
        *parents, last = name.split(".")
        target = told
        for parent in parents:
            target = target[parent]
        target[last] = value
    point = checked(Experiment, told, "sweep")
    assert (point.label.quantile, point.tune.training.learning_rate, point.measure.model.name) == (0.5, 0.1, "gpt2")


def test_a_run_is_a_measurement_and_what_only_the_run_has():
    told = MeasureSettings(**vars(LoopSettings().measure), split="train", seed=3)
    assert told == MeasureSettings(split="train", seed=3)
    assert isinstance(told, Measurement) and isinstance(LoopSettings(), Experiment)
    assert {"split", "seed", "output_dir"}.isdisjoint(as_settings(LoopSettings().measure))


def command_of(file):
    return next(
        line.split()[3] for line in file.read_text(encoding="utf-8").splitlines() if line[:12] == "# $ evenhand"
    )


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_every_shipped_config_is_valid_and_says_how_to_run_it(file):
    lines = file.read_text(encoding="utf-8").splitlines()
    assert f"--config {file.stem}\n" in "\n".join(lines[:8])
    assert lines[0][-1] in ".?)"  # `evenhand configs` shows it
    assert max(map(len, lines)) <= 120
    read_settings(command_of(file), file)


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.name)
def test_flags_in_the_comments_of_a_config_are_flags(file):
    comments = " ".join(line.split("#", 1)[1] for line in file.read_text().splitlines() if "#" in line)
    known = {setting.name for command in COMMANDS.values() for setting in settings_in(command)} | {"config"}
    known |= {"hours"}  # of benchmarks/model_rates.py
    given = {word[2:].rstrip(",") for word in comments.replace("(", " ").split() if word.startswith("--")}
    assert given and given <= known


def test_there_are_shipped_configs():
    assert CONFIGS


@pytest.mark.parametrize(
    ("name", "launched_by"), [("ddp", "multi_gpu"), ("fsdp", "use_fsdp"), ("deepspeed_zero3", "use_deepspeed")]
)
def test_accelerate_reads_the_configs_for_several_processes(name, launched_by):
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    file = FOLDER / "accelerate" / f"{name}.yaml"
    text = file.read_text(encoding="utf-8")
    assert f"$ evenhand configs {name} > {name}.yaml\n" in text and f"--config_file {name}.yaml -m evenhand" in text
    told = launch_command_parser().parse_args(["--config_file", str(file), "--num_processes", "2", "-m", "evenhand"])
    told, *_ = _validate_launch_command(told)
    ways = ("multi_gpu", "use_fsdp", "use_deepspeed")
    assert {way: getattr(told, way) for way in ways} == {way: way == launched_by for way in ways}
    assert told.num_processes == 2


# Help, and what is printed


def printed(capsys, monkeypatch, *arguments):
    monkeypatch.setenv("COLUMNS", "100")
    assert main(arguments) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("command", [None, *COMMANDS])
def test_help_fits_the_terminal(capsys, monkeypatch, command, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main([*([command] if command else []), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines if not line.startswith("usage: ")) <= width


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_a_screen(capsys, monkeypatch, command):
    text = printed(capsys, monkeypatch, command, "--help")
    assert text.count("\n") <= 66 and COMMANDS[command].__doc__.splitlines()[0][:40] in text


def test_a_familys_settings_are_shown_where_it_is_named(capsys, monkeypatch, written):
    plain = printed(capsys, monkeypatch, "measure", "--help")
    assert "--prompts.per_cell" in plain and "permutations" not in plain and "sentence_pairs.pairs" not in plain
    assert "--metrics FAMILY --help" in plain and all(name in plain for name in families.names())
    for arguments in (("--metrics", "sentence_pairs"), ("--config", str(written("metrics: [sentence_pairs]")))):
        named = printed(capsys, monkeypatch, "measure", *arguments, "--help")
        assert "--sentence_pairs.pairs" in named and "permutations" not in named
    own = printed(capsys, monkeypatch, "measure", "--help", "sentence_pairs")
    assert "--sentence_pairs.pairs" in own and "--prompts" not in own


def test_the_loops_groups_are_a_line_each_and_shown_by_name(capsys, monkeypatch):
    text = printed(capsys, monkeypatch, "loop", "--help")
    assert all(f"--{group}.…" in text for group in ("measure", "label", "tune")) and "per_cell" in text
    assert "--measure.prompts.per_cell" not in text
    assert "--measure.prompts.per_cell" in printed(capsys, monkeypatch, "loop", "--help", "measure.prompts")


def test_the_commands_are_listed(capsys, monkeypatch):
    for arguments in ([], ["--help"]):
        assert all(command in printed(capsys, monkeypatch, *arguments) for command in COMMANDS)


def test_the_version(capsys, monkeypatch):
    assert printed(capsys, monkeypatch, "--version").startswith("evenhand ")


@pytest.mark.parametrize(
    ("arguments", "level", "says"),
    [
        (["label"], logging.INFO, True),
        (["label", "-v"], logging.DEBUG, True),
        (["-v", "label"], logging.DEBUG, True),
        (["label", "--quiet"], logging.WARNING, False),
    ],
)
def test_how_much_is_said(ran, caplog, arguments, level, says):
    assert main(arguments) == 0
    assert len(ran) == 1 and logging.getLogger("evenhand").level == level
    assert ("evenhand label: loading …" in caplog.messages) is says


def test_a_shell_can_complete_flags_and_values(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--print_completion", "shtab-bash"])
    assert exit_.value.code == 0
    script = capsys.readouterr().out
    assert "--prompts.per_cell" in script and "bfloat16" in script and "train_classifier" in script


def test_help_is_immediate():
    """Not a timed test: --help must not import what takes seconds."""
    code = (
        "import sys, evenhand.recipes.command_line as c; c.main(['measure', '--help']); "
        "sys.exit(str({'torch', 'transformers', 'pandas', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "set()\n"


def test_folders_stand_behind_report_without_a_flag(ran, capsys):
    assert main(["report", "runs/a b", "runs/c,d", "--output_dir", "x"]) == 0
    assert (ran[0].folders, ran[0].output_dir) == ([Path("runs/a b"), Path("runs/c,d")], Path("x"))
    assert "'b' is not a setting" in refused(capsys, "report", "--output_dir", "x", "b")


@pytest.mark.parametrize("arguments", [("configs",), ("compare", "--help"), ("measure", "--print_config")])
def test_a_reader_that_closes_the_pipe_ends_the_command_in_silence(arguments):
    code = "import sys; from evenhand.recipes.command_line import main; sys.exit(main())"
    command = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    command.stdout.close()
    assert command.stderr.read() == "" and command.wait() == 141


@pytest.mark.parametrize(
    ("command", "flag", "likely"),
    [("label", "run", "'responses'"), ("tune", "run", "'labels'"), ("compare", "original", "'before'")],
)
def test_a_word_of_a_help_text_suggests_the_setting(capsys, command, flag, likely):
    assert f"did you mean {likely}?\n" in refused(capsys, command, f"--{flag}", "x")


def test_help_names_all_shipped_style_clusters(capsys, monkeypatch):
    text = printed(capsys, monkeypatch, "measure", "--help", "generation_bias")
    assert all(f"'{file.stem}'" in text for file in CLUSTERS.glob("*.json"))


# The config of a run


@pytest.fixture
def finished_run(tmp_path):
    """Settings of a finished run of `label`, whose config names another run by a path relative to its folder."""
    folders = {"responses": tmp_path / "train", "output_dir": tmp_path / "runs" / "label"}
    settings = LabelSettings(**folders, quantile=0.8, report_to="none")
    with stage("label", settings) as run:
        run.facts["n"] = 1
    return settings


def test_the_config_of_a_run_repeats_it(finished_run, monkeypatch):
    file = finished_run.output_dir / "config.yaml"
    assert {"format", "command", "inputs"} <= yaml.safe_load(file.read_text()).keys()
    assert read_settings("label", file) == finished_run
    assert read_settings("label", file, {"quantile": "0.7"}).quantile == 0.7


def test_the_config_of_a_moved_run_names_the_run_that_moved_along(finished_run, tmp_path):
    (tmp_path / "moved").mkdir()
    (tmp_path / "runs").rename(tmp_path / "moved" / "runs")
    moved = read_settings("label", tmp_path / "moved" / "runs" / "label" / "config.yaml")
    assert moved.responses == tmp_path / "moved" / "train"


def test_the_config_of_a_run_of_another_command_is_refused(finished_run, capsys):
    message = refused(capsys, "tune", "--config", str(finished_run.output_dir / "config.yaml"))
    assert "`label`" in message and "`tune`" in message


# Shipped configs


def test_each_shipped_config_has_a_name_of_its_own_and_a_line(capsys):
    assert main(["configs"]) == 0
    listed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    files = list(FOLDER.rglob("*.yaml"))
    assert len(listed) == len(files)
    assert {f"# {listed[file.stem]}\n" == file.open(encoding="utf-8").readline() for file in files} == {True}


def test_a_shipped_config_is_printed_as_it_is(capsys):
    assert main(["configs", "loop", "ddp"]) == 0
    expected = [(FOLDER / name).read_text(encoding="utf-8") for name in ("loop.yaml", "accelerate/ddp.yaml")]
    assert capsys.readouterr().out == "".join(expected)
    assert "names: 'lop' is unknown; did you mean 'loop'?" in refused(capsys, "configs", "lop")


def test_a_shipped_config_is_given_by_its_name_and_a_file_of_that_name_wins(ran, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").mkdir()  # a folder of that name is no file
    assert main(["loop", "--config", "loop"]) == 0
    assert ran == [read_settings("loop", FOLDER / "loop.yaml")]
    (tmp_path / "human").write_text("jobs: 3", encoding="utf-8")
    assert main(["loop", "--config", "human"]) == 0 and ran[1].jobs == 3
    assert "--config: 'zzz' is unknown. Known: " in refused(capsys, "loop", "--config", "zzz")
    for path in ("zzz.yaml", "runs/zzz"):  # these are files or nothing
        assert "is unknown" not in refused(capsys, "loop", "--config", path)
