"""Two models, or one in two languages, on the same sentence pairs: paired differences, and what they could show."""

from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

from evaluation.errors import InputError
from evaluation.metrics.sentence_pairs import compare_pairs
from evaluation.report import Page, pair_comparison_page
from evaluation.results import PAIR_ID, BiasScore, read_scores
from recipes.config import CompareConfig
from recipes.measuring.sentence_pairs import KIND, PAIRS, SIGNATURE, notes_on
from recipes.runs import Run, read_run
from recipes.tables import SCORES, read_table

OTHER_TEXTS = (
    "The two were measured on different sets: pairs are compared by their pair_id, as translations of each other. "
    "Tokens differ with the language, and with them how easy they are to predict."
)


def inputs(config: CompareConfig) -> dict[str, str]:
    """Return nothing: only the two runs are read."""
    return {}


def differences(
    run: Run, config: CompareConfig, settings: Mapping[str, Any], manifests: Mapping[str, Any]
) -> list[BiasScore]:
    """Return the paired differences.

    Raises:
        InputError: the runs have no pair in common, or one model is masked and the other is not.
    """
    signature = {side: manifests[side][SIGNATURE] for side in ("before", "after")}
    kinds = {side: signature[side]["model"][KIND] for side in signature}
    if kinds["before"] != kinds["after"]:
        raise InputError(
            f"after: its model is {kinds['after']}, that of before {kinds['before']}; their scores mean other things."
        )
    before, after = read_table(config.before / PAIRS), read_table(config.after / PAIRS)
    if not set(before[PAIR_ID]) & set(after[PAIR_ID]):
        raise InputError(
            f"after: {config.after} and {config.before} have no {PAIR_ID} in common; measure both on one set."
        )
    return compare_pairs(before, after, signature=signature, seed=settings["before"]["seed"])


def page(config: CompareConfig) -> Page:
    """Return the report of a comparison whose scores are on disk."""
    folders = {"before": config.before, "after": config.after}
    settings = {side: read_run(folder, "measure", side)[0] for side, folder in folders.items()}
    scores = {side: read_scores(folder / SCORES) for side, folder in folders.items()}
    tables = {side: read_table(folder / PAIRS) for side, folder in folders.items()}
    notes = [note for side in settings for note in notes_on(settings[side])]
    notes += [OTHER_TEXTS] * (settings["before"]["pairs"] != settings["after"]["pairs"])
    return pair_comparison_page(
        scores["before"],
        scores["after"],
        read_scores(config.output_dir / SCORES),
        tables["before"],
        tables["after"],
        before_name=_name(settings["before"], settings["after"]),
        after_name=_name(settings["after"], settings["before"]),
        dataset=" and ".join(dict.fromkeys(Path(settings[side]["pairs"]).name for side in settings)),
        date=date.today().isoformat(),
        notes=list(dict.fromkeys(notes)),
    )


def _name(settings: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return what tells one of the two runs from the other."""
    parts = [settings["model"]]
    parts += [f"on {Path(settings['pairs']).name}"] * (settings["pairs"] != other["pairs"])
    parts += ["perturbed" if settings["perturbed"] else "unperturbed"] * (settings["perturbed"] != other["perturbed"])
    parts += [settings["dtype"]] * (settings["dtype"] != other["dtype"])
    return ", ".join(parts)
