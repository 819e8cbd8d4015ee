"""Measurement of embedding bias: cosines of sentences with gendered translations (Costa-jussà et al. 2023, §5)."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from evenhand.evaluation import processes
from evenhand.evaluation.data.references import load_references
from evenhand.evaluation.manifest import package_versions
from evenhand.evaluation.metrics import MeasureConfig
from evenhand.evaluation.metrics.embedding_bias.metric import add_cosines, embedding_scores, pair_with_references
from evenhand.evaluation.models.embeddings import encode_texts, load_sentence_encoder, sentence_embeddings
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.settings import model_signature
from evenhand.evaluation.store import Store

TRUNCATED = "truncated"  # column: whether one of the two texts was too long for the encoder


def measure(run: Store, config: MeasureConfig) -> list[BiasScore]:
    """Write the cosines of English sentences with each of their references to the run's folder; return the scores."""
    table = run.table("cosines", lambda: _cosines(run, config), on_all_ranks=True)
    run.facts["references"] = len(table)
    signature = _signature(run, config, int(table[TRUNCATED].sum()))
    return processes.on_rank_zero(lambda: embedding_scores(table, signature=signature))


def _signature(run: Store, config: MeasureConfig, n_truncated: int) -> dict[str, Any]:
    settings = config.settings
    return {
        "model": model_signature(config.model, run.inputs) | {"texts_truncated": n_truncated},
        "references": {"name": str(settings.references), "sha256": run.inputs["references"], "split": settings.split},
        "languages": settings.languages,
        "packages": package_versions(),
    }


def _cosines(run: Store, config: MeasureConfig) -> pd.DataFrame:
    """Return the result of `add_cosines` for the references, and in each row whether one of its texts was truncated."""
    settings = config.settings
    pairs = pair_with_references(load_references(settings.references, settings.split, settings.languages))
    texts = list(dict.fromkeys([*pairs["english"], *pairs["reference"]]))
    encoder = load_sentence_encoder(config.model)
    _, is_truncated = encode_texts(encoder, texts)

    def compute(texts: Sequence[str]) -> Iterator[tuple[np.ndarray, list[np.ndarray]]]:
        return ((rows, list(vectors)) for rows, vectors in sentence_embeddings(encoder, texts))

    vectors = run.rows("vectors", ["vector"], compute, texts, unit="texts")["vector"]
    table = add_cosines(pairs, texts, np.stack(vectors.to_numpy()))
    truncated = {text for text, flag in zip(texts, is_truncated, strict=True) if flag}
    return table.assign(**{TRUNCATED: table["english"].isin(truncated) | table["reference"].isin(truncated)})
