"""Changes of Likelihood Bias between two models over the same sentences."""

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.likelihood_bias.metric import likelihood_bias_change
from evenhand.evaluation.metrics.likelihood_bias.rows import VARIANT
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.store import Store


def differences(run: Store, before: FamilyRun, after: FamilyRun, config: None = None) -> list[BiasScore]:
    """Return the change of each score from `before` to `after`, paired by descriptor.

    Raises:
        InputError: the runs have different sentences, or were scored differently.
    """
    signatures = {side: it.signature("likelihood_bias") for side, it in (("before", before), ("after", after))}
    for name in ("dataset", VARIANT, "context", "end_of_sequence"):
        old, new = (signature.get(name) for signature in signatures.values())
        if old != new:
            raise InputError(
                f"after: its {name} is {new!r}, but the {name} of before is {old!r}; measure both with the same."
            )
    return likelihood_bias_change(before.table("likelihoods"), after.table("likelihoods"), signatures)
