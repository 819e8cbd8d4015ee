"""Settings of files of labelled texts, and of the command `judge`."""

from pathlib import Path
from typing import Any

from evenhand.evaluation.settings import (
    CONTENT,
    AnyPath,
    Count,
    Seed,
    StyleClassifierSettings,
    option,
    strict_dataclass,
)


@strict_dataclass
class LabelledTexts:
    """Settings of a file of labelled texts."""

    data_dir: AnyPath = option(Path(), "folder of the files of texts", identity=CONTENT)
    texts: AnyPath = option(Path("labeled_data.csv"), "CSV, TSV or JSONL file of labelled texts", identity=CONTENT)
    columns: list[str] = option(list, "names of its columns, if it has no header; []: it has one")
    text_column: str = option("tweet", "column of texts")
    label_column: str = option("class", "column of labels")
    labels: dict[Any, str] = option(
        dict, "{value: name of the label}; several values may share a name; {}: as in the file"
    )
    label_separator: str | None = option(None, "separator between the labels of a text; null: each text has one label")


@strict_dataclass
class AgreementSettings(LabelledTexts):
    """Measure how well an LLM judge, or another style classifier, agrees with human labels."""

    style_classifier: StyleClassifierSettings = option(StyleClassifierSettings, "the judge, or another classifier")
    other_classifier: StyleClassifierSettings | None = option(
        None, "classifier to compare with on the same texts; null: none"
    )
    limit: Count | None = option(None, "texts to draw at random; null: all")
    seed: Seed = option(0, "random seed of the draw and of the bootstrap")
    output_dir: AnyPath = option(Path("runs/judge"), "folder to write to", identity=False)
