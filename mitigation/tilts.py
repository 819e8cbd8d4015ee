"""Exponential tilts: of all distributions of responses with a given mean style, the nearest to the original in KL.

Let p̄(x | t) be the distribution of responses to template t, and φ(x) the style vector of x. Of all distributions whose
mean style, averaged over templates, has a given value, the nearest to p̄ is its I-projection (Csiszár 1975,
"I-divergence geometry of probability distributions and minimization problems"),

    p̄(x | t) · exp(θ · φ(x)) / A_t,  A_t = Σ_x p̄(x | t) exp(θ · φ(x)).

θ minimises a convex function, the dual mean_t log A_t − θ · value. Entropy balancing (Hainmueller 2012) finds weights
in the same way.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from evenhand.evaluation.statistics.cells import Cells

MAX_POOL = 200  # responses of a template, sampled from all descriptors, that estimate p̄
MIN_EFFECTIVE_SHARE = 0.1  # an effect whose removal leaves a smaller effective sample is removed in part
COLLINEAR = 0.03  # directions of styles with a smaller share of the largest variance: collinear, constant or rare
NO_VARIANCE = 1e-12  # the same as a variance
TOLERANCE = 1e-9  # of the mean style, in standard deviations
BISECTIONS = 12


@dataclass(frozen=True)
class Pool:
    """The responses to T templates and all descriptors, which estimate p̄(x | t), sorted by template.

    `deviations` (r, S) are style vectors minus the `mean` (T, S) of their template, `share` (r,) is each response's
    share of its template, and `size` (T,) the number of responses to each template.
    """

    deviations: np.ndarray
    share: np.ndarray
    size: np.ndarray
    mean: np.ndarray

    @classmethod
    def from_cells(cls, cells: Cells, seed: int = 0) -> "Pool":
        """Return the pool of cells, in the order of the templates' codes; all cells of a template have equal shares."""
        rng, deviations, shares, means = np.random.default_rng(seed), [], [], []
        for template in np.unique(cells.template):
            chosen = np.flatnonzero(cells.template == template)
            rows = np.concatenate([block.rows for block in cells.blocks(chosen)]).astype(np.float64)
            share = np.repeat(1.0 / cells.count[chosen], cells.count[chosen])
            sampled = np.sort(rng.permutation(len(rows))[:MAX_POOL])
            rows, share = rows[sampled], share[sampled] / share[sampled].sum()
            means.append(share @ rows)
            deviations.append(rows - means[-1])
            shares.append(share)
        size = np.array(list(map(len, shares)))
        return cls(np.concatenate(deviations), np.concatenate(shares), size, np.stack(means))

    def templates(self, mask: np.ndarray) -> "Pool":
        """Return the pool of the templates for which the mask, (T,) bool, is true."""
        rows = np.repeat(mask, self.size)
        return Pool(self.deviations[rows], self.share[rows], self.size[mask], self.mean[mask])

    @cached_property
    def basis(self) -> np.ndarray:
        """Orthogonal directions of styles, (S, k), in which the responses vary, scaled to variance 1."""
        covariance = (self.deviations * self.share[:, None]).T @ self.deviations / len(self.size)
        variance, directions = np.linalg.eigh(covariance)
        varies = variance > max(COLLINEAR * variance.max(initial=0), NO_VARIANCE)
        return directions[:, varies] / np.sqrt(variance[varies])

    @cached_property
    def _coordinates(self) -> np.ndarray:
        return self.deviations @ self.basis

    @cached_property
    def _start(self) -> np.ndarray:
        return np.cumsum(self.size) - self.size

    def log_normalisers(self, exponent: np.ndarray) -> np.ndarray:
        """Return log A_t of an exponent θ, (S,), for each template, (T,)."""
        return self._tilted(self.deviations @ exponent)[0] + self.mean @ exponent

    def solve(self, shift: np.ndarray, start: np.ndarray) -> np.ndarray | None:
        """Return the exponent that shifts the mean, both in coordinates of the basis, (k,); None if there is none."""

        def dual(exponent: np.ndarray) -> tuple[float, np.ndarray]:
            log_a, share = self._tilted(self._coordinates @ exponent)
            mean = share @ self._coordinates / len(self.size)
            return float(log_a.mean() - exponent @ shift), mean - shift

        def hessian(exponent: np.ndarray) -> np.ndarray:
            weighted = self._coordinates * self._tilted(self._coordinates @ exponent)[1][:, None]
            means = np.add.reduceat(weighted, self._start, axis=0)
            return (weighted.T @ self._coordinates - means.T @ means) / len(self.size)

        options = {"gtol": TOLERANCE, "maxiter": 100}
        found = scipy.optimize.minimize(dual, start, jac=True, hess=hessian, method="trust-exact", options=options).x
        return found if np.abs(dual(found)[1]).max(initial=0) < 10 * TOLERANCE else None

    def effective_share(self, exponent: np.ndarray) -> float:
        """Return 1 / E[w²] of the weights w that undo a tilt, under the tilted distribution, in (0, 1] (Kish 1965).

        `exponent` is in coordinates of the basis. E[w²] is the mean over templates of A_t(θ) A_t(−θ).
        """
        projected = self._coordinates @ exponent
        log_squares = self._tilted(projected)[0] + self._tilted(-projected)[0]
        return float(np.exp(np.log(len(self.size)) - scipy.special.logsumexp(log_squares)))

    def _tilted(self, log_weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return log Σ_x p̄(x | t) exp(log weight), (T,), and each response's share of its template's terms, (r,)."""
        top = np.maximum.reduceat(log_weight, self._start)
        terms = self.share * np.exp(log_weight - np.repeat(top, self.size))
        totals = np.add.reduceat(terms, self._start)
        return top + np.log(totals), terms / np.repeat(totals, self.size)


@dataclass(frozen=True)
class Tilt:
    """The exponent λ, (S,), that removes an effect on the mean style, wholly or in part.

    fraction: the share of the effect that is removed, in [0, 1]. kl: KL(p̄ ‖ tilted p̄), mean over templates, in nats.
    """

    exponent: np.ndarray
    fraction: float = 1.0
    kl: float = 0.0


def solve_tilt(pool: Pool, effect: np.ndarray) -> Tilt:
    """Return the tilt exp(λ · φ) that removes an effect, (S,), from the tilted pool p_d that has this effect.

    p_d is p̄ exp(−λ · φ) / A_t, whose mean style is the pool's mean plus the effect. Directions of styles that are
    constant or collinear in the pool are left out of the effect. If no tilted pool has the effect, or if the effective
    share of the weights is below MIN_EFFECTIVE_SHARE, only the largest possible fraction of the effect is removed.
    """
    if not pool.basis.shape[1]:  # all responses to each template are alike
        return Tilt(np.zeros(len(effect)), fraction=0.0)
    shift = effect @ pool.basis

    def solve(fraction: float, start: np.ndarray) -> np.ndarray | None:
        found = pool.solve(fraction * shift, start)
        return None if found is None or pool.effective_share(found) < MIN_EFFECTIVE_SHARE else found

    fraction, exponent = 1.0, solve(1.0, np.zeros(len(shift)))
    if exponent is None:
        fraction, above, exponent = 0.0, 1.0, np.zeros(len(shift))
        for _ in range(BISECTIONS):
            middle = (fraction + above) / 2
            found = solve(middle, exponent)
            if found is None:
                above = middle
            else:
                fraction, exponent = middle, found
    in_styles = pool.basis @ exponent
    kl = float((pool.log_normalisers(in_styles) - pool.mean @ in_styles).mean())
    return Tilt(-in_styles, fraction, max(kl, 0.0))
