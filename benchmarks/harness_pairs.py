"""The pairs of a finished measurement scored again by lm-evaluation-harness: equal log-likelihoods, time of both.

    python -m benchmarks.harness_pairs --run runs/crows_pairs [--batch_size 32]

Needs the extra `evenhand[lm-eval]`. The run is one of `measure --metrics sentence_pairs` with a causal model. The
harness computes a sentence's log-likelihood as its task `crows_pairs_english` does: after the model's start token.
Time is of the process's CPU, without loading the model.
"""

import time
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measuring import parse_options
from evenhand.evaluation.models.loading import load_dialogue_model
from evenhand.evaluation.score import read_scores
from evenhand.evaluation.settings import ModelSettings


def harness_log_likelihoods(model_name: str, sentences: list[str], batch_size: int) -> np.ndarray:
    """Return Σ log p of each sentence in nats by lm-evaluation-harness, and print the CPU seconds."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = load_dialogue_model(ModelSettings(name=model_name, device="cpu"))
    harness = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=batch_size)
    requests = [Instance("loglikelihood", {}, ("", sentence), i) for i, sentence in enumerate(sentences)]
    start = time.process_time()
    values = [value for value, _ in harness.loglikelihood(requests, disable_tqdm=True)]
    print(f"lm-evaluation-harness: {len(sentences):,} sentences, {time.process_time() - start:.0f} CPU s")
    return np.array(values)


def main() -> None:
    arguments = parse_options(__doc__, run=(Path, "folder of a run"), batch_size=(32, "sentences in a batch"))
    pairs = pd.read_parquet(arguments.run / "pairs.parquet").dropna(subset=["log_likelihood_more"])
    signature = read_scores(arguments.run / "scores.json")[0].signature
    ours = pairs[["log_likelihood_more", "log_likelihood_less"]].to_numpy()
    sentences = [*pairs["more"], *pairs["less"]]
    theirs = harness_log_likelihoods(signature["model"]["name"], sentences, arguments.batch_size)
    theirs = theirs.reshape(2, -1).T
    print(f"largest difference of a sentence: {np.abs(ours - theirs).max():.2e} nats")
    print(f"largest difference of a pair: {np.abs((ours - theirs) @ [1, -1]).max():.2e} nats")
    for name, values in (("Evenhand", ours), ("lm-evaluation-harness", theirs)):
        print(
            f"{name}: the more stereotypical sentence is likelier in {(values @ [1, -1] > 0).mean():.4f} of the pairs"
        )


if __name__ == "__main__":
    main()
