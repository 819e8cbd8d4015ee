"""A prefix that rows have in common, and whether it and padding change what a model predicts: tried once a model.

Attention masks padding, but recurrent layers (RWKV, xLSTM) and models that count padding as positions (MPT between a
prefix and the rest) do not. A list of names would miss the next one.
"""

import logging
from collections.abc import Callable
from weakref import WeakKeyDictionary

import torch
from transformers import Cache, PreTrainedModel

from evenhand.evaluation.compat import cache_argument
from evenhand.evaluation.models.activation import activation_arguments

log = logging.getLogger("evenhand")

PROBE = 12  # tokens of a row, of which the prefix has two thirds
N_PROBES = 4  # rows
# The largest total variation distance between two predictions that rounding explains. In float32 it is ROUNDING, for
# all rows. In less precise numbers it is ROUNDING_SHARE of the distance to a wrong prediction, which reads padding or
# lacks the prefix, and for one row or more: rounding hardly changes some of the rows, and an error changes all.
ROUNDING = 1e-3
ROUNDING_SHARE = 0.05

_found: WeakKeyDictionary[PreTrainedModel, dict[str, bool]] = WeakKeyDictionary()


def ignores_padding(network: PreTrainedModel) -> bool:
    """Return whether a causal model continues a row alone as it does if a longer row makes it padded on the left."""

    def distances() -> tuple[torch.Tensor, torch.Tensor]:
        ids = _probe_ids(network)
        short = ids[:, PROBE // 2 :]
        padded = torch.cat([ids, torch.cat([torch.zeros_like(ids[:, : PROBE // 2]), short], dim=1)])
        is_read = torch.ones_like(padded)
        mask = is_read.clone()
        mask[N_PROBES:, : PROBE // 2] = 0
        alone = _continued(network, short, torch.ones_like(short))
        with_padding_read = _continued(network, padded, is_read)[N_PROBES:]
        return _distances(_continued(network, padded, mask)[N_PROBES:], alone), _distances(with_padding_read, alone)

    return _tried(network, "padding", distances)


def shares_prefixes(network: PreTrainedModel, *, is_padded: bool = False) -> bool:
    """Return whether a causal model continues a row alike if a prefix of it is in the cache, and if it reads the whole.

    `is_padded` says whether padding stands between the prefix and the rest.
    """

    def distances() -> tuple[torch.Tensor, torch.Tensor]:
        ids = _probe_ids(network)
        n_shared = PROBE * 2 // 3
        ids[:, :n_shared] = ids[:1, :n_shared]
        n_padding = PROBE if is_padded else 0
        padding = torch.zeros_like(ids)[:, :n_padding]
        row = torch.cat([ids[:, :n_shared], padding, ids[:, n_shared:]], dim=1)
        mask = torch.ones_like(row)
        mask[:, n_shared : n_shared + n_padding] = 0
        prefix = {cache_argument(network): prefix_cache(network, ids[0, :n_shared].tolist(), N_PROBES)}
        whole = _continued(network, ids, torch.ones_like(ids))
        without_prefix = _continued(network, ids[:, n_shared:], torch.ones_like(ids[:, n_shared:]))
        return _distances(_continued(network, row, mask, **prefix), whole), _distances(without_prefix, whole)

    return _tried(network, "prefix and padding" if is_padded else "prefix", distances)


@torch.inference_mode()
def prefix_cache(model: PreTrainedModel, prefix: list[int], n_rows: int) -> Cache:
    """Return the keys and values of a prefix, repeated for `n_rows` rows."""
    unchanged = activation_arguments(model, [[]], [0])  # no activated adapter changes a shared prefix
    output = model(input_ids=torch.tensor([prefix], device=model.device), use_cache=True, **unchanged)
    cache = output[cache_argument(model)]
    cache.batch_repeat_interleave(n_rows)
    return cache


def _tried(network: PreTrainedModel, name: str, distances: Callable[[], tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Return whether rounding explains distances, which are computed once; an error of the model is an answer, too.

    Args:
        network, name: the model, and what is tried.
        distances: returns the distance of each row to the right prediction, and that of a wrong one, (N_PROBES,) each.
    """
    found = _found.setdefault(network, {})
    if name not in found:
        try:
            found[name] = _is_rounding(*distances(), network.dtype)
        except (TypeError, ValueError, RuntimeError, IndexError, AttributeError, KeyError):
            found[name] = False
        if not found[name]:
            log.info("%s: %s changes what it writes; its prompts are read apart", network.config.model_type, name)
    return found[name]


def _is_rounding(distance: torch.Tensor, of_wrong: torch.Tensor, dtype: torch.dtype) -> bool:
    """Return whether rounding explains the distances of rows, given the distances of wrong predictions."""
    if dtype == torch.float32:
        return bool((distance <= ROUNDING).all())
    return bool((distance <= ROUNDING_SHARE * of_wrong).any())


def _probe_ids(network: PreTrainedModel) -> torch.Tensor:
    """Return token ids that are spread over the vocabulary, (N_PROBES, PROBE)."""
    size = network.config.get_text_config(decoder=True).vocab_size
    place = torch.arange(1, N_PROBES * PROBE + 1, device=network.device).reshape(N_PROBES, PROBE)
    return (7 + 31 * place * place) % size


@torch.inference_mode()
def _continued(network: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor, **arguments: object) -> torch.Tensor:
    """Return the probabilities of the next two tokens, (rows, 2, vocabulary); the first token is always token 0.

    If the likeliest token were taken, rounding could change it, and with it the second prediction.
    """
    output = network.generate(
        input_ids=ids,
        attention_mask=mask,
        do_sample=False,
        min_new_tokens=2,
        max_new_tokens=2,
        prefix_allowed_tokens_fn=lambda row, ids: [0],
        output_logits=True,
        return_dict_in_generate=True,
        **activation_arguments(network, [[]] * len(ids), [0] * len(ids)),  # no activated adapter changes the trial
        **arguments,
    )
    return torch.stack(output.logits, dim=1).float().softmax(-1)


def _distances(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the total variation distance of each row, the larger one of its two tokens, (rows,); infinity for NaN."""
    distance = (one - other).abs().sum(-1).amax(1) / 2
    return distance.nan_to_num(float("inf"))
