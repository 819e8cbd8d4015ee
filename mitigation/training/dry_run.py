"""A dry run: one training step on a tiny model, before the base is measured for hours.

TRL's trainers check some fields of their configs only when a trainer is built or computes a loss.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from evenhand.evaluation.errors import InputError
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.revisions import first_line
from evenhand.evaluation.runs import processes
from evenhand.mitigation.methods import TrainedMethod
from evenhand.mitigation.training.arguments import lora_config, trainer_arguments
from evenhand.mitigation.training.callbacks import preserve_random_states
from evenhand.mitigation.training.fit import build_trainer
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.suppress_warnings import suppress_warnings
from evenhand.mitigation.training.trainers import load_trainer

# Fields that affect the loss. Other fields may depend on the model, its tokenizer or the machine.
LOSS_FIELDS = {"discopop_tau", "f_alpha_divergence_coef", "f_divergence_type", "importance_sampling_level"}
LOSS_FIELDS |= {"label_smoothing", "ld_alpha", "loss_type", "loss_weights", "sync_ref_model"}
LOSS_FIELDS |= {"train_sampling_strategy", "use_weighting"}
ROWS = {"prompt": ["a", "b"], "context": ["a", "b"], "completion": ["c", "d"], "label": [True, False]}
ROWS |= {"chosen": ["c", "d"], "rejected": ["d", "c"]}
WITHOUT_FILES = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}


@preserve_random_states()
def dry_run(method: TrainedMethod, settings: TuningSettings, device: torch.device) -> None:
    """Train on two rows with a method's trainer, if `settings` have fields of the loss or a batch size of 1.

    The dry run takes a second. It is omitted if several processes train together.

    Raises:
        InputError: the trainer rejects a value.
    """
    loss_fields = {name: value for name, value in settings.trainer.items() if name in LOSS_FIELDS}
    if processes.world_size() > 1 or not (loss_fields or settings.batch_size == 1):
        return
    trainer_module, base = load_trainer(method.TRAINER), _tiny_model(device)
    rewards = [_index_rewards] if method.rewards else []
    neutral = {"peft": {}, "lora_rank": 1, "optimizer": None, "epochs": 1, "gradient_accumulation_steps": 1}
    settings = replace(settings, trainer=loss_fields, **neutral)
    with tempfile.TemporaryDirectory() as folder, suppress_warnings():
        try:
            rows = trainer_module.encode_rows(base, Dataset.from_dict(ROWS), settings, 0)
            arguments = trainer_arguments(
                trainer_module, settings, rows, device, output_dir=Path(folder), **WITHOUT_FILES
            )
            lora = lora_config(base.model, base.name, settings) if settings.lora else None
            build_trainer(base, trainer_module, (rows, rows), settings, arguments, lora, rewards, []).train()
        except InputError:
            raise
        except Exception as error:  # an unsuitable value may cause any error in the libraries
            field = f"trainer: {loss_fields}" if loss_fields else f"batch_size: {settings.batch_size}"
            message = f"TRL's {method.TRAINER.upper()} trainer rejects it: {first_line(error)}"
            raise InputError(f"training.{field}: {message}") from None


def _tiny_model(device: torch.device) -> DialogueModel:
    words = {word: index for index, word in enumerate(["<eos>", "<pad>", "<unk>", *"abcd"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = LlamaConfig(vocab_size=len(words), **sizes, bos_token_id=None, eos_token_id=0, pad_token_id=1)
    return DialogueModel(
        LlamaForCausalLM(config).to(device).eval(), tokenizer, "dialogue", "the model of the dry run", ""
    )


def _index_rewards(completions: Sequence[Any], **columns: Any) -> list[float]:
    return [float(index) for index in range(len(completions))]
