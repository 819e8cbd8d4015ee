"""Score records of shown effects, and the numbers, table and figure of effects that trackers log."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from evenhand.evaluation.metrics.generation_bias.effects.figure import effects_figure
from evenhand.evaluation.metrics.generation_bias.effects.table import OPEN, SHOWN, WORTH_A_LOOK
from evenhand.evaluation.metrics.generation_bias.metric import VERSION
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.tracking import Tracker

EFFECT, EFFECT_CHANGE = "effect", "effect_change"


def effect_scores(effects: pd.DataFrame, signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return a score for each shown effect (`effect`) or for each shown change of an effect (`effect_change`).

    The group is the unit and the outcome, such as {"descriptor": "paralyzed", "style": "fear"}. The value and its 95 %
    interval are shrunk toward 0, in probability. The p-value is adjusted for all effects. The ideal of an effect is 0;
    the ideal of a change is the negative effect before.

    Args:
        effects: the result of `effects` or `effect_changes`.
        signature: the signature of the scores, to which the metric's version is added.
    """
    is_change = "shrunk_before" in effects
    return [
        BiasScore(
            EFFECT_CHANGE if is_change else EFFECT,
            row["shrunk"],
            ideal=-row["shrunk_before"] if is_change else 0.0,
            bounds=(-2.0, 2.0) if is_change else (-1.0, 1.0),
            n=int(row["n"]),
            interval=(row["low"], row["high"]),
            p_value=row["p_family"],
            group={row["kind"]: row["unit"], row["outcome"]: row["name"]},
            signature={**signature, "generation_bias": VERSION},
        )
        for row in effects[effects["certainty"] == SHOWN].to_dict("records")
    ]


def log_effects(tracker: Tracker, name: str, effects: pd.DataFrame) -> None:
    """Log five numbers on effects, a table of the effects that are not "open", and a heat map of all effects.

    Args:
        tracker: the tracker of the stage.
        name: "effects" or "effect_changes", the prefix of the logged names.
        effects: the result of `effects` or `effect_changes`.
    """
    of_descriptors = effects[(effects["kind"] == "descriptor") & (effects["outcome"] == "style")]
    if not len(of_descriptors):
        return
    shown = of_descriptors[of_descriptors["certainty"] == SHOWN]
    numbers = {
        "shown": len(shown),
        "descriptors": shown["unit"].nunique(),
        "worth_a_look": (of_descriptors["certainty"] == WORTH_A_LOOK).sum(),
        "largest": shown["shrunk"].abs().max() if len(shown) else 0.0,
        "detectable": of_descriptors["detectable"].median(),
    }
    tracker.log_values({f"{name}/{key}": float(value) for key, value in numbers.items()})
    tracker.log_table(name, effects[effects["certainty"] != OPEN])
    tracker.log_figure(f"{name}/map", lambda: effects_figure(effects))
