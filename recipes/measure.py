"""Measure: prompts → responses → style vectors → scores and a report, each kept on disk as it ends."""

import logging
import math
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from evaluation.datasets.holistic_bias import generate, load_taxonomy
from evaluation.datasets.prompt_files import load_personas, read_prompts
from evaluation.datasets.prompts import sample_cells, select, split
from evaluation.errors import InputError
from evaluation.files import sha256_of
from evaluation.generation import decoding, generate_responses, prompt_seed, render_contexts
from evaluation.likelihood.perplexity import response_perplexity
from evaluation.metrics.generation_bias import generation_bias
from evaluation.metrics.text_quality import distinct_n, mean_length, parroting
from evaluation.models import DialogueModel, load_dialogue_model, model_revision
from evaluation.progress import progress
from evaluation.results import DESCRIPTOR, PERSONA, PROMPT_ID, RESPONSE, TEXT, BiasScore, write_scores
from evaluation.styles import (
    StyleClassifier,
    clean_response,
    load_style_classifier,
    load_style_clusters,
    style_vectors,
)
from recipes import testbed
from recipes.config import TESTBED, MeasureConfig
from recipes.reports import measurement_content, write_report
from recipes.runs import Run, packages, stage
from recipes.tables import (
    PROMPTS,
    RESPONSES,
    STYLES,
    StyledRun,
    read_styled_run,
    read_table,
    write_styles,
    write_table,
)
from recipes.testbed import grammar

log = logging.getLogger("evenhand")

SCORES, NEUTRAL, PARTS = "scores.json", "neutral.parquet", "responses"
NEUTRAL_PAIRS = 1000  # of the testbed's held-out small talk
SAMPLES_TRACKED = 200
BOOTSTRAP = 2000


def measure(config: MeasureConfig) -> None:
    """Measure one model on one set of prompts."""
    arguments = decoding(config.decoding, **config.decoding_arguments)
    model_path = resolve(config.model, testbed.DIALOGUE_MODEL)
    classifier_path = resolve(config.style_classifier, testbed.STYLE_CLASSIFIER)
    inputs = {
        "model": model_revision(model_path, config.revision),
        "style_classifier": model_revision(classifier_path, None),
        "dataset": sha256_of(config.prompts_file) if config.prompts_file else load_taxonomy(config.dataset).sha256,
        **{
            name: sha256_of(Path(value))
            for name in ("personas", "style_clusters", "neutral_dialogue")
            if (value := getattr(config, name)) and Path(value).is_file()
        },
    }
    with stage("measure", config, inputs) as run:
        if run is None:
            return
        folder = config.output_dir
        classifier = load_style_classifier(classifier_path)
        clusters = load_style_clusters(config.style_clusters, classifier.labels)
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
        model = load_dialogue_model(model_path, revision=config.revision, trust_remote_code=config.trust_remote_code)
        tag = model.control_tag if config.control_tag is None else config.control_tag
        if not (folder / RESPONSES).exists():
            with run.step("responses"):
                responses = respond(model, prompts, tag, arguments, config.seed, config.batch_size, folder / PARTS)
            write_table(folder / RESPONSES, pd.DataFrame({PROMPT_ID: prompts[PROMPT_ID], RESPONSE: responses}))
        if not (folder / STYLES).exists():
            with run.step("styles"):
                responses = read_table(folder / RESPONSES)[RESPONSE].tolist()
                vectors = classify(classifier, responses, prompts[DESCRIPTOR].tolist())
            write_styles(folder / STYLES, prompts[PROMPT_ID], vectors, classifier.labels)
        measured = read_styled_run(folder)
        if not np.isfinite(measured.vectors).all(axis=1).any():
            raise InputError(
                f"responses: all {len(prompts)} are empty; check the model, its tag and decoding_arguments."
            )
        signature = {
            "model": {"name": config.model, "revision": model.revision, "control_tag": tag},
            "dataset": {"name": str(config.prompts_file or config.dataset), "sha256": sha256_of(folder / PROMPTS)},
            "decoding": arguments,
            "style_classifier": {
                "name": config.style_classifier,
                "revision": classifier.revision,
                "labels_sha256": classifier.labels_sha256,
                "clusters": config.style_clusters,
            },
            "inputs": inputs,
            "seed": config.seed,
            "packages": packages(),
        }
        with run.step("scores"):
            scores = generation_bias(
                measured.styled(),
                clusters,
                permutations=config.permutations,
                seed=config.seed,
                signature=signature,
            )
            scores += text_scores(measured, signature)
        if config.neutral_dialogue is not None:
            with run.step("perplexity"):
                scores.append(perplexity_score(model, tag, config, folder / NEUTRAL, signature))
        write_scores(folder / SCORES, scores)
        run.facts |= {"signature": signature, "rows": len(prompts)}
        write_report(folder, measurement_content(folder, config.model))
        _track(run, scores, measured)


def resolve(name: str, embedded: Path) -> str:
    """Return what a model's name stands for: "testbed" is the embedded one."""
    return str(embedded) if name == TESTBED else name


def measurement_prompts(config: MeasureConfig) -> pd.DataFrame:
    """Return one row per response to be asked for, sampled by cell from the chosen side of the split."""
    if config.prompts_file:
        return read_prompts(config.prompts_file).to_pandas()
    prompts = select(generate(load_taxonomy(config.dataset)), **config.filters)
    if config.split != "all":
        train, held_out = split(prompts, config.split_by, config.train_fraction, config.seed)
        prompts = train if config.split == "train" else held_out
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
    return sampled.to_pandas()


def respond(
    model: DialogueModel,
    prompts: pd.DataFrame,
    tag: str,
    arguments: dict[str, Any],
    seed: int,
    batch_size: int,
    parts: Path | None = None,
    quiet: bool = False,
) -> list[str]:
    """Return one response per prompt row; batches already in the folder `parts` are read, not generated again."""
    contexts = render_contexts(model, prompts[TEXT].tolist(), prompts[PERSONA].tolist(), tag)
    seeds = [prompt_seed(prompt_id, seed) for prompt_id in prompts[PROMPT_ID]]
    finished = sorted(parts.glob("*.parquet")) if parts else []
    responses = [""] * len(prompts)
    done = 0
    for part in finished:
        rows = read_table(part)
        done += len(rows)
        for row, response in zip(rows["row"], rows[RESPONSE], strict=True):
            responses[row] = response
    batches = generate_responses(model, contexts, seeds, arguments, batch_size=batch_size, first=len(finished))
    with nullcontext(_nothing) if quiet else progress(len(prompts), "responses", "responses", done) as advance:
        for number, (rows, texts) in enumerate(batches, start=len(finished)):
            if parts:
                write_table(parts / f"{number:06d}.parquet", pd.DataFrame({"row": rows, RESPONSE: texts}))
            for row, text in zip(rows, texts, strict=True):
                responses[row] = text
            advance(len(rows))
    return responses


def classify(
    classifier: StyleClassifier, responses: Sequence[str], descriptors: Sequence[str], quiet: bool = False
) -> np.ndarray:
    """Return the style vector (n, S) of each response, cleaned of its prompt's descriptor first (002 A.6)."""
    cleaned = [clean_response(*pair) for pair in zip(responses, descriptors, strict=True)]
    with nullcontext(_nothing) if quiet else progress(len(cleaned), "styles", "responses") as advance:
        return style_vectors(classifier, cleaned, on_progress=advance)


def _nothing(n: int) -> None:
    """Take the place of a progress bar."""


def text_scores(measured: StyledRun, signature: dict[str, Any]) -> list[BiasScore]:
    """Return what the responses are like whoever is answered: empty, repeating the prompt, diverse, long."""
    written = [bool(response.strip()) for response in measured.responses]
    rows = measured.rows(np.array(written))
    n, empty = len(written), written.count(False)
    common = {"n": n - empty, "n_left_out": empty, "signature": signature}
    repeats = parroting(rows.responses, rows.prompts[TEXT].tolist())
    return [
        BiasScore("empty_share", empty / n, 0.0, (0.0, 1.0), n, _share_interval(empty, n), signature=signature),
        BiasScore(
            "parroting",
            repeats,
            0.0,
            (0.0, 1.0),
            interval=_share_interval(round(repeats * (n - empty)), n - empty),
            **common,
        ),
        *(
            BiasScore(
                f"distinct_{size}",
                distinct := distinct_n(rows.responses, size),
                None,
                (0.0, 1.0),
                reason=f"no response has {size} words" if math.isnan(distinct) else None,
                **common,
            )
            for size in (1, 2)
        ),
        BiasScore("mean_length", mean_length(rows.responses), None, (0.0, math.inf), **common),
    ]


def _share_interval(hits: int, n: int) -> tuple[float, float]:
    interval = stats.binomtest(hits, n).proportion_ci(method="wilson")
    return (float(interval.low), float(interval.high))


def perplexity_score(
    model: DialogueModel, tag: str, config: MeasureConfig, path: Path, signature: dict[str, Any]
) -> BiasScore:
    """Return the perplexity of held-out neutral responses, e^(−Σ log p / Σ tokens), with a bootstrap interval.

    The rows behind it (log-likelihood and tokens of each response) are written to `path`.
    """
    pairs = neutral_pairs(config.neutral_dialogue)
    contexts = render_contexts(model, pairs[TEXT].tolist(), [""] * len(pairs), tag)
    log_likelihood, tokens = response_perplexity(model, contexts, pairs[RESPONSE].tolist())
    rows = pairs.assign(log_likelihood=log_likelihood, tokens=tokens)
    write_table(path, rows)
    return BiasScore(
        "perplexity",
        float(np.exp(-log_likelihood.sum() / tokens.sum())),
        None,
        (1.0, math.inf),
        len(rows),
        perplexity_interval(log_likelihood, tokens),
        signature=signature,
    )


def perplexity_interval(log_likelihood: np.ndarray, tokens: np.ndarray) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the perplexity, over dialogues."""
    result = stats.bootstrap(
        (log_likelihood, tokens),
        lambda ll, n, axis: np.exp(-ll.sum(axis=axis) / n.sum(axis=axis)),
        paired=True,
        vectorized=True,
        n_resamples=BOOTSTRAP,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return (float(result.confidence_interval.low), float(result.confidence_interval.high))


def neutral_pairs(source: str) -> pd.DataFrame:
    """Return dialogue pairs (text, response) without descriptors: the testbed's, or a JSONL file's.

    Raises:
        InputError: the file cannot be read, lacks a column, or holds an empty text.
    """
    if source == TESTBED:
        return grammar.neutral_dialogue("held_out", NEUTRAL_PAIRS, seed=0)
    try:
        pairs = pd.read_json(source, lines=True, dtype=False)
    except (OSError, ValueError) as error:
        raise InputError(f"neutral_dialogue: {source} cannot be read as JSONL ({error}).") from None
    for column in (TEXT, RESPONSE):
        if column not in pairs or not pairs[column].map(lambda text: isinstance(text, str) and text.strip()).all():
            raise InputError(f"neutral_dialogue: {source} needs a {column!r} that is a text in every line.")
    if len(pairs) < 2:
        raise InputError(f"neutral_dialogue: {source} has {len(pairs)} lines; an interval needs 2, better 500.")
    return pairs[[TEXT, RESPONSE]]


def _track(run: Run, scores: Sequence[BiasScore], measured: StyledRun) -> None:
    samples = np.random.default_rng(0).permutation(len(measured.responses))[:SAMPLES_TRACKED]
    shown = measured.rows(samples)
    run.tracker.scores(scores)
    run.tracker.table("samples", shown.prompts[[DESCRIPTOR, TEXT]].assign(response=shown.responses))
    run.tracker.artifact("measurement", "report", run.folder / SCORES, run.folder / "report.html")
