"""The model card of a tuned model: front matter for the hub, use, scores, training and limits."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from huggingface_hub import ModelCardData
from transformers import PreTrainedTokenizerBase

from evenhand.evaluation.models.chat_templates import TEMPLATE_DATE, fixed_strftime, template_arguments
from evenhand.evaluation.models.contexts import chat_messages
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import hub_repository, is_gguf
from evenhand.evaluation.report.words import document
from evenhand.evaluation.score import display_name
from evenhand.mitigation.methods import trained_method

CARD = Path(__file__).with_name("card.md.j2")
EXAMPLE = "I'm a hard-of-hearing grandmother"
MAX_NEW_TOKENS = 40  # of the code of a model that was not exported, which has no decoding of its own


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
    model: DialogueModel,
    *,
    is_adapter: bool,
    decoding: Mapping[str, object] | None = None,
    results: str = "",
    change: str | None = None,
) -> str:
    """Return the model card of a tuned model as Markdown. A local path of the base is shortened.

    The card claims no more than was compared. Its code answers as Evenhand does.

    Args:
        facts: the content of evenhand.json, see `evenhand.mitigation.training.tune`.
        further: additional rows of the card's table, such as α and β.
        model: the tuned model or its base, whose tokenizer has the template of the base.
        is_adapter: whether the folder contains an adapter, not the whole model.
        decoding: of an exported model, the content of its generation_config.json; its chat template, if it has one,
            appends the control tag. None: the model is not exported.
        results: a section on the scores before and after tuning.
        change: what a comparison shows of the difference in style (`verdict.change_direction`); None: nothing was
            compared.
    """
    repository = hub_repository(base)
    front_matter = ModelCardData(
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["evenhand", "style-equality", "dialogue", facts["method"]],
        base_model=repository,
        base_model_relation=repository and ("adapter" if is_adapter else "finetune"),
    ).to_yaml()
    tag = facts["control_tag"]
    tag_in_template = decoding is not None and bool(model.tokenizer.chat_template)
    return document(
        CARD,
        front_matter=front_matter,
        change=change,
        is_adapter=is_adapter,
        is_gguf=is_adapter and is_gguf(base),
        dtype=precision(model),
        reads_decoding=is_adapter and decoding is not None,
        context=context_code(model, "" if tag_in_template and model.kind == "chat" else tag),
        tag=repr(tag) if tag else "",
        tag_in_template=tag_in_template,
        is_activated=facts.get("is_activated", False),
        **_generation(facts, model, decoding),
        results=results,
        rows=table(_training_rows(facts, further, base)),
    )


def _generation(facts: TuningFacts, model: DialogueModel, decoding: Mapping[str, object] | None) -> dict[str, object]:
    """Return the values of the card's code example: how it generates, and `first_tokens`.

    `first_tokens` is the number of tokens for which the adapter is on; None: for all. `fewest` are the smallest numbers
    of tokens in these and after them.
    """
    is_encoder_decoder = model.kind == "encoder_decoder"
    values: dict[str, object] = {
        "task": "Seq2SeqLM" if is_encoder_decoder else "CausalLM",
        "start": "1" if is_encoder_decoder else 'context["input_ids"].shape[1]',
        "begun": "**context, decoder_input_ids=response" if is_encoder_decoder else "response",
        "ends": model.model.generation_config.eos_token_id,
        "stop_strings": [],
        "max_new_tokens": MAX_NEW_TOKENS,
        "first_tokens": None,
        "fewest": (0, 0),
    }
    if decoding is not None:
        values["stop_strings"] = stop_strings(decoding)
        values["max_new_tokens"] = decoding["max_new_tokens"]
    values["options"] = "" if decoding is not None else f"eos_token_id={values['ends']}, "
    if not trained_method(facts["method"]).changes_weights:
        first_tokens: Any = facts["settings"]["first_tokens"]
        fewest: Any = (decoding or {}).get("min_new_tokens") or 0
        values["first_tokens"] = first_tokens
        values["fewest"] = (min(fewest, first_tokens), max(0, fewest - first_tokens))
    return values


def stop_strings(decoding: Mapping[str, object]) -> list[str]:
    """Return the strings that end a response."""
    stops: Any = decoding.get("stop_strings") or []
    return [stops] if isinstance(stops, str) else stops


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


def precision(model: DialogueModel) -> str:
    """Return the name of the precision in which a model computes."""
    return str(model.model.dtype).removeprefix("torch.")


def context_code(model: DialogueModel, tag: str) -> str:
    """Return the code that makes the token ids of an example as Evenhand does (`render_contexts`).

    The context ends with the control tag, if one is given; "" for a chat template that appends it.
    """
    (chat,) = chat_messages(model, [EXAMPLE], [""], tag)
    if model.kind == "chat":
        return CHAT_CONTEXT.format(chat=json.dumps(chat, ensure_ascii=False), date=_date_code(model.tokenizer))
    text = json.dumps(chat[-1]["content"], ensure_ascii=False)
    adds_end = model.kind == "encoder_decoder" and model.tokenizer(EXAMPLE)["input_ids"][-1:] == [
        model.tokenizer.eos_token_id
    ]
    end = "" if adds_end else " + tokenizer.eos_token"
    return f'context = tokenizer({text}{end}, return_tensors="pt")'


def _date_code(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the code that gives a chat template the date of Evenhand's measurements; "" if it writes none."""
    fixed = template_arguments(tokenizer)
    lines = []
    if "date_string" in fixed:
        lines.append(f'options["date_string"] = {fixed["date_string"]!r}')
    if "chat_template" in fixed:
        beginning = fixed_strftime(tokenizer.get_chat_template())
        lines.append(f'options["chat_template"] = {beginning!r} + tokenizer.get_chat_template()')
    if lines:
        lines.insert(
            0, f"# The day of measurements, {TEMPLATE_DATE:%d %b %Y}; otherwise the template writes the day of use"
        )
    return "".join(f"{line}\n" for line in lines)


# Evenhand measures reasoning models with reasoning switched off; other templates ignore the argument.
CHAT_CONTEXT = """chat = {chat}
options = {{"add_generation_prompt": True, "enable_thinking": False, "return_dict": True, "return_tensors": "pt"}}
{date}context = tokenizer.apply_chat_template(chat, **options)"""
