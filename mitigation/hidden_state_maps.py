"""Linear maps of hidden states that shrink what depends on the person, while a response begins.

After some late layers, the hidden state x at the position that predicts the j-th token of a response becomes
x − s (x − μ_j) M_j, s being the strength. M_j = (C_j + ridge · tr(C_j) / d · I)⁻¹ P_j predicts, from a hidden state,
its deviation from the mean over people: C_j is the covariance of the states and P_j the covariance within groups of
people who ask the same. This is the linear minimum mean square error estimate (Kay 1993, "Fundamentals of statistical
signal processing: Estimation theory", §12.5), so that each state moves towards its mean over people as far as noise
allows. Layers are fitted in turn, each with the maps of the layers before it.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from evenhand.evaluation.errors import InputError, first_line
from evenhand.evaluation.models.batches import tokens_per_pass
from evenhand.evaluation.runs.progress import progress

MEAN = "mean"
MAP = "map"


@dataclass(frozen=True)
class LayerMaps:
    """The maps after one layer: means, (tokens, d), and matrices, (tokens, d, d), float32."""

    mean: torch.Tensor
    matrix: torch.Tensor


Maps = Mapping[int, LayerMaps]  # by the number of the layer, from 0
Group = tuple[Sequence[Sequence[int]], Sequence[int]]  # contexts of several people, and the tokens of a response


def decoder_layers(network: PreTrainedModel) -> torch.nn.ModuleList:
    """Return the layers of a causal model: the first list of as many modules as its config has layers.

    Experts of a layer are lists, too, and may be more than the layers.
    """
    n_layers = network.config.get_text_config().num_hidden_layers
    lists = [module for module in network.modules() if isinstance(module, torch.nn.ModuleList)]
    return next(module for module in lists if len(module) == n_layers)


def fitted_layers(n_layers: int) -> list[int]:
    """Return the layers after which maps are fitted: those at 2/3 and 5/6 of all layers, and the last.

    >>> fitted_layers(30), fitted_layers(2)
    ([20, 25, 29], [1])
    """
    return sorted({n_layers * 2 // 3, n_layers * 5 // 6, n_layers - 1})


@dataclass
class Editor:
    """What the hooks of `edited` do in a forward pass of the network.

    Attributes:
        columns: the columns of the hidden states that predict the first tokens, (rows, tokens) in the order of the
            tokens; None: nothing is edited.
        first: the number of the token, from 0, that the first of these columns predicts.
        collected: the hidden states at the columns, (rows, tokens, d), by layer, before they are edited; a layer is
            collected if it is a key.
    """

    columns: torch.Tensor | None = None
    first: int = 0
    collected: dict[int, torch.Tensor | None] = field(default_factory=dict)


@contextmanager
def edited(
    network: PreTrainedModel, maps: Maps, strength: float = 1.0, collect: Sequence[int] = ()
) -> Iterator[Editor]:
    """Within the block, edit hidden states of a causal model at the columns of the yielded editor."""
    editor = Editor(collected=dict.fromkeys(collect))
    layers = decoder_layers(network)
    handles = []
    for number in sorted({*maps, *collect}):
        hook = _layer_hook(editor, number, maps.get(number), strength)
        handles.append(layers[number].register_forward_hook(hook))
    try:
        yield editor
    finally:
        for handle in handles:
            handle.remove()


def _layer_hook(editor: Editor, number: int, maps: LayerMaps | None, strength: float):
    """Return the forward hook of one layer; `maps` None: the layer is only collected."""

    def hook(module: torch.nn.Module, inputs: object, output: torch.Tensor | tuple) -> torch.Tensor | tuple:
        if editor.columns is None:
            return output
        hidden = output[0] if isinstance(output, tuple) else output
        rows = torch.arange(len(hidden), device=hidden.device)[:, None]
        states = hidden[rows, editor.columns].float()
        if number in editor.collected:
            editor.collected[number] = states
        if maps is None or strength == 0:
            return output
        tokens = slice(editor.first, editor.first + states.shape[1])
        mean = maps.mean[tokens].to(hidden.device)
        matrix = maps.matrix[tokens].to(hidden.device)
        moved = states - strength * torch.einsum("rtd,tde->rte", states - mean, matrix)
        changed = hidden.clone()
        changed[rows, editor.columns] = moved.to(hidden.dtype)
        return (changed, *output[1:]) if isinstance(output, tuple) else changed

    return hook


@contextmanager
def edited_generation(network: PreTrainedModel, maps: Maps, strength: float = 1.0, first: int = 0) -> Iterator[None]:
    """Within the block, `network.generate` edits the hidden states that predict the first tokens of responses.

    `first` is the number of tokens, of each response, before the first one that is generated.
    """
    n_tokens = len(next(iter(maps.values())).mean)
    patched: Any = network
    generate = patched.generate
    with edited(network, maps, strength) as editor:
        position = -1

        def count(module: torch.nn.Module, inputs: object, options: Mapping[str, torch.Tensor]) -> None:
            nonlocal position
            position += 1
            ids = options["input_ids"]
            is_edited = position < n_tokens
            editor.columns = torch.full((len(ids), 1), ids.shape[1] - 1, device=ids.device) if is_edited else None
            editor.first = position

        def generate_edited(*arguments: object, **options: object) -> object:
            nonlocal position
            position = first - 1  # the first pass reads the context
            handle = network.register_forward_pre_hook(count, with_kwargs=True)
            try:
                return generate(*arguments, **options)
            finally:
                handle.remove()
                editor.columns = None

        patched.generate = generate_edited
        try:
            yield
        finally:
            del patched.generate


def left_padded(network: PreTrainedModel, sequences: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
    """Return the inputs of a pass of the network over sequences, padded on the left, so that all end together."""
    rows = [torch.tensor(list(sequence)) for sequence in sequences]
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True, padding_side="left")
    inputs = {"input_ids": pad_sequence(rows, batch_first=True, padding_side="left"), "attention_mask": mask}
    if "position_ids" in inspect.signature(network.forward).parameters:
        inputs["position_ids"] = (mask.cumsum(1) - 1).clamp(min=0)
    return {name: tensor.to(network.device) for name, tensor in inputs.items()}


def batches_of_groups(
    network: PreTrainedModel, groups: Sequence[Group], n_tokens: int
) -> Iterator[tuple[list[int], dict[str, torch.Tensor], torch.Tensor]]:
    """Yield rows, the inputs of a pass and the columns that predict the first tokens, for batches of groups.

    Each person's context is followed by the response's first `n_tokens` − 1 tokens, so that the last `n_tokens` columns
    predict the first tokens.
    """
    n_people = len(groups[0][0])
    lengths = [max(map(len, contexts)) + n_tokens - 1 for contexts, _ in groups]
    order = sorted(range(len(groups)), key=lengths.__getitem__, reverse=True)
    while order:
        size = max(1, tokens_per_pass(network) // (lengths[order[0]] * n_people))
        rows = order[:size]
        order = order[size:]
        sequences = []
        for row in rows:
            contexts, response = groups[row]
            sequences += [[*context, *response[: n_tokens - 1]] for context in contexts]
        inputs = left_padded(network, sequences)
        length = inputs["input_ids"].shape[1]
        columns = torch.arange(length - n_tokens, length, device=network.device)
        yield rows, inputs, columns.expand(len(sequences), -1)


def fit_maps(network: PreTrainedModel, groups: Sequence[Group], n_tokens: int, ridge: float) -> Maps:
    """Return maps fitted on groups of people who ask the same.

    Args:
        groups: contexts of P people each, and a response with at least `n_tokens` − 1 tokens.
        n_tokens: how many tokens at the start of a response are predicted from mapped states.
        ridge: added to the diagonal of a covariance, as a share of its mean diagonal.
    """
    maps: dict[int, LayerMaps] = {}
    for layer in fitted_layers(len(decoder_layers(network))):
        maps[layer] = solve_maps(*_covariances(network, groups, n_tokens, maps, layer), ridge)
    return maps


@torch.inference_mode()
def _covariances(
    network: PreTrainedModel, groups: Sequence[Group], n_tokens: int, maps: Maps, layer: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return mean, (tokens, d), covariance and covariance within groups, (tokens, d, d), of states after a layer."""
    n_people = len(groups[0][0])
    width = network.config.get_text_config().hidden_size
    total = torch.zeros(n_tokens, width, dtype=torch.float64)
    squares = torch.zeros(n_tokens, width, width, dtype=torch.float64)
    within = torch.zeros_like(squares)
    with edited(network, maps, collect=[layer]) as editor, progress(len(groups), f"layer {layer}", "rows") as bar:
        for rows, inputs, columns in batches_of_groups(network, groups, n_tokens):
            editor.columns = columns
            network(**inputs, use_cache=False, logits_to_keep=1)
            collected = editor.collected[layer]
            assert collected is not None  # the pass reached the layer
            states = collected.cpu().unflatten(0, (len(rows), n_people))
            deviation = (states - states.mean(1, keepdim=True)).flatten(0, 1).transpose(0, 1)
            by_token = states.flatten(0, 1).transpose(0, 1)  # (tokens, rows · people, d)
            total += by_token.sum(1)
            squares += by_token.transpose(1, 2) @ by_token
            within += deviation.transpose(1, 2) @ deviation
            bar.update(len(rows))
    n = n_people * len(groups)
    mean = total / n
    covariance = squares / n - mean[:, :, None] * mean[:, None]
    return mean, covariance, within / n * (n_people / (n_people - 1))  # groups have means of few people


def solve_maps(mean: torch.Tensor, covariance: torch.Tensor, within: torch.Tensor, ridge: float) -> LayerMaps:
    """Return (C + ridge · tr(C) / d · I)⁻¹ P of each token: (tokens, d), (tokens, d, d), (tokens, d, d)."""
    width = mean.shape[1]
    diagonal = ridge * covariance.diagonal(dim1=1, dim2=2).mean(1)
    regular = covariance + diagonal[:, None, None] * torch.eye(width, dtype=covariance.dtype)
    return LayerMaps(mean.float(), torch.linalg.solve(regular, within).float())


def save_maps(maps: Maps, file: Path) -> None:
    """Write maps as safetensors: LAYER.mean and LAYER.map."""
    tensors = {}
    for layer, of_layer in maps.items():
        tensors[f"{layer}.{MEAN}"] = of_layer.mean.contiguous()
        tensors[f"{layer}.{MAP}"] = of_layer.matrix.contiguous()
    save_file(tensors, file)


def load_maps(file: Path) -> Maps:
    """Return the maps in a file; InputError if it cannot be read or has none."""
    try:
        tensors = load_file(file)
        layers = sorted({int(name.partition(".")[0]) for name in tensors})
        maps = {layer: LayerMaps(tensors[f"{layer}.{MEAN}"], tensors[f"{layer}.{MAP}"]) for layer in layers}
    except Exception as error:  # damaged files lead to errors of all kinds
        raise InputError("model", f"{file} has no maps of `shrink` ({first_line(error)}); tune again.") from None
    if not maps:
        raise InputError("model", f"{file} has no maps of `shrink`; tune again.")
    return maps
