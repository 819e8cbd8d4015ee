"""Two models, or one in two languages, on the same sentence pairs: paired differences, and what they could show."""

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import FamilyRun
from evenhand.evaluation.families.sentence_pairs.metric import compare_pairs
from evenhand.evaluation.results import PAIR_ID, BiasScore
from evenhand.evaluation.runs.folders import Run


def differences(run: Run, before: FamilyRun, after: FamilyRun, told: None = None) -> list[BiasScore]:
    """Return the paired differences.

    Raises:
        InputError: the runs have no pair in common, or one model is masked and the other is not.
    """
    sides = {"before": before, "after": after}
    signature = {side: each.signature("s_jsd", "stereotype_preference") for side, each in sides.items()}
    kinds = {side: each["model"]["kind"] for side, each in signature.items()}
    if kinds["before"] != kinds["after"]:
        raise InputError(
            f"after: its model is {kinds['after']}, that of before {kinds['before']}; their scores mean other things."
        )
    tables = [each.table("pairs") for each in sides.values()]
    if not set(tables[0][PAIR_ID]) & set(tables[1][PAIR_ID]):
        raise InputError(
            f"after: {after.folder} and {before.folder} have no {PAIR_ID} in common; measure both on one set."
        )
    return compare_pairs(*tables, signature=signature, seed=before.config.seed)
