"""Embedding gaps: is an English sentence nearer to its masculine translation than to its feminine one? (004, §5)"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation.datasets.references import load_references
from evenhand.evaluation.families import Told
from evenhand.evaluation.families.embedding_bias.metric import comparisons, embedding_scores, with_cosines
from evenhand.evaluation.models.embeddings import encode_texts, load_sentence_encoder, sentence_embeddings
from evenhand.evaluation.results import BiasScore
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.folders import Run, packages
from evenhand.evaluation.settings import model_signature

CUT = "cut"  # whether the encoder read less than the whole of one of the two texts


def measure(run: Run, told: Told) -> list[BiasScore]:
    """Write the cosine of each English sentence with each of its references; return the scores."""
    table = run.table("cosines", lambda: _cosines(run, told), shared=True)
    run.facts["references"] = len(table)
    signature = _signature(run, told, int(table[CUT].sum()))
    return processes.from_main(lambda: embedding_scores(table, signature=signature))


def _signature(run: Run, told: Told, texts_cut: int) -> dict[str, Any]:
    settings = told.settings
    return {
        "model": model_signature(told.model, run.inputs) | {"texts_cut": texts_cut},
        "references": {"name": str(settings.references), "sha256": run.inputs["references"], "split": settings.split},
        "languages": settings.languages,
        "packages": packages(),
    }


def _cosines(run: Run, told: Told) -> pd.DataFrame:
    """Return `with_cosines` of the references, and whether a text of the row was cut."""
    compared = comparisons(load_references(told.settings.references, told.settings.split, told.settings.languages))
    texts = list(dict.fromkeys([*compared["english"], *compared["reference"]]))
    encoder = load_sentence_encoder(replace(told.model, name=told.place(told.model.name, "model")))
    _, cut = encode_texts(encoder, texts)
    rows = run.gather(
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
