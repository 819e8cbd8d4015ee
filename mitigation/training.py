"""Tuning: training on a method's rows, checks of the result, and the folder of the tuned model.

`tune` trains on responses, not on contexts, and keeps the weights with the best validation loss. After a kill, training
resumes from the last checkpoint. Before the folder gets its final name, the saved files are loaded onto the base, and
`tune` checks that the outputs changed and that the perplexity of dialogue did not rise too much.
"""

import copy
import gc
import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypedDict

import torch
from datasets import Dataset, concatenate_datasets
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from pydantic_core import to_json
from safetensors import safe_open
from tqdm import tqdm
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
    set_seed,
)
from transformers.integrations.integration_utils import WandbCallback
from transformers.trainer_pt_utils import safe_globals

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError, first_line
from evenhand.evaluation.files import check_owner, read_json, write_json, write_text
from evenhand.evaluation.models.checkpoints import ignore_renamed_checkpointing, is_quantized
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.in_memory import weights_sha256
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, TUNING_FILE
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.progress import progress
from evenhand.mitigation.adapter import (
    atomic_write_folder,
    check_layers,
    copy_weights,
    load_tuned,
    portable_name,
    share_weights,
)
from evenhand.mitigation.bias_callback import MeasureCallback, preserve_random_states
from evenhand.mitigation.card import TuningFacts, model_card
from evenhand.mitigation.guards import OutputChange, check_losses, check_next_token_loss, check_tuned
from evenhand.mitigation.invocation import check_invocation, tag_tokens
from evenhand.mitigation.labelled_responses import PROMPT
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.page import Curve
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainer_configs import lora_config, steps_per_epoch, trainer_config
from evenhand.mitigation.trainers import SFT, TRAINERS, TuningTrainer, trainer_class
from evenhand.mitigation.training_rows import ReadDialogue, TrainingRows, dialogue_of, rows_sha256, token_ids

log = logging.getLogger("evenhand")
CHECKPOINTS = "checkpoints"
CHECKPOINT = re.compile(r"checkpoint-\d+")  # the name of a folder that the trainer writes
STATE = "trainer_state.json"
Dialogue = tuple[Sequence[str], Sequence[str]]  # prompts and responses


class TuningInputs(TypedDict):
    """What a checkpoint depends on: settings, and fingerprints of the rows and of the base model."""

    settings: dict[str, object]
    rows: str
    model: str


@dataclass(frozen=True)
class TuningResult:
    """The result of a tuning: numbers of rows and parameters, curves, and the comparison with the base.

    Losses are (step, loss) pairs in the unit of the trainer's `loss_name`; the first validation loss is the base's.
    `measured` has the values that a `MeasureCallback` logged, by metric. The weights of `best_step` are saved.
    `perplexity` is of dialogue (see `tune`) by the base and by the tuned model.
    """

    path: Path
    train_losses: Curve
    validation_losses: Curve
    measured: Mapping[str, Curve]
    best_step: int
    stopped_early: bool
    n_train: int
    n_validation: int
    trainable_parameters: int
    perplexity: tuple[float, float]
    change: OutputChange


@preserve_random_states()
@ignore_renamed_checkpointing()
def tune(
    base: DialogueModel,
    rows: TrainingRows,
    settings: TuningSettings,
    output_dir: Path,
    *,
    seed: int = 0,
    neutral: Dialogue | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    report_to: str = "none",
    card: Mapping[str, object] | None = None,
) -> TuningResult:
    """Tune a copy of `base` on a method's rows and write the tuned model to `output_dir`/adapter, atomically.

    `evenhand.mitigation.checks.check_tuning` rejects unsuitable models and settings before the base is loaded.

    The folder contains the adapter's weights and config (or the whole model's, if `settings.lora` is false), the
    tokenizer, evenhand.json and a model card. `output_dir`/checkpoints contains checkpoints: after a kill, a call with
    the same arguments resumes from them and ends with the same weights. Several processes train together, each on its
    part of a batch; rank 0 writes the model.

    Args:
        settings: the result of `checks.with_defaults`.
        seed: the seed of the adapter's initial weights and of the order of rows.
        neutral: prompts and responses of neutral dialogue, whose perplexity may rise by `max_perplexity_rise` at
            most; by default, the prompts and responses of the validation rows.
        report_to: "wandb" (the active run) or "none"; `settings.trainer` may name another tracker of transformers.
        card: additional rows for the model card, such as α and β.

    Raises:
        InputError: the rows or the model cannot be used; `output_dir` has checkpoints of another tuning.
        TuningRejected: the tuned model's outputs equal the base's, or its perplexity rose too much.
    """
    method = rows.method
    trainer = trainer_class(method.trainer, base.kind == "encoder_decoder")
    if trainer is SFT:
        check_next_token_loss(base)
    checkpoints = output_dir / CHECKPOINTS
    train = trainer.encode_rows(base, rows.train)
    validation = trainer.encode_rows(base, rows.validation)
    config = trainer_config(
        method, settings, len(train), base.model.device, output_dir=checkpoints, seed=seed, report_to=report_to
    )
    lora = None
    if settings.lora:
        invocation = tag_tokens(base, rows.train) if method.is_activated else None
        lora = lora_config(base.model, settings, token_ids(base, method.tags), invocation)
        if lora.alora_invocation_tokens is not None:
            check_invocation(base, concatenate_datasets([train, validation]), lora.alora_invocation_tokens)
        check_layers(base, lora)
    recorded: dict[str, object] = settings.model_dump() | method.settings.model_dump()
    recorded["seed"] = seed
    inputs = TuningInputs(settings=recorded, rows=rows_sha256(train, validation), model=weights_sha256(base.model))
    processes.on_rank_zero(lambda: _check_same_inputs(checkpoints, inputs))
    state = fit_adapter(base, trainer, (train, validation), settings, config, lora, callbacks)
    result = processes.on_rank_zero(lambda: _save(base, rows, settings, output_dir, state, inputs, neutral, card or {}))
    _log_result(result)
    return result


def _save(
    base: DialogueModel,
    rows: TrainingRows,
    settings: TuningSettings,
    output_dir: Path,
    state: TrainerState,
    inputs: TuningInputs,
    neutral: Dialogue | None,
    card: Mapping[str, object],
) -> TuningResult:
    """Check the weights of the best step, and write them with their facts and card, or nothing."""
    path = output_dir / ADAPTER_FOLDER
    check_losses(curve(state, "eval_loss"), state.best_global_step, settings)
    logged = dict.fromkeys(name for entry in state.log_history for name in entry)
    with atomic_write_folder(path) as folder:
        trainable = copy_weights(output_dir / CHECKPOINTS / f"checkpoint-{state.best_global_step}", folder, base)
        perplexities, change = _check_saved(base, folder, rows, settings, state, neutral)
        if weights_sha256(base.model) != inputs["model"]:
            raise RuntimeError(f"tuning changed the weights of its base {base.name}")
        result = TuningResult(
            path=path,
            train_losses=curve(state, "loss"),
            validation_losses=curve(state, "eval_loss"),
            measured={name: curve(state, name) for name in logged if "/" in name},
            best_step=state.best_global_step,
            stopped_early=state.global_step < state.max_steps,
            n_train=len(rows.train),
            n_validation=len(rows.validation),
            trainable_parameters=trainable,
            perplexity=perplexities,
            change=change,
        )
        _write_facts(folder, base, rows.method, inputs["settings"], result, card, is_adapter=settings.lora)
    return result


def _check_saved(
    base: DialogueModel,
    folder: Path,
    rows: TrainingRows,
    settings: TuningSettings,
    state: TrainerState,
    neutral: Dialogue | None,
) -> tuple[tuple[float, float], OutputChange]:
    """Return perplexities of dialogue by the base and by the tuned model in `folder`, and the change of outputs.

    Each model reads neutral dialogue with its control tag.
    """
    tuned = load_tuned(base, folder, settings.lora)
    validation = dialogue_of(rows.validation, PROMPT)
    dialogues = (validation, validation)
    if neutral is not None:
        prompts, responses = neutral
        personas = [""] * len(prompts)
        dialogues = (
            ReadDialogue(render_contexts(base, prompts, personas, base.control_tag), responses),
            ReadDialogue(render_contexts(base, prompts, personas, rows.method.control_tag), responses),
        )
    steps = f"step {state.best_global_step} of {state.max_steps}"
    return check_tuned(base, tuned, dialogues, rows.validation[PROMPT], settings, steps)


def _write_facts(
    folder: Path,
    base: DialogueModel,
    method: TrainedMethod,
    recorded: dict[str, object],
    result: TuningResult,
    further: Mapping[str, object],
    *,
    is_adapter: bool,
) -> None:
    """Write evenhand.json and the model card of a tuned model."""
    loss = TRAINERS[method.trainer].loss_name
    facts = tuning_facts(base, method, loss, recorded, result, folder)
    write_json(folder / TUNING_FILE, facts)
    text = model_card(facts, further, base.name, base, is_adapter=is_adapter)
    write_text(folder / "README.md", text)


def tuning_facts(
    base: DialogueModel,
    method: TrainedMethod,
    loss: str,
    recorded: dict[str, object],
    result: TuningResult,
    folder: Path,
) -> TuningFacts:
    """Return the content of evenhand.json in the folder of a tuned model; `loss` is the unit of its losses."""
    content = {
        "control_tag": method.control_tag,
        "is_activated": method.is_activated,
        "method": method.name,
        "loss": loss,
        "base": portable_name(base.name, folder),
        "base_revision": base.revision,
        "system_prompt": base.system_prompt,
        "settings": recorded,
        "training": {key: value for key, value in asdict(result).items() if key != "path"},
    }
    return json.loads(to_json(content, inf_nan_mode="null"))


def _log_result(result: TuningResult) -> None:
    first = result.validation_losses[0][1]
    best = dict(result.validation_losses)[result.best_step]
    before, after = result.perplexity
    log.info("tuning: validation loss %.4f → %.4f (step %d)", first, best, result.best_step)
    log.info(
        "tuning: perplexity %.3f → %.3f; %.0f %% of %d greedy responses changed",
        before,
        after,
        100 * result.change.greedy_share,
        result.change.n,
    )
    if best >= first:
        log.warning(
            "tuning: the validation loss did not fall below the base's; expect no improvement. "
            "Lower training.learning_rate, or give more rows (training.max_rows)."
        )


def fit_adapter(
    base: DialogueModel,
    trainer_type: type[TuningTrainer],
    rows: tuple[Dataset, Dataset],
    settings: TuningSettings,
    config: TrainingArguments,
    lora: LoraConfig | None,
    callbacks: Sequence[TrainerCallback],
) -> TrainerState:
    """Train, or resume training from the last checkpoint; return the trainer's state. The best checkpoint is on disk.

    `rows` are training and validation rows that `encode_rows` of the trainer returned. Without `lora`, all weights are
    trained.
    """
    train, validation = rows
    checkpoints = Path(config.output_dir)
    last = processes.on_rank_zero(lambda: last_checkpoint(checkpoints))
    done = 0
    if last is not None:
        state = TrainerState.load_from_json(str(last / STATE))
        n_later = sum(step > (state.best_global_step or 0) for step, _ in curve(state, "eval_loss"))
        if state.global_step >= state.max_steps or n_later >= settings.patience:
            return state
        done = state.global_step
        log.info("tuning: resuming from step %d", done)
    config.eval_on_start = last is None
    model = trainable_model(base, config, lora)
    tokenizer = copy.deepcopy(base.tokenizer)
    pad_token_id = tokenizer.eos_token_id if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    n_steps = settings.epochs * steps_per_epoch(settings, len(train))
    with progress(n_steps, "tuning", "steps", done) as bar:
        try:
            trainer = trainer_type(
                model,
                args=config,
                data_collator=trainer_type.collator(base, pad_token_id),
                train_dataset=train,
                eval_dataset=validation,
                processing_class=tokenizer,
                callbacks=[EarlyStoppingCallback(settings.patience), StepCallback(bar), *callbacks],
            )
        except (ValueError, ImportError) as error:
            if isinstance(error, InputError) or not settings.trainer:
                raise
            raise InputError("training.trainer", first_line(error)) from error
        trainer.remove_callback(PrinterCallback)
        if "report_to" not in settings.trainer and trainer.pop_callback(WandbCallback):
            trainer.add_callback(LossCallback())
        measuring = [callback for callback in callbacks if isinstance(callback, MeasureCallback)]
        for callback in measuring:
            callback.attach(trainer)
        try:
            trainer.train(resume_from_checkpoint=str(last) if last else None)
        finally:
            for callback in measuring:
                callback.trainer = None
    state = trainer.state
    del trainer, model
    gc.collect()  # frees the memory of the trainer, which is in reference cycles, for the checks
    return state


def trainable_model(base: DialogueModel, config: TrainingArguments, lora: LoraConfig | None) -> torch.nn.Module:
    """Return the network to train: a copy of the base in float32, or a new adapter on the base's weights."""
    if lora is None:
        network = copy.deepcopy(base.model).float()
    else:
        network = share_weights(base.model)
        if is_quantized(base.model):
            network = prepare_model_for_kbit_training(network, use_gradient_checkpointing=config.gradient_checkpointing)
    if not network.config.is_encoder_decoder:
        network.loss_type = "ForCausalLM"  # the default, which transformers takes with a warning for GPT-2
    # The trainer would set the tokenizer's, with a warning.
    network.config.pad_token_id = base.tokenizer.pad_token_id
    network.generation_config.pad_token_id = base.tokenizer.pad_token_id
    if lora is None:
        return network
    set_seed(config.seed)  # of the adapter's initial weights
    adapted = get_peft_model(network, lora)
    if config.gradient_checkpointing:
        adapted.enable_input_require_grads()  # else no gradient reaches the adapter through frozen embeddings
    return adapted


class LossCallback(WandbCallback):
    """Logs the training to the W&B run of the command, whose config has the settings already.

    The callback of transformers would add the paths of the model and of the checkpoints, and log gradients if a
    variable of the environment says so.
    """

    def setup(self, args: TrainingArguments, state: TrainerState, model: torch.nn.Module, **kwargs: object) -> None:
        self._initialized = True
        if state.is_world_process_zero:
            self._wandb.define_metric("train/global_step")
            self._wandb.define_metric("*", step_metric="train/global_step", step_sync=True)


class StepCallback(TrainerCallback):
    """Advances the progress bar at every step and logs each validation loss."""

    def __init__(self, bar: tqdm) -> None:
        self.bar = bar
        self.has_begun = False

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        if not self.has_begun:
            self.bar.unpause()  # the time left does not count the validation before the first step
            self.has_begun = True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        check_owner(Path(args.output_dir, STATE))  # before the trainer writes a checkpoint
        self.bar.update(1)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float],
        **kwargs: object,
    ) -> None:
        log.info("step %d: validation loss %.4f", state.global_step, metrics["eval_loss"])


def _check_same_inputs(checkpoints: Path, inputs: TuningInputs) -> None:
    """Record the inputs of a tuning; raise InputError if the folder has checkpoints of a tuning with other inputs."""
    file = checkpoints / "inputs.json"
    if not file.exists():
        write_json(file, inputs)
    recorded = read_json(file, "output_dir")
    known = recorded if isinstance(recorded, dict) else {}
    changed = [name for name, value in inputs.items() if known.get(name) != value]
    if changed:
        raise InputError(
            "output_dir",
            f"{checkpoints} has checkpoints of a tuning with other {' and '.join(changed)}; give another "
            f"{spelled('output_dir')}, or delete the folder.",
        )


def last_checkpoint(checkpoints: Path) -> Path | None:
    """Return the last whole checkpoint, None if none exists; deletes checkpoints that are incomplete or damaged."""
    whole = []
    for folder in checkpoints.glob("checkpoint-*"):
        if not (folder.is_dir() and CHECKPOINT.fullmatch(folder.name)):
            continue  # of the user's
        fault = _fault_of(folder)
        if fault:
            log.warning("tuning: the checkpoint %s is damaged (%s), and deleted", folder, fault)
            shutil.rmtree(folder)
        else:
            whole.append(folder)
    return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


def _fault_of(checkpoint: Path) -> str:
    """Return why a checkpoint cannot be resumed from, "" if it can: every file that resuming reads is read."""
    file = checkpoint / STATE  # the last file that is written
    try:
        state = TrainerState.load_from_json(str(file))
        steps = [step for step, _ in curve(state, "eval_loss") if step > 0]  # step 0 is the base
        # A training without evaluations has no best step.
        has_best = state.best_global_step in steps if steps else state.best_global_step is None
        if not 0 < state.global_step <= state.max_steps or not has_best:
            return f"{file.name}: its steps do not fit together"
        for file in sorted(checkpoint.iterdir()):
            if file.suffix == ".safetensors":
                with safe_open(file, framework="pt") as tensors:
                    for name in tensors.keys():  # noqa: SIM118 (no mapping)
                        tensors.get_tensor(name)
            elif file.suffix in (".pt", ".pth"):
                with safe_globals():  # as the trainer reads it: no code is executed
                    torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files lead to errors of all kinds
        return f"{file.name}: {first_line(error)}"
    return ""


def curve(state: TrainerState, name: str) -> Curve:
    """Return the logged values of a metric, with their steps."""
    return tuple((entry["step"], entry[name]) for entry in state.log_history if name in entry)
