"""Scripts and configs of TRL, axolotl and LLaMA-Factory for the rows that `row_files` writes.

Sources: axolotl, https://docs.axolotl.ai/docs/dataset-formats/tokenized.html (`type:` empty: token ids) and
https://docs.axolotl.ai/docs/rlhf.html (preferences). LLaMA-Factory,
https://github.com/hiyouga/LLaMA-Factory/blob/main/data/README.md (dataset_info.json), and `tokenized_path`, a folder of
`datasets` with token ids. No test runs these two tools.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import yaml
from peft import LoraConfig
from transformers import TrainingArguments

from evenhand.mitigation.training.data import COMPLETION, PROMPT
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.trainers.dpo import CHOSEN, REJECTED
from evenhand.mitigation.training.trainers.kto import LABEL

RESPONSES = {"sft": (COMPLETION,), "dpo": (CHOSEN, REJECTED), "kto": (COMPLETION,)}  # columns of responses, by trainer
TEXT, TOKENIZED, SPLITS = "dataset", "tokenized", ("train", "validation")  # folders of rows, and their splits
# Fields of TRL's configs that `tune` sets; a trainer has some of them.
FIELDS = (
    *("num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps", "learning_rate"),
    *("lr_scheduler_type", "warmup_steps", "weight_decay", "seed", "bf16", "gradient_checkpointing", "beta"),
    *("desirable_weight", "undesirable_weight", "max_length", "eval_strategy", "eval_steps", "save_strategy"),
    *("save_steps", "save_total_limit", "load_best_model_at_end"),
)


@dataclass(frozen=True)
class RowTraining:
    """A training on written rows.

    model: the model's name, or its path relative to the folder of the rows.
    trainer: a key of RESPONSES.
    is_chat: whether the rows are conversational.
    arguments: the config of TRL's trainer in `tune`.
    lora: fields of PEFT's LoraConfig; {} to train all weights.
    cut_columns: the columns that mark cut responses, if there are any.
    longest: the number of tokens of the longest row.
    """

    model: str
    trainer: str
    is_chat: bool
    arguments: TrainingArguments
    settings: TuningSettings
    lora: Mapping[str, Any]
    cut_columns: Sequence[str]
    longest: int


def train_script(training: RowTraining) -> str:
    """Return a Python script that trains on the rows with TRL alone."""

    def keywords(config: type, values: Mapping[str, Any], indent: int) -> str:
        """Return the values that differ from the defaults of a config, one per line."""
        defaults = {field.name: field.default for field in fields(config)}
        plain = {name: getattr(value, "value", value) for name, value in values.items()}
        return "".join(
            f"{' ' * indent}{name}={value!r},\n" for name, value in plain.items() if value != defaults.get(name)
        )

    arguments, is_sft, lora = training.arguments, training.trainer == "sft", training.lora
    names = [name for name in dict.fromkeys([*FIELDS, *training.settings.trainer]) if hasattr(arguments, name)]
    return TRAIN.format(
        kind=training.trainer.upper(),
        peft="from peft import LoraConfig\n" if lora else "",
        model=training.model,
        folder=TOKENIZED if is_sft else TEXT,
        leave_out="" if is_sft or not training.cut_columns else LEAVE_OUT.format(columns=list(training.cut_columns)),
        arguments=keywords(type(arguments), {name: getattr(arguments, name) for name in names}, 4),
        adapter=f"    peft_config=LoraConfig(\n{keywords(LoraConfig, lora, 8)}    ),\n" if lora else "",
    )


def axolotl_config(training: RowTraining) -> dict[str, str]:
    """Return axolotl's config as {file name: content}.

    The result is {} for conversational rows of KTO, which axolotl does not support.
    """
    settings, lora, columns = training.settings, training.lora, RESPONSES[training.trainer]
    kind: dict[str, Any] = {}
    if training.trainer == "sft":
        sources = [{"path": f"{TOKENIZED}/{split}", "type": None} for split in SPLITS]
    elif training.is_chat and training.trainer == "kto":
        return {}
    else:
        kind = {f"field_{name}": name for name in columns}
        if training.is_chat:
            kind = {"type": "chat_template.default", "field_messages": PROMPT, **kind}
        else:
            formats = {f"{name}_format": f"{{{name}}}" for name in (PROMPT, *columns)}
            label = {"field_label": LABEL} if training.trainer == "kto" else {}
            kind = {"type": {"field_prompt": PROMPT, **kind, **label, **formats}}
        sources = [{"path": f"{split}.jsonl", "ds_type": "json", "split": "train", **kind} for split in SPLITS]
    config = {
        "base_model": training.model,
        **({"rl": training.trainer, "rl_beta": training.arguments.beta} if kind else {}),
        "datasets": sources[:1],
        "test_datasets": sources[1:],
        "sequence_len": training.longest,
        "output_dir": "trained",
        **({"adapter": "lora", "lora_r": lora["r"], "lora_alpha": int(lora["lora_alpha"])} if lora else {}),
        **({"lora_target_linear": True} if lora else {}),
        "num_epochs": settings.epochs,
        "micro_batch_size": settings.batch_size,
        "gradient_accumulation_steps": settings.gradient_accumulation_steps,
        "learning_rate": settings.learning_rate,
        "lr_scheduler": settings.scheduler,
        "warmup_ratio": settings.warmup_ratio,
        "weight_decay": settings.weight_decay,
        "optimizer": settings.optimizer or "adamw_torch",
    }
    return {"axolotl.yaml": "# axolotl train axolotl.yaml\n" + yaml.safe_dump(config, sort_keys=False)}


def llama_factory_config(training: RowTraining) -> dict[str, str]:
    """Return {file name: content} of LLaMA-Factory's config and, for rows of preferences, of dataset_info.json."""
    settings, lora, trainer = training.settings, training.lora, training.trainer
    files, head, template = {}, "# llamafactory-cli train llama_factory.yaml\n", "empty"
    source: dict[str, Any] = {"tokenized_path": TOKENIZED}
    if trainer != "sft":
        columns = {"kto_tag": LABEL} if trainer == "kto" else {name: name for name in RESPONSES[trainer]}
        form: dict[str, Any] = {"columns": {"prompt": PROMPT, **columns}}
        if trainer == "kto":
            form["columns"]["response"] = COMPLETION
        if training.is_chat:
            template = "CHOOSE"
            head += "# In place of CHOOSE, write LLaMA-Factory's name of the model's chat template.\n"
            messages = {"messages": "messages" if trainer == "kto" else PROMPT}
            columns = columns if trainer == "kto" else {name: f"{name}_message" for name in columns}
            roles = {f"{role}_tag": role for role in ("role", "content", "user", "assistant", "system")}
            form = {"formatting": "sharegpt", "columns": {**messages, **columns}, "tags": roles}
        form |= {"ranking": True} if trainer == "dpo" else {}
        info = {f"rows_{split}": {"file_name": f"{split}.jsonl", **form} for split in SPLITS}
        files["dataset_info.json"] = json.dumps(info, indent=1) + "\n"
        source = {"dataset_dir": ".", "dataset": "rows_train", "eval_dataset": "rows_validation"}
        source["pref_beta"] = training.arguments.beta
    config = {
        "model_name_or_path": training.model,
        "stage": trainer,
        "do_train": True,
        **source,
        "template": template,
        "cutoff_len": training.longest,
        "output_dir": "trained",
        "finetuning_type": "lora" if lora else "full",
        **({"lora_rank": lora["r"], "lora_alpha": int(lora["lora_alpha"]), "lora_target": "all"} if lora else {}),
        "num_train_epochs": settings.epochs,
        "per_device_train_batch_size": settings.batch_size,
        "gradient_accumulation_steps": settings.gradient_accumulation_steps,
        "learning_rate": settings.learning_rate,
        "lr_scheduler_type": settings.scheduler,
        "warmup_ratio": settings.warmup_ratio,
    }
    return {**files, "llama_factory.yaml": head + yaml.safe_dump(config, sort_keys=False)}


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
