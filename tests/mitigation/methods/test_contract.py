"""Modules of methods and trainers are checked against their contracts when they are loaded."""

import sys

import pytest

from evenhand.evaluation.errors import InputError
from evenhand.mitigation import methods
from evenhand.mitigation.training import trainers


@pytest.fixture
def write_module(tmp_path, monkeypatch):
    """A function that writes a module `candidate` into a package; the module is importable until the test ends."""

    def write(package, text):
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
        (tmp_path / "candidate.py").write_text(text)

    yield write
    for package in (methods, trainers):
        sys.modules.pop(f"{package.__name__}.candidate", None)


@pytest.mark.parametrize("name", methods.names())
def test_methods_fulfil_their_contract(name):
    method = methods.load_method(name)
    assert method.TRAINER in (None, *trainers.names())
    assert (method.rewards is not None) == (name == "grpo")


def test_what_a_method_leaves_out_has_the_default_of_the_contract(write_module):
    write_module(methods, "TRAINER = 'sft'\ndef rows(labelled, render, seed=0): ...")
    method = methods.load_trained_method("candidate")
    defaults = (method.INFERENCE_TAG, method.TAGS, method.THRESHOLD_PLAN_APPLIES, method.DEFAULTS, method.INSTRUCTION)
    assert defaults == ("", (), False, {}, "")
    assert method.rewards is None


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["TRAINER is missing", "rows(labelled, render, seed) is missing"]),
        ("TRAINER = 'sft'\nTAGS = ' bias'\nDEFAULTS = []\nrewards = 1", ["TAGS", "DEFAULTS", "rewards", "rows"]),
        ("TRAINER = 'sft'\ndef rows(labelled): ...", ["rows"]),
        ("TRAINER = None", ["INSTRUCTION is missing"]),
    ],
)
def test_all_faults_of_a_method_are_in_one_error(write_module, text, names):
    write_module(methods, text)
    with pytest.raises(InputError) as error:
        methods.load_method("candidate")
    assert all(name in str(error.value) for name in names)


def test_all_faults_of_a_trainer_are_in_one_error(write_module):
    write_module(trainers, "Trainer = int\nLOSS = 'nats'\ndef encode_rows(base, rows, settings, seed): ...")
    with pytest.raises(InputError) as error:
        trainers.load_trainer("candidate")
    assert all(name in str(error.value) for name in ("Trainer", "target_responses", "build_config"))
    assert "LOSS" not in str(error.value) and "encode_rows" not in str(error.value)


def test_an_unknown_trainer_is_named_with_the_one_likely_meant():
    with pytest.raises(InputError, match="trainer: 'stf' is unknown; did you mean 'sft'"):
        trainers.load_trainer("stf")
