"""A benchmark of generation, classification, scoring and tuning with models of real sizes, and the hours of a loop.

    python -m benchmarks.model_rates qwen_chat llama_1b qwen_8b --rows 512 --train_rows 16 --sentences 4000
    python -m benchmarks.model_rates dialogpt_medium --hours

The first command prints a table of tokens per second: shapes of 0.6, 1 and 8 billion parameters with random weights, in
bfloat16 on a GPU and float32 on a CPU. If a shape exceeds the memory or a column does not run, the reason is printed.

- generation: responses of 40 tokens each in one batch, and equally many responses to the same contexts by
  `generate_batch`, transformers' continuous batching. Each method runs twice; the second run is timed.
- scoring: sentences of HolisticBias, one token per word, over the prefix tree, in tokens of the sentences.
- KTO with LoRA: by `evenhand.mitigation.training.tune.tune`, the faster of two steps, in tokens of the rows,
  although KTO reads each context a second time with another row's response.
- classification: texts of 40 tokens by a model of roberta-base's shape.

`--hours` prints the time of the loop of recipes/configs/NAME.yaml at these rates, with the methods of that config. Real
responses may be shorter, so the time is an upper bound.

On a CPU one thread computes, and seconds are CPU seconds, which other work on the machine hardly changes; on a GPU
seconds are wall-clock time until the device has finished.
"""

import argparse
import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import torch
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    RobertaConfig,
    RobertaForSequenceClassification,
    TrainerCallback,
)

from benchmarks.measuring import make_parser, peak_memory
from benchmarks.random_models import (
    RESPONSE,
    SHAPES,
    full_size,
    network,
    parameters,
    texts,
    tuning_data,
    words_tokenizer,
)
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.prompts import sample_descriptors
from evenhand.evaluation.errors import TuningRejected
from evenhand.evaluation.models.batches import free_gpu_memory, is_out_of_memory
from evenhand.evaluation.models.checkpoints import resolve_device
from evenhand.evaluation.models.decoding import decoding
from evenhand.evaluation.models.generation import generate_responses
from evenhand.evaluation.models.likelihood.causal import encode_sentences
from evenhand.evaluation.models.likelihood.prefix_tree import node_log_probabilities, prefix_tree
from evenhand.evaluation.models.loading import DialogueModel
from evenhand.evaluation.models.styles import StyleClassifier, style_vectors
from evenhand.evaluation.score import TEXT
from evenhand.mitigation.methods import load_method
from evenhand.mitigation.training.settings import TuningSettings
from evenhand.mitigation.training.tune import tune
from evenhand.recipes.command_line import read_settings
from evenhand.recipes.plans import named_folders, plan_decodings
from evenhand.recipes.settings import LoopSettings
from evenhand.recipes.tune import CALLBACK_PER_CELL

CONFIGS = Path(__file__).resolve().parents[1] / "recipes" / "configs"
TEMPLATES, CLASSIFIED = 26, 40  # tokens of a text that is classified
ARGUMENTS = decoding("sample")
MEMORY = 1.5  # minimum memory of a model, relative to the size of its weights


class DoesNotRun(Exception):
    """An error: a benchmark does not run on this machine; the message is the reason."""


def seconds(device: torch.device) -> float:
    """Return the CPU time of this process in seconds, or on a GPU the wall-clock time after all GPU work is done."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def second_of_two(work: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of the second of two calls of `work`."""
    work()
    start = seconds(device)
    work()
    return seconds(device) - start


def contexts(model: DialogueModel, options: argparse.Namespace) -> list[str]:
    return texts(options.rows, SHAPES[model.name][1], seed=0)


def generation_rate(model: DialogueModel, options: argparse.Namespace) -> float:
    """Return the generated tokens per second of `generate_responses`."""
    asked, rows = contexts(model, options), options.rows

    def answer() -> None:
        list(generate_responses(model, asked, list(range(rows)), ARGUMENTS, batch_size=rows))

    return rows * ARGUMENTS["max_new_tokens"] / second_of_two(answer, model.model.device)


def generate_batch_rate(model: DialogueModel, options: argparse.Namespace) -> float:
    """Return the generated tokens per second of `generate_batch` for the same contexts and lengths of responses."""
    decoder_only(model)
    ids = model.tokenizer(contexts(model, options), add_special_tokens=False)["input_ids"]
    generation_config = GenerationConfig(**ARGUMENTS, eos_token_id=-1, pad_token_id=0)
    # By default, `generate_batch` reserves nearly all memory for keys and values; on a CPU, other programs need memory.
    blocks = options.rows if model.model.device.type == "cpu" else None
    config = ContinuousBatchingConfig(seed=0, num_blocks=blocks)
    made = []

    def answer() -> None:
        found = model.model.generate_batch(
            ids, generation_config=generation_config, continuous_batching_config=config, persistent_manager=True
        )
        errors = {one.error for one in found.values() if one.error}
        made.append(sum(len(one.generated_tokens) for one in found.values()))
        if errors or made[-1] != len(ids) * generation_config.max_new_tokens:
            raise DoesNotRun(
                f"{made[-1]} tokens instead of {len(ids) * generation_config.max_new_tokens} {' '.join(errors)}"
            )

    try:
        taken = second_of_two(answer, model.model.device)
    except (ImportError, NotImplementedError, AttributeError, TypeError, ValueError, RuntimeError) as error:
        raise DoesNotRun(f"{type(error).__name__}: {str(error).splitlines()[0]}") from error
    finally:
        model.model.destroy_cached_continuous_batching_manager()
    return made[-1] / taken


def scoring_rate(model: DialogueModel, options: argparse.Namespace) -> float:
    """Return the sentence tokens per second of scoring over a prefix tree."""
    decoder_only(model)
    every = generate_prompts(load_taxonomy())
    sentences = list(dict.fromkeys(sample_descriptors(every, min(13, options.sentences), seed=0)[TEXT]))
    words = {word: f"w{4 + number}" for number, word in enumerate(dict.fromkeys(" ".join(sentences).split()))}
    some = [" ".join(words[word] for word in sentence.split()) for sentence in sentences[: options.sentences]]
    encoded = encode_sentences(model, some)
    tree = prefix_tree(encoded.ids)
    taken = second_of_two(lambda: list(node_log_probabilities(model, tree)), model.model.device)
    return sum(len(ids) - 1 for ids in encoded.ids) / taken


def kto_rate(model: DialogueModel, options: argparse.Namespace) -> float:
    """Return the row tokens per second of KTO with LoRA."""
    decoder_only(model)
    dtype = "bfloat16" if model.model.dtype == torch.bfloat16 else "float32"
    settings = TuningSettings(learning_rate=2e-5, dtype=dtype)
    return (SHAPES[model.name][1] + RESPONSE) / seconds_per_row(model, "kto", settings, options.train_rows)


def decoder_only(model: DialogueModel) -> None:
    if model.kind == "encoder_decoder":
        raise DoesNotRun("it is an encoder-decoder")


class Clock(TrainerCallback):
    """A trainer callback that records the time of each step."""

    def __init__(self, device: torch.device) -> None:
        self.seconds, self.start, self.device = [], 0.0, device

    def on_step_begin(self, *arguments: object, **_: object) -> None:
        self.start = seconds(self.device)

    def on_step_end(self, *arguments: object, **_: object) -> None:
        self.seconds.append(seconds(self.device) - self.start)


def seconds_per_row(model: DialogueModel, method: str, settings: TuningSettings, rows: int) -> float:
    """Return the seconds per row of the faster of two steps of `rows` rows."""
    settings, tuning = tuning_data(model.name, method, settings, rows)
    clock = Clock(model.model.device)
    with (
        tempfile.TemporaryDirectory() as folder,
        suppress(TuningRejected),
    ):  # two steps change little
        tune(model, tuning, settings, Path(folder), callbacks=[clock])
    return min(clock.seconds) / rows


def classification_rate(rows: int, device: torch.device, dtype: torch.dtype) -> float:
    """Return the classified texts per second of a model of roberta-base's shape."""
    config = RobertaConfig(vocab_size=50265, max_position_embeddings=514, num_labels=28)
    with torch.device(device):
        model = RobertaForSequenceClassification(config).to(dtype).eval()
    tokenizer = words_tokenizer(config.vocab_size)
    classifier = StyleClassifier(model, tokenizer, tuple(map(str, range(28))), "", "roberta-base", "random")
    classified_texts = texts(rows, CLASSIFIED, seed=3)
    return rows / second_of_two(lambda: style_vectors(classifier, classified_texts), device)


RATES: dict[str, Callable[[DialogueModel, argparse.Namespace], float]] = {
    "generation": generation_rate,
    "by `generate_batch`": generate_batch_rate,
    "scoring": scoring_rate,
    "KTO with LoRA": kto_rate,
}


def rates(model: DialogueModel, options: argparse.Namespace) -> dict[str, float | str]:
    """Return the tokens per second of each column of the table, or the reason why a number is missing."""
    found: dict[str, float | str] = {}
    for column, rate in RATES.items():
        try:
            found[column] = rate(model, options)
        except DoesNotRun as reason:
            found[column] = str(reason)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            found[column] = "out of memory"
        free_gpu_memory()
    return found


def too_large(size: int, dtype: torch.dtype, device: torch.device) -> str:
    """Return the reason why a model with `size` parameters cannot run on the device; "" if it can."""
    needed = MEMORY * size * dtype.itemsize
    free = psutil.virtual_memory().available if device.type == "cpu" else torch.cuda.mem_get_info(device)[0]
    return f"{needed / 2**30:.1f} GiB needed, {free / 2**30:.1f} GiB free" if needed > free else ""


def work(loop: LoopSettings) -> tuple[int, dict[str, int]]:
    """Return the number of responses that a loop generates, and the largest number of training rows by method."""
    stages = {
        stage.folder: stage
        for method in loop.methods
        for plan in plan_decodings(loop, method, named_folders(Path()))
        for stage in plan.stages
    }
    cells = TEMPLATES * loop.measure.prompts.descriptors
    measured = [stage.settings for stage in stages.values() if stage.command == "measure"]
    responses = sum(cells * settings.prompts.per_cell for settings in measured)
    rows = {}
    for method in loop.methods:
        settings = loop.tune.training.with_method_defaults(load_method(method))
        rows[method] = settings.epochs * min(settings.max_rows or 10**9, cells * loop.train_per_cell)
        steps = rows[method] // settings.batch_size
        times = 1 + steps // loop.tune.measure_every if loop.tune.measure_every else 0
        responses += times * TEMPLATES * loop.tune.measure_descriptors * CALLBACK_PER_CELL
    return responses, rows


def print_hours(model: DialogueModel, options: argparse.Namespace, classified: float) -> None:
    """Print the hours of a config's loop; `classified` is the rate of classification in texts per second."""
    loop = read_settings("loop", CONFIGS / f"{model.name}.yaml")
    responses, rows = work(loop)
    each = ARGUMENTS["max_new_tokens"] / generation_rate(model, options)
    hours = [responses * each / 3600, responses / classified / 3600]
    print(
        f"\n{model.name}: {responses} responses, {each:.2f} s each ({options.rows} at once): {hours[0]:.1f} h at most"
    )
    print(f"  to classify them: {hours[1]:.1f} h; peak memory {peak_memory():.1f} GiB")
    for method, n in rows.items():
        each = seconds_per_row(model, method, loop.tune.training, options.train_rows)
        hours.append(n * each / 3600)
        print(f"  {method}: {n} rows, {each:.2f} s each ({options.train_rows} a step): {hours[-1]:.1f} h", end="")
        print(f"; peak memory {peak_memory():.1f} GiB")
    print(f"  together {sum(hours):.1f} h at most")


def print_table(names: list[str], options: argparse.Namespace, device: torch.device, dtype: torch.dtype) -> None:
    """Print the tokens per second of each shape, and the reasons for missing numbers."""
    reasons = []
    print(f"\n| tokens/s | parameters | {' | '.join(RATES)} |\n|{' --- |' * (2 + len(RATES))}")
    for name in names:
        size = parameters(network(name, dtype, "meta"))
        if reason := too_large(size, dtype, device):
            found: dict[str, float | str] = dict.fromkeys(RATES, reason)
        else:
            found = rates(full_size(name, dtype, device), options)
            free_gpu_memory()
        reasons += [f"{name}, {column}: {value}" for column, value in found.items() if isinstance(value, str)]
        numbers = ["–" if isinstance(value, str) else f"{value:,.0f}" for value in found.values()]
        print(f"| {name} | {size / 1e6:,.1f} M | {' | '.join(numbers)} |", flush=True)
    print(*reasons, sep="\n")


def main() -> None:
    parser = make_parser(
        __doc__,
        rows=(16, "responses, and texts that are classified, at once"),
        train_rows=(2, "rows of each of two steps"),
        sentences=(200, "that are scored"),
        device="auto",
        hours=(False, "of the loops of their configs, in place of the table"),
    )
    parser.add_argument("names", nargs="+", choices=SHAPES, metavar="NAME", help=", ".join(SHAPES))
    options = parser.parse_args()
    for name in ("transformers", "ContinuousBatchingLogger"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    device = resolve_device(options.device)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "one thread of the CPU"
    classified = classification_rate(options.rows, device, dtype)
    print(f"{where}, {dtype}: {classified:.1f} texts of {CLASSIFIED} tokens classified a second")
    if options.hours:
        for name in options.names:
            print_hours(full_size(name, dtype, device), options, classified)
    else:
        print_table(options.names, options, device, dtype)


if __name__ == "__main__":
    main()
