"""The functions that make a tuned model of a method's rows, by the names in `TrainedMethod.tuner`.

All have the arguments of `training.tune`, write the folder of the tuned model and return a `TuningResult`.
"""

from collections.abc import Callable

from evenhand.mitigation.shrinking import fit_shrink
from evenhand.mitigation.training import TuningResult, tune

TUNERS: dict[str, Callable[..., TuningResult]] = {"training": tune, "closed_form": fit_shrink}
