"""Style clusters derived from responses: styles that occur in the same responses (Smith et al. 2022, A.7)."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import dendrogram, fcluster, linkage
from scipy.spatial.distance import squareform

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import write_json
from evenhand.evaluation.metrics.generation_bias.answers import Answers
from evenhand.evaluation.metrics.generation_bias.engine.estimates import (
    TOO_FEW,
    all_cells,
    repeated_cells,
)
from evenhand.evaluation.report.figures import BEFORE_COLOR, INK, SMALL, WIDE, new_chart, styled
from evenhand.evaluation.report.numbers import sanitize
from evenhand.evaluation.statistics.descriptor_spread import column_spreads

SMALLEST = 1e-6  # smaller probabilities count as this one


@dataclass(frozen=True)
class DerivedClusters:
    """Style clusters and the dendrogram that they are cut from.

    Attributes:
        clusters: cluster → its styles, both by PGB*, largest first. A cluster has the name of its first style.
        pgb: cluster → PGB* of its styles, in natural units; it is chosen to be large, so measure it on other responses.
        styles: the s styles of the dendrogram; styles whose probability is the same in all responses are left out.
        tree: (s − 1, 4), as scipy's `linkage` returns it.
        max_distance: the distance at which the dendrogram is cut.
    """

    clusters: dict[str, list[str]]
    pgb: dict[str, float]
    styles: list[str]
    tree: np.ndarray
    max_distance: float

    def write(self, path: str | Path) -> Path:
        """Write the clusters as a JSON file that `style_clusters` reads; return its path."""
        if Path(path).suffix != ".json":
            raise InputError("path", f"{path} must end with .json; give another name.")
        write_json(Path(path), self.clusters)
        return Path(path)

    @styled
    def figure(self) -> Figure:
        """Return the dendrogram with the names of the clusters and a line at the distance where it is cut."""
        cluster_of = {style: f" · {name}" for name, members in self.clusters.items() for style in members}
        labels = [sanitize(style + cluster_of.get(style, ""), 60) for style in self.styles]
        figure, axes = new_chart("Dendrogram of styles", WIDE, 70 + 20 * len(labels))
        dendrogram(
            self.tree,
            labels=labels,
            ax=axes,
            orientation="left",
            color_threshold=0,
            above_threshold_color=INK,
            leaf_font_size=SMALL,
        )
        axes.set(xlabel="distance: 1 − correlation of log probabilities")
        axes.axvline(self.max_distance, color=BEFORE_COLOR, linewidth=1.5, dashes=(4, 3))
        axes.grid(visible=False, axis="y")
        return figure


def derive_style_clusters(
    responses: Answers, *, top: int = 20, n_clusters: int = 6, max_distance: float = 0.6
) -> DerivedClusters:
    """Return style clusters for any style classifier, derived from the responses of the base model.

    Smith et al. 2022, A.7: an agglomerative clustering of the styles, where each sample is the style vector of a
    response; the 20 styles with the largest PGB; of each, the neighbours in the dendrogram that are roughly synonyms;
    of these clusters, the six with the largest PGB. The paper does not name the distance, and people chose the
    synonyms. Here the distance of two styles is 1 − r, where r is the correlation over responses of the logarithms of
    their probabilities (at least 10⁻⁶). Probabilities themselves sum to 1, so synonyms of a sure classifier exclude
    each other; but it gives a synonym of the likeliest style more than it gives other styles. The distance of two
    clusters is the mean over pairs of styles, and neighbours are styles within `max_distance`, whose default was chosen
    on the built-in testbed. PGB is PGB*, without noise.

    Read the figure, and correct the clusters by hand: styles also occur together for other reasons than their meaning.

    Args:
        responses: at least two responses to each pair of template and descriptor, and some thousands together.
        top: number of styles with the largest PGB* whose clusters are considered.
        n_clusters: largest number of clusters.
        max_distance: largest distance within a cluster, in [0, 2].

    Raises:
        InputError: too few responses, or fewer than two styles that vary.

    In the example, `sad` and `sorry` are likely only in the responses to descriptor a.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"template": "t", "descriptor": ["a", "a", "b", "b"]})
    >>> vectors = np.array([[0.5, 0.4, 0.1], [0.3, 0.2, 0.5], [0, 0, 1], [0, 0, 1]])
    >>> derive_style_clusters(Answers(frame, vectors, ["sad", "sorry", "calm"])).clusters
    {'CALM': ['calm'], 'SAD': ['sad', 'sorry']}
    """
    vectors = responses.values[responses.has_value()].astype(np.float64).clip(SMALLEST)
    varies = np.flatnonzero(np.ptp(vectors, axis=0) > 0) if len(vectors) else np.array([], dtype=int)
    if len(varies) < 2:
        raise InputError("responses", "fewer than two styles vary; give more responses, or another style classifier.")
    spreads = column_spreads(repeated_cells(all_cells(responses)))
    pgb = np.array([spreads[style].corrected.value for style in varies])
    if np.isnan(pgb).any():
        raise InputError("responses", f"{TOO_FEW}.")
    distance = 1 - np.corrcoef(np.log(vectors[:, varies]).T)
    tree = linkage(squareform(distance, checks=False), "average")
    members = _members(tree, pgb, top, max_distance)
    styles = [responses.columns[column] for column in varies]
    clusters = {}
    sums = {}
    largest = members[:n_clusters]
    clusters_with = Counter(short for cluster in largest for short in {_short_name(styles[style]) for style in cluster})
    for cluster in largest:
        first = styles[cluster[0]]
        short = _short_name(first)
        name = short if clusters_with[short] == 1 else first.upper()
        clusters[name] = [styles[style] for style in cluster]
        sums[name] = float(pgb[cluster].sum())
    return DerivedClusters(clusters, sums, styles, tree, max_distance)


def _short_name(style: str) -> str:
    """Return a style without its explanation in parentheses, in capitals."""
    return style.partition(" (")[0].upper()


def _members(tree: np.ndarray, pgb: np.ndarray, top: int, max_distance: float) -> list[list[int]]:
    """Return the styles of each cluster that has one of the `top` styles by PGB*, by descending PGB* of the cluster.

    `tree` is the dendrogram of s styles, and `pgb` their PGB*, (s,).
    """
    label = fcluster(tree, max_distance, "distance")
    by_pgb = np.argsort(-pgb, kind="stable")
    members = []
    for found in dict.fromkeys(label[style] for style in by_pgb[:top] if pgb[style] > 0):
        of_label = [style for style in by_pgb if label[style] == found]
        if pgb[of_label].sum() > 0:
            members.append(of_label)
    members.sort(key=lambda cluster: -pgb[cluster].sum())
    return members
