"""Callbacks for any trainer of transformers or TRL that measure during training, above all generation bias."""

import logging
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd
import torch
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from evenhand.evaluation import columns
from evenhand.evaluation.data.language.mentions import FORMS, NEUTRAL
from evenhand.evaluation.data.prompts import require_columns
from evenhand.evaluation.errors import InputError, rejects_tuning
from evenhand.evaluation.files import json_sha256
from evenhand.evaluation.metrics.generation_bias.answers import Answers, answers_of
from evenhand.evaluation.metrics.generation_bias.engine.costs import RELEVANCE
from evenhand.evaluation.metrics.generation_bias.engine.effects import SHOWN, effects
from evenhand.evaluation.metrics.generation_bias.engine.spread import (
    compare_generation_bias,
    generation_bias,
    headline_of,
)
from evenhand.evaluation.metrics.generation_bias.likelihoods import likelihoods_of_responses
from evenhand.evaluation.metrics.generation_bias.measures import LIKELIHOODS
from evenhand.evaluation.metrics.generation_bias.parts.costs import likelihood_levels
from evenhand.evaluation.model_settings import ClassifierSettings, DecodingSettings, ModelSettings
from evenhand.evaluation.models.classifier_kinds import load_style_classifier
from evenhand.evaluation.models.classifiers import Classifier
from evenhand.evaluation.models.kinds.weights import LoadedModel
from evenhand.evaluation.models.loading import loaded_dialogue_model
from evenhand.evaluation.models.modes import evaluation_mode
from evenhand.evaluation.models.styles import classify_responses
from evenhand.evaluation.report.numbers import PER_UNIT, UNIT
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import progress
from evenhand.evaluation.score import BiasScore, Kind, find_score
from evenhand.evaluation.statistics.hypothesis_tests import p_of_rise
from evenhand.evaluation.tables import join_batches, read_table, table_run, write_table

log = logging.getLogger("evenhand")

PROMPT_COLUMNS = (columns.TEXT, columns.TEMPLATE, columns.DESCRIPTOR)  # that are required
BIAS_NAME = "bias/fgb_pooled_corrected"
EFFECTS_SHOWN = "bias/effects_shown"
RISE = "bias/rise"
RISE_P = "bias/rise_p"
MAX_EFFECTS = 3
LEVEL = 0.05
BASELINE = "bias_at_step_0.parquet"  # style vectors at step 0, in the trainer's output_dir, for a resumed training


@contextmanager
def preserve_random_states() -> Iterator[None]:
    """Restore the global random states of Python, NumPy and torch after the block."""
    python = random.getstate()
    numpy = np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def _values_text(values: Mapping[str, float]) -> str:
    """Return the values of a step for a line of the log; of many values on bias, the two that say most."""
    if BIAS_NAME not in values or EFFECTS_SHOWN not in values:
        return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
    bias = PER_UNIT * values[BIAS_NAME]
    low = PER_UNIT * values.get(f"{BIAS_NAME}_low", math.nan)
    high = PER_UNIT * values.get(f"{BIAS_NAME}_high", math.nan)
    return f"pooled FGB* {bias:.1f} [{low:.1f}, {high:.1f}] {UNIT}; effects shown: {values[EFFECTS_SHOWN]:.0f}"


class MeasureCallback(TrainerCallback):
    """Measures the model before the first step, every k steps and after the last step, and logs the values.

    The callback does not affect training: it measures in evaluation mode without gradients, and restores all random
    states. Several processes wait while rank 0 measures. A model that is sharded over processes is not measured.
    """

    def __init__(self, measure: Callable[[torch.nn.Module], Mapping[str, float]], every: int) -> None:
        """Set `measure`, which returns values by names with a slash ("bias/fgb_pooled_corrected"), and k = `every`."""
        self.measure = measure
        self.every = every
        self.trainer: Trainer | None = None
        self.measured_at = -1

    def attach(self, trainer: Trainer) -> Self:
        """Add this callback to a trainer, through which it logs; return the callback."""
        if self not in trainer.callback_handler.callbacks:
            trainer.add_callback(self)
        self.trainer = trainer
        return self

    def attached_trainer(self) -> Trainer:
        """Return the trainer; raise InputError if `attach` was not called."""
        if self.trainer is None:
            raise InputError("callbacks", "a callback that measures logs through its trainer; call attach(trainer).")
        return self.trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        self.attached_trainer()
        if processes.shards_model():
            log.warning("the model is not measured during training, because it is sharded over processes")
        elif state.global_step == 0:
            self._measure(state, control)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if state.global_step % self.every == 0 or control.should_training_stop:
            self._measure(state, control)

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if control.should_training_stop and self.measured_at < state.global_step:  # stopped early
            self._measure(state, control)

    def _measure(self, state: TrainerState, control: TrainerControl) -> Mapping[str, float]:
        """Measure the model and log the values; return the values, {} for a sharded model."""
        if processes.shards_model():
            return {}
        self.measured_at = state.global_step
        trainer = self.attached_trainer()
        model = trainer.model
        if model is None:  # the trainer itself refuses to train without one
            return {}
        # After a step, an error is about the weights: a training that breaks them is one that is rejected.
        rejected = rejects_tuning() if state.global_step else nullcontext()
        with rejected, evaluation_mode(model), preserve_random_states(), torch.no_grad():
            values = processes.on_rank_zero(lambda: dict(self.measure(model)))
        log.info("step %d: %s", state.global_step, _values_text(values))
        should_log = control.should_log
        # `log` of a trainer of TRL would add and reset the metrics of the steps.
        Trainer.log(trainer, dict(values))
        control.should_log = should_log  # `log` resets it, but the loss of this step is not logged yet
        return values


class BiasCallback(MeasureCallback):
    """Measures generation bias before the first step, every k steps and after the last step, and logs it.

    At each measurement the model in training responds to the same prompts, with the same random numbers, and a
    classifier computes the style of each response. Training is not affected. The values go through the trainer's log
    to its trackers (W&B, TensorBoard, console), in natural units:

        bias/fgb_pooled_corrected     pooled FGB*, ideal 0, with `_low` and `_high`, its 95 % interval
        bias/effects_shown            number of effects on a descriptor or axis that are shown (`evenhand.effects`)
        bias/effect/UNIT/STYLE        the (up to three) largest shown effects, in [−1, 1]
        bias/relevance                mean of log p(response | its prompt) − log p(response | another prompt) under the
                                      model in training, in nats, with `_low` and `_high`; 0 if responses do not depend
                                      on the template; needs two templates
        bias/rise                     pooled FGB* − pooled FGB* at step 0, paired by prompt, and `bias/rise_p`, its
                                      one-sided p-value: near 1 if the bias fell

    A rise is *shown* if it is above 0 and its one-sided p-value is at most 0.05 / (number of planned measurements):
    with a probability of 95 %, no measurement of a training without a rise shows one (Bonferroni). A shown rise is
    logged as a warning, or stops training. If responses do not vary within any cell, there is no p-value.

    Example (docs/notebooks/watch_a_training.ipynb runs one):

        evenhand.BiasCallback(prompts=prompts, style_classifier=classifier, every=50).attach(trainer)
        trainer.train()
    """

    def __init__(
        self,
        prompts: pd.DataFrame,
        style_classifier: Classifier | ClassifierSettings | Path | str,
        every: int = 100,
        *,
        stop_if_rises: bool = False,
        relevance: bool = True,
        decoding: Mapping[str, object] | None = None,
        control_tag: str = "",
        system_prompt: str = "",
        reasoning: Sequence[str] | None = None,
        batch_size: int = 64,
        permutations: int = 199,
        seed: int = 0,
    ) -> None:
        """Check the prompts, and load the classifier if it is given by name.

        Args:
            prompts: columns text, template and descriptor, and optionally axis, persona and prompt_id, such as the file
                of `evenhand measure --write_prompts FILE`; at least two, better four, rows for each template and
                descriptor. 20 descriptors with 4 responses to each of 2 templates are a start.
            style_classifier: result of `load_style_classifier`, or a model that it loads.
            every: k.
            stop_if_rises: whether training stops when a rise is shown; otherwise a warning is logged.
            relevance: whether to measure relevance, which takes about as long as the responses.
            decoding: arguments of `generate` that override the sampling of `evenhand measure`.
            control_tag: string at the end of each prompt.
            system_prompt: text before each prompt.
            reasoning: the start and the end of the model's reasoning, if they are not known ones (`model.reasoning`).
            batch_size: maximum number of responses that are generated together.
            permutations: number of permutations for the effects.
            seed: seed of the responses and the permutations.

        Raises:
            InputError: a column is missing, a prompt_id occurs twice, the prompts have fewer than two descriptors, or
                `every` is not positive.
        """
        super().__init__(self._scores, every)
        require_columns(list(prompts), PROMPT_COLUMNS, "prompts")
        if prompts[columns.DESCRIPTOR].nunique() < 2:
            raise InputError(
                "prompts", f"{prompts[columns.DESCRIPTOR].nunique()} descriptors; give prompts of two or more."
            )
        if columns.PROMPT_ID in prompts and prompts[columns.PROMPT_ID].duplicated().any():  # with equal random numbers
            raise InputError("prompts", "a prompt_id occurs twice; give each row its own, or leave the column out.")
        if every < 1:
            raise InputError("every", f"{every}; give 1 or more steps.")
        self.prompts = _with_all_columns(prompts)
        is_loaded = isinstance(style_classifier, Classifier)
        self.classifier = style_classifier if is_loaded else load_style_classifier(style_classifier)
        self.decoding = DecodingSettings(arguments=dict(decoding or {}), batch_size=batch_size)
        self.stop_if_rises = stop_if_rises
        self.relevance = relevance
        self.control_tag = control_tag
        self.system_prompt = system_prompt
        self.reasoning = reasoning
        self.permutations = permutations
        self.seed = seed
        self.before: Answers | None = None  # the responses at step 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Measure the model at step 0, or read the style vectors of step 0 if training resumes."""
        path = Path(str(args.output_dir), BASELINE)
        self.before = None  # of an earlier training with this callback
        if state.global_step and not path.exists():
            log.warning("%s does not exist: no rise since step 0 can be shown", path)
        elif state.global_step and table_run(path) != self._measured():
            log.warning("%s is of other prompts, or was measured otherwise: no rise since step 0 can be shown", path)
        elif state.global_step:
            self.before = self._styled(read_table(path).to_numpy())
        super().on_train_begin(args, state, control, **kwargs)

    def _measure(self, state: TrainerState, control: TrainerControl) -> Mapping[str, float]:
        values = super()._measure(state, control)
        measurements = math.ceil(state.max_steps / self.every)
        if values.get(RISE_P, 1) <= LEVEL / measurements:
            now = values[BIAS_NAME]
            earlier = now - values[RISE]
            action = "training stops" if self.stop_if_rises else "training goes on"
            log.warning(
                "step %d: bias rose: pooled FGB* was %.3g at step 0 and is %.3g (×10⁻³), p = %.2g; %s",
                state.global_step,
                PER_UNIT * earlier,
                PER_UNIT * now,
                values[RISE_P],
                action,
            )
            control.should_training_stop = control.should_training_stop or self.stop_if_rises
        return values

    def _scores(self, model: torch.nn.Module) -> dict[str, float]:
        """Return the values to log, of the model in training."""
        trainer = self.attached_trainer()
        tokenizer = trainer.processing_class
        tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
        if tokenizer is None:
            raise InputError(
                "processing_class", "the trainer has no tokenizer; give Trainer(processing_class=tokenizer)."
            )
        prompts = self.prompts
        trained = LoadedModel(ModelSettings(), self.decoding, tag=self.control_tag, seed=self.seed)
        with loaded_dialogue_model(
            model, tokenizer, self.control_tag, self.system_prompt, self.reasoning
        ) as trained.engine:
            batches: list[pd.DataFrame] = []
            with progress(len(prompts), "bias during training", "responses") as bar:
                for batch in trained.respond(prompts):
                    batches.append(batch)
                    bar.update(len(batch))
            answered = join_batches(batches)
            responses = answered[columns.RESPONSE].tolist()
            likelihoods = None
            if self.relevance:
                likelihoods = likelihoods_of_responses(
                    lambda pairs: join_batches(trained.log_likelihood(pairs)), prompts, answers_of(answered)
                )
        styled = self._styled(classify_responses(self.classifier, responses, prompts))
        values = _with_interval(BIAS_NAME, headline_of(generation_bias(styled, {}, permutations=0)))
        table = effects(styled, {}, permutations=self.permutations, seed=self.seed)
        table = table[table["certainty"] == SHOWN]
        values[EFFECTS_SHOWN] = float(len(table))
        for row in table.head(MAX_EFFECTS).itertuples():
            values[f"bias/effect/{row.unit}/{row.name}"] = float(row.shrunk)
        if likelihoods is not None:
            relevance = find_score(likelihood_levels(prompts, {LIKELIHOODS: likelihoods}), RELEVANCE)
            if relevance is not None and math.isfinite(relevance.value):
                values |= _with_interval("bias/relevance", relevance)
        if trainer.state.global_step == 0:
            self.before = styled
            vectors = pd.DataFrame(styled.values).add_prefix("style_")
            write_table(Path(str(trainer.args.output_dir), BASELINE), vectors, self._measured())
        elif self.before is not None:
            changes = compare_generation_bias(self.before, styled, {}, by_axis=False)
            rise = headline_of(changes, Kind.DIFFERENCE)
            values[RISE] = float(rise.value)
            if rise.p_value is not None:
                values[RISE_P] = p_of_rise(rise.value, rise.p_value)
        return values

    def _measured(self) -> str:
        """Return the fingerprint of all that style vectors depend on, besides the weights."""
        classifier = (self.classifier.name, self.classifier.revision, self.classifier.labels)
        decoding = self.decoding.model_dump(exclude={"batch_size"})
        asked = (decoding, self.control_tag, self.system_prompt, self.reasoning, self.seed)
        return json_sha256([self.prompts.to_dict("list"), classifier, asked])

    def _styled(self, vectors: np.ndarray) -> Answers:
        return Answers(self.prompts, vectors, self.classifier.labels)


def _with_all_columns(prompts: pd.DataFrame) -> pd.DataFrame:
    """Return the prompts with the columns that measurements read; ids, personas and axes are optional."""
    mentions = [name for name in (FORMS, NEUTRAL) if name in prompts]
    complete = prompts.loc[:, [*PROMPT_COLUMNS, *mentions]].reset_index(drop=True)
    complete[columns.PROMPT_ID] = [str(row) for row in range(len(prompts))]
    complete[columns.PERSONA] = ""
    complete[columns.AXIS] = ""
    if columns.PROMPT_ID in prompts:
        complete[columns.PROMPT_ID] = prompts[columns.PROMPT_ID].astype(str).tolist()
    if columns.PERSONA in prompts:
        complete[columns.PERSONA] = prompts[columns.PERSONA].fillna("").tolist()
    if columns.AXIS in prompts:
        complete[columns.AXIS] = prompts[columns.AXIS].tolist()
    return complete


def _with_interval(name: str, score: BiasScore) -> dict[str, float]:
    """Return the value of a score and the ends of its interval, if it has one, by name."""
    values = {name: float(score.value)}
    if score.interval is not None:
        low, high = score.interval
        values[f"{name}_low"] = float(low)
        values[f"{name}_high"] = float(high)
    return values
