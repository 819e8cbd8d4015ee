"""Two models over the same sentences: how Likelihood Bias changed."""

from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import FamilyRun
from evenhand.evaluation.families.likelihood_bias.metric import likelihood_bias_change
from evenhand.evaluation.families.likelihood_bias.rows import VARIANT
from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.runs.folders import Run


def differences(run: Run, before: FamilyRun, after: FamilyRun, told: Any) -> list[BiasScore]:
    """Return the paired differences.

    Raises:
        InputError: the runs are of different sentences, or their likelihoods are not of one kind.
    """
    signatures = {side: it.signature("likelihood_bias") for side, it in (("before", before), ("after", after))}
    for name in ("dataset", VARIANT, "context", "end_of_sequence"):
        old, new = (signature.get(name) for signature in signatures.values())
        if old != new:
            raise InputError(f"after: its {name} is {new!r}, that of before {old!r}; measure both alike.")
    return likelihood_bias_change(before.table("likelihoods"), after.table("likelihoods"), signatures)
