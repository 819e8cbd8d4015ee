"""What a measurement is: frozen score records, and the names of the columns that cross stages."""

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.runs.files import write_json, write_text

# prompts.parquet: the upstream generator's metadata columns, preceded by ours.
PROMPT_ID, PERSONA = "prompt_id", "persona"
TEXT, TEMPLATE, AXIS, DESCRIPTOR, NOUN = "text", "template", "axis", "descriptor", "noun"
# Where some prompts are kept from tuning: true for those (datasets/prompts.py, unseen_mask).
UNSEEN = "unseen"
# responses.parquet: PROMPT_ID, RESPONSE. styles.parquet: PROMPT_ID and a float32 column for each style.
RESPONSE = "response"
STYLE_VECTOR = "style_vector"  # of a response, where rows are handed on with all their styles in one column
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
    `signature` holds all that shaped the number. Where `interval` takes descriptors and templates as given,
    `jackknife_interval` is for others like those of `wider_over`, "descriptors" or "templates".
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
    wider_over: str | None = None
    jackknife_interval: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if math.isnan(self.value) and not self.reason:
            raise ValueError(f"{self.metric}: an undefined value needs a reason")


def write_scores(path: Path, scores: Sequence[BiasScore]) -> None:
    """Write scores as JSON, each signature once and records that refer to it, and as CSV beside it.

    NaN and infinity are written as null, in the CSV as nothing.
    """
    signatures, records = {}, []
    for score in scores:
        key = _digest(score.signature)
        signatures[key] = score.signature
        record = {field.name: getattr(score, field.name) for field in fields(score)}
        records.append({key: _finite(value) for key, value in {**record, "signature": key}.items()})
    write_json(path, {"signatures": signatures, "scores": records})
    write_text(path.with_suffix(".csv"), _csv(records))


def read_scores(path: Path | str) -> list[BiasScore]:
    """Read what `write_scores` wrote.

    Raises:
        InputError: the file is absent, of version 0.1, or does not hold score records.
    """
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
        if isinstance(found, list):
            raise InputError(f"{path} was written by Evenhand 0.1, which this version does not read; measure again.")
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
                    "jackknife_interval": (wider := record.get("jackknife_interval")) and tuple(wider),
                    "signature": found["signatures"][record["signature"]],
                }
            )
            for record in found["scores"]
        ]
    except InputError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{path} holds no scores ({error}); give the folder of a finished `evenhand measure`."
        ) from None


def display_name(name: str) -> str:
    """Return a model's or a file's name as reports and cards have it: of an absolute path the last three parts.

    >>> display_name("/home/me/runs/loop/kto/tune/adapter"), display_name("org/model")
    ('kto/tune/adapter', 'org/model')
    """
    return "/".join(PurePath(name).parts[1:][-3:]) if PurePath(name).is_absolute() else name


def signature_line(score: BiasScore) -> str:
    """Return a score's signature in one line to paste into a paper, the same for equal measurements.

    What it names are the metric and its cut, the model, what it was measured on and by which classifier, the seed and
    the number of rows; `h` is a hash of the whole nested signature, and tells apart what the names do not.

    >>> import re
    >>> told = {"model": {"name": "gpt2", "revision": "607a30d783df"}, "seed": 0, "packages": {"evenhand": "0.2.0"}}
    >>> line = signature_line(BiasScore("fgb", 0.25, 0.0, (0.0, 1.0), n=8, group={"axis": "age"}, signature=told))
    >>> re.sub("h:[0-9a-f]{12}", "h:…", line)
    'fgb[axis=age]|m:gpt2@607a30d|s:0|n:8|h:…|v:0.2.0'
    """
    told = score.signature
    cut = ",".join(f"{name}={value}" for name, value in score.group.items())
    parts = [score.metric + (f"[{cut}]" if cut else "")]
    for letter, names in _LINE.items():
        found = next((told[name] for name in names if told.get(name) is not None), None)
        if found is not None:
            parts.append(f"{letter}:{_short(found)}")
    parts += [f"n:{score.n}", f"h:{_digest(told)}"]
    version = (told.get("packages") or {}).get("evenhand")
    return "|".join([*parts, f"v:{version}"] if version else parts)


# The letters of a signature line, and the names in nested signatures that they stand for.
_LINE = {
    "m": ("model", "translations"),
    "d": ("dataset", "references"),
    "c": ("style_classifier", "offensiveness_classifier"),
    "s": ("seed",),
}


def _short(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value)
    name, pinned = display_name(str(value.get("name") or "")), value.get("revision") or value.get("sha256")
    return f"{name}@{pinned[:7]}" if pinned else name or _digest(value)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    """Return score records as a table: a column for each cut that there is, the interval in two columns."""
    cuts = list(dict.fromkeys(name for record in records for name in record["group"]))
    with_low_and_high = ["low", "high", "wider_over", "wider_low", "wider_high"]
    plain = ["value", "ideal", "standard_error", "p_value", "n", "n_left_out", "reason", "signature"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["metric", *cuts, "value", *with_low_and_high, *plain[1:]])
    for record in records:
        low, high = record["interval"] or (None, None)
        ends = [low, high, record["wider_over"], *(record["jackknife_interval"] or (None, None))]
        values = [record[name] for name in plain]
        writer.writerow([record["metric"], *(record["group"].get(cut) for cut in cuts), values[0], *ends, *values[1:]])
    return text.getvalue()


def find_score(scores: Iterable[BiasScore], metric: str, **group: str) -> BiasScore | None:
    """Return the score of this metric and cut, or None if there is none."""
    return next((score for score in scores if score.metric == metric and dict(score.group) == group), None)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
