"""Many sentences with common beginnings, scored exactly, each distinct beginning once.

HolisticBias' sentences differ in a descriptor, a noun or a template and share the rest: of 5.3 million tokens of v1.0
in GPT-2's tokens only 0.8 million stand behind a beginning that no other sentence has had. The sentences are laid out
as a tree of tokens. Its nodes are run depth first, packed into sequences in which a token attends to its ancestors
alone and has its depth for a position, so that each sees exactly what it would see in its own sentence. A sequence
that begins inside the tree is preceded by the path to its first node, and so needs nothing of the ones before.

This holds for models whose attention honours a mask and positions that are given (GPT-2, OPT, Llama, …). Others
(Bloom's ALiBi counts positions itself, Mamba has no attention) are found out by `supports_prefix_trees`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.batches import activations_bytes, logits_bytes, memory_budget, run_batches
from evenhand.evaluation.models.likelihood.causal import EncodedSentences, sequence_log_likelihoods
from evenhand.evaluation.models.likelihood.tokens import check_not_nan
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.runs.work_shards import ALL_ROWS, WorkShard

# Nodes of one sequence: more make attention, quadratic in them, dear; fewer repeat more paths. Measured on a CPU.
NODES_PER_PASS = {"cpu": 768, "cuda": 2048}
PROBE_SENTENCES, PROBE_ERROR = 8, {torch.float32: 1e-2, torch.float16: 0.2, torch.bfloat16: 1.0}  # nats of a sentence


@dataclass(frozen=True)
class PrefixTree:
    """Distinct beginnings of sequences, depth first: a node is a token behind its parent's beginning.

    token, depth, parent: of each of n nodes, (n,), parents before children, the root first (depth 0, parent −1).
    leaf: the last node of each sequence, (N,). inner: the m nodes that have children, in order, (m,). end: of each of
    those the number of the first inner node behind its subtree, (m,). child, first_child: the n − 1 nodes under a
    parent, by parent, and where each inner node's begin, (m + 1,).
    """

    token: np.ndarray
    depth: np.ndarray
    parent: np.ndarray
    leaf: np.ndarray
    inner: np.ndarray
    end: np.ndarray
    child: np.ndarray
    first_child: np.ndarray


def prefix_tree(sequences: Sequence[Sequence[int]]) -> PrefixTree:
    """Return the tree of token sequences that all begin with the same token."""
    order = sorted(range(len(sequences)), key=sequences.__getitem__)
    length = np.array([len(sequences[row]) for row in order])
    tokens = np.full((len(order), length.max() + 1), -1, dtype=np.int32)
    for place, row in enumerate(order):
        tokens[place, : length[place]] = sequences[row]
    differs = tokens[1:] != tokens[:-1]
    differs[:, -1] = True  # two equal sequences differ nowhere else
    shared = np.concatenate(
        [[0], np.minimum(differs.argmax(axis=1), length[1:])]
    )  # tokens in common with the one before
    new = np.arange(tokens.shape[1])[None] >= shared[:, None]
    new &= np.arange(tokens.shape[1])[None] < length[:, None]
    row, depth = np.nonzero(new)
    number = np.full(tokens.shape, -1, dtype=np.int64)
    number[row, depth] = np.arange(len(row))
    # A node's number stands in the row that brought it; later rows have it from the last such row above them.
    place = np.where(number >= 0, np.arange(len(tokens))[:, None], 0)
    number = number[np.maximum.accumulate(place, axis=0), np.arange(tokens.shape[1])[None]]
    parent = np.where(depth > 0, number[row, depth - 1], -1)
    leaf = np.empty(len(order), dtype=np.int64)
    leaf[order] = number[np.arange(len(order)), length - 1]

    child = 1 + np.argsort(parent[1:], kind="stable")
    inner, first_child = np.unique(parent[child], return_index=True)
    return PrefixTree(
        tokens[row, depth],
        depth,
        parent,
        leaf,
        inner,
        _subtree_ends(depth[inner]),
        child,
        np.append(first_child, len(child)),
    )


def _subtree_ends(depth: np.ndarray) -> np.ndarray:
    """Return for each node, depth first, the next one that is not deeper; (m,)."""
    end, open_nodes = np.full(len(depth), len(depth)), []
    for node, here in enumerate(depth.tolist()):
        while open_nodes and open_nodes[-1][1] >= here:
            end[open_nodes.pop()[0]] = node
        open_nodes.append((node, here))
    return end


def count_positions(model: DialogueModel, tree: PrefixTree) -> int:
    """Return how many positions the model runs for the tree: its inner nodes, and paths to where sequences begin."""
    batches = run_batches(
        range(len(tree.inner)), _max_nodes(model, tree), lambda nodes: len(_path_to_root(tree, nodes[0]))
    )
    return sum(path + len(nodes) for nodes, path in batches)


def node_log_probabilities(
    model: DialogueModel, tree: PrefixTree, *, shard: WorkShard = ALL_ROWS
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, sequence by sequence, rows (r,) and log p(token | all before it) of nodes in nats, float64 (r,).

    Row k is node k + 1: the root follows nothing. Of a `shard` there are its rows alone, all children of a node.

    Raises:
        InputError: what the model gives is not a number.
    """
    # Rows come parent by parent.
    how = {"shard": shard, "row_of": lambda node: tree.child[tree.first_child[node]] - 1}
    compute, inner = partial(_log_probabilities, model, tree), range(len(tree.inner))
    for nodes, log_p in run_batches(inner, _max_nodes(model, tree), compute, **how):
        children = tree.child[tree.first_child[nodes.start] : tree.first_child[nodes.stop]]
        yield children - 1, check_not_nan(log_p, model.name)


def _max_nodes(model: DialogueModel, tree: PrefixTree) -> Callable[[int], int]:
    """Return a function: inner node → how many, beginning with it, make one sequence with the path before them."""
    network = model.model
    most = NODES_PER_PASS.get(network.device.type, NODES_PER_PASS["cpu"])
    most = min(
        most, memory_budget(network.device) // (logits_bytes(network, 1) + activations_bytes(network, most) // most)
    )
    return lambda node: max(1, most - int(tree.depth[tree.inner[node]]))


@torch.inference_mode()
def _log_probabilities(model: DialogueModel, tree: PrefixTree, nodes: range) -> np.ndarray:
    """Return log p of the children of some inner nodes, by parent, float64 (r,)."""
    network, path = model.model, _path_to_root(tree, nodes.start)
    inner = np.concatenate([path, np.array(nodes)])
    # A node is an ancestor of those from itself to the end of its subtree.
    sees = (inner[None] <= inner[:, None]) & (inner[:, None] < tree.end[inner][None])
    mask = torch.zeros(sees.shape, dtype=network.dtype).masked_fill(
        torch.from_numpy(~sees), torch.finfo(network.dtype).min
    )
    run = tree.inner[inner]
    logits = network(
        input_ids=torch.from_numpy(tree.token[run].astype(np.int64))[None].to(network.device),
        position_ids=torch.from_numpy(tree.depth[run])[None].to(network.device),
        attention_mask=mask[None, None].to(network.device),
        use_cache=False,
    ).logits[0, len(path) :]
    children = tree.child[tree.first_child[nodes.start] : tree.first_child[nodes.stop]]
    counts = np.diff(tree.first_child[nodes.start : nodes.stop + 1])
    row = torch.from_numpy(np.repeat(np.arange(len(nodes)), counts)).to(network.device)
    token = torch.from_numpy(tree.token[children].astype(np.int64)).to(network.device)
    log_p = logits[row, token].double() - logits.float().logsumexp(-1).double()[row]
    return log_p.cpu().numpy()


def _path_to_root(tree: PrefixTree, first: int) -> np.ndarray:
    """Return the ancestors of an inner node, from the root, as places among the inner nodes."""
    ancestors, node = [], tree.parent[tree.inner[first]]
    while node >= 0:
        ancestors.append(node)
        node = tree.parent[node]
    return np.searchsorted(tree.inner, np.array(ancestors[::-1], dtype=np.int64))


def sum_sequences(tree: PrefixTree, log_p: np.ndarray, begin: np.ndarray | int) -> np.ndarray:
    """Return Σ log p of each sequence's tokens from position `begin` on, (N,), from those of all nodes but the root."""
    by_depth = np.argsort(tree.depth, kind="stable")
    levels = np.split(by_depth, np.flatnonzero(np.diff(tree.depth[by_depth])) + 1)[1:]
    begin, found = np.broadcast_to(begin, tree.leaf.shape), np.zeros(len(tree.leaf))
    for place in np.unique(begin):  # few: a context ends where it ends, but for the token that it shares with a word
        total = np.concatenate([[0.0], np.where(tree.depth[1:] >= place, log_p, 0.0)])
        for nodes in levels:
            total[nodes] += total[tree.parent[nodes]]
        found[begin == place] = total[tree.leaf[begin == place]]
    return found


def supports_prefix_trees(model: DialogueModel, encoded: EncodedSentences) -> bool:
    """Say whether the model scores some of the sentences in a tree as it does plainly; it may not take trees at all."""
    chosen = np.unique(np.linspace(0, len(encoded.ids) - 1, PROBE_SENTENCES).astype(int))
    probes = EncodedSentences([encoded.ids[row] for row in chosen], encoded.begin[chosen], encoded.start)
    tree = prefix_tree(probes.ids)
    log_p = np.full(len(tree.token) - 1, np.nan)
    try:
        for rows, values in node_log_probabilities(model, tree):
            log_p[rows] = values
    except InputError:
        raise  # broken weights, or no memory for a single node: no fault of trees
    except (TypeError, ValueError, RuntimeError, IndexError, AttributeError):
        return False
    plain = np.empty(len(chosen))
    for rows, values, _ in sequence_log_likelihoods(model, probes):
        plain[rows] = values
    found = sum_sequences(tree, log_p, probes.begin)
    return bool(np.abs(found - plain).max() <= PROBE_ERROR[model.model.dtype])
