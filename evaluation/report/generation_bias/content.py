"""What a report is made from: plain data that the caller reads from the files of finished runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from evaluation.results import BiasScore


@dataclass(frozen=True)
class ThresholdPlan:
    """The thresholds that were weighed up before tuning, and the one that was taken.

    `table` has the columns alpha, quantile (of b), beta, share_labelled_bias, predicted_fgb_left (the fraction of
    pooled FGB* predicted to remain), lower and upper (its 95 % interval) and trusted (bool). `trust` says in a
    sentence how far the prediction is to be trusted.
    """

    table: pd.DataFrame
    alpha: float
    quantile: float
    trust: str

    def is_chosen(self, alpha: float, quantile: float) -> bool:
        """Return whether this is the threshold that was taken."""
        return math.isclose(alpha, self.alpha, abs_tol=1e-9) and math.isclose(quantile, self.quantile, abs_tol=1e-9)


@dataclass(frozen=True)
class TrainingCurve:
    """What was logged during training, as (step, value) pairs; `bias` is pooled FGB* in natural units."""

    train_loss: Sequence[tuple[int, float]]
    validation_loss: Sequence[tuple[int, float]] = ()
    bias: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class TuningChanges:
    """What tuning changed, one table for each of the paper's (002); what was not looked at is None.

    `styles` (Table 15) is what `style_changes` returns, `moved` what `moved_descriptors` returns, `phrases` (Table 14)
    what `phrase_changes` returns (evaluation/metrics). `parroting` (C.2.1) has the columns of `parroting_by_descriptor`
    and mean_b. `corpus` (Figures 3, 5, 6) has descriptor, axis, cluster, before and after (mean summed probability of
    the cluster's styles), count, examples, frequency (count / examples) and corpus (its name). `samples` (Tables 16,
    17) has the columns of GenerationContent.samples.
    """

    styles: pd.DataFrame | None = None
    moved: pd.DataFrame | None = None
    phrases: pd.DataFrame | None = None
    parroting: pd.DataFrame | None = None
    corpus: pd.DataFrame | None = None
    samples: pd.DataFrame | None = None


@dataclass(frozen=True)
class GenerationContent:
    """Everything a report shows. Without `tuned_model` it is the report of a single measurement.

    Scores are paired by metric and group. `differences` holds, under the metric names `<metric>_difference` (after
    minus before, in the metric's units: a fall is negative) and `<metric>_reduction` (the fraction of the before
    value that is gone: 0.8 is a fall by 80 %), the paired comparisons with interval and p-value; with the group "seen"
    ("yes" or "no") those of what was tuned on and of what was not, with the group "classifier" ("second") those by a
    second ruler; and the rank correlations `parroting_rho` and `frequency_rho`. `truth` holds what is known without
    sampling, under the same metric names and groups.

    `descriptors` has the columns descriptor, axis, before, n and, after tuning, after (mean b, in natural units);
    `samples` the columns prompt, persona, descriptor, axis, before and, after tuning, after (responses).
    `unseen_by` says what was kept from tuning: "descriptor", "axis" or "template".
    `method` names the treatment, as in "tuned with control tags"; `notes` are sentences the reader must know.
    """

    title: str
    date: str
    base_model: str
    scores_before: Sequence[BiasScore]
    tuned_model: str | None = None
    method: str | None = None
    notes: Sequence[str] = ()
    scores_after: Sequence[BiasScore] = ()
    differences: Sequence[BiasScore] = ()
    truth: Sequence[BiasScore] = ()
    threshold_plan: ThresholdPlan | None = None
    descriptors: pd.DataFrame | None = None
    samples: pd.DataFrame | None = None
    training: TrainingCurve | None = None
    unseen_by: str = "descriptor"
    changes: TuningChanges = field(default_factory=TuningChanges)
    signature: Mapping[str, Any] = field(default_factory=dict)

    @property
    def tuned(self) -> bool:
        """Whether there is an "after"."""
        return self.tuned_model is not None
