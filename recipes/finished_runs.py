"""Settings and records of finished runs that another command reads, and their warnings. Imports nothing slow."""

import logging
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.metrics import FamilyConfig
from evenhand.evaluation.models.revisions import is_revision
from evenhand.evaluation.runs.record import FinishedRecord, RunRecord, read_run, run_sha256
from evenhand.evaluation.score import display_name
from evenhand.evaluation.settings import AUTO, checked
from evenhand.recipes.received import Permissions, check_permitted, described
from evenhand.recipes.settings import GENERATION_BIAS, MeasureSettings
from evenhand.recipes.tuning_settings import TuneSettings

log = logging.getLogger("evenhand")

# The settings of a measurement by which a tuning, a comparison and an export execute code, and a tuning asks a judge.
ALL = ("",)
MODEL_CODE = "model.trust_remote_code"
JUDGE = f"{GENERATION_BIAS}.style_classifier."


def read_measurement(
    folder: Path, field_name: str, family: str | None = None
) -> tuple[MeasureSettings, FinishedRecord]:
    """Return settings and record of a finished run of `measure`; the run's folder is the setting `field_name`.

    The settings only describe the run: nothing that they name is executed, asked or written (`received.described`).
    """
    values, record = read_run(folder, "measure", field_name)
    return _measurement(folder, field_name, family, described(values)), record


def permitted_measurement(
    folder: Path, field_name: str, permissions: Permissions, used: Collection[str] = ALL
) -> tuple[MeasureSettings, FinishedRecord]:
    """Return settings and record of a finished run of `measure`, for a command that acts by them.

    Args:
        field_name: the setting with the run's folder.
        permissions: what the user allows the record to do.
        used: the beginnings of the dotted names of the settings by which the command acts; all others only describe.

    Raises:
        InputError: the folder has no such run, or its record asks for more than the user allows.
    """
    values, record = read_run(folder, "measure", field_name)
    check_permitted(values, permissions, field_name, used)
    return _measurement(folder, field_name, None, described(values, used)), record


def _measurement(folder: Path, field_name: str, family: str | None, values: Mapping[str, Any]) -> MeasureSettings:
    """Return the settings of a run, which must have measured a family if one is given."""
    settings = checked(MeasureSettings, {**values, "output_dir": str(folder)}, str(folder))
    if family is not None and family not in settings.metrics:
        metrics = ", ".join(settings.metrics)
        raise InputError(
            field_name, f"{folder} has the metrics {metrics}; give a run with {spelled('metrics', family)}."
        )
    return settings


def check_same_precision(
    before: MeasureSettings | FamilyConfig, after: MeasureSettings | FamilyConfig, field_name: str
) -> None:
    """Raise InputError if the models of two runs were loaded in different precisions; rounding changes answers."""
    loaded = [run for run in (before, after) if run.has_weights]
    precisions = {run.model.dtype for run in loaded} - {AUTO}
    if len(precisions) > 1:
        old = before.model.dtype
        raise InputError(
            field_name,
            f"{display_name(after.model.name)} was measured in {after.model.dtype}, and "
            f"{display_name(before.model.name)} in {old}, so that rounding alone changes answers; measure it again "
            f"with {spelled('model.dtype', old)}.",
        )


def check_model_unchanged(
    measured: MeasureSettings, record: RunRecord, field_name: str, loaded_sha256: str | None = None
) -> None:
    """Raise InputError if the files of the model that a run measured have changed since.

    `loaded_sha256` is the hash of the weights of a model that is loaded already, which a run may have measured.
    """
    model = measured.model
    recorded = record["inputs"].get(GENERATION_BIAS, {}).get("model")
    if not measured.has_weights or not recorded:  # no model was loaded
        return
    if recorded == loaded_sha256:
        return
    if not is_revision(recorded, model.name, model.revision, model.base):
        raise InputError(
            field_name,
            f"the files of {model.name} have changed since it was measured (revision {recorded[:12]}); "
            "give the model as it was, or measure and label again.",
        )


def labelled_run(settings: TuneSettings, loaded_sha256: str | None = None) -> tuple[Path, MeasureSettings, str]:
    """Return the folder and the settings of the measurement that was labelled, and the fingerprint of its labels.

    `loaded_sha256` is as in `check_model_unchanged`.

    Raises:
        InputError: a folder has no such run, the responses or the model changed since, or the record of the measurement
            asks for more than the settings allow.
    """
    label_settings, label_record = read_run(settings.labels, "label", "labels")
    folder = Path(label_settings["run"])
    permissions = Permissions(code=settings.trust_remote_code, servers=settings.servers)
    used = (MODEL_CODE, JUDGE) if settings.measure_every else (MODEL_CODE,)
    measured, record = permitted_measurement(folder, "labels", permissions, used)
    if run_sha256(record) != label_record["inputs"].get("run"):
        raise InputError("labels", f"the responses in {folder} changed after labelling; run `evenhand label` again.")
    check_model_unchanged(measured, record, "labels", loaded_sha256)
    return folder, measured, run_sha256(label_record)


def warn_of_split(command: str, measured: MeasureSettings, folder: Path) -> None:
    """Log a warning if the responses for training may be to prompts for measurement."""
    if measured.split != "train" and measured.can_be_asked:
        log.warning(
            "%s: %s is of the split %r, so a model tuned on its responses would be measured on prompts that it was "
            "tuned on; label a run of `evenhand measure --split train`",
            command,
            display_name(str(folder)),
            measured.split,
        )
