"""Generation bias: prompts → responses → style vectors → scores, each kept on disk as it ends (002, A.7)."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.datasets.style_clusters import load_style_clusters
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.generation_bias.collect.prompts import measurement_prompts
from evenhand.evaluation.families.generation_bias.collect.response_file import (
    answered,
    forget_response_file,
    given_signature,
    write_prompts,
)
from evenhand.evaluation.families.generation_bias.collect.responses import (
    classify_in_parts,
    cleaned,
    likelihoods_of_responses,
    refuse_silence,
    respond,
    response_likelihoods,
    response_table,
)
from evenhand.evaluation.families.generation_bias.collect.rows import (
    PROMPTS,
    RESPONSES,
    SECOND_STYLES,
    STYLES,
    StyledRun,
    read_styled_run,
    some_texts,
    style_tables,
)
from evenhand.evaluation.families.generation_bias.collect.served import served_responses, served_signature
from evenhand.evaluation.families.generation_bias.costs.capability import CAPABILITIES, capability_scores
from evenhand.evaluation.families.generation_bias.costs.relevance import LIKELIHOODS, likelihood_scores
from evenhand.evaluation.families.generation_bias.costs.scores import (
    perplexity_score,
    style_share,
    text_scores,
    unfinished_share,
)
from evenhand.evaluation.families.generation_bias.metric import generation_bias
from evenhand.evaluation.families.generation_bias.settings import (
    FIRST,
    OFFENSIVE,
    SECOND,
    classifiers,
    neutral_dialogue,
    wanted_classifiers,
)
from evenhand.evaluation.families.offensiveness.metric import THRESHOLD, offensive_share
from evenhand.evaluation.models.batches import free_gpu_memory
from evenhand.evaluation.models.capabilities import capability_rows, load_tasks
from evenhand.evaluation.models.classifier_labels import classifier_labels, find_label, labels_sha256
from evenhand.evaluation.models.contexts import prompt_format
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.loading import load_control_tag, load_dialogue_model
from evenhand.evaluation.models.styles import load_style_classifier, to_style_vectors
from evenhand.evaluation.results import DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEXT, UNSEEN, BiasScore
from evenhand.evaluation.rows import blocks
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.environment import package_versions
from evenhand.evaluation.runs.files import sha256_of, write_json
from evenhand.evaluation.runs.run import Run
from evenhand.evaluation.settings import CheckpointSettings, ClassifierSettings, as_settings, model_signature

__all__ = ["measure", "write_prompts"]

SAMPLES_TRACKED = 200
NEUTRAL = "neutral"  # the table of likelihoods of ordinary dialogue
OFFENSIVENESS = "offensiveness"  # the table of how probably each response is offensive
MODEL_FACTS = "model.json"  # what a signature says of the model, and only the loaded model knows


def measure(run: Run, config: MeasureConfig) -> list[BiasScore]:
    """Write prompts, responses and style vectors into the run's folder; return the scores."""
    if not config.responses:
        run.ensure(PROMPTS, lambda: measurement_prompts(config))
    ask = _given if config.responses else _served if config.model.server else _asked
    described = ask(run, config)
    judges = classifiers(config)
    for name, table in ((FIRST, STYLES), (SECOND, SECOND_STYLES)):
        if name in judges:
            _classify(run, judges[name], name, table)
    measured = read_styled_run(run.folder)
    if OFFENSIVE in judges and not run.has(OFFENSIVENESS):
        with run.step(OFFENSIVENESS):
            run.write(OFFENSIVENESS, _offensiveness(run, judges[OFFENSIVE], measured, config))
    return processes.on_rank_zero(lambda: _scores(run, config, measured, described))


def _scores(run: Run, config: MeasureConfig, measured: StyledRun, described: Mapping[str, Any]) -> list[BiasScore]:
    """Return the scores of what was written; `described` is what a signature says of the model."""
    judges = classifiers(config)
    facts = {name: _facts(name, run, config) for name in judges}
    signature = _signature(run, config, described, facts[FIRST])
    scores = _bias(run, config, measured, signature, facts)
    scores += text_scores(measured, signature)
    if not config.responses:
        scores += unfinished_share(run.read(RESPONSES), signature)
    if config.settings.relevance and config.loads_model:
        scores += likelihood_scores(measured.shared, run.read(LIKELIHOODS), signature)
    if OFFENSIVE in judges:
        rows = run.read(OFFENSIVENESS)
        scores.append(offensive_share(rows["offensiveness"].to_numpy(), {**signature, OFFENSIVE: facts[OFFENSIVE]}))
    if config.capabilities:
        asked = {**signature, "lm_eval": version("lm_eval")}
        scores += capability_scores(run.read(CAPABILITIES), asked)
    if neutral_dialogue(config) is not None and config.loads_model:
        scores.append(perplexity_score(run.read(NEUTRAL), signature))
    run.facts["rows"] = len(measured)
    shown = some_texts(measured, np.random.default_rng(0).permutation(len(measured))[:SAMPLES_TRACKED])
    run.tracker.table("samples", shown[[DESCRIPTOR, TEXT, RESPONSE]])
    return scores


def _given(run: Run, config: MeasureConfig) -> dict[str, Any]:
    """Write the responses that came in a file; return what a signature says of them."""

    def write_tables() -> dict[str, Any]:
        if not (run.has(PROMPTS) and run.has(RESPONSES)):
            with run.step(RESPONSES):
                prompts, responses = answered(config)
                run.write(PROMPTS, prompts)
                run.write(RESPONSES, responses)
        signature = given_signature(config)
        forget_response_file()
        return signature

    return processes.on_rank_zero(write_tables)


def _served(run: Run, config: MeasureConfig) -> dict[str, Any]:
    """Write what a server answers; return what a signature says of it."""
    prompts = run.read(PROMPTS)
    arguments = decoding(config.decoding.preset, **config.decoding.arguments)
    _refuse_repeated(prompts, arguments, config)
    run.facts["server"] = config.model.server
    responses = run.table(RESPONSES, lambda: response_table(prompts, served_responses(run, config, prompts)))
    refuse_silence(responses[RESPONSE].tolist())
    return {**served_signature(config), "decoding": dict(arguments)}


def _asked(run: Run, config: MeasureConfig) -> dict[str, Any]:
    """Write what the model answers and makes of it; return what a signature says of it."""
    prompts = run.read(PROMPTS)
    arguments = decoding(config.decoding.preset, **config.decoding.arguments)
    _refuse_repeated(prompts, arguments, config)
    tag = config.settings.control_tag
    tag = load_control_tag(config.place(config.model.name, "model")) if tag is None else tag
    _ask(run, config, tag, arguments, prompts)
    facts = json.loads((run.folder / MODEL_FACTS).read_text(encoding="utf-8"))
    model = {**model_signature(config.model, run.inputs), "dtype": facts["dtype"], "control_tag": tag}
    dataset = {"name": str(config.prompts.file or config.prompts.dataset)}
    return {"model": model, "format": facts["format"], "dataset": dataset, "decoding": dict(arguments)}


def _refuse_repeated(prompts: pd.DataFrame, arguments: Mapping[str, Any], config: MeasureConfig) -> None:
    """Refuse a file's repeated prompts where they would be answered alike: one response would be taken for several.

    What `sample_cells` repeats is no mistake: a cell's contexts are independent draws, and so are their answers.
    """
    repeated = int(prompts.duplicated([TEXT, PERSONA]).sum())
    if repeated and config.prompts.file and not arguments.get("do_sample"):
        raise InputError(
            f"decoding: {config.decoding.preset!r} answers a context the same every time, and {repeated} of "
            f"{len(prompts)} prompts of {config.prompts.file} are repeated; sample, or write 1 as `repeats` and "
            "a persona for each."
        )


def _ask(run: Run, config: MeasureConfig, tag: str, arguments: Mapping[str, Any], prompts: pd.DataFrame) -> None:
    """Write what needs the dialogue model, which is loaded for what is not on disk yet and gone at the end.

    That is its responses, how likely they are to it, how likely ordinary dialogue is, and what else it can do.
    """
    tasks = load_tasks(config.capabilities)  # a name that is none shows before hours of answers
    settings = replace(config.model, name=config.place(config.model.name, "model"))
    model = cache(lambda: load_dialogue_model(settings))
    sampling = {"seed": config.seed, "batch_size": config.decoding.batch_size, "run": run}

    if processes.is_rank_zero() and not (run.folder / MODEL_FACTS).exists():
        dtype = str(model().model.dtype).removeprefix("torch.")  # what "auto" was
        write_json(run.folder / MODEL_FACTS, {"dtype": dtype, "format": prompt_format(model())})
    if not run.has(RESPONSES):
        with run.step(RESPONSES):
            run.write(RESPONSES, response_table(prompts, respond(model(), prompts, tag, arguments, **sampling)))
    responses = run.read(RESPONSES)[RESPONSE].tolist()
    refuse_silence(responses)
    if config.settings.relevance and not run.has(LIKELIHOODS):
        with run.step(LIKELIHOODS):
            run.write(LIKELIHOODS, likelihoods_of_responses(run, LIKELIHOODS, model(), prompts, responses, tag))
    if (path := neutral_dialogue(config)) is not None:
        pairs = load_neutral_dialogue(path)
        run.ensure(NEUTRAL, lambda: response_likelihoods(model(), pairs, tag))
    if tasks:
        run.ensure(CAPABILITIES, lambda: capability_rows(model(), tasks))
    model.cache_clear()
    free_gpu_memory()


def _classify(run: Run, judge: CheckpointSettings, name: str, table: str) -> None:
    """Write the style vectors of all responses, where they are not on disk yet."""
    if not run.has(table):
        with run.step(table):
            run.write(table, _style_tables(run, judge, name, table))
    free_gpu_memory()


def _style_tables(run: Run, judge: CheckpointSettings, name: str, table: str) -> Iterator[pd.DataFrame]:
    """Return the style vectors of all responses, in parts of a table."""
    prompts, responses = run.read(PROMPTS), run.read(RESPONSES)
    classifier = load_style_classifier(judge, name)
    texts = cleaned(responses[RESPONSE], prompts[DESCRIPTOR])
    vectors, cut = classify_in_parts(run, table, classifier, texts)
    parts = ((place, to_style_vectors(classifier, some)) for place, some in blocks(vectors))
    return style_tables(prompts[PROMPT_ID], parts, classifier.labels, cut)


def _offensiveness(run: Run, judge: ClassifierSettings, measured: StyledRun, config: MeasureConfig) -> pd.DataFrame:
    classifier = load_style_classifier(judge, OFFENSIVE)
    label = find_label(classifier.labels, config.settings.offensiveness.label, classifier.name, "offensiveness.label")
    # As they are, as in paper 002: no descriptor is replaced.
    found = classify_in_parts(run, OFFENSIVENESS, classifier, measured.responses)[0]
    of_label = np.concatenate([some[:, label] for _, some in blocks(found)])
    return pd.DataFrame({PROMPT_ID: measured.prompts[PROMPT_ID], "offensiveness": of_label})


def _facts(name: str, run: Run, config: MeasureConfig) -> dict[str, Any]:
    """Return what a score's signature says of the classifier behind it; its name is the one that was given."""
    found, judge = as_settings(wanted_classifiers(config)[name]), classifiers(config)[name]
    del found["device"], found["device_map"]  # two runs on two devices can be compared
    labels = classifier_labels(judge.name, judge.revision, judge.base)
    found |= {"revision": run.inputs[name], "labels_sha256": labels_sha256(labels)}
    if name == FIRST:
        found["clusters"] = config.settings.style_clusters
    return found | ({"threshold": THRESHOLD} if name == OFFENSIVE else {})


def _signature(
    run: Run, config: MeasureConfig, described: Mapping[str, Any], judge: Mapping[str, Any]
) -> dict[str, Any]:
    prompts = sha256_of(run.folder / f"{PROMPTS}.parquet")
    return {
        **described,
        "dataset": {**described["dataset"], "sha256": prompts},
        FIRST: judge,
        "inputs": dict(run.inputs),
        "seed": config.seed,
        "packages": package_versions(),
    }


def _bias(
    run: Run, config: MeasureConfig, measured: StyledRun, signature: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[BiasScore]:
    """Return generation bias and its cuts, FGB of seen and of unseen prompts, and as the second classifier sees it.

    Groups: `seen` "yes" and "no", `classifier` "second"; the latter's signature has the second classifier's facts.
    """
    clusters = load_style_clusters(config.settings.style_clusters, measured.styles)
    with run.step("scores"):
        scores = generation_bias(
            measured.styled(),
            clusters,
            permutations=config.settings.permutations,
            seed=config.seed,
            signature=signature,
        )
        if UNSEEN in measured.shared:
            unseen = measured.shared[UNSEEN].to_numpy(dtype=bool)
            for answer, rows in (("yes", ~unseen), ("no", unseen)):
                scores += _overall(measured.rows(rows), {"seen": answer}, signature)
        if SECOND in facts:
            second = read_styled_run(run.folder, second=True)
            scores += _overall(second, {"classifier": "second"}, {**signature, FIRST: facts[SECOND]})
        return scores + style_share(measured.vectors, clusters, signature)


def _overall(measured: StyledRun, group: Mapping[str, str], signature: Mapping[str, Any]) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB* over all rows, named by `group`, without cuts and without a test."""
    styled = replace(measured.styled(), axis=np.zeros(len(measured), dtype=np.int8))  # one axis is not cut by
    scores = generation_bias(styled, {}, permutations=0, signature=signature)
    return [replace(score, group=dict(group)) for score in scores if not score.group]
