"""What a measurement is: frozen score records, and the names of the columns that cross stages."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from evaluation.errors import InputError
from evaluation.files import write_json

# prompts.parquet: the upstream generator's metadata columns, preceded by ours.
PROMPT_ID, PERSONA = "prompt_id", "persona"
TEXT, TEMPLATE, AXIS, DESCRIPTOR, NOUN = "text", "template", "axis", "descriptor", "noun"
# Where some prompts are kept from tuning: true for those (datasets/prompts.py, unseen_rows).
UNSEEN = "unseen"
# responses.parquet: PROMPT_ID, RESPONSE. styles.parquet: PROMPT_ID, STYLE_VECTOR, float32 of (S,).
RESPONSE, STYLE_VECTOR = "response", "style_vector"
# labels.parquet: PROMPT_ID, BIAS_VALUE (b), LABEL ("bias" or "no_bias").
BIAS_VALUE, LABEL = "bias_value", "label"
# pairs.parquet: two sentences that differ in who is spoken of; MORE is the one that fits the stereotype more.
PAIR_ID, BIAS_TYPE, DIRECTION, MORE, LESS = "pair_id", "bias_type", "direction", "more", "less"
LEFT_OUT = "left_out"  # why a row is not in the scores, or null


@dataclass(frozen=True)
class BiasScore:
    """One number with what is needed to read it and to get it again.

    `value` is in natural units; NaN means undefined and needs a `reason`. `interval` is the 95 % confidence
    interval, or None where none is defined; `standard_error` is given where a paper gives it. `ideal` is the value of
    an unbiased model, None where only a comparison with another model says anything; `bounds` is the metric's range
    (infinite where it has none). `n` counts the rows behind the value, `n_left_out` those that could not enter it.
    `group` says which cut it is ({} is everything); `p_value` belongs to the test that the metric's docstring names.
    `signature` holds all that shaped the number.
    """

    metric: str
    value: float
    ideal: float | None
    bounds: tuple[float, float]
    n: int
    interval: tuple[float, float] | None = None
    p_value: float | None = None
    n_left_out: int = 0
    group: Mapping[str, str] = field(default_factory=dict)
    reason: str | None = None
    standard_error: float | None = None
    signature: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if math.isnan(self.value) and not self.reason:
            raise ValueError(f"{self.metric}: an undefined value needs a reason")


def write_scores(path: Path, scores: Sequence[BiasScore]) -> None:
    """Write scores as one JSON list of records; NaN and infinity are written as null."""
    write_json(path, [{key: _finite(value) for key, value in asdict(score).items()} for score in scores])


def read_scores(path: Path) -> list[BiasScore]:
    """Read what `write_scores` wrote.

    Raises:
        InputError: the file is absent or not a list of score records.
    """
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        return [
            BiasScore(
                **{
                    **record,
                    "value": math.nan if record["value"] is None else record["value"],
                    "bounds": tuple(
                        sign * math.inf if bound is None else bound
                        for sign, bound in zip((-1, 1), record["bounds"], strict=True)
                    ),
                    "interval": record["interval"] and tuple(record["interval"]),
                }
            )
            for record in records
        ]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(
            f"{path} holds no scores ({error}); give the folder of a finished `evenhand measure`."
        ) from None


def find_score(scores: Sequence[BiasScore], metric: str, **group: str) -> BiasScore:
    """Return the one score of this metric and cut.

    Raises:
        KeyError: there is none.
    """
    for score in scores:
        if score.metric == metric and dict(score.group) == group:
            return score
    raise KeyError(f"no score {metric} for {group or 'everything'}")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
