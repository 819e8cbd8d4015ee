"""Embedding gaps: is an English sentence nearer to its masculine translation than to its feminine one? (004, §5)"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.references import load_references
from evenhand.evaluation.families import MeasureConfig
from evenhand.evaluation.families.embedding_bias.metric import comparisons, embedding_scores, with_cosines
from evenhand.evaluation.models.embeddings import encode_texts, load_sentence_encoder, sentence_embeddings
from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.folders import Run, packages
from evenhand.evaluation.settings import model_signature

CUT = "cut"  # whether the encoder read less than the whole of one of the two texts


def measure(run: Run, config: MeasureConfig) -> list[BiasScore]:
    """Write the cosine of each English sentence with each of its references; return the scores."""
    table = run.table("cosines", lambda: _cosines(run, config), shared=True)
    run.facts["references"] = len(table)
    signature = _signature(run, config, int(table[CUT].sum()))
    return processes.on_rank_zero(lambda: embedding_scores(table, signature=signature))


def _signature(run: Run, config: MeasureConfig, texts_cut: int) -> dict[str, Any]:
    settings = config.settings
    return {
        "model": model_signature(config.model, run.inputs) | {"texts_cut": texts_cut},
        "references": {"name": str(settings.references), "sha256": run.inputs["references"], "split": settings.split},
        "languages": settings.languages,
        "packages": packages(),
    }


def _cosines(run: Run, config: MeasureConfig) -> pd.DataFrame:
    """Return `with_cosines` of the references, and whether a text of the row was cut."""
    compared = comparisons(
        load_references(config.settings.references, config.settings.split, config.settings.languages)
    )
    texts = list(dict.fromkeys([*compared["english"], *compared["reference"]]))
    encoder = load_sentence_encoder(replace(config.model, name=config.place(config.model.name, "model")))
    _, cut = encode_texts(encoder, texts)
    rows = run.compute_resumable(
        "vectors",
        ["vector"],
        len(texts),
        lambda share: ((rows, list(vectors)) for rows, vectors in sentence_embeddings(encoder, texts, share=share)),
        "embeddings",
        "texts",
    )
    table = with_cosines(compared, texts, np.stack(rows["vector"].to_numpy()))
    was_cut = {text for text, flag in zip(texts, cut, strict=True) if flag}
    return table.assign(**{CUT: table["english"].isin(was_cut) | table["reference"].isin(was_cut)})
