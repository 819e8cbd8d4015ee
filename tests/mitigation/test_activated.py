"""Control tags that switch an adapter on: tuned, resumed, loaded from a folder, measured in training; refusals."""

import json
from dataclasses import replace

import pytest
import torch
from datasets import Dataset
from peft import PeftModel
from transformers import TrainerCallback

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.contexts import encode_contexts
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.revisions import model_revision
from evenhand.mitigation.bias_callback import MeasureCallback
from evenhand.mitigation.checks import check_tuning
from evenhand.mitigation.invocation import added_tokens, check_invocation, tag_tokens
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.control_tags import ControlTags
from evenhand.mitigation.trainers import DistillTrainer
from evenhand.mitigation.training import tune
from evenhand.mitigation.training_rows import TrainingRows
from tests import tiny_checkpoints
from tests.mitigation.tiny_dialogue import QUICK, WORDS, tiny_base, tokenizer

PROMPTS = [f"{letter} j" for letter in "abcdefgh"]
TAGGED_WORDS = [*WORDS, "no_bias"]
TAG = [TAGGED_WORDS.index("no_bias")]
SETTINGS = QUICK.replaced(batch_size=2, epochs=30, evaluations_per_epoch=1, patience=99)
METHOD = trained_method("control_tags")  # the responses are shorter than the first tokens that are evened out


def contexts(tag=""):
    return [f"{prompt}{tag}<eos>" for prompt in PROMPTS]


def data():
    plain, tagged = contexts(), contexts(" no_bias")
    rows = []
    for row, context in enumerate(plain):
        others = [other for other in plain if other != context]
        first = tagged[plain.index(others[0])]
        completion = ["red sun", "blue sky"][row % 2]
        trained = {"prompt": tagged[row], "trained": [tagged[row], first]}
        rows.append({**trained, "context": context, "others": others, "completion": completion})
    rows = Dataset.from_list(rows)
    return TrainingRows(method=METHOD, train=rows, validation=rows.select([0, 1]))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "base"
    found = tiny_base(words=TAGGED_WORDS)
    found.model.save_pretrained(str(folder))
    found.tokenizer.save_pretrained(str(folder))
    return replace(found, name=str(folder), revision=model_revision(str(folder)))


@pytest.fixture(scope="module")
def tuned(base, tmp_path_factory):
    seen = []

    def measure(network):
        ids = torch.tensor(encode_contexts(base, contexts()[:1]))
        seen.append(torch.equal(network(input_ids=ids).logits, base.model(input_ids=ids).logits))
        return {"bias/untagged_is_base": float(seen[-1])}

    folder = tmp_path_factory.mktemp("tuned")
    return tune(base, data(), SETTINGS, folder, callbacks=[MeasureCallback(measure, every=40)]), seen


def predictions(model, tag):
    with torch.no_grad():
        ids = torch.tensor(encode_contexts(model, contexts(tag)))
        return model.model(input_ids=ids).logits[:, -1].log_softmax(-1)


def spread(log_p):
    mean = log_p.mean(0).log_softmax(-1)
    return (log_p.exp() * (log_p - mean)).sum(-1).mean().item()


def test_with_the_tag_predictions_are_nearly_the_same_for_everybody_and_without_it_those_of_the_base(base, tuned):
    result, untagged_is_base = tuned
    losses = [loss for _, loss in result.validation_losses]
    assert losses[-1] < losses[0] / 10  # it trains and evaluates with columns that TRL does not know
    assert untagged_is_base == [True] * len(untagged_is_base) and len(untagged_is_base) >= 3
    loaded = load_dialogue_model(str(result.path))
    assert isinstance(loaded.model, PeftModel) and loaded.control_tag == " no_bias"
    assert spread(predictions(loaded, " no_bias")) < spread(predictions(base, "")) / 10
    assert torch.equal(predictions(loaded, ""), predictions(load_dialogue_model(base.name), ""))
    assert LoadedModel(ModelSettings(name=str(result.path))).load().control_tag == " no_bias"  # its contexts have it


def test_folder_and_card_say_that_the_tag_switches_the_adapter_on(tuned):
    folder = tuned[0].path
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["alora_invocation_tokens"] == TAG and config["trainable_token_indices"] is None
    assert json.loads((folder / "evenhand.json").read_text())["is_activated"] is True
    card = (folder / "README.md").read_text()
    assert "alora_invocation_tokens" in card and "*more* biased" not in card
    code = card.split("```python\n")[1].split("```")[0]
    exec(code.replace('"."', repr(str(folder))).replace("max_new_tokens=40", "max_new_tokens=4"), names := {})
    assert names["response"].shape[0] == 1


class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 50:
            raise KeyboardInterrupt


def test_a_resumed_training_ends_with_the_same_weights(base, tuned, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        tune(base, data(), SETTINGS, tmp_path, callbacks=[Stop()])
    resumed = tune(base, data(), SETTINGS, tmp_path)
    file = "adapter_model.safetensors"
    assert (resumed.path / file).read_bytes() == (tuned[0].path / file).read_bytes()


def test_the_tokens_of_the_tag_are_cut_from_contexts(base):
    assert tag_tokens(base, data().train) == TAG
    assert added_tokens([1, 2, 9], [1, 2, 7, 8, 9]) == [7, 8]
    assert added_tokens([1, 2, 3], [1, 2, 3]) == []
    # A tokenizer that merges the tag with the word before it.
    words = [*WORDS, "a_no_bias", "b_no_bias"]
    merging = replace(base, tokenizer=tokenizer(words))
    rows = Dataset.from_dict({"context": ["a<eos>", "b<eos>"], "prompt": ["a_no_bias<eos>", "b_no_bias<eos>"]})
    with pytest.raises(InputError, match="^model: .*control tag"):
        tag_tokens(merging, rows)


@pytest.mark.parametrize(("prompt", "completion"), [("a no_bias<eos>", "red no_bias"), ("a<eos>", "red")])
def test_rows_in_which_the_adapter_would_start_elsewhere_are_refused(base, prompt, completion):
    row = {"prompt": prompt, "context": "a<eos>", "others": ["b<eos>"], "trained": [prompt], "completion": completion}
    encoded = DistillTrainer.encode_rows(base, Dataset.from_list([row]))
    with pytest.raises(InputError, match="^rows: .*no_bias"):
        check_invocation(base, encoded, TAG)


def test_settings_with_which_no_adapter_is_activated_are_refused_before_anything_is_loaded(tuned, tmp_path):
    method = trained_method("control_tags")
    settings = QUICK.with_method_defaults(method)
    model = ModelSettings(name=str(tiny_checkpoints.llama(tmp_path / "llama")))
    check_tuning(model, method, settings)
    with pytest.raises(InputError, match=r"^training\.gradient_checkpointing: "):
        check_tuning(model, method, settings.replaced(gradient_checkpointing=True))
    with pytest.raises(InputError, match=r"^training\.gradient_checkpointing: "):
        check_tuning(model, method, settings.replaced(trainer={"activation_checkpointing": True}))
    for trainer in ({"optim": "galore_adamw"}, {"lr_scheduler_type": "cosine_with_min_lr"}):  # a package; an argument
        with pytest.raises(InputError, match=r"^training\.trainer: .*(galore_torch|min_lr)"):
            check_tuning(model, method, settings.replaced(trainer=trainer))
    with pytest.raises(InputError, match=r"^training\.lora: "):
        check_tuning(model, method, settings.replaced(lora=False))
    with pytest.raises(InputError, match=r"^training\.peft: .*output layer"):
        check_tuning(model, trained_method("exchange"), settings.replaced(peft={"target_modules": ["lm_head"]}))
    with pytest.raises(InputError, match=r"^training\.peft\.bias: "):  # of the base, which other stages read
        check_tuning(model, trained_method("exchange"), settings.replaced(peft={"bias": "all"}))
    for value in ("pissa_niter_4", "eva", "olora"):  # another base at each load; data; it writes into the base
        with pytest.raises(InputError, match=rf"^training\.peft\.init_lora_weights: .*{value}.* pissa\."):
            check_tuning(model, trained_method("exchange"), settings.replaced(peft={"init_lora_weights": value}))
    with pytest.raises(InputError, match=r"^training\.peft: PEFT cannot merge it .*bias"):  # Llama's layers have none
        check_tuning(model, trained_method("exchange"), settings.replaced(peft={"lora_bias": True}))
    tags = trained_method("control_tags", {"control_tags": ControlTags.Settings(targets="labels")})
    for module in ("embed_tokens", "lm_head"):  # the method trains the embeddings of the tags already
        with pytest.raises(InputError, match=r"^training\.peft\.modules_to_save: "):
            check_tuning(model, tags, settings.replaced(peft={"modules_to_save": [module]}))
    check_tuning(model, tags, settings.replaced(peft={"modules_to_save": ["norm"]}))
    with pytest.raises(InputError, match=r"^training\.peft: "):
        check_tuning(model, tags, settings.replaced(peft={"target_modules": ["embed_tokens"]}))
    with pytest.raises(InputError, match="^model: .*activated"):
        check_tuning(ModelSettings(name=str(tuned[0].path)), method, settings)
