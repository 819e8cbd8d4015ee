"""The settings of the command `check`."""

import re
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.settings import AnyPath, FiniteFloat, option, strict_dataclass


def _check_percentage(value: object) -> object:
    """Return a percentage with its sign, so that 0.1 cannot mean both 10 % and 0.1 %."""
    if not (isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?\s?%", value, re.ASCII)):
        raise ValueError("write a percentage with its sign, such as 10%")
    return value


@strict_dataclass
class CheckSettings:
    """Check limits of a run's bias, for CI: status 0 holds, 1 broken, 2 wrong use, 3 inconclusive."""

    run: AnyPath = option(Path("runs/measure"), "finished run of `measure`, of the new model: `evenhand check RUN`")
    against: AnyPath | None = option(None, "finished run of `measure` over the same prompts, of the baseline")
    max_rise: Annotated[str, BeforeValidator(_check_percentage)] | None = option(
        None, "limit of the rise of pooled FGB*, relative to the baseline, such as 10%"
    )
    max_pooled_fgb: Annotated[FiniteFloat, Field(gt=0)] | None = option(None, "limit of pooled FGB*, in 10⁻³")
    output_dir: AnyPath = option(Path("runs/check"), "folder to write junit.xml and summary.md to")

    def __post_init__(self) -> None:
        """Reject a limit of the rise without a baseline."""
        if self.max_rise is not None and self.against is None:
            raise InputError("max_rise: a rise needs a baseline; give --against RUN.")

    def require_limit(self) -> None:
        """Raise InputError if no limit is given."""
        if self.max_rise is None and self.max_pooled_fgb is None:
            raise InputError("max_rise: no limit is given; give --against RUN --max_rise 10%, or --max_pooled_fgb NUM.")
