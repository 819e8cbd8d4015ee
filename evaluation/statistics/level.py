"""How much intervals and tests may err: in 5 of 100 cases in all, of which one of several looks has a share."""

import math
from dataclasses import dataclass, replace

from evenhand.evaluation.statistics.intervals import TAILS
from evenhand.evaluation.statistics.simultaneous_tests import LEVEL

DRAWS_AT_LEVEL = 10  # permutations with a p-value of LEVEL or less, at least


@dataclass(frozen=True)
class Level:
    """How much intervals and tests may err at one of several looks; by default at the only look, at the end.

    `statistics.sequential` plans the looks, and gives each its level.

    Attributes:
        share: the share of the error that permutation tests may spend at this look.
        tail: the probability below the upper quantile of two-sided 95 % intervals.
        one_sided_tail: the probability below the quantile of 95 % bounds on one side.
    """

    share: float = 1.0
    tail: float = TAILS[1]
    one_sided_tail: float = 1 - LEVEL

    def draws(self, n: int) -> int:
        """Return the number of permutations at this look in place of n; 0 if n is 0.

        A p-value is at least 1 over their number, and is divided by the share, so that few of them could show nothing.

        >>> Level(share=0.01).draws(1999), ONE_LOOK.draws(1999)
        (20000, 1999)
        """
        return max(n, math.ceil(DRAWS_AT_LEVEL / (LEVEL * self.share))) if n else 0

    def part(self, share: float) -> "Level":
        """Return the level of some of the tests, which may spend a share of the permutation tests' error.

        >>> Level(share=0.5).part(0.5).share
        0.25
        """
        return replace(self, share=self.share * share)

    def p_value(self, p_value: float | None) -> float | None:
        """Return the p-value at this look, in [0, 1], of a test that alone has `p_value`; None if it has none.

        >>> Level(share=0.25).p_value(0.01), Level(share=0.25).p_value(0.5), ONE_LOOK.p_value(0.5)
        (0.04, 1.0, 0.5)
        """
        return None if p_value is None else min(p_value / self.share, 1.0)


ONE_LOOK = Level()
