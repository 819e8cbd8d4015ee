"""GGUF files as models: the file's weights, tokenizer and chat template alone, and one error for each unusable file."""

import json
from pathlib import Path

import gguf
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import files_sha256, sha256_of
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.gguf_parts import join_parts
from evenhand.evaluation.models.loading import load_dialogue_model, model_kind
from evenhand.evaluation.models.revisions import gguf_files, model_revision
from tests import tiny_checkpoints


@pytest.fixture
def file(tmp_path):
    torch.manual_seed(0)
    return tiny_checkpoints.gguf(tmp_path / "folder")


def logits(network):
    with torch.no_grad():
        return network(input_ids=torch.tensor([[1, 30, 40, 50]])).logits[0]


def test_the_file_has_the_weights_that_were_written(file):
    loaded = load_dialogue_model(str(file))
    torch.manual_seed(0)  # as in `file`
    sizes = {**tiny_checkpoints.SIZES, **tiny_checkpoints.HEADS, "vocab_size": len(loaded.tokenizer)}
    written = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=True)).eval()
    with torch.no_grad():
        for parameter in written.parameters():
            parameter.mul_(4 if parameter.dim() > 1 else 1)
    torch.testing.assert_close(logits(loaded.model), logits(written), atol=1e-4, rtol=0)


def test_the_tokenizer_and_the_template_are_the_files(file):
    decoy = {"chat_template": "{{ 'decoy' }}", "eos_token": "!", "tokenizer_class": "GPT2Tokenizer"}
    (file.parent / "tokenizer_config.json").write_text(json.dumps(decoy))
    (file.parent / "chat_template.jinja").write_text("{{ 'decoy' }}")
    (file.parent / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    loaded = load_dialogue_model(str(file))
    assert (loaded.kind, loaded.name, loaded.revision) == ("chat", str(file), sha256_of(file))
    (context,) = render_contexts(loaded, ["I'm a grandmother."], [""])
    expected = "<|im_start|>user\nI'm a grandmother.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    assert context == expected and loaded.tokenizer.eos_token == "<|im_end|>"
    assert loaded.tokenizer("<|im_start|>user")["input_ids"][0] == 1
    assert len(list(generate_responses(loaded, [context], [0], {"max_new_tokens": 4}))) == 1


def test_the_loaded_model_can_be_saved_and_trained(file, tmp_path):
    loaded = load_dialogue_model(str(file))
    loaded.model.save_pretrained(tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(tmp_path / "saved").eval()
    torch.testing.assert_close(logits(again), logits(loaded.model), atol=0, rtol=0)
    assert str(Path(tmp_path).parent) not in (tmp_path / "saved" / "config.json").read_text().replace(str(file), "")
    assert "quantization_config" not in (tmp_path / "saved" / "config.json").read_text()
    logits(loaded.model)  # in evaluation mode
    loaded.model(input_ids=torch.tensor([[1, 30]]), labels=torch.tensor([[1, 30]])).loss.backward()
    assert all(parameter.grad is not None for parameter in loaded.model.parameters())


def test_a_package_contains_a_model(file, tmp_path, monkeypatch):
    (tmp_path / "folder" / "__init__.py").write_text("raise RuntimeError('a name needs none of the code')")
    monkeypatch.syspath_prepend(tmp_path)
    assert model_revision("package:folder/tiny.gguf") == sha256_of(file)
    assert load_dialogue_model("package:folder/tiny.gguf").name == "package:folder/tiny.gguf"
    with pytest.raises(InputError, match="'folder_2' is not installed"):
        model_revision("package:folder_2/tiny.gguf")


def test_a_damaged_file_is_one_line(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(InputError, match="transformers cannot read .*download it again") as error:
        load_dialogue_model(str(file))
    assert str(file) in str(error.value) and "\n" not in str(error.value)


def split(file, n):
    """Write a GGUF file's tensors into n files, as llama.cpp's `gguf-split` does; return the first."""
    from gguf import GGUFReader, GGUFWriter

    reader = GGUFReader(file)
    for part in range(n):
        path = file.with_name(f"parts-{part + 1:05d}-of-{n:05d}.gguf")
        writer = GGUFWriter(path, "llama")
        if part == 0:
            for field in reader.fields.values():
                if field.name != "general.architecture" and not field.name.startswith("GGUF."):
                    of_items = field.types[-1] if len(field.types) > 1 else None
                    writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=of_items)
        writer.add_uint16("split.no", part)
        writer.add_uint16("split.count", n)
        for tensor in reader.tensors[part::n]:
            writer.add_tensor(tensor.name, tensor.data.copy(), raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return file.with_name(f"parts-00001-of-{n:05d}.gguf")


def test_a_model_in_several_files_is_the_model(file):
    whole = load_dialogue_model(str(file))
    first = split(file, 3)
    parts = load_dialogue_model(str(first))
    torch.testing.assert_close(logits(parts.model), logits(whole.model), atol=0, rtol=0)
    assert parts.tokenizer.get_vocab() == whole.tokenizer.get_vocab() and parts.kind == "chat"
    revision = model_revision(str(first))
    assert revision == files_sha256({part.name: part for part in file.parent.glob("parts-*.gguf")})
    file.with_name("parts-00002-of-00003.gguf").unlink()
    with pytest.raises(InputError, match="parts-00002-of-00003"):
        model_revision(str(first))


def test_parts_are_joined_again_only_if_one_was_replaced(file):
    paths = gguf_files(str(split(file, 2)))
    joined = join_parts(paths)
    assert join_parts(paths) == joined
    content = paths[1].read_bytes()
    paths[1].write_bytes(content[:-4] + bytes(byte ^ 1 for byte in content[-4:]))  # another weight
    again = join_parts(paths)
    assert again != joined and again.read_bytes() != joined.read_bytes()


def test_a_loaded_file_is_parsed_for_its_config_and_for_its_weights_only(file, monkeypatch):
    """Not again for each tokenizer and each config, which takes seconds of a real vocabulary; a replaced file is."""
    parsed = []
    reader = gguf.GGUFReader
    monkeypatch.setattr(gguf, "GGUFReader", lambda path: parsed.append(path) or reader(path))
    settings = ModelSettings(name=str(file))
    assert model_kind(settings) == model_kind(settings) == load_dialogue_model(settings).kind == "chat"
    assert len(parsed) == 2
    torch.manual_seed(0)
    tiny_checkpoints.gguf(file.parent)
    assert model_kind(settings) == "chat" and len(parsed) == 3
