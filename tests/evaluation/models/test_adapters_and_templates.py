"""Adapters on the hub and with added tokens; chat templates that read lists of parts, or that a file has."""

import json
import shutil

import huggingface_hub
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.chat_templates import accept_texts, check_chat_template
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.loading import load_dialogue_model, model_kind
from evenhand.evaluation.models.revisions import adapter_folder, model_revision
from tests import tiny_checkpoints

# As SmolVLM's and Idefics3's.
PARTS = (
    "<|im_start|>{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{ line['text'] }}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
MACRO = (  # as templates that render a content in a macro
    "{% macro show(content) %}{% for part in content | selectattr('type', 'equalto', 'text') %}{{ part.text }}"
    "{% endfor %}{% endmacro %}{% for m in messages %}[{{ m.role }}]{{ show(m.content) }}"
    "{% for part in m.content %}{% endfor %}{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
)
EITHER = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}"
)


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    return tiny_checkpoints.llama(tmp_path / "model")


def set_template(folder, template):
    (folder / "chat_template.jinja").write_text(template)


@pytest.mark.parametrize(("template", "expected"), [
    (PARTS, "<|im_start|>System: Be brief.<end_of_utterance>\nUser: Hi!<end_of_utterance>\nAssistant:"),
    (MACRO, "[system]Be brief.[user]Hi![assistant]"),
    (EITHER, "Be brief.Hi!"),
])  # fmt: skip
def test_a_template_may_read_lists_of_parts(folder, template, expected):
    set_template(folder, template)
    settings = ModelSettings(name=str(folder), system_prompt="Be brief.")
    model = load_dialogue_model(settings)
    assert model_kind(settings) == model.kind == "chat"
    assert render_contexts(model, ["Hi!"], [""]) == [expected]
    assert (accept_texts(template) == template) == (template == EITHER)
    assert accept_texts(accept_texts(template)) == accept_texts(template)


def test_a_template_in_the_file_of_a_processor_is_read(folder):
    for file in ("chat_template.jinja", "tokenizer_config.json"):
        path = folder / file
        if file.endswith("jinja"):
            path.unlink(missing_ok=True)
        else:
            content = json.loads(path.read_text())
            path.write_text(json.dumps({key: value for key, value in content.items() if key != "chat_template"}))
    assert load_dialogue_model(str(folder)).kind == "dialogue"
    (folder / "chat_template.json").write_text(json.dumps({"chat_template": PARTS}))
    assert render_contexts(load_dialogue_model(str(folder)), ["Hi!"], [""])[0].startswith("<|im_start|>User: Hi!")


def test_a_file_of_a_template_replaces_the_tokenizers(folder, tmp_path):
    file = tmp_path / "template.jinja"
    turns = "{% for message in messages %}{{ message.role }}> {{ message.content }}\n{% endfor %}"
    file.write_text(turns + "{% if add_generation_prompt %}assistant>{% endif %}")
    model = LoadedModel(ModelSettings(name=str(folder), chat_template=file))
    assert render_contexts(model.load(), ["Hi!"], [""]) == ["user> Hi!\nassistant>"]
    before = model.identity()
    assert before["model"] == LoadedModel(ModelSettings(name=str(folder))).identity()["model"]
    file.write_text(file.read_text() + " ")
    assert model.identity()["chat_template"] != before["chat_template"]
    with pytest.raises(InputError, match=r"model\.chat_template: "):
        LoadedModel(ModelSettings(name=str(folder), chat_template=tmp_path / "none.jinja")).identity()


def test_the_signature_says_that_there_is_no_template(folder, tmp_path):
    plain = tiny_checkpoints.base_without_template(tmp_path / "plain")
    for path, format_ in ((plain, "none"), (folder, None)):
        facts = LoadedModel(ModelSettings(name=str(path))).facts()
        assert facts["format"].get("template") == format_


def adapter_of(folder, path, n_added=0):
    """Write an adapter, with new tokens and the whole embeddings if `n_added`; return its logits."""
    torch.manual_seed(1)
    network = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    saved = {}
    if n_added:
        tokenizer.add_tokens([f"<new{n}>" for n in range(n_added)])
        network.resize_token_embeddings(len(tokenizer))
        saved = {"modules_to_save": ["embed_tokens", "lm_head"]}
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, **saved)
    model = get_peft_model(network, config).eval()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    ids = torch.tensor([[1, 5, len(tokenizer) - 1]])
    return model(ids).logits.detach(), ids


def test_an_adapter_with_added_tokens_resizes_its_base(tmp_path):
    torch.manual_seed(0)
    base = tiny_checkpoints.base_without_template(tmp_path / "base")
    expected, ids = adapter_of(base, tmp_path / "adapter", n_added=3)
    model = load_dialogue_model(str(tmp_path / "adapter"))
    torch.testing.assert_close(model.model(ids).logits, expected, atol=1e-5, rtol=0)
    assert model_kind(ModelSettings(name=str(tmp_path / "adapter"))) == "dialogue"
    assert model.tokenizer.convert_tokens_to_ids("<new2>") == expected.shape[-1] - 1


def test_an_adapter_on_the_hub_has_no_config_of_a_model(folder, tmp_path, monkeypatch):
    expected, ids = adapter_of(folder, tmp_path / "adapter")
    snapshot = tmp_path / "cache" / "snapshots" / ("0" * 40)
    shutil.copytree(tmp_path / "adapter", snapshot)
    (snapshot / "evenhand.json").write_text('{"control_tag": " no_bias"}')  # as `tune` and `export` write it

    def download(name, file, revision=None):
        if not (snapshot / file).exists():
            raise OSError(f"404 Client Error: {file}")
        return str(snapshot / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: str(snapshot))
    model = load_dialogue_model("some-org/some-adapter")
    torch.testing.assert_close(model.model(ids).logits, expected, atol=1e-5, rtol=0)
    assert model_revision("some-org/some-adapter") == model_revision(str(snapshot))
    assert model.control_tag == LoadedModel(ModelSettings(name="some-org/some-adapter")).tag == " no_bias"


def test_a_failed_connection_is_no_answer_to_whether_a_model_is_an_adapter(folder, tmp_path, monkeypatch):
    """The next stage, or the next cell of a notebook, asks again."""
    adapter_of(folder, tmp_path / "adapter")
    is_connected = False

    def download(name, file, revision=None):
        if not is_connected:
            raise ConnectionError("no route to host")
        return str(tmp_path / "adapter" / file)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: str(tmp_path / "adapter"))
    assert adapter_folder("some-org/reached-later") is None
    is_connected = True
    assert adapter_folder("some-org/reached-later") == tmp_path / "adapter"


def test_a_left_over_config_of_an_adapter_is_named(tmp_path):
    merged = tiny_checkpoints.base_without_template(tmp_path / "merged")
    (merged / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "somewhere/else"}')
    with pytest.raises(InputError, match="adapter_config.json"):
        load_dialogue_model(str(merged))


@pytest.mark.parametrize(
    ("template", "is_error"),
    [
        ("{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}", True),
        ("{% for m in messages %}{{ '[INST] ' ~ m.content ~ ' [/INST]' if m.role == 'user' else ' ' ~ m.content }}"
         "{% endfor %}", False),
    ],
    ids=["header", "no header"],
)  # fmt: skip
def test_a_template_without_a_generation_prompt_may_have_no_header_before_an_answer(template, is_error, folder):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = template
    if not is_error:
        check_chat_template(tokenizer)
        return
    with pytest.raises(InputError, match="add_generation_prompt"):
        check_chat_template(tokenizer)
