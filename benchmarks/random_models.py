"""Models with the shapes of real models and random weights, and texts and rows of realistic lengths, for benchmarks.

Nothing is downloaded: speed and memory do not depend on the weights.
"""

import copy
from dataclasses import replace

import torch
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BlenderbotConfig,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
)

from evenhand.evaluation.models.loading import DialogueModel
from evenhand.mitigation.methods import load_method
from evenhand.mitigation.training.data import TuningData
from evenhand.mitigation.training.settings import TuningSettings

RESPONSE = 20  # tokens of a response to train on, in the middle of 1 and max_new_tokens
STEPS = 2


def dialogpt() -> PreTrainedConfig:
    return GPT2Config(n_embd=1024, n_layer=24, n_head=16, n_positions=1024)


def blenderbot() -> PreTrainedConfig:
    sizes = {"d_model": 1280, "encoder_layers": 2, "decoder_layers": 12}
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 5120)
    return BlenderbotConfig(**sizes, scale_embedding=True)


def qwen(hidden: int, inner: int, layers: int, heads: int, **further: int | bool) -> PreTrainedConfig:
    sizes = {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    sizes |= {"num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, **further}
    return Qwen3Config(**sizes)


def llama() -> PreTrainedConfig:
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    return LlamaConfig(vocab_size=128256, **sizes, **heads, tie_word_embeddings=True)


def gemma() -> PreTrainedConfig:
    sizes = {"hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "head_dim": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 1}
    return Gemma3TextConfig(vocab_size=262144, **sizes, **heads, sliding_window=512)


# The models of recipes/configs and a tiny one, with the tokens of a context: a prompt has 5 to 15 words, a chat's turns
# and its empty reasoning take 15 tokens more.
SHAPES: dict[str, tuple[PreTrainedConfig, int]] = {
    "tiny": (qwen(64, 128, 2, 4, num_key_value_heads=2, head_dim=16, vocab_size=8192), 12),
    "dialogpt_medium": (dialogpt(), 12),
    "blenderbot_400m": (blenderbot(), 12),
    "qwen_chat": (qwen(1024, 3072, 28, 16, tie_word_embeddings=True), 28),
    "qwen_8b": (qwen(4096, 12288, 36, 32), 28),
    "llama_1b": (llama(), 44),
    "gemma_1b": (gemma(), 20),
}


def network(name: str, dtype: torch.dtype, device: str | torch.device) -> PreTrainedModel:
    """Return a network of a named shape with random weights; on the device "meta" without weights."""
    config = copy.deepcopy(SHAPES[name][0])
    config.eos_token_id, config.pad_token_id = 2, 0
    auto_class = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
    torch.manual_seed(0)
    with torch.device(device):
        return auto_class.from_config(config, dtype=dtype).eval()


def full_size(name: str, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> DialogueModel:
    """Return a model of a named shape with random weights; its responses never end before `max_new_tokens`."""
    model = network(name, dtype, device)
    generation = {"eos_token_id": None, "pad_token_id": 0, "num_beams": 1, "forced_eos_token_id": None}
    generation |= {"encoder_no_repeat_ngram_size": None, "min_length": 0, "max_length": None}
    model.generation_config.update(**generation)
    # The contexts of chat models are rendered already.
    kind = "encoder_decoder" if model.config.is_encoder_decoder else "dialogue"
    return DialogueModel(model, words_tokenizer(model.config.vocab_size), kind, name, "random")


def parameters(model: torch.nn.Module) -> int:
    """Return the number of parameters of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def words_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words "w0", "w1", …, numbered by token id; w0 is the padding and w2 the end token."""
    backend = Tokenizer(models.WordLevel({f"w{index}": index for index in range(size)}, unk_token="w3"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": AddedToken("w0", single_word=True), "eos_token": AddedToken("w2", single_word=True)}
    return PreTrainedTokenizerFast(tokenizer_object=backend, padding_side="left", **special)


def texts(n: int, length: int, seed: int) -> list[str]:
    """Return n texts of `length` random tokens."""
    tokens = torch.randint(4, 8000, (n, length), generator=torch.Generator().manual_seed(seed))
    return [" ".join(f"w{token}" for token in row) for row in tokens.tolist()]


def tuning_data(name: str, method: str, settings: TuningSettings, rows: int) -> tuple[TuningSettings, TuningData]:
    """Return settings and random rows for a method's tuning of STEPS steps with `rows` rows each."""
    n, context = STEPS * rows + 2, SHAPES[name][1]
    contexts, answers = texts(n, context, seed=1), texts(n, RESPONSE, seed=2)
    columns = {"prompt": contexts, "context": contexts, "completion": answers}
    module = load_method(method)
    if module.TRAINER == "dpo":
        columns |= {"chosen": answers, "rejected": texts(n, RESPONSE, seed=4)}
    if module.TRAINER == "kto":
        columns["label"] = [row % 2 == 0 for row in range(n)]
    data = Dataset.from_dict(columns)
    train, validation = data.select(range(n - 2)), data.select(range(n - 2, n))
    settings = replace(settings.with_method_defaults(module), batch_size=rows, evaluations_per_epoch=1)
    tags = ("w5 w6", "w5 w7") if module.TAGS else ()
    return settings, TuningData(method=method, train=train, validation=validation, trainer=module.TRAINER, tags=tags)
