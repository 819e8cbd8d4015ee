"""The command `measure`: scores of a model, and a report for each family of metrics."""

import logging
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from evenhand.evaluation import columns
from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.facts import FACTS, Facts, Finding, write_facts
from evenhand.evaluation.files import json_sha256, write_text
from evenhand.evaluation.json_values import Json
from evenhand.evaluation.metrics import FamilyConfig, FamilyRun, check_declared
from evenhand.evaluation.metrics.generation_bias.advice import RESPONSES_PAGE
from evenhand.evaluation.metrics.generation_bias.answer_labels import answer_labels, named_people
from evenhand.evaluation.metrics.generation_bias.answers import (
    ACCEPTED,
    PROMPTS,
    read_answers,
)
from evenhand.evaluation.metrics.generation_bias.classification import STYLE_CLASSIFIER, read_unread
from evenhand.evaluation.metrics.generation_bias.compared_runs import compared_responses, on_common_prompts
from evenhand.evaluation.metrics.generation_bias.early_stop import has_asked_enough, read_finished_stop
from evenhand.evaluation.metrics.generation_bias.engine.spread import FGB
from evenhand.evaluation.metrics.generation_bias.measurement_prompts import asked_prompts
from evenhand.evaluation.metrics.generation_bias.words import words
from evenhand.evaluation.metrics.screen import RANKS
from evenhand.evaluation.models.base import Model
from evenhand.evaluation.report.answers_page import ShownAnswers, answers_html
from evenhand.evaluation.report.output import REPORT, present
from evenhand.evaluation.report.page import Link, Page, Section
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.record import FINISHED, RunRecord, run_state
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.runs.store import Store
from evenhand.evaluation.score import SCORES, BiasScore, display_name, write_scores
from evenhand.evaluation.tables import read_table
from evenhand.mitigation import methods
from evenhand.mitigation.page import tuned_on_warnings, tuning_method
from evenhand.recipes.audit_facts import read_criteria
from evenhand.recipes.automatic import with_precision
from evenhand.recipes.finished_runs import check_same_precision, read_measurement
from evenhand.recipes.plan import narrower_text
from evenhand.recipes.settings import FAMILIES, GENERATION_BIAS, MeasureSettings, family_config, groups_of

if TYPE_CHECKING:  # imports torch
    from evenhand.evaluation.models.loading import DialogueModel

log = logging.getLogger("evenhand")

# The beginnings of the names of settings, and of their inputs, that change no response.
SCORING = (
    "offensive_classifier",
    f"{GENERATION_BIAS}.offensiveness_classifier",
    f"{GENERATION_BIAS}.style_classifier",
    f"{GENERATION_BIAS}.second_style_classifier",
    f"{GENERATION_BIAS}.style_clusters",
    f"{GENERATION_BIAS}.accepted",
    f"{GENERATION_BIAS}.outcomes",
    f"{GENERATION_BIAS}.permutations",
    f"{GENERATION_BIAS}.corpus",
    f"{GENERATION_BIAS}.repeated_rows",
)
LINK = Link("answers, person by person", RESPONSES_PAGE)
SCREEN = "screen"  # the family that `--screen` measures first
SHARE_OF_FIRST = 0.1  # of the people, who may get more answers after a screen


def measure(
    settings: MeasureSettings,
    *,
    show: bool = True,
    for_comparisons: bool = False,
    loaded: "DialogueModel | None" = None,
    frame: dict[str, list] | None = None,
) -> None:
    """Measure a model with each family of metrics, or write the prompts for another program to answer.

    Args:
        show: print the report.
        for_comparisons: also score what comparisons with this run need.
        loaded: the model, if it is loaded already; `settings.model` then only names it.
        frame: the columns of responses in memory (`responses_in_frame`); `settings.responses` then only names them.
    """
    if settings.write_prompts:
        _write_prompts(settings)
        return
    configs_of = partial(family_configs, for_comparisons=for_comparisons, loaded=loaded, frame=frame)
    configs = configs_of(settings)
    inputs = processes.on_rank_zero(lambda: read_inputs(configs))
    if settings.criteria is not None:
        limits = read_criteria(settings.criteria).model_dump(exclude_defaults=True)
        inputs["criteria"] = {"sha256": json_sha256(limits)}
    if GENERATION_BIAS in configs and configs[GENERATION_BIAS].settings.against is not None:
        processes.on_rank_zero(lambda: _check_baseline(settings, configs[GENERATION_BIAS], inputs[GENERATION_BIAS]))
    precision = None if loaded is None else str(loaded.model.dtype).removeprefix("torch.")
    settings = with_precision(settings, settings.output_dir, precision)  # may import torch, so inputs are checked first
    configs = configs_of(settings)
    if run_state(settings.output_dir) != FINISHED:  # a finished run imports no slow library
        check_method_of(settings)
        if settings.model.name:
            configs[settings.metrics[0]].open_model().check()
        if loaded is None and any(FAMILIES[name].loads_model(config) for name, config in configs.items()):
            processes.on_rank_zero(configs[settings.metrics[0]].open_model().check_memory)
    if settings.screen_first:
        screened = screen_before(settings)
        measure(screened, show=False, loaded=loaded)
        more = processes.on_rank_zero(lambda: answers_after_screen(settings, screened.output_dir))
        settings = settings.replaced(prompts=settings.prompts.replaced(more_answers=more))
        configs = configs_of(settings)
    advice = partial(rescoring_advice, settings)
    with stage("measure", settings, inputs, advice, partial(has_all_answers, settings)) as store:
        scores: list[BiasScore] = []
        if store is not None:
            store.record["typed"] = typed_command()
            for name, config in configs.items():
                family_store = replace(store, inputs=inputs[name], family=name)
                collected = FAMILIES[name].collect(family_store, config)
                with family_store.step("scores"):
                    found = processes.on_rank_zero(partial(FAMILIES[name].score, family_store, config, collected))
                check_declared(name, found)
                scores += found
        processes.on_rank_zero(lambda: _finish(store, settings, scores, show=show))
    _check_read(settings.output_dir, names_folder=show)
    if show and GENERATION_BIAS in configs and processes.is_rank_zero():
        with suppress(InputError):  # a run without an interval can plan nothing
            print(narrower_text(settings.output_dir))


def check_method_of(settings: MeasureSettings) -> None:
    """Raise InputError if a model acts only with the method that tuned it, and is measured without the method."""
    name = tuning_method(settings.model.name)
    if not settings.has_weights or name not in methods.names():
        return
    method = methods.method_class(name)
    used = (settings.method or "").split(methods.JOIN)
    if issubclass(method, methods.TrainedMethod) and not method.changes_weights and name not in used:
        raise InputError(
            "method",
            f"{display_name(settings.model.name)} was tuned by {name}, which acts on the first tokens of a response "
            f"only; give {spelled('method', name)}.",
        )


def _write_prompts(settings: MeasureSettings) -> None:
    """Write the prompts of the only family for another program to answer."""
    (name,) = settings.metrics
    config = family_config(settings, name)
    write_prompts = FAMILIES[name].write_prompts
    n = processes.on_rank_zero(lambda: write_prompts(settings.write_prompts, config))
    log.info("measure: %s prompts are in %s", f"{n:,}", settings.write_prompts)


def screen_before(settings: MeasureSettings) -> MeasureSettings:
    """Return the settings of the screen of a measured model; its folder is next to that of the measurement.

    They are the settings of `evenhand screen`, so that a screen that is finished there is not made again.
    """
    folder = settings.output_dir
    alone = settings.replaced(
        screen_first=False,
        first_answers=None,
        prompts=settings.prompts.replaced(more_answers=None),
        capabilities=[],
        criteria=None,
        output_dir=folder.with_name(f"{folder.name}-{SCREEN}"),
    )
    return alone.replaced(metrics=[SCREEN], **dict.fromkeys(groups_of(FAMILIES) - groups_of([SCREEN])))


def answers_after_screen(settings: MeasureSettings, screened: Path) -> dict[str, int] | None:
    """Return how many answers the tenth of the people whom a screen ranks first get to a template; None: as others.

    Numbers that the settings name, such as those of an earlier run, are kept.
    """
    if settings.first_answers is None or settings.prompts.more_answers:
        return settings.prompts.more_answers
    ranked = read_table(screened / f"{RANKS}.parquet")[columns.DESCRIPTOR]
    first = ranked.head(math.ceil(len(ranked) * SHARE_OF_FIRST))
    return dict.fromkeys(map(str, first), settings.first_answers)


def typed_command() -> list[str] | None:
    """Return the command as the user typed it; None if the measurement was started from Python."""
    program = Path(sys.argv[0])
    return ["evenhand", *sys.argv[1:]] if program.name in ("evenhand", "__main__.py") else None


def _check_read(folder: Path, *, names_folder: bool) -> None:
    """Raise InputError if a style classifier could not read the responses of a finished run.

    `names_folder`: whether the error names the folder, which may be a temporary one in Python.
    """
    for name, fault in read_unread(folder).items():
        field = f"generation_bias.{name}"
        if names_folder:
            raise InputError(field, f"{words(fault)} What needs no styles is in {folder}.")
        raise InputError(field, words(fault))


def _check_baseline(settings: MeasureSettings, config: FamilyConfig, inputs: Mapping[str, Json]) -> None:
    """Raise InputError if a measurement cannot be compared with its baseline, before anything is asked."""
    field = f"{GENERATION_BIAS}.against"
    folder = config.settings.against
    baseline, record = read_measurement(folder, field, GENERATION_BIAS)
    check_same_precision(baseline, settings, field)
    old = record["inputs"][GENERATION_BIAS]
    is_equal = {
        STYLE_CLASSIFIER: old.get(STYLE_CLASSIFIER) == inputs.get(STYLE_CLASSIFIER),
        ACCEPTED: old.get(ACCEPTED) == inputs.get(ACCEPTED),
        "decoding": FamilyRun(folder).signature(FGB).get("decoding") == config.open_model().arguments,
    }
    for name, is_same in is_equal.items():
        if not is_same:
            raise InputError(field, f"{name} is another one in {folder}; measure one of the two again with the same.")
    known = set(read_table(folder / f"{PROMPTS}.parquet", [columns.PROMPT_ID])[columns.PROMPT_ID])
    n_missing = sum(prompt not in known for prompt in asked_prompts(config)[columns.PROMPT_ID])
    if n_missing:
        stop = read_finished_stop(folder)
        problem = f"{folder} lacks {n_missing:,} of the prompts"
        if stop is not None and stop.is_early:
            raise InputError(field, f"{problem}; {words(Finding('prompts_not_asked', stop.extent))}")
        raise InputError(field, f"{problem}; measure the baseline with the same prompts and seed.")


def family_configs(
    settings: MeasureSettings,
    *,
    for_comparisons: bool = False,
    loaded: "DialogueModel | None" = None,
    frame: dict[str, list] | None = None,
) -> dict[str, FamilyConfig]:
    """Return the config of each family's measurement, by the family's name; the other arguments are as in `measure`."""
    configs = {}
    for name in dict.fromkeys(settings.metrics):
        config = replace(family_config(settings, name, for_comparisons=for_comparisons), frame=frame)
        configs[name] = config if loaded is None else with_loaded(config, loaded)
    return configs


def read_inputs(configs: Mapping[str, FamilyConfig]) -> dict[str, dict[str, Json]]:
    """Return the fingerprints of the inputs of each family, by the family's name."""
    return {name: FAMILIES[name].inputs(config) for name, config in configs.items()}


def with_loaded(config: FamilyConfig, loaded: "DialogueModel") -> FamilyConfig:
    """Return the config of a measurement of a model that is loaded already."""
    from evenhand.evaluation.models.in_memory import InMemoryModel

    def wrap_model(named: Model) -> Model:
        model = InMemoryModel(loaded, named)
        return model if config.wrap_model is None else config.wrap_model(model)

    return replace(config, wrap_model=wrap_model)


def has_all_answers(settings: MeasureSettings, record: RunRecord) -> bool:
    """Return whether a finished run with this record has asked as much as the settings want."""
    family = getattr(settings, GENERATION_BIAS)
    return family is None or has_asked_enough(record, family)


def rescoring_advice(settings: MeasureSettings, changed: Sequence[str], folder: Path) -> str:
    """Return the advice to score a run's responses again, if only what scores them changed; else ""."""
    responses = folder / "responses.parquet"
    if getattr(settings, GENERATION_BIAS) is None or settings.method:  # the classifier may choose among responses
        return ""
    if not responses.exists() or not all(name.removeprefix("inputs.").startswith(SCORING) for name in changed):
        return ""
    return f", there with {spelled('responses', str(responses))} to score its responses again"


def _finish(store: Store | None, settings: MeasureSettings, scores: Sequence[BiasScore], *, show: bool) -> None:
    """Write a run's scores, facts and report, and print the report if `show`; of a finished run, `store` is None."""
    if store is not None:
        write_scores(store.folder / SCORES, scores)
        made = pages(settings)
        facts = facts_of(made)
        write_facts(store.folder / FACTS, facts)
        files = _present(settings, made, write=True, show=show)
        log_results("measurement", store, scores, facts, files)
    elif show:
        report(settings, write=False, show=True)


def log_results(
    name: str, store: Store, scores: Sequence[BiasScore], facts: Mapping[str, Facts], files: Mapping[Path, Page]
) -> None:
    """Log what a run found, its tables and its pages to the run's tracker; `name` is of the artifact."""
    store.tracker.log_artifact(f"{name}-tables", "dataset", *sorted(store.folder.glob("*.parquet")))
    store.tracker.log_scores(scores)
    store.tracker.log_facts(facts)
    store.tracker.log_report(files)
    store.tracker.log_artifact(name, "report", store.folder / SCORES, *files)


def facts_of(made: Mapping[str, Page]) -> dict[str, Facts]:
    """Return what the page of each family tells, by the family's name."""
    return {name: page.facts for name, page in made.items() if page.facts is not None}


def report(settings: MeasureSettings, *, write: bool, show: bool) -> dict[Path, Page]:
    """Write and print the reports of a finished run, and write the page of its responses; return them by path."""
    return _present(settings, pages(settings), write=write, show=show)


def _present(settings: MeasureSettings, made: Mapping[str, Page], *, write: bool, show: bool) -> dict[Path, Page]:
    """Write and print the pages of a finished run, and write the page of its responses; return the pages by path."""
    if write and GENERATION_BIAS in settings.metrics:
        write_responses(settings.output_dir, display_name(settings.model.name), settings.output_dir)
    return present(settings.output_dir, made, write=write, show=show)


def pages(settings: MeasureSettings) -> dict[str, Page]:
    """Return the report of each family of metrics in a finished run, by the family's name."""
    reports = {}
    for name, config in family_configs(settings).items():
        page = FAMILIES[name].page(FamilyRun(settings.output_dir, config))
        if name == GENERATION_BIAS:
            untuned_by = settings.prompts.untuned_by
            warnings = tuned_on_warnings(settings.output_dir, settings.model.name, untuned_by=untuned_by)
            page = replace(page, warnings=[*page.warnings, *warnings], links=[*page.links, LINK])
            if settings.screen_first:
                page = with_screen(page, screen_before(settings))
        reports[name] = page
    return reports


def with_screen(page: Page, screened: MeasureSettings) -> Page:
    """Return the report of a measurement with what its screen found; unchanged if the screen was moved or deleted."""
    folder = screened.output_dir
    if run_state(folder) != FINISHED:
        return page
    found = FAMILIES[SCREEN].page(FamilyRun(folder, family_config(screened, SCREEN)))
    link = Link("screen", f"../{folder.name}/{REPORT}.html")
    section = Section(
        "Screen: whose answers begin most differently", [found.verdict, *found.limits], found.sections[0].tables
    )
    return replace(page, sections=[*page.sections, section], links=[*page.links, link])


def write_responses(folder: Path, subtitle: str, before: Path, after: Path | None = None) -> Path:
    """Write the page of all responses of one run, or of two runs to the prompts that both have; return its path."""
    runs = {"answer": FamilyRun(before)}
    if after is None:
        answers = {"answer": read_answers(before)}
    else:
        *both, is_common = on_common_prompts(FamilyRun(before), FamilyRun(after))
        runs = dict(zip(("before", "after"), both, strict=True))
        answers = {side: compared_responses(run) for side, run in runs.items()}
        if not is_common.all():
            subtitle += f" · {is_common.sum():,} of {len(is_common):,} prompts are in both runs"
    sides = {}
    for side, run in runs.items():
        texts = answers[side].table[columns.RESPONSE].to_numpy()
        sides[side] = ShownAnswers(texts, answer_labels(run, answers[side]))
    prompts = next(iter(answers.values())).table
    page = answers_html("Answers", subtitle, prompts, sides, first=named_people(runs.values()))
    write_text(folder / RESPONSES_PAGE, page)
    return folder / RESPONSES_PAGE
