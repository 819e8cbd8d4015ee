"""Whether a model fits into memory, from the headers of its files."""

import json
import math

import pytest
import torch
from safetensors.torch import save_file

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models import memory
from tests import tiny_checkpoints


def write_weights(folder, parts):
    """Write a sharded checkpoint: 6 weights of 32 bits, 4 of 16 bits, 5 integers of 32 bits, and a file not in use."""
    folder.mkdir()
    tensors = [
        {"a": torch.zeros(2, 3)},
        {"b": torch.zeros(4, dtype=torch.bfloat16), "c": torch.zeros(5, dtype=torch.int32)},
    ]
    if parts == 1:
        save_file(tensors[0] | tensors[1], folder / "model.safetensors")
    else:
        for number, part in enumerate(tensors):
            save_file(part, folder / f"part-{number}.safetensors")
        names = {name: f"part-{number}.safetensors" for number, part in enumerate(tensors) for name in part}
        (folder / memory.INDEX).write_text(json.dumps({"weight_map": names}))
    save_file({"a": torch.zeros(100)}, folder / "consolidated.safetensors")
    return ModelSettings(name=str(folder), dtype="bfloat16")


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize(("each", "expected"), [(4.0, 60), (2.0, 40), (0.5, 25)])
def test_weights_have_the_size_of_the_precision_and_packed_ones_their_own(tmp_path, parts, each, expected):
    assert memory.weights_bytes(write_weights(tmp_path / "model", parts), each) == expected


def test_the_weights_of_a_gguf_file_are_dequantized(tmp_path, monkeypatch):
    file = tiny_checkpoints.gguf(tmp_path / "gguf")
    assert memory.weights_bytes(ModelSettings(name=str(file)), 2.0) == 0  # a small file is not read
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1.0)
    gguf = pytest.importorskip("gguf")
    n_weights = sum(math.prod(map(int, tensor.shape)) for tensor in gguf.GGUFReader(file).tensors)
    assert memory.weights_bytes(ModelSettings(name=str(file)), 2.0) == 2 * n_weights


@pytest.mark.parametrize(("free", "fits"), [(40, True), (39, False)])
def test_a_model_that_does_not_fit_is_named_with_the_remedy(tmp_path, monkeypatch, free, fits):
    model = write_weights(tmp_path / "model", 1)
    monkeypatch.setattr(memory, "free_bytes", lambda device: float(free))
    if fits:
        memory.check_fits(model)
        return
    with pytest.raises(InputError, match=r"^model: .*in bfloat16.*--model.quantization 4bit.*--server"):
        memory.check_fits(model)
    with pytest.raises(InputError, match=r"in float32.*--dtype bfloat16"):
        memory.check_fits(model.replaced(dtype="float32"))
    memory.check_fits(model.replaced(quantization="4bit"))


def test_each_process_has_its_copy(tmp_path, monkeypatch):
    model = write_weights(tmp_path / "model", 1)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 79.0)
    memory.check_fits(model)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(InputError, match="2 processes"):
        memory.check_fits(model)


@pytest.mark.parametrize("name", ["", "not/here", "some-org/some-model"])
def test_a_model_whose_files_are_not_here_is_not_checked(name):
    memory.check_fits(ModelSettings(name=name))


@pytest.mark.parametrize(("limit", "expected"), [("1000", 1000 - 700 + 200), ("max", math.inf), ("?", math.inf)])
def test_a_container_limits_the_memory(tmp_path, limit, expected):
    files = {"memory.max": limit, "memory.current": "700", "memory.stat": "anon 500\ninactive_file 200\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert memory._free_in_container(tmp_path) == expected
    assert memory._free_in_container(tmp_path / "none") == math.inf


def test_a_model_whose_size_the_hub_cannot_tell_is_not_refused(monkeypatch):
    class ConnectError(Exception):
        """Of an HTTP client: neither OSError nor ValueError."""

    def fail(*arguments, **options):
        raise ConnectError("no network")

    monkeypatch.setattr(memory, "weights_bytes", fail)
    memory.check_fits(ModelSettings(name="org/model"))
