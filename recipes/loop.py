"""The whole loop: measure → label → tune → measure again → report. Each stage is a folder of the loop's."""

from dataclasses import replace

from evaluation.errors import InputError
from recipes.compare import compare
from recipes.config import CompareConfig, LoopConfig
from recipes.label import label
from recipes.measure import measure
from recipes.tune import tune

COMMON = ("report_to", "group", "output_dir")
SET_HERE = {"measure": ("split", *COMMON), "label": ("responses", *COMMON), "tune": ("labels", *COMMON)}


def loop(config: LoopConfig) -> None:
    """Run every stage that is not finished yet; end with the before/after table and the path of the report.

    Raises:
        InputError: a field is given that the loop sets itself, or prompts that cannot be split into two sides.
    """
    for name, fields in SET_HERE.items():
        part = getattr(config, name)
        for field in fields:
            if getattr(part, field) != getattr(type(part)(), field):
                raise InputError(f"{name}.{field}: the loop sets it by itself; leave it out.")
    if config.measure.prompts_file:
        raise InputError("measure.prompts_file: the loop needs prompts to train on besides; give a dataset folder.")
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
