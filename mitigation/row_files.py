"""A method's rows as files for other trainers: JSONL, `datasets` folders, a dataset card, and a script for TRL.

Formats: TRL's, https://huggingface.co/docs/trl/dataset_formats. TRL's SFTTrainer uses rows with `input_ids` and
`labels` as they are, https://huggingface.co/docs/trl/sft_trainer. TRL's trainers of preferences do not accept token
ids.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset, DatasetDict
from peft import LoraConfig
from transformers import TrainingArguments

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.chat_templates import template_arguments
from evenhand.evaluation.models.contexts import close_reasoning
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.score import display_name
from evenhand.mitigation.adapter import atomic_write_folder, portable_name
from evenhand.mitigation.card import table
from evenhand.mitigation.labelled_responses import CUT_SUFFIX
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainer_configs import lora_config, trainer_config
from evenhand.mitigation.trainers import load_trainer
from evenhand.mitigation.trainers.dpo import CHOSEN, REJECTED
from evenhand.mitigation.trainers.kto import LABEL
from evenhand.mitigation.training_rows import COMPLETION, PROMPT, TrainingRows, rows_sha256, token_ids, trained_texts

Message = dict[str, str]  # role and content
RESPONSES = {"sft": (COMPLETION,), "dpo": (CHOSEN, REJECTED), "kto": (COMPLETION,)}  # columns of responses, by trainer
TYPES = {"sft": "prompt–completion", "dpo": "preference", "kto": "unpaired preference"}  # TRL's names
TEXT, TOKENIZED, SPLITS = "dataset", "tokenized", ("train", "validation")  # folders of rows, and their splits
# Fields of TRL's and PEFT's configs that `tune` sets; a trainer has some of them.
FIELDS = (
    *("num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate"),
    *("lr_scheduler_type", "warmup_steps", "weight_decay", "seed", "bf16", "gradient_checkpointing", "beta"),
    *("desirable_weight", "undesirable_weight", "max_length", "eval_strategy", "eval_steps", "save_strategy"),
    *("save_steps", "save_total_limit", "load_best_model_at_end"),
)
LORA_FIELDS = ("r", "lora_alpha", "target_modules", "fan_in_fan_out", "trainable_token_indices", "task_type")


def write_rows(
    folder: Path,
    base: DialogueModel,
    data: TrainingRows,
    settings: TuningSettings,
    messages: Mapping[str, Sequence[Message]],
    *,
    seed: int = 0,
) -> None:
    """Write the rows that `tune` would train on, with a card and a script that trains on them, to a new folder.

    `train.jsonl`, `validation.jsonl` and `dataset` have the rows as text. For SFT, `tokenized` has the rows as token
    ids, which are exactly the rows of `tune`. `train.py` trains on them with TRL, without Evenhand.

    Args:
        folder: a folder that does not exist yet. It is written whole or not at all.
        settings: the result of `checks.with_defaults`.
        messages: rendered context → messages, for the prompts of a chat model.
        seed: the seed of `tune`.

    Raises:
        InputError: other trainers cannot train on the rows or the model; the folder exists or cannot be written.
    """
    trainer, folder = load_trainer(data.trainer), folder.resolve()
    if data.trainer not in RESPONSES or base.kind == "encoder_decoder":
        raise InputError(
            f"write_rows: other trainers cannot use rows of {data.method} for a model of the kind {base.kind}; tune "
            "without write_rows, or give another method."
        )
    if folder.exists():
        raise InputError(f"write_rows: {folder} exists; give another folder.")
    rows_of = dict(zip(SPLITS, (data.train, data.validation), strict=True))
    texts = {split: text_rows(base, data.trainer, rows, messages) for split, rows in rows_of.items()}
    encoded = {split: trainer.encode_rows(base, rows, settings, seed) for split, rows in rows_of.items()}
    names = [name for name in texts["train"].column_names if name.endswith(CUT_SUFFIX)]
    cut_columns = [name for name in names if any(any(rows[name]) for rows in texts.values())]
    arguments = trainer_config(trainer, settings, encoded["train"], base.model.device, seed=seed)
    lora = lora_config(base.model, settings, token_ids(base, data.tags)) if settings.lora else None
    script = train_script(portable_name(base.name, folder), data.trainer, arguments, settings, lora, cut_columns)
    files = {"train.py": script, "README.md": _card(base, data, texts, encoded, cut_columns, seed)}
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write_folder(folder) as temporary:
            for split, rows in texts.items():
                lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
                (temporary / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
            DatasetDict(texts).save_to_disk(str(temporary / TEXT))
            if data.trainer == "sft":
                DatasetDict(encoded).save_to_disk(str(temporary / TOKENIZED))
            for file, content in files.items():
                (temporary / file).write_text(content, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"write_rows: cannot write {folder}: {reason}; give another folder.") from error


def text_rows(base: DialogueModel, trainer: str, rows: Dataset, messages: Mapping[str, Sequence[Message]]) -> Dataset:
    """Return rows in TRL's standard format or, for a chat model, in its conversational format.

    The columns are `prompt` and the responses; `{response}_cut`, if recorded; `label` for KTO. Rows of a chat model
    also have `chat_template_kwargs`, which TRL gives to the chat template.
    """
    is_chat = base.kind == "chat"
    prompts = [list(messages[text]) for text in rows[PROMPT]] if is_chat else close_reasoning(list(rows[PROMPT]))
    columns: dict[str, list] = {PROMPT: prompts}
    for name in RESPONSES[trainer]:
        texts, is_cut = trained_texts(rows, name)
        columns[name] = [[{"role": "assistant", "content": text}] for text in texts] if is_chat else texts
        if f"{name}{CUT_SUFFIX}" in rows.column_names:
            columns[f"{name}{CUT_SUFFIX}"] = is_cut
    if trainer == "kto":
        columns[LABEL] = list(rows[LABEL])
    if is_chat:
        fixed = {key: value for key, value in template_arguments(base.tokenizer).items() if key != "chat_template"}
        columns["chat_template_kwargs"] = [fixed] * len(rows)
    return Dataset.from_dict(columns)


def train_script(
    model: str,
    trainer: str,
    arguments: TrainingArguments,
    settings: TuningSettings,
    lora: LoraConfig | None,
    cut_columns: Sequence[str],
) -> str:
    """Return a Python script that trains on the rows with TRL alone.

    Args:
        model: the model's name, or its path relative to the folder of the rows.
        arguments, lora: the configs of the trainer and of the adapter in `tune`.
        cut_columns: the columns that mark cut responses, if there are any.
    """

    def keywords(config: Any, names: Sequence[str], indent: int) -> str:
        """Return the fields `names` of a config that differ from their defaults, one per line."""
        lines = ""
        for field in (field for name in dict.fromkeys(names) for field in fields(config) if field.name == name):
            value = getattr(config, field.name)
            value = sorted(value) if isinstance(value, set) else getattr(value, "value", value)
            lines += "" if value == field.default else f"{' ' * indent}{field.name}={value!r},\n"
        return lines

    is_sft = trainer == "sft"
    adapter = "" if lora is None else keywords(lora, [*LORA_FIELDS, *settings.peft], 8)
    return TRAIN.format(
        kind=trainer.upper(),
        peft="" if lora is None else "from peft import LoraConfig\n",
        model=model,
        folder=TOKENIZED if is_sft else TEXT,
        leave_out="" if is_sft or not cut_columns else LEAVE_OUT.format(columns=list(cut_columns)),
        arguments=keywords(arguments, [*FIELDS, *settings.trainer], 4),
        adapter="" if lora is None else f"    peft_config=LoraConfig(\n{adapter}    ),\n",
    )


def _card(
    base: DialogueModel,
    data: TrainingRows,
    texts: Mapping[str, Dataset],
    encoded: Mapping[str, Dataset],
    cut_columns: Sequence[str],
    seed: int,
) -> str:
    """Return the dataset card as Markdown, with the metadata by which `load_dataset` finds the files."""
    files = [{"split": split, "path": f"{split}.jsonl"} for split in SPLITS]
    metadata = {"tags": ["evenhand", "trl"], "configs": [{"config_name": "default", "data_files": files}]}
    n_cut = sum(any(row[name] for name in cut_columns) for rows in texts.values() for row in rows)
    facts = {
        "model": f"{display_name(base.name)} (revision {base.revision})",
        "method": data.method,
        "type": f"{TYPES[data.trainer]}, {'conversational' if base.kind == 'chat' else 'standard'} format",
        "control tag": f"`{data.control_tag!r}`" if data.control_tag else "none",
        "rows": ", ".join(f"{len(rows)} {split}" for split, rows in texts.items()) + ", split by context",
        "cut responses": f"in {n_cut} of {sum(map(len, texts.values()))} rows",
        "seed": seed,
        "SHA-256 of the token ids": rows_sha256(*encoded.values()),
    }
    return CARD.format(
        metadata=yaml.safe_dump(metadata, sort_keys=False),
        facts=table(facts),
        cut=CUT[data.trainer == "sft"],
        exact=EXACT if data.trainer == "sft" else "",
        tags=TAGS.format(tag=data.control_tag) if data.tags else "",
    )


TRAIN = '''"""Train on the rows in this folder with TRL, without Evenhand. In this folder: python train.py [MODEL]"""

import sys

from datasets import load_from_disk
{peft}from trl import {kind}Config, {kind}Trainer

model = sys.argv[1] if len(sys.argv) > 1 else {model!r}
rows = load_from_disk({folder!r})
{leave_out}arguments = {kind}Config(
    output_dir="trained",
{arguments})
trainer = {kind}Trainer(
    model=model,
    args=arguments,
    train_dataset=rows["train"],
    eval_dataset=rows["validation"],
{adapter})
trainer.train()
trainer.save_model()
'''

LEAVE_OUT = """# TRL would append the end-of-sequence token to cut responses, too.
rows = rows.filter(lambda row: not any(row[name] for name in {columns}))
"""

CARD = """---
{metadata}---

# Rows for training a more even model

Rows that Evenhand made of a model's own responses to prompts that mention a
demographic descriptor. A model trained on them should depend less on the descriptor in the style of its responses.
Some responses may be offensive.

{facts}

The hash is the one that `evenhand tune` records for the same rows (`rows` in checkpoints/inputs.json).

## Files

- `train.jsonl`, `validation.jsonl`, and `dataset` for `datasets.load_from_disk`: rows in
  [TRL's format](https://huggingface.co/docs/trl/dataset_formats).
{exact}- `train.py`: a script that trains with TRL, by the settings of `evenhand tune`. Run it in this folder.

## Responses that were cut

{cut}{tags}
## Check the result

`evenhand tune` rejects a model whose perplexity on dialogue rose too much; other trainers do not. Measure the trained
model on prompts of the other split: `evenhand measure --model trained`.
"""

EXACT = """- `tokenized`, for `datasets.load_from_disk`: the same rows as `input_ids` and `labels` (−100 for no loss).
  `evenhand tune` and `train.py` train on exactly these token ids.
"""

CUT = {
    True: """Where `completion_cut` is true, max_new_tokens ended the response. Its last word, which may be half, was
removed, and it must not be trained to end there. Text cannot express this: a trainer that reads the text appends the
end-of-sequence token to every response. The rows in `tokenized` have no such token after a cut response. If you train
on the text, leave out the rows in which `completion_cut` is true.
""",
    False: """Columns that end in `_cut` are true where max_new_tokens ended the response. Its last word, which may be
half, was removed, and it must not be trained to end there. Trainers of preferences read text and append the
end-of-sequence token to every response, so leave out the rows in which such a column is true, as `train.py` does, or
train with `evenhand tune`.
""",
}

TAGS = """
## Control tag

Every prompt ends in a tag. Put `{tag!r}` at the end of each prompt of the trained model. `tune` and `train.py` also
train the embeddings of the tags' tokens (`trainable_token_indices`).
"""
