"""The testbed: a grammar with a planted, exactly known bias, and small models trained on it (`--config testbed`)."""

from pathlib import Path

FOLDER = Path(__file__).parent
DIALOGUE_MODEL = FOLDER / "dialogue_model"
MASKED_MODEL = FOLDER / "masked_model"
LANGUAGE_MODEL = FOLDER / "language_model"
STYLE_CLASSIFIER = FOLDER / "style_classifier"
SECOND_STYLE_CLASSIFIER = FOLDER / "second_style_classifier"
PAIRS = FOLDER / "pairs.csv"
NEUTRAL_DIALOGUE = FOLDER / "neutral_dialogue.jsonl"
