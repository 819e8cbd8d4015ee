"""Score records, reading and writing of score files, and names of the columns that several stages read."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any, TypeAlias

from evenhand.evaluation import columns
from evenhand.evaluation.csv_files import csv_text
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import json_sha256, write_json, write_text
from evenhand.evaluation.json_values import Json, JsonObject

SCORES = "scores.json"  # the file of all scores of a run

LEVEL = 0.05  # significance level of two-sided tests and of intervals
OVERFLOW = "it is larger than the largest number that can be computed with"


class Form(StrEnum):
    """Which statistic of a metric a score is."""

    PLAIN = "plain"
    CORRECTED = "corrected"  # without the noise of sampling
    POOLED_CORRECTED = "pooled_corrected"  # of means over all templates, without the noise of sampling
    PERSON = "person"  # the part of the pooled form that words for the same people share
    WORD = "word"  # the part of the pooled form in which words for the same people differ
    MEAN = "mean"  # of an outcome, over responses
    SPREAD = "spread"  # of an outcome, between people


class Kind(StrEnum):
    """What a score says of its metric."""

    LEVEL = "level"  # the metric of one run
    DIFFERENCE = "difference"  # the second run minus the first
    REDUCTION = "reduction"  # 1 − the second run / the first
    KEPT = "kept"  # the second run / the first
    RISE = "rise"  # the second run / the first − 1
    DETECTABLE = "detectable"  # the smallest value that such data can show
    DETECTABLE_DIFFERENCE = "detectable_difference"  # the smallest difference that such data can show


class Direction(StrEnum):
    """Where a score is shown to be, relative to its ideal."""

    ABOVE = "above"
    BELOW = "below"
    NOT_SHOWN = "not_shown"  # the interval contains the ideal, or the test does not reject it
    UNKNOWN = "unknown"  # nothing tells: there is no ideal, or neither an interval nor a test


class Caution(StrEnum):
    """What a reader of a score must know, although the score has a value."""

    ONE_TEMPLATE = "one_template"
    ONE_SIDED = "one_sided"
    THESE_PROMPTS = "these_prompts"

    @property
    def text(self) -> str:
        """The caution as a clause."""
        return CAUTION_TEXTS[self]


CAUTION_TEXTS = {
    Caution.ONE_TEMPLATE: "there is one template, so this is FGB*, for this template only and for independent answers",
    Caution.ONE_SIDED: "of intervals from one template with two responses per descriptor, up to 8.7 % begin above the "
    "true value, instead of 2.5 %",
    Caution.THESE_PROMPTS: "somebody has few templates in common with others, so single answers are compared, and what "
    "is shown holds for these prompts only",
}


Signature: TypeAlias = JsonObject  # model, data, settings and versions that determine a score


@dataclass(frozen=True)
class BiasScore:
    """A score with all information needed to interpret and reproduce it.

    Attributes:
        metric: name of the metric, such as "fgb".
        value: the score in natural units; NaN if undefined, with a `reason`.
        ideal: the value of an unbiased model; None if the metric is only meaningful in a comparison of models.
        bounds: range of the metric; infinite where the metric is unbounded.
        n: number of rows from which the value is computed.
        interval: 95 % confidence interval for fixed descriptors and templates, cut to the bounds, or None if undefined.
        p_value: p-value of the test that the metric's docstring describes.
        n_left_out: number of rows that the metric could not use.
        group: the subset of rows, as values by column, such as {"axis": "age"}; {} for all rows.
        reason: why the value or the interval is undefined.
        standard_error: the standard error, if the metric's paper defines a standard error.
        signature: model, data, settings and versions that determine the value.
        form: which statistic of the metric it is, such as pooled_corrected of "fgb".
        kind: whether it is a level, a change between two runs, or what the data can detect.
        caution: what a reader must know of a defined score, or None.
        n_of: the plural noun of what `n` and `n_left_out` count, such as "pairs"; "" if the score does not say so.
        basis: what a second score must have in common with this one so that their difference means something, beside
            the metric: such as the sample of texts, the scale of an outcome or the tokenizer, as values by name.
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
    signature: Signature = field(default_factory=dict)
    form: Form = Form.PLAIN
    kind: Kind = Kind.LEVEL
    caution: Caution | None = None
    n_of: str = ""
    basis: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if math.isinf(self.value):
            object.__setattr__(self, "reason", self.reason or OVERFLOW)
            object.__setattr__(self, "value", math.nan)
        if self.interval is not None and not all(map(math.isfinite, self.interval)):
            object.__setattr__(self, "reason", self.reason or OVERFLOW)
            object.__setattr__(self, "interval", None)
        if self.interval is not None and self.bounds[0] <= self.value <= self.bounds[1]:
            low = max(self.interval[0], self.bounds[0])
            high = min(self.interval[1], self.bounds[1])
            object.__setattr__(self, "interval", (low, high))
        if math.isnan(self.value) and not self.reason:
            raise ValueError(f"{self.name}: an undefined value needs a reason")

    def __repr__(self) -> str:
        """Return the score on one line: its name and group, value, interval, and number of rows, or why it has none.

        >>> BiasScore("fgb", 0.01234567, 0.0, (0.0, 1.0), n=8, interval=(0.01, 0.02), group={"axis": "age"})
        BiasScore(fgb {'axis': 'age'}: 0.01235 [0.01, 0.02], n=8)
        >>> BiasScore("fgb", math.nan, 0.0, (0.0, 1.0), n=1, reason="there is one descriptor")
        BiasScore(fgb: nan, n=1, there is one descriptor)
        """
        group = f" {dict(self.group)}" if self.group else ""
        interval = f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]" if self.interval else ""
        reason = f", {self.reason}" if self.reason else ""
        return f"BiasScore({self.name}{group}: {self.value:.4g}{interval}, n={self.n}{reason})"

    @property
    def name(self) -> str:
        """The name by which charts and trackers show the score: the metric, its form and its kind.

        >>> BiasScore("fgb", 0.2, 0.0, (0.0, 1.0), n=8, form=Form.POOLED_CORRECTED, kind=Kind.DIFFERENCE).name
        'fgb_pooled_corrected_difference'
        """
        words = [self.metric]
        if self.form != Form.PLAIN:
            words.append(self.form)
        if self.kind != Kind.LEVEL:
            words.append(self.kind)
        return "_".join(words)


def write_scores(path: Path, scores: Sequence[BiasScore]) -> None:
    """Write scores to the JSON file `path` and to a CSV file of the same name.

    The JSON file contains each distinct signature once; score records contain the signature's hash. NaN and infinity
    are null in JSON and empty in CSV.
    """
    signatures = {}
    records = []
    for score in scores:
        key = _hash(score.signature)
        signatures[key] = score.signature
        record = {field.name: _finite(getattr(score, field.name)) for field in fields(score)}
        record["signature"] = key
        records.append(record)
    write_json(path, {"signatures": signatures, "scores": records})
    write_text(path.with_suffix(".csv"), _csv(records))


def read_scores(path: Path | str) -> list[BiasScore]:
    """Return the scores in a JSON file that `write_scores` wrote.

    Raises:
        InputError: the file cannot be read, or does not contain scores in the format of this version.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        return [_score_of(record, content["signatures"]) for record in content["scores"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(
            path, f"contains no scores of this version ({error}); give the folder of a finished `evenhand measure`."
        ) from None


def _score_of(record: Mapping[str, Any], signatures: Mapping[str, JsonObject]) -> BiasScore:
    """Return the score in a record of a file of scores."""
    low, high = record["bounds"]
    values = {
        **record,
        "value": math.nan if record["value"] is None else record["value"],
        "bounds": (-math.inf if low is None else low, math.inf if high is None else high),
        "interval": None if record["interval"] is None else tuple(record["interval"]),
        "signature": signatures[record["signature"]],
        "form": Form(record["form"]),
        "kind": Kind(record["kind"]),
        "caution": None if record["caution"] is None else Caution(record["caution"]),
    }
    return BiasScore(**values)


def display_name(name: str) -> str:
    """Return the name of a model or file for reports and model cards.

    Absolute paths are shortened to the last three parts; other names are returned unchanged.

    >>> display_name("/home/me/runs/loop/exchange/tune/adapter"), display_name("org/model")
    ('exchange/tune/adapter', 'org/model')
    """
    return "/".join(PurePath(name).parts[1:][-3:]) if PurePath(name).is_absolute() else name


def signature_line(score: BiasScore) -> str:
    """Return the signature of a score as one citable line; equal measurements have equal lines.

    The line contains the metric and the group, the model (m), the data (d), the classifier (c), the seed (s), the
    number of rows (n), a hash of the whole nested signature (h), and the version of Evenhand (v).

    >>> import re
    >>> signature = {"model": {"name": "gpt2", "revision": "607a30d"}, "seed": 0, "packages": {"evenhand": "0.2.0"}}
    >>> score = BiasScore("fgb", 0.25, 0.0, (0.0, 1.0), n=8, group={"axis": "age"}, signature=signature)
    >>> re.sub("h:[0-9a-f]{12}", "h:…", signature_line(score))
    'fgb[axis=age]|m:gpt2@607a30d|s:0|n:8|h:…|v:0.2.0'
    """
    signature = score.signature
    cut = ",".join(f"{name}={value}" for name, value in score.group.items())
    parts = [score.name + (f"[{cut}]" if cut else "")]
    for letter, names in LETTERS.items():
        entry = next((signature[name] for name in names if signature.get(name) is not None), None)
        if entry is not None:
            parts.append(f"{letter}:{_named(entry) if isinstance(entry, Mapping) else entry}")
    parts.append(f"n:{score.n}")
    parts.append(f"h:{_hash(signature)}")
    packages = signature.get("packages")
    version = packages.get("evenhand") if isinstance(packages, Mapping) else None
    if version:
        parts.append(f"v:{version}")
    return "|".join(parts)


# Letters of a signature line, and the keys of the nested signature that each letter represents.
LETTERS = {
    "m": ("model", "translations"),
    "d": ("dataset", "references"),
    "c": ("style_classifier", "offensiveness_classifier"),
    "s": ("seed",),
}


def _named(entry: JsonObject) -> str:
    """Return the name and the revision, or the hash, of a model or a data set in a signature."""
    name = display_name(str(entry.get("name") or ""))
    version = entry.get("revision") or entry.get("sha256")
    if version:
        return f"{name}@{str(version)[:7]}"
    return name or _hash(entry)


def _hash(value: Json) -> str:
    return json_sha256(value)[:12]


def _csv(records: Sequence[dict[str, Any]]) -> str:
    cuts = dict.fromkeys(column for record in records for column in group_columns(record["group"]))
    columns = ["metric", "form", "kind", *cuts, "value", "low", "high", "ideal"]
    columns += ["standard_error", "p_value", "n", "n_of", "n_left_out", "reason", "caution", "signature"]
    rows = []
    for record in records:
        low, high = record["interval"] or (None, None)
        rows.append(group_columns(record["group"]) | record | {"low": low, "high": high})
    return csv_text(columns, rows)


def group_columns(group: Mapping[str, str]) -> dict[str, str]:
    """Return the values of a score's group by the names of their columns in tables of scores.

    >>> group_columns({"axis": "age", "value": "en"})  # the class of an outcome, not the value of the score
    {'axis': 'age', 'group_value': 'en'}
    """
    return {f"group_{name}" if name == "value" else name: value for name, value in group.items()}


def signed(scores: Iterable[BiasScore], signature: Signature) -> list[BiasScore]:
    """Return scores with the signature of their run, and with what each score adds to it."""
    return [replace(score, signature={**signature, **score.signature}) for score in scores]


def find_score(
    scores: Iterable[BiasScore], metric: str, form: Form = Form.PLAIN, kind: Kind = Kind.LEVEL, **group: str
) -> BiasScore | None:
    """Return the first score of a metric, form, kind and group, or None if no score matches."""
    for score in scores:
        if (score.metric, score.form, score.kind) == (metric, form, kind) and dict(score.group) == group:
            return score
    return None


def shown_direction(score: BiasScore | None) -> Direction:
    """Return where a score is shown to be, relative to its ideal.

    The 95 % interval must exclude the ideal, and the p-value must be below 0.05, as far as the score has them: the
    bootstrap interval of a few rows is too narrow. A score that has neither is not shown to be at its ideal.

    >>> score = BiasScore("fgb", 0.2, 0.0, (0.0, 1.0), n=8)
    >>> shown_direction(score).value, shown_direction(replace(score, interval=(0.1, 0.3))).value
    ('unknown', 'above')
    """
    if score is None or score.ideal is None or math.isnan(score.value):
        return Direction.UNKNOWN
    if score.interval is None and score.p_value is None:
        return Direction.UNKNOWN
    low, high = score.interval or (score.value, score.value)
    is_rejected = score.p_value is None or score.p_value < LEVEL
    if is_rejected and low > score.ideal:
        return Direction.ABOVE
    if is_rejected and high < score.ideal:
        return Direction.BELOW
    return Direction.NOT_SHOWN


def why_not_comparable(before: BiasScore, after: BiasScore) -> str:
    """Return why the difference of two scores would mean nothing; "" if they have one unit, scale, sample and basis.

    >>> nats = {"tokenizer": "gpt2"}
    >>> old = BiasScore("perplexity", 20.0, None, (1.0, math.inf), n=8, basis=nats)
    >>> why_not_comparable(old, old)
    ''
    >>> why_not_comparable(old, replace(old, value=9.0, basis={"tokenizer": "phi"}))
    "the tokenizer is 'phi' after and 'gpt2' before"
    """
    facts = []
    for score in (before, after):
        measure = {"measure": f"{score.metric}, {score.form}", "range": str(score.bounds)}
        facts.append({**measure, **score.basis})
    for name in dict.fromkeys([*facts[0], *facts[1]]):
        old, new = (values.get(name) for values in facts)
        if old != new:
            return f"the {name} is {new!r} after and {old!r} before"
    return ""


def levels_of_run(scores: Iterable[BiasScore], run: str) -> list[BiasScore]:
    """Return the levels among a run's scores as a comparison keeps them: in the group of the run, before or after."""
    return [replace(score, group={**score.group, columns.RUN: run}) for score in scores if score.kind == Kind.LEVEL]


def common_levels(changes: Iterable[BiasScore], run: str) -> list[BiasScore]:
    """Return the levels of a run, before or after, that a comparison kept because they are of the common rows only."""
    levels = []
    for score in changes:
        if score.kind == Kind.LEVEL and score.group.get(columns.RUN) == run:
            group = {key: value for key, value in score.group.items() if key != columns.RUN}
            levels.append(replace(score, group=group))
    return levels


def comparable_levels(own: Iterable[BiasScore], changes: Sequence[BiasScore], run: str) -> list[BiasScore]:
    """Return the levels of one of two compared runs, to print next to the changes.

    A level that the comparison has is computed from the rows that both runs have, as the change is; any other level is
    the run's own.

    Args:
        own: the scores of the run.
        changes: the scores of the comparison.
    """
    common = common_levels(changes, run)
    known = [(score.metric, score.form, score.kind, dict(score.group)) for score in common]
    alone = [score for score in own if (score.metric, score.form, score.kind, dict(score.group)) not in known]
    return [*common, *alone]


def _finite(value: Json) -> Json:
    """Return a value with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
