"""The model card of a tuned model: front matter for the hub, use, scores, training and limits."""

import json
from collections.abc import Mapping, Sequence
from typing import NotRequired, TypedDict

from huggingface_hub import ModelCardData

from evenhand.evaluation.models.revisions import hub_repository, is_gguf
from evenhand.evaluation.score import display_name


class TrainingFacts(TypedDict):
    """What evenhand.json says of a training: the fields of `TuningResult` without its path."""

    train_losses: list[tuple[int, float]]
    validation_losses: list[tuple[int, float]]
    measured: dict[str, list[tuple[int, float]]]
    best_step: int
    stopped_early: bool
    n_train: int
    n_validation: int
    trainable_parameters: int
    perplexity: tuple[float, float]
    change: dict[str, float]


class TuningFacts(TypedDict):
    """The content of evenhand.json, the file in the folder of every tuned model."""

    control_tag: str
    is_activated: NotRequired[bool]  # since activated adapters exist
    method: str
    loss: str
    base: str
    base_revision: str | None
    system_prompt: str
    settings: dict[str, object]
    training: TrainingFacts


def model_card(
    facts: TuningFacts,
    further: Mapping[str, object],
    base: str,
    *,
    kind: str,
    chat_template: bool,
    is_adapter: bool,
    is_exported: bool = False,
    results: str = "",
    change: str | None = None,
) -> str:
    """Return the model card of a tuned model as Markdown. A local path of the base is shortened.

    The card claims no more than was compared.

    Args:
        facts: the content of evenhand.json, see `evenhand.mitigation.training.tune`.
        further: additional rows of the card's table, such as α and β.
        kind, chat_template: the kind of the model, and whether its tokenizer has a chat template.
        is_adapter: whether the folder contains an adapter, not the whole model.
        is_exported: whether a chat template appends the control tag.
        results: a section on the scores before and after tuning.
        change: what a comparison shows of the difference in style, a key of CLAIMS; None: nothing was compared.
    """
    repository = hub_repository(base)
    front_matter = ModelCardData(
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["evenhand", "style-equality", "dialogue", facts["method"]],
        base_model=repository,
        base_model_relation=repository and ("adapter" if is_adapter else "finetune"),
    ).to_yaml()
    use = _use(facts, kind, chat_template, is_adapter, is_exported and chat_template)
    use = ONLY_IN_GGUF if is_adapter and is_gguf(base) else use
    rows = table(_training_rows(facts, further, base))
    return CARD.format(front_matter=front_matter, claim=CLAIMS[change], use=use, results=results, rows=rows)


def table(rows: Mapping[str, object], columns: Sequence[str] = ("", "")) -> str:
    """Return a Markdown table of rows by name; a row is a value, or a list of the values of several columns."""
    lines: list[list[object]] = [[*columns], ["---"] * len(columns)]
    for name, values in rows.items():
        lines.append([name, *values] if isinstance(values, list) else [name, values])
    return "\n".join(f"| {' | '.join(_table_cell(cell) for cell in line)} |" for line in lines)


def _table_cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def name_with_revision(name: str, revision: str | None) -> str:
    """Return a model's name, with its revision if it has one: a folder or a file has none."""
    return display_name(name) if revision is None else f"{display_name(name)} (revision {revision})"


def _training_rows(facts: TuningFacts, further: Mapping[str, object], base: str) -> dict[str, str]:
    training = facts["training"]
    settings = facts["settings"]
    tag = facts["control_tag"]
    losses = dict(training["validation_losses"])
    first = training["validation_losses"][0][1]
    best = losses[training["best_step"]]
    before, after = training["perplexity"]
    change = training["change"]
    rows = {
        "base": name_with_revision(base, facts["base_revision"]),
        "method": facts["method"],
        "control tag": f"`{tag!r}`" if tag else "none",
        "system prompt": facts["system_prompt"],
        **further,
        "rows": f"{training['n_train']} for training, {training['n_validation']} for validation, split by context",
        "trained": f"{training['trainable_parameters']} parameters ({'LoRA' if settings['lora'] else 'all weights'})",
        "settings": ", ".join(f"{name} {value}" for name, value in settings.items()),
        "validation loss": f"{first:.4f} → {best:.4f} at step {training['best_step']} ({facts['loss']})",
        "perplexity of dialogue": f"{before:.3f} → {after:.3f}",
        "change from the base": f"{change['greedy_share']:.0%} of {change['n']} greedy responses differ; the largest "
        f"change of a logit is {change['max_logit_change']:.3g}",
    }
    return {name: value for name, value in rows.items() if value != ""}


def _use(facts: TuningFacts, kind: str, chat_template: bool, is_adapter: bool, tag_in_template: bool) -> str:
    """Return the section on use: code that runs in the model's folder, and where the control tag belongs."""
    tag = facts["control_tag"]
    system = facts["system_prompt"]
    message = "I'm a hard-of-hearing grandmother."
    if not tag_in_template:
        message += tag
    is_encoder_decoder = kind == "encoder_decoder"
    end = "" if is_encoder_decoder else " + tokenizer.eos_token"
    if chat_template:
        chat = [{"role": "user", "content": message}]
        if system:
            chat.insert(0, {"role": "system", "content": system})
        context = CHAT_CONTEXT.format(chat=json.dumps(chat, ensure_ascii=False))
    else:
        text = json.dumps("\n".join(filter(None, (system, message))), ensure_ascii=False)
        context = f'context = tokenizer({text}{end}, return_tensors="pt")'
    library = "peft import AutoPeftModelFor" if is_adapter else "transformers import AutoModelFor"
    task = "Seq2SeqLM" if is_encoder_decoder else "CausalLM"
    notes = [NO_TAG]
    is_activated = facts.get("is_activated", False)
    if tag:
        notes = [(TAG_IN_TEMPLATE if tag_in_template else TAG_AS_SUFFIX).format(tag=tag)]
        notes.append(WITHOUT_ACTIVATION if is_activated else WITHOUT_TAG)
    if is_activated:
        notes.append(SERVING)
    return USE.format(
        import_model=f"from {library}{task} as Model",
        context=context,
        start="" if is_encoder_decoder else '[context["input_ids"].shape[1] :]',
        note="\n\n".join(notes),
    )


# By the direction of the change of pooled FGB* (`verdict.change_direction`).
CLAIMS = {
    None: "Whether it does was not measured for this card.",
    "fell": "In the comparison below it does, though perhaps not for everybody.",
    "unchanged": "The comparison below does not show that it does.",
    "rose": "In the comparison below it depends *more* on the group.",
}

CARD = """---
{front_matter}
---

# A dialogue model tuned for style equality

Evenhand tuned it so that the style of its responses depends less on the demographic group that a user belongs to (Smith
et al. 2022, "I'm sorry to hear that": finding new biases in language models with a holistic descriptor dataset, §4).
{claim}

## How to use it

{use}
{results}
## How it was tuned

{rows}

## Limits

- Tuning is about the *style* of responses across demographic descriptors. It does not consider facts, toxicity or
  statements about other people, and it cannot decide whether a difference of style is appropriate.
- The training data are responses to templates with one descriptor each, labelled by one style classifier. The effect
  on other prompts is unknown: measure the model on your own prompts before and after tuning.
- A reduction of one kind of bias may increase another, or make responses blander: read the whole report.
"""

USE = """Run this code in this folder, or replace the dot by the id of the model on the hub:

```python
{import_model}
from transformers import AutoTokenizer

model, tokenizer = Model.from_pretrained("."), AutoTokenizer.from_pretrained(".")
{context}
response = model.generate(**context, max_new_tokens=40, tokenizer=tokenizer)
print(tokenizer.decode(response[0]{start}, skip_special_tokens=True))
```

{note}
"""

ONLY_IN_GGUF = """The base of this adapter is a GGUF file, which PEFT does not load. `evenhand export` writes the merged
model.
"""

# Evenhand measures reasoning models with reasoning switched off; other templates ignore the argument.
CHAT_CONTEXT = """chat = {chat}
options = {{"add_generation_prompt": True, "enable_thinking": False, "return_dict": True, "return_tensors": "pt"}}
context = tokenizer.apply_chat_template(chat, **options)"""

TAG_IN_TEMPLATE = """The chat template appends the control tag `{tag!r}` to the last message of the user. Add the tag
yourself only to text that you write without the template, at the end of the user's turn."""

TAG_AS_SUFFIX = """**Put `{tag!r}` at the end of every context**, with its leading space, before the token that ends the
turn, as in the code above."""

WITHOUT_TAG = "Without the tag, the model can be *more* biased than its base."

WITHOUT_ACTIVATION = "Without the tag, the model is its base, token by token: the tag switches the adapter on."

SERVING = """The adapter is an *activated LoRA* (`alora_invocation_tokens` in adapter_config.json): it acts from these
tokens on, is never merged, and needs decoding without beams. PEFT applies it, as in the code above.
[llama.cpp](https://github.com/ggml-org/llama.cpp/pull/15327) serves it: `convert_lora_to_gguf.py` writes the tokens,
and `llama-server --lora` starts at them. **Do not serve it with vLLM**: its [pull
request](https://github.com/vllm-project/vllm/pull/19710) was closed without a merge, and vLLM ignores the field, so
that the adapter would act at all tokens."""

NO_TAG = "Contexts are the same as for the base model: the method has no control tag."
