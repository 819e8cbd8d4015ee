"""Changes of the sentence pair metrics between two runs over the same pairs, possibly in two languages."""

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.sentence_pairs.metric import compare_pairs
from evenhand.evaluation.score import PAIR_ID, BiasScore
from evenhand.evaluation.store import Store


def differences(run: Store, before: FamilyRun, after: FamilyRun, config: None = None) -> list[BiasScore]:
    """Return the change of each score from `before` to `after`, paired by sentence pair.

    Raises:
        InputError: the runs have no pair in common, or one model is masked and the other is not.
    """
    sides = {"before": before, "after": after}
    signature = {side: it.signature("s_jsd", "stereotype_preference") for side, it in sides.items()}
    kinds = {side: it["model"]["kind"] for side, it in signature.items()}
    if kinds["before"] != kinds["after"]:
        raise InputError(
            f"after: its model is {kinds['after']}, but the model of before is {kinds['before']}; compare two models "
            "of one kind."
        )
    tables = [it.table("pairs") for it in sides.values()]
    if not set(tables[0][PAIR_ID]) & set(tables[1][PAIR_ID]):
        raise InputError(
            f"after: {after.folder} and {before.folder} have no {PAIR_ID} in common; measure both on the same pairs."
        )
    return compare_pairs(*tables, signature=signature, seed=before.config.seed)
