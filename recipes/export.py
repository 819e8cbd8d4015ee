"""The command `export`: a folder with a tuned model that works without Evenhand, and with its model card.

The chat template of the exported model appends the control tag. `load_dialogue_model` merges the adapter into its base
for the export as for a measurement, in the same precision. Only the model's folder, `output_dir`/model, is uploaded.
"""

import json
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import httpx
import huggingface_hub
from transformers import GenerationConfig

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import check_links_inside, write_json, write_text
from evenhand.evaluation.manifest import MANIFEST, read_run, run_sha256
from evenhand.evaluation.models.checkpoints import adapter_config
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.models.revisions import (
    ADAPTER_FOLDER,
    TUNING_FILE,
    adapter_base,
    first_line,
    is_adapter,
    is_gguf,
    is_local_path,
)
from evenhand.evaluation.settings import DecodingSettings, ModelSettings
from evenhand.evaluation.store import stage
from evenhand.mitigation.adapter import atomic_write_folder
from evenhand.recipes.export_card import Exported, export_card
from evenhand.recipes.finished_runs import check_trust, read_settings
from evenhand.recipes.settings import ExportSettings, MeasureSettings

log = logging.getLogger("evenhand")

MODEL, COMPARISON, CARD = "model", "compare", "README.md"
SPECIAL_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# A prefix of a chat template that appends the control tag to the last user message, as in training. Jinja trims the
# newline after the last block, so the template itself still begins a line.
TAG_THE_PROMPT = """{{% set tagged = namespace(messages=[]) %}}\
{{% for message in messages %}}\
{{% if loop.last and message.role == 'user' %}}\
{{% set text = message.content %}}\
{{% set text = text ~ {tag} if text is string else text + [{{'type': 'text', 'text': {tag}}}] %}}\
{{% set message = dict(message, content=text) %}}\
{{% set tagged.messages = tagged.messages + [message] %}}\
{{% else %}}{{% set tagged.messages = tagged.messages + [message] %}}{{% endif %}}\
{{% endfor %}}\
{{% set messages = tagged.messages %}}
"""


def export(settings: ExportSettings) -> None:
    """Write the tuned model and its card, and upload both if `push_to_hub` is a repository.

    Raises:
        InputError: the tuning run does not exist, or the comparison is of another run; the adapter cannot be merged, or
            cannot be exported alone; the hub rejects the upload.
    """
    _, manifest = read_run(settings.tuning, "tune", "tuning")
    comparison = _comparison(settings)
    inputs = {"tuning": run_sha256(manifest)}
    if comparison is not None:
        inputs["comparison"] = run_sha256(read_run(comparison, "compare", "comparison")[1])
    with stage("export", settings, inputs) as run:
        if run is not None:
            measured = _measured(settings.tuning)
            check_trust(measured, settings.trust_remote_code, "tuning")
            _check(settings, measured.model)
            with atomic_write_folder(run.folder / MODEL) as folder:
                model = replace(measured.model, adapter_strength=_strength(comparison))
                exported = _write(settings, model, measured.decoding, folder)
                write_text(folder / CARD, export_card(exported, settings.tuning, measured, comparison))
    log.info("export: the model and its card are in %s", settings.output_dir / MODEL)
    if settings.push_to_hub:
        push(settings.output_dir / MODEL, settings.push_to_hub)


def push(folder: Path, repository: str) -> None:
    """Upload a folder to a repository of the hub; a new repository is private.

    Raises:
        InputError: the hub cannot be reached or rejects the upload.
    """
    try:
        api = huggingface_hub.HfApi()
        api.create_repo(repository, private=True, exist_ok=True)
        commit = api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Exported by Evenhand")
    except (OSError, ValueError, httpx.HTTPError) as error:
        hint = "log in by `hf auth login` with a token that may write there, and run the same command again"
        raise InputError(f"push_to_hub: cannot upload to {repository!r} ({first_line(error)}); {hint}.") from None
    log.info("export: uploaded, %s", commit.commit_url)


def tagged_template(template: str, tag: str) -> str:
    """Return the chat template, preceded by code that appends the control tag to the last user message.

    >>> tagged_template("{{ messages[0].content }}", " no_bias").splitlines()[-1]
    '{{ messages[0].content }}'
    """
    return TAG_THE_PROMPT.format(tag=json.dumps(tag)) + template


def _comparison(settings: ExportSettings) -> Path | None:
    """Return the folder of the comparison for the card: `settings.comparison`, or the loop's for this tuning."""
    folder = settings.comparison or settings.tuning.parent / COMPARISON
    if settings.comparison is None and not (folder / MANIFEST).exists():
        return None
    tuning = read_run(folder, "compare", "comparison")[0]["tuning"]
    if tuning is not None and Path(tuning).resolve() == settings.tuning.resolve():
        return folder
    if settings.comparison is None:
        return None
    raise InputError(f"comparison: {folder} is of the tuning {tuning}, not of {settings.tuning}; give a run of that.")


def _strength(comparison: Path | None) -> float | None:
    """Return the strength with which the adapter was measured for the comparison; None for the whole adapter."""
    if comparison is None:
        return None
    after = Path(read_run(comparison, "compare", "comparison")[0]["after"])
    return read_settings(after, "comparison")[0].model.adapter_strength


def _measured(tuning: Path) -> MeasureSettings:
    """Return the settings of the run of `measure` whose responses were labelled for the tuning."""
    labels = Path(read_run(tuning, "tune", "tuning")[0]["labels"])
    return read_settings(Path(read_run(labels, "label", "tuning")[0]["responses"]), "tuning")[0]


def _check(settings: ExportSettings, model: ModelSettings) -> None:
    adapter = settings.tuning / ADAPTER_FOLDER
    check_links_inside(adapter, "tuning", within=settings.tuning)  # all files in the folder are exported and uploaded
    if settings.merge and model.quantization:
        text = f"{settings.tuning} was tuned on a base of {model.quantization}, into which no adapter can be merged"
        raise InputError(f"merge: {text}; use --merge false.")
    base = adapter_base(adapter)[0] if is_adapter(adapter) else None
    if not settings.merge and (base is None or is_gguf(base) or is_adapter(Path(base))):
        text = f"{adapter} is no adapter that PEFT loads alone (its base: {base})"
        raise InputError(f"merge: {text}; use --merge true.")


def _write(
    settings: ExportSettings, model: ModelSettings, decoding_settings: DecodingSettings, folder: Path
) -> Exported:
    """Write the tuned model's weights and tokenizer into `folder`; return the model's facts for the card."""
    adapter = settings.tuning / ADAPTER_FOLDER
    tuned = load_dialogue_model(ModelSettings(**{**vars(model), "name": str(adapter), "revision": None}))
    name, revision = str(adapter), None
    while is_adapter(Path(name)):  # an adapter's base may be an adapter itself
        name, revision = adapter_base(Path(name))
    if settings.merge:
        tuned.model.save_pretrained(folder)
        try:
            base = GenerationConfig.from_pretrained(name, revision=revision)
        except (OSError, ValueError):  # a GGUF file has none
            base = tuned.model.generation_config
        # The base's other fields are left out, because Evenhand generates without them.
        tokens = {field: ids for field in SPECIAL_TOKENS if (ids := getattr(base, field, None)) is not None}
        chosen = decoding(decoding_settings.preset, **decoding_settings.arguments)
        write_json(folder / "generation_config.json", tokens | chosen)
    else:
        shutil.copytree(adapter, folder, ignore=shutil.ignore_patterns(TUNING_FILE, CARD), dirs_exist_ok=True)
        if model.adapter_strength is not None:
            adapter_config(adapter, model.adapter_strength).save_pretrained(folder)
        if is_local_path(name):
            log.warning("export: the adapter's base is a local folder, %s; other machines will not find it", name)
    template, tag = tuned.tokenizer.chat_template, tuned.control_tag
    if template and tag:  # one template, or templates by name
        tuned.tokenizer.chat_template = (
            tagged_template(template, tag)
            if isinstance(template, str)
            else {kind: tagged_template(text, tag) for kind, text in template.items()}
        )
    tuned.tokenizer.save_pretrained(folder)
    if tag and tuned.kind != "chat":  # Evenhand reads the tag of such a model from this file
        write_json(folder / TUNING_FILE, {"control_tag": tag})
    return Exported(tuned.kind, bool(template), name, is_merged=settings.merge, strength=model.adapter_strength)
