"""Style vectors of responses, and the probability that each response is offensive, by sequence classifiers."""

import pandas as pd

from evenhand.evaluation.data.mentions import clean_responses
from evenhand.evaluation.metrics.generation_bias.settings import OFFENSIVE
from evenhand.evaluation.metrics.generation_bias.styled_responses import (
    PROMPTS,
    RESPONSES,
    StyledResponses,
    style_table,
)
from evenhand.evaluation.models.batches import free_gpu_memory
from evenhand.evaluation.models.revisions import find_label
from evenhand.evaluation.models.styles import classify_rows, load_style_classifier, to_style_vectors
from evenhand.evaluation.score import DESCRIPTOR, PROMPT_ID, RESPONSE
from evenhand.evaluation.settings import CheckpointSettings, ClassifierSettings
from evenhand.evaluation.store import Store

OFFENSIVENESS = "offensiveness"  # name of the table, and of its column, with probabilities of being offensive


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
    vectors, truncated = classify_rows(run, table, classifier, texts)
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
        probabilities, _ = classify_rows(run, OFFENSIVENESS, classifier, measured.table[RESPONSE].tolist())
        table = pd.DataFrame({PROMPT_ID: measured.table[PROMPT_ID], OFFENSIVENESS: probabilities[:, label]})
        run.write(OFFENSIVENESS, table)
