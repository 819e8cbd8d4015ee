"""Exact log-likelihoods of many sentences with common prefixes, in which each distinct prefix is computed once.

Of 5.3 million GPT-2 tokens of HolisticBias v1.0, only 0.8 million follow a prefix that occurs for the first time. The
model reads the nodes of the tree of prefixes in depth-first order, packed into sequences in which a token attends only
to its ancestors and has its depth as position, as in its sentence. A sequence that starts inside the tree begins with
the path to its first node.

The method needs a model that respects the attention mask and the positions in its input (GPT-2, OPT, Llama, …).
`sentences.supports_prefix_trees` detects others (Bloom's ALiBi counts positions by itself, Mamba has no attention).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from evenhand.evaluation.models.activation import activation_arguments
from evenhand.evaluation.models.batches import activations_bytes, logits_bytes, memory_budget, run_batches
from evenhand.evaluation.models.likelihood.tokens import check_not_nan, log_normalizers
from evenhand.evaluation.models.loading import DialogueModel

# Nodes of one sequence. In longer sequences, attention dominates, because its cost is quadratic in the number of nodes;
# in shorter sequences, paths are repeated more often. Measured on a CPU.
NODES_PER_PASS = {"cpu": 256, "cuda": 2048}


@dataclass(frozen=True)
class PrefixTree:
    """Distinct prefixes of sequences in depth-first order; a node stands for the prefix that ends with its token.

    Attributes:
        token, depth, parent: the token id, depth and parent of each of the n nodes, (n,). Parents come before children;
            the root comes first (depth 0, parent −1).
        leaf: the last node of each of the N sequences, (N,).
        inner: the m nodes with children, in order, (m,).
        end: for each inner node, the index of the first inner node after its subtree, (m,).
        child: the n − 1 nodes with a parent, sorted by parent.
        first_child: for each inner node, the index of its first child in `child`, followed by n − 1, (m + 1,).
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
    """Return the prefix tree of token sequences, all of which begin with the same token."""
    order = sorted(range(len(sequences)), key=lambda row: list(sequences[row]))
    length = np.array([len(sequences[row]) for row in order])
    tokens = np.full((len(order), length.max() + 1), -1, dtype=np.int32)
    for index, row in enumerate(order):
        tokens[index, : length[index]] = sequences[row]
    differs = tokens[1:] != tokens[:-1]
    differs[:, -1] = True  # so that argmax is the full length for equal sequences
    # The length of the common prefix of each sequence and the previous sequence.
    shared = np.concatenate([[0], np.minimum(differs.argmax(axis=1), length[1:])])
    new = np.arange(tokens.shape[1])[None] >= shared[:, None]
    new &= np.arange(tokens.shape[1])[None] < length[:, None]
    row, depth = np.nonzero(new)
    node = np.full(tokens.shape, -1, dtype=np.int64)
    node[row, depth] = np.arange(len(row))
    # A node is entered in the row where it occurs first; later rows copy it from the last row that has an entry.
    source = np.where(node >= 0, np.arange(len(tokens))[:, None], 0)
    node = node[np.maximum.accumulate(source, axis=0), np.arange(tokens.shape[1])[None]]
    parent = np.where(depth > 0, node[row, depth - 1], -1)
    leaf = np.empty(len(order), dtype=np.int64)
    leaf[order] = node[np.arange(len(order)), length - 1]

    child = 1 + np.argsort(parent[1:], kind="stable")
    inner, first_child = np.unique(parent[child], return_index=True)
    return PrefixTree(
        token=tokens[row, depth],
        depth=depth,
        parent=parent,
        leaf=leaf,
        inner=inner,
        end=_subtree_ends(depth[inner]),
        child=child,
        first_child=np.append(first_child, len(child)),
    )


def _subtree_ends(depth: np.ndarray) -> np.ndarray:
    """Return for each of m nodes in depth-first order the next node that is not deeper, m if none exists, (m,)."""
    end = np.full(len(depth), len(depth))
    open_nodes = []
    for node, node_depth in enumerate(depth.tolist()):
        while open_nodes and open_nodes[-1][1] >= node_depth:
            end[open_nodes.pop()[0]] = node
        open_nodes.append((node, node_depth))
    return end


def node_log_probabilities(model: DialogueModel, tree: PrefixTree) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield indices (r,) of tree nodes and their log p(token | previous tokens) in nats, float64 (r,), in batches.

    Parents come no later than their children. The root has no previous token, and is not among the nodes.
    """
    network = model.model
    limit = NODES_PER_PASS.get(network.device.type, NODES_PER_PASS["cpu"])
    node_bytes = logits_bytes(network, 1) + activations_bytes(network, limit) // limit
    limit = min(limit, memory_budget(network.device) // node_bytes)

    def max_nodes(node: int) -> int:
        """Return how many nodes from an inner node on fit in a sequence after its path."""
        return max(1, limit - int(tree.depth[tree.inner[node]]))

    def compute(nodes: Sequence[int]) -> np.ndarray:
        return _log_probabilities(model, tree, nodes[0], nodes[-1] + 1)

    for nodes, log_p in run_batches(range(len(tree.inner)), max_nodes, compute):
        children = tree.child[tree.first_child[nodes[0]] : tree.first_child[nodes[-1] + 1]]
        yield children, check_not_nan(log_p, model.name)


def sequence_log_probabilities(
    model: DialogueModel, tree: PrefixTree, begin: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield indices (r,) of sequences, and Σ log p of each one's tokens from position `begin` on, as they are known."""
    log_p = np.zeros(len(tree.token))
    for nodes, values in node_log_probabilities(model, tree):
        log_p[nodes] = values
        rows = np.flatnonzero(np.isin(tree.leaf, nodes))
        yield rows, sum_paths(tree, log_p, tree.leaf[rows], begin[rows])


@torch.inference_mode()
def _log_probabilities(model: DialogueModel, tree: PrefixTree, start: int, stop: int) -> np.ndarray:
    """Return log p of each child of the inner nodes `start` to `stop` − 1, sorted by parent, float64 (r,), in nats."""
    network = model.model
    ancestors = []
    node = tree.parent[tree.inner[start]]
    while node >= 0:
        ancestors.append(node)
        node = tree.parent[node]
    path = np.searchsorted(tree.inner, np.array(ancestors[::-1], dtype=np.int64))
    inner = np.concatenate([path, np.arange(start, stop)])
    # A node attends to itself and its ancestors: to the nodes whose subtree contains it.
    attends = (inner[None] <= inner[:, None]) & (inner[:, None] < tree.end[inner][None])
    mask = torch.zeros(attends.shape, dtype=network.dtype).masked_fill(
        torch.from_numpy(~attends), torch.finfo(network.dtype).min
    )
    inputs = tree.inner[inner]
    logits = network(
        input_ids=torch.from_numpy(tree.token[inputs].astype(np.int64))[None].to(network.device),
        position_ids=torch.from_numpy(tree.depth[inputs])[None].to(network.device),
        attention_mask=mask[None, None].to(network.device),
        use_cache=False,
        **activation_arguments(network, [[]], [0]),  # a sentence has no context: no activated adapter changes it
    ).logits[0, len(path) :]
    children = tree.child[tree.first_child[start] : tree.first_child[stop]]
    counts = np.diff(tree.first_child[start : stop + 1])
    row = torch.from_numpy(np.repeat(np.arange(stop - start), counts)).to(network.device)
    token = torch.from_numpy(tree.token[children].astype(np.int64)).to(network.device)
    log_p = logits[row, token].double() - log_normalizers(logits)[row]
    return log_p.cpu().numpy()


def sum_paths(tree: PrefixTree, log_p: np.ndarray, nodes: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """Return Σ log p over the path from the root to each of r nodes, of the tokens from position `begin` on, (r,).

    `log_p` has a number for each node of the tree; the root's is not used.
    """
    paths = []
    while (nodes > 0).any():
        paths.append(nodes)
        nodes = np.where(nodes > 0, tree.parent[nodes], 0)
    sums = np.zeros(len(begin))
    for nodes in reversed(paths):  # from the root on, as a sentence is read
        is_counted = (nodes > 0) & (tree.depth[nodes] >= begin)
        sums += np.where(is_counted, log_p[nodes], 0.0)
    return sums
