"""What must fail at a later stage of a loop is refused before its first one, and nothing is written."""

import json
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import write_json
from evenhand.evaluation.settings import ModelSettings, checked
from evenhand.recipes import experiment
from evenhand.recipes.ablate import ablate
from evenhand.recipes.experiment import check_stages
from evenhand.recipes.finished_runs import split_warnings
from evenhand.recipes.loop import loop
from evenhand.recipes.plans import Stage, named_folders, plan_method
from evenhand.recipes.settings import AblateSettings, LoopSettings, MeasureSettings
from tests import tiny_checkpoints
from tests.measured_runs import write_measured
from tests.testbed_settings import MODEL, with_testbed


@pytest.fixture(autouse=True)
def no_stage(monkeypatch):
    """Whatever is not refused must not go on for minutes."""
    monkeypatch.setattr(Stage, "run", lambda stage: pytest.fail(f"{stage.folder} ran"))


def loop_settings(tmp_path, method="kto", **parts):
    common = {"output_dir": str(tmp_path / "run"), "report_to": "none", "methods": [method]}
    return checked(LoopSettings, with_testbed(common | parts, "measure"), "test")


def training(**fields):
    return {"tune": {"training": fields}}


def model(**fields):
    return {"measure": {"model": {"name": MODEL.name, **fields}}}


NEED_LORA = ("distill", "grpo", "balance_grpo")
NEVER_MERGED = r"model\.quantization: .* use rounds 1"


@pytest.mark.parametrize(
    "parts, error",
    [
        (training(trainer={"max_lenth": 5}), r"training\.trainer\.max_lenth: .*did you mean 'max_length'"),
        (training(peft={"rank": 8}), r"training\.peft\.rank: 'rank' is unknown"),
        (training(peft={"target_modules": ["q"]}), r"training\.peft: PEFT .*\{'q'\} not found"),
        (training(peft={"use_rslora": True}, lora=False), r"training\.peft: .* training\.lora"),
        (training(lora_rank=4000), r"training\.lora_rank: 4000 exceeds 96"),
        *(
            (training(lora=False) | {"methods": [name]}, r"training\.lora: false; the \w+ trainer")
            for name in NEED_LORA
        ),
        (
            training(peft={"use_dora": True}) | {"adapter_strength": 0.5},
            r"adapter_strength: .*tune\.training\.peft is not",
        ),
        (training(optimizer="adamx"), "training: .* adamx .*'adafactor'"),
        (model(adapter_strength=0.5), r"model\.adapter_strength: 0\.5 of .* tune the export"),
        (model(base="org/base"), r"model\.base: .* write org/base into its adapter_config\.json"),
        (model(quantization="4bit") | {"rounds": 2}, NEVER_MERGED),
        (model(quantization="8bit") | training(lora=False), r"training\.lora: false; .* quantized"),
        ({"label": {"exclude_clusters": ["AWE"]}}, "exclude_clusters: 'AWE' is unknown. Known: CARE"),
        ({"second_decoding": {"arguments": {"temperatur": 1}}}, "'temperatur' is unknown; did you mean 'temperature'"),
        ({"measure": {"decoding": {"arguments": {"top_p": 2}}}}, "decoding: top_p is 2"),
    ],
)
def test_a_setting_of_a_later_stage_is_refused_before_the_first(parts, error, tmp_path):
    with pytest.raises(InputError, match=error):
        loop(loop_settings(tmp_path, **parts))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "method, fields, error",
    [
        ("kto", {"trainer": {"loss_type": "ktoo"}}, r"trainer\.loss_type: 'ktoo' cannot be used: .*'kto'"),
        ("kto", {"trainer": {"train_sampling_strategy": "random"}}, r"TRL's KTO trainer .*'sequential'"),
        ("kto", {"batch_size": 1}, r"training\.batch_size: 1: TRL's KTO trainer .*must be > 1"),
        ("dpo", {"trainer": {"loss_type": ["ipoo"]}}, r"training\.trainer: .*Unknown loss type: ipoo"),
        ("grpo", {"trainer": {"importance_sampling_level": "tok"}}, "Unknown importance sampling level: tok"),
    ],
)
def test_what_a_trainer_refuses_only_when_it_is_made_or_computes_its_loss(method, fields, error, tmp_path):
    with pytest.raises(InputError, match=error):
        loop(loop_settings(tmp_path, method, **training(**fields)))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method, loss", [("kto", "apo_zero_unpaired"), ("dpo", ["ipo", "sft"]), ("grpo", "dapo")])
def test_another_loss_that_the_trainer_has(method, loss, tmp_path):
    random = torch.get_rng_state()
    settings = loop_settings(tmp_path, method, **training(trainer={"loss_type": loss}))
    check_stages([plan_method(settings, method, named_folders(tmp_path / "run"))])
    assert torch.equal(torch.get_rng_state(), random)


def test_a_wrong_point_of_an_ablation_is_refused_before_any(tmp_path):
    sweep = [{"method": "exchange", "tune.training.peft": [{"use_rslora": True}, {"use_rslra": True}]}]
    settings = {"sweep": sweep, "output_dir": str(tmp_path / "run"), "report_to": "none"}
    with pytest.raises(InputError, match=r"training\.peft\.use_rslra: .*did you mean"):
        ablate(checked(AblateSettings, with_testbed(settings, "loop.measure"), "test"))
    assert not (tmp_path / "run").exists()


def test_equal_tunings_of_an_ablation_are_checked_once(tmp_path, monkeypatch):
    checks = []
    monkeypatch.setattr(experiment, "check_tuning", lambda model, method, settings, rounds: checks.append(settings))
    plans = []
    for quantile, rows in ((0.5, 64), (0.7, 64), (0.7, 32)):
        parts = {"label": {"quantile": quantile}, **training(max_rows=rows)}
        settings = loop_settings(tmp_path, "rejection", **parts)
        plans.append(plan_method(settings, "rejection", named_folders(tmp_path / f"{quantile}-{rows}")))
    check_stages(plans)
    assert [settings.max_rows for settings in checks] == [64, 32]


def test_a_model_that_the_trainer_does_not_take(tmp_path):
    name = str(tiny_checkpoints.blenderbot(tmp_path / "blender"))
    with pytest.raises(InputError, match=r"model: .* is an encoder-decoder model, which TRL's KTO trainer"):
        loop(loop_settings(tmp_path, **model(name=name)))
    settings = loop_settings(tmp_path, "exchange", **model(name=name))
    check_stages([plan_method(settings, "exchange", named_folders(tmp_path / "run"))])
    assert not (tmp_path / "run").exists()


def test_an_adapter_is_tuned_again_with_its_own_tag_and_not_on_packed_weights(tmp_path):
    base = tiny_checkpoints.dialogpt(tmp_path / "base")
    network = get_peft_model(AutoModelForCausalLM.from_pretrained(base), LoraConfig(r=2, target_modules="all-linear"))
    adapter = tmp_path / "adapter"
    network.save_pretrained(adapter)
    AutoTokenizer.from_pretrained(base).save_pretrained(adapter)
    write_json(adapter / "evenhand.json", {"control_tag": " no_bias"})
    with pytest.raises(InputError, match=r"the control tag ' no_bias', and the method uses ''"):
        loop(loop_settings(tmp_path, **model(name=str(adapter))))
    with pytest.raises(InputError, match=NEVER_MERGED):
        loop(loop_settings(tmp_path, "control_tags", **model(name=str(adapter), quantization="4bit")))
    settings = loop_settings(tmp_path, "control_tags", **model(name=str(adapter)))
    check_stages([plan_method(settings, "control_tags", named_folders(tmp_path))])
    assert not (tmp_path / "run").exists()


def test_several_gpus_without_a_launcher(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr("evenhand.mitigation.training.checks.resolve_device", lambda name: torch.device("cuda"))
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    with pytest.raises(InputError, match=r"model\.device: 2 GPUs are visible"):
        loop(loop_settings(tmp_path))
    assert not (tmp_path / "run").exists()


def test_a_finished_tuning_is_not_looked_at_again(tmp_path):
    planned = plan_method(loop_settings(tmp_path, **training(lora_rank=4000)), "kto", named_folders(tmp_path / "run"))
    write_json(tmp_path / "run" / "kto" / "tune" / "run.json", {})
    check_stages([planned])
    (tmp_path / "run" / "kto" / "tune" / "run.json").unlink()
    with pytest.raises(InputError, match="lora_rank"):
        check_stages([planned])


FEW = "descriptors is 8; give 13 (one for each axis) to 594 (all), or null (all)."


TESTBED, LIKELIHOODS = ["measure", "--config", "testbed"], ["--config", "testbed_likelihoods"]
LOOP, ABLATE = ["loop", "--config", "loop"], ["ablate", "--config", "thresholds"]
REFUSED = [
    ([*TESTBED, "--prompts.descriptors", "8"], FEW, False),
    ([*TESTBED, "--prompts.descriptors", "8", "--write_prompts", "asked.csv"], FEW, False),
    (
        [*TESTBED, "--prompts.per_cell", "1000000"],
        "1,000,000 in each of 5,200 cells results in",
        False,
    ),
    (
        [*TESTBED, "--prompts.filters", '{"axis": "x"}'],
        "filter axis: 'x' does not occur",
        False,
    ),
    (["measure", *LIKELIHOODS, "--prompts.descriptors", "8"], FEW, False),
    ([*TESTBED, "--decoding.arguments", '{"top_p": 2}'], "decoding: top_p is 2", True),
    ([*TESTBED, "--model.device", "abacus"], "device: 'abacus' cannot be used", True),
    ([*LOOP, "--measure.prompts.descriptors", "8"], FEW, False),
    ([*LOOP, "--methods", "exchange,swap"], "method: 'swap' is unknown", False),
    ([*LOOP, "--label.exclude_clusters", "AWE"], "exclude_clusters: 'AWE' is unknown", False),
    (
        [*LOOP, "--measure.generation_bias.style_clusters", "x"],
        "style_clusters: 'x' is unknown",
        False,
    ),
    ([*ABLATE, "--loop.measure.prompts.descriptors", "8"], FEW, False),
    (
        [*ABLATE, "--sweep", '[{"method": "dpo", "label.quantil": 1}]'],
        "sweep: label.quantil: 1 cannot be used",
        False,
    ),
    (["label", "--responses", "measured", "--exclude_clusters", "AWE"], "exclude_clusters: 'AWE'", False),
    (["tune", "--labels", "measured"], "labels: measured", False),
    (["tune", "--method", "prompt"], "method: prompt trains nothing", False),
    (["export", "--tuning", "measured"], "tuning: measured", False),
]
# A script that runs each list of arguments in a forked process and prints, as JSON, its exit status, its standard error
# and the slow modules that it imported.
FORKS = """
import json, os, sys
import evenhand.evaluation.runs.stage as stages, evenhand.recipes.launchers as launchers
from evenhand.recipes.cli import main
stages.start_tracking = launchers._run_stage = lambda *_, **__: sys.exit('a run began')
for number, arguments in enumerate(json.loads(sys.argv[1])):
    if os.fork() == 0:
        with open(f'err{number}', 'w+') as err:
            os.dup2(err.fileno(), 2)
            status = main([*arguments, '-q'])
            sys.stderr.flush()
            print(json.dumps([status, open(err.name).read(), sorted({'torch', 'transformers'} & set(sys.modules))]))
            sys.stdout.flush()
            os.remove(err.name)
            os._exit(0)
    os.wait()
"""


def test_a_refusal_comes_before_torch_is_imported_and_before_a_tracked_run(tmp_path):
    (tmp_path / "z.json").write_text('{"Z": ["z"]}')
    clusters = str(tmp_path / "z.json")
    write_measured(tmp_path / "measured", [[0.9, 0.1, 0.0]] * 4, ["a", "b", "c", "d"], style_clusters=clusters)
    command = [sys.executable, "-c", FORKS, json.dumps([arguments for arguments, *_ in REFUSED])]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    for (arguments, error, imports_torch), (status, err, modules) in zip(REFUSED, results, strict=True):
        *warnings, line = err.splitlines()
        assert status == 2 and error in line, (arguments, err)
        assert len(warnings) == (arguments[0] == "label"), err  # about the split
        assert imports_torch or modules == [], arguments
    assert {path.name for path in tmp_path.iterdir()} == {"measured", "z.json"}


@pytest.mark.parametrize(("split", "expected"), [("measure", 1), ("all", 1), ("train", 0)])
def test_labelling_measured_prompts_is_warned_of_at_once(split, expected, tmp_path):
    measured = MeasureSettings(split=split)
    assert len(split_warnings(measured, tmp_path)) == expected
    own = MeasureSettings(split=split, model=ModelSettings("bot"), responses=tmp_path / "logs.csv")
    assert split_warnings(own, tmp_path) == []
