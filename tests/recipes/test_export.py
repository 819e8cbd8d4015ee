"""An exported model responds in plain transformers, without Evenhand, as the tuned model does in Evenhand."""

import contextlib
import io
import json
import os
import re
import shutil
import sys
from types import SimpleNamespace

import huggingface_hub
import pandas as pd
import pytest
import torch
import yaml
from peft import AutoPeftModelForCausalLM, AutoPeftModelForSeq2SeqLM, LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
)

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics.generation_bias.requested_language import IN_REQUESTED
from evenhand.evaluation.model_settings import DecodingSettings, ModelSettings
from evenhand.evaluation.models.contexts import encode_contexts, render_contexts
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.revisions import adapter_base
from evenhand.evaluation.score import display_name, levels_of_run, write_scores
from evenhand.evaluation.tables import join_batches
from evenhand.mitigation.card import EXAMPLE
from evenhand.mitigation.hidden_state_maps import LayerMaps, save_maps
from evenhand.mitigation.invocation import added_tokens
from evenhand.mitigation.methods import trained_method
from evenhand.mitigation.methods.shrink import ShrunkModel
from evenhand.recipes.command_settings import ExportSettings
from evenhand.recipes.export import (
    check_measured_as_exported,
    comparison_section,
    export,
    shown_change,
    tagged_template,
)
from evenhand.recipes.settings import MeasureSettings
from tests import tiny_checkpoints
from tests.named_scores import named_score
from tests.recorded_runs import write_run

TAG, MESSAGE = " no_bias", EXAMPLE
TUNED = {
    "control_tag": TAG,
    "method": "control_tags",
    "loss": "nats",
    "system_prompt": "",
    "settings": {"lora": True, "seed": 0},
    "training": {
        "n_train": 40,
        "n_validation": 10,
        "trainable_parameters": 1024,
        "validation_losses": [[0, 5.0], [3, 4.5]],
        "best_step": 3,
        "perplexity": [9.0, 9.5],
        "change": {"greedy_share": 0.5, "n": 10, "max_logit_change": 2.0},
    },
}


def tuning(folder, checkpoint, lora=None, system_prompt="", **arguments):
    """Write a tiny base with an adapter of random weights as `tune` leaves it, and the runs before it."""
    torch.manual_seed(0)
    base = load_dialogue_model(str(checkpoint(folder / "base")))
    adapted = get_peft_model(
        base.model, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, **(lora or {}))
    )
    adapter = write_run(folder / "tune", "tune", labels="../label", method="control_tags") / "adapter"
    adapted.save_pretrained(adapter)
    base.tokenizer.save_pretrained(adapter)
    tuned = TUNED | {
        "system_prompt": system_prompt,
        "base": os.path.relpath(base.name, adapter),
        "base_revision": base.revision,
    }
    (adapter / "evenhand.json").write_text(json.dumps(tuned))
    write_run(folder / "label", "label", run="../train")
    (folder / "label" / "threshold.json").write_text(json.dumps({"alpha": 0, "beta": 0.25}))
    model = {"name": "../base", "system_prompt": system_prompt or None}
    write_run(folder / "train", "measure", model=model, decoding={"arguments": arguments or {"temperature": 0.7}})
    return folder / "tune"


def chat_with_one_end(folder):
    """Write a chat model whose template ends a turn with another token than its generation config, and often does."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    further = {
        "tokenizer_class": "GPT2Tokenizer",
        "eos_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>",
        "chat_template": tiny_checkpoints.CHAT_THAT_CAN_THINK,
    }
    size = tiny_checkpoints.save_tokenizer(folder, special, additional_special_tokens=special[1:], **further)
    sizes = tiny_checkpoints.SIZES | tiny_checkpoints.HEADS
    model = LlamaForCausalLM(LlamaConfig(vocab_size=size, **sizes, eos_token_id=0, pad_token_id=0))
    with torch.no_grad():
        model.lm_head.weight[2] *= 30
    model.generation_config = GenerationConfig(eos_token_id=0, pad_token_id=0)
    return tiny_checkpoints.save_model(folder, model)


def encoder_decoder(folder):
    """Write a model whose first token is forced, and which must not write padding."""
    special = ["<pad>", "<s>", "</s>"]
    tokens = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "</s>"}
    size = tiny_checkpoints.save_tokenizer(folder, special, tokenizer_class="GPT2Tokenizer", **tokens)
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "decoder_start_token_id": 2}
    layers = {f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in ("layers", "attention_heads")}
    sizes = {"d_model": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 128}
    config = BartConfig(vocab_size=size, **sizes, **layers, **ids, forced_bos_token_id=None, forced_eos_token_id=None)
    model = BartForConditionalGeneration(config)
    with torch.no_grad():
        model.final_logits_bias[0, 0] = 100.0
    model.generation_config = GenerationConfig(**ids, forced_bos_token_id=1, bad_words_ids=[[0]])
    return tiny_checkpoints.save_model(folder, model, scale=20)


def snippet_answer(folder, monkeypatch, decoding=", max_new_tokens=8, do_sample=False", base=""):
    """Run the lines of the card in its folder, greedily, without any module of Evenhand; return what is printed.

    `base` is the path of a base of which the card has the display name.
    """
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.S)
    printed = io.StringIO()
    with monkeypatch.context() as blocked, contextlib.redirect_stdout(printed):
        for name in [name for name in sys.modules if name.partition(".")[0] == "evenhand"]:
            blocked.delitem(sys.modules, name)
        blocked.setitem(sys.modules, "evenhand", None)
        blocked.chdir(folder)
        code = code.replace(display_name(base), base) if base else code
        exec(code.replace("tokenizer=tokenizer)", f"tokenizer=tokenizer{decoding})"), {})
    return printed.getvalue().strip()


def evenhand_answer(model, tag, arguments=None):
    (context,) = render_contexts(model, [MESSAGE], [""], tag)
    (batch,) = generate_responses(model, [context], [0], arguments or {"max_new_tokens": 8})
    return batch[0].text


@pytest.mark.parametrize("name", ["qwen", "base_without_template", "gguf"])
def test_the_lines_of_the_card_answer_as_the_tuned_model(name, tmp_path, monkeypatch, request):
    umask = os.umask(0o022)
    request.addfinalizer(lambda: os.umask(umask))
    tuned = tuning(tmp_path, getattr(tiny_checkpoints, name))
    export(ExportSettings(tuning=tuned, output_dir=tmp_path / "exported"))
    folder = tmp_path / "exported" / "model"
    model = load_dialogue_model(str(tuned / "adapter"))
    answer = evenhand_answer(model, TAG)
    assert snippet_answer(folder, monkeypatch) == answer
    assert answer != evenhand_answer(load_dialogue_model(adapter_base(tuned / "adapter")[0]), "")
    assert not list(folder.glob("adapter*"))
    card = (folder / "README.md").read_text()
    assert yaml.safe_load(card.split("---")[1])["library_name"] == "transformers"
    assert "| before | after |" not in card and str(tmp_path) not in card
    assert "| beta |" not in card  # the method read no labels
    again = load_dialogue_model(str(folder))  # Evenhand reads it too, and adds the tag once
    assert again.control_tag == (TAG if name == "base_without_template" else "")
    assert evenhand_answer(again, again.control_tag) == answer
    generation = json.loads((folder / "generation_config.json").read_text())
    assert (generation["do_sample"], generation["temperature"], generation["top_k"]) == (True, 0.7, 0)  # as measured
    if name == "qwen":
        assert generation["eos_token_id"] == [2, 0] and generation["pad_token_id"] == 0  # of the base's file
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o644}


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize(
    ("checkpoint", "arguments"),
    [
        (chat_with_one_end, {}),
        (chat_with_one_end, {"stop_strings": list("aeiounstrl"), "suppress_tokens": [2, 7]}),
        (encoder_decoder, {"min_new_tokens": 3}),
    ],
    ids=["end of a turn", "stop strings", "forced and forbidden tokens"],
)
def test_the_exported_model_stops_and_answers_as_it_was_measured(checkpoint, arguments, merge, tmp_path):
    arguments = {"do_sample": False, "max_new_tokens": 12, **arguments}
    tuned = tuning(tmp_path, checkpoint, **arguments)
    export(ExportSettings(tuning=tuned, merge=merge, output_dir=tmp_path / "exported"))
    folder = tmp_path / "exported" / "model"
    model = load_dialogue_model(str(tuned / "adapter"))
    is_causal = checkpoint is chat_with_one_end
    if merge:
        plain = (AutoModelForCausalLM if is_causal else AutoModelForSeq2SeqLM).from_pretrained(folder)
    else:
        plain = (AutoPeftModelForCausalLM if is_causal else AutoPeftModelForSeq2SeqLM).from_pretrained(folder)
        plain.generation_config = GenerationConfig.from_pretrained(folder)
        plain.get_base_model().generation_config = plain.generation_config
    tokenizer = AutoTokenizer.from_pretrained(folder)
    contexts = render_contexts(model, [f"I'm {number}." for number in range(8)], [""] * 8)
    measured = {}
    for batch in generate_responses(model, contexts, [0] * 8, decoding_arguments("sample", arguments)):
        measured.update(batch)
    for row, ids in enumerate(encode_contexts(model, contexts)):
        output = plain.eval().generate(input_ids=torch.tensor([ids]), tokenizer=tokenizer)[0].tolist()
        assert output[len(ids) if is_causal else 1 :] == measured[row].ids
    assert any(not response.is_cut for response in measured.values()) or not is_causal


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize(
    ("checkpoint", "system_prompt", "arguments"),
    [
        (chat_with_one_end, "Be kind.", {"stop_strings": list("aeiounstrl"), "suppress_tokens": [2, 7]}),
        (chat_with_one_end, "", {}),
        (tiny_checkpoints.gemma, "Be kind.", {}),
        (tiny_checkpoints.dialogpt, "Be kind.", {}),
        (encoder_decoder, "Be kind.", {}),
    ],
    ids=["stop strings", "end of a turn", "no system message", "no turns", "encoder-decoder"],
)
def test_the_lines_of_the_card_ask_decode_and_stop_as_measured(
    checkpoint, system_prompt, arguments, merge, tmp_path, monkeypatch
):
    arguments = {"do_sample": False, "max_new_tokens": 9, "min_new_tokens": 2, **arguments}
    tuned = tuning(tmp_path, checkpoint, system_prompt=system_prompt, **arguments)
    export(ExportSettings(tuning=tuned, merge=merge, output_dir=tmp_path / "exported"))
    model = load_dialogue_model(ModelSettings(name=str(tuned / "adapter"), system_prompt=system_prompt or None))
    answer = evenhand_answer(model, TAG, decoding_arguments("sample", arguments))
    assert snippet_answer(tmp_path / "exported" / "model", monkeypatch, "") == answer != ""


def test_an_adapter_is_exported_alone_and_uploaded(tmp_path, monkeypatch):
    tuned, calls = tuning(tmp_path, tiny_checkpoints.base_without_template), []

    class Hub:
        def whoami(self):
            return {"name": "somebody"}

        def create_repo(self, repository, **options):
            calls.append((repository, options))

        def upload_folder(self, **options):
            calls.append([path.name for path in options["folder_path"].iterdir()])
            return SimpleNamespace(commit_url="…")

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr("evenhand.evaluation.hub.offline_reason", str)
    settings = {"tuning": tuned, "output_dir": tmp_path / "exported", "push_to_hub": "somebody/even"}
    export(ExportSettings(merge=False, **settings))
    assert calls[0] == ("somebody/even", {"private": True, "exist_ok": True})
    assert {"README.md", "adapter_model.safetensors", "tokenizer.json"} <= set(calls[1])
    assert "run.json" not in calls[1] and "model.safetensors" not in calls[1]


def test_an_adapter_on_an_adapter_of_the_hub_is_exported_merged_only(tmp_path, monkeypatch):
    """PEFT alone loads both adapters into one model, which then predicts otherwise."""
    tuned = tuning(tmp_path, tiny_checkpoints.base_without_template)
    snapshot = tmp_path / "hub" / "snapshot"
    shutil.copytree(tuned / "adapter", snapshot)
    for file, field in (("adapter_config.json", "base_model_name_or_path"), ("evenhand.json", "base")):
        path = tuned / "adapter" / file
        path.write_text(json.dumps({**json.loads(path.read_text()), field: "some-org/tuned-adapter"}))

    def download(name, file, revision=None):
        if not (snapshot / file).exists():
            raise OSError(f"404 Client Error: {file}")
        return str(snapshot / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: str(snapshot))
    with pytest.raises(InputError, match="^merge: .*its base: some-org/tuned-adapter.*--merge true"):
        export(ExportSettings(tuning=tuned, merge=False, output_dir=tmp_path / "alone"))
    export(ExportSettings(tuning=tuned, output_dir=tmp_path / "exported"))
    expected = load_dialogue_model(str(tuned / "adapter"))
    folder = tmp_path / "exported" / "model"
    torch.testing.assert_close(load_dialogue_model(str(folder)).model.state_dict(), expected.model.state_dict())
    assert "some-org/tuned-adapter" not in (folder / "README.md").read_text()  # the base is that of both adapters


def test_an_activated_adapter_is_exported_alone_and_acts_after_the_tag_of_its_template(tmp_path, monkeypatch):
    base = load_dialogue_model(str(tiny_checkpoints.qwen(tmp_path / "first")))
    plain, tagged = encode_contexts(base, [render_contexts(base, [MESSAGE], [""], tag)[0] for tag in ("", TAG)])
    invocation = added_tokens(plain, tagged)
    activated = {"task_type": "CAUSAL_LM", "alora_invocation_tokens": invocation}
    tuned = tuning(tmp_path, tiny_checkpoints.qwen, activated)
    facts = tuned / "adapter" / "evenhand.json"
    facts.write_text(json.dumps({**json.loads(facts.read_text()), "is_activated": True}))
    with pytest.raises(InputError, match="^merge: .*activated.*--merge false"):
        export(ExportSettings(tuning=tuned, output_dir=tmp_path / "merged"))
    export(ExportSettings(tuning=tuned, merge=False, output_dir=tmp_path / "exported"))
    folder = tmp_path / "exported" / "model"
    assert json.loads((folder / "adapter_config.json").read_text())["alora_invocation_tokens"] == invocation
    model = load_dialogue_model(str(tuned / "adapter"))
    assert snippet_answer(folder, monkeypatch) == evenhand_answer(model, TAG) != evenhand_answer(model, "")
    assert "llama.cpp" in (folder / "README.md").read_text()


@pytest.mark.parametrize("merge", [True, False])
def test_the_model_is_exported_with_the_strength_that_was_compared(merge, tmp_path):
    tuned = tuning(tmp_path, tiny_checkpoints.base_without_template)
    sides = {"before": write_run(tmp_path / "before", "measure")}
    sides["after"] = write_run(
        tmp_path / "after",
        "measure",
        model={"name": str(tuned / "adapter"), "adapter_strength": 0.5},
        decoding={"arguments": {"temperature": 0.9}},
    )
    compared = write_run(tmp_path / "compare", "compare", tuning="../tune", before="../before", after="../after")
    for run in (*sides.values(), compared):
        write_scores(run / "scores.json", [named_score("fgb_pooled_corrected", 0.01, 0.0, (-1.0, 1.0), 10)])
    export(ExportSettings(tuning=tuned, merge=merge, output_dir=tmp_path / "exported"))
    expected, whole, exported = (
        load_dialogue_model(ModelSettings(name=str(folder), adapter_strength=strength)).model.state_dict()
        for folder, strength in (
            (tuned / "adapter", 0.5),
            (tuned / "adapter", None),
            (tmp_path / "exported" / "model", None),
        )
    )
    torch.testing.assert_close(exported, expected)
    assert any(not torch.equal(expected[name], whole[name]) for name in whole)
    generation = json.loads((tmp_path / "exported" / "model" / "generation_config.json").read_text())
    assert generation["temperature"] == 0.9  # of the measurement on the card, not of the labelled responses
    assert "| adapter strength | 0.5 |" in (tmp_path / "exported" / "model" / "README.md").read_text()


def test_the_template_appends_the_tag_to_the_last_user_message():
    template = tiny_checkpoints.CHAT_THAT_CAN_THINK
    from transformers.utils.chat_template_utils import render_jinja_template

    def rendered(template, *chat):
        messages = [{"role": role, "content": content} for role, content in chat]
        (text,), _ = render_jinja_template(
            [messages], chat_template=template, bos_token="<s>", add_generation_prompt=True
        )
        return text

    first, answer, last = ("user", "Hi."), ("assistant", "Yes?"), ("user", "Who's “there”?")
    tag = ' no"bias é 🙂'
    tagged = tagged_template(template, tag)
    assert rendered(tagged, first, answer, last) == rendered(template, first, answer, (last[0], last[1] + tag))
    assert rendered(tagged, first, answer) == rendered(template, first, answer)


def test_the_card_has_the_scores_before_and_after_and_what_was_removed():
    def score(metric, value, interval):
        return named_score(metric, value, 0.0, (-3.0, 3.0), 100, interval=interval)

    pooled, ppl = "fgb_pooled_corrected", "perplexity"
    before = [score(pooled, 0.015, (0.014, 0.016)), score(ppl, 8.0, (7.5, 8.5))]
    after = [score(pooled, 0.0006, (0.0001, 0.0011)), score(ppl, 8.2, (7.7, 8.7))]
    changes = [score(f"{pooled}_reduction", 0.96, (0.93, 0.99)), score(f"{ppl}_difference", 0.2, (0.1, 0.3))]
    text = comparison_section(before, after, changes)
    assert "| pooled FGB*, thousandths | 15.00 [14.00, 16.00] | 0.60 [0.10, 1.10] |" in text
    assert "| bias removed, all descriptors, % | 96.0 [93.0, 99.0] |" in text
    assert "| perplexity, % | +2.5 [+1.2, +3.8] |" in text  # 0.2 of 8; a share of the base's
    assert "distinct-2" not in text  # not measured
    assert comparison_section(before, after, changes, method="distill") == text
    joined = comparison_section(before, after, changes, method="distill+nearest_style")
    assert "used with `nearest_style`**, which is no part of the model" in joined
    assert "96.0" not in comparison_section([], [], changes)  # of another family than generation bias
    common = [*levels_of_run([score(pooled, 0.02, (0.01, 0.03))], "before")]  # of the answers that both runs have
    common += levels_of_run([score(pooled, 0.001, (0.0, 0.002))], "after")
    text = comparison_section(before, after, [*changes, *common])
    assert "| pooled FGB*, thousandths | 20.00 [10.00, 30.00] | 1.00 [0.00, 2.00] |" in text


def test_the_card_claims_the_change_that_the_page_of_the_comparison_shows():
    """Of all answers, the difference falls; of those in the request's language, it is not shown to."""
    pooled = "fgb_pooled_corrected"

    def scores(difference, interval, reduction, removed, **group):
        return [
            named_score(f"{pooled}_difference", difference, 0.0, (-3.0, 3.0), 100, interval=interval, group=group),
            named_score(f"{pooled}_reduction", reduction, 0.0, (-9.0, 3.0), 100, interval=removed, group=group),
        ]

    changes = scores(-0.12, (-0.19, -0.05), 0.7, (0.4, 0.9))
    level = [named_score(pooled, 0.1, 0.0, (-3.0, 3.0), 100, interval=(0.05, 0.2))]
    assert shown_change(changes) == "fell" and "language" not in comparison_section(level, level, changes)
    changes += scores(-0.02, (-0.1, 0.06), 0.2, (-3.5, 0.8), **IN_REQUESTED)
    assert shown_change(changes) == "unchanged"
    assert "20.0 [−350.0, 80.0] %" in comparison_section(level, level, changes)


def of_first_tokens(tuned, method):
    """Change the method of a tuning and of its evenhand.json, and return the settings of its export."""
    write_run(tuned, "tune", labels="../label", method=method)
    file = tuned / "adapter" / "evenhand.json"
    facts = json.loads(file.read_text())
    changed = {"method": method, "control_tag": "", "settings": {**facts["settings"], "first_tokens": 4}}
    file.write_text(json.dumps(facts | changed))
    return {"tuning": tuned, "output_dir": tuned.parent / "exported"}


def test_an_adapter_for_first_tokens_is_not_merged_and_its_card_says_so(tmp_path):
    settings = of_first_tokens(tuning(tmp_path, tiny_checkpoints.base_without_template), "opening")
    with pytest.raises(InputError, match="^merge: opening acts on the first tokens"):
        export(ExportSettings(**settings, merge=True))
    export(ExportSettings(**settings, merge=False))
    folder = tmp_path / "exported" / "model"
    assert "first 4 tokens of a response only" in (folder / "README.md").read_text()
    assert (folder / "adapter_model.safetensors").exists()


@pytest.mark.parametrize("arguments", [{}, {"stop_strings": ["\x1a"]}, {"min_new_tokens": 6}])
def test_the_lines_of_the_card_switch_the_adapter_off_after_the_opening(arguments, tmp_path, monkeypatch):
    """An opening that ends the response is not continued."""
    arguments = {"do_sample": False, "max_new_tokens": 9, **arguments}
    settings = of_first_tokens(tuning(tmp_path, chat_with_one_end, system_prompt="Be kind.", **arguments), "opening")
    export(ExportSettings(**settings, merge=False))
    model = ModelSettings(name=str(settings["tuning"] / "adapter"), system_prompt="Be kind.")
    tuned = LoadedModel(model, DecodingSettings(arguments=arguments))
    prompts = pd.DataFrame({"prompt_id": ["a"], "text": [MESSAGE], "persona": [""]})
    (answer,) = join_batches(trained_method("opening").measured(tuned).respond(prompts))["response"]
    (throughout,) = join_batches(tuned.respond(prompts))["response"]
    assert snippet_answer(tmp_path / "exported" / "model", monkeypatch, "") == answer
    assert (answer == throughout) == ("stop_strings" in arguments)


@pytest.mark.parametrize("merge", [True, False])
def test_what_is_never_merged_cannot_be_exported_with_the_base_of_a_gguf_file(merge, tmp_path):
    settings = of_first_tokens(tuning(tmp_path, tiny_checkpoints.gguf), "opening")
    with pytest.raises(
        InputError, match="^merge: .*opening acts on the first tokens.*tune a base.*safetensors"
    ) as error:
        export(ExportSettings(**settings, merge=merge))
    assert "--merge" not in str(error.value)  # neither value works


def with_maps(tuned):
    """Change a tuning to one of `shrink`, with random maps after both layers; return the settings of its export."""
    for file in (tuned / "adapter").glob("*"):
        if file.name != "evenhand.json":
            file.unlink()
    generator = torch.Generator().manual_seed(0)
    maps = {
        layer: LayerMaps(torch.randn(4, 32, generator=generator), torch.randn(4, 32, 32, generator=generator))
        for layer in (0, 1)
    }
    save_maps(maps, tuned / "adapter" / "shrink.safetensors")
    settings = of_first_tokens(tuned, "shrink")
    file = tuned / "adapter" / "evenhand.json"
    facts = json.loads(file.read_text())
    file.write_text(json.dumps(facts | {"settings": {**facts["settings"], "strength": 0.5}}))
    return settings


@pytest.mark.parametrize("checkpoint", [chat_with_one_end, tiny_checkpoints.dialogpt])
@pytest.mark.parametrize("arguments", [{}, {"stop_strings": list("aeiounstrl"), "suppress_tokens": [2, 7]}])
def test_maps_are_exported_with_a_card_that_answers_as_measured(checkpoint, arguments, tmp_path, monkeypatch):
    """Also where layers are elsewhere than in `model.model.layers` (GPT-2); it stops and decodes as measured."""
    arguments = {"do_sample": False, "max_new_tokens": 9, **arguments}
    tuned = tuning(tmp_path, checkpoint, **arguments)
    settings = with_maps(tuned)
    with pytest.raises(InputError, match="^merge: shrink acts on the first tokens"):
        export(ExportSettings(**settings, merge=True))
    export(ExportSettings(**settings, merge=False))
    folder = tmp_path / "exported" / "model"
    names = ["README.md", "generation_config.json", "shrink.safetensors"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert "## Before and after" in (folder / "README.md").read_text()
    plain = LoadedModel(ModelSettings(name=str(tmp_path / "base")), DecodingSettings(arguments=arguments))
    prompts = pd.DataFrame({"prompt_id": ["a"], "text": [MESSAGE], "persona": [""]})
    shrunk = ShrunkModel(plain, tuned / "adapter", 0.5)
    (answer,) = join_batches(shrunk.respond(prompts))["response"]
    assert snippet_answer(folder, monkeypatch, "", base=str(tmp_path / "base")) == answer
    assert answer != join_batches(plain.respond(prompts))["response"][0]


@pytest.mark.parametrize("variable", ["date_string", "day"])
def test_the_card_of_a_template_with_a_date_writes_the_day_of_the_measurement(variable, tmp_path, monkeypatch):
    """By the day of use, or without a day, the answer would be another."""

    def checkpoint(folder):
        tiny_checkpoints.llama(folder)
        template = tiny_checkpoints.CHAT_ON_A_DAY.replace("date_string", variable)
        day = "{% set form = '%d ' ~ '%b %Y' %}" + template.replace("strftime_now('%d %b %Y')", "strftime_now(form)")
        (folder / "chat_template.jinja").write_text(day)
        return folder

    tuned = tuning(tmp_path, checkpoint)
    export(ExportSettings(tuning=tuned, output_dir=tmp_path / "exported"))
    (context,) = render_contexts(load_dialogue_model(str(tuned / "adapter")), [MESSAGE], [""])
    assert "Today Date: 26 Jul 2024" in context
    folder = tmp_path / "exported" / "model"
    printed = "tokenizer.decode(context['input_ids'][0])"
    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("start = context", f"print({printed})\nstart = context"))
    assert "Today Date: 26 Jul 2024" in snippet_answer(folder, monkeypatch)


def test_the_card_of_an_adapter_computes_in_the_precision_that_was_measured(tmp_path, monkeypatch):
    def checkpoint(folder):
        model = AutoModelForCausalLM.from_pretrained(tiny_checkpoints.qwen(folder), dtype=torch.bfloat16)
        model.save_pretrained(folder)
        return folder

    tuned = tuning(tmp_path, checkpoint)
    write_run(tmp_path / "train", "measure", model={"name": "../base", "dtype": "float32"})
    export(ExportSettings(tuning=tuned, merge=False, output_dir=tmp_path / "exported"))
    folder = tmp_path / "exported" / "model"
    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("start = context", "print(model.dtype)\nstart = context"))
    assert snippet_answer(folder, monkeypatch).startswith("torch.float32")


@pytest.mark.parametrize(("method", "name", "tuned"), [("shrink", "strength", 0.5), ("opening", "first_tokens", 6)])
def test_a_method_is_exported_with_the_settings_that_were_measured(method, name, tuned, tmp_path):
    """The scores on the card are of the model that its code loads."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "evenhand.json").write_text(json.dumps({"method": method, "settings": {name: tuned}}))
    base = ModelSettings(name="base")

    def check(settings=None, method=method, **model):
        given = {"model": {"name": str(adapter), **model}, "method": method}
        check_measured_as_exported(tmp_path, MeasureSettings(**given, **(settings or {})), base)

    as_tuned = {method: {name: tuned}}
    check(as_tuned)
    with pytest.raises(InputError, match=f"^comparison: it is of {method}.{name} "):
        check()
    for other in ({"name": str(tmp_path / "other")}, {"base": "another"}):
        with pytest.raises(InputError, match="^comparison: its run after is of "):
            check(as_tuned, **other)
    for changed in ({"system_prompt": "Be kind."}, {"quantization": "4bit"}):
        with pytest.raises(InputError, match=f"^comparison: .*{next(iter(changed))}"):
            check(as_tuned, **changed)
    with pytest.raises(InputError, match=f"^method: .*--method {method}"):
        check(method=None)
    write_run(tmp_path / "export", "export", tuning="../")
    check(as_tuned, name=str(tmp_path / "export" / "model"))
