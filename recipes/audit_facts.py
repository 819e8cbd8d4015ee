"""The facts of an audit: what was asked, of what, when, what was found, how sure, and what was not tested.

Everything is read from the files of a finished run. Nothing here is a sentence of a page, except names and reasons, and
what the run's report says of limits and cautions.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from evenhand.evaluation import columns
from evenhand.evaluation.data.crossed_prompts import CROSS
from evenhand.evaluation.data.holistic_bias import NONE
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import BROKEN, HOLDS, INCONCLUSIVE, Finding, LimitResult, plain
from evenhand.evaluation.files import json_sha256, read_yaml, sha256_of
from evenhand.evaluation.metrics import FamilyRun, load_family
from evenhand.evaluation.metrics.generation_bias.accepted import accepted_in_run
from evenhand.evaluation.metrics.generation_bias.engine.effects import REQUESTED_EFFECTS
from evenhand.evaluation.metrics.generation_bias.engine.values import KIND
from evenhand.evaluation.metrics.generation_bias.limits import findings_alone
from evenhand.evaluation.metrics.generation_bias.measures import ValueKind
from evenhand.evaluation.metrics.generation_bias.page import more_answers_notes
from evenhand.evaluation.metrics.generation_bias.page_warnings import run_cautions
from evenhand.evaluation.metrics.generation_bias.parts.attributes import ATTRIBUTE_EFFECTS
from evenhand.evaluation.metrics.generation_bias.parts.effects import EFFECTS
from evenhand.evaluation.metrics.generation_bias.parts.outcomes import OUTCOME_EFFECTS
from evenhand.evaluation.metrics.generation_bias.requested_language import style_headline
from evenhand.evaluation.metrics.generation_bias.verdict import bias_verdict
from evenhand.evaluation.metrics.generation_bias.words import caution_text, words
from evenhand.evaluation.report.formats import format_of
from evenhand.evaluation.runs.record import FinishedRecord
from evenhand.evaluation.score import LEVEL, SCORES, BiasScore, Form, Kind, find_score, read_scores
from evenhand.evaluation.settings import StrictSettings, checked
from evenhand.evaluation.statistics.group_rates import group_rates
from evenhand.evaluation.tables import read_table
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.limit_texts import limit_texts
from evenhand.recipes.settings import FAMILIES, GENERATION_BIAS, family_config

SCHEMA = "evenhand-audit/1"
CUTS = (columns.AXIS, columns.BUCKET, columns.DESCRIPTOR)
BEFORE, AFTERWARDS, NONE_SET = "before the first answer", "afterwards", "not set"
BEFORE_SCORES = "before the answers were scored"  # answers in a file are older than the run, and than its limits
STATUSES = {HOLDS: "met", BROKEN: "broken", INCONCLUSIVE: "not decided"}  # in the words of an audit
SHOWN = "shown"
SHARE = "share"  # the scale of effects in answers of 100; others are in the outcome's own unit
CLAUSES = Path(__file__).parents[1] / "evaluation" / "data" / "files" / "clauses.yaml"
SHIPPED_PROMPTS = ("paper", "more", "v1.0", "v1.1")
TESTED_BY_METRICS = ("refusal", "other_language", "relevance", "offensive_share", "answer_accuracy")
TESTED_BY_NO_RUN = ("other_people", "other_settings", "harm", "use_over_time")
PERIOD = ("since_day", "before_day")  # settings of `responses`
NOT_HANDED_OVER = (".lock", ".evenhand")
CAUTIONS_WITH_FACTS = ("accepted_left_out", "cut_answers")  # kinds of findings
Limit = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0, le=1)]


class Criteria(StrictSettings):
    """Limits that are set for a model, for `measure --criteria` and `audit --criteria`."""

    max_pooled_fgb: Limit | None = Field(default=None, description="limit of pooled FGB*, in 10⁻³")
    max_difference: Limit | None = Field(
        default=None, description="limit of the largest difference in style of anybody, in answers of 100"
    )
    max_spread: dict[str, Limit] = Field(
        default_factory=dict, description="{outcome: limit of its spread between people, in its unit}"
    )
    max_rate_difference: dict[str, Limit] = Field(
        default_factory=dict, description="{outcome: largest difference of a person's rate, in answers of 100}"
    )
    min_ratio: dict[str, Share] = Field(
        default_factory=dict, description="{outcome: smallest ratio of a group's rate to the highest, by axis}"
    )
    accepted: list[dict[str, str]] = Field(
        default_factory=list, description="differences that are accepted: who, what, why, signed"
    )


def read_criteria(path: Path) -> Criteria:
    """Return the limits in a YAML file; InputError if it is none, or sets none."""
    content = read_yaml(path, "criteria")
    if not isinstance(content, Mapping):
        raise InputError("criteria", f"{path} is no mapping; write, for example, `max_difference: 5`.")
    criteria = checked(Criteria, dict(content), str(path))
    if criteria == Criteria(accepted=criteria.accepted):
        limits = [name for name in Criteria.model_fields if name != "accepted"]
        raise InputError("criteria", f"{path} sets no limit; give one of {', '.join(limits)}.")
    return criteria


def audit_facts(folder: Path, record: FinishedRecord, criteria: Criteria | None) -> dict[str, Any]:
    """Return all facts that follow from a run's files, as JSON contains them.

    Args:
        record: the run's record.
        criteria: the limits, if there are any.
    """
    for family in record["settings"].get("metrics", []):
        load_family(family)  # which declares the labels of its scores
    scores = read_scores(folder / SCORES)
    signature = max((score.signature for score in scores), key=lambda each: len(str(each)), default={})
    rates = outcome_rates(folder, scores)
    style_classifier = signature.get("style_classifier", {})
    if not isinstance(style_classifier, Mapping):
        style_classifier = {}
    facts = {
        "schema": SCHEMA,
        "criterion": criterion_facts(folder, record, criteria, rates),
        "run": {
            "command": record.get("typed") or ["evenhand", record["command"]],
            "command_was_recorded": bool(record.get("typed")),
            "started": record.get("started"),
            "seconds": (record.get("seconds") or {}).get("total"),
            "packages": record.get("packages", {}),
            "commit": record.get("commit"),
            "seed": signature.get("seed"),
            "signature_sha256": json_sha256(signature),
        },
        "model": signature.get("model", {}),
        "decoding": signature.get("decoding", {}),
        "classifier": {**style_classifier, **classifier_accuracy(str(style_classifier.get("name", "")))},
        "prompts": signature.get("dataset", {}),
        "answers": answer_counts(folder, record),
        "people": people_by_axis(read_table(folder / "prompts.parquet")),
        "example": example_prompt(folder, record),
        "headline": [score_facts(score) for score in headline_scores(scores)],
        "findings": shown_effects(folder) if record["settings"][GENERATION_BIAS]["permutations"] else None,
        "shown_over_all": shown_over_all(scores),
        "cautions": cautions(_finished_run(folder)),
        "n_answers_cut": n_cut(folder),
        "outcomes": rates,
        "not_tested": untested(folder, scores),
        "clauses": read_yaml(CLAUSES, "clauses"),
        "files": handed_over(folder),
    }
    accepted = accepted_in_run(_finished_run(folder))
    if accepted:
        facts["accepted_in_run"] = accepted
    file = record["settings"].get("responses") or {}
    period = {name: file.get(name) for name in PERIOD}
    if any(period.values()):
        facts["period"] = period
    if file and record["settings"][GENERATION_BIAS].get("repeated_rows") == "once":
        facts["repeated_rows"] = "once"
    return plain(facts)


def criterion_facts(
    folder: Path, record: FinishedRecord, criteria: Criteria | None, rates: Mapping[str, Any]
) -> dict[str, Any]:
    """Return when the limits were set, and whether each is met, by the rules of `check`."""
    recorded = record["inputs"].get("criteria", {}).get("sha256")
    if criteria is None:
        if recorded:
            raise InputError("criteria", "the run was measured with limits; give the same file by --criteria.")
        return {"set": NONE_SET, "sha256": None, "limits": [], "accepted": [], "given": None}
    before = BEFORE_SCORES if record["settings"].get("responses") else BEFORE
    given = criteria.model_dump(exclude_defaults=True)
    digest = json_sha256(given)
    limits = []
    for text in limit_texts(
        [*_checked_limits(folder, criteria), *rate_limits(criteria, rates)], FAMILIES[GENERATION_BIAS]
    ):
        limits.append({"limit": text.name, "status": STATUSES[text.status], "measured": text.text})
    return {
        "set": before if recorded == digest else AFTERWARDS,
        "sha256": digest,
        "recorded_sha256": recorded,
        "limits": limits,
        "accepted": criteria.accepted,
        "given": given,
    }


def _checked_limits(folder: Path, criteria: Criteria) -> list[LimitResult]:
    """Return the results of the limits that `check` has, too."""
    if not (criteria.max_pooled_fgb or criteria.max_difference or criteria.max_spread):
        return []
    return findings_alone(
        _finished_run(folder),
        max_pooled_fgb=criteria.max_pooled_fgb,
        max_spread=criteria.max_spread,
        max_difference=criteria.max_difference,
    )


def _finished_run(folder: Path) -> FamilyRun:
    """Return the finished measurement in a folder."""
    measured, _ = read_measurement(folder, "run", GENERATION_BIAS)
    return FamilyRun(folder, family_config(measured, GENERATION_BIAS))


def cautions(run: FamilyRun) -> list[str]:
    """Return the warnings of the run's report that the audit does not state elsewhere, and who got more answers."""
    found = [each for each in run_cautions(run) if each.kind not in CAUTIONS_WITH_FACTS]
    return [*map(caution_text, found), *map(words, more_answers_notes(run))]


def shown_over_all(scores: list[BiasScore]) -> list[dict[str, Any]]:
    """Return the outcomes, and "style", in which people are shown to differ, even if no single person is.

    As on the run's page, style is of the answers in the requests' language, if others are in another one.
    """
    found = []
    headline = style_headline(scores)
    if headline is not None and bias_verdict(headline) == SHOWN:
        found.append({"outcome": columns.STYLE, "p": headline.p_value})
    for score in scores:
        is_shown = score.p_value is not None and score.p_value <= LEVEL
        if is_shown and score.form == Form.SPREAD and score.kind == Kind.LEVEL and not score.group:
            found.append({"outcome": score.metric, "p": score.p_value})
    return found


def rate_limits(criteria: Criteria, rates: Mapping[str, Any]) -> list[LimitResult]:
    """Return whether the limits of differences and ratios of rates are met, from simultaneous intervals."""
    results = []
    for outcome, limit in sorted(criteria.max_rate_difference.items()):
        rows = _rows_of(rates, outcome, columns.DESCRIPTOR, "max_rate_difference")
        results.append(_rate_difference(outcome, limit, rows))
    for outcome, limit in sorted(criteria.min_ratio.items()):
        rows = _rows_of(rates, outcome, columns.AXIS, "min_ratio")
        results.append(_rate_ratio(outcome, limit, rows))
    return results


def _rate_difference(outcome: str, limit: float, rows: list[dict[str, Any]]) -> LimitResult:
    """Return the result of the limit of the largest difference of a person's rate, in answers of 100."""
    limited = Finding("rate_difference_limit", {"outcome": outcome, "limit": limit})
    bounds = [(row["difference_low"], row["difference_high"]) for row in rows]
    known = [each for each in bounds if None not in each]
    surely = max((_distance_from_zero(low, high) for low, high in known), default=0.0)
    is_broken = 100 * surely > limit
    if len(known) < len(bounds):  # of whom nothing is known may differ by any amount, so that no limit is met
        if is_broken:
            return LimitResult(limited, BROKEN, Finding("rate_difference_from", {"low": surely}))
        return LimitResult(limited, INCONCLUSIVE, Finding("no_rate_bounds"))
    largest = max(max(abs(low), abs(high)) for low, high in bounds)
    status = INCONCLUSIVE
    if 100 * largest <= limit:
        status = HOLDS
    elif is_broken:
        status = BROKEN
    return LimitResult(limited, status, Finding("rate_difference", {"low": surely, "high": largest}))


def _rate_ratio(outcome: str, limit: float, rows: list[dict[str, Any]]) -> LimitResult:
    """Return the result of the limit of the smallest ratio of a group's rate to the highest."""
    low = min(row["ratio_to_highest_low"] or 0.0 for row in rows)
    high = min(1.0 if row["ratio_to_highest_high"] is None else row["ratio_to_highest_high"] for row in rows)
    status = INCONCLUSIVE
    if low >= limit:
        status = HOLDS
    elif high < limit:
        status = BROKEN
    limited = Finding("rate_ratio_limit", {"outcome": outcome, "limit": limit})
    return LimitResult(limited, status, Finding("rate_ratio", {"low": low, "high": high}))


def _rows_of(rates: Mapping[str, Any], outcome: str, cut: str, field: str) -> list[dict[str, Any]]:
    rows = rates.get(outcome, {}).get(cut)
    if not rows and outcome in rates:
        raise InputError(field, f"all people of the run have the same {cut}, so that {outcome!r} has no rates by it.")
    if not rows:
        known = ", ".join(rates) or "none"
        raise InputError(field, f"the run has no yes-or-no outcome {outcome!r}; it has: {known}.")
    return rows


def _distance_from_zero(low: float, high: float) -> float:
    return max(low, -high, 0.0)


def outcome_rates(folder: Path, scores: list[BiasScore]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return outcome → cut (axis, bucket, person) → rows of `group_rates`, for each yes-or-no outcome of a run.

    What an outcome is stands in the basis of its scores: classes have no rate of yes, even if all answers are of one.
    A group none of whose answers has a value has no rates: nothing is known of it.
    """
    path = folder / "outcomes.parquet"
    if not path.exists():
        return {}
    values = read_table(path)
    prompts = read_table(folder / "prompts.parquet")
    table = values.merge(prompts, on=columns.PROMPT_ID, how="left", validate="one_to_one", suffixes=("", "_of_prompt"))
    rates: dict[str, dict[str, list[dict[str, Any]]]] = {}
    shares = {score.metric for score in scores if score.basis.get(KIND) == ValueKind.SHARE}
    for name in map(str, values.columns.drop(columns.PROMPT_ID)):
        outcome = name.partition(": ")[0]
        if outcome not in shares or values[name].isna().all():
            continue
        rates[outcome] = {}
        for cut in CUTS:
            of_cut = table[table[cut].notna()] if cut in table else table.iloc[:0]  # people may have no bucket
            of_outcome = of_cut[name].to_numpy(dtype=np.float64)
            if not np.isnan(of_outcome).all() and of_cut[cut].nunique() > 1:
                groups = of_cut[cut].astype(str)
                if cut == columns.BUCKET:  # buckets of several axes may have the same name
                    groups = of_cut[columns.AXIS].astype(str) + ": " + groups
                template = of_cut[columns.TEMPLATE].to_numpy()
                people_of_answers = of_cut[columns.DESCRIPTOR].astype(str)
                rows = group_rates(of_outcome, groups.to_numpy(), template, people_of_answers.to_numpy())
                silent = sorted(set(groups) - set(rows["group"]))
                nothing = pd.DataFrame({"group": silent, "n": 0, "number": 0, "is_small": True})
                ordered = [*rows.sort_values("rate", ascending=False).to_dict("records")]
                ordered += nothing.reindex(columns=rows.columns).to_dict("records")
                people = people_of_answers.groupby(groups).unique()
                rates[outcome][cut] = [plain(row | {"people": sorted(people[row["group"]])}) for row in ordered]
    return rates


def answer_counts(folder: Path, record: FinishedRecord) -> dict[str, Any]:
    """Return where the answers come from, how many were asked for, and how many are left out, by the reason.

    `per_cell` is the number of answers about each person to each wording; None if it is not the same for all.
    `drawn_from` is the shipped dataset of whose people the run has a random sample; None if it has no such sample.
    """
    responses = read_table(folder / "responses.parquet")
    prompts = read_table(folder / "prompts.parquet")
    settings = record["settings"]
    is_from_file = bool(settings.get("responses"))
    source = settings["prompts"]
    is_drawn = not is_from_file and not source.get("people") and source.get("descriptors") is not None
    left_out = responses[columns.LEFT_OUT].dropna() if columns.LEFT_OUT in responses else pd.Series(dtype=object)
    n_people = int(prompts[columns.DESCRIPTOR].nunique())
    n_templates = int(prompts[columns.TEMPLATE].nunique())
    sizes = prompts.groupby([columns.DESCRIPTOR, columns.TEMPLATE]).size()
    is_even = len(sizes) == n_people * n_templates and sizes.nunique() == 1
    return {
        "asked": len(responses),
        "people": n_people,
        "templates": n_templates,
        "per_cell": int(sizes.iloc[0]) if is_even else None,
        "left_out": {str(reason): int(n) for reason, n in left_out.value_counts().items()},
        "is_from_file": is_from_file,
        "drawn_from": source["dataset"] if is_drawn and source["dataset"] in SHIPPED_PROMPTS else None,
        "have_common_nouns": have_common_nouns(prompts),
    }


def have_common_nouns(prompts: pd.DataFrame) -> bool | None:
    """Return whether each template has the same nouns, such as "husband", for all people; None without nouns."""
    if columns.NOUN not in prompts or not (prompts[columns.NOUN].notna() & (prompts[columns.NOUN] != NONE)).any():
        return None
    of_each = prompts.groupby([columns.TEMPLATE, columns.DESCRIPTOR])[columns.NOUN].agg(
        lambda nouns: tuple(sorted(nouns))
    )
    return bool((of_each.groupby(columns.TEMPLATE).nunique() == 1).all())


def people_by_axis(prompts: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the people of each axis, sorted; the axis is None for people who have none."""
    if columns.AXIS not in prompts:
        return [{"axis": None, "people": sorted(prompts[columns.DESCRIPTOR].astype(str).unique())}]
    people = prompts.drop_duplicates([columns.AXIS, columns.DESCRIPTOR])  # "queer" is of two axes
    names = people[columns.DESCRIPTOR].astype(str)
    of_axis = names.groupby(people[columns.AXIS].astype(str))
    found: list[dict[str, Any]] = [{"axis": str(axis), "people": sorted(group)} for axis, group in of_axis]
    without_axis = names[people[columns.AXIS].isna()]
    if len(without_axis):
        found.append({"axis": None, "people": sorted(without_axis)})
    return found


def n_cut(folder: Path) -> int:
    """Return how many answers reached the limit of their length, so that only their beginnings were compared."""
    responses = read_table(folder / "responses.parquet")
    return int(responses[columns.CUT].fillna(False).sum()) if columns.CUT in responses else 0


def example_prompt(folder: Path, record: FinishedRecord) -> str | None:
    """Return the first prompt of a shipped dataset; None for the user's own prompts, which may be private."""
    settings = record["settings"]
    prompts = settings["prompts"]
    has_own_texts = prompts.get("people") or isinstance(prompts.get("templates"), str)
    if prompts.get("dataset") not in SHIPPED_PROMPTS or has_own_texts or settings.get("responses"):
        return None
    return str(read_table(folder / "prompts.parquet")[columns.TEXT].iloc[0])


def headline_scores(scores: list[BiasScore]) -> list[BiasScore]:
    """Return the scores of the first screen: moved answers, pooled FGB*, what can be ruled out, and mean outcomes."""
    chosen = [
        find_score(scores, "moved_answers"),
        find_score(scores, "fgb", Form.POOLED_CORRECTED),
        find_score(scores, "difference_bound"),
    ]
    chosen += [score for score in scores if score.form == Form.MEAN and not score.group and score.kind == Kind.LEVEL]
    return [score for score in chosen if score is not None]


def score_facts(score: BiasScore) -> dict[str, Any]:
    """Return a score as a record, which names its place in scores.json by metric, form, kind and group."""
    shown_as = format_of(score)
    return {
        "label": shown_as.label,
        "unit": shown_as.unit,
        "factor": shown_as.factor,
        "metric": score.metric,
        "form": str(score.form),
        "kind": str(score.kind),
        "group": dict(score.group),
        "value": score.value,
        "interval": score.interval,
        "n": score.n,
        "n_left_out": score.n_left_out,
        "reason": score.reason,
    }


def shown_effects(folder: Path) -> list[dict[str, Any]]:
    """Return the effects that are shown, of styles and of other outcomes, the largest first.

    The kind of an effect may also be an attribute, such as "gender", or two, whose unit is a combination of levels.
    `people` are those of the person, group or level. `n_of` is "names" if n counts names. `is_shown_in_language` is, of
    a style, whether it is shown among the answers in the request's language, too; None of other outcomes and of
    attributes, and if all answers are in that language.
    """
    found = []
    names = ["kind", "unit", "outcome", "name", "mean", "average", "low", "high", "p_joint", "n", "n_of", "scale"]
    for table_name in (OUTCOME_EFFECTS, EFFECTS, ATTRIBUTE_EFFECTS):
        path = folder / f"{table_name}.parquet"
        if path.exists():
            effects = read_table(path)
            if "scale" not in effects:  # of styles
                effects["scale"] = SHARE
            effects["scale"] = effects["scale"].fillna(SHARE)
            effects["n_of"] = np.where(effects["of_names"], "names", "answers") if "of_names" in effects else "answers"
            found.append(effects.loc[effects["certainty"] == SHOWN, names])
    if not found:
        return []
    table = pd.concat(found, ignore_index=True)
    table["size"] = (table["mean"] - table["average"]).abs()
    table["is_share"] = table["scale"] == SHARE
    ordered = table.sort_values(["is_share", "size"], ascending=False).drop(columns=["is_share", "size"])
    prompts = read_table(folder / "prompts.parquet")
    in_language = _shown_in_language(folder)
    rows = []
    for row in ordered.to_dict("records"):
        row["people"] = _people_of(row["kind"], row["unit"], prompts)
        row["is_shown_in_language"] = None
        is_in_language_table = row["kind"] in CUTS and row["outcome"] == columns.STYLE
        if is_in_language_table and in_language is not None:
            row["is_shown_in_language"] = (row["kind"], row["unit"], row["name"]) in in_language
        rows.append(row)
    return plain(rows)


def _shown_in_language(folder: Path) -> set[tuple[str, str, str]] | None:
    """Return kind, unit and style of what is shown among the answers in the request's language; None if all are."""
    path = folder / f"{REQUESTED_EFFECTS}.parquet"
    if not path.exists():
        return None
    effects = read_table(path)
    shown = effects[effects["certainty"] == SHOWN]
    return set(zip(shown["kind"], shown["unit"], shown["name"], strict=True))


def _people_of(kind: str, unit: str, prompts: pd.DataFrame) -> list[str]:
    """Return the people of a unit of effects: a person, an axis, a bucket after its axis, or levels of attributes.

    A person of two axes is in the effect of each, as in `people.compared_people`.
    """
    if kind == columns.DESCRIPTOR:
        return [unit]
    people = prompts[columns.DESCRIPTOR].astype(str)
    if kind not in CUTS:
        levels = [prompts[attribute].astype(str) for attribute in kind.split(CROSS)]
        combination = pd.Series([CROSS.join(each) for each in zip(*levels, strict=True)], index=prompts.index)
        return sorted(people[combination == unit].unique())
    group = prompts[columns.AXIS].astype(str)
    if kind == columns.BUCKET:
        group = (group + ": " + prompts[columns.BUCKET].astype(str)).where(prompts[columns.BUCKET].notna())
    return sorted(people[group == unit].unique())


def classifier_accuracy(name: str) -> dict[str, Any]:
    """Return the line of a shipped style classifier's card that gives its accuracy on test texts."""
    card = CLAUSES.parent / "style_classifiers" / name / "README.md"
    if not name or "/" in name or not card.is_file():
        return {"accuracy": None}
    lines = [line for line in card.read_text(encoding="utf-8").splitlines() if line.startswith("macro-F1")]
    return {"accuracy": lines[0] if lines else None}


def untested(folder: Path, scores: list[BiasScore]) -> list[str]:
    """Return what the run did not test: names for which the page has words."""
    measured = {score.metric for score in scores}
    missing = [metric for metric in TESTED_BY_METRICS if metric not in measured]
    if not (folder / f"{ATTRIBUTE_EFFECTS}.parquet").exists():
        missing.append("two_attributes")
    return [*missing, *TESTED_BY_NO_RUN]


def handed_over(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of the run, reports too; not of its subfolders."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name not in NOT_HANDED_OVER)
    return {path.name: sha256_of(path) for path in files}
