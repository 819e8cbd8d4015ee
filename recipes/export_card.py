"""The model card of an exported model: front matter for the hub, use, scores before and after tuning, limits."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from evenhand.evaluation.manifest import read_run
from evenhand.evaluation.models.loading import Kind
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, TUNING_FILE, hub_repository
from evenhand.evaluation.report.formats import Format, format_of
from evenhand.evaluation.report.numbers import decimals_for
from evenhand.evaluation.score import BiasScore, display_name, find_score, read_scores, signature_line
from evenhand.mitigation.card import INTRO, LIMITS, table, tuning_facts_table
from evenhand.mitigation.trainers import load_trainer
from evenhand.recipes.label import THRESHOLD
from evenhand.recipes.measure import SCORES
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.sweep.columns import COST_METRICS, QUALITY_METRICS, REDUCTION_METRICS
from evenhand.recipes.sweep.points import HEADLINE, change_columns

HOLISTIC_BIAS = "fairnlp/holistic-bias", "HolisticBias"  # id on the hub, name
HOLISTIC_BIAS_VERSIONS = ("paper", "v1.0", "v1.1")  # values of `prompts.dataset`
# The metrics of the table of scores before and after tuning.
METRICS = (HEADLINE, "fgb_corrected", "fgb", "perplexity", "distinct_2", "mean_length", "parroting")
# Labels that are longer than in the tables of a sweep, which explain the short labels.
LABELS = {
    "perplexity_change": "perplexity of ordinary dialogue",
    "response_perplexity_change": "perplexity of the responses by the base",
}


@dataclass(frozen=True)
class Exported:
    """An exported model: its kind, whether it has a chat template, its base, and its adapter: merged, its strength."""

    kind: Kind
    has_template: bool
    base: str
    is_merged: bool
    strength: float | None = None


def export_card(exported: Exported, tuning: Path, measured: MeasureSettings, comparison: Path | None) -> str:
    """Return the model card of an exported model as Markdown.

    Args:
        tuning: the tuning run.
        measured: the settings with which the base was measured.
        comparison: the run that compares the model with its base; None for a card without scores.
    """
    facts = json.loads((tuning / ADAPTER_FOLDER / TUNING_FILE).read_text(encoding="utf-8"))
    labels = Path(read_run(tuning, "tune", "tuning")[0]["labels"])
    further = json.loads((labels / THRESHOLD).read_text(encoding="utf-8"))
    scores = []
    if comparison:
        config, _ = read_run(comparison, "compare", "comparison")
        scores = [read_scores(Path(it) / SCORES) for it in (config["before"], config["after"], comparison)]
    rows = tuning_facts_table(exported.base, facts, further, load_trainer(facts["trainer"]).loss_name)
    if exported.strength is not None:
        rows["strength"] = f"the adapter's change of the weights is multiplied by {exported.strength:g}"
    parts = [
        f"---\n{_front_matter(exported, facts, measured, scores[1] if scores else [])}\n---\n",
        INTRO,
        _use(exported, facts),
        _results(*scores) if scores else NOT_COMPARED,
        f"## How it was tuned\n\n{table(rows)}\n",
        LIMITS,
    ]
    return "\n".join(parts)


def _front_matter(exported: Exported, facts: dict[str, Any], measured: MeasureSettings, after: list[BiasScore]) -> str:
    """Return the card's YAML front matter for the hub. A local base model and custom prompts are left out."""
    is_holistic_bias = measured.prompts.file is None and measured.prompts.dataset in HOLISTIC_BIAS_VERSIONS
    dataset, dataset_name = HOLISTIC_BIAS if is_holistic_bias else ("prompts", "custom prompts")
    common = {"task_type": "text-generation", "dataset_type": dataset, "dataset_name": dataset_name}
    results = [
        EvalResult(metric_type=it.metric, metric_name=format_of(it.metric).label, metric_value=it.value, **common)
        for it in (find_score(after, metric) for metric in METRICS)
        if it and math.isfinite(it.value)
    ]
    name = f"{display_name(exported.base)} {facts['method']}"
    base = hub_repository(exported.base)
    return ModelCardData(
        library_name="transformers" if exported.is_merged else "peft",
        pipeline_tag="text-generation",
        tags=["evenhand", "style-equality", "dialogue", facts["method"]],
        datasets=[dataset] if is_holistic_bias else None,
        base_model=base,
        base_model_relation=base and ("finetune" if exported.is_merged else "adapter"),
        **({"eval_results": results, "model_name": name} if results else {}),
    ).to_yaml()


def _use(exported: Exported, facts: dict[str, Any]) -> str:
    """Return the card's section on use: code that runs in the model's folder, and where the control tag belongs."""
    tag, system = facts["control_tag"], facts["system_prompt"]
    is_encoder_decoder, message = exported.kind == "encoder_decoder", "I'm a hard-of-hearing grandmother."
    library, auto = ("transformers", "AutoModelFor") if exported.is_merged else ("peft", "AutoPeftModelFor")
    if exported.has_template:
        chat = [{"role": "system", "content": system}] if system else []
        chat = json.dumps([*chat, {"role": "user", "content": message}], ensure_ascii=False)
        context = CHAT_CONTEXT.format(chat=chat)
    else:
        text = json.dumps("\n".join(filter(None, (system, message))) + tag, ensure_ascii=False)
        context = TEXT_CONTEXT.format(text=text, end="" if is_encoder_decoder else " + tokenizer.eos_token")
    note = (TAG_IN_TEMPLATE if exported.has_template else TAG_AS_SUFFIX).format(tag=tag) if tag else NO_TAG
    return USE.format(
        import_model=f"from {library} import {auto}{'Seq2SeqLM' if is_encoder_decoder else 'CausalLM'} as Model",
        context=context,
        start="" if is_encoder_decoder else '[context["input_ids"].shape[1] :]',
        note=note,
    )


def _results(before: list[BiasScore], after: list[BiasScore], changes: list[BiasScore]) -> str:
    """Return the card's section on scores before and after tuning, the removed share of bias, and the costs."""
    lines = []
    for metric in map(format_of, METRICS):
        pair = find_score(before, metric.name), find_score(after, metric.name)
        if None not in pair:
            rounded = replace(metric, decimals=decimals_for(metric.factor * score.value for score in pair))
            lines.append(" | ".join(["", metric.title, *(_text(rounded, it.value, it.interval) for it in pair), ""]))
    row, costs = change_columns(before, after, changes), {}
    for metric in (*REDUCTION_METRICS, *QUALITY_METRICS, *COST_METRICS):
        if not math.isnan(row.get(metric.name, math.nan)):
            bounds = tuple(row.get(f"{metric.name}{end}", math.nan) for end in ("_low", "_high"))
            label = f"{'bias removed, ' * (metric in REDUCTION_METRICS)}{LABELS.get(metric.name, metric.label)}"
            interval = None if math.isnan(bounds[0]) else bounds
            costs[f"{label}, {metric.unit}"] = _text(metric, row[metric.name], interval)
    return RESULTS.format(
        lines="\n".join(map(str.strip, lines)),
        costs=table(costs, "| after tuning | change [95 % interval] |"),
        signature=signature_line(find_score(after, HEADLINE)),
    )


def _text(metric: Format, value: float, interval: tuple[float, float] | None) -> str:
    return f"{metric.text(value)} {metric.interval_text(interval)}".strip()


USE = """## How to use it

Run this code in this folder, or replace the dot by the id of the model on the hub:

```python
{import_model}
from transformers import AutoTokenizer

model, tokenizer = Model.from_pretrained("."), AutoTokenizer.from_pretrained(".")
{context}
response = model.generate(**context, max_new_tokens=40)
print(tokenizer.decode(response[0]{start}, skip_special_tokens=True))
```

{note}
"""

# Evenhand measures reasoning models with reasoning switched off; other templates ignore the argument.
CHAT_CONTEXT = """chat = {chat}
options = {{"add_generation_prompt": True, "enable_thinking": False, "return_dict": True, "return_tensors": "pt"}}
context = tokenizer.apply_chat_template(chat, **options)"""

TEXT_CONTEXT = """context = tokenizer({text}{end}, return_tensors="pt")"""

TAG_IN_TEMPLATE = """The chat template appends the control tag `{tag!r}` to the last message of the user. Add the tag
yourself only to text that you write without the template, at the end of the user's turn."""

TAG_AS_SUFFIX = """**Put `{tag!r}` at the end of every context**, with its leading space, before the token that ends the
turn, as in the code above. Without the tag, the model can be *more* biased than its base."""

NO_TAG = "Contexts are the same as for the base model: the method has no control tag."

RESULTS = """## Before and after

Bias is the dependence of the style of responses on the descriptor in the prompt; ideal 0. Brackets contain 95 %
intervals.

| | before | after |
| --- | --- | --- |
{lines}

{costs}

Compare these scores only with scores of the same signature: `{signature}`
"""

NOT_COMPARED = """## Before and after

The model was exported without a comparison with its base: its remaining bias and its costs are unknown.
"""
