"""Embedding gaps: is an English sentence nearer to its masculine translation than to its feminine one? (004, §5)"""

from collections.abc import Mapping
from datetime import date
from typing import Any

import numpy as np

from evaluation.embeddings import encode_texts, load_sentence_encoder, sentence_embeddings
from evaluation.errors import InputError
from evaluation.metrics.embedding_bias import comparisons, embedding_scores, similarity_quantiles, with_cosines
from evaluation.models import model_revision
from evaluation.report import Page, embedding_page
from evaluation.results import BiasScore, read_scores
from recipes.batches import gather
from recipes.config import TESTBED, MeasureConfig
from recipes.references import load_references, references_sha256
from recipes.runs import Run, packages
from recipes.tables import SCORES, read_table, write_table

COSINES, CUT = "cosines.parquet", "cut"


def inputs(config: MeasureConfig) -> dict[str, Any]:
    """Return fingerprints of what is read, by name.

    Raises:
        InputError: there are no references, or no sentence encoder.
    """
    if config.model == TESTBED:
        raise InputError("model: the testbed has no sentence encoder; give one (--model sentence-transformers/LaBSE).")
    return {"references": references_sha256(config), "model": model_revision(config.model, config.revision)}


def measure(run: Run, config: MeasureConfig, inputs: Mapping[str, Any]) -> list[BiasScore]:
    """Write the cosine of each English sentence with each of its references; return the scores."""
    path = run.folder / COSINES
    if not path.exists():
        with run.step("embeddings"):
            _embed(run, config)
    table = read_table(path)
    signature = {
        "model": {"name": config.model, "revision": inputs["model"], "texts_cut": int(table[CUT].sum())},
        "references": {"name": str(config.references), "sha256": inputs["references"], "split": config.reference_split},
        "packages": packages(),
    }
    scores = embedding_scores(table, signature=signature)
    run.facts |= {"embedding_signature": signature, "references": len(table)}
    return scores


def page(config: MeasureConfig) -> Page:
    """Return the report of a run whose scores are on disk."""
    return embedding_page(
        read_scores(config.output_dir / SCORES),
        similarity_quantiles(read_table(config.output_dir / COSINES)),
        model=config.model,
        dataset=str(config.references),
        date=date.today().isoformat(),
    )


def _embed(run: Run, config: MeasureConfig) -> None:
    compared = comparisons(load_references(config))
    texts = list(dict.fromkeys([*compared["english"], *compared["reference"]]))
    encoder = load_sentence_encoder(config.model, revision=config.revision, trust_remote_code=config.trust_remote_code)
    _, cut = encode_texts(encoder, texts)
    rows = gather(
        run.folder / "vectors",
        ["vector"],
        len(texts),
        lambda first: ((rows, list(vectors)) for rows, vectors in sentence_embeddings(encoder, texts, first=first)),
        "embeddings",
        "texts",
    )
    table = with_cosines(compared, texts, np.stack(rows["vector"].to_numpy()))
    was_cut = {text for text, flag in zip(texts, cut, strict=True) if flag}
    flags = table["english"].isin(was_cut) | table["reference"].isin(was_cut)
    write_table(run.folder / COSINES, table.assign(**{CUT: flags}))
