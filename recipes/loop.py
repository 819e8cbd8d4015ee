"""The whole loop: measure → label → tune → measure again → report. Each stage is a folder of the loop's."""

from dataclasses import replace

from recipes.compare import compare
from recipes.config import CompareConfig, LoopConfig
from recipes.label import label
from recipes.measure import measure
from recipes.tune import tune


def loop(config: LoopConfig) -> None:
    """Run every stage that is not finished yet; end with the before/after table and the path of the report."""
    folder = config.output_dir
    common = {"report_to": config.report_to, "group": folder.name}
    measured = replace(config.measure, split="measure", **common)

    measure(replace(measured, output_dir=folder / "before"))
    train = replace(measured, split="train", per_cell=config.train_per_cell, permutations=0, neutral_dialogue=None)
    measure(replace(train, output_dir=folder / "train"))
    label(replace(config.label, responses=folder / "train", output_dir=folder / "label", **common))
    tune(replace(config.tune, labels=folder / "label", output_dir=folder / "tune", **common))
    measure(replace(measured, model=str(folder / "tune" / "adapter"), output_dir=folder / "after"))
    compare(
        CompareConfig(
            before=folder / "before",
            after=folder / "after",
            labels=folder / "label",
            tuning=folder / "tune",
            output_dir=folder / "compare",
            **common,
        )
    )
