"""Loaded models, and one error for each unsafe, incomplete or unsuitable model."""

import json
import os
import re
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
import transformers
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models import chat_templates
from evenhand.evaluation.models.checkpoints import load_weights
from evenhand.evaluation.models.contexts import end_of_response
from evenhand.evaluation.models.loading import is_masked_lm, load_dialogue_model, load_masked_model, model_kind
from evenhand.evaluation.models.revisions import model_revision
from tests.tiny_models import SEQ2SEQ, word_level_tokenizer

WORDS = ["<eos>", "<unk>", *"abcdefgh"]
CONFIG = transformers.GPT2Config(
    vocab_size=len(WORDS), n_embd=8, n_layer=1, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0
)


def save_tokenizer(folder, words=WORDS, **options):
    tokenizer = word_level_tokenizer(words, **{"eos_token": "<eos>", "unk_token": "<unk>", **options})
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(CONFIG)
    model.generation_config = transformers.GenerationConfig(eos_token_id=0, do_sample=True, top_k=7, temperature=0.5)
    path = tmp_path / "model"
    model.save_pretrained(path)
    save_tokenizer(path)
    return path


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, 3, 4]])).logits[0, -1]


def test_the_revision_depends_on_the_models_bytes_only(folder, tmp_path):
    before = model_revision(str(folder))
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("a model")
    assert model_revision(str(tmp_path / "copy")) == before == load_dialogue_model(str(folder)).revision
    transformers.GPT2LMHeadModel(CONFIG).save_pretrained(folder)
    assert model_revision(str(folder)) != before


def kind_of(folder):
    kind = load_dialogue_model(str(folder)).kind
    assert model_kind(ModelSettings(name=str(folder))) == kind
    return kind


def test_kinds_by_config_and_template(folder, tmp_path, caplog):
    caplog.set_level("INFO", "evenhand")
    assert kind_of(folder) == "dialogue"
    save_tokenizer(folder, chat_template="{{ messages[0]['content'] }}")
    assert kind_of(folder) == "chat"
    save_tokenizer(folder, chat_template="{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}")
    assert kind_of(folder) == "dialogue"
    assert len(re.findall("a base model needs one", caplog.text)) == 1
    refuses = "{{ raise_exception('no assistant') if messages[1] is defined else messages[0]['content'] }}"
    save_tokenizer(folder, chat_template=refuses)
    assert kind_of(folder) == "chat"
    config = transformers.BartConfig(vocab_size=len(WORDS), **SEQ2SEQ, bos_token_id=0, eos_token_id=0, pad_token_id=1)
    transformers.BartForConditionalGeneration(config).save_pretrained(tmp_path / "bart")
    save_tokenizer(tmp_path / "bart")
    with pytest.raises(InputError, match="^model: .*padding"):
        load_dialogue_model(str(tmp_path / "bart"))
    save_tokenizer(tmp_path / "bart", pad_token="<unk>")
    assert kind_of(tmp_path / "bart") == "encoder_decoder"


def test_a_response_ends_where_config_tokenizer_or_template_end_it(folder):
    stops = lambda: list(load_dialogue_model(str(folder)).model.generation_config.eos_token_id)  # noqa: E731
    assert stops() == [0]
    transformers.GenerationConfig(eos_token_id=[5, 0], forced_eos_token_id=5).save_pretrained(folder)
    assert stops() == [5, 0]
    assert load_dialogue_model(str(folder)).model.generation_config.forced_eos_token_id is None
    transformers.GenerationConfig(eos_token_id=5).save_pretrained(folder)
    assert stops() == [5, 0]  # the tokenizer's EOS, too
    transformers.GenerationConfig(eos_token_id=5, pad_token_id=5).save_pretrained(folder)
    loaded = load_dialogue_model(str(folder))
    assert loaded.model.generation_config.pad_token_id == loaded.tokenizer.pad_token_id != 5  # 5 is an ordinary token
    turns = "{% for m in messages %}{{ m['role'] }} {{ m['content'] }}<turn>\n{% endfor %}"
    turns += "{% if add_generation_prompt %}assistant{% endif %}"
    tokenizer = save_tokenizer(folder, chat_template=turns)
    tokenizer.add_tokens(["<turn>"], special_tokens=True)
    tokenizer.save_pretrained(folder)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    model.resize_token_embeddings(len(tokenizer))
    model.save_pretrained(folder)
    transformers.GenerationConfig(eos_token_id=5).save_pretrained(folder)
    loaded = load_dialogue_model(str(folder))
    end = tokenizer.convert_tokens_to_ids("<turn>")
    assert loaded.kind == "chat" and list(loaded.model.generation_config.eos_token_id) == [5, 0, end]
    assert end_of_response(loaded) == end


def adapter_of(folder, path, base_name):
    torch.manual_seed(1)
    settings = LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True, init_lora_weights=False)
    model = get_peft_model(transformers.GPT2LMHeadModel.from_pretrained(folder), settings).eval()
    model.peft_config["default"].base_model_name_or_path = base_name
    model.save_pretrained(path)
    return model


@pytest.mark.parametrize("base", ["../model", "absolute"])
def test_an_adapter_is_merged_into_its_base(folder, tmp_path, base):
    adapter = tmp_path / "adapter"
    expected = logits(adapter_of(folder, adapter, str(folder) if base == "absolute" else base))
    (adapter / "evenhand.json").write_text('{"control_tag": " no_bias"}')
    loaded = load_dialogue_model(str(adapter))
    torch.testing.assert_close(logits(loaded.model), expected, atol=1e-5, rtol=0)
    assert not torch.allclose(expected, logits(load_dialogue_model(str(folder)).model), atol=1e-3)
    assert type(loaded.model) is transformers.GPT2LMHeadModel and loaded.control_tag == " no_bias"
    before = model_revision(str(adapter))
    transformers.GPT2LMHeadModel(CONFIG).save_pretrained(folder)
    assert model_revision(str(adapter)) != before  # another base, another model


def test_a_pickle_is_refused_by_name(folder):
    (folder / "model.safetensors").rename(folder / "weights.pkl")
    with pytest.raises(InputError, match=r"weights\.pkl may be a pickle.*save_pretrained"):
        load_dialogue_model(str(folder))


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_an_adapter_whose_weights_fit_no_layer_is_refused(folder, tmp_path, share):
    adapter = tmp_path / "adapter"
    adapter_of(folder, adapter, str(folder))
    weights = load_file(adapter / "adapter_model.safetensors")
    renamed = sorted(weights)[: int(share * len(weights))]
    named = {key.replace(".h.", ".layers.") if key in renamed else key: value for key, value in weights.items()}
    assert named.keys() != weights.keys()
    save_file(named, adapter / "adapter_model.safetensors")
    with pytest.raises(InputError, match=r"does not fit .* weights fit no layer, .* it lacks \d+ of \d+"):
        load_dialogue_model(str(adapter))


def test_an_adapter_with_weights_too_many_is_refused(folder, tmp_path):
    adapter = tmp_path / "adapter"
    adapter_of(folder, adapter, str(folder))
    weights = load_file(adapter / "adapter_model.safetensors")
    save_file(
        weights | {"base_model.model.other.lora_A.weight": torch.ones(2, 2)}, adapter / "adapter_model.safetensors"
    )
    with pytest.raises(InputError, match=r"1 of its \d+ weights fit no layer, such as base_model.model.other"):
        load_dialogue_model(str(adapter))


def test_an_adapter_of_an_unknown_type_is_refused(folder, tmp_path):
    adapter = tmp_path / "adapter"
    adapter_of(folder, adapter, str(folder))
    (adapter / "adapter_config.json").write_text(
        json.dumps({"peft_type": "EVIL", "base_model_name_or_path": str(folder)})
    )
    with pytest.raises(InputError, match="the config of the adapter"):
        load_dialogue_model(str(adapter))


@pytest.mark.parametrize(("name", "value"), [("n_layer", -1), ("n_layer", 100_000), ("n_layer", "2"), ("n_head", 0)])
def test_sizes_that_no_model_has_are_refused(folder, name, value):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {name: value}))
    with pytest.raises(InputError, match="^model: .*config"):
        load_dialogue_model(str(folder))


def test_moving_an_adapter_and_its_base_changes_no_revision(folder, tmp_path):
    run = tmp_path / "here" / "tune"
    expected = logits(adapter_of(folder, run / "adapter", str(folder)))
    path = os.path.relpath(folder, run / "adapter")
    (run / "adapter" / "evenhand.json").write_text(json.dumps({"base": path, "control_tag": ""}))
    revision = model_revision(str(run / "adapter"))
    moved = tmp_path / "elsewhere" / "and" / "deeper" / "tune"
    moved.parent.mkdir(parents=True)
    run.rename(moved)
    assert model_revision(str(moved / "adapter")) == revision  # the adapter is moved
    moved.rename(run)
    (tmp_path / "moved").mkdir()
    for part in (run.parent, folder):
        part.rename(tmp_path / "moved" / part.name)  # both are moved
    moved = tmp_path / "moved" / "here" / "tune"
    assert model_revision(str(moved / "adapter")) == revision
    torch.testing.assert_close(logits(load_dialogue_model(str(moved / "adapter")).model), expected)
    adapter_of(tmp_path / "moved" / folder.name, moved / "adapter", path)  # a relative path in the other file
    assert model_revision(str(moved / "adapter")) == revision
    settings = json.loads((moved / "adapter" / "adapter_config.json").read_text())
    (moved / "adapter" / "adapter_config.json").write_text(json.dumps({**settings, "lora_alpha": 3}))
    assert model_revision(str(moved / "adapter")) != revision


def test_a_model_on_the_hub_is_loaded_at_the_recorded_commit(monkeypatch):
    """Otherwise, transformers would load a conversion to safetensors that is not in the commit."""
    commit = "0123456789abcdef0123456789abcdef01234567"

    def download(name, file, revision=None):
        if file != "config.json":
            raise OSError(f"404 Client Error: {file}")
        return f"/cache/snapshots/{commit}/{file}"

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)

    class Auto:
        @staticmethod
        def from_pretrained(name, revision, **arguments):
            raise OSError(f"{name} has no model.safetensors at {revision}")

    with pytest.raises(InputError, match=rf"at {commit} If it has no safetensors, .*refs/pr/N.*save_pretrained"):
        load_weights(Auto, ModelSettings(name="someone/something"))


def test_missing_weights_and_broken_files(folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_layer": 2}))
    with pytest.raises(InputError, match="model: .* lacks 12 weights"):
        load_dialogue_model(str(folder))
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match="^model: .*config"):
        load_dialogue_model(str(folder))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"12")
    with pytest.raises(InputError, match="model: .* safetensors"):
        load_dialogue_model(str(folder))


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{% for m in messages %}{{ m['content'] }}", "chat template of .* fails .*endfor"),
        ("{{ raise_exception('no \\x1b[31mroles') }}", "chat template of .* fails .*no .*roles"),
        ("{{ 1 // 0 }}", "chat template of .* fails .*zero"),
        (ENDLESS, "chat template of .* more than 0.2 seconds"),
        ("{{ eos_token }}", "chat template of .* user message"),
    ],
)
def test_a_broken_chat_template_is_an_error(folder, monkeypatch, template, message):
    monkeypatch.setattr(chat_templates, "MAX_SECONDS", 0.2)
    save_tokenizer(folder, chat_template=template)
    with pytest.raises(InputError, match=message):
        load_dialogue_model(str(folder))
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_elsewhere_than_in_the_main_thread_templates_have_no_timer(folder):
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(kind_of, folder).result() == "dialogue"
        save_tokenizer(folder, chat_template="{{ messages[0]['content'] }}")
        assert thread.submit(kind_of, folder).result() == "chat"
        save_tokenizer(folder, chat_template="{{ raise_exception('no') }}")
        with pytest.raises(InputError, match="chat template of .* fails"):
            thread.submit(kind_of, folder).result()


TINY = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
BERT = transformers.BertConfig(vocab_size=len(WORDS), **TINY)


@pytest.fixture
def masked_folder(tmp_path):
    torch.manual_seed(0)
    path = tmp_path / "masked"
    transformers.BertForMaskedLM(BERT).save_pretrained(path)
    save_tokenizer(path, mask_token="h")
    return path


def mask_logits(model):
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, 9, 4]])).logits[0, 1]


def test_masked_models_are_ready_and_may_have_a_second_head(masked_folder):
    loaded = load_masked_model(ModelSettings(name=str(masked_folder)))
    assert type(loaded.model) is transformers.BertForMaskedLM and not loaded.model.training
    assert (loaded.name, loaded.revision) == (str(masked_folder), model_revision(str(masked_folder)))
    assert loaded.tokenizer.mask_token_id == 9 and loaded.model.dtype == torch.float32
    assert load_masked_model(ModelSettings(name=str(masked_folder), dtype="bfloat16")).model.dtype == torch.bfloat16
    # BERT's original checkpoints have a second head, for next-sentence prediction.
    whole = transformers.BertForPreTraining(BERT).eval()
    whole.save_pretrained(masked_folder)
    assert is_masked_lm(ModelSettings(name=str(masked_folder)))
    with torch.no_grad():
        expected = whole(input_ids=torch.tensor([[2, 9, 4]])).prediction_logits[0, 1]
    torch.testing.assert_close(mask_logits(load_masked_model(ModelSettings(name=str(masked_folder))).model), expected)


def test_is_masked_lm(folder, masked_folder, tmp_path):
    assert is_masked_lm(ModelSettings(name=str(masked_folder))) and not is_masked_lm(ModelSettings(name=str(folder)))
    adapter_of(folder, tmp_path / "adapter", str(folder))
    assert not is_masked_lm(ModelSettings(name=str(tmp_path / "adapter")))
    electra = transformers.ElectraConfig(vocab_size=len(WORDS), embedding_size=8, **TINY)
    for model, expected in (
        (transformers.BertModel(BERT), False),
        (transformers.ElectraForMaskedLM(electra), True),
        (transformers.ElectraForPreTraining(electra), False),  # detects replaced tokens
    ):
        model.save_pretrained(tmp_path / "other")
        assert is_masked_lm(ModelSettings(name=str(tmp_path / "other"))) is expected
    with pytest.raises(InputError, match="absent does not exist"):
        is_masked_lm(ModelSettings(name=str(tmp_path / "absent")))


def refuse(status, message):
    """Return a function that fails as the hub does for a gated or missing repository."""

    def download(*arguments, **options):
        error = OSError(message)
        error.response = SimpleNamespace(status_code=status)
        raise error

    return download


@pytest.mark.parametrize(("status", "is_gated"), [(401, True), (403, True), (500, False)])
def test_a_gated_model_names_the_page_of_its_licence_and_the_login(monkeypatch, status, is_gated):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse(status, f"{status} Client Error"))
    with pytest.raises(InputError) as error:
        model_revision("some-org/gated-model")
    assert ("https://huggingface.co/some-org/gated-model" in str(error.value)) == is_gated
    assert ("hf auth login" in str(error.value)) == is_gated
