"""Tuning: a method's rows → one of TRL's trainers with a PEFT adapter → a folder that holds the tuned model.

`tune` trains on the response alone, keeps the weights with the best validation loss, goes on from its last checkpoint
after a kill, and hands nothing out before the saved files, loaded onto the base again, have been seen to change what
the model says, and not to have spoiled it.
"""

import copy
import hashlib
import json
import logging
import math
import os
import random
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from huggingface_hub import constants
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    EarlyStoppingCallback,
    PreTrainedModel,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
)
from transformers.pytorch_utils import Conv1D

from evaluation.errors import InputError
from evaluation.files import write_json, write_text
from evaluation.generation import render_contexts
from evaluation.models import DialogueModel
from evaluation.progress import progress
from mitigation.checks import OutputChange, Refused, output_change, perplexity, weights_sha256
from mitigation.model_card import model_card
from mitigation.settings import TuningSettings
from mitigation.trainers import sft
from mitigation.trainers.encoding import PROMPT

log = logging.getLogger("evenhand")

CONTEXT = "context"
ADAPTER, CHECKPOINTS, FACTS = "adapter", "checkpoints", "evenhand.json"
LOGS_PER_EVALUATION = 5
TASK_TYPES = {"encoder_decoder": "SEQ_2_SEQ_LM"}


@dataclass(frozen=True)
class TuningResult:
    """What a tuning left: the tuned model's folder, its curves and the proof that it differs from its base.

    Losses are (step, the trainer's loss): for SFT the mean negative log-likelihood of a response token in nats, for
    KTO and DPO their own; the validation losses begin with the base at step 0. `measured` has the curve of each value
    that a `BiasCallback` logged, by its name. `perplexity` is that of ordinary dialogue (see `tune`), the base's and
    the tuned model's. `seconds` are those of this call; `n_train` and `n_validation` count rows.
    """

    path: Path
    train_losses: tuple[tuple[int, float], ...]
    validation_losses: tuple[tuple[int, float], ...]
    measured: Mapping[str, tuple[tuple[int, float], ...]]
    best_step: int
    stopped_early: bool
    seconds: float
    n_train: int
    n_validation: int
    trainable_parameters: int
    perplexity: tuple[float, float]
    change: OutputChange


def hold_out(rows: Dataset, fraction: float, seed: int, most: int | None = None) -> tuple[Dataset, Dataset]:
    """Return (rows to train on, rows to validate on): no context is on both sides.

    Whole contexts, in an order drawn by `seed`, are held out until they make up `fraction` of the rows. Of rows beyond
    `most`, only as many are used, drawn by `seed`.

    Raises:
        InputError: there are fewer than two contexts.
    """
    if most is not None and most < len(rows):
        rows = rows.select(np.sort(np.random.default_rng(seed).permutation(len(rows))[:most]))
    contexts, context_of, sizes = np.unique(list(rows[CONTEXT]), return_inverse=True, return_counts=True)
    if len(contexts) < 2:
        raise InputError(f"rows: {len(contexts)} distinct contexts; holding out some for validation needs 2.")
    drawn = np.random.default_rng(seed).permutation(len(contexts))
    wanted = 1 + np.searchsorted(np.cumsum(sizes[drawn]), fraction * len(rows))
    held_out = np.isin(context_of, drawn[: min(wanted, len(contexts) - 1)])
    return rows.select(np.flatnonzero(~held_out)), rows.select(np.flatnonzero(held_out))


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Put the global random states of python, numpy and torch back to where they were, whatever the block draws."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


@random_states_kept()
def tune(
    base: DialogueModel,
    train_rows: Dataset,
    validation_rows: Dataset,
    settings: TuningSettings,
    output_dir: Path,
    *,
    method: str,
    trainer: str = "sft",
    control_tag: str = "",
    tags: Sequence[str] = (),
    neutral: tuple[Sequence[str], Sequence[str]] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    report_to: str = "none",
    run_name: str | None = None,
    card: Mapping[str, Any] | None = None,
) -> TuningResult:
    """Tune a copy of `base` on a method's rows and write it to `output_dir`/adapter.

    The folder holds the adapter's weights and config (the whole model's, if `settings.lora` is false), the tokenizer,
    evenhand.json and a model card; it appears whole or not at all. `output_dir`/checkpoints holds what a call with
    the same arguments goes on from after a kill, to the same weights.

    Args:
        base: the model to tune; it is left as it is.
        train_rows, validation_rows: of a method; its columns are those that the trainer reads.
        settings: with a learning rate.
        method: name of the method that made the rows, for the record.
        trainer: module of `mitigation.trainers`.
        control_tag: the tag that the tuned model is to be used with, "" for none.
        tags: strings that get a meaning in this tuning. With LoRA, which leaves embeddings alone, those of their
            tokens are trained besides; without that, a tag is hard to tell from what the base took it for.
        neutral: prompts and responses of ordinary dialogue. The tuned model, asked with its tag, is refused if their
            perplexity rose by more than `settings.largest_perplexity_rise`, a share. By default the responses that the
            held-out validation rows would have the model give.
        callbacks: further callbacks of the trainer, `BiasCallback` for one.
        report_to: "wandb" (into the run at hand), "tensorboard" (into `output_dir`/tensorboard) or "none".
        card: further facts for the model card, such as α and β.

    Raises:
        InputError: the rows or the model cannot be used; `output_dir` holds checkpoints of another tuning; the tuned
            model answers as its base does, or its perplexity rose too much.
    """
    start = time.monotonic()
    kind = import_module(f"mitigation.trainers.{trainer}")
    _check(base, trainer, control_tag, report_to)
    train, validation = (kind.encode_rows(base, rows, settings) for rows in (train_rows, validation_rows))
    base_sha256 = weights_sha256(base.model)
    checkpoints = output_dir / CHECKPOINTS
    _claim(checkpoints, settings=asdict(settings), rows=_rows_sha256(train, validation), model=base_sha256)
    state = _train(base, train, validation, settings, kind, tags, checkpoints, callbacks, report_to, run_name)
    losses = _curve(state, "eval_loss")
    with _folder_written_whole(output_dir / ADAPTER) as folder:
        trainable = _copy_weights(checkpoints / f"checkpoint-{state.best_global_step}", folder, base)
        tuned = _load(base, folder, settings.lora)
        perplexities = _perplexities(base, tuned, control_tag, neutral, validation_rows)
        _check_perplexity(perplexities, settings)
        change = output_change(base, tuned, validation_rows[PROMPT])
        if not change.outputs_changed:
            raise Refused(
                f"learning_rate: {settings.learning_rate} left {base.name} as it was (the largest change of a logit "
                f"is {change.max_logit_change:.1g}); raise it, or epochs, and give another --output_dir."
            )
        if weights_sha256(base.model) != base_sha256:
            raise RuntimeError(f"tuning changed the weights of {base.name}, which it must not")
        result = TuningResult(
            path=output_dir / ADAPTER,
            train_losses=_curve(state, "loss"),
            validation_losses=losses,
            measured={
                name: _curve(state, name)
                for name in dict.fromkeys(name for entry in state.log_history for name in entry)
                if "/" in name  # the trainer's own names have none
            },
            best_step=state.best_global_step,
            stopped_early=state.global_step < state.max_steps,
            seconds=time.monotonic() - start,
            n_train=len(train),
            n_validation=len(validation),
            trainable_parameters=trainable,
            perplexity=perplexities,
            change=change,
        )
        facts = {
            "control_tag": control_tag,
            "method": method,
            "trainer": trainer,
            "base": _portable(base.name, folder),
            "base_revision": base.revision,
            "settings": asdict(settings),
            # Without the seconds: after a kill, the same call leaves the same bytes.
            "training": {key: value for key, value in asdict(result).items() if key not in ("path", "seconds")},
        }
        write_json(folder / FACTS, _without_nan(facts))
        write_text(folder / "README.md", model_card(facts, card or {}))
    _say(result)
    return result


class BiasCallback(TrainerCallback):
    """Measures the model before the first step and every k steps, and logs the values beside the loss.

    Training is the same with it as without: the model is in evaluation mode and without gradients while it is
    measured, and all random states are put back.
    """

    def __init__(self, measure: Callable[[torch.nn.Module], Mapping[str, float]], every: int) -> None:
        """Take `measure`, whose values have names with a slash ("bias/fgb_pooled_corrected"), and `every`, the k."""
        self.measure, self.every = measure, every
        self.trainer: Trainer | None = None  # `tune` sets it: a callback cannot log without

    def on_train_begin(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0:
            self._measure(state, control)

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        if state.global_step % self.every == 0:
            self._measure(state, control)

    def _measure(self, state: TrainerState, control: Any) -> None:
        model, was_training = self.trainer.model, self.trainer.model.training
        model.eval()
        with random_states_kept(), torch.no_grad():
            values = dict(self.measure(model))
        model.train(was_training)
        log.info("step %d: %s", state.global_step, ", ".join(f"{name} {value:.4g}" for name, value in values.items()))
        due = control.should_log
        self.trainer.log(values)
        control.should_log = due  # `log` takes the train loss of this step for logged


class _StepCallback(TrainerCallback):
    """Moves the progress on at every step and says each validation loss in a line."""

    def __init__(self, advance: Callable[[int], None]) -> None:
        self.advance = advance

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **kwargs: Any) -> None:
        self.advance(1)

    def on_evaluate(self, args: Any, state: TrainerState, control: Any, metrics: Mapping[str, float], **_: Any) -> None:
        log.info("step %d: validation loss %.4f", state.global_step, metrics["eval_loss"])


def _train(
    base: DialogueModel,
    train: Dataset,
    validation: Dataset,
    settings: TuningSettings,
    kind: ModuleType,
    tags: Sequence[str],
    checkpoints: Path,
    callbacks: Sequence[TrainerCallback],
    report_to: str,
    run_name: str | None,
) -> TrainerState:
    """Train, or go on training, and return the state; its best checkpoint is on disk."""
    last = _last_checkpoint(checkpoints)
    if last is not None:
        state = TrainerState.load_from_json(str(last / "trainer_state.json"))
        if state.global_step >= state.max_steps or _out_of_patience(state, settings.patience):
            return state
        log.info("tuning: going on from step %d", state.global_step)
    common = _arguments(settings, len(train), checkpoints, report_to, run_name, resumed=last is not None)
    model = _trainable_copy(base, settings)
    # The preference trainers hold the model against the one it was: with an adapter, the one without it.
    reference = {} if settings.lora or kind is sft else {"ref_model": _trainable_copy(base, settings)}
    tokenizer = copy.deepcopy(base.tokenizer)
    pad_token_id = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id  # or the trainer warns
    steps = settings.epochs * math.ceil(len(train) / settings.batch_size)
    with progress(steps, "tuning", "steps", state.global_step if last else 0) as advance, _quiet():
        trainer = kind.Trainer(
            model,
            args=kind.arguments(common, settings, train),
            data_collator=kind.data_collator(base, pad_token_id),
            train_dataset=train,
            eval_dataset=validation,
            processing_class=tokenizer,
            callbacks=[EarlyStoppingCallback(settings.patience), _StepCallback(advance), *callbacks],
            peft_config=_lora(base, tags, settings) if settings.lora else None,
            **reference,
        )
        trainer.remove_callback(PrinterCallback)
        for callback in callbacks:
            if isinstance(callback, BiasCallback):
                callback.trainer = trainer
        if report_to == "tensorboard":
            trainer.add_callback(_tensorboard(checkpoints.parent / "tensorboard"))
        trainer.train(resume_from_checkpoint=str(last) if last else None)
    return trainer.state


def _arguments(
    settings: TuningSettings, n_train: int, checkpoints: Path, report_to: str, run_name: str | None, resumed: bool
) -> dict[str, Any]:
    """Return what all trainers are told."""
    per_epoch = math.ceil(n_train / settings.batch_size)
    evaluate_every = max(1, per_epoch // settings.evaluations_per_epoch)
    # Every checkpoint is at a logged step, so that a resumed run logs the same losses.
    log_every = max(1, evaluate_every // LOGS_PER_EVALUATION)
    evaluate_every = evaluate_every // log_every * log_every
    return {
        "output_dir": str(checkpoints),
        "num_train_epochs": settings.epochs,
        "per_device_train_batch_size": settings.batch_size,
        "per_device_eval_batch_size": 4 * settings.batch_size,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "warmup_steps": settings.warmup,
        "lr_scheduler_type": "linear",
        "seed": settings.seed,
        "bf16": settings.dtype == "bfloat16",
        "use_cpu": not torch.cuda.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
        "gradient_checkpointing": False,
        "logging_steps": log_every,
        "eval_strategy": "steps",
        "eval_steps": evaluate_every,
        "eval_on_start": not resumed,
        "save_strategy": "steps",
        "save_steps": evaluate_every,
        "save_total_limit": 2,  # the last and the best
        "load_best_model_at_end": True,
        "metric_for_best_model": "eval_loss",
        "greater_is_better": False,
        "restore_callback_states_from_checkpoint": True,  # the patience that is left
        "disable_tqdm": True,
        "report_to": "wandb" if report_to == "wandb" else "none",
        "run_name": run_name,
    }


def _lora(base: DialogueModel, tags: Sequence[str], settings: TuningSettings) -> LoraConfig:
    tokens = {token for tag in tags for token in base.tokenizer(tag, add_special_tokens=False)["input_ids"]}
    return LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        target_modules="all-linear",
        # GPT-2's layers hold their weights transposed.
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in base.model.modules()),
        trainable_token_indices=sorted(tokens) or None,
        task_type=TASK_TYPES.get(base.kind, "CAUSAL_LM"),
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep TRL from reporting the run to the hub, and from warning about its own deprecated defaults."""
    told = constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_TELEMETRY = True
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*gradient_checkpointing.*", FutureWarning)
            yield
    finally:
        constants.HF_HUB_DISABLE_TELEMETRY = told


@contextmanager
def _folder_written_whole(path: Path) -> Iterator[Path]:
    """Yield an empty folder beside `path`; it takes the place of `path` if the block ends without an error."""
    folder = path.with_name(f".{path.name}.part")
    shutil.rmtree(folder, ignore_errors=True)  # of a killed process
    folder.mkdir()
    try:
        yield folder
        shutil.rmtree(path, ignore_errors=True)
        folder.replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check(base: DialogueModel, trainer: str, control_tag: str, report_to: str) -> None:
    if base.kind == "encoder_decoder" and trainer != "sft":
        raise InputError(
            f"model: {base.name} is an encoder-decoder model, which TRL's {trainer.upper()} trainer does not take; "
            "give another method."
        )
    if base.control_tag and base.control_tag != control_tag:
        raise InputError(
            f"model: {base.name} was tuned to be asked with {base.control_tag!r}, this method asks with "
            f"{control_tag!r}; go on with the same method, or tune the model it was made from."
        )
    if report_to == "wandb":
        import wandb

        if wandb.run is None:  # the trainer would start one by itself, and ask the user for an account
            raise InputError("report_to: there is no W&B run at hand; start one before tuning, or give none.")


def _perplexities(
    base: DialogueModel,
    tuned: DialogueModel,
    tag: str,
    neutral: tuple[Sequence[str], Sequence[str]] | None,
    validation_rows: Dataset,
) -> tuple[float, float]:
    """Return the perplexity of ordinary dialogue, the base's and the tuned model's, each asked with its own tag."""
    if neutral is not None:
        prompts, responses = neutral
        contexts = [render_contexts(base, prompts, [""] * len(prompts), each) for each in (base.control_tag, tag)]
    else:
        column = "completion" if "completion" in validation_rows.column_names else "chosen"
        wanted = validation_rows["label"] if "label" in validation_rows.column_names else None
        kept = validation_rows if wanted is None else validation_rows.select(np.flatnonzero(wanted))
        contexts, responses = [list(kept[PROMPT])] * 2, list(kept[column])
    before, after = (perplexity(*pair, responses) for pair in zip((base, tuned), contexts, strict=True))
    return before, after


def _check_perplexity(perplexities: tuple[float, float], settings: TuningSettings) -> None:
    before, after = perplexities
    if not after <= before * (1 + settings.largest_perplexity_rise):  # NaN is refused too
        raise Refused(
            f"learning_rate: {settings.learning_rate} spoiled the model: the perplexity of ordinary dialogue went from "
            f"{before:.3f} to {after:.3f}, and largest_perplexity_rise is {settings.largest_perplexity_rise}. Lower "
            "the rate, or raise preference_beta, and give another --output_dir."
        )


def _tensorboard(folder: Path) -> TrainerCallback:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import TensorBoardCallback

    return TensorBoardCallback(SummaryWriter(str(folder)))


def _claim(checkpoints: Path, **inputs: Any) -> None:
    """Write down what is tuned on what, or refuse checkpoints of another tuning."""
    file = checkpoints / "inputs.json"
    if not file.exists():
        write_json(file, inputs)
        return
    earlier = json.loads(file.read_text(encoding="utf-8"))
    changed = [name for name, value in inputs.items() if earlier.get(name) != value]
    if changed:
        raise InputError(
            f"output_dir: {checkpoints} holds a tuning with other {' and '.join(changed)}; "
            "give another --output_dir, or delete the folder."
        )


def _last_checkpoint(checkpoints: Path) -> Path | None:
    """Return the newest checkpoint; one that was being written when the process was killed is removed."""
    whole = []
    for folder in checkpoints.glob("checkpoint-*"):
        try:
            json.loads((folder / "trainer_state.json").read_text(encoding="utf-8"))  # the file written last
            whole.append(folder)
        except (OSError, ValueError):
            shutil.rmtree(folder)
    return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


def _out_of_patience(state: TrainerState, patience: int) -> bool:
    return sum(step > state.best_global_step for step, _ in _curve(state, "eval_loss")) >= patience


def _curve(state: TrainerState, name: str) -> tuple[tuple[int, float], ...]:
    return tuple((entry["step"], entry[name]) for entry in state.log_history if name in entry)


def _copy_weights(checkpoint: Path, folder: Path, base: DialogueModel) -> int:
    """Copy a checkpoint's model and the tokenizer; return the number of trained parameters."""
    for pattern in ("*.safetensors*", "config.json", "generation_config.json", "adapter_config.json"):
        for file in checkpoint.glob(pattern):
            shutil.copy2(file, folder)
    config = folder / "adapter_config.json"
    if config.exists():
        settings = json.loads(config.read_text(encoding="utf-8"))
        revision = None if Path(base.name).is_dir() else base.revision
        write_json(config, {**settings, "base_model_name_or_path": _portable(base.name, folder), "revision": revision})
    base.tokenizer.save_pretrained(str(folder))
    return sum(tensor.numel() for file in folder.glob("*.safetensors") for tensor in load_file(file).values())


def _portable(name: str, folder: Path) -> str:
    """Return a model's name as it can be read elsewhere: a local folder relative to the tuned model's."""
    return os.path.relpath(Path(name).resolve(), folder.resolve()) if Path(name).is_dir() else name


def _trainable_copy(base: DialogueModel, settings: TuningSettings) -> PreTrainedModel:
    model = copy.deepcopy(base.model)
    return model.float() if settings.dtype == "float32" or not settings.lora else model


def _load(base: DialogueModel, folder: Path, lora: bool) -> DialogueModel:
    with _quiet():
        if lora:
            model = PeftModel.from_pretrained(copy.deepcopy(base.model), str(folder))
        else:
            auto_class = AutoModelForSeq2SeqLM if base.kind == "encoder_decoder" else AutoModelForCausalLM
            model = auto_class.from_pretrained(str(folder), dtype=base.model.dtype).to(base.model.device)
    return replace(base, model=model.eval())


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _rows_sha256(*rows: Dataset) -> str:
    digest = hashlib.sha256()
    for part in rows:
        for column in part.column_names:
            digest.update(json.dumps(list(part[column])).encode())
    return digest.hexdigest()


def _say(result: TuningResult) -> None:
    log.info(
        "tuning: validation loss %.4f → %.4f (step %d), perplexity %.3f → %.3f; %.0f %% of %d greedy responses changed",
        result.validation_losses[0][1],
        dict(result.validation_losses)[result.best_step],
        result.best_step,
        *result.perplexity,
        100 * result.change.greedy_share,
        result.change.n,
    )
