"""Export: a finished tuning → a folder that needs no Evenhand, with the control tag in its chat template and a card.

What is exported is what was measured: the adapter merged into its base as `load_dialogue_model` merges it, in the same
precision. It lies in `output_dir`/model, apart from what Evenhand notes of the run; that folder alone is uploaded.
"""

import json
import logging
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, TUNING_FILE, adapter_base, first_line, is_adapter
from evenhand.evaluation.runs.files import refuse_links_out, write_json, write_text
from evenhand.evaluation.runs.manifest import read_run
from evenhand.evaluation.runs.run_paths import MANIFEST
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.settings import ModelSettings
from evenhand.mitigation.training.adapter import atomic_write_folder
from evenhand.recipes.export_card import Exported, export_card
from evenhand.recipes.measure import check_trust, read_settings
from evenhand.recipes.settings import ExportSettings, MeasureSettings

log = logging.getLogger("evenhand")

MODEL, COMPARISON, CARD = "model", "compare", "README.md"
GENERATION = "generation_config.json"
NOT_EXPORTED = (TUNING_FILE, CARD)  # of an adapter's folder: what is Evenhand's own, or written anew
# Put before a chat template: what the user says last gets the control tag at its end, as in training. The line end
# behind it is trimmed with the block, so that the template itself begins a line as before.
TAG_THE_PROMPT = """{{% set tagged = namespace(messages=[]) %}}\
{{% for message in messages %}}\
{{% if loop.last and message.role == 'user' %}}\
{{% set said = message.content %}}\
{{% set said = said ~ {tag} if said is string else said + [{{'type': 'text', 'text': {tag}}}] %}}\
{{% set message = dict(message, content=said) %}}\
{{% set tagged.messages = tagged.messages + [message] %}}\
{{% else %}}{{% set tagged.messages = tagged.messages + [message] %}}{{% endif %}}\
{{% endfor %}}\
{{% set messages = tagged.messages %}}
"""


def export(settings: ExportSettings) -> None:
    """Write the tuned model and its card, and upload them if a repository is named.

    Raises:
        InputError: there is no such tuning, or the comparison is not of it; the adapter cannot be merged, or cannot be
            kept apart; the hub refuses the upload.
    """
    _, manifest = read_run(settings.tuning, "tune", "tuning")
    comparison = _comparison(settings)
    inputs = {"tuning": manifest["fingerprint"]}
    if comparison is not None:
        inputs["comparison"] = read_run(comparison, "compare", "comparison")[1]["fingerprint"]
    with stage("export", settings, inputs) as run:
        if run is not None:
            measured = _measured(settings.tuning)
            check_trust(measured, settings.trust_remote_code, "tuning")
            _check(settings, measured.model)
            with atomic_write_folder(run.folder / MODEL) as folder:
                exported = _write(settings, measured.model, folder)
                write_text(folder / CARD, export_card(exported, settings.tuning, measured, comparison))
    log.info("export: the model and its card are in %s", settings.output_dir / MODEL)
    if settings.push_to_hub:
        push(settings.output_dir / MODEL, settings.push_to_hub)


def push(folder: Path, repository: str) -> None:
    """Upload a folder to a repository of the hub, which is made, and private, where there is none.

    Raises:
        InputError: the hub cannot be reached, or refuses.
    """
    import httpx
    from huggingface_hub import HfApi

    try:
        api = HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Exported by Evenhand")
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise InputError(
            f"push_to_hub: {repository!r} cannot be uploaded to ({first_line(error)}); `hf auth login` with a token "
            "that may write there, and run the same command again."
        ) from None
    log.info("export: uploaded, %s", commit.commit_url)


def tagged_template(template: str, tag: str) -> str:
    """Return a chat template that puts the control tag behind what the user says last.

    >>> tagged_template("{{ messages[0].content }}", " no_bias").splitlines()[-1]
    '{{ messages[0].content }}'
    """
    return TAG_THE_PROMPT.format(tag=json.dumps(tag)) + template


def _comparison(settings: ExportSettings) -> Path | None:
    """Return the comparison that the card reports: the one that is given, or the loop's beside the tuning.

    Raises:
        InputError: the one that is given is not of this tuning.
    """
    beside = settings.tuning.parent / COMPARISON
    folder = settings.comparison or (beside if (beside / MANIFEST).exists() else None)
    if folder is None:
        return None
    tuning = read_run(folder, "compare", "comparison")[0]["tuning"]
    if tuning is not None and Path(tuning).resolve() == settings.tuning.resolve():
        return folder
    if settings.comparison is None:
        return None
    raise InputError(f"comparison: {folder} is of the tuning {tuning}, not of {settings.tuning}; give its own.")


def _measured(tuning: Path) -> MeasureSettings:
    """Return how the model that was tuned had been measured."""
    labels = Path(read_run(tuning, "tune", "tuning")[0]["labels"])
    return read_settings(Path(read_run(labels, "label", "tuning")[0]["responses"]), "tuning")[0]


def _check(settings: ExportSettings, model: ModelSettings) -> None:
    adapter = settings.tuning / ADAPTER_FOLDER
    refuse_links_out(adapter, "tuning", within=settings.tuning)  # all files of the folder are exported, and uploaded
    if settings.merge and model.quantization:
        raise InputError(
            f"merge: {settings.tuning} was tuned on a base of {model.quantization}, into which an adapter cannot be "
            "merged unchanged; use --merge false."
        )
    if not settings.merge and not is_adapter(adapter):
        raise InputError(f"merge: {settings.tuning} tuned all weights, so there is no adapter; use --merge true.")
    if not settings.merge and is_adapter(Path(adapter_base(adapter)[0])):
        raise InputError(f"merge: the base of {adapter} is an adapter itself; use --merge true.")


def _write(settings: ExportSettings, model: ModelSettings, folder: Path) -> Exported:
    """Write weights and tokenizer into `folder`; return what the card tells of them."""
    adapter = settings.tuning / ADAPTER_FOLDER
    tuned = load_dialogue_model(ModelSettings(**{**vars(model), "name": str(adapter), "revision": None}))
    name, revision = _origin(adapter)
    if settings.merge:
        tuned.model.save_pretrained(folder)
        if (generation := _generation_config(name, revision)) is not None:
            shutil.copyfile(generation, folder / GENERATION)
    else:
        shutil.copytree(adapter, folder, ignore=shutil.ignore_patterns(*NOT_EXPORTED), dirs_exist_ok=True)
        if Path(name).is_dir():
            log.warning("export: the adapter names its base by a folder of this machine, %s", name)
    template = tuned.tokenizer.chat_template
    if template and tuned.control_tag:
        tuned.tokenizer.chat_template = _each(template, tuned.control_tag)
    tuned.tokenizer.save_pretrained(folder)
    if tuned.control_tag and tuned.kind != "chat":  # Evenhand itself reads those without their template
        write_json(folder / TUNING_FILE, {"control_tag": tuned.control_tag})
    return Exported(tuned.kind, bool(template), name, merged=settings.merge)


def _each(template: Any, tag: str) -> Any:
    """Return the template, or each of those that a tokenizer has by name, with the tag."""
    if isinstance(template, str):
        return tagged_template(template, tag)
    return {name: tagged_template(text, tag) for name, text in template.items()}


def _origin(folder: Path) -> tuple[str, str | None]:
    """Return the name and revision of the model under an adapter, or under adapters on adapters."""
    name, revision = str(folder), None
    while is_adapter(Path(name)):
        name, revision = adapter_base(Path(name))
    return name, revision


def _generation_config(name: str, revision: str | None) -> Path | None:
    """Return the file of a model's own defaults of decoding, which Evenhand does not load; None where it has none."""
    from huggingface_hub import hf_hub_download

    if Path(name).is_dir():
        return path if (path := Path(name) / GENERATION).exists() else None
    with suppress(OSError, ValueError):
        return Path(hf_hub_download(name, GENERATION, revision=revision))
    return None
