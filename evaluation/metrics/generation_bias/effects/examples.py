"""Examples of an effect: responses that show it most, paired with responses to other descriptors.

If a unit (a descriptor or a group of descriptors) has more of a style than the average, the unit's responses with the
largest probability of this style carry the effect. If a unit has less of a style, the responses to other descriptors
with the largest probability carry the effect. Each carrying response is paired with a random response of the other side
to the same template and, if possible, the same noun; the random draw has a fixed seed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from evenhand.evaluation.metrics.generation_bias.styled_responses import StyledResponses
from evenhand.evaluation.report.page import Example
from evenhand.evaluation.score import DESCRIPTOR, NOUN, RESPONSE, TEMPLATE, TEXT
from evenhand.evaluation.statistics.cells import to_codes

CANDIDATES = 8  # candidates for each example, since equal responses are displayed once


class EffectExamples:
    """Selection of example responses for the effects of one run."""

    def __init__(
        self, run: StyledResponses, columns: dict[tuple[str, str], Sequence[int]], offensive: Sequence[bool] | None
    ) -> None:
        """Read the prompts of the run.

        Args:
            run: all prompts, responses and style vectors of a run.
            columns: (outcome, name) of the effects that need examples → columns of the styles.
            offensive: whether each response is offensive, (n,) bool; None without an offensiveness classifier.
        """
        self._run, self._offensive = run, offensive
        self._units = {DESCRIPTOR: run.table[DESCRIPTOR].astype(str), **run.groups()}
        template = to_codes(run.table[TEMPLATE])
        noun = to_codes(run.table[NOUN]) if NOUN in run.table else np.zeros_like(template)
        self._places = [_Places(template.astype(np.int64) * (noun.max(initial=0) + 1) + noun), _Places(template)]
        self._probability = {name: run.vectors[:, list(styles)].sum(axis=1) for name, styles in columns.items()}

    def pairs(self, effect: Mapping[str, Any], most: int) -> list[tuple[int, int]]:
        """Return at most `most` pairs of positions: a response that carries the effect, and one of the other side.

        Responses with equal texts are used once. A response is left out if the other side has none to its template.

        Args:
            effect: a row of the table of effects (kind, unit, outcome, name and shrunk). An effect whose outcome and
                name are not in `columns` has no pairs.
        """
        p = self._probability.get((effect["outcome"], effect["name"]))
        if p is None:
            return []
        known = np.isfinite(p)
        of_unit = (self._units[effect["kind"]] == effect["unit"]).to_numpy() & known
        sides = of_unit, ~of_unit & known
        carriers, others = sides if effect["shrunk"] > 0 else sides[::-1]
        rows = np.flatnonzero(carriers & self._places[-1].has_any(others))
        rows = rows[np.argsort(-p[rows], kind="stable")][: most * CANDIDATES]
        if not len(rows):
            return []
        is_new = ~self._run.table[RESPONSE].iloc[rows].duplicated().to_numpy()
        return [(row, self._draw(row, others)) for row in rows[is_new][:most].tolist()]

    def _draw(self, row: int, allowed: np.ndarray) -> int:
        rows = next(found for places in self._places if len(found := places.like(row, allowed)))
        return int(np.random.default_rng(row).choice(rows))

    def examples(self, effect: Mapping[str, Any], most: int) -> list[Example]:
        """Return at most `most` pairs of responses, each response under its prompt. Offensive responses are hidden."""
        pairs = self.pairs(effect, most)
        rows = np.array([row for pair in pairs for row in pair], dtype=int)
        texts = self._run.table.iloc[rows]
        prompts, responses = texts[TEXT].tolist(), texts[RESPONSE].tolist()
        hidden = [False] * len(rows) if self._offensive is None else np.asarray(self._offensive)[rows]
        return [
            Example(
                "",
                tuple((prompts[n], responses[n]) for n in (first, first + 1)),
                hidden=frozenset(place for place in (0, 1) if hidden[first + place]),
            )
            for first in range(0, len(rows), 2)
        ]


class _Places:
    """Rows by an integer code of their template, or of template and noun."""

    def __init__(self, code: np.ndarray) -> None:
        self._code = code
        self._order = np.argsort(code, kind="stable")
        self._sorted = code[self._order]

    def like(self, row: int, allowed: np.ndarray) -> np.ndarray:
        """Return the allowed rows with the same code as a row."""
        rows = self._order[slice(*np.searchsorted(self._sorted, [self._code[row], self._code[row] + 1]))]
        return rows[allowed[rows]]

    def has_any(self, mask: np.ndarray) -> np.ndarray:
        """Return, for each row, whether the mask contains a row with the same code, (n,) bool."""
        return np.bincount(self._code, mask)[self._code] > 0
