"""The command `export`: a folder with a tuned model that works without Evenhand, and with its model card.

The chat template of the exported model appends the control tag. `load_dialogue_model` merges the adapter into its base
for the export as for a measurement, in the same precision. Only the model's folder, `output_dir`/model, is uploaded.
"""

import json
import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.files import check_links_inside, write_json, write_text
from evenhand.evaluation.hub import check_upload, upload
from evenhand.evaluation.metrics.generation_bias.engine.spread import find_headline
from evenhand.evaluation.metrics.generation_bias.requested_language import style_group
from evenhand.evaluation.metrics.generation_bias.verdict import change_direction
from evenhand.evaluation.model_settings import ModelSettings
from evenhand.evaluation.models.activation import invocation_in
from evenhand.evaluation.models.checkpoints import adapter_config
from evenhand.evaluation.models.decoding import decoding_arguments
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.revisions import (
    ADAPTER_FOLDER,
    TUNING_FILE,
    adapter_base,
    adapter_folder,
    is_adapter,
    is_gguf,
    is_local_path,
)
from evenhand.evaluation.report.formats import Format, find_format
from evenhand.evaluation.report.numbers import decimals_for
from evenhand.evaluation.report.words import document
from evenhand.evaluation.runs.record import FINISHED, read_record, read_run, run_sha256, run_state
from evenhand.evaluation.runs.stage import stage
from evenhand.evaluation.score import (
    SCORES,
    BiasScore,
    Form,
    Kind,
    comparable_levels,
    find_score,
    read_scores,
    signature_line,
)
from evenhand.mitigation.adapter import atomic_write_folder
from evenhand.mitigation.card import TuningFacts, model_card, table
from evenhand.mitigation.methods import JOIN, TrainedMethod, load_method, method_class, reads_labels, trained_method
from evenhand.mitigation.methods.shrink import MAPS_FILE
from evenhand.mitigation.shrinking import maps_card
from evenhand.mitigation.tuned_base import tuning_metadata
from evenhand.recipes.command_settings import ExportSettings
from evenhand.recipes.finished_runs import MODEL_CODE, permitted_measurement, read_measurement
from evenhand.recipes.label import read_threshold
from evenhand.recipes.measure import check_method_of
from evenhand.recipes.received import Permissions
from evenhand.recipes.settings import MeasureSettings, settings_of_methods
from evenhand.recipes.sweep.points import change_columns
from evenhand.recipes.sweep.summary import COST_METRICS, QUALITY_METRICS, REDUCTION_METRICS

log = logging.getLogger("evenhand")

MODEL = "model"
COMPARISON = "compare"
CARD = "README.md"
RESULTS = Path(__file__).with_name("export.md.j2")
# The metrics of the table of scores before and after tuning.
METRICS = (
    ("fgb", Form.POOLED_CORRECTED),
    ("fgb", Form.CORRECTED),
    ("fgb", Form.PLAIN),
    ("perplexity", Form.PLAIN),
    ("distinct_2", Form.PLAIN),
    ("mean_length", Form.PLAIN),
    ("parroting", Form.PLAIN),
)
# A prefix of a chat template that appends the control tag to the last user message, as in training. Jinja trims the
# newline after the last block, so the template itself still begins a line.
TAG_THE_PROMPT = """{{% set tagged = namespace(messages=[]) %}}\
{{% for message in messages %}}\
{{% if loop.last and message.role == 'user' %}}\
{{% set text = message.content %}}\
{{% set text = text ~ {tag} if text is string else text + [{{'type': 'text', 'text': {tag}}}] %}}\
{{% set message = dict(message, content=text) %}}\
{{% endif %}}\
{{% set tagged.messages = tagged.messages + [message] %}}\
{{% endfor %}}\
{{% set messages = tagged.messages %}}
"""


def export(settings: ExportSettings) -> None:
    """Write the tuned model and its card, and upload both if `push_to_hub` is a repository; a new one is private.

    Raises:
        InputError: the tuning run does not exist, or the comparison is of another run; the adapter cannot be merged, or
            cannot be exported alone.
    """
    config, record = read_run(settings.tuning, "tune", "tuning")
    if settings.push_to_hub:
        check_upload(settings.push_to_hub, "push_to_hub")
    comparison = _comparison(settings)
    inputs = {"tuning": run_sha256(record)}
    if comparison is not None:
        compared, record = read_run(comparison, "compare", "comparison")
        inputs["comparison"] = run_sha256(record)
    with stage("export", settings, inputs) as store:
        if store is not None:
            labelled = read_run(Path(config["labels"]), "label", "tuning")[0]["run"]
            permissions = Permissions(code=settings.trust_remote_code)
            measured, _ = permitted_measurement(Path(labelled), "tuning", permissions, [MODEL_CODE])
            facts = tuning_metadata(settings.tuning / ADAPTER_FOLDER)
            further: dict[str, object] = {}
            if reads_labels(facts["method"], facts["settings"]):
                further |= read_threshold(Path(config["labels"]))
            results = document(RESULTS, scores=None)
            change = None
            if comparison is not None:
                after, _ = read_measurement(Path(compared["after"]), "comparison")
                check_measured_as_exported(settings.tuning, after, measured.model)
                measured = measured.replaced(decoding=after.decoding)
                strength = after.model.adapter_strength
                measured = measured.replaced(model=measured.model.replaced(adapter_strength=strength))
                if strength is not None:
                    further["adapter strength"] = strength
                changes = read_scores(comparison / SCORES)
                change = shown_change(changes)
                results = comparison_section(
                    read_scores(Path(compared["before"]) / SCORES),
                    read_scores(Path(compared["after"]) / SCORES),
                    changes,
                    method=after.method or "",
                )
            _check_merge(settings, measured.model, config["method"])
            with atomic_write_folder(store.folder / MODEL) as folder:
                _write_with_card(settings, measured, further, results, change, folder)
    log.info("export: the model and its card are in %s", settings.output_dir / MODEL)
    if settings.push_to_hub:
        folder = settings.output_dir / MODEL
        address = upload(settings.push_to_hub, folder, "Exported by Evenhand", "push_to_hub")
        log.info("export: uploaded, %s", address)


def check_measured_as_exported(tuning: Path, after: MeasureSettings, base: ModelSettings) -> None:
    """Raise InputError if another model was measured, or the model in another way, than what the card says to load.

    Args:
        after: the measurement whose scores are on the card.
        base: the model that was tuned, as the labelled responses were measured.
    """
    if not measures_tuned_model(tuning, after):
        raise InputError(
            "comparison",
            f"its run after is of {after.model.name}, not of {tuning / ADAPTER_FOLDER}; compare a measurement of that.",
        )
    for name in ("system_prompt", "quantization"):
        measured = getattr(after.model, name)
        tuned = getattr(base, name)
        if after.has_weights and measured != tuned:
            raise InputError(
                "comparison",
                f"its run after has model.{name} {measured!r}, and the responses that were labelled have {tuned!r}; "
                "compare measurements with that.",
            )
    facts = tuning_metadata(tuning / ADAPTER_FOLDER)
    method = method_class(facts["method"])
    if not issubclass(method, TrainedMethod):
        return
    check_method_of(after)
    measured = settings_of_methods(after).get(facts["method"]) or method.Settings()
    for name in method.acting_settings:
        exported = facts["settings"][name]
        if getattr(measured, name) != exported:
            raise InputError(
                "comparison",
                f"it is of {facts['method']}.{name} {getattr(measured, name)}, and {tuning} is exported with "
                f"{exported}; compare a measurement with {exported}, or tune again with the other.",
            )


def shown_change(changes: Sequence[BiasScore]) -> str:
    """Return whether a comparison shows a rise or a fall of the difference in style, as its page tells it."""
    group = style_group(changes, Kind.DIFFERENCE)
    return change_direction(find_headline(changes, Kind.DIFFERENCE, group))


def measures_tuned_model(tuning: Path, after: MeasureSettings) -> bool:
    """Return whether a run measured the adapter of a tuning on its base, or an export of it.

    What a server serves is not known, and taken to be this model.
    """
    if not after.has_weights:
        return True
    folder = Path(after.model.name).resolve()
    if folder == (tuning / ADAPTER_FOLDER).resolve():
        return after.model.base is None
    record = read_record(folder.parent, "comparison") if folder.name == MODEL else None
    if record is None or record["command"] != "export":
        return False
    exported = read_run(folder.parent, "export", "comparison")[0]["tuning"]
    return Path(exported).resolve() == tuning.resolve()


def tagged_template(template: str, tag: str) -> str:
    """Return the chat template, preceded by code that appends the control tag to the last user message.

    >>> tagged_template("{{ messages[0].content }}", " no_bias").splitlines()[-1]
    '{{ messages[0].content }}'
    """
    text = json.dumps(tag, ensure_ascii=False)  # Jinja reads escaped emoji as two halves, which no tokenizer encodes
    return TAG_THE_PROMPT.format(tag=text) + template


def _comparison(settings: ExportSettings) -> Path | None:
    """Return the folder of the comparison for the card: `settings.comparison`, or the loop's for this tuning."""
    folder = settings.comparison or settings.tuning.parent / COMPARISON
    if settings.comparison is None and run_state(folder, "comparison") != FINISHED:
        return None
    tuning = read_run(folder, "compare", "comparison")[0]["tuning"]
    if tuning is not None and Path(tuning).resolve() == settings.tuning.resolve():
        return folder
    if settings.comparison is None:
        return None
    raise InputError("comparison", f"{folder} is of the tuning {tuning}, not of {settings.tuning}; give a run of that.")


def _write_with_card(
    settings: ExportSettings,
    measured: MeasureSettings,
    further: Mapping[str, object],
    results: str,
    change: str | None,
    folder: Path,
) -> None:
    """Write the tuned model and its card into `folder`; maps of hidden states need no weights."""
    adapter = settings.tuning / ADAPTER_FOLDER
    facts = cast(TuningFacts, tuning_metadata(adapter))
    if (adapter / MAPS_FILE).exists():
        shutil.copy2(adapter / MAPS_FILE, folder)
        base = load_dialogue_model(measured.model)
        decoding = _generation_config(base, measured)
        write_json(folder / "generation_config.json", decoding)
        write_text(folder / CARD, maps_card(facts, further, base, decoding=decoding, results=results))
        return
    tuned, base_name, decoding = _write(settings, measured, folder)
    card = model_card(
        facts,
        further,
        base_name,
        tuned,
        is_adapter=not settings.merge,
        decoding=decoding,
        results=results,
        change=change,
    )
    write_text(folder / CARD, card)


def _check_merge(settings: ExportSettings, model: ModelSettings, method: str) -> None:
    """Raise InputError if the adapter cannot be merged into its base, or cannot be exported alone."""
    adapter = settings.tuning / ADAPTER_FOLDER
    check_links_inside(adapter, "tuning", within=settings.tuning)  # all files in the folder are exported and uploaded
    base, revision = adapter_base(adapter) if is_adapter(adapter) else (None, None)
    has_maps = (adapter / MAPS_FILE).exists()
    loads_alone = has_maps or not (base is None or is_gguf(base) or adapter_folder(base, revision) is not None)
    reason = _never_merged(
        settings.tuning, model, method, is_activated=base is not None and invocation_in(adapter) is not None
    )
    other_base = "tune a base that is saved as safetensors and is no adapter"
    if settings.merge and reason:
        fix = "use --merge false" if loads_alone else f"it cannot be exported with its base {base}: {other_base}"
        raise InputError("merge", f"{reason}; {fix}.")
    if not settings.merge and not loads_alone:
        text = f"{adapter} is no adapter that PEFT loads alone (its base: {base})"
        if reason:
            raise InputError("merge", f"{text}, and {reason}; {other_base}.")
        raise InputError("merge", f"{text}; use --merge true.")


def _never_merged(tuning: Path, model: ModelSettings, method: str, *, is_activated: bool) -> str:
    """Return why the tuned model cannot be merged into its base; "" if it can."""
    trained = trained_method(method)
    if not trained.changes_weights:
        return f"{trained.name} acts on the first tokens of a response only, and merged weights would act on all"
    if model.quantization:
        return f"{tuning} was tuned on a base of {model.quantization}, into which no adapter can be merged"
    if is_activated:
        return f"{tuning} has an activated adapter, which acts after some tokens only and is never merged"
    return ""


def _write(
    settings: ExportSettings, measured: MeasureSettings, folder: Path
) -> tuple[DialogueModel, str, dict[str, Any]]:
    """Write the tuned weights and tokenizer into `folder`; return the model, its base's name and how it decodes."""
    adapter = settings.tuning / ADAPTER_FOLDER
    strength = measured.model.adapter_strength
    tuned = load_dialogue_model(measured.model.replaced(name=str(adapter), revision=None))
    name = str(adapter)
    base_folder = adapter_folder(name)
    while base_folder is not None:  # an adapter's base may be an adapter itself, also on the hub
        name, revision = adapter_base(base_folder)
        base_folder = adapter_folder(name, revision)
    if settings.merge:
        tuned.model.save_pretrained(folder)
    else:
        shutil.copytree(adapter, folder, ignore=shutil.ignore_patterns(TUNING_FILE, CARD), dirs_exist_ok=True)
        if strength is not None:
            adapter_config(adapter, strength).save_pretrained(folder)
        if is_local_path(name):
            log.warning(
                "export: the adapter's base is a local folder, %s; other machines will not find it; --merge true "
                "writes a whole model",
                name,
            )
    decoding = _generation_config(tuned, measured)
    write_json(folder / "generation_config.json", decoding)
    template = tuned.tokenizer.chat_template
    tag = tuned.control_tag
    if template and tag:  # one template, or templates by name
        tuned.tokenizer.chat_template = (
            tagged_template(template, tag)
            if isinstance(template, str)
            else {kind: tagged_template(text, tag) for kind, text in template.items()}
        )
    tuned.tokenizer.save_pretrained(folder)
    if tag and tuned.kind != "chat":  # Evenhand reads the tag of such a model from this file
        write_json(folder / TUNING_FILE, {"control_tag": tag})
    return tuned, name, decoding


def _generation_config(tuned: DialogueModel, measured: MeasureSettings) -> dict[str, Any]:
    """Return how the model was measured, as transformers reads it: its stops, other tokens, and the decoding.

    The base's own decoding is left out, because Evenhand generates without it.
    """
    chosen = decoding_arguments(measured.decoding.preset, measured.decoding.arguments)
    if chosen.get("no_repeat_ngram_size") and tuned.kind != "encoder_decoder":
        log.warning("export: of no_repeat_ngram_size, transformers also counts the prompt, which Evenhand does not")
    tokens = tuned.model.generation_config.to_diff_dict()
    return {**{name: value for name, value in tokens.items() if name != "transformers_version"}, **chosen}


def comparison_section(
    before: list[BiasScore], after: list[BiasScore], changes: list[BiasScore], *, method: str = ""
) -> str:
    """Return the card's section on scores before and after tuning, the removed share of bias, and the costs.

    `method` is the method with which the tuned model was measured; what it does apart from tuning is not exported. Runs
    without generation bias say nothing of the remaining bias. If the page of the comparison tells the styles of the
    answers in the language of the requests, so do pooled FGB* and its removed share.
    """
    headline = find_headline(after)
    if headline is None:
        return document(RESULTS, scores=None)
    before = comparable_levels(before, changes, "before")
    after = comparable_levels(after, changes, "after")
    row = change_columns(before, after, changes)
    group = style_group(changes, Kind.DIFFERENCE)
    scores: dict[str, list[str]] = {}
    costs: dict[str, str] = {}
    for name, form in METRICS:
        metric = find_format(name, form)
        of_styles = group if form == Form.POOLED_CORRECTED else {}
        found = [find_score(scores_of_run, name, form, Kind.LEVEL, **of_styles) for scores_of_run in (before, after)]
        pair = [score for score in found if score is not None]
        if len(pair) == len(found):
            rounded = replace(metric, decimals=decimals_for(metric.factor * score.value for score in pair))
            scores[metric.title] = [_text(rounded, score.value, score.interval) for score in pair]
    for metric in (*REDUCTION_METRICS, *QUALITY_METRICS, *COST_METRICS):
        if not math.isnan(row.get(metric.name, math.nan)):
            bounds = tuple(row.get(f"{metric.name}{end}", math.nan) for end in ("_low", "_high"))
            prefix = "bias removed, " if metric in REDUCTION_METRICS else ""
            interval = None if math.isnan(bounds[0]) else bounds
            costs[f"{prefix}{metric.label}, {metric.unit}"] = _text(metric, row[metric.name], interval)
    in_language = find_headline(changes, Kind.REDUCTION, group) if group else None
    return document(
        RESULTS,
        in_language="" if in_language is None else _removed_text(in_language),
        scores=table(scores, ["", "before", "after"]),
        costs=table(costs, ["after tuning", "change [95 % interval]"]),
        signature=signature_line(headline),
        methods=[part for part in method.split(JOIN) if part and load_method(part).training_part is None],
    )


def _removed_text(reduction: BiasScore) -> str:
    """Return a reduction in percent with its interval, or why it is undefined."""
    if math.isnan(reduction.value):
        return f"undefined ({reduction.reason})"
    metric = REDUCTION_METRICS[0]
    return f"{_text(metric, reduction.value, reduction.interval)} {metric.unit}"


def _text(metric: Format, value: float, interval: tuple[float, float] | None) -> str:
    return f"{metric.text(value)} {metric.interval_text(interval)}".strip()
