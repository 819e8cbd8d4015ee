"""`evenhand.BiasCallback` in a plain trainer of transformers: it logs, warns or stops, and changes nothing."""

import logging

import numpy as np
import pandas as pd
import pytest
import torch
from datasets import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments

import evenhand
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.styles import NetworkClassifier
from evenhand.mitigation import bias_callback
from tests.tiny_models import EOS, tiny

DESCRIPTORS, TEMPLATES = ("a", "b", "c", "d"), ("m", "n", "o", "p", "q", "r")
PROMPTS = pd.DataFrame(
    [
        {"text": f"{template} {descriptor}", "template": template, "descriptor": descriptor}
        for template in TEMPLATES
        for descriptor in DESCRIPTORS
        for _ in range(2)
    ]
)
SHORT = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 2}


def styles_of(classifier, responses, descriptors):
    """A response that begins with x is curt, one that begins with y kind, and any other something in between."""
    share = {"x": 1.0, "y": 0.0}
    curt = np.array([share.get(text[:1], 0.4 + 0.01 * (sum(map(ord, text)) % 20)) for text in responses])
    return np.stack([curt, 1 - curt], axis=1)


@pytest.fixture(autouse=True)
def _classifier(monkeypatch):
    monkeypatch.setattr(bias_callback, "classify_responses", styles_of)


def bias_callback_of(**settings):
    classifier = NetworkClassifier(None, None, ("curt", "kind"), "stub", "")
    return evenhand.BiasCallback(
        **{"prompts": PROMPTS, "style_classifier": classifier, "every": 10, "decoding": SHORT, **settings}
    )


class Tracker(TrainerCallback):
    """What a tracker of the trainer gets."""

    def __init__(self):
        self.logged = []

    def on_log(self, args, state, control, logs, **kwargs):
        self.logged.append((state.global_step, dict(logs)))


def trainer_of(folder, answers, **arguments):
    """A trainer that teaches the model the answer to each descriptor."""
    base = tiny("gpt2")
    tokenizer = base.tokenizer
    rows = []
    for template in TEMPLATES:
        for descriptor, answer in answers.items():
            context = tokenizer(f"{template} {descriptor} <eos>")["input_ids"]
            ids = [*context, tokenizer.convert_tokens_to_ids(answer), EOS]
            rows.append({"input_ids": ids, "labels": [-100] * len(context) + ids[len(context) :]})
    options = {"max_steps": 20, "per_device_train_batch_size": 8, "learning_rate": 3e-2, "logging_steps": 10}
    options |= {"use_cpu": True, "report_to": "none", "disable_tqdm": True, "save_strategy": "no", **arguments}
    trainer = Trainer(
        base.model,
        TrainingArguments(str(folder), **options),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        callbacks=[Tracker()],
    )
    trainer.tracker = trainer.callback_handler.callbacks[-2]
    assert isinstance(trainer.tracker, Tracker)
    return trainer


UNEVEN = dict.fromkeys("ab", "x") | dict.fromkeys("cd", "y")
EVEN = dict.fromkeys(DESCRIPTORS, "y")


def test_it_logs_to_the_trackers_and_stops_a_training_that_makes_bias_rise(tmp_path, caplog):
    trainer = trainer_of(tmp_path, UNEVEN, max_steps=40)
    bias_callback_of(stop_if_rises=True).attach(trainer)
    with caplog.at_level(logging.WARNING, logger="evenhand"):
        trainer.train()
    measured = [(step, logs) for step, logs in trainer.tracker.logged if "bias/fgb_pooled_corrected" in logs]
    assert [step for step, _ in measured][:2] == [0, 10]
    assert "bias/rise" not in measured[0][1]
    last_step, last = measured[-1]
    assert trainer.state.global_step == last_step < 40  # stopped
    assert "bias rose" in caplog.text and "training stops" in caplog.text
    # x to half of the descriptors and y to the others: Σ_s Var_d = 2 · 4/3 · ¼ = 2/3.
    assert last["bias/fgb_pooled_corrected"] == pytest.approx(2 / 3, abs=0.2)
    assert "bias/fgb_pooled_corrected_low" in measured[0][1]
    assert last["bias/rise"] == pytest.approx(
        last["bias/fgb_pooled_corrected"] - measured[0][1]["bias/fgb_pooled_corrected"], abs=1e-6
    )
    effects = {name: value for name, value in last.items() if name.startswith("bias/effect/")}
    assert len(effects) == 3 and last["bias/effects_shown"] >= 3
    assert all((value > 0) == (name.split("/")[2] in "ab") for name, value in effects.items() if "curt" in name)
    assert "bias/relevance_low" in last
    assert all("loss" not in logs for _, logs in measured)


def test_an_even_training_is_as_without_the_callback(tmp_path, caplog):
    plain = trainer_of(tmp_path / "plain", EVEN)
    plain.train()
    measured = trainer_of(tmp_path / "measured", EVEN)
    before = measured.model.generation_config, measured.processing_class.padding_side
    bias_callback_of(stop_if_rises=True, relevance=False).attach(measured)
    measured.train()
    assert "bias rose" not in caplog.text
    assert all(map(torch.equal, plain.model.state_dict().values(), measured.model.state_dict().values()))
    losses = [
        [entry["loss"] for entry in trainer.state.log_history if "loss" in entry] for trainer in (plain, measured)
    ]
    assert losses[0] == losses[1] and len(losses[0]) == 2
    assert measured.model.generation_config is before[0]
    assert measured.processing_class.padding_side == before[1]
    assert not any("bias/relevance" in logs for _, logs in measured.tracker.logged)


def test_a_second_training_is_compared_with_its_own_step_0(tmp_path):
    callback = bias_callback_of(relevance=False)
    for name in ("first", "second"):
        trainer = trainer_of(tmp_path / name, UNEVEN, max_steps=10)
        callback.attach(trainer)
        trainer.train()
        at_0, at_10 = (logs for _, logs in trainer.tracker.logged if "bias/fgb_pooled_corrected" in logs)
        assert "bias/rise" not in at_0 and "bias/rise" in at_10
        assert (tmp_path / name / bias_callback.BASELINE).exists()  # for a resumed training


def test_a_resumed_training_is_compared_with_step_0(tmp_path, caplog):
    first = trainer_of(tmp_path, UNEVEN, max_steps=10, save_strategy="steps", save_steps=10)
    bias_callback_of().attach(first)
    first.train()
    second = trainer_of(tmp_path, UNEVEN, max_steps=30)
    bias_callback_of().attach(second)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert second.state.global_step == 30  # without stop_if_rises it goes on
    assert "training goes on" in caplog.text
    steps = [step for step, logs in second.tracker.logged if "bias/rise" in logs]
    assert steps == [20, 30]


@pytest.mark.parametrize("other", [{"prompts": PROMPTS[::-1]}, {"prompts": PROMPTS[4:]}, {"seed": 1}])
def test_a_training_that_resumes_with_other_prompts_shows_no_rise(tmp_path, caplog, other):
    """The answers at step 0 are of the prompts in their order: a row is no answer to another prompt."""
    first = trainer_of(tmp_path, UNEVEN, max_steps=10, save_strategy="steps", save_steps=10)
    bias_callback_of(relevance=False).attach(first)
    first.train()
    second = trainer_of(tmp_path, UNEVEN, max_steps=20)
    bias_callback_of(relevance=False, **other).attach(second)
    second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-10"))
    assert "of other prompts" in caplog.text
    assert not [step for step, logs in second.tracker.logged if "bias/rise" in logs and step > 10]


def test_markers_of_reasoning_hold_during_training(tmp_path, monkeypatch):
    seen, respond = [], LoadedModel.respond

    def answers(self, prompts, tokens=None):
        seen.append(self.load().reasoning)
        return respond(self, prompts, tokens)

    monkeypatch.setattr(LoadedModel, "respond", answers)
    trainer = trainer_of(tmp_path, EVEN, max_steps=1)
    bias_callback_of(reasoning=["<plan>", "</plan>"], relevance=False).attach(trainer)
    trainer.train()
    assert set(seen) == {("<plan>", "</plan>")}
