"""A step of training on a stand-in of few weights: what TRL's trainers refuse only as they are made or compute a loss.

Much of their configs is checked there, in a loop after the base was measured for hours; here it is before.
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
from evenhand.mitigation.methods import Method
from evenhand.mitigation.training.arguments import lora_config, training_arguments
from evenhand.mitigation.training.callbacks import preserve_random_states
from evenhand.mitigation.training.fit import make_trainer
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.suppress_warnings import suppress_warnings
from evenhand.mitigation.training.trainers import load_trainer

# The fields that a loss is made of. What others mean depends on the model, its tokenizer or the machine.
LOSS_FIELDS = {"discopop_tau", "f_alpha_divergence_coef", "f_divergence_type", "importance_sampling_level"}
LOSS_FIELDS |= {"label_smoothing", "ld_alpha", "loss_type", "loss_weights", "sync_ref_model"}
LOSS_FIELDS |= {"train_sampling_strategy", "use_weighting"}
ROWS = {"prompt": ["a", "b"], "context": ["a", "b"], "completion": ["c", "d"], "label": [True, False]}
ROWS |= {"chosen": ["c", "d"], "rejected": ["d", "c"]}
WITHOUT_FILES = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}


@preserve_random_states()
def dry_run(method: Method, settings: TuningSettings, device: torch.device) -> None:
    """Train on two rows with a method's trainer, where `settings` change its loss or have batches of one row.

    It takes a second, and is left to the tuning itself where several processes train together.

    Raises:
        InputError: the trainer refuses a value.
    """
    loss_fields = {name: value for name, value in settings.trainer.items() if name in LOSS_FIELDS}
    if processes.world_size() > 1 or not (loss_fields or settings.batch_size == 1):
        return
    trainer_module, base = load_trainer(method.TRAINER), _stand_in(device)
    rewards = [_reward] if hasattr(method, "rewards") else []
    own = {"peft": {}, "lora_rank": 1, "optimizer": None, "epochs": 1, "gradient_accumulation_steps": 1}
    settings = replace(settings, trainer=loss_fields, **own)
    with tempfile.TemporaryDirectory() as folder, suppress_warnings():
        try:
            rows = trainer_module.encode_rows(base, Dataset.from_dict(ROWS), settings, 0)
            common = training_arguments(settings, 0, len(rows), Path(folder), "none", None, device) | WITHOUT_FILES
            arguments = trainer_module.arguments(common, settings, rows)
            lora = lora_config(base, (), settings) if settings.lora else None
            make_trainer(base, trainer_module, (rows, rows), settings, arguments, lora, rewards, []).train()
        except InputError:
            raise
        except Exception as error:  # a value that a library was not made for may end in any
            what = f"trainer: {loss_fields}" if loss_fields else f"batch_size: {settings.batch_size}"
            refused = f"TRL's {method.TRAINER.upper()} trainer refuses it: {first_line(error)}"
            raise InputError(f"training.{what}: {refused}") from None


def _stand_in(device: torch.device) -> DialogueModel:
    words = {word: index for index, word in enumerate(["<eos>", "<pad>", "<unk>", *"abcd"])}
    backend = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>")
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = LlamaConfig(vocab_size=len(words), **sizes, bos_token_id=None, eos_token_id=0, pad_token_id=1)
    return DialogueModel(LlamaForCausalLM(config).to(device).eval(), tokenizer, "dialogue", "a stand-in", "")


def _reward(completions: Sequence[Any], **further: Any) -> list[float]:
    return [float(index) for index in range(len(completions))]
