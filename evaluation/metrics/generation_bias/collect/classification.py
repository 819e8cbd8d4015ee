"""Style vectors of responses, and the probability that each response is offensive, by sequence classifiers."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from evenhand.evaluation.data.mentions import clean_response
from evenhand.evaluation.metrics.generation_bias.settings import OFFENSIVE
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    PROMPTS,
    RESPONSES,
    StyledResponses,
    style_table,
)
from evenhand.evaluation.models.batches import free_gpu_memory
from evenhand.evaluation.models.classifier_labels import find_label
from evenhand.evaluation.models.styles import (
    StyleClassifier,
    classify_texts,
    load_style_classifier,
    style_vectors,
    to_style_vectors,
    warn_truncated,
)
from evenhand.evaluation.score import DESCRIPTOR, PROMPT_ID, RESPONSE
from evenhand.evaluation.settings import CheckpointSettings, ClassifierSettings
from evenhand.evaluation.store import Store

log = logging.getLogger("evenhand")

OFFENSIVENESS = "offensiveness"  # name of the table, and of its column, with probabilities of being offensive


def clean_responses(responses: Iterable[str], descriptors: Iterable[str]) -> list[str]:
    """Return each response without the descriptor of its prompt (Smith et al. 2022, A.6)."""
    return [clean_response(*pair) for pair in zip(responses, descriptors, strict=True)]


def classify_responses(classifier: StyleClassifier, responses: Sequence[str], descriptors: Sequence[str]) -> np.ndarray:
    """Return the style vectors (n, S) of the responses, classified without the descriptors of their prompts."""
    return style_vectors(classifier, clean_responses(responses, descriptors))


def classify_in_parts(
    run: Store, name: str, classifier: StyleClassifier, texts: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the probabilities of all labels for each text, (n, S), and whether the text was truncated, (n,).

    Finished batches are saved in the run's folder.
    """
    columns = ["cut", *(f"p{label}" for label in range(len(classifier.labels)))]

    def compute(texts: Sequence[str]) -> Iterator[tuple[np.ndarray, ...]]:
        return ((rows, cut, *probabilities.T) for rows, probabilities, cut in classify_texts(classifier, texts))

    table = run.rows(name, columns, compute, texts, unit="responses")
    truncated = table.pop("cut").to_numpy(dtype=bool)
    probabilities = table.to_numpy(dtype=np.float32)
    warn_truncated(classifier, int(truncated.sum()), len(texts))
    n_undefined = (
        len(texts) - int(np.isfinite(probabilities).all(axis=1).sum()) - sum(not text.strip() for text in texts)
    )
    if n_undefined:  # only of a judge
        log.warning("%d of %d texts have no style: %s named no option", n_undefined, len(texts), classifier.name)
    return probabilities, truncated


def write_styles(run: Store, checkpoint: CheckpointSettings, name: str, table: str) -> None:
    """Write the style vectors of all responses by the classifier `name`, unless their table is on disk."""
    if not run.has(table):
        with run.step(table):
            run.write(table, _style_table(run, checkpoint, name, table))
    free_gpu_memory()


def _style_table(run: Store, checkpoint: CheckpointSettings, name: str, table: str) -> pd.DataFrame:
    prompts, responses = run.read(PROMPTS), run.read(RESPONSES)
    classifier = load_style_classifier(checkpoint, name)
    texts = clean_responses(responses[RESPONSE], prompts[DESCRIPTOR])
    vectors, truncated = classify_in_parts(run, table, classifier, texts)
    return style_table(prompts[PROMPT_ID], to_style_vectors(classifier, vectors), classifier.labels, truncated)


def write_offensiveness(run: Store, settings: ClassifierSettings, measured: StyledResponses) -> None:
    """Write prompt_id and the probability that the response is offensive, unless this table is on disk.

    As in Smith et al. 2022, descriptors are not removed from the responses.
    """
    if run.has(OFFENSIVENESS):
        return
    with run.step(OFFENSIVENESS):
        classifier = load_style_classifier(settings, OFFENSIVE)
        label = find_label(classifier.labels, settings.label, classifier.name, "offensiveness.label")
        probabilities, _ = classify_in_parts(run, OFFENSIVENESS, classifier, measured.table[RESPONSE].tolist())
        table = pd.DataFrame({PROMPT_ID: measured.table[PROMPT_ID], OFFENSIVENESS: probabilities[:, label]})
        run.write(OFFENSIVENESS, table)
