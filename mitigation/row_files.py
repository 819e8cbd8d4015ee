"""A method's rows as files for other trainers: JSONL, token ids, a dataset card, and a script for TRL.

Formats: TRL's, https://huggingface.co/docs/trl/dataset_formats. TRL's SFTTrainer uses rows with `input_ids` and
`labels` as they are, https://huggingface.co/docs/trl/sft_trainer. TRL's trainers of preferences do not accept token
ids.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from datasets import Dataset, DatasetDict

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.chat_templates import template_arguments
from evenhand.evaluation.models.contexts import close_reasoning
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.score import display_name
from evenhand.mitigation.adapter import atomic_write_folder, loadable_name, portable_name
from evenhand.mitigation.card import table
from evenhand.mitigation.labelled_responses import CUT_SUFFIX
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainer_configs import lora_fields, trainer_fields
from evenhand.mitigation.trainers import load_trainer
from evenhand.mitigation.trainers.dpo import CHOSEN, REJECTED
from evenhand.mitigation.trainers.kto import LABEL
from evenhand.mitigation.training_rows import COMPLETION, PROMPT, TrainingRows, rows_sha256, token_ids, trained_texts

Message = dict[str, str]  # role and content
RESPONSES = {"sft": (COMPLETION,), "dpo": (CHOSEN, REJECTED), "kto": (COMPLETION,)}  # columns of responses, by trainer
TYPES = {"sft": "prompt–completion", "dpo": "preference", "kto": "unpaired preference"}  # TRL's names
TOKENIZED, SPLITS = "tokenized", ("train", "validation")


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

    `train.jsonl` and `validation.jsonl` have the rows as text. For SFT, `tokenized` has the rows as token ids, which
    are exactly the rows of `tune`. `train.py` trains on them with TRL, without Evenhand. The folder is written whole or
    not at all. `messages` are the messages of each rendered context of a chat model.

    Raises:
        InputError: other trainers cannot train on the rows or the model; the folder exists.
    """
    trainer, folder = load_trainer(data.trainer), folder.resolve()
    if data.trainer not in RESPONSES or base.kind == "encoder_decoder":
        raise InputError(
            f"write_rows: other trainers cannot use rows of {data.method} for a model of the kind {base.kind}; tune "
            "without write_rows, or give another method."
        )
    if folder.exists():
        raise InputError(f"write_rows: {folder} exists; give another folder.")
    splits = dict(zip(SPLITS, (data.train, data.validation), strict=True))
    texts = {split: text_rows(base, data.trainer, rows, messages) for split, rows in splits.items()}
    encoded = {split: trainer.encode_rows(base, rows, settings, seed) for split, rows in splits.items()}
    names = [name for name in texts["train"].column_names if name.endswith(CUT_SUFFIX)]
    cut_columns = [name for name in names if any(any(rows[name]) for rows in texts.values())]
    arguments = trainer_fields(trainer, settings, encoded["train"], seed) | settings.trainer
    arguments.pop("train_sampling_strategy", None)  # the written rows are not shuffled
    lora = lora_fields(base.model, settings, token_ids(base, data.tags)) | settings.peft if settings.lora else None
    files = {f"{split}.jsonl": _json_lines(rows) for split, rows in texts.items()}
    files["train.py"] = train_script(
        portable_name(loadable_name(base.name), folder), data.trainer, arguments, lora, cut_columns
    )
    files["README.md"] = _card(base, data, texts, encoded, cut_columns, seed)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write_folder(folder) as temporary:
        for name, content in files.items():
            (temporary / name).write_text(content, encoding="utf-8")
        if data.trainer == "sft":
            DatasetDict(encoded).save_to_disk(str(temporary / TOKENIZED))


def _json_lines(rows: Dataset) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


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
    arguments: Mapping[str, Any],
    lora: Mapping[str, Any] | None,
    cut_columns: Sequence[str],
) -> str:
    """Return a Python script that trains on the rows with TRL alone.

    `model` is an id or a path relative to the folder; `arguments` and `lora` are fields of the configs in `tune`.
    """
    files = {split: f"{split}.jsonl" for split in SPLITS}
    load_text = LOAD_TEXT.format(files=files) + (LEAVE_OUT.format(columns=list(cut_columns)) if cut_columns else "")
    is_sft = trainer == "sft"
    return TRAIN.format(
        kind=trainer.upper(),
        function="load_from_disk" if is_sft else "load_dataset",
        peft="" if lora is None else "from peft import LoraConfig\n",
        model=model,
        load=f"rows = load_from_disk({TOKENIZED!r})\n" if is_sft else load_text,
        arguments=_keywords(arguments),
        adapter="" if lora is None else f"    peft_config=LoraConfig(\n{_keywords(lora, 8)}    ),\n",
    )


def _keywords(arguments: Mapping[str, Any], indent: int = 4) -> str:
    return "".join(f"{' ' * indent}{name}={value!r},\n" for name, value in arguments.items())


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
        "control tag": f"`{data.control_tag!r}` at the end of every prompt" if data.control_tag else "none",
        "rows": ", ".join(f"{len(rows)} {split}" for split, rows in texts.items()) + ", split by context",
        "cut responses": f"in {n_cut} of {sum(map(len, texts.values()))} rows",
        "seed": seed,
        "SHA-256 of the token ids": f"{rows_sha256(*encoded.values())}, `rows` in checkpoints/inputs.json of `tune`",
    }
    return CARD.format(metadata=yaml.safe_dump(metadata, sort_keys=False), facts=table(facts))


TRAIN = '''"""Train on the rows in this folder with TRL, without Evenhand. In this folder: python train.py [MODEL]"""

import sys

from datasets import {function}
{peft}from trl import {kind}Config, {kind}Trainer

model = sys.argv[1] if len(sys.argv) > 1 else {model!r}
{load}arguments = {kind}Config(
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

LOAD_TEXT = "rows = load_dataset('json', data_files={files})\n"

LEAVE_OUT = """# TRL would append the end-of-sequence token to cut responses, too.
rows = rows.filter(lambda row: not any(row[name] for name in {columns}))
"""

CARD = """---
{metadata}---

# Rows for training a more even model

Rows that Evenhand made of a model's own responses to prompts that mention a demographic descriptor. A model trained on
them should depend less on the descriptor in the style of its responses. Some responses may be offensive.

{facts}

`train.jsonl` and `validation.jsonl` are in [TRL's format](https://huggingface.co/docs/trl/dataset_formats). If
`tokenized` exists, it has exactly the token ids on which `evenhand tune` trains. `train.py` trains with TRL, by the
settings of `evenhand tune`; run it in this folder.

Columns that end in `_cut` are true where max_new_tokens ended the response. Its last word, which may be half, was
removed, and it must not be trained to end there. The rows in `tokenized` have no end-of-sequence token after a cut
response. A trainer that reads text appends the token to every response, so leave out the rows in which such a column is
true, as `train.py` does.

`evenhand tune` rejects a model whose perplexity on dialogue rose too much; other trainers do not. Measure the trained
model on prompts of the other split: `evenhand measure --model trained`.
"""
