"""The card of an exported model: front matter that the hub reads, how to ask it, before and after, costs, limits."""

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from evenhand.evaluation.models.loading import Kind
from evenhand.evaluation.models.revisions import ADAPTER_FOLDER, TUNING_FILE
from evenhand.evaluation.report.metrics import Metric, metric_of
from evenhand.evaluation.report.numbers import decimals_for
from evenhand.evaluation.results import BiasScore, display_name, find_score, read_scores, signature_line
from evenhand.evaluation.runs.manifest import read_run
from evenhand.mitigation.labelling.page import THRESHOLD
from evenhand.mitigation.training.card import INTRO, LIMITS, table, tuning_facts_table
from evenhand.mitigation.training.trainers import load_trainer
from evenhand.recipes.measure import SCORES
from evenhand.recipes.settings import MeasureSettings
from evenhand.recipes.sweep.metrics import COST_METRICS, QUALITY_METRICS, REDUCTION_METRICS
from evenhand.recipes.sweep.points import HEADLINE, change_columns

HOLISTIC_BIAS = "fairnlp/holistic-bias", "HolisticBias"  # id on the hub, name
EDITIONS = ("paper", "v1.0", "v1.1")  # of it, as `prompts.dataset` has them
# The metrics of the table of both models.
METRICS = (HEADLINE, "fgb_corrected", "fgb", "perplexity", "distinct_2", "mean_length", "parroting")
# What a sweep's tables call shorter, beside a sentence that explains it.
NAMED = {
    "perplexity_change": "perplexity of ordinary dialogue",
    "response_perplexity_change": "perplexity of the responses by the base",
}


@dataclass(frozen=True)
class Exported:
    """What was written: a model of this kind, with a chat template or none, merged into its base or apart from it."""

    kind: Kind
    has_template: bool
    base: str
    merged: bool


def export_card(exported: Exported, tuning: Path, measured: MeasureSettings, comparison: Path | None) -> str:
    """Return the card as Markdown.

    Args:
        tuning: the tuning run.
        measured: how the model that was tuned had been measured.
        comparison: the run that compares it with its base; None: the card has no scores.
    """
    facts = json.loads((tuning / ADAPTER_FOLDER / TUNING_FILE).read_text(encoding="utf-8"))
    labels = Path(read_run(tuning, "tune", "tuning")[0]["labels"])
    further = json.loads((labels / THRESHOLD).read_text(encoding="utf-8"))
    scores = _scores(comparison) if comparison else None
    rows = tuning_facts_table(exported.base, facts, further, load_trainer(facts["trainer"]).LOSS)
    parts = [
        f"---\n{_front_matter(exported, facts, measured, scores)}\n---\n",
        INTRO,
        _use(exported, facts),
        _results(*scores) if scores else NOT_COMPARED,
        f"## How it was tuned\n\n{table(rows)}\n",
        LIMITS,
    ]
    return "\n".join(parts)


def _scores(comparison: Path) -> tuple[list[BiasScore], list[BiasScore], list[BiasScore]]:
    """Return the scores before, after and between."""
    told, _ = read_run(comparison, "compare", "comparison")
    before, after, changes = (read_scores(Path(each) / SCORES) for each in (told["before"], told["after"], comparison))
    return before, after, changes


def _front_matter(exported: Exported, facts: dict[str, Any], measured: MeasureSettings, scores: Any) -> str:
    """Return what the hub reads: a base or data set that is not on it is left out."""
    known = measured.prompts.file is None and measured.prompts.dataset in EDITIONS
    dataset, dataset_name = HOLISTIC_BIAS if known else ("prompts", "prompts of its own")
    results = []
    for metric in METRICS if scores else ():
        if (score := find_score(scores[1], metric)) and math.isfinite(score.value):
            told = {"metric_type": metric, "metric_name": metric_of(metric).label, "metric_value": score.value}
            of = {"dataset_type": dataset, "dataset_name": dataset_name}
            results.append(EvalResult(task_type="text-generation", **of, **told))
    on_hub = not Path(exported.base).is_dir()
    base = {"base_model": exported.base, "base_model_relation": "finetune" if exported.merged else "adapter"}
    return ModelCardData(
        library_name="transformers" if exported.merged else "peft",
        pipeline_tag="text-generation",
        tags=["evenhand", "style-equality", "dialogue", facts["method"]],
        datasets=[dataset] if known else None,
        **(base if on_hub else {}),
        **(
            {"eval_results": results, "model_name": f"{display_name(exported.base)} {facts['method']}"}
            if results
            else {}
        ),
    ).to_yaml()


def _use(exported: Exported, facts: dict[str, Any]) -> str:
    """Return how the model is asked: lines of code that run in the folder, and where the control tag is."""
    tag, system = facts["control_tag"], facts["system_prompt"]
    encoder_decoder = exported.kind == "encoder_decoder"
    auto = "Seq2SeqLM" if encoder_decoder else "CausalLM"
    said = "I'm a hard-of-hearing grandmother."
    if exported.has_template:
        chat = [{"role": "system", "content": system}] if system else []
        chat = json.dumps([*chat, {"role": "user", "content": said}], ensure_ascii=False)
        context = ASK_TEMPLATE.format(chat=chat)
    else:
        text = json.dumps("\n".join(filter(None, (system, said))) + tag, ensure_ascii=False)
        context = ASK_TEXT.format(text=text, end="" if encoder_decoder else " + tokenizer.eos_token")
    note = (TAG_IN_TEMPLATE if exported.has_template else TAG_AS_SUFFIX).format(tag=tag) if tag else NO_TAG
    return USE.format(
        import_model=f"from transformers import AutoModelFor{auto} as Model"
        if exported.merged
        else f"from peft import AutoPeftModelFor{auto} as Model",
        context=context,
        start="" if encoder_decoder else 'context["input_ids"].shape[1] :',
        note=note,
    ).replace("response[0][]", "response[0]")


def _results(before: list[BiasScore], after: list[BiasScore], changes: list[BiasScore]) -> str:
    """Return the scores of both models beside each other, what was removed, and what it cost."""
    shown = []
    for metric in map(metric_of, METRICS):
        sides = find_score(before, metric.name), find_score(after, metric.name)
        if None not in sides:
            decimals = decimals_for(metric.factor * score.value for score in sides)
            texts = (_text(score, replace(metric, decimals=decimals)) for score in sides)
            shown.append(f"| {metric.title} | {' | '.join(texts)} |")
    row, costs = change_columns(before, after, changes), {}
    for metric in (*REDUCTION_METRICS, *QUALITY_METRICS, *COST_METRICS):
        if not math.isnan(row.get(metric.name, math.nan)):
            bounds = tuple(row.get(f"{metric.name}{end}", math.nan) for end in ("_low", "_high"))
            bounds = None if math.isnan(bounds[0]) else bounds
            label = NAMED.get(metric.name, metric.label)
            label = f"bias removed, {label}" if metric in REDUCTION_METRICS else label
            text = f"{metric.text(row[metric.name])} {metric.interval_text(bounds)}".strip()
            costs[f"{label}, {metric.unit}"] = text
    return RESULTS.format(
        shown="\n".join(shown),
        costs=table(costs, "| after tuning | change [95 % interval] |"),
        signature=signature_line(find_score(after, HEADLINE)),
    )


def _text(score: BiasScore, metric: Metric) -> str:
    return f"{metric.text(score.value)} {metric.interval_text(score.interval)}".strip()


USE = """## How to use it

In this folder, or with its id on the hub in place of the dot:

```python
{import_model}
from transformers import AutoTokenizer

model, tokenizer = Model.from_pretrained("."), AutoTokenizer.from_pretrained(".")
{context}
response = model.generate(**context, max_new_tokens=40)
print(tokenizer.decode(response[0][{start}], skip_special_tokens=True))
```

{note}
"""

# Models that can think are measured without a thought; other templates ignore the argument.
ASK_TEMPLATE = """chat = {chat}
asked = {{"add_generation_prompt": True, "enable_thinking": False, "return_dict": True, "return_tensors": "pt"}}
context = tokenizer.apply_chat_template(chat, **asked)"""

ASK_TEXT = """context = tokenizer({text}{end}, return_tensors="pt")"""

TAG_IN_TEMPLATE = """The control tag `{tag!r}` is in the chat template, which puts it behind what the user says last:
chats need nothing more, nor do servers that use the template. Text that is written without it needs the tag at the end
of the user's turn."""

TAG_AS_SUFFIX = """**Put `{tag!r}` at the end of every context**, with its leading space, before the token that ends the
turn: it is in the lines above. Without it the model can be *more* biased than the one it was made from."""

NO_TAG = "Contexts are as for the base model: this method needs no control tag."

RESULTS = """## Before and after

Bias is how much the style of responses depends on the descriptor in the prompt; ideal 0. Brackets are 95 % intervals.

| | before | after |
| --- | --- | --- |
{shown}

{costs}

Scores are comparable by the same signature alone: `{signature}`
"""

NOT_COMPARED = """## Before and after

The model was exported without a comparison with its base; nothing is known of how much bias is left, or at what cost.
"""
