"""The values of `{model}` in the name of a folder, and of the precision `auto`; a resumed run keeps its values."""

import logging
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePath
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import json_sha256
from evenhand.evaluation.model_settings import Dtype
from evenhand.evaluation.runs import processes
from evenhand.evaluation.runs.record import RunRecord, read_record
from evenhand.evaluation.settings import AUTO, identity_of
from evenhand.recipes.finished_runs import permitted_measurement, read_measurement
from evenhand.recipes.received import Permissions
from evenhand.recipes.settings import (
    FAMILIES,
    GENERATION_BIAS,
    MODEL_IN_PATH,
    Measurement,
    MeasureSettings,
    family_config,
)
from evenhand.recipes.tuning_settings import LoopSettings

log = logging.getLogger("evenhand")

BEFORE = "before"  # the folder, in a loop's, of the measurement of the base model
IDENTITY_DIGITS = 6
Chosen = TypeVar("Chosen", bound=Measurement)


def resolve(settings: Any) -> Any:
    """Return settings in which `{model}` in `output_dir` is the name of the measured model.

    Called once, at the doors: the command line and the Python API. If the folder has a run of another model of the same
    name, such as another `checkpoint-500`, six digits of the model's identity are added to the name. The settings of a
    loop that goes on from a measurement also get the settings of the measurement. The precision `auto` is replaced
    later (`with_precision`), because it needs torch.

    Raises:
        InputError: the model cannot be used.
    """
    if isinstance(settings, LoopSettings):
        settings = with_base_run(settings)
    if not isinstance(settings, MeasureSettings | LoopSettings) or MODEL_IN_PATH not in str(settings.output_dir):
        return settings
    folder = processes.on_rank_zero(lambda: _folder(settings))
    return settings.replaced(output_dir=folder)


def _folder(settings: MeasureSettings | LoopSettings) -> Path:
    measured = measurement_of(settings)
    name = folder_name(measured.model.name)
    folder = _filled(settings.output_dir, name)
    is_loop = isinstance(settings, LoopSettings)
    record = read_record(folder / BEFORE if is_loop else folder, "output_dir")
    if record is None or not measured.model.name:
        return folder
    identity = family_config(measured, measured.metrics[0]).open_model().identity()
    for recorded in record["inputs"].values():
        if isinstance(recorded, dict) and any(recorded.get(key, value) != value for key, value in identity.items()):
            log.info("%s has a run of another model of this name", folder)
            return _filled(settings.output_dir, f"{name}-{json_sha256(identity)[:IDENTITY_DIGITS]}")
    return folder


def _filled(template: Path, name: str) -> Path:
    return Path(str(template).replace(MODEL_IN_PATH, name))


def folder_name(model: str) -> str:
    """Return the last part of a model's name, as the name of a folder.

    >>> folder_name("org/model"), folder_name("package:llm/Model.Q4_1.gguf"), folder_name("gpt:7b"), folder_name("")
    ('model', 'Model.Q4_1', 'gpt-7b', 'measure')
    """
    last = PurePath(model).name.removesuffix(".gguf")
    if last in ("", ".", ".."):
        last = Path(model).resolve().name if model else ""
    return re.sub(r"[^\w.-]+", "-", last).strip(".-") or "measure"


def with_base_run(settings: LoopSettings) -> LoopSettings:
    """Return the settings of a loop with the settings of the measurement from which it goes on, if there is one.

    Raises:
        InputError: the run is not finished or not of a model that can be tuned, or the loop's settings contain values
            that are neither the default nor the run's.
    """
    base_run = settings.base_run
    if base_run is None:
        return settings
    measured, _ = read_measurement(base_run, "base_run")
    fault = ""
    if not measured.can_be_asked:
        fault = "scored a file of responses, so there is no model to tune"
    elif not measured.has_weights:
        fault = "measured a model on a server, whose weights cannot be tuned here"
    elif measured.method is not None:
        fault = f"measured its model with the method {measured.method}, which the loop would not tune"
    elif measured.split != "measure":
        fault = f"measured the split {measured.split!r}; the loop needs the split 'measure'"
    elif measured.metrics[0] != GENERATION_BIAS:
        metrics = ", ".join(measured.metrics)
        fault = f"has the metrics {metrics}; the loop reduces {GENERATION_BIAS}, which must be the first"
    if fault:
        raise InputError("base_run", f"{base_run} {fault}. Give the model in place of the run.")
    permissions = Permissions(
        code=settings.measure.model.trust_remote_code,
        servers=settings.servers,
        tasks=settings.measure.capabilities,
        code_flag="--measure.model.trust_remote_code",
    )
    measured, record = permitted_measurement(base_run, "base_run", permissions)
    processes.on_rank_zero(lambda: _check_same_inputs(base_run, measured, record))
    shared = {name: getattr(measured, name) for name in Measurement.model_fields}
    measurement = Measurement.model_validate(shared)
    _check_kept("measure", settings.measure, measurement, Measurement())
    _check_kept("", LoopSettings(seed=settings.seed), LoopSettings(seed=measured.seed), LoopSettings())
    return settings.replaced(measure=measurement, seed=measured.seed)


def _check_same_inputs(folder: Path, measured: MeasureSettings, record: RunRecord) -> None:
    """Raise InputError if a file or a model that a run read has another content now, or was never the one it read."""
    for name in dict.fromkeys(measured.metrics):
        recorded = record["inputs"].get(name, {})
        found = FAMILIES[name].inputs(family_config(measured, name))
        changed = sorted(key for key, value in found.items() if recorded.get(key) != value)
        if changed:
            raise InputError(
                "base_run",
                f"what {folder} read as {', '.join(changed)} ({name}) is not what its settings lead to on this machine "
                "now; give the model in place of the run.",
            )


def _check_kept(group: str, given: BaseModel, recorded: BaseModel, defaults: BaseModel) -> None:
    """Raise InputError if a given setting is neither the default nor the recorded one."""
    default_values = identity_of(defaults, with_paths=True)
    recorded_values = identity_of(recorded, with_paths=True)
    for name, value in identity_of(given, with_paths=True).items():
        recorded_value = recorded_values.get(name)
        if value not in (default_values.get(name), recorded_value):
            raise InputError(
                f"{group}.{name}".lstrip("."),
                f"{value!r} is given, but the measurement that the loop goes on from has {recorded_value!r}; leave it "
                "out, or give the model in place of the run.",
            )


def first_measurement(folder: Path, metrics: Sequence[str]) -> Path | None:
    """Return the folder of a base model's measurement, with these metrics, in that of a loop or ablation; None if none.

    The precision `auto` depends on the metrics, and other stages have the precision of a base model's measurement.
    """
    for path in (folder / BEFORE, *sorted(folder.glob("stages/measure-*"))):
        record = read_record(path, "output_dir")
        recorded = {} if record is None else record["settings"]
        if [recorded.get(name) for name in ("metrics", "split", "method")] == [metrics, "measure", None]:
            return path
    return None


def measurement_of(settings: MeasureSettings | LoopSettings) -> MeasureSettings:
    """Return the settings of the measurement itself or, of a loop, of its measurement of the base model."""
    if isinstance(settings, MeasureSettings):
        return settings
    return MeasureSettings.model_validate({**vars(settings.measure), "seed": settings.seed})


def with_precision(measured: Chosen, folder: Path | None, loaded: str | None = None) -> Chosen:
    """Return a measurement with the precision that `auto` stands for.

    It is the precision of the earlier measurement in `folder`, if there is one. Otherwise it is float32 for families
    that need it, and bfloat16 where the device computes in it. A model that is not loaded has none.

    Args:
        folder: the folder of a measurement, which may have none yet; None: there is no folder.
        loaded: the precision of a model that is loaded already.

    Raises:
        InputError: the device cannot be used.
    """
    model = measured.model
    if model.dtype != AUTO:
        return measured
    dtype = processes.on_rank_zero(lambda: _recorded_precision(folder))
    if dtype is None:
        if not measured.has_weights or not model.name:
            return measured
        needs_float32 = any(FAMILIES[name].NEEDS_FLOAT32 for name in measured.metrics)
        device = AUTO if isinstance(model.device, dict) else model.device
        dtype = loaded or processes.on_rank_zero(lambda: _fast_precision(device, needs_float32))
    if dtype not in get_args(Dtype):  # of a model that the caller has loaded, in float64
        return measured
    return measured.replaced(model=model.replaced(dtype=dtype))


def _recorded_precision(folder: Path | None) -> str | None:
    record = None if folder is None else read_record(folder, "output_dir")
    model = {} if record is None else record["settings"].get("model")
    return model.get("dtype") if isinstance(model, dict) else None


def _fast_precision(device: str, needs_float32: bool) -> str:
    """Return the precision that suits a device and families of metrics."""
    dtype = "float32" if needs_float32 else _device_precision(device)
    _note_precision(dtype)
    return dtype


@cache  # once a process, although each stage of a loop asks
def _note_precision(dtype: str) -> None:
    log.info("the model computes in %s; %s takes another precision", dtype, spelled("model.dtype"))


def _device_precision(device: str) -> str:
    from evenhand.evaluation.models.checkpoints import resolve_device  # these import torch
    from evenhand.evaluation.models.precision import fast_dtype

    return fast_dtype(resolve_device(device))
