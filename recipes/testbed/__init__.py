"""The testbed: a grammar with a planted, exactly known bias, and small models trained on it; the default model."""

from pathlib import Path

from evenhand.evaluation import families

FOLDER = Path(__file__).parent
DIALOGUE_MODEL, MASKED_MODEL, LANGUAGE_MODEL = (
    FOLDER / name for name in ("dialogue_model", "masked_model", "language_model")
)
STYLE_CLASSIFIER, SECOND_STYLE_CLASSIFIER = (FOLDER / name for name in ("style_classifier", "second_style_classifier"))
PAIRS, NEUTRAL_DIALOGUE = FOLDER / "pairs.csv", FOLDER / "neutral_dialogue.jsonl"


def embedded_files(family: str) -> dict[str, Path]:
    """Return the file or folder that the value "testbed" stands for, by setting of a family."""
    names = getattr(families.settings_of(family), "TESTBED_FILES", {})
    return {setting: FOLDER / name for setting, name in names.items()}
