"""What the configs for real models cost: rates of models of the full size with random weights, and the time they mean.

    python -m benchmarks.real_model_rates dialogpt_medium [--rows 16] [--train_rows 2]

No weights are downloaded: a model of the config's shape computes as fast with random ones. It answers with random
tokens, nearly never with the end of the response, so each response has all of `max_new_tokens`; real ones end earlier,
and the time of generation here is an upper bound. Contexts have the length that prompts have in these models' own
tokens, about. Training is `evenhand.mitigation.training.tune.tune` itself, with the adapter and the trainer of the
config's methods.

All is computed by one thread, and seconds are those of the CPU, which other work on the machine hardly changes. Memory
is that of the small batches here; keys and values of larger ones come on top.
"""

import argparse
import logging
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import (
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    RobertaConfig,
    RobertaForSequenceClassification,
    TrainerCallback,
)

from evenhand.evaluation.errors import Refused
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.styles import StyleClassifier, style_vectors
from evenhand.mitigation.methods import load_method
from evenhand.mitigation.training.data import TuningData
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.tune import tune
from evenhand.recipes.command_line import read_settings
from evenhand.recipes.experiment import by_name, plans
from evenhand.recipes.settings import LoopSettings
from evenhand.recipes.tune import CALLBACK_PER_CELL

CONFIGS = Path(__file__).resolve().parents[1] / "recipes" / "configs"
TEMPLATES = 26
# Tokens of a context (a prompt has 5 to 15 words; a chat's turns and empty thoughts take 15 tokens more) and of a
# response to train on, in the middle of 1 and max_new_tokens.
CONTEXT = {"dialogpt_medium": 12, "blenderbot_400m": 12, "qwen_chat": 28, "llama_1b": 44, "gemma_1b": 20}
RESPONSE = 20
STEPS = 2


def dialogpt() -> PreTrainedModel:
    return GPT2LMHeadModel(GPT2Config(n_embd=1024, n_layer=24, n_head=16, n_positions=1024))


def blenderbot() -> PreTrainedModel:
    sizes = {"d_model": 1280, "encoder_layers": 2, "decoder_layers": 12}
    sizes |= dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 5120)
    return BlenderbotForConditionalGeneration(BlenderbotConfig(**sizes, scale_embedding=True))


def qwen() -> PreTrainedModel:
    sizes = {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "head_dim": 128}
    heads = {"num_attention_heads": 16, "num_key_value_heads": 8}
    return Qwen3ForCausalLM(Qwen3Config(**sizes, **heads, tie_word_embeddings=True, max_position_embeddings=40960))


def llama() -> PreTrainedModel:
    sizes = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64}
    heads = {"num_attention_heads": 32, "num_key_value_heads": 8}
    return LlamaForCausalLM(LlamaConfig(vocab_size=128256, **sizes, **heads, tie_word_embeddings=True))


def gemma() -> PreTrainedModel:
    sizes = {"hidden_size": 1152, "intermediate_size": 6912, "num_hidden_layers": 26, "head_dim": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 1}
    return Gemma3ForCausalLM(Gemma3TextConfig(vocab_size=262144, **sizes, **heads, sliding_window=512))


MODELS: dict[str, tuple[Callable[[], PreTrainedModel], str]] = {
    "dialogpt_medium": (dialogpt, "dialogue"),
    "blenderbot_400m": (blenderbot, "encoder_decoder"),
    # The contexts of chat models are rendered already.
    "qwen_chat": (qwen, "dialogue"),
    "llama_1b": (llama, "dialogue"),
    "gemma_1b": (gemma, "dialogue"),
}


def full_size(name: str) -> DialogueModel:
    """Return a random model of the real one's size."""
    build, kind = MODELS[name]
    torch.manual_seed(0)
    model = build().eval()
    for config in (model.config, model.generation_config):
        config.eos_token_id, config.pad_token_id = 2, 0
    for name_, default in (("num_beams", 1), ("forced_eos_token_id", None), ("encoder_no_repeat_ngram_size", None)):
        setattr(model.generation_config, name_, default)
    model.generation_config.min_length, model.generation_config.max_length = 0, None
    return DialogueModel(model, words_tokenizer(model.config.vocab_size), kind, name, "random")


def words_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the words "w0", "w1", …, named by their token ids, w0 being for padding and w2 the end."""
    backend = Tokenizer(models.WordLevel({f"w{index}": index for index in range(size)}, unk_token="w3"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": AddedToken("w0", single_word=True), "eos_token": AddedToken("w2", single_word=True)}
    return PreTrainedTokenizerFast(tokenizer_object=backend, padding_side="left", **special)


def texts(n: int, length: int, seed: int) -> list[str]:
    """Return n texts of `length` random tokens."""
    tokens = torch.randint(4, 8000, (n, length), generator=torch.Generator().manual_seed(seed))
    return [" ".join(f"w{token}" for token in row) for row in tokens.tolist()]


def generation_rate(model: DialogueModel, name: str, rows: int) -> tuple[float, float]:
    """Return CPU seconds per response, and tokens per CPU second, of one batch of `rows` responses after a warm-up."""
    arguments = decoding("sample")
    contexts = texts(rows, CONTEXT[name], seed=0)
    list(generate_responses(model, contexts[:2], [0, 1], {**arguments, "max_new_tokens": 2}))
    start = time.process_time()
    found = list(generate_responses(model, contexts, list(range(rows)), arguments, batch_size=rows))
    seconds = time.process_time() - start
    answered = sum(len(text.split()) for _, responses in found for text in responses)
    return seconds / rows, answered / seconds


class Clock(TrainerCallback):
    """Times the steps."""

    def __init__(self) -> None:
        self.seconds, self.start = [], 0.0

    def on_step_begin(self, *arguments: object, **_: object) -> None:
        self.start = time.process_time()

    def on_step_end(self, *arguments: object, **_: object) -> None:
        self.seconds.append(time.process_time() - self.start)


def tuning_data(name: str, method: str, settings: TuningSettings, rows: int) -> tuple[TuningSettings, TuningData]:
    """Return the settings and rows of a method's tuning of STEPS steps of `rows` rows."""
    n = STEPS * rows + 2
    said, answers = texts(n, CONTEXT[name], seed=1), texts(n, RESPONSE, seed=2)
    columns = {"prompt": said, "context": said, "completion": answers}
    module = load_method(method)
    if module.TRAINER == "dpo":
        columns |= {"chosen": answers, "rejected": texts(n, RESPONSE, seed=4)}
    if module.TRAINER == "kto":
        columns["label"] = [row % 2 == 0 for row in range(n)]
    data = Dataset.from_dict(columns)
    train, validation = data.select(range(n - 2)), data.select(range(n - 2, n))
    settings = replace(settings.filled_in(module), batch_size=rows, evaluations_per_epoch=1)
    tags = ("w5 w6", "w5 w7") if module.TAGS else ()
    return settings, TuningData(method=method, train=train, validation=validation, trainer=module.TRAINER, tags=tags)


def training_rate(model: DialogueModel, name: str, method: str, settings: TuningSettings, rows: int) -> float:
    """Return CPU seconds per row of the faster of two steps of `rows` rows."""
    settings, tuning = tuning_data(name, method, settings, rows)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, suppress(Refused):  # two steps may not be enough to matter
        tune(model, tuning, settings, Path(folder), callbacks=[clock])
    return min(clock.seconds) / rows


def classification_rate(rows: int) -> float:
    """Return CPU seconds per response of 40 tokens, classified by a random model of the size of roberta-base."""
    config = RobertaConfig(vocab_size=50265, max_position_embeddings=514, num_labels=28)
    model = RobertaForSequenceClassification(config).eval()
    tokenizer = words_tokenizer(config.vocab_size)
    classifier = StyleClassifier(model, tokenizer, tuple(map(str, range(28))), "", "roberta-base", "random")
    start = time.process_time()
    style_vectors(classifier, texts(rows, 40, seed=3))
    return (time.process_time() - start) / rows


def work(loop: LoopSettings) -> tuple[int, dict[str, int]]:
    """Return how many responses the loop generates, and how many rows each method trains on, at most."""
    stages = {
        stage.folder: stage
        for method in loop.methods
        for plan in plans(loop, method, by_name(Path()))
        for stage in plan.stages
    }
    cells = TEMPLATES * loop.measure.prompts.descriptors
    measured = [stage.settings for stage in stages.values() if stage.command == "measure"]
    responses = sum(cells * settings.prompts.per_cell for settings in measured)
    rows = {}
    for method in loop.methods:
        settings = loop.tune.training.filled_in(load_method(method))
        rows[method] = settings.epochs * min(settings.max_rows or 10**9, cells * loop.train_per_cell)
        steps = rows[method] // settings.batch_size
        times = 1 + steps // loop.tune.measure_every if loop.tune.measure_every else 0
        responses += times * TEMPLATES * loop.tune.measure_descriptors * CALLBACK_PER_CELL
    return responses, rows


def peak_memory() -> float:
    """Return the most memory that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", choices=MODELS)
    parser.add_argument("--rows", type=int, default=16, help="responses of the batch that is generated")
    parser.add_argument("--train_rows", type=int, default=2, help="rows of each of two steps")
    options = parser.parse_args()
    logging.getLogger("transformers").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    loop = read_settings("loop", CONFIGS / f"{options.name}.yaml")
    model = full_size(options.name)
    responses, rows = work(loop)
    size = sum(parameter.numel() for parameter in model.model.parameters()) / 1e6
    print(f"{options.name}: {size:.0f} M parameters, one thread of the CPU, float32")
    seconds, rate = generation_rate(model, options.name, options.rows)
    hours = responses * seconds / 3600
    print(f"generation, batch of {options.rows}: {rate:.0f} tokens/s, {seconds:.2f} s a response of 40 tokens")
    print(f"  {responses} responses: {hours:.1f} h at most; peak memory {peak_memory():.1f} GiB")
    for method, n in rows.items():
        seconds = training_rate(model, options.name, method, loop.tune.training, options.train_rows)
        hours += n * seconds / 3600
        print(f"{method}: {seconds:.2f} s a row ({options.train_rows} a step), {n} rows: {n * seconds / 3600:.1f} h;")
        print(f"  peak memory {peak_memory():.1f} GiB")
    seconds = classification_rate(options.rows)
    hours += responses * seconds / 3600
    print(f"style classification: {seconds:.3f} s a response, {responses * seconds / 3600:.1f} h at most")
    print(f"together {hours:.1f} h at most; peak memory {peak_memory():.1f} GiB")


if __name__ == "__main__":
    main()
