"""The command `screen`: whom a model treats differently, from predictions of first tokens (`metrics.screen`)."""

from evenhand.evaluation.errors import InputError
from evenhand.recipes.measure import measure
from evenhand.recipes.settings import MeasureSettings, ScreenSettings


def screen(settings: ScreenSettings) -> None:
    """Measure a model by the family `screen`; the run is a run of `measure`.

    Raises:
        InputError: other families are given, or the model cannot be screened.
    """
    if settings.metrics != ["screen"]:
        raise InputError("metrics", "the command screens only; give other families to `evenhand measure`.")
    measure(MeasureSettings.model_validate(vars(settings)))
