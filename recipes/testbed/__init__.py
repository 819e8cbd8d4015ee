"""The testbed: a grammar with a planted, exactly known bias, and small models trained on it; the default model."""

from pathlib import Path

FOLDER = Path(__file__).parent
DIALOGUE_MODEL, MASKED_MODEL, LANGUAGE_MODEL = (
    FOLDER / name for name in ("dialogue_model", "masked_model", "language_model")
)
STYLE_CLASSIFIER, SECOND_STYLE_CLASSIFIER = (FOLDER / name for name in ("style_classifier", "second_style_classifier"))
PAIRS, NEUTRAL_DIALOGUE = FOLDER / "pairs.csv", FOLDER / "neutral_dialogue.jsonl"

# The files for the name "testbed", by family of metrics and setting.
EMBEDDED = {
    "generation_bias": {
        "model": DIALOGUE_MODEL,
        "style_classifier": STYLE_CLASSIFIER,
        "second_style_classifier": SECOND_STYLE_CLASSIFIER,
        "neutral_dialogue": NEUTRAL_DIALOGUE,
    },
    "sentence_pairs": {"model": MASKED_MODEL, "pairs": PAIRS},
    "likelihood_bias": {"model": LANGUAGE_MODEL},
}
