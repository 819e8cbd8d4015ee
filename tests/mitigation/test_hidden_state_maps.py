"""Maps of hidden states: the fit by hand, and edits while a tiny model responds."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import transformers

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.contexts import encode_contexts
from evenhand.evaluation.models.generation import generate_responses
from evenhand.mitigation.hidden_state_maps import (
    LayerMaps,
    decoder_layers,
    edited,
    edited_generation,
    fit_maps,
    load_maps,
    save_maps,
    solve_maps,
)
from evenhand.mitigation.methods.shrink import Shrink
from evenhand.mitigation.shrinking import fit_shrink
from tests.mitigation.tiny_dialogue import WORDS, tiny_base

CONTEXTS = ["a b", "c", "d e f", "b b"]
GREEDY = {"do_sample": False, "max_new_tokens": 6}


def groups():
    """Rows of four people with one response of three tokens."""
    people = [[7, 8, 0], [9, 8, 0], [10, 8, 0], [11, 8, 0]]
    return [([[word, *ids] for ids in people], [3, 4, 5]) for word in range(7, 17)]


def generated(base):
    found = {}
    for batch in generate_responses(base, CONTEXTS, [0] * len(CONTEXTS), GREEDY):
        found |= {row: response.text for row, response in batch.items()}
    return found


def test_without_noise_a_state_moves_to_its_mean_over_people():
    """People differ in the first two dimensions, and what they ask in the others."""
    generator = torch.Generator().manual_seed(0)
    people = torch.randn(400, 1, 2, generator=generator, dtype=torch.float64).expand(400, 5, 2)
    asked = torch.randn(5, 3, generator=generator, dtype=torch.float64).expand(400, 5, 3)
    states = torch.cat([people, asked], 2)  # (people, requests, d)
    flat = states.flatten(0, 1)
    mean = flat.mean(0)
    covariance = (flat - mean).T @ (flat - mean) / len(flat)
    deviation = (states - states.mean(0)).flatten(0, 1)
    within = deviation.T @ deviation / len(flat)
    maps = solve_maps(mean[None], covariance[None], within[None], ridge=1e-9)
    moved = flat - (flat - mean) @ maps.matrix[0].double()
    expected = states.mean(0).expand_as(states).flatten(0, 1)
    torch.testing.assert_close(moved, expected, atol=1e-4, rtol=0)


def test_noise_shrinks_the_move():
    """In one dimension, M is the share of the variance that is between people."""
    covariances = (torch.tensor([[[4.0]]]), torch.tensor([[[1.0]]]))
    for ridge, share in ((0.0, 1 / 4), (0.25, 1 / 5)):
        assert solve_maps(torch.zeros(1, 1), *covariances, ridge).matrix.item() == pytest.approx(share)


def test_a_fit_makes_people_more_alike_and_is_read_again(tmp_path):
    base = tiny_base()
    rows = groups()
    maps = fit_maps(base.model, rows, n_tokens=3, ridge=0.01)
    assert list(maps) == [1]
    contexts, response = rows[0]
    sequences = torch.tensor([[*context, *response[:2]] for context in contexts])
    columns = torch.tensor([[3, 4, 5]] * 4)

    def spread(strength):
        with edited(base.model, maps, strength) as editor, torch.no_grad():
            editor.columns = columns
            p = base.model(sequences).logits[:, 3:].softmax(-1)
        return (p - p.mean(0)).square().sum().item()

    assert spread(1.0) < spread(0.5) < spread(0.0)
    save_maps(maps, tmp_path / "maps.safetensors")
    torch.testing.assert_close(load_maps(tmp_path / "maps.safetensors")[1].matrix, maps[1].matrix)
    (tmp_path / "maps.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match="tune again"):
        load_maps(tmp_path / "maps.safetensors")


def test_edits_while_generating_are_those_of_a_pass_over_the_whole_response():
    base = tiny_base()
    generator = torch.Generator().manual_seed(1)
    maps = {layer: LayerMaps(torch.zeros(3, 32), torch.randn(3, 32, 32, generator=generator) / 6) for layer in range(2)}
    before = generated(base)
    with edited_generation(base.model, maps, strength=0.0):
        assert generated(base) == before  # the base, to the bit
    with edited_generation(base.model, maps):
        after = generated(base)
    assert after != before and generated(base) == before
    for head in encode_contexts(base, CONTEXTS):
        options = {**GREEDY, "eos_token_id": None, "pad_token_id": 1}
        with edited_generation(base.model, maps):
            tail = base.model.generate(torch.tensor([head]), **options)[0, len(head) :].tolist()
        assert len(tail) == 6
        with edited(base.model, maps) as editor, torch.no_grad():
            for j, token in enumerate(tail):
                editor.columns = len(head) - 1 + torch.arange(min(j + 1, 3))[None]
                assert base.model(torch.tensor([[*head, *tail[:j]]])).logits[0, -1].argmax() == token


def test_the_experts_of_a_mixture_are_no_layers():
    """A mixture may have more experts in a layer than layers."""

    class Mixture(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(num_hidden_layers=2))
            self.layers = torch.nn.ModuleList()
            for _ in range(2):
                experts = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(8))
                self.layers.append(torch.nn.ModuleDict({"experts": experts}))

    mixture = Mixture()
    assert decoder_layers(mixture) is mixture.layers


def test_maps_are_not_fitted_to_a_model_that_reads_padding():
    """Its states in a batch are not those with which it answers."""
    sizes = {"context_length": 64, "hidden_size": 16, "attention_hidden_size": 16, "num_hidden_layers": 2}
    network = transformers.RwkvForCausalLM(transformers.RwkvConfig(vocab_size=len(WORDS), **sizes)).eval()
    base = replace(tiny_base(), model=network)
    rows = SimpleNamespace(method=Shrink())
    with pytest.raises(InputError, match="^method: padding changes what "):
        fit_shrink(base, rows, None, None)
