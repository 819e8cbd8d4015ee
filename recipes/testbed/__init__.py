"""The testbed: a grammar with a planted, exactly known bias, and small models trained on it (`--config testbed`)."""

from pathlib import Path

FOLDER = Path(__file__).parent
DIALOGUE_MODEL, MASKED_MODEL, LANGUAGE_MODEL = (
    FOLDER / name for name in ("dialogue_model", "masked_model", "language_model")
)
STYLE_CLASSIFIER, SECOND_STYLE_CLASSIFIER = (FOLDER / name for name in ("style_classifier", "second_style_classifier"))
PAIRS = FOLDER / "pairs.csv"
NEUTRAL_DIALOGUE = FOLDER / "neutral_dialogue.jsonl"
