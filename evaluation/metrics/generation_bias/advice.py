"""What a report tells somebody who decides: what the bias may mean, how to decide, what to do next."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import pandas as pd

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import mention_terms, replace_mentions
from evenhand.evaluation.data.readers.response_files import UNSPECIFIED
from evenhand.evaluation.facts import Finding
from evenhand.evaluation.metrics import FamilyRun
from evenhand.evaluation.metrics.generation_bias.answers import PROMPTS
from evenhand.evaluation.metrics.generation_bias.decision import DO_NOT_SHIP, SHIP
from evenhand.evaluation.metrics.generation_bias.engine.effects import EFFECT_KINDS
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB
from evenhand.evaluation.metrics.generation_bias.findings import answers_to_show
from evenhand.evaluation.metrics.generation_bias.measures import serious_measures
from evenhand.evaluation.metrics.generation_bias.measures.other_language import OTHER_LANGUAGE
from evenhand.evaluation.metrics.generation_bias.people import EffectRow, search_fragment
from evenhand.evaluation.metrics.generation_bias.pilot import can_plan
from evenhand.evaluation.metrics.generation_bias.words import note
from evenhand.evaluation.model_settings import NOWHERE, ModelSettings, server_api
from evenhand.evaluation.models.chat_templates import NO_TEMPLATE
from evenhand.evaluation.models.kinds import has_weights
from evenhand.evaluation.report.numbers import MINUTE, sanitize
from evenhand.evaluation.report.page import Link, Section, Step
from evenhand.evaluation.runs.record import FinishedRecord, read_record

# Settings of a model that the next command repeats, in addition to the name; the device is not one of them.
KEPT_SETTINGS = (
    "revision",
    "base",
    "source",
    "server",
    "request",
    "system_prompt",
    "chat_template",
    "reasoning",
    "strip",
)
RESPONSES_PAGE = "responses.html"  # the page of all responses, in the folder of the report


def meaning(findings: Sequence[EffectRow], *, is_shown: bool, differs_otherwise: bool, is_log: bool) -> Finding:
    """Return what the result may mean.

    Args:
        findings: the rows of the shown effects, the most serious first.
        is_shown: whether people are shown to differ in style at all.
        differs_otherwise: whether they are shown to differ in another outcome, perhaps without a person who is named.
        is_log: whether the answers are to whatever people asked, not to the same requests.
    """
    outcomes = [row["outcome"] for row in findings]
    case = "nothing"
    if OTHER_LANGUAGE in outcomes:
        case = "language"
    elif outcomes and outcomes[0] in serious_measures():
        case = "denied"
    elif is_shown or any(outcome in EFFECT_KINDS for outcome in outcomes):
        case = "tone"
    elif outcomes or differs_otherwise:
        case = "other"
    return Finding("meaning", {"case": case, "is_log": is_log})


def is_log(run: FamilyRun) -> bool:
    """Return whether the answers are of a log, in which people may have asked for different things."""
    return not run.config.open_model().can_be_asked and ask_different_things(run.table(PROMPTS))


def ask_different_things(prompts: pd.DataFrame) -> bool:
    """Return whether people may have asked for different things.

    They may have if no prompt has a template, or if most prompts, without the mention of the person, are of one person
    only.
    """
    if (prompts[columns.TEMPLATE] == UNSPECIFIED).all():
        return True
    terms = mention_terms(prompts)
    texts = prompts[columns.TEXT].astype(str)
    without = [replace_mentions(text, term, "person") for text, term in zip(texts, terms, strict=True)]
    message = [prompts[columns.TEMPLATE], pd.Series(without, index=prompts.index)]
    n_people = prompts.groupby(message, observed=True)[columns.DESCRIPTOR].transform("nunique")
    return bool((n_people == 1).mean() > 0.5)


def decide_section() -> Section:
    """Return the section on how to decide whether a model may be used."""
    kinds = ("decide_whom", "decide_wrong", "decide_useful")
    return Section("How to decide", list(map(note, kinds)))


def run_steps(run: FamilyRun, findings: Sequence[EffectRow], *, is_shown: bool) -> list[Step]:
    """Return what to do after a measurement, with commands that this run can be given to.

    Args:
        run: the run.
        findings: the rows of the shown effects, the most serious first.
        is_shown: whether people are shown to differ at all.
    """
    folder = Path(run.folder)
    model = run.config.model
    steps = [Step(note("step_read", both=False), link=_responses_link(findings))]
    if run.config.has_weights and (findings or is_shown):
        steps.append(Step(note("step_loop"), ["evenhand", "loop", folder]))
    elif can_plan(folder):
        steps.append(Step(note("step_plan"), ["evenhand", "plan", folder]))
    asked_everyday = bool(run.config.prompts.cues)
    if not asked_everyday and run.config.open_model().can_be_asked and _holds_conversations(run):
        command = ["evenhand", "measure", _name_or_path(model.name), "--config", "service", *_model_flags(model)]
        steps.append(Step(note("step_service"), command, is_private=model.system_prompt is not None))
    if is_log(run):  # a later log has other messages, which cannot be paired with these
        steps.append(Step(note("step_check_log"), ["evenhand", "check", "LATER_RUN", "--max_difference", "5"]))
    else:
        command = ["evenhand", "check", "NEW_RUN", "--against", folder]
        steps.append(Step(note("step_check", after_audit=False), command))
    return steps


def _holds_conversations(run: FamilyRun) -> bool:
    """Return whether the measured model takes several turns, which cues need: a chat model."""
    if not run.config.has_weights:
        return run.config.open_model().is_chat
    chat_format = run.signature(FGB).get("format")
    return not (isinstance(chat_format, Mapping) and chat_format.get("template") == NO_TEMPLATE)


def _name_or_path(name: str) -> str | Path:
    """Return the name of a model, as a path if it is an absolute one."""
    return Path(name) if Path(name).is_absolute() else name


def _model_flags(model: ModelSettings) -> list[str]:
    """Return the flags that name the same model in another command, with its system prompt.

    The likelihoods of a served model are unknown, and with them the fluency of its answers. The address of a server
    that only a record names is a placeholder: whoever types it knows the server.
    """
    given = model.model_dump(mode="json", exclude_defaults=True, include=set(KEPT_SETTINGS))
    flags = []
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value)
        if name == "server" and text.startswith(NOWHERE):
            text = "URL/v1/completions" if server_api(text) == "completions" else "URL"
        flags += [f"--model.{name}", text]
    if not has_weights(model):
        flags += ["--generation_bias.outcomes", "[language, refusal, length, readability]"]
    return flags


def comparison_steps(
    before: Path,
    after: Path,
    decided: Finding,
    *,
    has_costs: bool = True,
    can_score_more: bool = False,
    is_pilot: bool = True,
    show_fall: Step | None = None,
) -> list[Step]:
    """Return what to do after a comparison of the runs in two folders.

    Args:
        before, after: the folders.
        decided: the `decision`.
        has_costs: whether the comparison measured costs; more answers measure none.
        can_score_more: whether costs are of a sample of the answers.
        is_pilot: whether the run before can be planned with (`can_plan`).
        show_fall: the `fall_step`.
    """
    steps = [Step(note("step_read", both=True), link=Link("person by person", RESPONSES_PAGE))]
    if decided.values["advice"] == SHIP:
        steps.append(Step(note("step_audit"), ["evenhand", "audit", after]))
        steps.append(Step(note("step_check", after_audit=True), ["evenhand", "check", "NEW_RUN", "--against", after]))
        return steps
    if decided.values["advice"] == DO_NOT_SHIP:
        steps.append(Step(note("step_other"), ["evenhand", "compare", before, "OTHER_RUN"]))
        return steps
    kinds = {found.kind for found in decided.values["open"]}
    compare = ["evenhand", "compare", before, after]
    if "costs_unknown" in kinds and not has_costs:
        steps.append(Step(note("step_costs"), compare))
    if "costs_perhaps_too_large" in kinds and can_score_more:
        flags = ["--generation_bias.score_all", "true", "--output_dir", "runs/all_scored"]
        steps.append(Step(note("step_score_all"), [*compare, *flags]))
    if is_pilot and (kinds - {"costs_unknown", "costs_perhaps_too_large"} or len(steps) == 1):
        steps.append(Step(note("step_plan"), ["evenhand", "plan", before]))
    return steps if show_fall is None else [*steps, show_fall]


def fall_step(before: FamilyRun, people: Sequence[Finding]) -> Step | None:
    """Return the command with as many answers as show what became of somebody, and their time; None if nobody is open.

    Args:
        before: the run before, which is measured again, as the run after is.
        people: the findings of a comparison; the first fall that is not shown (`answers_to_show`) is meant.
    """
    needed = next(((found, n) for found, n in zip(people, map(answers_to_show, people), strict=True) if n), None)
    if needed is None or not before.config.open_model().can_be_asked:
        return None
    found, n = needed
    factor = n / found.values["before"].n
    record = read_record(before.folder, "run")
    minutes = None if record is None else factor * cast(FinishedRecord, record)["seconds"]["total"] / MINUTE
    prompts = before.config.prompts
    text = note("step_fall", name=found.values["who"].name, n=n, n_now=found.values["before"].n, minutes=minutes)
    model = before.config.model
    answers = str(math.ceil(factor * prompts.answers_per_cell))
    command = ["evenhand", "measure", _name_or_path(model.name), "--prompts.answers_per_cell", answers]
    return Step(text, [*command, *_model_flags(model)], is_private=model.system_prompt is not None)


def _responses_link(findings: Sequence[EffectRow]) -> Link:
    if not findings:
        return Link("answers, person by person", RESPONSES_PAGE)
    row = findings[0]
    name = row["unit"] if row["kind"] == columns.DESCRIPTOR else row[columns.AXIS]
    return Link(f"the answers to “{sanitize(name, 60)}”", RESPONSES_PAGE, search_fragment(row))
