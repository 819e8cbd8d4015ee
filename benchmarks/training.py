"""What `distill` learns in equal CPU time or steps: its learning rates, cheaper trainings, and activated adapters.

$ python -m benchmarks.training RESPONSES                                        # an hour of one core
$ python -m benchmarks.training RESPONSES --minutes 0.1 --variants "as it is"    # a try, a minute
$ python -m benchmarks.training RESPONSES --steps 120 --seed 1 --variants "rate 0.001" "activated by the tag"

RESPONSES is a folder of `evenhand measure` with responses to tune on, such as `train` of a loop. The model of its
settings is tuned on the responses to half of the descriptors, by each variant from the same start and for the same CPU
time. What it learned is read from its predictions of the base's responses to the other half, whom it was never tuned
on, after eight prompts that differ in the descriptor only; nothing is sampled:

- removed: of the KL divergence of the first four tokens' predictions from their normalised mean over the eight people;
- kept: of the same divergence for later tokens, in which a response says something to the person;
- perplexity: the change of the perplexity of the base's responses;
- switched off: the largest change of a logit without the tag, or, without a tag, with the adapter off.

95 % intervals are percentiles of a bootstrap over responses. They do not contain the chance of training.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from peft import LoraConfig
from scipy.stats import bootstrap
from torch.nn.functional import kl_div, log_softmax
from transformers import PrinterCallback

from benchmarks.measuring import parse_options
from evenhand.evaluation import columns
from evenhand.evaluation.metrics.generation_bias.answers import read_answers
from evenhand.evaluation.models.batches import common_prefix_length
from evenhand.evaluation.models.checkpoints import ignore_renamed_checkpointing
from evenhand.evaluation.models.contexts import encode_contexts, render_contexts
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.mitigation.invocation import added_tokens
from evenhand.mitigation.labelled_responses import SPARES_OWN_WORDS, rows_of_several_people
from evenhand.mitigation.methods.control_tags import NO_BIAS_TAG
from evenhand.mitigation.settings import TuningSettings
from evenhand.mitigation.trainer_configs import lora_config
from evenhand.mitigation.trainers import SFT, DistillConfig, DistillTrainer, log_probabilities, sequences_of
from evenhand.mitigation.training import trainable_model
from evenhand.mitigation.training_batches import IGNORE_INDEX
from evenhand.mitigation.training_rows import token_ids
from evenhand.recipes.finished_runs import read_measurement
from evenhand.recipes.settings import GENERATION_BIAS, family_config

FIRST_TOKENS = 4
N_TEST = 40  # responses to people never tuned on
N_TIMED = 10  # steps from which the number of steps of a variant is computed
SEED = 0
BATCH_SIZE = 2
DEFAULT_RATE = 3e-4


def four_people(rows: Dataset) -> Dataset:
    """Return the rows, each with the first four of its eight prompts."""
    return rows.map(lambda row: {"input_ids": row["input_ids"][:4]})


def cut_after_opening(rows: Dataset) -> Dataset:
    """Return rows of which three of four have no more than the first tokens of their response."""

    def cut(row: dict[str, list], number: int) -> dict[str, list]:
        if number % 4 == 0:
            return row
        n_cut = max(len(row["labels"]) - 1 - FIRST_TOKENS, 0)
        sequences = {name: [ids[: len(ids) - n_cut] for ids in row[name]] for name in ("input_ids", "trained_ids")}
        return {**sequences, "labels": row["labels"][: len(row["labels"]) - n_cut]}

    return rows.map(cut, with_indices=True)


def one_trained_prompt(rows: Dataset) -> Dataset:
    """Return the rows, of which the model is trained after the response's own prompt alone."""
    return rows.map(lambda row: {"trained_ids": row["trained_ids"][:1]})


@dataclass(frozen=True)
class Variant:
    """A training: its learning rate, a change of its rows, the control tag, and whether its adapter is activated.

    The control tag activates it, or, without a tag, the generation prompt of the chat template. `trained_tags` are
    strings whose embeddings are trained. With `spares_own_words`, the words by which people name themselves keep each
    person's own prediction.
    """

    learning_rate: float = DEFAULT_RATE
    change: Callable[[Dataset], Dataset] = lambda rows: rows
    tag: str = ""
    is_activated: bool = False
    trained_tags: Sequence[str] = ()
    spares_own_words: bool = False


VARIANTS = {
    "as it is": Variant(),
    "rate 0.0006": Variant(learning_rate=6e-4),
    "rate 0.001": Variant(learning_rate=1e-3),
    "rate 0.002": Variant(learning_rate=2e-3),
    "one trained prompt": Variant(change=one_trained_prompt),
    "four people": Variant(change=four_people),
    "three of four rows cut": Variant(change=cut_after_opening),
    "own words spared": Variant(learning_rate=1e-3, spares_own_words=True),
    "activated by the tag": Variant(learning_rate=1e-3, tag=NO_BIAS_TAG, is_activated=True),
    "activated by the generation prompt": Variant(learning_rate=1e-3, is_activated=True),
}


@dataclass(frozen=True)
class Predictions:
    """Sums over the tokens of each test response, (responses)."""

    opening: np.ndarray  # divergence between people in the first tokens
    later: np.ndarray  # … in the later tokens
    loss: np.ndarray  # −log p of the response after its own prompt
    n_tokens: np.ndarray


def predictions(base: DialogueModel, model: torch.nn.Module, rows: Dataset) -> Predictions:
    """Return what a model predicts of the responses of test rows, each after all prompts of its row."""
    collate = DistillTrainer.collator(base, pad_token_id=0)
    sums = []
    model.eval()  # without dropout; a trainer sets its model to training
    for row in rows:
        batch = collate([row])
        labels = batch["labels"]
        is_response = labels[:, 1:] != IGNORE_INDEX
        with torch.no_grad():
            found = log_probabilities(model, sequences_of(batch, ""), is_response)  # (prompts, tokens, vocabulary)
        mean = log_softmax(found.mean(0), -1).expand_as(found)
        divergence = kl_div(found, mean, reduction="none", log_target=True).sum(-1).mean(0)
        tokens = labels[0, 1:]
        loss = -found[0].gather(-1, tokens[:, None]).sum()
        opening = divergence[:FIRST_TOKENS].sum()
        later = divergence[FIRST_TOKENS:].sum()
        sums.append([float(opening), float(later), float(loss), len(tokens)])
    opening, later, loss, n_tokens = np.array(sums).T
    return Predictions(opening=opening, later=later, loss=loss, n_tokens=n_tokens)


def split_people(
    base: DialogueModel, table: pd.DataFrame, seed: int = SEED, tag: str = ""
) -> tuple[np.ndarray, Dataset]:
    """Return which responses are to the half of the descriptors to tune on, bool (n,), and N_TEST rows of the other.

    All contexts of the rows end with the tag.
    """
    descriptors = np.random.default_rng(seed).permutation(sorted(table[columns.DESCRIPTOR].unique()))
    is_tuned = table[columns.DESCRIPTOR].isin(descriptors[: len(descriptors) // 2]).to_numpy()

    def render(prompts: Sequence[str], personas: Sequence[str], _: str) -> list[str]:
        return render_contexts(base, prompts, personas, tag)

    rows = rows_of_several_people(table[~is_tuned], render, tag, seed)
    test_rows = DistillTrainer.encode_rows(base, rows).shuffle(seed)
    return is_tuned, test_rows.select(range(min(N_TEST, len(test_rows))))


def encoded_rows(base: DialogueModel, table: pd.DataFrame, variant: Variant, seed: int = SEED) -> Dataset:
    """Return the encoded rows of `distill` on responses, shuffled; contexts after which is trained end with the tag."""
    rows = rows_of_several_people(table, partial(render_contexts, base), variant.tag, seed)
    if variant.spares_own_words:
        rows = rows.add_column(SPARES_OWN_WORDS, [True] * len(rows))
    return DistillTrainer.encode_rows(base, rows).shuffle(seed)


def adapter_config(base: DialogueModel, variant: Variant) -> LoraConfig:
    """Return the config of a variant's adapter."""
    invocation = None
    if variant.is_activated:
        prompts = ["a prompt", "another"]
        plain, other = encode_contexts(base, render_contexts(base, prompts, ["", ""], ""))
        if variant.tag:
            tagged = render_contexts(base, prompts[:1], [""], variant.tag)
            invocation = added_tokens(plain, encode_contexts(base, tagged)[0])
        else:
            n_common = common_prefix_length(plain[::-1], other[::-1])
            invocation = plain[len(plain) - n_common :]
    return lora_config(base.model, TuningSettings(), token_ids(base, variant.trained_tags), invocation)


def fit(
    base: DialogueModel,
    variant: Variant,
    rows: Dataset,
    n_steps: int,
    seed: int = SEED,
    trainer_class: type[SFT] = DistillTrainer,
) -> tuple[torch.nn.Module, float]:
    """Return the model after so many steps, and the CPU seconds of its training."""
    with tempfile.TemporaryDirectory() as folder, ignore_renamed_checkpointing():
        config = DistillConfig(
            output_dir=folder,
            max_steps=n_steps,
            per_device_train_batch_size=BATCH_SIZE,
            learning_rate=variant.learning_rate,
            warmup_steps=TuningSettings().warmup_ratio,
            label_smoothing_factor=0.0,
            first_tokens=FIRST_TOKENS,
            seed=seed,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=base.model.device.type == "cpu",
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_strategy="no",
            **DistillTrainer.config_fields,
        )
        model = trainable_model(base, config, adapter_config(base, variant))
        trainer = trainer_class(
            model,
            args=config,
            data_collator=trainer_class.collator(base, pad_token_id=0),
            train_dataset=rows,
            processing_class=base.tokenizer,
        )
        trainer.remove_callback(PrinterCallback)
        start = time.process_time()
        trainer.train()
        return model, time.process_time() - start


def train(
    base: DialogueModel, variant: Variant, rows: Dataset, n_steps: int, seconds: float, seed: int
) -> tuple[torch.nn.Module, int]:
    """Return the model that a variant tunes in so many steps, or, if 0, in the CPU seconds, and its number of rows."""
    rows = variant.change(rows)
    if not n_steps:
        n_steps = round(seconds * N_TIMED / fit(base, variant, rows, N_TIMED, seed)[1])
    n_steps = min(n_steps, len(rows) // BATCH_SIZE)
    model, used = fit(base, variant, rows, n_steps, seed)
    print(f"    {n_steps} steps, {used:.0f} CPU seconds", flush=True)
    return model, n_steps * BATCH_SIZE


def change_when_off(base: DialogueModel, model: torch.nn.Module, variant: Variant, untagged: Dataset) -> float:
    """Return the largest change of a logit of a test sequence without the tag, or else with the adapter off."""
    ids = torch.tensor([untagged[0]["input_ids"][0]])
    off = contextlib.nullcontext() if variant.tag else model.disable_adapter()
    with torch.no_grad(), off:
        change = model(input_ids=ids).logits - base.model(input_ids=ids).logits
    return float(change.abs().max())


def percent(value: float, low: float, high: float) -> str:
    return f"{100 * value:.0f} % [{100 * low:.0f}, {100 * high:.0f}]"


def line(name: str, n_rows: int, before: Predictions, after: Predictions) -> str:
    """Return the row of the printed table with what a variant learned."""
    cells = [percent(*interval) for interval in removed_and_kept(before, after)]
    return f"| {name} | {n_rows:,} | " + " | ".join(cells) + " |"


def removed_and_kept(before: Predictions, after: Predictions) -> list[tuple[float, float, float]]:
    """Return what is removed, what is kept and the rise of perplexity, each as (value, low, high)."""

    def removed(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
        return 1 - second.sum(axis) / first.sum(axis)

    def kept(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
        return second.sum(axis) / first.sum(axis)

    def rise(first: np.ndarray, second: np.ndarray, tokens: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.exp((second - first).sum(axis) / tokens.sum(axis)) - 1

    measures = [
        ((before.opening, after.opening), removed),
        ((before.later, after.later), kept),
        ((before.loss, after.loss, before.n_tokens), rise),
    ]
    found = []
    for data, statistic in measures:
        interval = bootstrap(data, statistic, paired=True, rng=SEED, method="percentile").confidence_interval
        found.append((float(statistic(*data)), float(interval.low), float(interval.high)))
    return found


def main() -> None:
    options = parse_options(
        __doc__,
        folders=("responses",),
        minutes=(8.0, "of one core, for each variant"),
        steps=(0, "of each variant, in place of minutes"),
        seed=(0, "of the people tuned on, the rows and the adapters"),
        variants=(list(VARIANTS), "of the training"),
    )
    torch.set_num_threads(1)
    settings, _ = read_measurement(options.responses, "responses")
    base = load_dialogue_model(family_config(settings, GENERATION_BIAS).model)
    table = read_answers(options.responses).table
    is_tuned, untagged = split_people(base, table, options.seed)
    before = predictions(base, base.model, untagged)
    print("| training | responses | removed | kept | perplexity | switched off |", flush=True)
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    for name in options.variants:
        variant = VARIANTS[name]
        rows = encoded_rows(base, table[is_tuned], variant, options.seed)
        model, n_rows = train(base, variant, rows, options.steps, 60 * options.minutes, options.seed)
        after = predictions(base, model, split_people(base, table, options.seed, variant.tag)[1])
        off = change_when_off(base, model, variant, untagged)
        print(f"{line(name, n_rows, before, after)} {off:.2g} |", flush=True)


if __name__ == "__main__":
    main()
