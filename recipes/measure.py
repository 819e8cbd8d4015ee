"""The command `measure`."""

from evenhand.recipes.measurement import measure_model
from evenhand.recipes.settings import MeasureSettings


def measure(settings: MeasureSettings, *, show: bool = True) -> None:
    """Measure a model with each family of metrics, and print the report if `show`."""
    measure_model(settings, show=show)
