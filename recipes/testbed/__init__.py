"""The embedded default: a grammar with a planted, exactly known bias, and the small models that learned it."""

from pathlib import Path

DIALOGUE_MODEL = Path(__file__).parent / "dialogue_model"
STYLE_CLASSIFIER = Path(__file__).parent / "style_classifier"
SECOND_STYLE_CLASSIFIER = Path(__file__).parent / "second_style_classifier"
MASKED_MODEL = Path(__file__).parent / "masked_model"
PAIRS = Path(__file__).parent / "pairs.csv"
LANGUAGE_MODEL = Path(__file__).parent / "language_model"
