"""Generation bias: prompts → responses → style vectors → scores, each kept on disk as it ends (002, A.7)."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from evaluation.datasets.holistic_bias import generate, load_taxonomy
from evaluation.datasets.prompt_files import load_personas, read_prompts
from evaluation.datasets.prompts import same_cells, sample_cells, select, split, unseen_rows
from evaluation.errors import InputError
from evaluation.files import sha256_of
from evaluation.generation import decoding, generate_responses, prompt_seed, render_contexts
from evaluation.metrics.generation_bias import generation_bias
from evaluation.metrics.offensiveness import THRESHOLD, offensive_share
from evaluation.metrics.style_share import style_share
from evaluation.models import DialogueModel, load_dialogue_model, model_revision
from evaluation.progress import progress
from evaluation.report import Page
from evaluation.results import DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEXT, UNSEEN, BiasScore
from evaluation.styles import (
    StyleClassifier,
    clean_response,
    label_index,
    label_probability,
    load_style_classifier,
    load_style_clusters,
    style_vectors,
)
from recipes import testbed
from recipes.batches import gather
from recipes.config import TESTBED, MeasureConfig, resolve
from recipes.costs import perplexity_score, text_scores
from recipes.reports import measurement_page
from recipes.runs import Run, packages
from recipes.tables import (
    NEUTRAL,
    OFFENSIVENESS,
    PROMPTS,
    RESPONSES,
    SECOND_STYLES,
    STYLES,
    StyledRun,
    read_styled_run,
    read_table,
    write_styles,
    write_table,
)

PARTS = "responses"
SAMPLES_TRACKED = 200
FIRST, SECOND, OFFENSIVE = CLASSIFIERS = ("style_classifier", "second_style_classifier", "offensiveness_classifier")
AUTO = "auto"


def inputs(config: MeasureConfig) -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: something cannot be read; the second style classifier is the first one again.
    """
    paths = classifier_paths(config)
    found = {
        "model": model_revision(resolve(config.model, testbed.DIALOGUE_MODEL), config.revision),
        **{name: model_revision(path, None) for name, path in paths.items()},
        "dataset": sha256_of(config.prompts_file) if config.prompts_file else load_taxonomy(config.dataset).sha256,
        **{
            name: sha256_of(Path(value))
            for name in ("personas", "style_clusters", "neutral_dialogue")
            if (value := getattr(config, name)) and Path(value).is_file()
        },
    }
    if found[FIRST] == found.get(SECOND):
        raise InputError(f"{SECOND}: {paths[SECOND]} is the first one again, and confirms nothing; give another.")
    return found


def measure(run: Run, config: MeasureConfig, inputs: Mapping[str, Any]) -> list[BiasScore]:
    """Write prompts, responses and style vectors into the run's folder; return the scores."""
    arguments = decoding(config.decoding, **config.decoding_arguments)
    folder, paths = run.folder, classifier_paths(config)
    classifiers = {name: load_style_classifier(path, field=name) for name, path in paths.items()}
    clusters = load_style_clusters(config.style_clusters, classifiers[FIRST].labels)
    if OFFENSIVE in classifiers:
        label_index(classifiers[OFFENSIVE], config.offensive_label, "offensive_label")
    if not (folder / PROMPTS).exists():
        with run.step("prompts"):
            write_table(folder / PROMPTS, measurement_prompts(config))
    prompts = read_table(folder / PROMPTS)
    repeated = int(prompts.duplicated([TEXT, PERSONA]).sum())
    if repeated and not arguments.get("do_sample"):
        raise InputError(
            f"decoding: {config.decoding!r} answers a context the same every time, and {repeated} of "
            f"{len(prompts)} prompts are repeated; give --personas default, or a smaller --per_cell."
        )
    model = load_dialogue_model(
        resolve(config.model, testbed.DIALOGUE_MODEL),
        revision=config.revision,
        dtype=config.dtype,
        trust_remote_code=config.trust_remote_code,
    )
    tag = model.control_tag if config.control_tag is None else config.control_tag
    if not (folder / RESPONSES).exists():
        with run.step("responses"):
            responses = respond(model, prompts, tag, arguments, config.seed, config.batch_size, folder / PARTS)
        write_table(folder / RESPONSES, pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses}))
    classify_all(run, prompts, classifiers, config)
    measured = read_styled_run(folder)
    if not np.isfinite(measured.vectors).all(axis=1).any():
        raise InputError(f"responses: all {len(prompts)} are empty; check the model, its tag and decoding_arguments.")
    of_classifiers = {name: facts(name, classifier, config) for name, classifier in classifiers.items()}
    signature = {
        "model": {"name": config.model, "revision": model.revision, "dtype": config.dtype, "control_tag": tag},
        "dataset": {"name": str(config.prompts_file or config.dataset), "sha256": sha256_of(folder / PROMPTS)},
        "decoding": arguments,
        FIRST: of_classifiers[FIRST],
        "inputs": dict(inputs),
        "seed": config.seed,
        "packages": packages(),
    }
    with run.step("scores"):
        scores = generation_bias(
            measured.styled(), clusters, permutations=config.permutations, seed=config.seed, signature=signature
        )
        scores += further_bias(folder, measured, signature, of_classifiers.get(SECOND))
        scores += style_share(measured.vectors, clusters, signature)
        scores += text_scores(measured, signature)
        if OFFENSIVE in classifiers:
            probability = read_table(folder / OFFENSIVENESS)["offensiveness"].to_numpy()
            scores.append(offensive_share(probability, {**signature, OFFENSIVE: of_classifiers[OFFENSIVE]}))
    if config.neutral_dialogue is not None:
        with run.step("perplexity"):
            scores.append(perplexity_score(model, tag, config, folder / NEUTRAL, signature))
    run.facts |= {"signature": signature, "classifiers": of_classifiers, "rows": len(prompts)}
    shown = measured.rows(np.random.default_rng(0).permutation(len(measured.responses))[:SAMPLES_TRACKED])
    run.tracker.table("samples", shown.prompts[[DESCRIPTOR, TEXT]].assign(response=shown.responses))
    return scores


def page(config: MeasureConfig) -> Page:
    """Return the report of a run whose scores are on disk."""
    return measurement_page(config.output_dir, config.model)


def classifier_paths(config: MeasureConfig) -> dict[str, str]:
    """Return the model id or folder of each classifier that is wanted, by the name of its field.

    The second style classifier "auto" is the testbed's second beside the testbed's first, and none beside any other:
    the testbed's know its sentences alone.

    Raises:
        InputError: an offensiveness classifier without its label, or a label without a classifier.
    """
    if (config.offensiveness_classifier is None) != (config.offensive_label is None):
        raise InputError(
            f"offensive_label: {config.offensive_label!r} with offensiveness_classifier "
            f"{config.offensiveness_classifier!r}; give both: the classifier, and its label that means offensive."
        )
    embedded = {FIRST: testbed.STYLE_CLASSIFIER, SECOND: testbed.SECOND_STYLE_CLASSIFIER}
    names = {name: _wanted(name, config) for name in CLASSIFIERS}
    return {
        name: resolve(wanted, embedded[name]) if name in embedded else wanted
        for name, wanted in names.items()
        if wanted is not None
    }


def _wanted(name: str, config: MeasureConfig) -> str | None:
    """Return a classifier's name as the config has it, "auto" resolved."""
    wanted = getattr(config, name)
    if name == SECOND and wanted == AUTO:
        return TESTBED if config.style_classifier == TESTBED else None
    return wanted


def facts(name: str, classifier: StyleClassifier, config: MeasureConfig) -> dict[str, Any]:
    """Return what a score's signature says of the classifier behind it."""
    found = {
        "name": _wanted(name, config),
        "revision": classifier.revision,
        "labels_sha256": classifier.labels_sha256,
    }
    if name == FIRST:
        found["clusters"] = config.style_clusters
    if name == OFFENSIVE:
        found |= {"label": config.offensive_label, "threshold": THRESHOLD}
    return found


def classify_all(
    run: Run, prompts: pd.DataFrame, classifiers: Mapping[str, StyleClassifier], config: MeasureConfig
) -> None:
    """Write what each classifier says of each response, where that is not on disk yet."""
    folder, ids = run.folder, prompts[PROMPT_ID]
    responses = read_table(folder / RESPONSES)[RESPONSE].tolist()
    for name, file, step in ((FIRST, STYLES, "styles"), (SECOND, SECOND_STYLES, "second styles")):
        if name in classifiers and not (folder / file).exists():
            with run.step(step):
                vectors = classify(classifiers[name], responses, prompts[DESCRIPTOR].tolist(), description=step)
            write_styles(folder / file, ids, vectors, classifiers[name].labels)
    if OFFENSIVE in classifiers and not (folder / OFFENSIVENESS).exists():
        label = label_index(classifiers[OFFENSIVE], config.offensive_label, "offensive_label")
        with run.step("offensiveness"), progress(len(responses), "offensiveness", "responses") as advance:
            # As they are, as in paper 002: no descriptor is replaced.
            found = label_probability(classifiers[OFFENSIVE], label, responses, on_progress=advance)
        write_table(folder / OFFENSIVENESS, pd.DataFrame({PROMPT_ID: ids, "offensiveness": found}))


def further_bias(
    folder: Path, measured: StyledRun, signature: dict[str, Any], second: dict[str, Any] | None
) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB* of seen and of unseen prompts, and as the second classifier sees everything.

    Groups: `seen` "yes" and "no", `classifier` "second"; the latter's signature has the second classifier's facts.
    """
    found = []
    if UNSEEN in measured.prompts:
        unseen = measured.prompts[UNSEEN].to_numpy(dtype=bool)
        found += overall_bias(measured.rows(~unseen), {"seen": "yes"}, signature)
        found += overall_bias(measured.rows(unseen), {"seen": "no"}, signature)
    if second:
        found += overall_bias(
            read_styled_run(folder, second=True), {"classifier": "second"}, {**signature, FIRST: second}
        )
    return found


def overall_bias(measured: StyledRun, group: dict[str, str], signature: dict[str, Any]) -> list[BiasScore]:
    """Return FGB, FGB* and pooled FGB* over all rows, named by `group`, without cuts and without a test."""
    styled = replace(measured.styled(), axis=[""] * len(measured.prompts))  # one axis is not cut by
    scores = generation_bias(styled, {}, permutations=0, signature=signature)
    return [replace(score, group=group) for score in scores if not score.group]


def measurement_prompts(config: MeasureConfig) -> pd.DataFrame:
    """Return one row per response to be asked for, sampled by cell from the chosen side of the split.

    With `unseen_by`, the train side lacks the prompts of the unseen values; any other has all of them, with a column
    `unseen` that marks those.

    Raises:
        InputError: `unseen_by` of prompts that both sides of the split do not have alike.
    """
    if config.prompts_file:
        if config.unseen_by:
            raise InputError("unseen_by: a prompts_file is taken whole; give a dataset folder, or leave unseen_by out.")
        return read_prompts(config.prompts_file).to_pandas()
    prompts = select(generate(load_taxonomy(config.dataset)), **config.filters)
    if config.split != "all":
        train, held_out = split(prompts, config.split_by, config.train_fraction, config.seed)
        prompts = train if config.split == "train" else held_out
        if config.unseen_by and not same_cells(train, held_out):
            raise InputError(
                f"unseen_by: split by {config.split_by}, the two sides do not have the same templates and descriptors, "
                "so that seen and unseen would not be what is measured. Split by noun, or drop filters."
            )
    personas: Sequence[str] = ()
    if config.personas != "none":
        personas = load_personas(None if config.personas == "default" else Path(config.personas))
    sampled = sample_cells(
        prompts,
        config.per_cell,
        config.seed,
        descriptors=config.descriptors,
        personas=personas,
        variations=config.variations,
    )
    rows = sampled.to_pandas()
    if config.unseen_by is None:
        return rows
    # The sample is drawn first, and the same on both sides: what is dropped here is what is marked there.
    unseen = unseen_rows(sampled, config.unseen_by, config.unseen_fraction, config.seed)
    return rows[~unseen].reset_index(drop=True) if config.split == "train" else rows.assign(**{UNSEEN: unseen})


def respond(
    model: DialogueModel,
    prompts: pd.DataFrame,
    tag: str,
    arguments: dict[str, Any],
    seed: int,
    batch_size: int,
    parts: Path | None = None,
) -> list[str]:
    """Return one response per prompt row; batches already in the folder `parts` are read, not generated again.

    Without such a folder nothing is kept and no progress is shown.
    """
    contexts = render_contexts(model, prompts[TEXT].tolist(), prompts[PERSONA].tolist(), tag)
    seeds = [prompt_seed(prompt_id, seed) for prompt_id in prompts[PROMPT_ID]]

    def batches(first: int) -> Iterator[tuple[list[int], list[str]]]:
        return generate_responses(model, contexts, seeds, arguments, batch_size=batch_size, first=first)

    if parts:
        return gather(parts, [RESPONSE], len(prompts), batches, "responses", "responses")[RESPONSE].tolist()
    responses = {row: text for rows, texts in batches(0) for row, text in zip(rows, texts, strict=True)}
    return [responses[row] for row in range(len(prompts))]


def classify(
    classifier: StyleClassifier,
    responses: Sequence[str],
    descriptors: Sequence[str],
    quiet: bool = False,
    description: str = "styles",
) -> np.ndarray:
    """Return the style vector (n, S) of each response, cleaned of its prompt's descriptor first (002 A.6)."""
    cleaned = [clean_response(*pair) for pair in zip(responses, descriptors, strict=True)]
    with nullcontext(_nothing) if quiet else progress(len(cleaned), description, "responses") as advance:
        return style_vectors(classifier, cleaned, on_progress=advance)


def _nothing(n: int) -> None:
    """Take the place of a progress bar."""
