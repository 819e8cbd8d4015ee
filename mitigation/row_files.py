"""A method's rows as files for other trainers: JSONL, token ids, a dataset card, and a script for TRL.

Formats: TRL's, https://huggingface.co/docs/trl/dataset_formats. TRL's SFTTrainer uses rows with `input_ids` and
`labels` as they are, https://huggingface.co/docs/trl/sft_trainer.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from datasets import Dataset, DatasetDict
from transformers import PreTrainedModel

from evenhand.evaluation.doors import spelled
from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.chat_templates import template_arguments
from evenhand.evaluation.models.contexts import close_reasoning
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import hub_repository
from evenhand.evaluation.report.words import document
from evenhand.mitigation.adapter import atomic_write_folder, loadable_name, portable_name
from evenhand.mitigation.card import name_with_revision, table
from evenhand.mitigation.labelled_responses import COMPLETION, COMPLETION_CUT, PROMPT
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainer_configs import lora_fields, trainer_fields
from evenhand.mitigation.trainers import SFT
from evenhand.mitigation.training_rows import TrainingRows, rows_sha256, token_ids, trained_texts

Message = dict[str, str]  # role and content
# Arguments of TRL's SFTConfig with which SFTTrainer uses the encoded rows as they are.
TRL_FIELDS = {"loss_type": "nll", "max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}}


def check_rows(folder: Path, method: TrainedMethod, kind: str) -> None:
    """Raise InputError if rows of a method, for a kind of model, cannot be written to a folder for other trainers."""
    if method.trainer != "sft":
        raise InputError(
            "write_rows",
            f"{method.name} has a loss of its own, and rows for it; train.py would train with the loss of TRL's "
            "SFTTrainer. Give the method exchange, rejection, self_chat, or control_tags with "
            f"{spelled('control_tags.targets', 'labels')}.",
        )
    if kind == "encoder_decoder":
        raise InputError("write_rows", "TRL's SFTTrainer trains no encoder-decoder model; tune without write_rows.")
    if folder.exists():
        raise InputError("write_rows", f"{folder} exists; give another folder.")


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

    `train.jsonl` and `validation.jsonl` have the rows as text. `tokenized` has the rows as token ids, which are exactly
    the rows of `tune`. `train.py` trains on them with TRL, without Evenhand. The folder is written whole or not at all.
    `messages` are the messages of each rendered context of a chat model.

    Raises:
        InputError: other trainers cannot train on the rows or the model; the folder exists.
    """
    folder = folder.resolve()
    method = data.method
    check_rows(folder, method, base.kind)
    splits = {"train": data.train, "validation": data.validation}
    encoded = DatasetDict({split: SFT.encode_rows(base, rows) for split, rows in splits.items()})
    arguments = trainer_fields(settings, len(data.train), seed) | TRL_FIELDS | settings.trainer
    of_model = of_adapter = ""  # lines with the revision: the model on the hub may have changed since then
    if hub_repository(base.name):
        of_model = MODEL_REVISION.format(base.revision)
        of_adapter = ADAPTER_REVISION.format(base.revision)
    lora = None
    if settings.lora:
        tags = [] if has_tied_embeddings(base.model) else method.tags
        lora = lora_fields(base.model, settings, token_ids(base, tags)) | settings.peft
    script = TRAIN.format(
        peft="" if lora is None else "from peft import LoraConfig\n",
        model=portable_name(loadable_name(base.name), folder),
        arguments=of_model + _keywords(arguments),
        tag=WRITE_TAG.format(json.dumps({"control_tag": method.control_tag})) if method.control_tag else "",
        adapter="" if lora is None else f"    peft_config=LoraConfig(\n{of_adapter}{_keywords(lora, 8)}    ),\n",
    )
    files = {"train.py": script, "README.md": _card(base, data, encoded, seed)}
    for split, rows in splits.items():
        texts = text_rows(base, rows, messages)
        files[f"{split}.jsonl"] = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in texts)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write_folder(folder) as temporary:
        for name, content in files.items():
            (temporary / name).write_text(content, encoding="utf-8")
        encoded.save_to_disk(str(temporary / "tokenized"))


def has_tied_embeddings(network: PreTrainedModel) -> bool:
    """Return whether the output layer has the weights of the embeddings: TRL trains no single embeddings then."""
    output = network.get_output_embeddings()
    return output is not None and output.weight is network.get_input_embeddings().weight


def text_rows(base: DialogueModel, rows: Dataset, messages: Mapping[str, Sequence[Message]]) -> Dataset:
    """Return rows in TRL's standard format or, for a chat model, in its conversational format.

    The columns are `prompt`, `completion`, and `completion_cut`, whether max_new_tokens ended the response. Rows of a
    chat model also have `chat_template_kwargs`, which TRL gives to the chat template.
    """
    texts, is_cut = trained_texts(rows)
    if base.kind != "chat":
        prompts = close_reasoning(list(rows[PROMPT]), base.reasoning)
        return Dataset.from_dict({PROMPT: prompts, COMPLETION: texts, COMPLETION_CUT: is_cut})
    fixed = {key: value for key, value in template_arguments(base.tokenizer).items() if key != "chat_template"}
    return Dataset.from_dict(
        {
            PROMPT: [list(messages[text]) for text in rows[PROMPT]],
            COMPLETION: [[{"role": "assistant", "content": text}] for text in texts],
            COMPLETION_CUT: is_cut,
            "chat_template_kwargs": [fixed] * len(rows),
        }
    )


def _keywords(arguments: Mapping[str, object], indent: int = 4) -> str:
    return "".join(f"{' ' * indent}{name}={value!r},\n" for name, value in arguments.items())


def _card(base: DialogueModel, data: TrainingRows, encoded: DatasetDict, seed: int) -> str:
    """Return the dataset card as Markdown, with the metadata by which `load_dataset` finds the files."""
    files = [{"split": split, "path": f"{split}.jsonl"} for split in encoded]
    metadata = {"tags": ["evenhand", "trl"], "configs": [{"config_name": "default", "data_files": files}]}
    tag = data.method.control_tag
    n_cut = sum(sum(trained_texts(rows)[1]) for rows in (data.train, data.validation))
    facts = {
        "model": name_with_revision(base.name, base.revision),
        "method": data.method.name,
        "type": f"prompt–completion, {'conversational' if base.kind == 'chat' else 'standard'} format",
        "control tag": f"`{tag!r}` at the end of every prompt" if tag else "none",
        **({"embeddings of the tags": TIED} if data.method.tags and has_tied_embeddings(base.model) else {}),
        "rows": ", ".join(f"{len(rows)} {split}" for split, rows in encoded.items()) + ", split by context",
        "cut responses": n_cut,
        "seed": seed,
        "SHA-256 of the token ids": f"{rows_sha256(*encoded.values())}, `rows` in checkpoints/inputs.json of `tune`",
    }
    return document(CARD, metadata=yaml.safe_dump(metadata, sort_keys=False), facts=table(facts))


CARD = Path(__file__).with_name("rows.md.j2")
TIED = "not trained by `train.py`, because TRL trains no single embeddings where the output layer shares them"

# In train.py, unless its user gives another model.
MODEL_REVISION = "    model_init_kwargs={{'revision': {!r}}} if len(sys.argv) == 1 else None,\n"
ADAPTER_REVISION = "        revision={!r} if len(sys.argv) == 1 else None,\n"
# In train.py: Evenhand reads the tag from this file, and adds it to what the model reads.
WRITE_TAG = 'Path("trained", "evenhand.json").write_text({!r}, encoding="utf-8")\n'
TRAIN = '''"""Train on the rows in this folder, by TRL alone. In this folder, with TRL: python train.py [MODEL]"""

import sys
from pathlib import Path

from datasets import load_from_disk
{peft}from trl import SFTConfig, SFTTrainer

model = sys.argv[1] if len(sys.argv) > 1 else {model!r}
if Path(model).is_dir():
    model = str(Path(model).resolve())  # the adapter records where its base is
elif model.startswith("."):
    sys.exit(f"The base is not in {{model}}, from where these rows were written: python train.py MODEL")
rows = load_from_disk("tokenized")
arguments = SFTConfig(
    output_dir="trained",
{arguments})
trainer = SFTTrainer(
    model=model,
    args=arguments,
    train_dataset=rows["train"],
    eval_dataset=rows["validation"],
{adapter})
trainer.train()
trainer.save_model()
{tag}print("The adapter is in trained. README.md says how to measure it as the base was measured.")
'''
